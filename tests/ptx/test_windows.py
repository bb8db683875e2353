# SPDX-License-Identifier: Apache-2.0
"""The device makes the records of windows that the CPU engine makes, in every order of threads."""

import random
import sys
import tracemalloc

import numpy as np
import pytest

import cpu_fallback
from curation.kernels.spans import new_memory
from tests.kernels.test_spans import TRAPS, buffers, made_corpus, noise
from tests.parity.test_windows import LENGTHS, NASTY_TEXTS, long_texts, records_of
from tests.ptx import workload
from tests.ptx.engine import install_engine
from tests.ptx.test_kernels import SEEDS


def assert_equal_records(engine, texts: list[bytes], length: int) -> None:
    pairs = zip(records_of(engine, texts, length), records_of(cpu_fallback, texts, length), strict=True)
    for number, (found, wanted) in enumerate(pairs):
        np.testing.assert_array_equal(found, wanted, f"result {number}, {length} bytes", strict=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_records_of_random_corpora(monkeypatch, seed):
    engine, _ = install_engine(monkeypatch, seed)
    for number in range(12):
        chance = random.Random(seed + number)
        assert_equal_records(engine, made_corpus(chance) + made_corpus(chance), chance.choice(LENGTHS))


@pytest.mark.parametrize("seed", SEEDS[:1])
def test_records_of_long_and_nasty_texts(monkeypatch, seed):
    engine, _ = install_engine(monkeypatch, seed)
    texts = [*NASTY_TEXTS, *long_texts(random.Random(seed)), workload.several_pieces().encode()]
    for length in (32, 200, 3001):
        assert_equal_records(engine, [b"x" * length, *texts], length)


def test_records_of_texts_that_are_hard(monkeypatch):
    engine, _ = install_engine(monkeypatch, 3)
    for make in TRAPS.values():
        assert_equal_records(engine, make(random.Random(7), 6000), 200)


@pytest.mark.parametrize("length", [*range(32, 50), 255, 256, 257])
def test_windows_of_every_number_of_strings(monkeypatch, length):
    """Chunks between the ends of a window: from one on, and at each power of two. Texts end at each byte of a chunk."""
    engine, _ = install_engine(monkeypatch, length)
    chance = random.Random(length)
    for size in range(length, length + 9):
        assert_equal_records(engine, [noise(chance, size), b"aab" * size, noise(chance, 3)], length)


def test_memory_is_what_is_reserved(monkeypatch):
    """NumPy keeps no copy for a sort, which CuPy does."""
    engine, _ = install_engine(monkeypatch, 1)
    reserved, real = [], sys.modules["gpu_pipeline.memory.device"].memory()
    monkeypatch.setattr(real, "reserve", lambda size, reserve=real.reserve: (reserved.append(size), reserve(size))[1])
    chance = random.Random(2)
    data, offsets = buffers([noise(chance, 600) for _ in range(40)])
    records, places, _ = cpu_fallback.anchor_records(data, offsets, 200, new_memory())
    _, nodes = cpu_fallback.node_records(data, places, 200)
    many = np.concatenate([records] * 9)
    memory = new_memory()
    calls = [
        lambda: engine.anchor_records(data, offsets, 200, memory),
        lambda: engine.node_records(data, places, 200),
        lambda: engine.window_records(data, nodes[::20].copy(), 200),
        lambda: engine.judge_records(many, True),
    ]
    for call in calls:
        call()
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert reserved[-1] / 2.5 < peak < reserved[-1] + 30_000
