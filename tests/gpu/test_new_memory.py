# SPDX-License-Identifier: Apache-2.0
"""Batches of 64 MB and more move between a file, a made device and Arrow files without new memory of the host.

Only functions that move data run. Arrays of the device come from one arena, which has no page faults after the first
batch; NumPy's own arrays would hide what the host allocates.
"""

import ctypes
import resource
import tracemalloc
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from curation.base.arrays import write_array
from curation.base.contract import TEXT
from curation.reading import lines, probe
from curation.reading.documents import Documents
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from curation.record.partitions import IpcFile
from tests.gpu import stand_ins
from tests.gpu.test_buffers import Column, Series

BATCH = 64 << 20
BATCHES = 5
LARGE = 1 << 20  # bytes of allocations
FEW = 256  # page faults, of the objects of Python: those of 1 MiB of new memory
LINE = 4096
KEYS = 21


class Pointer(int):
    """An address in the arena. `crossed` has the address on the host and the size of each copy from and to it."""

    crossed: ClassVar[list[tuple[int, int]]] = []

    def __add__(self, start):
        return Pointer(int(self) + start)

    def copy_from_host_async(self, source, size, stream):
        self.crossed.append((source, size))
        ctypes.memmove(self, source, size)

    def copy_to_host_async(self, target, size, stream):
        self.crossed.append((target, size))
        ctypes.memmove(target, self, size)


class Array:
    """What `buffers` asks of an array of the device."""

    def __init__(self, values):
        self.values = values
        self.shape, self.dtype, self.size = values.shape, values.dtype, values.size

    @property
    def data(self):
        return Pointer(self.values.ctypes.data)

    def __getitem__(self, index):
        found = self.values[index]
        return Array(found) if isinstance(found, np.ndarray) else found

    def __sub__(self, other):
        out = arena.take(self.values.nbytes).view(self.dtype)
        return Array(np.subtract(self.values, other, out=out))


class Arena:
    def __init__(self, size):
        self.memory, self.end = np.zeros(size, np.uint8), 0

    def take(self, size):
        start, self.end = self.end, self.end + -(-size // 64) * 64
        return self.memory[start : start + size]


arena: Arena


@pytest.fixture
def moving(monkeypatch):
    """The module of buffers as it is, over the arena, and the pool of host memory."""
    global arena
    load = stand_ins.install(monkeypatch)
    memory, buffers = load("host_memory"), load("buffers")
    arena = Arena(8 * BATCH)
    stream = SimpleNamespace(synchronize=lambda: None)
    # Memory is in place when it is page-locked
    monkeypatch.setattr(
        memory.cp.cuda.runtime, "hostRegister", lambda start, size, flags: ctypes.memset(start, 0, size)
    )
    monkeypatch.setattr(Pointer, "crossed", [])
    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    cuda = SimpleNamespace(
        get_current_stream=lambda: stream, Event=lambda disable_timing: event, alloc_pinned_memory=bytearray
    )
    buffers.cp = SimpleNamespace(
        cuda=cuda, empty=lambda size, dtype: Array(arena.take(size * np.dtype(dtype).itemsize).view(dtype))
    )
    buffers.host_memory = memory
    return SimpleNamespace(memory=memory, buffers=buffers)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "made.jsonl"
    line = b'{"text": "' + b"x" * (LINE - 13) + b'"}\n'
    path.write_bytes(line * (BATCHES * BATCH // LINE))
    return path


def moved(moving, data, folder):
    """A block goes to the device; its text, keys and tokens come back and are written."""
    buffers, count = moving.buffers, len(data) // LINE
    text = buffers.upload(data)
    ends = Array(arena.take(8 * count + 8).view(np.int64))
    ends.values[:] = np.arange(0, count + 1) * LINE
    column = Series(Column("STRING", count, None, None, 0, 0, []))
    buffers.buffers_of = lambda text_column: (text, ends, None)
    texts = buffers.string_array(column)
    keys = moving.memory.empty((KEYS, count), np.uint64)
    buffers.download_rows(Array(arena.take(keys.nbytes).view(np.uint64).reshape(keys.shape)), keys)
    ids = moving.memory.joined([buffers.download(Array(arena.take(len(data) // 2).view(np.uint16)))])
    with IpcFile(folder / "documents.arrow") as file:
        file.write(pa.table({TEXT: texts}))
    with IpcFile(folder / "keys.arrow") as file:
        file.write(pa.table({str(k): pa.array(row) for k, row in enumerate(keys)}))
    with open(folder / "ids", "wb", buffering=0) as file:
        write_array(file, ids)
    assert texts.get_total_buffer_size() >= len(data)


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def test_no_new_memory_from_the_second_batch_on(moving, source, tmp_path):
    memory, faults, largest, held = moving.memory, [page_faults()], [], 0

    def parse(data, offset, file, row, line):
        arena.end = 0
        moved(moving, data, tmp_path)
        yield Documents(pa.table({}), [], 1, 1)

    with memory.session_of(1):
        memory.prepare(BATCH)
        [file] = [probe(file) for file in find_files([Input(path=str(source))])]
        [piece] = plan_slices([file], 1 << 40)
        tracemalloc.start()
        try:
            for documents in lines.read_jsonl(piece.ranges[0], BATCH, parse, memory.empty_bytes):
                faults.append(page_faults())
                largest.append(tracemalloc.get_traced_memory()[1] - held)
                tracemalloc.reset_peak()
                held = tracemalloc.get_traced_memory()[0]  # the staging memory, made once
                del documents
        finally:
            tracemalloc.stop()
        assert memory._pool.free == memory._pool.size
        start, end = memory._pool.address, memory._pool.address + memory._pool.size
    assert len(largest) == BATCHES
    assert np.diff(faults)[0] > BATCH // 4096  # of the arena and the pool
    assert max(np.diff(faults)[1:]) <= FEW and max(largest[1:]) < LARGE, (np.diff(faults), largest)
    staged = sum(size for address, size in Pointer.crossed if not start <= address < end)
    crossed = sum(size for _, size in Pointer.crossed)
    assert crossed > 2.4 * BATCHES * BATCH and staged < crossed // 100  # arrays of less than a unit of the pool
