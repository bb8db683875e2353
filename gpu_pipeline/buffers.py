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

from curation.frames.engine_functions import check_text

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


def upload(host: np.ndarray) -> cp.ndarray:
    """Copy bytes (uint8) to the device, on the stream of this thread, through page-locked memory. From pageable memory
    the driver would copy the bytes twice, and block the thread."""
    staging, out = _staging(), cp.empty(host.size, np.uint8)
    for number, start in enumerate(range(0, host.size, STAGING_BYTES)):
        half, copied = staging.halves[number % 2], staging.copied[number % 2]
        copied.synchronize()
        part = host[start : start + STAGING_BYTES]
        half[: part.size] = part
        (out.data + start).copy_from_host_async(half.ctypes.data, part.size, cp.cuda.get_current_stream())
        copied.record()
    return out


def download(array: cp.ndarray) -> np.ndarray:
    """Copy a contiguous array to the host, on the stream of this thread; the host empties one half of the page-locked
    memory while the device fills the other."""
    staging, out, source = _staging(), np.empty(array.shape, array.dtype), array.data
    flat = out.reshape(-1).view(np.uint8)
    filled: list[tuple[np.ndarray, np.ndarray, cp.cuda.Event]] = []

    def empty_oldest() -> None:
        part, half, copied = filled.pop(0)
        copied.synchronize()
        part[:] = half[: part.size]

    for number, start in enumerate(range(0, flat.size, STAGING_BYTES)):
        half, copied, part = (
            staging.halves[number % 2], staging.copied[number % 2], flat[start : start + STAGING_BYTES]
        )  # fmt: skip
        (source + start).copy_to_host_async(half.ctypes.data, part.size, cp.cuda.get_current_stream())
        copied.record()
        filled.append((part, half, copied))
        if number:
            empty_oldest()
    if filled:
        empty_oldest()
    return out


def is_text(column: cudf.Series) -> bool:
    """Return whether a column has strings."""
    return column.to_pylibcudf()[0].type().id() == plc.TypeId.STRING


def string_array(text: cudf.Series) -> pa.LargeStringArray:
    """Return a text column on the host, as large_string. Only the text of the column's rows is copied, not its whole
    buffer."""
    data, offsets, valid = buffers_of(text)
    ends = cp.asnumpy(offsets)
    nulls = None if valid is None else pa.py_buffer(np.packbits(cp.asnumpy(valid), bitorder="little"))
    host = pa.py_buffer(download(data[ends[0] : ends[-1]]))
    return pa.LargeStringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends - ends[0]), host, nulls)


def uploaded(array: pa.LargeStringArray, index: cudf.Index, name: str) -> cudf.Series:
    """Copy an array of strings from the host to a column on the device: only the text of its items, not its whole
    buffer."""
    _, offsets, data = array.buffers()
    if not len(array) or data is None:
        return cudf.Series.from_arrow(array)
    host = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    text = upload(np.frombuffer(data, np.uint8)[host[0] : host[-1]])
    valid = cp.asarray(array.is_valid().to_numpy(zero_copy_only=False)) if array.null_count else None
    return series_of(text, cp.asarray(host - host[0]), index, valid, name)


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
