# SPDX-License-Identifier: Apache-2.0
"""Memory of the host for blocks of files and for results: a pool per process, which the device reads and writes.

The system clears each page of new memory at its first use. On a machine without huge pages, this takes longer than the
copy from the device. So a pool keeps its memory until its session ends. The memory is page-locked where the system
allows it: the device then copies to and from it directly.

An array of the pool returns its memory when no array, Arrow buffer or view of it is left. So nothing must be returned
after an error. If the pool has no room, arrays are new memory: no thread waits for the pool. A view of a few rows keeps
the memory of the whole array: copy the rows if they outlive the batch.
"""

import logging
import math
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from weakref import finalize

import cupy as cp
import numpy as np

from curation.base.system.memory import pooled_bytes

UNIT = 1 << 20  # bytes; smaller arrays are new memory, which the allocator of the process reuses
PIECE = 64 << 20  # bytes that are page-locked at once, when an array first needs them

log = logging.getLogger(__name__)


class Pool:
    """A range of addresses of `size` bytes, a multiple of UNIT, from which arrays take units of UNIT bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.locked = 0  # bytes from the start that are page-locked
        self._memory = (
            np.frombuffer(mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS), np.uint8) if size else np.empty(0, np.uint8)
        )
        self.address = self._memory.ctypes.data
        self._used = bytearray(size // UNIT)  # 1 for a unit of an array
        self._returned: deque[tuple[int, int]] = deque()  # first unit and number of units
        self._changing = threading.Lock()
        self._is_refused = False
        self._starts: list[int] = []  # addresses of the page-locked pieces
        finalize(self, _unlock, self._starts).atexit = False

    @property
    def free(self) -> int:
        """The bytes that no array has."""
        with self._changing:
            self._take_back()
            return self._used.count(0) * UNIT

    def take(self, size: int) -> np.ndarray | None:
        """Return uninitialised memory (uint8, `size` bytes), or None if no free part of the pool is large enough."""
        units = -(-size // UNIT)
        with self._changing:
            self._take_back()
            first = self._used.find(bytes(units))
            if first < 0:
                return None
            self._lock(UNIT * (first + units))
            self._used[first : first + units] = b"\1" * units
            owner = _Owner(self, first, units, self.address + UNIT * first, size)
        return np.asarray(owner)

    def give_back(self, first: int, units: int) -> None:
        """Return units. Python's garbage collector may call this inside `take`, so no lock is taken."""
        self._returned.append((first, units))

    def locked_parts(self, array: np.ndarray) -> list[tuple[int, int]] | None:
        """See the function `locked_parts`."""
        first = array.ctypes.data - self.address
        if first < 0 or first + array.nbytes > self.locked:
            return None
        cuts = [first, *range((first // PIECE + 1) * PIECE, first + array.nbytes, PIECE), first + array.nbytes]
        return [(start - first, stop - start) for start, stop in pairwise(cuts)]

    def _take_back(self) -> None:
        while self._returned:
            first, units = self._returned.popleft()
            self._used[first : first + units] = bytes(units)

    def _lock(self, end: int) -> None:
        """Page-lock the pieces before byte `end`. Where the system refuses, the pool is ordinary memory."""
        while self.locked < end and not self._is_refused:
            start, size = self.address + self.locked, min(PIECE, self.size - self.locked)
            try:
                cp.cuda.runtime.hostRegister(start, size, 0)
            except RuntimeError as error:
                self._is_refused = True
                log.warning(
                    "the system locks %d of %d MiB of memory for the GPU (%s): copies to and from it take longer",
                    self.locked >> 20, self.size >> 20, error,
                )  # fmt: skip
                return
            self._starts.append(start)
            self.locked += size


class _Owner:
    """Units of a pool, as the base of a NumPy array: they are returned when the last view of the array is deleted."""

    def __init__(self, pool: Pool, first: int, units: int, address: int, size: int) -> None:
        self._pool, self._first, self._units = pool, first, units
        self.__array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (address, False)}

    def __del__(self) -> None:
        self._pool.give_back(self._first, self._units)


def _unlock(starts: Sequence[int]) -> None:
    for start in starts:
        cp.cuda.runtime.hostUnregister(start)


_preparing = threading.Lock()
_tasks = 0  # of the session of this process
_pool = Pool(0)


@contextmanager
def session_of(tasks: int) -> Iterator[None]:
    """Let tasks of this process use the pool inside the block, `tasks` of them at once. Outside of a session, results
    are new memory, which the caller may keep."""
    global _tasks, _pool
    _tasks = tasks
    try:
        yield
    finally:
        _tasks, _pool = 0, Pool(0)  # arrays keep the pool that they are in


def prepare(batch_bytes: int) -> None:
    """Give the pool of this process the size for batches of so many bytes; a larger pool stays as it is."""
    global _pool
    size = pooled_bytes(_tasks or tasks_of_worker(), batch_bytes) // UNIT * UNIT
    with _preparing:
        if _pool.size >= size:
            return
        try:
            _pool = Pool(size)
        except OSError as error:
            log.warning("no pool of %d MiB of memory for copies to and from the GPU: %s", size >> 20, error)


def tasks_of_worker() -> int:
    """Return how many tasks the Dask worker of this process runs at once; 0 if there is none."""
    if "distributed" not in sys.modules:
        return 0
    from distributed import get_worker

    try:
        return int(get_worker().state.nthreads)
    except ValueError:
        return 0


def empty(shape: int | tuple[int, ...], dtype: np.typing.DTypeLike) -> np.ndarray:
    """Return an uninitialised array in C order, in the pool if it has UNIT bytes or more and the pool has room."""
    kind = np.dtype(dtype)
    size = math.prod(np.atleast_1d(shape).tolist()) * kind.itemsize
    memory = _pool.take(size) if size >= UNIT else None
    return np.empty(shape, kind) if memory is None else memory.view(kind).reshape(shape)


def empty_bytes(size: int) -> np.ndarray:
    """Return an uninitialised array of bytes (uint8), as `empty` does."""
    return empty(size, np.uint8)


def locked_parts(array: np.ndarray) -> list[tuple[int, int]] | None:
    """Return the start and the size, in bytes, of the parts of a contiguous array that lie in one page-locked piece
    each, since CUDA copies no bytes across the end of a piece. Return None if the array is not page-locked."""
    return _pool.locked_parts(array)


def in_one_piece(array: np.ndarray) -> np.ndarray:
    """Return an array that other code than `upload` may copy to the device: CUDA copies no bytes across the end of a
    page-locked piece, so an array of several pieces is copied to new memory."""
    return array.copy() if len(locked_parts(array) or ()) > 1 else array


def joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return one or more arrays of one type, one after the other; a single array is not copied."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays, out=empty(sum(map(len, arrays)), arrays[0].dtype))
