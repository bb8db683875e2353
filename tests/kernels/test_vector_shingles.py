# SPDX-License-Identifier: Apache-2.0
"""The n-gram hashes by masks are those of the plain function, on every length of document and of n-gram."""

import random

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from cpu_fallback import masks, rolling_shingles, vector_shingles
from cpu_fallback.buffers import buffers_of
from curation.kernels import tables
from tests.corpus import NASTY, document_lists
from tests.kernels.test_vector_scan import PIECES

UNICODE = tables.load_tables()[:3]


def assert_same(texts: list[str], ngrams: tuple[int, ...] = (1, 5)) -> None:
    data, offsets, _ = buffers_of(pd.Series(texts, dtype="str"))
    for text, start, end in zip(texts, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        scratch = vector_shingles.allocate_words(end - start)
        expected, actual = np.zeros((2, (end - start) // 2 + 1), np.uint64)
        for ngram in ngrams:
            count = rolling_shingles.shingle_hashes(data, start, end, ngram, False, *UNICODE, expected)
            found = vector_shingles.shingle_hashes(data, start, end, ngram, False, *UNICODE, scratch, actual)
            assert found == count and (actual[:count] == expected[:count]).all(), (ngram, text)


def test_documents_that_end_around_a_block():
    assert_same([before * size + piece for size in range(56, 66) for before in ("x", " ", "é") for piece in PIECES])


def test_pieces_at_every_position_of_a_block():
    dice = random.Random(11)
    assert_same(["".join(dice.choices(PIECES, k=dice.randrange(150))) for _ in range(1000)])


@pytest.mark.parametrize("ngram", [1, 2, 15, 16, 17, 40])
def test_every_length_of_ngram(ngram: int):
    assert_same([" ".join(map(str, range(words))) for words in range(60)], (ngram,))


def test_nasty_corpus():
    assert_same(NASTY)


@given(document_lists())
def test_generated_documents(texts: list[str]):
    assert_same(texts)


def test_first_bytes_of_white_space_are_those_of_the_tables():
    pages, records, flags = UNICODE
    first_of_each = range(0x80, 0x110000)
    spaces = [code for code in first_of_each if flags[records[int(pages[code >> 8]) << 8 | code & 0xFF]] & tables.SPACE]
    assert {chr(code).encode()[0] for code in spaces} == set(masks.SPACE_STARTS)
