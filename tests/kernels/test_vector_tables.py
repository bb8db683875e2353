# SPDX-License-Identifier: Apache-2.0
"""The tables for the CPU give the measures of the plain functions, whatever hashes words and lines have."""

import random

import numpy as np

from curation.kernels import measures, vector_tables
from curation.kernels.hashing import table_mask
from curation.measures import NUM_MEASURES, Measure


def hash_lists() -> list[list[int]]:
    """Hashes that repeat, that share their low or high bits, and the hash 0, which marks an empty slot."""
    dice = random.Random(3)
    lists: list[list[int]] = [[], [0], [0, 0], [1], [0, 1, 0, 1, 0], [3] * 257, [3, 4] * 256]
    for size in (2, 3, 7, 20, 100, 1000):
        for different in (1, 2, 5, 40, 10_000):
            lists.append([dice.randrange(different) for _ in range(size)])
            lists.append([dice.randrange(different) << 48 for _ in range(size)])
            lists.append([hash(dice.randrange(different)) * 0x9E3779B97F4A7C15 % 2**64 for _ in range(size)])
    phrase = [dice.randrange(2**64) for _ in range(14)]
    lists.append([word for k in range(60) for word in (*phrase[: k % 15], k % 7)])
    return lists


def counted(hashes: list[int], plainly: bool) -> np.ndarray:
    """The measures of a document whose words, or whose lines, have these hashes."""
    words = len(hashes)
    slots = int(table_mask(max(words, 1))) + 1
    out = np.zeros((NUM_MEASURES, 1), np.int64)
    keys, counts = np.full(slots, 5, np.uint64), np.full(slots, 5, np.int32)
    word_hash, word_end = np.array(hashes, np.uint64), np.cumsum([1 + k % 4 for k in range(words)], dtype=np.int64)
    stamped = keys, np.zeros(slots, np.int32), counts, np.zeros(1, np.int32)
    marks = np.array([2 * (k % 50) + (k % 3 == 0) for k in range(words)], np.int64)
    scratch = tuple(np.zeros(words + 1, kind) for kind in (np.int64, np.uint64, np.int64))
    for_ngrams = words, 10, True, word_hash, word_end, *scratch
    if plainly:
        measures.count_duplicate_lines(word_hash, marks, words, *stamped, out, 0)
        measures.count_distinct_words(word_hash, words, *stamped, out, 0)
        measures.count_ngrams(*for_ngrams, *stamped, out, 0)
    else:
        vector_tables.count_duplicate_lines(word_hash, marks, words, keys, out, 0)
        vector_tables.count_distinct_words(word_hash, words, keys, out, 0)
        vector_tables.count_ngrams(*for_ngrams, keys, counts, out, 0)
    return out[:, 0]


def test_tables_count_as_the_plain_ones():
    for hashes in hash_lists():
        expected, actual = counted(hashes, True), counted(hashes, False)
        wrong = [measure.name for measure in Measure if expected[measure] != actual[measure]]
        assert not wrong, hashes[:50]
    assert expected[Measure.duplicate_10gram_characters] > 0
