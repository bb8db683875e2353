# SPDX-License-Identifier: Apache-2.0
"""Records of windows and verdicts are those of plain Python, and long texts give the same records on both engines."""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import cpu_fallback
from curation.kernels.spans import CLOSER, new_memory
from tests.corpus import NASTY
from tests.kernels.test_spans import TRAPS, buffers, found_bytes, made_corpus, noise
from tests.oracle import windows as oracle
from tests.oracle.substring_dedup import repeated_bytes

NASTY_TEXTS = [text.encode() for text in NASTY if len(text) < 1000]
LENGTHS = (32, 33, 47, 63, 64, 65, 100)


def assert_equal(found: Sequence[np.ndarray], expected: Sequence[Any], types: Sequence[type]) -> None:
    for array, values, kind in zip(found, expected, types, strict=True):
        wanted = np.array(values, kind).reshape(len(values), array.shape[1])
        np.testing.assert_array_equal(array, wanted, strict=True)


def assert_records(engine, texts: Sequence[bytes], length: int) -> int:
    """Those of two calls with one memory, texts of which do not begin with the data. Return how many there are."""
    data, offsets = buffers([b"unread", *texts])
    bounds, total = (1, len(texts) // 2 + 1, len(texts) + 1), 0
    memory, remembered = new_memory(), dict[int, tuple[int, int]]()
    for first, last in pairwise(bounds):
        own = offsets[first : last + 1]
        found = engine.anchor_records(data, own, length, memory)
        raw = data.tobytes()
        assert_equal(
            found, oracle.anchor_records(raw, own.tolist(), length, remembered), (np.uint64, np.int64, np.int64)
        )
        expected = new_memory()
        for slot, whole in remembered.items():
            expected[slot] = whole
        np.testing.assert_array_equal(memory, expected)
        for _ in range(2):
            records, places, *_ = found
            for is_whole in (True, False):
                verdicts = engine.judge_records(records, is_whole)
                assert verdicts.dtype == np.uint8
                assert verdicts.tolist() == oracle.judge_records([*map(tuple, records.tolist())], is_whole)
            total += len(records)
            closer = "node_records" if records.shape[1] == 3 and len(found) == 3 else "window_records"
            wanted = getattr(oracle, closer)(raw, places.tolist(), length)
            found = getattr(engine, closer)(data, places, length)
            assert_equal(found, wanted, (np.uint64, np.int64))
    return total


@pytest.mark.parametrize("length", LENGTHS)
def test_records_of_few_phrases(engine, length):
    total = 0
    for seed in range(4):
        chance = random.Random(100 * length + seed)
        total += assert_records(engine, made_corpus(chance) + made_corpus(chance), length)
    assert total > 50


@pytest.mark.parametrize("length", [32, 200])
def test_records_of_nasty_texts(engine, length):
    assert assert_records(engine, [*NASTY_TEXTS, "ab€".encode() * 300, *NASTY_TEXTS[::3]], length) > 20


@pytest.mark.parametrize("name", TRAPS)
def test_records_of_texts_that_are_hard(engine, name):
    assert_records(engine, TRAPS[name](random.Random(7), 2200), 100)


def long_texts(chance: random.Random) -> list[bytes]:
    """Texts above 2,048 words and above what a block of threads takes, one a changed copy of another, and copies of
    their parts in short ones."""
    words = [noise(chance, chance.randint(2, 9)).replace(b" ", b"e") for _ in range(900)]
    long = b" ".join(chance.choices(words, k=2300))
    changed = bytearray(long)
    for place in range(700, len(long), 1900):
        changed[place] ^= 1
    return [long, long[500:1100], bytes(changed), b"short", long[4000:4900] + noise(chance, 500)]


def records_of(engine, texts: Sequence[bytes], length: int) -> list[np.ndarray]:
    data, offsets = buffers(texts)
    records, places, spans = engine.anchor_records(data, offsets, length, new_memory())
    verdicts = engine.judge_records(records, True)
    nodes = engine.node_records(data, places[verdicts == CLOSER], length)
    return [records, places, spans, verdicts, *nodes, *engine.window_records(data, nodes[1][::5], length)]


@pytest.mark.parametrize("length", [32, 200, 5000])
def test_records_of_long_texts(engine, length):
    """5,000 bytes: the least of strings in more than two hundred chunks."""
    texts = long_texts(random.Random(length))
    found, expected = (records_of(each, texts, length) for each in (engine, cpu_fallback))
    for number, (array, wanted) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_array_equal(array, wanted, f"result {number}", strict=True)
    assert len(found[0]) > 5


def test_records_find_what_a_dictionary_finds(engine):
    texts = [*long_texts(random.Random(3)), b"ab" * 400, *NASTY_TEXTS]
    expected = [byte for mask in repeated_bytes(texts, 100) for byte in mask]
    assert found_bytes(texts, 100, 2, engine=engine).tolist() == expected and sum(expected) > 9000


def test_a_memory_without_slots_remembers_nothing(engine):
    """Equal texts have equal records."""
    texts = [noise(random.Random(4), 900)] * 2
    results = [each.anchor_records(*buffers(texts), 40, new_memory(0)) for each in (engine, cpu_fallback)]
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_array_equal(found, wanted, strict=True)
    records, _, spans = results[0]
    assert len(records) > 50 and len(spans) == 0
    assert records[: len(records) // 2].tolist() == records[len(records) // 2 :].tolist()


@pytest.mark.parametrize("texts", [[], [b""], [b"a" * 199, b""], [b"a" * 150] * 3], ids=range(4))
def test_texts_without_windows(engine, texts):
    """Together they are longer than a window."""
    found = engine.anchor_records(*buffers(texts), 200, new_memory())
    assert [(len(each), each.shape[1], each.dtype) for each in found] == [(0, 3, "u8"), (0, 3, "i8"), (0, 2, "i8")]
    records, places, _ = found
    assert [len(each) for each in engine.node_records(*buffers(texts)[:1], places, 200)] == [0, 0]
    assert [len(each) for each in engine.window_records(*buffers(texts)[:1], places, 200)] == [0, 0]
    assert engine.judge_records(records, True).tolist() == []


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("is_whole", [False, True])
def test_verdicts(engine, width, is_whole):
    """Hashes that differ in their highest or lowest bits only."""
    random_numbers = np.random.default_rng(width)
    edges = np.array([0, 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    for rows in (1, 2, 3000):
        records = random_numbers.choice(edges, (rows, width))
        expected = oracle.judge_records([*map(tuple, records.tolist())], is_whole)
        assert engine.judge_records(records, is_whole).tolist() == expected
