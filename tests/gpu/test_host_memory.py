# SPDX-License-Identifier: Apache-2.0
"""The pool of host memory: arrays return their memory with the last view of them, and an empty pool lends none."""

import gc
import os
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from curation.base import engine as selector
from curation.base.system.memory import POOLED_BATCHES
from curation.running.run import run
from tests.gpu import stand_ins
from tests.runs import digests, kept_rows, recipe_of, records_of, removed_rows

UNIT, PIECE = 64, 256
BATCH = 4 * UNIT
TEXTS = [f"document {k} " + "and more words " * (k % 4) for k in range(60)]
STAGES = [
    {"kind": "rewrite", "lowercase": True},
    {"kind": "filter", "rules": [{"measure": "words", "min": 4}]},
    {"kind": "exact_dedup"},
]


@pytest.fixture
def memory(monkeypatch):
    stand_ins.install(monkeypatch)
    return small(sys.modules["gpu_pipeline.memory.host_memory"], monkeypatch)


def small(module, monkeypatch):
    monkeypatch.setattr(module, "UNIT", UNIT)
    monkeypatch.setattr(module, "PIECE", PIECE)
    return module


def free_after(memory, make):
    """The free bytes while the result of `make` exists."""
    held = make()
    gc.collect()
    free = memory._pool.free
    del held
    return free


def of_arrow(array):
    """An Arrow array of strings over the bytes of an array."""
    offsets = np.arange(0, array.size + 1, 16)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(array)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


def failed(array):
    try:
        raise ValueError
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    "view",
    [
        lambda array: array,
        lambda array: array[5:7],
        lambda array: array.view(np.uint64).reshape(2, -1).T,
        lambda array: pa.py_buffer(array),
        lambda array: of_arrow(array).slice(1, 1),
        lambda array: of_arrow(array).to_pandas(),
        failed,
    ],
    ids=["array", "slice", "view", "buffer", "arrow", "pandas", "error"],
)
def test_memory_returns_with_the_last_view(memory, view):
    with memory.session_of(2):
        memory.prepare(BATCH)
        size = 2 * POOLED_BATCHES * BATCH
        assert memory._pool.free == size
        assert free_after(memory, lambda: view(memory.empty(2 * UNIT, np.uint8))) == size - 2 * UNIT
        gc.collect()
        assert memory._pool.free == size


def test_arrays_do_not_overlap_and_a_full_pool_lends_nothing(memory):
    with memory.session_of(1):
        memory.prepare(BATCH)
        units = POOLED_BATCHES * BATCH // UNIT
        arrays = [memory.empty(UNIT // 8 + k % 8, np.uint64) for k in range(2 * units)]
        for k, array in enumerate(arrays):
            array.fill(k)
        assert memory._pool.free < 2 * UNIT  # the rest is ordinary memory
        assert [*map(np.unique, arrays)] == [*range(2 * units)]
        del arrays[2]
        assert memory._pool.locked_parts(memory.empty(UNIT, np.uint8))


def test_an_array_of_several_pieces_is_copied_for_other_code(memory):
    """CUDA copies no bytes across the end of a page-locked piece."""
    with memory.session_of(1):
        memory.prepare(BATCH)
        whole, several = (memory.empty(size, np.uint8) for size in (UNIT, 2 * PIECE))
        several.fill(7)
        new = np.zeros(3 * PIECE, np.uint8)
        assert memory.in_one_piece(whole) is whole and memory.in_one_piece(new) is new
        copied = memory.in_one_piece(several)
        assert memory.locked_parts(copied) is None and copied.tolist() == several.tolist()


def test_small_arrays_and_those_outside_of_a_session_are_new_memory(memory):
    memory.prepare(BATCH)
    assert memory._pool.size == 0 and memory.empty((3, UNIT), np.uint8).base is None
    with memory.session_of(1):
        memory.prepare(BATCH)
        assert memory.empty(UNIT - 1, np.uint8).base is None
        kept = memory.empty(UNIT, np.uint8)
        assert kept.base is not None
    kept.fill(7)
    assert memory._pool.size == 0 and memory.locked_parts(kept) is None and kept.sum() == 7 * UNIT


def test_a_pool_is_locked_as_far_as_it_is_used_and_only_grows(memory, monkeypatch):
    calls = []
    runtime = memory.cp.cuda.runtime
    monkeypatch.setattr(runtime, "hostRegister", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(runtime, "hostUnregister", lambda start: calls.append(start))
    with memory.session_of(1):
        memory.prepare(BATCH)
        start = memory._pool.address
        held = memory.empty(3 * UNIT, np.uint8), memory.empty(2 * UNIT, np.uint8)
        assert calls == [(start, PIECE, 0), (start + PIECE, PIECE, 0)]
        assert memory.locked_parts(held[0]) == [(0, 3 * UNIT)]
        assert memory.locked_parts(held[1]) == [(0, UNIT), (UNIT, UNIT)]
        memory.prepare(BATCH // 2)
        assert memory._pool.address == start
        memory.prepare(2 * BATCH)
        assert memory._pool.size == 2 * POOLED_BATCHES * BATCH and len(calls) == 2
        del held
        gc.collect()
        assert calls[2:] == [start, start + PIECE]


def test_memory_that_cannot_be_locked_is_said_once(memory, monkeypatch, caplog):
    def refuse(start, size, flags):
        raise RuntimeError("cudaErrorMemoryAllocation: out of memory")

    monkeypatch.setattr(memory.cp.cuda.runtime, "hostRegister", refuse)
    with memory.session_of(1):
        memory.prepare(BATCH)
        arrays = [memory.empty(UNIT, np.uint8) for _ in range(3)]
        assert memory._pool.free == memory._pool.size - 3 * UNIT
        assert [memory.locked_parts(array) for array in arrays] == [None] * 3
    (message,) = caplog.messages
    assert message.startswith("the system locks 0 of 0 MiB of memory for the GPU (cudaErrorMemoryAllocation")


def test_several_results_are_joined_in_the_pool_and_one_is_not_copied(memory):
    with memory.session_of(1):
        memory.prepare(BATCH)
        one = np.arange(UNIT)
        assert memory.joined([one]) is one
        both = memory.joined([one, one[:3]])
        assert both.tolist() == [*range(UNIT), 0, 1, 2] and memory.locked_parts(both)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(selector, "gpu_obstacle", lambda: "")
    made = stand_ins.install_engine(monkeypatch)
    monkeypatch.setattr(made, "batch_bytes", lambda workers: 16 * UNIT)
    return made


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "made.jsonl"
    path.write_bytes(records_of(TEXTS))
    return recipe_of(path, stages=STAGES, output={"formats": [], "removed": "text"})


@pytest.mark.parametrize("locks", [True, False])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_returns_all_memory_and_writes_the_same(gpu, recipe, tmp_path, monkeypatch, locks, workers):
    memory = small(sys.modules["gpu_pipeline.memory.host_memory"], monkeypatch)
    pools = noted_pools(memory, monkeypatch)
    if not locks:
        monkeypatch.setattr(memory.Pool, "_lock", lambda self, end: None)
    report = run(recipe, tmp_path / "out", engine="gpu", workers=workers, slice_bytes=3000).report
    expected = run(recipe, tmp_path / "cpu", engine="cpu", slice_bytes=3000).report
    assert report["documents_digest"] == expected["documents_digest"]
    assert (kept_rows(tmp_path / "out"), removed_rows(tmp_path / "out")) == (
        kept_rows(tmp_path / "cpu"),
        removed_rows(tmp_path / "cpu"),
    )
    assert_all_free(pools, 20)


def test_a_failed_task_returns_its_memory(gpu, recipe, tmp_path, monkeypatch):
    memory = small(sys.modules["gpu_pipeline.memory.host_memory"], monkeypatch)
    pools = noted_pools(memory, monkeypatch)

    def fail(*arguments):
        raise MemoryError("of a stage")

    monkeypatch.setattr("curation.record.partitions.IpcFile.write", fail)
    with pytest.raises(Exception, match="of a stage"):
        run(recipe, tmp_path / "out", engine="gpu", workers=2, slice_bytes=3000)
    assert_all_free(pools, 2)


class Stopped(BaseException):
    """Leaves a run as a signal does."""


@pytest.mark.slow("a stopped run of the GPU engine frees its pool, and resumes with the same bytes")
def test_a_stopped_run_returns_its_memory(gpu, recipe, tmp_path, monkeypatch):
    memory = small(sys.modules["gpu_pipeline.memory.host_memory"], monkeypatch)
    pools, real, names = noted_pools(memory, monkeypatch), os.replace, []

    def go(output):
        return run(recipe, output, engine="gpu", workers=1, slice_bytes=3000)

    go(tmp_path / "warm")  # renames compiled kernels
    monkeypatch.setattr(os, "replace", lambda *paths: names.append(paths[1]) or real(*paths))
    go(tmp_path / "whole")
    assert len(names) > 15
    for number in range(0, len(names), 4):
        left = iter(range(number))

        def stop(*paths, left=left):
            if next(left, None) is None:
                raise Stopped
            real(*paths)

        output = tmp_path / str(number)
        monkeypatch.setattr(os, "replace", stop)
        with pytest.raises(Stopped):
            go(output)
        assert_all_free(pools, 0)
        monkeypatch.setattr(os, "replace", real)
        go(output)
        assert digests(output) == digests(tmp_path / "whole"), f"stopped before {names[number]}"
    assert_all_free(pools, 20)


def noted_pools(memory, monkeypatch):
    """The pools of a run, and the number of arrays that each has lent."""
    pools, take = {}, memory.Pool.take

    def noted(self, size):
        pools[self] = pools.get(self, 0) + 1
        return take(self, size)

    monkeypatch.setattr(memory.Pool, "take", noted)
    return pools


def assert_all_free(pools, lent):
    gc.collect()
    used = {pool: count for pool, count in pools.items() if pool.size}
    assert sum(used.values()) >= lent
    assert all(pool.free == pool.size for pool in used)


@pytest.mark.parametrize(("threads", "size"), [(0, 0), (2, 2 * POOLED_BATCHES * BATCH)])
def test_a_worker_of_dask_has_a_pool_for_its_threads(memory, monkeypatch, threads, size):
    def get_worker():
        if not threads:
            raise ValueError("No worker found")
        return SimpleNamespace(state=SimpleNamespace(nthreads=threads))

    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(get_worker=get_worker))
    memory.prepare(BATCH)
    assert memory._pool.size == size


def test_addresses_that_are_refused_leave_new_memory(memory, monkeypatch, caplog):
    def refuse(*arguments):
        raise OSError("Cannot allocate memory")

    monkeypatch.setattr(memory, "mmap", refuse)
    with memory.session_of(1):
        memory.prepare(BATCH)
        assert memory.empty(UNIT, np.uint8).base is None
    assert caplog.messages == ["no pool of 0 MiB of memory for copies to and from the GPU: Cannot allocate memory"]
