# SPDX-License-Identifier: Apache-2.0
"""From cuDF's string columns to the arrays the kernels loop over, and back; no text is copied on either way.

A string column is a buffer of bytes and a child column of offsets, INT32 or, from 2^31 - 1 bytes on, INT64. The arrays
are views of cuDF's own buffers, which other columns may share: they are read, never written.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import cudf
import cupy as cp
import pyarrow as pa
import pylibcudf as plc
import rmm

from curation.errors import EngineError

DEVICE = threading.RLock()  # held by the thread that launches kernels
LARGE_STRINGS = (1 << 31) - 1  # libcudf's own threshold

log = logging.getLogger(__name__)


@cache
def prepare_device() -> None:
    """Before the first allocation: memory from the driver's pool, since cudaMalloc waits for the device each time.

    A resource that somebody else has set, dask-cuda or a notebook, stays.
    """
    pools = cp.cuda.runtime.deviceGetAttribute(cp.cuda.runtime.cudaDevAttrMemoryPoolsSupported, cp.cuda.Device().id)
    if pools and type(rmm.mr.get_current_device_resource()) is rmm.mr.CudaMemoryResource:
        rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())


@cache
def say_that_memory_is_short() -> None:
    log.warning("device memory is short: documents are processed in smaller batches, which takes longer")


def out_of_memory(needed: int = 0) -> EngineError:
    """What to raise where the device has no room: how much was needed (bytes; 0 where nobody knows) and is free."""
    free, total = cp.cuda.runtime.memGetInfo()
    wanted = f"a batch needs {needed >> 20:,} MiB more, " if needed else ""
    return EngineError(
        f"the GPU's memory is full: {wanted}{free >> 20:,} of {total >> 20:,} MiB are free. If another process has the "
        "rest (nvidia-smi shows it), stop that; otherwise use fewer --workers, a larger GPU, or --engine cpu"
    )


@contextmanager
def memory_errors() -> Iterator[None]:
    """Says what to do where a column does not fit."""
    try:
        yield
    except MemoryError as error:  # CuPy's and RMM's are both of this kind
        raise out_of_memory() from error


def string_array(text: cudf.Series) -> pa.LargeStringArray:
    """The column on the host."""
    array = text.to_arrow()
    return array if pa.types.is_large_string(array.type) else array.cast(pa.large_string())


def view(span, dtype, offset: int, count: int) -> cp.ndarray:
    """`count` items of a buffer from item `offset`; zeros where there is no buffer."""
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
    series = cudf.Series.from_arrow(text) if isinstance(text, pa.Array) else text
    column, _ = series.to_pylibcudf()
    data = column.data()
    valid = series.notna().values if series.null_count else None
    return view(data, cp.uint8, 0, 0 if data is None else data.size), _offsets_of(column), valid


def series_of(
    data: cp.ndarray, offsets: cp.ndarray, index: cudf.Index, valid: cp.ndarray | None = None, name=None
) -> cudf.Series:
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
