# SPDX-License-Identifier: Apache-2.0
"""Every measure of every engine equals the plain-Python oracle."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from curation.base.contract import ROW, TEXT
from curation.base.measures import Measure
from tests.conftest import frame_of, hidden_nulls, table_of
from tests.corpus import NASTY, assigned_characters, document_lists, real_documents
from tests.oracle.measures import measure_document

NAMES = tuple(measure.name for measure in Measure)


def measured(engine, texts: list[str | None], names=NAMES) -> list[dict[str, int]]:
    """One dictionary per document, checked for shape and type on the way."""
    columns = engine.measure(frame_of(engine, texts)[TEXT], names)
    assert list(columns) == list(names)
    for name, column in columns.items():
        assert isinstance(column, np.ndarray), name
        assert (column.dtype, column.shape) == (np.int64, (len(texts),)), name
    return [dict(zip(names, map(int, row), strict=True)) for row in zip(*columns.values(), strict=True)]


def assert_measures(texts: list[str], actual: list[dict[str, int]], names=NAMES) -> None:
    """Names each document and measure that differs: a diff of 60 numbers hides the one that matters."""
    wrong = []
    for text, got in zip(texts, actual, strict=True):
        expected = measure_document(text)
        wrong += [f"{name}: {expected[name]} expected, got {got[name]} in {text[:200]!r}"
                  for name in names if got[name] != expected[name]]  # fmt: skip
    assert not wrong, f"{len(wrong)} differences\n" + "\n".join(wrong[:20])


def test_oracle_covers_every_measure():
    names = measure_document("")
    assert [name for name in NAMES if name not in names] == [], "not in the oracle"
    assert [name for name in names if name not in NAMES] == [], "in the oracle, but no measure"
    without = {"bytes", *(f"top_{n}gram_characters" for n in (2, 3, 4))}  # what nothing bounds
    found = {measure.name for measure in Measure if not measure.parts_of}
    assert found == without, "every measure says what it counts a part of"


def test_nasty_corpus(engine):
    assert_measures(NASTY, measured(engine, NASTY))


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "backward"])
def test_long_documents_leave_no_trace_in_the_next(engine, reverse):
    texts = sorted(NASTY, key=len, reverse=reverse)
    one_by_one = [measured(engine, [text])[0] for text in texts[::3]]
    assert measured(engine, texts)[::3] == one_by_one


WORDS = [
    "the", "The", "THE", "be", "to", "of", "and", "that", "THAT", "have", "with", "With", "without", "a", "A", "an",
    "is", "IS", "are", "was", "were", "weren", "a.", "...", "....", "..", "x...y", ".....", "end.", "end.)",
    "end.\"", "(end)", "'end'", "end!", "end?", "end:", "www.x.org", "www.é", "http://a.b", "https://", "https://x",
    "https://é", "http:/", "www.", "#", "##", "a#b", "\x7f", "x\x00y", "\x00", "é", "naïve.", "…", "a…", "。", "x。",
    "”", "end.”", "»", "-", "*", "•x", "abcdefg", "abcdefgh", "abcdefghi", "abcdefg.", "abcdefgh.", "abcdefg...",
    "abcdef...", "abcde....x", "12345", "1.5", "U.S.", "e.g.", "⟨x⟩", "[x]", "{y}", "漢字", "ภาษา", "$+<=>^`|~",
]  # fmt: skip
GAPS = (
    *" " * 20,
    "",
    "",
    "  ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    "\u3000",
    "\u2028",
    " \n",
    "\n ",
    "\x0b",
    "\x85",
    "\xa0",
    "\x1f",
)


def test_words_that_begin_and_end_anywhere_in_a_block(engine):
    dice = random.Random(9)
    texts = [
        dice.choice(("", " ", "\n", "- ", "* ", "• "))
        + "".join(dice.choice(WORDS) + dice.choice(GAPS) for _ in range(size))
        for size in (0, 1, 2, 3, 5, 8, 13, 40) * 150
    ]
    assert_measures(texts, measured(engine, texts))


def test_real_documents(engine):
    texts = real_documents(150)
    assert_measures(texts, measured(engine, texts))


def test_every_assigned_character(engine):
    chars = list(assigned_characters())
    texts = ["".join(chars[start : start + 64]) for start in range(0, len(chars), 64)]
    assert_measures(texts, measured(engine, texts))


@pytest.mark.slow("each character below U+3100 alone is measured as in plain Python")
def test_one_character_alone_and_between_words(engine):
    chars = [char for char in assigned_characters() if char < "\u3100"]
    texts = [text for char in chars for text in (char, f"a.{char}b...{char}")]
    assert_measures(texts, measured(engine, texts))


@given(texts=document_lists())
def test_generated_documents(engine, texts):
    assert_measures(texts, measured(engine, texts))


def test_expected_values_written_by_hand(engine):
    text = '- The cat (a cat) sat…\r\n\r\nwww.x.org is 7 #up\nOK... said "he."\n\n- The cat (a cat) sat…'
    [actual] = measured(engine, [text])
    expected = {
        "bytes": 89,
        "characters": 85,
        "words": 19,
        "lines": 6,
        "text_lines": 4,
        "paragraphs": 3,
        "sentences": 4,
        "newlines": 5,
        "line_characters": 78,
        "word_characters": 63,
        "max_word_characters": 9,
        "max_line_characters": 22,
        "median_word_characters": 3,
        "short_words": 11,
        "long_words": 1,
        "words_with_letter": 16,
        "non_symbol_words": 17,
        "non_symbol_word_characters": 61,
        "uppercase_words": 1,
        "capitalised_words": 2,
        "hash_signs": 1,
        "ellipses": 3,
        "ellipsis_characters": 2,
        "symbols": 4,
        "symbol_characters": 3,
        "bullet_lines": 2,
        "bullet_or_star_lines": 2,
        "ellipsis_lines": 2,
        "ellipsis_character_lines": 2,
        "punctuated_lines": 3,
        "short_lines": 4,
        "stop_words": 0,
        "stop_word_count": 0,
        "function_words": 3,
        "urls": 1,
        "url_characters": 9,
        "duplicate_lines": 1,
        "duplicate_line_characters": 22,
        "duplicate_paragraphs": 1,
        "duplicate_paragraph_characters": 22,
        "distinct_words": 13,
        "top_2gram_count": 2,
        "top_2gram_characters": 10,
        "duplicate_2gram_characters": 17,
        "duplicate_5gram_characters": 13,
        "covered_5gram_characters": 34,
        "covered_6gram_characters": 34,
        "covered_7gram_characters": 0,
        "num_2grams": 18,
        "num_3grams": 17,
        "repeated_5character_characters": 14,
        "repeated_10character_characters": 14,
        "num_10characters": 76,
    }
    assert {name: actual[name] for name in expected} == expected


CASES = {  # a word: whether it is one of uppercase_words, and of capitalised_words
    "NATO": (1, 0), "U.S.": (1, 1), "A": (1, 1), "A1": (1, 1), "7": (0, 0), "Hello": (0, 1), "Jean-Luc,": (0, 1),
    "It's": (0, 0), "iPhone": (0, 0), "McX": (0, 0), "(The": (0, 1), "Été": (0, 1), "ÉTÉ": (1, 0), "Ⓐ": (1, 1),
    "ǅungla": (0, 1), "ǅ": (0, 1), "Aª": (0, 1), "漢字": (0, 0), "𐐀𐐨": (0, 1), "x" * 61 + "éA": (0, 0),
}  # fmt: skip


def test_words_by_case(engine):
    """Written by hand, each also at every place of a block of 64 bytes."""
    texts = [" " * before + word for word in CASES for before in (0, 1, 58, 59, 60, 61, 62, 63, 64)]
    columns = engine.measure(frame_of(engine, texts)[TEXT], ("uppercase_words", "capitalised_words"))
    found = list(zip(*(column.tolist() for column in columns.values()), strict=True))
    assert found == [case for case in CASES.values() for _ in range(9)]


NON_SYMBOLS = {  # a text: its words with a letter or number, and their characters
    "a - b": (2, 2), "- — … «": (0, 0), "7 (8) ½ ² ①": (5, 7), "٣": (1, 1), "$5, €": (1, 3), "😀 ©": (0, 0),
    "漢 。": (1, 1), "_": (0, 0), "/ : @ [ ` {": (0, 0), "0 9 A Z a z": (6, 6), "-" * 2100 + "x !": (1, 2101),
    "x" + "-" * 2100 + " !": (1, 2101), "\u0301 a\u0301": (1, 2), "é": (1, 1), "（一）、": (1, 4),
}  # fmt: skip


def test_words_that_are_not_marks_alone(engine):
    """Written by hand, each also at every place of a block of 64 bytes."""
    texts = [" " * before + text for text in NON_SYMBOLS for before in range(66)]
    columns = engine.measure(frame_of(engine, texts)[TEXT], ("non_symbol_words", "non_symbol_word_characters"))
    found = list(zip(*(column.tolist() for column in columns.values()), strict=True))
    assert found == [counts for counts in NON_SYMBOLS.values() for _ in range(66)]


def test_middle_of_words_by_length(engine):
    texts = ["a", "a bbb", "a bb", "a bbb cc dddd", "cccccccccc " * 3 + "a b"]
    columns = engine.measure(frame_of(engine, texts)[TEXT], ("median_word_characters",))
    assert columns["median_word_characters"].tolist() == [1, 2, 1, 2, 10]


def test_strings_that_repeat(engine):
    """`abcdefghij` occurs 4 times, and each of its 9 rotations 3 times; the square root of 10 strings chooses 3."""
    texts = ["abcdefghij" * 4, "abcdefghij", "abcdefghijk", "a" * 20]
    columns = engine.measure(frame_of(engine, texts)[TEXT], ("repeated_10character_characters", "num_10characters"))
    assert [column.tolist() for column in columns.values()] == [[10, 0, 0, 11], [31, 1, 2, 11]]


def test_empty_document_measures_zero(engine):
    assert set(measured(engine, [""])[0].values()) == {0}


def test_null_measures_as_empty(engine):
    texts = [None, "a b", None, None, "漢 c.", "", None]
    assert measured(engine, texts) == measured(engine, [text or "" for text in texts])


def test_bytes_under_a_null_do_not_count(engine):
    frame = engine.from_arrow(hidden_nulls())
    assert engine.measure(frame[TEXT], ["bytes", "words"])["bytes"].tolist() == [3, 0, 3]


@pytest.mark.parametrize("texts", [[], [None], [None, None], [""], ["", ""]], ids=repr)
def test_frames_without_text(engine, texts):
    assert measured(engine, texts) == [dict.fromkeys(NAMES, 0)] * len(texts)


@pytest.mark.parametrize(("start", "stop"), [(0, 3), (1, 6), (5, None), (3, 3), (7, 8)])
def test_sliced_frame(engine, start, stop):
    texts = ["a", None, "é è", "x y x y", "", "漢字。", "last one.", "www.x"]
    piece = frame_of(engine, texts).iloc[start:stop]
    columns = engine.measure(piece[TEXT], NAMES)
    actual = [dict(zip(NAMES, map(int, row), strict=True)) for row in zip(*columns.values(), strict=True)]
    assert actual == measured(engine, texts)[start:stop]


def test_filtered_frame(engine):
    texts = NASTY[::2]
    mask = np.arange(len(texts)) % 3 == 1
    frame = engine.filter_rows(frame_of(engine, texts), mask)
    assert engine.to_arrow(frame)[ROW].to_pylist() == np.flatnonzero(mask).tolist()
    columns = engine.measure(frame[TEXT], NAMES)
    expected = measured(engine, texts)
    for name in NAMES:
        assert columns[name].tolist() == [row[name] for row, kept in zip(expected, mask, strict=True) if kept]


def test_column_of_several_chunks(engine):
    pieces = [["a b", "é"], [], ["last one.", None], ["漢字。"]]
    frame = engine.from_arrow(pa.concat_tables(map(table_of, pieces)))
    columns = engine.measure(frame[TEXT], ["bytes", "words", "sentences"])
    assert [column.tolist() for column in columns.values()] == [[3, 2, 9, 0, 9], [2, 1, 2, 0, 1], [1, 1, 1, 0, 1]]


def test_names_asked_for_do_not_change_the_numbers(engine):
    texts = [text for text in NASTY if len(text) < 5_000]
    everything = measured(engine, texts)
    pairs = [("covered_7gram_characters", "words"), ("duplicate_10gram_characters", "top_2gram_count")]
    for names in [*((name,) for name in NAMES), *pairs, NAMES[::-1]]:
        expected = [{name: row[name] for name in names} for row in everything]
        assert measured(engine, texts, names) == expected, names
