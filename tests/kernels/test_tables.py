# SPDX-License-Identifier: Apache-2.0
"""The tables for every code point against `unicodedata2` 17, and against `str` and `re` where this Python knows it."""

import re
import unicodedata
from functools import cache

import numpy as np
import pytest
import regex
import unicodedata2

from curation.kernels import tables
from tests.oracle.rewriting import invisible

pytestmark = pytest.mark.skipif(
    unicodedata2.unidata_version != tables.UNICODE_VERSION, reason=f"unicodedata2 is not {tables.UNICODE_VERSION}"
)
CHARS = [chr(code_point) for code_point in range(0x110000)]
UNICODE = tables.load_tables()
CODE_POINTS = np.arange(0x110000)
RECORDS = UNICODE.records[UNICODE.pages[CODE_POINTS >> 8].astype(np.int64) * 256 + (CODE_POINTS & 255)]


@cache
def categories() -> np.ndarray:
    return np.array([unicodedata2.category(c) for c in CHARS])


@cache
def known() -> np.ndarray:
    """Whether a character is assigned here, and of an unchanged category: few were reclassified since (U+0295, ...)."""
    here = np.array([unicodedata.category(c) for c in CHARS])
    return (here == categories()) & ~np.isin(here, ["Cn", "Cs"])


def holds(flag: int) -> np.ndarray:
    return UNICODE.flags[RECORDS] & flag != 0


def each(function) -> np.ndarray:
    """What holds for each code point. The million without a character of its own have the properties of the first."""
    found = np.zeros(len(CHARS), bool)
    alike = [np.flatnonzero(name == categories()) for name in ("Cn", "Co", "Cs")]  # unassigned, private, surrogates
    assigned = np.delete(CODE_POINTS, np.concatenate(alike))
    found[assigned] = [bool(function(CHARS[code_point])) for code_point in assigned]
    for code_points in alike:
        found[code_points] = bool(function(CHARS[code_points[0]]))
    return found


def matches(pattern: str):
    return re.compile(pattern).fullmatch


def same(flag: int, expected: np.ndarray, known=True) -> None:
    assert [hex(i) for i in np.flatnonzero((holds(flag) != expected) & known)] == []


def is_letter(char: str) -> bool:
    return unicodedata2.category(char)[0] == "L"


def is_numeric(char: str) -> bool:
    return unicodedata2.numeric(char, None) is not None


def is_space(char: str) -> bool:
    return unicodedata2.category(char) == "Zs" or unicodedata2.bidirectional(char) in ("WS", "B", "S")


FROM_UNICODEDATA = {
    tables.SPACE: is_space,
    tables.WORD: lambda char: is_letter(char) or is_numeric(char) or char == "_",
    tables.ALPHA: is_letter,
    tables.ALNUM: lambda char: is_letter(char) or is_numeric(char),
    tables.DIGIT: lambda char: unicodedata2.decimal(char, None) is not None,
    tables.CONTROL: lambda char: unicodedata2.category(char) == "Cc",
    tables.OTHER_CONTROL: lambda char: unicodedata2.category(char) == "Cc" and char not in "\t\n\r",
    tables.PUNCTUATION: lambda char: unicodedata2.category(char)[0] == "P",
    tables.SYMBOL: lambda char: not (is_letter(char) or is_numeric(char) or is_space(char) or char in "_.,!?"),
    tables.LOWER_SPECIAL: lambda char: char == "İ",
    tables.TAG_START: lambda char: char == "<",
    tables.SIGMA: lambda char: char == "Σ",
    tables.SIGN: lambda char: unicodedata2.category(char)[0] == "S",
    tables.INVISIBLE: invisible,
}
FROM_PYTHON = {
    tables.SPACE: str.isspace,
    tables.LINE_BREAK: lambda char: len(f"a{char}b".splitlines()) > 1,
    tables.ALPHA: str.isalpha,
    tables.ALNUM: str.isalnum,
    tables.DIGIT: str.isdecimal,
    tables.UPPER: str.isupper,
    tables.WORD: matches(r"\w"),
    tables.SYMBOL: matches(r"[^\w\s.,!?]"),
}


@pytest.mark.parametrize("flag", FROM_UNICODEDATA)
def test_flag_equals_unicodedata2(flag):
    same(flag, each(FROM_UNICODEDATA[flag]))


@pytest.mark.parametrize("flag", FROM_PYTHON)
def test_flag_equals_python(flag):
    same(flag, each(FROM_PYTHON[flag]), known())


def test_re_classes_equal_str_methods():
    same(tables.SPACE, each(matches(r"\s")), known())
    same(tables.DIGIT, each(matches(r"\d")), known())


def test_case_context_equals_python():
    """`str.lower` of sigma shows both: a cased character before makes it final, an ignorable one is looked through."""
    ignorable = each(lambda char: f"A{char}Σ".lower()[-1] == "ς" and f"1{char}Σ".lower()[-1] == "σ")
    cased = each(lambda char: f"1{char}Σ".lower()[-1] == "ς")
    same(tables.CASE_IGNORABLE, ignorable, known())
    assert not ((holds(tables.CASED) & ~holds(tables.CASE_IGNORABLE)) != cased)[known()].any()


def test_lower_equals_python():
    lowered = [chr(i + delta) for i, delta in enumerate(UNICODE.lower[RECORDS].tolist())]
    wrong = [
        char for char, lower, known in zip(CHARS, lowered, known(), strict=True) if known and char.lower() != lower
    ]
    assert wrong == ["İ"] and lowered[0x130] == "i"


def test_context_of_sigma_is_the_same_after_lowercasing():
    """The kernel looks for it in the lowered output."""
    context = UNICODE.flags[RECORDS] & (tables.CASED | tables.CASE_IGNORABLE)
    assert np.array_equal(context, context[CODE_POINTS + UNICODE.lower[RECORDS]])
    assert not (holds(tables.SPACE) & (context != 0)).any()


def test_combining_class_equals_unicodedata2():
    assert UNICODE.combining[RECORDS].tolist() == [unicodedata2.combining(char) for char in CHARS]


@pytest.mark.parametrize(("form", "flag"), [("NFC", tables.NFC_MAYBE), ("NFKC", tables.NFKC_MAYBE)])
def test_what_normalising_changes_is_flagged(form, flag):
    assert not (each(lambda char: unicodedata2.normalize(form, char) != char) & ~holds(flag)).any()
    assert holds(flag).sum() < 6000


def test_scripts_equal_those_of_regex():
    """Checked for characters whose script is settled in both versions."""
    numbers, whole = UNICODE.script[RECORDS], "".join(CHARS)
    for name in ("Latin", "Greek", "Cyrillic", "Arabic", "Hebrew", "Devanagari", *tables.UNSPACED_SCRIPTS):
        member = np.zeros(len(CHARS), bool)
        for match in regex.finditer(rf"\p{{Script={name}}}+", whole):
            member[slice(*match.span())] = True
        assert not (member != (numbers == tables.SCRIPTS.index(name)))[known()].any(), name
    unspaced = [tables.SCRIPTS.index(name) for name in tables.UNSPACED_SCRIPTS]
    assert np.array_equal(holds(tables.UNSPACED), np.isin(numbers, unspaced))


def test_unassigned_code_points_have_no_script():
    unassigned = each(lambda char: unicodedata2.category(char) in ("Cn", "Cs", "Co"))
    assert np.array_equal(UNICODE.script[RECORDS] == 0, unassigned)


def test_ascii_records_are_the_bytes():
    assert RECORDS[:128].tolist() == list(range(128))


def test_tables_cannot_be_changed():
    for array in UNICODE:
        assert not array.flags.writeable and array.flags.c_contiguous
