# SPDX-License-Identifier: Apache-2.0
"""Cut spans of bytes out of texts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from curation.errors import StageError
from curation.stages.outcome import Cuts

CONTINUES = 0b1000_0000  # UTF-8: bits of a byte inside a code point, under FIRST_BITS
FIRST_BITS = 0b1100_0000


def cut_texts(texts: pa.LargeStringArray, cuts: Cuts, first: int) -> pa.LargeStringArray:
    """Return the texts without their spans in `cuts`. The first text is row `first` of the corpus. StageError for spans
    that are not sorted, exceed their text, or split a code point."""
    low, high = np.searchsorted(cuts.row, [first, first + len(texts)])
    if low == high:
        return texts
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    row = cuts.row[low:high] - first
    start, stop = offsets[row] + cuts.start[low:high], offsets[row] + cuts.stop[low:high]
    _check(data, offsets, row, start, stop)
    change = np.zeros(len(data) + 1, np.int8)
    change[start] += 1  # at most one span starts at each byte
    change[stop] -= 1
    kept = np.cumsum(change[:-1], dtype=np.int8) == 0
    removed = np.bincount(row, stop - start, len(texts)).astype(np.int64)
    after = offsets - np.concatenate([[0], np.cumsum(removed)])
    return pa.LargeStringArray.from_buffers(len(texts), pa.py_buffer(after), pa.py_buffer(data[kept]))


def _check(data: np.ndarray, offsets: np.ndarray, row: np.ndarray, start: np.ndarray, stop: np.ndarray) -> None:
    ordered = bool((start[1:] >= stop[:-1]).all()) and bool((np.diff(row) >= 0).all())
    if not ordered or (start >= stop).any() or (start < offsets[row]).any() or (stop > offsets[row + 1]).any():
        raise StageError("spans to cut must be sorted by row and start, within their text, and not overlap")
    ends = np.concatenate([start, stop[stop < len(data)]])
    if (data[ends] & FIRST_BITS == CONTINUES).any():
        raise StageError("spans to cut must begin and end between code points of the UTF-8 text")


__all__ = ["cut_texts"]
