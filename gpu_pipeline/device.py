# SPDX-License-Identifier: Apache-2.0
"""The device of this process: its memory, which threads reserve; the stream of each thread; and messages for its
errors.

Each thread works on its own CUDA stream, the per-thread default stream. cuDF and CuPy use this stream because
`curation.base.engine` sets their environment variables before it imports them. Kernels get the stream as an argument
(`kernels.launch`). If other code imported cuDF first, cuDF works on the legacy default stream, which waits for all
other streams: results are the same, but less work overlaps.

RMM frees memory on the stream of the thread that frees it, since CUDA's handle of the per-thread stream names no
thread. Before memory is freed, the work of other threads on it must be complete. So each function waits for its stream
before it ends, also after errors. If a thread frees memory during the work of the thread that made it, it waits for the
whole device (`_Owned`).

A thread reserves memory before it works on a batch, and waits until the batches of other threads leave enough.
"""

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import cupy as cp
import rmm
from rmm.allocators.cupy import rmm_cupy_allocator

from curation.base.engine import device_memory
from curation.base.errors import DeviceLostError, EngineError
from gpu_pipeline import kernels
from gpu_pipeline.buffers import buffers_of, log

A = ParamSpec("A")
Value = TypeVar("Value")

# Device memory per byte of a batch's text: the text as read, before and after a stage; its columns; and scratch of
# `text.SCRATCH_SHARE` times the text. Not measured.
BATCH_SHARE = 16
MIN_BATCH_BYTES = 4 << 20  # what a smaller batch reserves
POOL_PERCENT = 90  # of the memory that is free at the start; contexts and kernels of the process take the rest
KEEP_ALL = (1 << 64) - 1  # bytes that a pool does not give back to the driver while the process runs
LOST = re.compile(  # errors of CUDA's runtime and driver, in lower case without "_"
    "cudaerror(illegaladdress|launchfail|launchtimeout|eccuncorrectable|hardwarestackerror|illegalinstruction|"
    "misalignedaddress|nvlinkuncorrectable|devicesunavailable|deviceunavailable|contextisdestroyed|assert|nodevice|"
    "unknown)"
)


class DeviceMemory:
    """Memory that threads reserve, first come, first served. A thread has at most one reservation: it never waits for
    memory while it holds some, so threads cannot block each other."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._holders: dict[int, int] = {}  # thread -> bytes

    def is_held(self) -> bool:
        """Return whether this thread has a reservation."""
        return threading.get_ident() in self._holders

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Reserve `size` bytes for this thread; wait until they are free. A request above the total waits for all
        memory, and runs alone. Inside another reservation of the same thread, nothing more is reserved."""
        thread = threading.get_ident()
        if thread in self._holders:
            yield
            return
        size = min(size, self.total)
        self._take(thread, size)
        try:
            yield
        finally:
            with self._changed:
                self.used -= self._holders.pop(thread)
                self._changed.notify_all()

    def _take(self, thread: int, size: int) -> None:
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is ticket and self.used + size <= self.total)
                self._holders[thread] = size
                self.used += size
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()


_starting = threading.Lock()


def memory() -> DeviceMemory:
    """Return the memory of this process's device; the first call prepares the device."""
    with _starting:
        return _prepared()


@cache
def _prepared() -> DeviceMemory:
    free, _ = device_memory(cp.cuda.runtime)
    total = free // 100 * POOL_PERCENT
    _set_resource(total)
    cp.cuda.set_allocator(_allocate)
    return DeviceMemory(total)


def _set_resource(total: int) -> None:
    """Allocate from the driver's memory pool from now on, since every cudaMalloc would wait for the device.

    A resource set by other code, such as dask-cuda or a notebook, is kept.
    """
    if type(rmm.mr.get_current_device_resource()) is not rmm.mr.CudaMemoryResource:
        return
    device, runtime = cp.cuda.Device().id, cp.cuda.runtime
    if runtime.deviceGetAttribute(runtime.cudaDevAttrMemoryPoolsSupported, device):
        rmm.mr.set_current_device_resource(_pool_of_driver(device))
        return
    log.warning("the GPU's driver has no memory pools: the run takes %d MiB of the GPU at once", total >> 20)
    rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), total // 256 * 256))


def _pool_of_driver(device: int) -> "rmm.mr.DeviceMemoryResource":
    """The driver's own pool of a device: unlike a pool that RMM makes, it tells how much memory it keeps unused."""
    from cuda.bindings import driver, runtime

    error, pool = runtime.cudaDeviceGetDefaultMemPool(device)
    if error:
        return rmm.mr.CudaAsyncMemoryResource()
    threshold = runtime.cudaMemPoolAttr.cudaMemPoolAttrReleaseThreshold
    runtime.cudaMemPoolSetAttribute(pool, threshold, driver.cuuint64_t(KEEP_ALL))
    return rmm.mr.CudaAsyncViewMemoryResource(pool)


@contextmanager
def reserved(text_bytes: int) -> Iterator[None]:
    """Reserve the device memory of a batch with so much text."""
    with memory().reserve(BATCH_SHARE * max(text_bytes, MIN_BATCH_BYTES)):
        yield


class _Work:
    """The work that a thread has launched since it last waited for its stream."""

    is_complete = False


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.work = _Work()


_of_thread = _OfThread()


class _Owned:
    """Memory of a CuPy array. Python's garbage collector may free an array in any thread. If another thread made the
    array, and the work of that thread is not complete, the freeing thread first waits for the whole device."""

    __slots__ = ("memory", "work")

    def __init__(self, memory: "cp.cuda.MemoryPointer") -> None:
        self.memory, self.work = memory, _of_thread.work

    def __del__(self) -> None:
        if not self.work.is_complete and self.work is not _of_thread.work:
            cp.cuda.runtime.deviceSynchronize()


def _allocate(size: int) -> "cp.cuda.MemoryPointer":
    """Allocate memory for CuPy from RMM, with an owner that remembers the allocating thread."""
    memory = rmm_cupy_allocator(size)
    return cp.cuda.MemoryPointer(cp.cuda.UnownedMemory(memory.ptr, size, _Owned(memory), memory.device_id), 0)


def finish() -> None:
    """Wait for the work of this thread: on CuPy's current stream and on the stream of kernels, which are two streams if
    CuPy was imported too early. After this call, the results of this thread are complete, and other threads may use
    them."""
    cp.cuda.get_current_stream().synchronize()
    kernels.stream_of_thread().synchronize()
    _of_thread.work.is_complete, _of_thread.work = True, _Work()


def out_of_memory(needed: int = 0) -> EngineError:
    """Return the error for a full device. Its message shows the free memory and the bytes `needed` (0: unknown)."""
    free, total = device_memory(cp.cuda.runtime)
    need = f"a batch needs {needed >> 20:,} MiB more, " if needed else ""
    return EngineError(
        f"the GPU's memory is full: {need}{free >> 20:,} of {total >> 20:,} MiB are free. If another process uses the "
        "rest (see nvidia-smi), stop it; otherwise use fewer --workers, a larger GPU, or --engine cpu"
    )


@cache
def warn_of_short_memory() -> None:
    """Log, once per process, that batches are smaller because device memory is short."""
    log.warning("device memory is short: documents are processed in smaller batches, which takes longer")


def is_lost(error: Exception) -> bool:
    """Return whether an error of CUDA means that the process cannot use the device any more."""
    return bool(LOST.search(str(error).lower().replace("_", "")))


@contextmanager
def device_errors() -> Iterator[None]:
    """Turn errors of the device into EngineError with advice, or into DeviceLostError if the device has failed.

    After an error, wait for the work of this thread: the error keeps arrays alive, and any thread may free them."""
    try:
        try:
            yield
        except BaseException:
            finish()
            raise
    except MemoryError as error:  # the base class of CuPy's and RMM's errors
        raise out_of_memory() from error
    except RuntimeError as error:  # the base class of the errors of CuPy, Numba, RMM and cuDF
        if isinstance(error, EngineError) or not is_lost(error):
            raise
        raise DeviceLostError(
            f"the GPU failed during the run ({str(error).splitlines()[0]}). This process cannot use it any more. "
            "Completed work is kept. Rerun the same command with --engine cpu to resume: the results are the same. "
            "nvidia-smi and dmesg show faults of the GPU"
        ) from error


def column_bytes(text: Any, *_: Any, **__: Any) -> int:
    """Return the bytes of a call's first argument, a text: the memory that `on_device` reserves by default."""
    return buffers_of(text)[0].size


def on_device(text_bytes: Callable[..., int] = column_bytes) -> Callable[[Callable[A, Value]], Callable[A, Value]]:
    """Decorate a function of the engine that works on the device: reserve memory for as much text as `text_bytes`
    returns for its arguments, and give errors messages. The results are complete when the function returns. By default
    its first argument is a text column."""

    def decorate(function: Callable[A, Value]) -> Callable[A, Value]:
        @wraps(function)
        def run(*arguments: A.args, **settings: A.kwargs) -> Value:
            with device_errors():
                size = 0 if memory().is_held() else text_bytes(*arguments, **settings)
                with reserved(size):
                    result = function(*arguments, **settings)
                    finish()
                    return result

        return run

    return decorate


def shared(most: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function with a cache of up to `most` results on the device, for all threads. Each result is made
    once, and is complete before another thread gets it."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        lock = threading.Lock()

        def make(*arguments: Any) -> Any:
            made = function(*arguments)
            finish()
            return made

        cached = lru_cache(most)(make)

        @wraps(function)
        def get(*arguments: Any) -> Any:
            with lock:
                return cached(*arguments)

        return get

    return decorate
