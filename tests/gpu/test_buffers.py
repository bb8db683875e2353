# SPDX-License-Identifier: Apache-2.0
"""Views of cuDF's column buffers and string columns made from arrays, over made-up columns in host memory."""

import ctypes
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from tests.gpu import stand_ins

INT32, INT64, STRING = "INT32", "INT64", "STRING"


class Column:
    """What `buffers` asks of a pylibcudf column. A span's pointer is the array itself."""

    def __init__(self, kind, size, data, mask, null_count, offset, children):
        self.kind, self.rows, self.memory, self.mask = kind, size, data, mask
        self.nulls, self.first, self.under = null_count, offset, children

    def type(self):
        return SimpleNamespace(id=lambda: self.kind)

    def data(self):
        return None if self.memory is None else SimpleNamespace(ptr=self.memory, size=self.memory.nbytes)

    def size(self):
        return self.rows

    def offset(self):
        return self.first

    def children(self):
        return self.under

    def num_children(self):
        return len(self.under)

    @staticmethod
    def from_cuda_array_interface(array):
        return array


class Series:
    def __init__(self, column, valid=None):
        self.column, self.valid = column, valid
        self.null_count = 0 if valid is None else int((~valid).sum())

    def to_pylibcudf(self):
        return self.column, {}

    def notna(self):
        return SimpleNamespace(values=self.valid)

    @classmethod
    def from_pylibcudf(cls, column, metadata):
        made = cls(column)
        made.metadata = metadata
        return made


@pytest.fixture
def buffers(monkeypatch):
    module = stand_ins.install(monkeypatch)("buffers")

    def array_over(shape, dtype, pointer):
        memory, first = pointer
        return np.frombuffer(memory.tobytes(), dtype, shape[0], first)

    module.cp.ndarray = array_over
    module.cp.cuda.UnownedMemory = lambda pointer, size, owner: pointer
    module.cp.cuda.MemoryPointer = lambda memory, offset: (memory, offset)
    module.plc = SimpleNamespace(
        Column=Column,
        DataType=lambda kind: kind,
        TypeId=SimpleNamespace(INT32=INT32, INT64=INT64, STRING=STRING),
        gpumemoryview=lambda array: array,
        transform=SimpleNamespace(bools_to_mask=lambda valid: (np.packbits(valid), int((~valid).sum()))),
    )
    module.cudf = SimpleNamespace(Series=Series, Index=object)
    return module


def made(texts, kind, child_offset=0, offset=0, rows=None):
    """A column of these texts, from row `offset` on; its offsets begin at item `child_offset` of their buffer."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)])
    stored = np.concatenate([np.full(child_offset, -1), ends]).astype(kind.lower())
    child = Column(kind, len(ends), stored, None, 0, child_offset, [])
    data = np.frombuffer(b"".join(encoded), np.uint8) if any(encoded) else None
    return Column(STRING, len(texts) - offset if rows is None else rows, data, None, 0, offset, [child])


def texts_of(data, offsets):
    return [data[start:end].tobytes().decode() for start, end in pairwise(offsets)]


TEXTS = ["a", "", "漢字", "four", "é"]


@pytest.mark.parametrize("kind", [INT32, INT64])
@pytest.mark.parametrize("child_offset", [0, 3])
@pytest.mark.parametrize(("offset", "rows"), [(0, None), (2, None), (1, 3), (5, 0)])
def test_buffers_of_a_column_and_of_a_part_of_one(buffers, kind, child_offset, offset, rows):
    column = made(TEXTS, kind, child_offset, offset, rows)
    data, offsets, valid = buffers.buffers_of(Series(column))
    assert offsets.dtype == np.int64 and valid is None
    assert texts_of(data, offsets) == TEXTS[offset:][:rows]


def test_columns_without_characters_rows_or_children(buffers):
    data, offsets, _ = buffers.buffers_of(Series(made(["", ""], INT32)))
    assert (data.tolist(), offsets.tolist()) == ([], [0, 0, 0])
    data, offsets, _ = buffers.buffers_of(Series(Column(STRING, 0, None, None, 0, 0, [])))
    assert (data.tolist(), offsets.tolist()) == ([], [0])


def test_nulls(buffers):
    valid = np.array([True, False, True, True, True])
    assert buffers.buffers_of(Series(made(TEXTS, INT32), valid))[2] is valid


@pytest.mark.parametrize(("limit", "kind"), [(14, INT32), (13, INT64)])
def test_large_columns_get_large_offsets(buffers, monkeypatch, limit, kind):
    monkeypatch.setattr(buffers, "LARGE_STRINGS", limit)
    data, offsets, _ = buffers.buffers_of(Series(made(TEXTS, INT32)))
    assert data.size == 13
    found = buffers.series_of(data, offsets, "the index", None, "text")
    assert found.metadata == {"name": "text", "index": "the index"}
    (child,) = found.column.children()
    assert (found.column.size(), child.kind, child.memory.dtype) == (5, kind, kind.lower())
    assert texts_of(*buffers.buffers_of(found)[:2]) == TEXTS


def test_null_masks(buffers):
    valid = np.array([True, False, True])
    found = buffers.series_of(np.zeros(3, np.uint8), np.arange(4), None, valid)
    assert (found.column.nulls, found.column.mask.tolist()) == (1, [0b10100000])


@pytest.mark.parametrize("kind", [INT32, INT64])
@pytest.mark.parametrize(("offset", "rows"), [(0, None), (2, None), (1, 3), (5, 0)])
@pytest.mark.parametrize("null", [None, 0, 2])
def test_a_column_on_the_host_is_a_large_string_with_its_own_text_alone(buffers, monkeypatch, kind, offset, rows, null):
    sizes = []
    monkeypatch.setattr(buffers, "download", lambda array: sizes.append((array.dtype, array.size)) or array.copy())
    expected = [text if k != null else None for k, text in enumerate(TEXTS[offset:][:rows])]
    valid = None if null is None else np.array([text is not None for text in expected], bool)
    found = buffers.string_array(Series(made(TEXTS, kind, 0, offset, rows), valid))
    found.validate(full=True)
    assert found.type == pa.large_string() and found.to_pylist() == expected
    assert [size for dtype, size in sizes if dtype == np.uint8] == [len("".join(TEXTS[offset:][:rows]).encode())]


class Copies:
    """A stream that copies late: only when somebody waits for what was recorded after a copy."""

    def __init__(self, monkeypatch, buffers):
        self.pending, self.most, self.done = [], 0, 0
        cuda = SimpleNamespace(
            alloc_pinned_memory=bytearray, Event=lambda disable_timing: Event(self), get_current_stream=lambda: self
        )
        monkeypatch.setattr(buffers, "cp", SimpleNamespace(cuda=cuda, empty=self.empty))
        monkeypatch.setattr(buffers, "STAGING_BYTES", 8)

    def empty(self, size, dtype):
        self.out = np.zeros(size, dtype)
        return SimpleNamespace(data=Pointer(self, 0))

    def finish(self, count):
        for target, source, size in self.pending[:count]:
            ctypes.memmove(target, source, size)
        self.pending, self.done = self.pending[count:], self.done + len(self.pending[:count])

    def synchronize(self):
        self.finish(len(self.pending))

    def add(self, target, source, size, stream):
        assert stream is self
        self.pending.append((target, source, size))
        self.most = max(self.most, len(self.pending))


class Pointer:
    def __init__(self, copies, start):
        self.copies, self.start = copies, start

    def __add__(self, start):
        return Pointer(self.copies, self.start + start)

    def copy_from_host_async(self, source, size, stream):
        self.copies.add(self.copies.out.ctypes.data + self.start, source, size, stream)

    def copy_to_host_async(self, target, size, stream):
        self.copies.add(target, self.copies.out.ctypes.data + self.start, size, stream)


class Event:
    def __init__(self, copies):
        self.copies, self.end = copies, 0

    def record(self):
        self.end = self.copies.done + len(self.copies.pending)

    def synchronize(self):
        self.copies.finish(max(self.end - self.copies.done, 0))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 17, 100])
def test_an_upload_does_not_overwrite_what_the_device_still_reads(buffers, monkeypatch, size):
    copies = Copies(monkeypatch, buffers)
    host = np.arange(size, dtype=np.uint8)
    buffers.upload(host)
    assert copies.most == min(-(-size // 8), 2)  # one is copied while the next is filled
    copies.finish(9)
    assert copies.out.tolist() == host.tolist()


@pytest.mark.parametrize("dtype", ["uint8", "uint64"])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 17, 100])
def test_a_download_waits_for_each_half_and_none_is_overwritten_before_it_is_read(buffers, monkeypatch, size, dtype):
    copies = Copies(monkeypatch, buffers)
    copies.out = np.arange(size, dtype=dtype) * 7
    on_device = SimpleNamespace(shape=copies.out.shape, dtype=copies.out.dtype, data=Pointer(copies, 0))
    found = buffers.download(on_device)
    assert found.dtype == dtype and found.tolist() == copies.out.tolist() and not copies.pending
    assert copies.most == min(-(-copies.out.nbytes // 8), 2)  # the device fills one while the host empties the other


def test_an_upload_after_a_download_waits_for_it(buffers, monkeypatch):
    copies = Copies(monkeypatch, buffers)
    copies.out = np.arange(20, dtype=np.uint8)
    buffers.download(SimpleNamespace(shape=(20,), dtype=copies.out.dtype, data=Pointer(copies, 0)))
    host = np.arange(50, 70, dtype=np.uint8)
    buffers.upload(host)
    copies.finish(9)
    assert copies.out.tolist() == host.tolist()


def test_page_locked_memory_is_copied_directly_piece_by_piece_and_may_be_reused_at_once(buffers, monkeypatch):
    copies, staged = Copies(monkeypatch, buffers), []
    monkeypatch.setattr(buffers, "_staging", lambda: staged.append(1))
    monkeypatch.setattr(buffers.host_memory, "locked_parts", lambda array: [(0, 12), (12, 8)])
    host = np.arange(20, dtype=np.uint8)
    buffers.upload(host)
    assert copies.out.tolist() == host.tolist() and (copies.most, copies.done, copies.pending) == (2, 2, [])
    on_device = SimpleNamespace(shape=(5,), dtype=np.dtype(np.uint32), data=Pointer(copies, 0))
    found = buffers.download(on_device)
    assert found.tobytes() == host.tobytes() and copies.done == 4 and not staged


def test_only_the_text_of_a_part_is_uploaded(buffers, monkeypatch):
    sizes = []

    def upload(*parts):
        sizes.extend(part.size for part in parts if part.dtype == np.uint8)
        return np.concatenate(parts)

    monkeypatch.setattr(buffers, "upload", upload)
    buffers.cudf = SimpleNamespace(Series=Series, Index=object)
    part = pa.array([*TEXTS, None, "x" * 99], pa.large_string())[1:6]
    found = buffers.uploaded(part, "the index", "text")
    data, offsets, _ = buffers.buffers_of(found)
    assert texts_of(data, offsets) == [*TEXTS[1:], ""] and sizes == [12]
    assert found.metadata == {"name": "text", "index": "the index"} and found.column.nulls == 1


def test_chunks_are_uploaded_one_after_the_other(buffers, monkeypatch):
    monkeypatch.setattr(buffers, "upload", lambda *parts: np.concatenate(parts))
    buffers.cudf = SimpleNamespace(Series=Series, Index=object)
    chunks = [pa.array(texts, pa.large_string()) for texts in (TEXTS, [], ["x", None], TEXTS)]
    found = buffers.uploaded(pa.chunked_array([*chunks[:3], chunks[3][2:]]), "the index", "text")
    assert texts_of(*buffers.buffers_of(found)[:2]) == [*TEXTS, "x", "", *TEXTS[2:]] and found.column.nulls == 1
