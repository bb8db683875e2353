# SPDX-License-Identifier: Apache-2.0
"""Records of windows over NumPy: what the CPU engine takes."""

import random

import numpy as np
import pytest

import cpu_fallback
from curation.kernels.spans import new_memory
from tests.gpu import stand_ins
from tests.gpu.test_layout import SHORT, run_out_of_memory
from tests.kernels.test_spans import buffers, made_corpus, noise
from tests.parity.test_windows import records_of

LENGTH = 40


@pytest.fixture
def windows(monkeypatch):
    return stand_ins.install(monkeypatch)("windows")


@pytest.fixture
def texts() -> list[bytes]:
    chance = random.Random(5)
    return [*made_corpus(chance), *made_corpus(chance), noise(chance, 300), b"ab" * 90]


def test_the_cpu_engine_takes_what_does_not_fit(windows, texts, monkeypatch, caplog):
    expected = records_of(cpu_fallback, texts, LENGTH)
    run_out_of_memory(monkeypatch, windows, 1)
    for found, wanted in zip(records_of(windows, texts, LENGTH), expected, strict=True):
        np.testing.assert_array_equal(found, wanted, strict=True)
    assert len(expected[0]) and len(expected[4]) and len(expected[6])
    assert [record.message for record in caplog.records] == [SHORT]


def test_the_cpu_engine_takes_texts_whose_places_need_more_bits(windows, texts, monkeypatch):
    data, offsets = buffers(texts)
    monkeypatch.setattr(windows, "_anchor_records", None)
    monkeypatch.setattr(windows, "LARGEST", len(data))
    memories = new_memory(), new_memory()
    results = [each.anchor_records(data, offsets, LENGTH, memory)
               for each, memory in zip((windows, cpu_fallback), memories, strict=True)]  # fmt: skip
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_array_equal(found, wanted, strict=True)
    np.testing.assert_array_equal(*memories)
    monkeypatch.setattr(windows, "LARGEST", len(data) + 1)
    with pytest.raises(TypeError, match="not callable"):
        windows.anchor_records(data, offsets, LENGTH, new_memory())
