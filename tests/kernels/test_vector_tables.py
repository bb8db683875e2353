# SPDX-License-Identifier: Apache-2.0
"""The tables for the CPU give the measures of the oracle, whatever hashes words and lines have."""

import random

import numpy as np

from cpu_fallback import vector_tables
from curation.base.measures import NUM_MEASURES, Measure
from curation.kernels.hashing import table_mask
from curation.kernels.measures import IS_PROSE
from tests.oracle.measures import measure_repetition


def hash_lists() -> list[list[int]]:
    """Hashes that repeat, that share their low or high bits, and the hash 0, which marks an empty slot."""
    dice = random.Random(3)
    lists: list[list[int]] = [[], [0], [0, 0], [1], [0, 1, 0, 1, 0], [3] * 257, [3, 4] * 256]
    for size in (2, 3, 7, 20, 100, 1000):
        for different in (1, 2, 5, 40, 10_000):
            lists.append([dice.randrange(different) for _ in range(size)])
            lists.append([dice.randrange(different) << 32 for _ in range(size)])
            lists.append([hash(dice.randrange(different)) * 0x9E3779B97F4A7C15 % 2**64 for _ in range(size)])
    phrase = [dice.randrange(2**64) for _ in range(14)]
    lists.append([word for k in range(60) for word in (*phrase[: k % 15], k % 7)])
    return lists


def text_of(hashes: list[int]) -> str:
    """A text whose words and lines have these hashes: one word per line, and up to three lines per paragraph."""
    word_of = {hashed: chr(0x4E00 + k) + "x" * (k % 4) for k, hashed in enumerate(dict.fromkeys(hashes))}
    ends = ["\n" * (1 + new) for new in starts_of_paragraphs(hashes)[1:]] + [""]
    return "".join(word_of[hashed] + end for hashed, end in zip(hashes, ends, strict=True)) if hashes else ""


def starts_of_paragraphs(hashes: list[int]) -> list[bool]:
    """Each third line starts one; each line, where the hash 0 occurs, which does not change a hash of lines."""
    return [k % 3 == 0 or 0 in hashes for k in range(len(hashes))]


def counted(hashes: list[int], text: str) -> np.ndarray:
    """The measures of repetition of the text whose words, and whose lines, have these hashes."""
    words = len(hashes)
    slots = int(table_mask(max(words, 1))) + 1
    out = np.zeros((NUM_MEASURES, 1), np.int64)
    keys, counts = np.full(slots, 5, np.uint64), np.full(slots, 5, np.int32)
    word_hash = np.array(hashes, np.uint64)
    lengths = np.array([len(word) for word in text.split()], np.int64)
    marks = 4 * lengths + np.array(starts_of_paragraphs(hashes), np.int64)
    marks += IS_PROSE * np.array([sum(map(str.isalpha, word)) >= 3 for word in text.split()], np.int64)
    scratch = tuple(np.zeros(words + 1, kind) for kind in (np.int64, np.uint64, np.int64))
    vector_tables.count_duplicate_lines(word_hash, marks, words, keys, out, 0)
    vector_tables.count_distinct_words(word_hash, words, keys, out, 0)
    vector_tables.count_ngrams(words, 10, True, 2, word_hash, lengths.cumsum(), *scratch, keys, counts, out, 0)
    return out[:, 0]


def test_tables_count_as_the_oracle():
    for hashes in hash_lists():
        text = text_of(hashes)
        expected, actual = measure_repetition(text), counted(hashes, text)
        wrong = [name for name, value in expected.items() if actual[Measure[name]] != value]
        assert not wrong, hashes[:50]
    assert expected["duplicate_10gram_characters"] > 0
