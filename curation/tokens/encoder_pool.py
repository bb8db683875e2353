# SPDX-License-Identifier: Apache-2.0
"""A pool of gigatoken objects, which encodes batches on any number of threads in bounded memory."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

# gigatoken 0.10.0 never evicts from its cache: 240 MB of random words took 2.9 GB (its issue 36; bounded after 0.10.0).
# A new object takes 0.1 s to load and 0.1 s to warm up.
MAX_CACHE_GROWTH_BYTES = 256 << 20

# A batch needs the package awkward, whose import takes 0.25 CPU seconds. Encoding text by text takes an eighth longer
# (0.04 s for this many bytes) and holds the GIL during each text.
SINGLY_BYTES = 64 << 20


class EncoderPool:
    """gigatoken objects, one per busy thread: one shared object does not scale (549 MB/s instead of 964 MB/s on two
    cores).

    The pool is a stack, not `threading.local`: it lends the most recently used object, also to threads of a later
    executor. An object that has grown is dropped. gigatoken does not report its memory, so the memory of the process,
    without memory maps, is measured.
    """

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._idle: deque[tuple[Any, int]] = deque()
        self._singly_left = SINGLY_BYTES

    def encode(self, texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        """Return (ids, counts): ids of all texts back to back, and the number of ids of each text."""
        try:
            engine, baseline = self._idle.pop()
        except IndexError:
            engine, baseline = self._build(), _private_bytes()
        encoded = (_encode_batch if self._takes_batches(texts) else _encode_each)(engine, texts)
        if _private_bytes() - baseline < MAX_CACHE_GROWTH_BYTES:
            self._idle.append((engine, baseline))
        return encoded

    def _takes_batches(self, texts: pa.LargeStringArray) -> bool:
        offsets = text_offsets(texts)
        self._singly_left -= int(offsets[-1] - offsets[0])  # with several threads, the sum may miss a batch
        return self._singly_left < 0 or "awkward" in sys.modules


def _encode_each(engine: Any, texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    data = memoryview(texts.buffers()[2] or b"")
    ids = [engine.encode(data[start:stop].tobytes()) for start, stop in pairwise(text_offsets(texts).tolist())]
    return np.concatenate([np.empty(0, np.uint32), *ids]), np.fromiter(map(len, ids), np.int64, len(ids))


def _encode_batch(engine: Any, texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    layout = engine.encode_batch(_as_awkward(texts), parallel=False).layout
    return np.asarray(layout.content.data), np.diff(np.asarray(layout.offsets.data))


def _private_bytes() -> int:
    try:
        _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_bytes().split())
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        import psutil  # takes 0.01 s to import

        return int(psutil.Process().memory_info().rss)


def text_offsets(texts: pa.LargeStringArray) -> np.ndarray:
    """Return the offsets of the texts in their data buffer: int64, shape (texts + 1,), without a copy."""
    buffer = texts.buffers()[1]
    if buffer is None or not len(texts):  # an Arrow array without strings may have no offsets
        return np.zeros(1, np.int64)
    return np.frombuffer(buffer, np.int64, len(texts) + 1, texts.offset * 8)


def _as_awkward(texts: pa.LargeStringArray) -> Any:
    """Return the texts as an Awkward array over the same buffers, since gigatoken refuses Arrow arrays."""
    from awkward import Array
    from awkward.contents import ListOffsetArray, NumpyArray
    from awkward.index import Index64

    buffer = texts.buffers()[2]
    data = np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
    characters = NumpyArray(data, parameters={"__array__": "char"})
    return Array(ListOffsetArray(Index64(text_offsets(texts)), characters, parameters={"__array__": "string"}))
