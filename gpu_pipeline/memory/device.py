# SPDX-License-Identifier: Apache-2.0
"""The device of this process: its memory, which threads reserve; the stream of each thread; and messages for its
errors.

Each thread works on its own CUDA stream, the per-thread default stream. cuDF and CuPy use this stream because
`curation.base.engine` sets their environment variables before it imports them. Kernels get the stream as an argument
(`core.launch`). If other code imported cuDF first, cuDF works on the legacy default stream, which waits for all
other streams: results are the same, but less work overlaps.

RMM frees memory on the stream of the thread that frees it, since CUDA's handle of the per-thread stream names no
thread. Before memory is freed, the work of other threads on it must be complete. So each function waits for its stream
before it ends, also after errors. If a thread frees memory during the work of the thread that made it, it waits for the
whole device (`_Owned`).

A thread reserves memory before it works on a batch, and waits until the batches of other threads leave enough. Tables
that stay on the device, such as language models and n-gram tables, are subtracted from what threads can reserve. If
several processes work on one device, each reserves its share.
"""

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import cupy as cp
import rmm
from rmm.allocators.cupy import rmm_cupy_allocator

from curation.base.engine import device_memory
from curation.base.errors import DeviceLostError, EngineError
from gpu_pipeline.kernels import core
from gpu_pipeline.memory.buffers import buffers_of, log

A = ParamSpec("A")
Value = TypeVar("Value")

# Device memory per byte of a batch's text: the text as read, before and after a stage; its columns; and scratch of
# `text.SCRATCH_SHARE` times the text. Not measured.
BATCH_SHARE = 16
# What a small batch reserves: the search for words alone takes 59 MB for any text (`word_kernels.RUN_THREADS`)
MIN_RESERVED = 128 << 20
POOL_PERCENT = 90  # of the memory that is free at the start; contexts and kernels of the processes take the rest
KEEP_ALL = (1 << 64) - 1  # bytes that a pool does not give back to the driver while the process runs
LOST = re.compile(  # errors of CUDA's runtime and driver, in lower case without "_"
    "cudaerror(illegaladdress|launchfail|launchtimeout|eccuncorrectable|hardwarestackerror|illegalinstruction|"
    "misalignedaddress|nvlinkuncorrectable|devicesunavailable|deviceunavailable|contextisdestroyed|assert|nodevice|"
    "unknown)"
)


class DeviceMemory:
    """Memory that threads reserve, first come, first served. A thread has at most one reservation: it never waits for
    memory while it holds some, so threads cannot block each other.

    Reservations and resident tables together have at most `size` / `processes` bytes, with two exceptions. A request
    above the total runs alone. A table is loaded during a reservation, so it cannot wait: until the batches end that
    were reserved before, the sum may exceed the limit by the table.

    size       bytes of the device that all processes of the run may reserve
    processes  number of processes on this device
    resident   bytes of the tables that stay on the device
    """

    def __init__(self, size: int) -> None:
        self.size, self.processes = size, 1
        self.resident = 0
        self.used = 0
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._holders: dict[int, int] = {}  # thread -> bytes

    @property
    def total(self) -> int:
        """The bytes that threads can reserve."""
        return max(self.size // self.processes - self.resident, 0)

    def divide(self, processes: int) -> None:
        """Leave this process its share among so many processes."""
        with self._changed:
            self.processes = processes
            self._changed.notify_all()

    def keep(self, size: int) -> None:
        """Subtract the bytes of a table that stays on the device; add those of one that leaves it (a negative size)."""
        with self._changed:
            self.resident += size
            self._changed.notify_all()

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
                self._changed.wait_for(lambda: self._waiting[0] is ticket and self._has_room(size))
                self._holders[thread] = min(size, self.total)
                self.used += self._holders[thread]
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def _has_room(self, size: int) -> bool:
        return not self.used or self.used + size <= self.total


_starting = threading.Lock()


def memory() -> DeviceMemory:
    """Return the memory of this process's device; the first call prepares the device."""
    with _starting:
        return _prepared(1)


def divide_device(processes: Mapping[str, int]) -> None:
    """Let this process reserve its share of its device. `processes` has the number of processes on each device, by
    `device_id`. For a device that it lacks, log that this process reserves all memory that is free."""
    count = processes.get(device_id(), 0)
    with _starting:
        made = _prepared(count or 1)
    if count:
        made.divide(count)
    else:
        _warn_of_unknown_share(made.size)


@cache
def device_id() -> str:
    """Return the UUID of this process's device, or of its part of a device (MIG), in hexadecimal digits."""
    return str(cp.cuda.runtime.getDeviceProperties(cp.cuda.Device().id)["uuid"].hex())


@cache
def _warn_of_unknown_share(total: int) -> None:
    log.warning(
        "this worker joined after the start of the run, so it does not know which others use its GPU: it reserves up "
        "to %d MiB, %d %% of the memory that was free",
        total >> 20, POOL_PERCENT,
    )  # fmt: skip


_made: list[DeviceMemory] = []


def _prepared(processes: int) -> DeviceMemory:
    """Prepare the device at the first call, for so many processes that share it."""
    if not _made:
        free, _ = device_memory(cp.cuda.runtime)
        size = free // 100 * POOL_PERCENT
        _set_resource(size // processes)
        cp.cuda.set_allocator(_allocate)
        _made.append(DeviceMemory(size))
    return _made[0]


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
    """Reserve the device memory of a batch with so much text: `BATCH_SHARE` times its bytes, at least `MIN_RESERVED`.
    The tables that stay on the device are not in it: `shared` subtracts them from what can be reserved."""
    with memory().reserve(max(BATCH_SHARE * text_bytes, MIN_RESERVED)):
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
    core.stream_of_thread().synchronize()
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


def array_bytes(value: Any) -> int:
    """Return the bytes of an array, or of the arrays in a tuple and in its tuples."""
    return sum(map(array_bytes, value)) if isinstance(value, tuple) else int(getattr(value, "nbytes", 0))


def shared(most: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function with a cache of up to `most` results on the device, for all threads. Each result is made
    once, and is complete before another thread gets it. As long as it is in the cache, threads can reserve less memory,
    by its bytes: those of the arrays in it and in its tuples."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        lock = threading.Lock()
        cached: dict[tuple[Any, ...], Any] = {}  # the result that was used last comes last

        @wraps(function)
        def get(*arguments: Any) -> Any:
            with lock:
                if arguments in cached:
                    made = cached.pop(arguments)
                else:
                    if len(cached) == most:
                        memory().keep(-array_bytes(cached.pop(next(iter(cached)))))
                    made = function(*arguments)
                    finish()
                    memory().keep(array_bytes(made))
                cached[arguments] = made
                return made

        return get

    return decorate
