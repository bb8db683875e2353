# SPDX-License-Identifier: Apache-2.0
"""N-gram hashes, signatures, band keys, overlap and components of every engine equal plain Python."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.base.contract import TEXT
from curation.kernels.ngram_table import table_of
from curation.kernels.permutations import constants
from tests.conftest import frame_of, hidden_nulls
from tests.corpus import NASTY, assigned_characters, document_lists, real_documents
from tests.oracle import minhash

A, B = constants(12, 7)
ROWS = 3
GRAMS = [(1, False), (2, False), (5, False), (1, True), (5, True), (20, True)]


def distinct(engine, texts: list[str | None], ngram: int, by_character: bool) -> list[list[int]]:
    """One list per document, checked for shape and type on the way."""
    hashes, offsets = engine.shingles(frame_of(engine, texts)[TEXT], ngram, by_character)
    assert (hashes.dtype, offsets.dtype) == (np.uint64, np.int64)
    assert hashes.shape == (offsets[-1],) and offsets.shape == (len(texts) + 1,) and offsets[0] == 0
    return [hashes[offsets[k] : offsets[k + 1]].tolist() for k in range(len(texts))]


def assert_all_equal(engine, texts: list[str], ngram: int, by_character: bool) -> None:
    expected = [minhash.shingles(text, ngram, by_character) for text in texts]
    assert distinct(engine, texts, ngram, by_character) == [sorted(found) for found in expected]
    signed = [minhash.signature(found, A, B) for found in expected]
    text = frame_of(engine, texts)[TEXT]
    signatures = engine.signatures(text, ngram, by_character, A, B)
    assert (signatures.dtype, signatures.shape) == (np.uint32, (len(texts), len(A)))
    assert signatures.tolist() == signed
    keys = engine.band_keys(text, ngram, by_character, A, B, ROWS)
    assert (keys.dtype, keys.shape) == (np.uint64, (len(texts), len(A) // ROWS))
    assert keys.tolist() == [
        [minhash.band_key(numbers[k : k + ROWS]) for k in range(0, len(A), ROWS)] for numbers in signed
    ]


@pytest.mark.parametrize(("ngram", "by_character"), GRAMS)
def test_nasty_corpus(engine, ngram, by_character):
    assert_all_equal(engine, [text[:5000] for text in NASTY], ngram, by_character)


@pytest.mark.parametrize("ngram", [1, 3])
@pytest.mark.parametrize("chosen", [slice(0, 0), slice(0, None, 7), slice(None)], ids=["none", "some", "all"])
def test_ngrams_of_other_texts(engine, ngram, chosen):
    texts = [text[:5000] for text in NASTY]
    sources = [minhash.shingles(text, ngram, False) for text in texts[chosen]]
    owner_of = {item: number % 3 for number, found in reversed([*enumerate(sources)]) for item in found}
    table = table_of("abc", np.array([*owner_of], np.uint64), np.array([*owner_of.values()], np.int32))
    expected = [[owner_of[item] for item in minhash.all_shingles(text, ngram) if item in owner_of] for text in texts]
    found, owner = engine.ngram_hits(frame_of(engine, [*texts, None])[TEXT], table, ngram)
    assert (found.dtype, owner.dtype) == (np.int64, np.int32)
    assert found.tolist() == [*map(len, expected), 0]
    assert owner.tolist() == [*((owners or [-1])[0] for owners in expected), -1]


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "backward"])
def test_long_documents_leave_no_trace_in_the_next(engine, reverse):
    texts = sorted((text[:5000] for text in NASTY), key=len, reverse=reverse)
    assert distinct(engine, texts, 3, False)[::3] == [distinct(engine, [text], 3, False)[0] for text in texts[::3]]


def test_words_of_every_length_around_white_space_of_every_kind(engine):
    words = ["0123456789abcdefghijklmnop"[:size] for size in range(27)]
    words = [before + word + after for before in ("", "漢") for word in words for after in ("", "é", "\x00\x1b\x7f")]
    spaces, ends = (" ", "\n\n", "\x85", "\u3000", "\x1c "), ("", " ", "\u2028")
    texts = [space.join(words) + end for space in spaces for end in ends]
    assert_all_equal(engine, texts, 1, False)


def test_every_assigned_character(engine):
    chars = list(assigned_characters())
    texts = ["".join(chars[start : start + 64]) for start in range(0, len(chars), 64)]
    expected = [sorted(minhash.shingles(text, 2, False)) for text in texts]
    assert distinct(engine, texts, 2, False) == expected


@pytest.mark.parametrize("ngram", [3, 5])
def test_real_documents(engine, ngram):
    assert_all_equal(engine, real_documents(30), ngram, False)


def test_long_repetitive_document(engine):
    text = "ab " * 20_000 + " ".join(str(k % 977) for k in range(100_000))
    assert_all_equal(engine, [text], 5, False)


def test_nulls_and_empties(engine):
    texts = [None, "", " \n ", "a", None]
    assert distinct(engine, texts, 5, False) == [[], [], [], [minhash.mix(minhash.hash_word("a"))], []]
    assert distinct(engine, [], 5, False) == []
    text = frame_of(engine, texts)[TEXT]
    wordless = [True, True, True, False, True]
    assert (engine.signatures(text, 5, False, A, B) == 2**32 - 1).all(axis=1).tolist() == wordless
    assert (engine.band_keys(text, 5, False, A, B, ROWS) == 0).all(axis=1).tolist() == wordless
    nothing = frame_of(engine, [])[TEXT]
    assert engine.signatures(nothing, 5, False, A, B).shape == (0, 12)
    assert engine.band_keys(nothing, 5, False, A, B, ROWS).shape == (0, 4)


def test_null_over_bytes(engine):
    text = engine.from_arrow(hidden_nulls())[TEXT]
    assert np.diff(engine.shingles(text, 1, False)[1]).tolist() == [2, 0, 2]
    assert (engine.band_keys(text, 1, False, A, B, ROWS)[1] == 0).all()


def test_slice_of_a_column(engine):
    table = pa.table({TEXT: pa.array(["skip me", "a b c", "d e"], pa.large_string())}).slice(1)
    hashes, offsets = engine.shingles(engine.from_arrow(table)[TEXT], 2, False)
    expected = [sorted(minhash.shingles(text, 2, False)) for text in ("a b c", "d e")]
    assert [hashes[offsets[k] : offsets[k + 1]].tolist() for k in range(2)] == expected


@given(document_lists(), st.sampled_from(GRAMS))
def test_any_text(engine, texts, grams):
    assert_all_equal(engine, texts, *grams)


def test_constants_and_results_are_frozen(engine):
    """A change here breaks saved signatures: it takes a new version in `curation.kernels.permutations`."""
    a, b = constants(2)  # 0x910A2DEC89025CC1 is SplitMix64's first number for seed 1
    assert a[0] == 0x910A2DEC | 1
    assert (a.tolist(), b.tolist()) == ([2433363437, 4170425071], [3203108257, 1908508304])
    a, b = constants(128)
    texts = ["the quick brown fox jumps over the lazy dog", "zażółć gęślą jaźń 漢字 🙂 and a longword0123"]
    text = frame_of(engine, texts)[TEXT]
    digest = hashlib.sha256(engine.signatures(text, 3, False, a, b).tobytes())
    digest.update(np.ascontiguousarray(engine.band_keys(text, 3, False, a, b, 6)).tobytes())
    assert digest.hexdigest()[:16] == "ad3e76b0e47b93e4"


def test_more_permutations_begin_with_the_same(engine):
    text = frame_of(engine, ["a b c d e f", ""])[TEXT]
    few, many = constants(5, 3), constants(50, 3)
    assert np.array_equal(engine.signatures(text, 2, False, *many)[:, :5], engine.signatures(text, 2, False, *few))


def packed(sets: list[set[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, sets)])
    return np.array([x for found in sets for x in sorted(found)], np.uint64), offsets


HASHES = st.sets(st.integers(0, 2**64 - 1) | st.integers(0, 20), max_size=20)


@given(st.lists(HASHES, min_size=1, max_size=6), st.data())
def test_overlap(engine, sets, data):
    row = st.integers(0, len(sets) - 1)
    pairs = data.draw(st.lists(st.tuples(row, row), max_size=10))
    left, right = np.array(pairs, np.int64).reshape(-1, 2).T.copy()
    common = engine.intersection_sizes(*packed(sets), left, right)
    assert common.dtype == np.int64
    assert common.tolist() == [len(sets[i] & sets[j]) for i, j in pairs]


def test_overlap_of_a_mapped_file(engine, tmp_path):
    hashes, offsets = packed([{1, 5, 2**63, 2**64 - 1}, {5, 2**63}])
    hashes.tofile(tmp_path / "hashes")
    mapped = np.memmap(tmp_path / "hashes", np.uint64, "r")
    assert engine.intersection_sizes(mapped, offsets, np.array([0, 1]), np.array([1, 1])).tolist() == [2, 2]


@given(st.integers(1, 30), st.data())
def test_connected(engine, rows, data):
    row = st.integers(0, rows - 1)
    edges = data.draw(st.lists(st.tuples(row, row), max_size=40))
    left, right = np.array(edges, np.int64).reshape(-1, 2).T.copy()
    label = engine.connected_components(left, right, rows)
    assert label.dtype == np.int64
    assert label.tolist() == minhash.labels(edges, rows)


@pytest.mark.parametrize("order", ["up", "down", "mixed"])
def test_connected_chain(engine, order):
    left = np.arange(50_000)
    left = {"up": left, "down": left[::-1].copy(), "mixed": np.random.default_rng(1).permutation(left)}[order]
    assert not engine.connected_components(left, left + 1, 50_001).any()
    assert engine.connected_components(left[:0], left[:0], 3).tolist() == [0, 1, 2]
