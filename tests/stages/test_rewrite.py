# SPDX-License-Identifier: Apache-2.0
"""`rewrite` against plain Python, and the shapes of columns it takes and gives."""

import itertools
import random
import unicodedata

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import unicodedata2
from hypothesis import given, settings
from hypothesis import strategies as st

from cpu_fallback.buffers import STRING, buffers_of
from cpu_fallback.text import rewrite
from curation.base.errors import RecipeError
from curation.kernels import tables, utf8
from curation.kernels.rewrite import CHOICES, VISIBLE, RewriteSteps, output_bound, plan_steps
from tests.corpus import NASTY, assigned_characters, characters
from tests.oracle import rewriting

SIGMAS = [
    "Σ", "ΑΣ", "ΣΑ", "ΑΣΑ", "ΑΣ ΣΑ", "ΑΣ'", "ΑΣ'Α", "Α'Σ", "'Σ", "ΑΣΣ", "ΣΣΣ", "ΑΣ.Σ.Σ", "ΑΣ\u0301\u0301",
    "ΑΣ\u0301Α", "ςΣς ΑςΣ", "1Σ Α1Σ", "Α\u00adΣ\u00ad", "Α<b>Σ</b>Α", "ΑΣ<b> </b>", "Α\x00Σ\x00Α", "ΑΣ#Α",
    "Α#Σ", "ΑΣ  \t", "ΑΣ\n\n\nΑ", "ʰΣ Αʰ Σʰ ΑΣʰ", "İΣ ΣİΣ", "ΑΣͅ", "ͅΣ", "ΟΔΥΣΣΕΥΣ. ΟΔΟΣ", "𐐀Σ Σ𐐀",
    "A'''''Σ''''Σ'''", "…Σ", "漢Σ", "ΑΣ\u2019ΣΑ",
]  # fmt: skip
TAGS = [
    "<", ">", "<>", "<<>>", "<a>", "<a", "a>", "< >", "<\n>", "<a\nb>", "<a\n<b>", "<><a>", "<>a>", "<<a>",
    "<a<b>c>", "<!-- x > y -->", "<a>\n<b", "<a>Σ<b>", "<\r>", "<é>é</é>", "<a\n", "<a\n<", "1 < 2 > 0",
    "<p>one</p>\n\n<p>two</p>",
]  # fmt: skip
BLANKS = [
    "\n\n\n", "a\n\n\nb", "a \n \n \nb", "a\r\n\r\n\r\nb", "a\n  b", " \n a\n", "a\x0b\n\x85b",
    "a\u2028\u2028\u2028b", "a  b", "\ta\t", "a\n\n b\n\n\n  c  \n", "\xa0a\xa0\xa0b\xa0", "a\x1c\x1d\x1e\x1fb",
    "a \n", "a \x00 b", "a\n#\n#\nb", "\x00 a", "a \x00", "\ufeffa",
]  # fmt: skip
LETTERS = [
    "İ", "IİI", "ȺȾ", "Ω K Å", "ẞß", "ǅǄǆ", "ꙀA", "Ა", "Ꭰꭰ", "\U00010400\U0001e900",
    "e\u0301 \u1100\u1161\u11a8", "ﬁ ½ Ⅷ ㎏ ｶﾞ",
    "Рaypаl КOМПАС Αθήνα σὰς ﻻ ﺳﻼم كتـــاب کی ʻOkina oʼzbek ţ ș \xa0\u2003！…´",
]  # fmt: skip
TEXTS = [*SIGMAS, *TAGS, *BLANKS, *LETTERS, *(text[:20_000] for text in NASTY)]

SINGLE = [RewriteSteps(**{name: choice}) for name, choices in CHOICES.items() for choice in choices[1:]]
OPTIONS = {**CHOICES, "lowercase": (False, True)}
ALL_STEPS = list(
    itertools.starmap(RewriteSteps, itertools.product(*(OPTIONS[name] for name in RewriteSteps._fields[:-2])))
)
SPACELESS = [each._replace(spaceless=True) for each in (RewriteSteps(), RewriteSteps(lowercase=True), VISIBLE)]
MIXED = [
    RewriteSteps(lowercase=True),
    VISIBLE,
    VISIBLE._replace(whitespace="collapse"),
    *SPACELESS,
    *SINGLE,
    *ALL_STEPS[5::23],
]


def is_settled(char: str) -> bool:
    """Not reclassified since this Python's Unicode version, as U+0295 and U+1171E were."""
    return unicodedata.category(char) == unicodedata2.category(char)


def records_of(unicode: tables.UnicodeTables, code_points: np.ndarray) -> np.ndarray:
    return unicode.records[unicode.pages[code_points >> 8].astype(int) << 8 | code_points & 255]


def column(texts: list, **keywords) -> pd.Series:
    return pd.Series(texts, dtype="str", **keywords)


def check(texts: list[str], steps: RewriteSteps) -> None:
    expected = [rewriting.rewrite(text, steps) for text in texts]
    rewritten, edited = rewrite(column(texts), steps)
    assert rewritten.tolist() == expected
    assert edited.tolist() == [before != after for before, after in zip(texts, expected, strict=True)]


@pytest.mark.parametrize("steps", MIXED, ids=lambda steps: "-".join(map(str, steps)))
def test_rewrite_equals_plain_python(steps):
    check(TEXTS, steps)


ANY_TEXT = st.one_of(characters().filter(is_settled), st.sampled_from("<>\n \tΣςAa'İ.\x00\r\u0301"))


@given(st.lists(st.lists(ANY_TEXT, max_size=30).map("".join), max_size=4), st.sampled_from(ALL_STEPS))
@settings(deadline=None, max_examples=60)
def test_rewrite_of_any_text_equals_plain_python(texts, steps):
    check(texts, steps)


PLAIN = "AbCdEfGhIjKlMnOpQrStUvWxYz,.0189" * 3 + " " * 20
MOSTLY_PLAIN = PLAIN + "\n\t<>\x00\x7f@[`{\rÉİΣ\u3000漢𐐀"


@pytest.mark.parametrize("steps", [RewriteSteps(lowercase=True), *ALL_STEPS[1::7]], ids=lambda s: "-".join(map(str, s)))
def test_rewrite_of_runs_of_plain_bytes(steps):
    """Blocks of 8 and 32 plain bytes begin and end at every position."""
    dice = random.Random(repr(steps))
    texts = ["".join(dice.choices(PLAIN if k % 2 else MOSTLY_PLAIN, k=dice.randrange(120))) for k in range(400)]
    check(texts, steps)


@pytest.mark.slow("every character is lowercased as in Python")
def test_lowercase_of_every_character_and_around_sigma():
    every = list(filter(is_settled, assigned_characters()))
    for pattern in ("{0}", "AΣ{0}Σ{0}A "):
        pieces = [pattern.format(char) for char in every]
        check(["".join(pieces[i : i + 1000]) for i in range(0, len(pieces), 1000)], RewriteSteps(lowercase=True))


def test_lower_case_stays_cased_and_case_ignorable():
    """Engines decide on a final sigma by the characters before or after they are made lower case."""
    unicode = tables.load_tables()
    code_points = np.array([ord(char) for char in assigned_characters()])
    flags, lower = (
        unicode.flags[records_of(unicode, each)]
        for each in (code_points, code_points + unicode.lower[records_of(unicode, code_points)])
    )
    assert ((flags ^ lower) & (tables.CASED | tables.CASE_IGNORABLE) == 0).all()


def test_results_written_by_hand():
    cases = [
        (RewriteSteps(lowercase=True, whitespace="collapse"), " Hello\t\n WORLD \u3000", "hello world"),
        (RewriteSteps(lowercase=True), "ΟΔΥΣΣΕΥΣ İ", "οδυσσευς i\u0307"),
        (RewriteSteps(markup="brackets"), "a<b\n>c <> d", "ac <> d"),
        (RewriteSteps(markup="brackets_line"), "a<b\n>c <> d", "a<b\n>c  d"),
        (RewriteSteps(control="strip"), "a\x00\tb\x85\r\n\x7f", "a\tb\r\n"),
        (RewriteSteps(control="strip_all"), "a\x00\tb\x85\r\n\x7f", "ab"),
        (RewriteSteps(characters="basic"), "it's <1>, o-k?! é_漢…", "its 1, ok?! é_漢"),
        (RewriteSteps(characters="folded"), "It's 1,234 “ab”$٣.", "It s 0 000  ab $0 "),
        (RewriteSteps(characters="folded", whitespace="collapse"), "...a, b!?\n-9-", "a b 0"),
        (RewriteSteps(characters="visible"), "> so\u00adft `a\u200b1,2`|\ufe0f+€_e\x07\t", "  soft  a1 2     e\t"),
        (VISIBLE, "Рaypаl ﻻـ oʼz ﬁ\xad2² ＡＢ！e\u0301", "paypal ﻻ o z fi22 ab é".replace("ﻻ", "لا")),
        (RewriteSteps(whitespace="lines"), "\n a \r\n\r\n\n\n  b\t\nc \n", "a\n\n  b\nc"),
        (RewriteSteps(whitespace="strip"), "\xa0 a  b\n", "a  b"),
        (RewriteSteps(characters="folded", spaceless=True), "a b,c\r\n\u3000d\x85\xa0中 国\t.", "ab cd中国 "),
        (RewriteSteps(unicode="nfc"), "e\u0301ﬁ", "éﬁ"),
        (RewriteSteps(unicode="nfkc"), "e\u0301ﬁ", "éfi"),
    ]  # fmt: skip
    for steps, text, expected in cases:
        assert rewrite(column([text]), steps)[0].tolist() == [expected], steps


MANY = 500_000  # a search that starts anew at each of them would take minutes
LONG = [
    (RewriteSteps(markup="brackets"), "<" * MANY, "<" * MANY),
    (RewriteSteps(markup="brackets_line"), "<" * MANY, "<" * MANY),
    (RewriteSteps(markup="brackets"), "<>" * MANY, "<>" * MANY),
    (RewriteSteps(markup="brackets_line"), "<>" * MANY, ""),
    (RewriteSteps(markup="brackets"), "<\n" * MANY, "<\n" * MANY),
    (RewriteSteps(markup="brackets_line"), "<" * MANY + "\n" + "<" * MANY, "<" * MANY + "\n" + "<" * MANY),
    (RewriteSteps(lowercase=True), "Σ'" * MANY, "σ'" * (MANY - 1) + "ς'"),
    (RewriteSteps(lowercase=True), "Α" + "'" * MANY + "Σ", "α" + "'" * MANY + "ς"),
    (RewriteSteps(whitespace="lines"), "a" + " \n" * MANY + "b", "a\n\nb"),
]


@pytest.mark.parametrize(("steps", "text", "expected"), LONG, ids=range(len(LONG)))
def test_long_runs_are_linear(steps, text, expected):
    rewritten, _ = rewrite(column([text]), steps)
    assert rewritten[0] == expected


def test_steps_that_do_nothing_give_the_series_itself():
    text = column(["a", "b "])
    for steps in (RewriteSteps(), RewriteSteps(unicode="nfc")):
        rewritten, edited = rewrite(text, steps)
        assert rewritten is text and edited.tolist() == [False, False]


def test_nulls_index_and_name_stay():
    text = column(["A", None, "", "B ", None], index=[9, 7, 5, 3, 1], name="body")
    rewritten, edited = rewrite(text, RewriteSteps(lowercase=True, whitespace="strip", unicode="nfc"))
    pd.testing.assert_series_equal(rewritten, column(["a", None, "", "b", None], index=[9, 7, 5, 3, 1], name="body"))
    assert edited.tolist() == [True, False, False, True, False]


@pytest.mark.parametrize(
    "text",
    [
        column(["x", "A ", None, "É", "漢 "])[1:4],
        pd.concat([column(["A "]), column([None, "É"])]),
        pd.Series(["A ", None, "É"], dtype=object),
        pd.Series(["A ", None, "É"], dtype=pd.ArrowDtype(pa.string())),
        column(["É", None, "A "])[::-1],
    ],
    ids=["sliced", "chunked", "object", "arrow", "reversed"],
)
def test_layouts_of_a_column(text):
    rewritten, edited = rewrite(text, RewriteSteps(lowercase=True, whitespace="strip"))
    assert [None if pd.isna(value) else value for value in rewritten] == ["a", None, "é"]
    assert rewritten.dtype == "str" and rewritten.index.equals(text.index) and edited.tolist() == [True, False, True]


def test_bytes_under_a_null_do_not_show():
    offsets = pa.py_buffer(np.array([0, 2, 5, 7], np.int64))
    hidden = pa.LargeStringArray.from_buffers(3, offsets, pa.py_buffer(b"A e\xcc\x81B "), pa.py_buffer(b"\x05"))
    text = pd.Series(STRING.__from_arrow__(hidden))
    rewritten, edited = rewrite(text, RewriteSteps(unicode="nfc", lowercase=True, whitespace="strip"))
    pd.testing.assert_series_equal(rewritten, column(["a", None, "b"]))
    assert edited.tolist() == [True, False, True]


@pytest.mark.parametrize("texts", [[], [None], [None, None], [""], ["", ""]])
def test_columns_without_text(texts):
    rewritten, edited = rewrite(column(texts), RewriteSteps(lowercase=True, unicode="nfkc", whitespace="collapse"))
    pd.testing.assert_series_equal(rewritten, column(texts))
    assert not edited.any() and edited.shape == (len(texts),)


def test_buffers_are_not_copied():
    text = column(["abc", "de", "f"])
    data, offsets, valid = buffers_of(text[1:])
    assert data.ctypes.data == pa.array(text).buffers()[2].address
    assert offsets.tolist() == [3, 5, 6] and valid is None and not data.flags.writeable


def test_quick_check_knows_composites_that_compose_with_what_stands_before():
    text = column(["\U0001611e\U00016121", "\U0001611e\U00016121 \U00016d67\U00016d68"])
    rewritten, edited = rewrite(text, RewriteSteps(unicode="nfc"))
    assert edited.all() and rewritten[0] == "\U00016121\U0001611e"


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
@settings(deadline=None, max_examples=60)
def test_utf8_round_trip(text):
    encoded = np.frombuffer(text.encode(), np.uint8)
    out = np.zeros(len(encoded), np.uint8)
    i = o = 0
    decoded = []
    while i < len(encoded):
        code_point, width = utf8.decode(encoded, i)
        assert utf8.start_of(encoded, 0, i + width) == i
        decoded.append(chr(code_point))
        i += width
        o = utf8.encode(code_point, out, o)
    assert "".join(decoded) == text and out.tobytes() == text.encode() and o == len(encoded)


def test_output_bound_holds_for_every_character():
    for char in assigned_characters():
        size = len(char.encode())
        assert len(char.lower().encode()) <= output_bound(size, RewriteSteps(lowercase=True))


def test_unknown_choice_is_an_error():
    with pytest.raises(RecipeError, match="markup: expected one of keep, brackets, brackets_line, got 'html'"):
        plan_steps(RewriteSteps(markup="html"))
