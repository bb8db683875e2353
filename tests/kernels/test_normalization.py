# SPDX-License-Identifier: Apache-2.0
"""Normal forms by spans: equal to `unicodedata2` on whole texts, and only the spans are given to it."""

import itertools
import random
from collections.abc import Iterator
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import unicodedata2
from hypothesis import given, settings
from hypothesis import strategies as st

from cpu_fallback import normal_forms
from cpu_fallback import text as cpu_text
from cpu_fallback.buffers import STRING, buffers_of
from curation.kernels import normalization, tables
from curation.kernels.normalization import SEPARATOR, is_stable, normalize_spans
from curation.kernels.rewrite import FORM_FLAGS, RewriteSteps
from tests.corpus import NASTY, real_documents

UNICODE = tables.load_tables()
PROPERTIES = UNICODE.pages, UNICODE.records, UNICODE.flags, UNICODE.combining
JAMO = "".join(
    map(chr, (*range(0x10FE, 0x1113), *range(0x115F, 0x1177), *range(0x11A6, 0x11C5), *range(0xAC00, 0xAC1E)))
)
# Stable characters: some compose with marks, spans leave out a line feed, and some are the first or last of their size
STARTERS = (
    "aeiouAcnſK<= \n\r\x00\x7f漢あカ\u0627\u0928\u09c7\u0bc6\u0dd9\u1025\U00011099\U000110a5\u0800\U00010000\U0010ffff"
)
# What decompositions, exclusions and orders of marks make difficult
CASES = [
    "", "\u0301", "\n\u0301", "\u0301\n", "\n\u0323\n\u0301\u0323\n", "\u0301\u0301", "a\n\u0301",
    "\u0344", "a\u0344\u0323", "\u0958", "\u0915\u093c", "\u0915\u0301\u093c", "\u2adc", "\ufb1d", "\u1d15e\U0001d15f",
    "\u1100\u1161\u11a8", "\uac00\u11a8", "\uac00\u11a7", "\uac01\u11a8", "\u1100\u0301\u1161", "\u1100\uac00\u11a8",
    "\u1112\u1175\u11c2", "\u1100\u1161\u0323\u11a8", "\u3131\u314f", "\uffa1\uffc2\uffdc", "\u320e\u11a8",
    "e\u0301\u0323", "e\u0323\u0301", "ộ\u0328", "q\u0307\u0323", "a\u05b0\u094d\u3099", "\u0b47\u0300\u0b3e",
    "\u0f71\u0f72\u0f74", "\u0f73\u0f75\u0f81", "\u0f76\u0f71", "ｶﾞ", "か\u3099゛", "\uff9e", "\u0345α\u0345\u0301",
    "ﬁ\u0301", "½\u0338", "\ufdfa\u0651", "\u212b\u0327", "Å\u0327", "\u2126\u0301\u0345", "\u037e", "\u1fef", "\u2000",
    "\U0001611e\U00016121", "\U0001611e\U00016121\u0301", "\U00016d67\U00016d68", "\U00016d63\U00016d67\U00016d67",
    "\U000110a5\U000110ba", "\U0002f800\u0301", "\uf900", "a" + "\u0301\u0323" * 40, "a" + "\u0323\u0301" * 40,
    "\u0300" * 100 + "\u0316" * 100 + "a", "각" * 50 + "\u11a8" * 3, "a" * 40 + "e\u0301" + "b" * 70 + "e\u0301",
]  # fmt: skip


@cache
def assigned_characters() -> tuple[str, ...]:
    """Every character of Unicode 17 but those of private use."""
    return tuple(c for c in map(chr, range(0x110000)) if unicodedata2.category(c) not in ("Cs", "Cn", "Co"))


@cache
def unstable_characters() -> str:
    """All that have a combining class or a decomposition, or fail a quick check."""
    points = np.array([*map(ord, assigned_characters())])
    records = UNICODE.records_of(points)
    fails = UNICODE.flags[records] & (tables.NFC_MAYBE | tables.NFKC_MAYBE) != 0
    fails |= UNICODE.combining[records] != 0
    decomposed = [unicodedata2.decomposition(chr(point)) != "" for point in points.tolist()]
    return "".join(map(chr, points[fails | decomposed].tolist()))


def adversarial_texts(count: int, seed: int) -> list[str]:
    """Texts of up to twelve characters that normal forms treat, and of starters."""
    chance = random.Random(seed)
    pools = unstable_characters(), STARTERS, JAMO
    return [
        "".join(chance.choice(chance.choice(pools)) for _ in range(chance.choice((1, 2, 3, 4, 5, 8, 12))))
        for _ in range(count)
    ]


def column(texts: list[str | None]) -> pd.Series:
    return pd.Series(texts, dtype="str")


def check(texts: list[str], form: str) -> None:
    expected = [unicodedata2.normalize(form.upper(), text) for text in texts]
    found, edited = cpu_text.rewrite(column(texts), RewriteSteps(unicode=form))
    for text, actual, wanted in zip(texts, found, expected, strict=True):
        assert actual == wanted, ascii(text)
    assert edited.tolist() == [before != after for before, after in zip(texts, expected, strict=True)]


def spans_of(texts: list[str | None], form: str) -> list[list[str]]:
    """The spans of each text."""
    data, offsets, nulls = buffers_of(column(texts))
    valid = np.ones(len(texts), bool) if nulls is None else nulls
    spans, firsts = normal_forms.find_spans(data, offsets, valid, FORM_FLAGS[form], *PROPERTIES)
    found = [data[start:stop].tobytes().decode() for start, stop in spans.tolist()]
    return [found[first:last] for first, last in itertools.pairwise(firsts.tolist())]


@pytest.mark.parametrize("form", FORM_FLAGS)
def test_normal_forms_of_difficult_and_real_documents(form):
    check([*CASES, *NASTY, *real_documents()], form)
    check(
        [before + text + after for text in CASES for before in ("x", "\u0301", "각") for after in ("x", "\u0301")], form
    )


@pytest.mark.parametrize("form", FORM_FLAGS)
def test_normal_forms_of_adversarial_texts(form):
    check(adversarial_texts(60_000, 1), form)


@pytest.mark.parametrize("form", FORM_FLAGS)
def test_normal_forms_of_every_character_between_neighbours(form):
    """Each character alone, between others, and twice, and decompositions, as in Unicode's NormalizationTest.txt."""
    every = assigned_characters()
    check(
        [*every, *(f"a{char}\u0323\u0301" for char in every[::3]), *(char + char for char in unstable_characters())],
        form,
    )
    check(list(decompositions()), form)


def decompositions() -> Iterator[str]:
    """Every canonical and compatibility decomposition, in its order and others, with a mark between."""
    for char in unstable_characters():
        for form in ("NFD", "NFKD"):
            parts = unicodedata2.normalize(form, char)
            yield from (parts, parts[::-1], char + parts, parts + char, parts[:1] + "\u0327" + parts[1:])


@given(st.lists(st.text(st.sampled_from(unstable_characters() + 50 * STARTERS + JAMO), max_size=20), max_size=5))
@settings(deadline=None, max_examples=200)
def test_normal_forms_of_any_texts(texts):
    for form in FORM_FLAGS:
        check(texts, form)


def test_only_spans_are_given_to_unicodedata2(monkeypatch):
    """From the stable character before a run, up to the next stable character."""
    given_texts = []

    def recorded(joined, count, form):
        given_texts.append(joined.tobytes().decode())
        return normalize_spans(joined, count, form)

    monkeypatch.setattr(cpu_text, "normalize_spans", recorded)
    texts = [
        "words, e\u0301 and plaîn ones\u0301",
        None,
        "\u0301x",
        "no span: é ก\u0e48 מ\u05b0\u05bc",
        "\n\u0323\u0301\u0323b",
        "a\u0323\u0301",
    ]
    found, edited = cpu_text.rewrite(column(texts), RewriteSteps(unicode="nfc"))
    assert given_texts == ["e\u0301\ns\u0301\n\u0301\n\u0323\u0301\u0323\na\u0323\u0301\n"]
    assert edited.tolist() == [True, False, False, False, True, True]
    assert found[0] == "words, é and plaîn oneś" and found[5] == "ạ\u0301"


def test_spans_written_by_hand():
    spans = spans_of(["ab½c", "ｶﾞ x", None, "a\xa0\xa0b", "\xa0", "e\u0301", "\u0301e", "ﬁ", "가\u1161각"], "nfkc")
    assert spans == [["b½"], ["ｶﾞ"], [], ["a\xa0\xa0"], ["\xa0"], ["e\u0301"], ["\u0301"], ["ﬁ"], ["가\u1161"]]
    assert spans_of(["ﬁ½", "가\u1161각", "ᄀ\u0301\u1161"], "nfc") == [[], ["가\u1161"], ["ᄀ\u0301\u1161"]]


def test_spans_do_not_cross_documents():
    texts = ["e", "\u0301", "ᄀ", "\u1161", "", "\u11a8", "e\u0323", "\u0301", "e\u0301", "a"]
    check(texts, "nfc")
    assert spans_of(texts, "nfc") == [
        [],
        ["\u0301"],
        [],
        ["\u1161"],
        [],
        ["\u11a8"],
        ["e\u0323"],
        ["\u0301"],
        ["e\u0301"],
        [],
    ]


def test_bytes_under_nulls_have_no_spans():
    offsets = pa.py_buffer(np.array([0, 1, 3, 4, 7, 10], np.int64))
    data = pa.py_buffer(b"e\xcc\x81\xf4e\xcc\x81e\xcc\x81")
    array = pa.LargeStringArray.from_buffers(5, offsets, data, pa.py_buffer(bytes([0b10001])))
    found, edited = cpu_text.rewrite(pd.Series(STRING.__from_arrow__(array)), RewriteSteps(unicode="nfc"))
    assert found[[0, 4]].tolist() == ["e", "é"] and found[1:4].isna().all()
    assert edited.tolist() == [False, False, False, False, True]


@pytest.mark.parametrize("form", FORM_FLAGS)
def test_a_text_may_be_cut_before_each_stable_character(form):
    """A stable character does not change, and no character before or after composes across the cut."""
    records = UNICODE.records_of(np.array([*map(ord, assigned_characters())])).tolist()
    flags, combining = UNICODE.flags, UNICODE.combining
    is_cut = [is_stable.py_func(record, FORM_FLAGS[form], flags, combining) for record in records]
    stable = list(itertools.compress(assigned_characters(), is_cut))
    assert all(unicodedata2.normalize(form.upper(), char) == char for char in stable)
    chance = random.Random(1)
    firsts = chance.choices(assigned_characters(), k=100_000)
    firsts += [unicodedata2.normalize("NFD", char) for char in unstable_characters() for _ in range(4)]
    seconds = chance.choices(stable, k=len(firsts))
    seconds[::2] = chance.choices([char for char in stable if unicodedata2.decomposition(char)], k=len(seconds[::2]))
    for first, second in zip(firsts, seconds, strict=True):
        pair = unicodedata2.normalize(form.upper(), first + second)
        assert pair == unicodedata2.normalize(form.upper(), first) + second, ascii(first + second)


def test_the_separator_is_in_no_normal_form():
    separator = chr(SEPARATOR)
    assert is_stable.py_func(SEPARATOR, FORM_FLAGS["nfkc"], UNICODE.flags, UNICODE.combining)  # record = code point
    for form in FORM_FLAGS:
        found = [char for char in assigned_characters() if separator in unicodedata2.normalize(form.upper(), char)]
        assert found == [separator]


def test_normalized_spans():
    joined = np.frombuffer("e\u0301\nb\u0323\u0301\u0323\nক\u09be\n½\nb\u0323\n".encode(), np.uint8)
    for form, half in (("nfc", "½"), ("nfkc", "1⁄2")):
        found = normalize_spans(joined, 5, form)
        spans = [bytes(found.data[i:j]).decode() for i, j in itertools.pairwise(found.offsets.tolist())]
        assert spans == ["é\n", "ḅ\u0323\u0301\n", "ক\u09be\n", f"{half}\n", "ḅ\n"]
        assert found.changed.tolist() == [True, True, False, form == "nfkc", True]
    nothing = normalize_spans(np.zeros(0, np.uint8), 0, "nfc")
    assert nothing.offsets.tolist() == [0] and not len(nothing.changed)


def test_another_version_of_unicode_is_an_error(monkeypatch):
    monkeypatch.setattr(normalization, "UNICODE_VERSION", "16.0.0")
    with pytest.raises(normalization.EngineError, match=r"unicodedata2 has Unicode 17\.0\.0, expected 16\.0\.0"):
        cpu_text.rewrite(column(["e\u0301"]), RewriteSteps(unicode="nfc"))
