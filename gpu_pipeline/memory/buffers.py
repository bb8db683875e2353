# SPDX-License-Identifier: Apache-2.0
"""Conversion between cuDF string columns and the arrays of the kernels, without a copy of the text.

A string column is a buffer of bytes and a child column of offsets: INT32, or INT64 for columns of 2^31 - 1 bytes or
more. The arrays are views of cuDF's buffers, which other columns may share. Kernels read them and never write to them.
"""

import logging
import threading
from functools import cache

import cudf
import cupy as cp
import numpy as np
import pyarrow as pa
import pylibcudf as plc

from curation.base.arrays import as_one_array, text_buffers
from curation.frames.engine_functions import check_text
from gpu_pipeline.memory import host_memory

LARGE_STRINGS = (1 << 31) - 1  # threshold of libcudf

STAGING_BYTES = 8 << 20  # of page-locked memory, twice per thread; not measured

log = logging.getLogger(__name__)


def view(span, dtype, offset: int, count: int) -> cp.ndarray:
    """Return `count` items of `dtype` from item `offset` of a buffer, as a view; zeros if there is no buffer."""
    if span is None or span.size == 0 or count == 0:
        return cp.zeros(count, dtype)
    memory = cp.cuda.UnownedMemory(span.ptr, span.size, span)
    return cp.ndarray((count,), dtype, cp.cuda.MemoryPointer(memory, offset * cp.dtype(dtype).itemsize))


def _offsets_of(column: plc.Column) -> cp.ndarray:
    if column.num_children() == 0:  # a column without rows
        return cp.zeros(column.size() + 1, cp.int64)
    child = column.children()[0]
    dtype = cp.int32 if child.type().id() == plc.TypeId.INT32 else cp.int64
    return view(child.data(), dtype, child.offset() + column.offset(), column.size() + 1).astype(cp.int64, copy=False)


def buffers_of(text: cudf.Series | pa.LargeStringArray) -> tuple[cp.ndarray, cp.ndarray, cp.ndarray | None]:
    """Return the arrays of a text column, on the device.

    UTF-8 bytes (uint8), offsets (int64, rows + 1, the first may exceed 0), and validity (bool; None: no row is null).
    """
    series = cudf.Series.from_arrow(text) if isinstance(text, pa.Array) else text
    check_text("gpu_pipeline", series, cudf.Series)
    column, _ = series.to_pylibcudf()
    data = column.data()
    valid = series.notna().values if series.null_count else None
    return view(data, cp.uint8, 0, 0 if data is None else data.size), _offsets_of(column), valid


class _Staging(threading.local):
    """Page-locked memory of a thread, in two halves: the host works on one half while the device copies the other."""

    def __init__(self) -> None:
        memory = (cp.cuda.alloc_pinned_memory(STAGING_BYTES) for _ in range(2))
        self.halves = [np.frombuffer(each, np.uint8, STAGING_BYTES) for each in memory]
        self.copied = [cp.cuda.Event(disable_timing=True) for _ in range(2)]  # complete until first recorded


@cache
def _staging() -> _Staging:
    return _Staging()


def upload(*parts: np.ndarray) -> cp.ndarray:
    """Copy arrays of one type to the device, one after the other, on the stream of this thread."""
    out, start = cp.empty(sum(part.size for part in parts), parts[0].dtype), 0
    for part in parts:
        _copy_up(part.view(np.uint8), out.data + start)
        start += part.nbytes
    return out


def _copy_up(host: np.ndarray, target: "cp.cuda.MemoryPointer") -> None:
    """Copy bytes (uint8) to the device: directly from page-locked memory, else through it. From pageable memory the
    driver would copy the bytes twice, and block the thread."""
    stream = cp.cuda.get_current_stream()
    if (parts := host_memory.locked_parts(host)) is not None:
        for start, size in parts:
            (target + start).copy_from_host_async(host.ctypes.data + start, size, stream)
        stream.synchronize()  # the caller may return the memory to the pool
        return
    staging = _staging()
    for number, start in enumerate(range(0, host.size, STAGING_BYTES)):
        half, copied = staging.halves[number % 2], staging.copied[number % 2]
        copied.synchronize()
        part = host[start : start + STAGING_BYTES]
        half[: part.size] = part
        (target + start).copy_from_host_async(half.ctypes.data, part.size, stream)
        copied.record()


def download(array: cp.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Copy a contiguous array to the host, on the stream of this thread. `out` is a C-contiguous array of the same
    shape and type; by default it is made in the pool of host memory."""
    out = host_memory.empty(array.shape, array.dtype) if out is None else out
    assert (out.shape, out.dtype) == (array.shape, array.dtype)  # its bytes are copied
    _copy_down(array.data, out.reshape(-1).view(np.uint8))
    return out


def download_rows(array: cp.ndarray, out: np.ndarray) -> None:
    """Copy the rows of a contiguous array to the rows of `out`, which may be apart from each other."""
    if out.flags.c_contiguous:
        download(array, out)
    else:
        for row, own in zip(array, out, strict=True):
            download(row, own)


def _copy_down(source: "cp.cuda.MemoryPointer", host: np.ndarray) -> None:
    """Copy bytes to the host: directly to page-locked memory, else through it; the host empties one half of the staging
    memory while the device fills the other."""
    stream = cp.cuda.get_current_stream()
    if (parts := host_memory.locked_parts(host)) is not None:
        for start, size in parts:
            (source + start).copy_to_host_async(host.ctypes.data + start, size, stream)
        stream.synchronize()
        return
    staging, filled = _staging(), list[tuple[np.ndarray, np.ndarray, cp.cuda.Event]]()

    def empty_oldest() -> None:
        part, half, copied = filled.pop(0)
        copied.synchronize()
        part[:] = half[: part.size]

    for number, start in enumerate(range(0, host.size, STAGING_BYTES)):
        half, copied, part = (
            staging.halves[number % 2], staging.copied[number % 2], host[start : start + STAGING_BYTES]
        )  # fmt: skip
        (source + start).copy_to_host_async(half.ctypes.data, part.size, stream)
        copied.record()
        filled.append((part, half, copied))
        if number:
            empty_oldest()
    if filled:
        empty_oldest()


def is_text(column: cudf.Series) -> bool:
    """Return whether a column has strings."""
    return column.to_pylibcudf()[0].type().id() == plc.TypeId.STRING


def string_array(text: cudf.Series) -> pa.LargeStringArray:
    """Return a text column on the host, as large_string. Only the text of the column's rows is copied, not its whole
    buffer."""
    data, offsets, valid = buffers_of(text)
    nulls = None if valid is None else pa.py_buffer(np.packbits(download(valid), bitorder="little"))
    host = download(data[int(offsets[0]) : int(offsets[-1])])
    ends = download(offsets - offsets[0])
    return pa.LargeStringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends), pa.py_buffer(host), nulls)


def uploaded(column: pa.Array | pa.ChunkedArray, index: cudf.Index, name: str) -> cudf.Series:
    """Copy large strings from the host to a column on the device: only the text of their rows, not whole buffers, and
    each chunk to its place."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    chunks = [chunk for chunk in chunks if len(chunk)]
    if not chunks or any(chunk.buffers()[2] is None for chunk in chunks):
        return cudf.Series.from_arrow(as_one_array(column))
    texts, ends, total = list[np.ndarray](), list[cp.ndarray](), 0
    for chunk in chunks:
        data, offsets = text_buffers(chunk)
        texts.append(data[offsets[0] : offsets[-1]])
        ends.append(upload(offsets[1:] if ends else offsets) + (total - int(offsets[0])))
        total += texts[-1].size
    valid = cp.asarray(column.is_valid().to_numpy(zero_copy_only=False)) if column.null_count else None
    all_ends = ends[0] if len(ends) == 1 else cp.concatenate(ends)
    return series_of(upload(*texts), all_ends, index, valid, name)


def eight_byte_blocks(data: cp.ndarray) -> cp.ndarray:
    """Return the bytes as uint64, without a last partial block. The result is a view, since cuDF aligns its buffers; an
    unaligned buffer of other code is copied."""
    aligned = data if data.data.ptr % 8 == 0 else data.copy()
    return aligned[: data.size // 8 * 8].view(np.uint64)


def series_of(
    data: cp.ndarray, offsets: cp.ndarray, index: cudf.Index, valid: cp.ndarray | None = None, name=None
) -> cudf.Series:
    """Return a string column over UTF-8 bytes (uint8) and offsets (rows + 1); rows that are not `valid` are null."""
    large = data.size >= LARGE_STRINGS
    offsets = offsets.astype(cp.int64 if large else cp.int32, copy=False)
    kind = plc.DataType(plc.TypeId.INT64 if large else plc.TypeId.INT32)
    child = plc.Column(kind, offsets.size, plc.gpumemoryview(offsets), None, 0, 0, [])
    mask, nulls = None, 0
    if valid is not None:
        mask, nulls = plc.transform.bools_to_mask(plc.Column.from_cuda_array_interface(valid))
    string = plc.DataType(plc.TypeId.STRING)
    column = plc.Column(string, offsets.size - 1, plc.gpumemoryview(data), mask, nulls, 0, [child])
    return cudf.Series.from_pylibcudf(column, {"name": name, "index": index})
