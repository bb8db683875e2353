# SPDX-License-Identifier: Apache-2.0
"""murmur3_x64_128: the oracle equals published vectors, and every engine equals the oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.base.contract import TEXT
from tests.conftest import frame_of, hidden_nulls
from tests.corpus import NASTY, document_lists, real_documents
from tests.oracle.hashing import murmur3_x64_128

# The fox is the vector that Wikipedia and smhasher's ports quote; the others are mmh3 5.3.1's
# `hash64(text, 0, x64arch=True, signed=False)`, with every kind of tail around the 8- and 16-byte borders.
VECTORS = {
    "": (0x0000000000000000, 0x0000000000000000),
    "a": (0x85555565F6597889, 0xE6B53A48510E895A),
    "hello": (0xCBD8A7B341BD9B02, 0x5B1E906A48AE1D19),
    "hello, world": (0x342FAC623A5EBC8E, 0x4CDCBC079642414D),
    "ABCDEFG": (0x38AF65D501CB4E48, 0x1108A50231C00291),
    "ABCDEFGH": (0xA3A725013DBDDBA8, 0x6159AFA610F16E6E),
    "ABCDEFGHI": (0x98966AA8E255C53B, 0xBF1C6A451D2A9DDA),
    "ABCDEFGHIJKLMNO": (0x909232AAD85D1766, 0x2A9F32DF8851107B),
    "ABCDEFGHIJKLMNOP": (0x67D1CCC2EFD7ED8F, 0x1A19CF5DB1BEAC91),
    "ABCDEFGHIJKLMNOPQ": (0x99F4886AFD7AB211, 0x10F6C2F976BA0533),
    "ABCDEFGHIJKLMNOPQRSTUVWX": (0x15C9C335A854F29B, 0xE459CCA1E9D91FF9),
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_": (0x5F644D658C92CC96, 0x72E2F7F4B1A5159A),
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`": (0xA55ECAE70AF04EC0, 0x88B9C66C9B882D44),
    "The quick brown fox jumps over the lazy dog": (0xE34BBC7BBC071B6C, 0x7A433CA9C49A9347),
    "naïve café 漢字 🙂": (0x2688C08B8598EC15, 0x433A9F2784411062),
    "a\x00b": (0x2DEF92D2C1E6B5DB, 0xA3A9F0D0B307B2B4),
}


def hashed(engine, texts: list[str | None], max_characters: int = 0) -> list[tuple[int, int]]:
    hashes = engine.hash_text(frame_of(engine, texts)[TEXT], max_characters)
    assert isinstance(hashes, np.ndarray)
    assert (hashes.dtype, hashes.shape) == (np.uint64, (len(texts), 2))
    return [tuple(map(int, row)) for row in hashes]


def expected_hashes(texts: list[str], max_characters: int | None = None) -> list[tuple[int, int]]:
    return [murmur3_x64_128(text[:max_characters].encode()) for text in texts]


def test_oracle_gives_published_vectors():
    assert {text: murmur3_x64_128(text.encode()) for text in VECTORS} == VECTORS


def test_published_vectors(engine):
    assert dict(zip(VECTORS, hashed(engine, list(VECTORS)), strict=True)) == VECTORS


def test_nasty_corpus(engine):
    texts = [text for text in NASTY if len(text) < 20_000]
    assert hashed(engine, texts) == expected_hashes(texts)


def test_a_long_line(engine):
    text = "é" * 200_001
    assert hashed(engine, [text]) == expected_hashes([text])


@pytest.mark.parametrize("max_characters", [1, 2, 3, 7, 16, 17, 2000])
def test_prefixes_count_code_points(engine, max_characters):
    texts = [text for text in NASTY if len(text) < 20_000]
    assert hashed(engine, texts, max_characters) == expected_hashes(texts, max_characters)


def test_prefix_longer_than_the_text_is_the_text(engine):
    texts = ["", "a", "漢", "🙂🙂", "é" * 9]
    assert hashed(engine, texts, 10) == hashed(engine, texts)


def test_real_documents(engine):
    texts = real_documents(40)
    assert hashed(engine, texts) == expected_hashes(texts)
    assert hashed(engine, texts, 2000) == expected_hashes(texts, 2000)


@given(texts=document_lists(), max_characters=st.integers(1, 40))
def test_generated_documents(engine, texts, max_characters):
    assert hashed(engine, texts) == expected_hashes(texts)
    assert hashed(engine, texts, max_characters) == expected_hashes(texts, max_characters)


def test_null_hashes_as_empty(engine):
    assert hashed(engine, [None, "a", None]) == [(0, 0), VECTORS["a"], (0, 0)]


@pytest.mark.parametrize("max_characters", [0, 2])
def test_bytes_under_a_null_do_not_count(engine, max_characters):
    frame = engine.from_arrow(hidden_nulls())
    assert engine.hash_text(frame[TEXT], max_characters)[1].tolist() == [0, 0]


def test_no_rows(engine):
    assert hashed(engine, []) == []


@pytest.mark.parametrize(("start", "stop"), [(0, 2), (1, 4), (3, None), (2, 2)])
def test_sliced_frame(engine, start, stop):
    texts = ["hello", None, "漢字", "", "ABCDEFGHIJKLMNOPQ"]
    piece = frame_of(engine, texts).iloc[start:stop]
    actual = [tuple(map(int, row)) for row in engine.hash_text(piece[TEXT])]
    assert actual == expected_hashes([text or "" for text in texts])[start:stop]


@pytest.mark.parametrize("count", [1, 16])
@pytest.mark.parametrize("texts", [["", None], ["a", "", None, "bc", "x" * 100, "é" * 7], []])
def test_bytes_spread_over_documents(engine, texts: list[str | None], count: int):
    found = engine.spread_bytes(frame_of(engine, texts)[TEXT], count)
    assert (found.dtype, found.shape) == (np.uint8, (len(texts), count))
    encoded = [(text or "").encode() for text in texts]
    assert found.tolist() == [[each[k * len(each) // count] if each else 0 for k in range(count)] for each in encoded]
