# SPDX-License-Identifier: Apache-2.0
"""The device code of every kernel gives the CPU engine's results, in every order of threads."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import cpu_fallback
from curation.kernels.hashing import murmur3_x64_128
from tests.corpus import NASTY, real_documents
from tests.ptx import execute, workload
from tests.ptx.build import compile_to_ptx
from tests.ptx.engine import ORIGINALS, install_engine, kernels
from tests.ptx.execute import Executable
from tests.ptx.workload import shifted_column

from numba import cuda  # isort: skip - after curation.kernels, which sets the cache folder

ROOT = Path(__file__).resolve().parents[2]
SEEDS = (1, 20_000, 300_000)
SOME_SEEDS = SEEDS if "PTX_ALL_SEEDS" in os.environ else SEEDS[:1]  # `make ptx` sets it
CAPABILITIES = [(9, 0), (10, 0)]  # Numba compiles 7.5 to 9.0 to the same PTX, and 10.0 with another version of LLVM
NASTY_TEXTS = [text for text in NASTY if len(text) < 3000]
MORE_TEXTS = [*NASTY_TEXTS, workload.several_pieces()]
ORDERS = [(seed, capability) for seed in SEEDS for capability in CAPABILITIES]
ORDERS = ORDERS if "PTX_ALL_SEEDS" in os.environ else [ORDERS[0], ORDERS[3], ORDERS[4]]  # each seed once
SOME_DOCUMENTS = real_documents(None if "PTX_ALL_SEEDS" in os.environ else 40)


@pytest.mark.slow("the device code has the CPU engine's results for any order of threads, and for Blackwell")
@pytest.mark.parametrize(("seed", "capability"), ORDERS, ids=str)
def test_results_equal_the_cpu_engine(monkeypatch, tmp_path, seed, capability):
    engine, _ = install_engine(monkeypatch, seed, capability)
    for name in workload.CALLS:
        workload.assert_equal_results(name, engine, [*workload.made_texts(40, seed), *MORE_TEXTS], tmp_path)


@pytest.mark.slow("the parity tests pass on the device code of the kernels")
@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_parity_bodies(seed):
    """In another process, since the plugin replaces the engine of all tests."""
    plugin = ["-p", "tests.ptx.plugin", "--engine", "gpu"]
    others = ["-k", "not processes and not 20_mb"]  # no cluster of GPUs, no long corpus
    command = [sys.executable, "-m", "pytest", "-q", *plugin, *others, "tests/parity"]
    environment = {**os.environ, "PTX_SEED": str(seed)}
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-5000:]
    assert " passed" in finished.stdout and "failed" not in finished.stdout


def wrong_hash_rows(data, offsets, valid, order, max_characters, out):
    """Leaves out the last byte."""
    k = cuda.grid(1)
    if k < order.size:
        row = order[k]
        out[row, 0], out[row, 1] = murmur3_x64_128(data, offsets[row], max(offsets[row], offsets[row + 1] - 1))


def test_a_wrong_kernel_is_noticed(monkeypatch, tmp_path):
    engine, _ = install_engine(monkeypatch, 1)
    texts = workload.made_texts(5)
    workload.assert_equal_results("hash", engine, texts, tmp_path)
    signature = kernels.SIGNATURES[ORIGINALS["hash_rows"]]
    wrong = Executable(compile_to_ptx(wrong_hash_rows, signature))
    monkeypatch.setattr("tests.ptx.engine.executable_of", lambda *_: wrong)
    with pytest.raises(AssertionError, match="result 0 of hash"):
        workload.assert_equal_results("hash", engine, texts, tmp_path)


@pytest.mark.slow("the device code has the CPU engine's results for real documents")
@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_real_documents(monkeypatch, tmp_path, seed):
    engine, _ = install_engine(monkeypatch, seed)
    texts = [*SOME_DOCUMENTS, workload.several_pieces()]
    for name in workload.CALLS:
        workload.assert_equal_results(name, engine, texts, tmp_path)


def test_a_kernel_runs_after_others_needed_its_stacks(monkeypatch, tmp_path):
    monkeypatch.setattr(execute, "MOST_STACKS", 1)
    engine, _ = install_engine(monkeypatch, 2)
    for name in ("hash", "keys", "hash"):
        workload.assert_equal_results(name, engine, workload.made_texts(3), tmp_path)
        assert len(execute.STACKS.of_kernel) == 1


SPREAD = [
    "x" * 70 + " é\u2003y",
    "end",
    "",
    "漢字 words\u0085of\u00a0all kinds",
    "start",
    "a\n" * 40,
    "0123456 01234567 8",
]


@pytest.mark.parametrize("by_character", [False, True], ids=["words", "characters"])
@pytest.mark.parametrize(("skipped", "shift"), [(0, 0), (0, 3), (1, 0), (3, 5)])
def test_items_of_any_column(monkeypatch, skipped, shift, by_character):
    """Buffers that start anywhere, slices, bytes under nulls that are not UTF-8, and words that end with the text."""
    engine, _ = install_engine(monkeypatch, 7)
    pieces = [text.encode() for text in SPREAD]
    pieces[2:2], pieces[6:6] = [b"\xe2\x80 \x80\xf0"], [b"\xff\xfe\xc2"]
    pieces.append(b"\xff\xf4\xbf\xe2")
    column = shifted_column(pieces, (2, 6, len(pieces) - 1), shift)[skipped:]
    text = cpu_fallback.from_arrow(pa.table({"text": column}))["text"]
    for ngram in (1, 3):
        found, expected = (each.shingles(text, ngram, by_character) for each in (engine, cpu_fallback))
        for actual, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(actual, wanted, strict=True)
