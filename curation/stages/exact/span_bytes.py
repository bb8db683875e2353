# SPDX-License-Identifier: Apache-2.0
"""`substring_dedup` with `verify: bytes`: if hashes are equal, bytes are compared.

The phase that writes anchors also writes the text of each block to a file. A reducer reads the bytes of all records
that share a hash with an earlier record. The reducer gives records with different bytes another hash, until equal
hashes mean equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np

from curation.base.arrays import batches_by_size, seeded_hashes
from curation.base.contract import Engine

BYTES_AT_ONCE = 1 << 21  # of records, to compare: 70 MB of memory


class RecordFiles(Protocol):
    """Files of records (`span_blocks.LevelFiles`), with the length of windows and, per file, the file with its block's
    text."""

    @property
    def length(self) -> int:
        """The bytes of a window."""

    @property
    def texts(self) -> list[Path]:
        """For each file of records, the file with the text of its block."""

    def places(self, file: int, number: int) -> np.ndarray:
        """Return the places of the records of a range in a file, int64 of shape (n, 3)."""
        ...


def verified(
    engine: Engine, files: RecordFiles, number: int, ends: np.ndarray, rows: np.ndarray, records: np.ndarray
) -> np.ndarray:  # fmt: skip
    """Return the records of a range. If spans with different bytes have equal records, their last hashes are made
    different.

    ends  position of the first record of each file among the records of the range, then the number of records
    rows  positions of `records` among the records of the range, ascending
    """
    file = np.searchsorted(ends, rows, side="right") - 1
    low, size = np.empty((2, len(rows)), np.int64)
    for own in _groups(file) if len(file) else ():
        place = files.places(int(file[own.start]), number)[rows[own] - ends[file[own.start]]]
        low[own], size[own] = place[:, 0], place[:, 1] - place[:, 0] + files.length
    records, attempt = records.copy(), 0
    while True:
        leaders = engine.group_leaders(records).astype(np.int64)
        suspects = np.flatnonzero(leaders != np.arange(len(leaders)))
        differ = suspects[~_are_equal(files, file, low, size, suspects, leaders[suspects])]
        if not len(differ):
            return records
        attempt += 1
        records[differ, -1] = seeded_hashes(records[differ, -1], attempt)


def _are_equal(
    files: RecordFiles, file: np.ndarray, low: np.ndarray, size: np.ndarray, left: np.ndarray, right: np.ndarray
) -> np.ndarray:  # fmt: skip
    """Return whether the bytes of each record `left` are those of the record `right`."""
    equal = size[left] == size[right]
    same = np.flatnonzero(equal)
    for batch in batches_by_size(np.cumsum(size[left[same]]), BYTES_AT_ONCE):
        own = same[batch]
        starts = np.cumsum(np.append(0, size[left[own]]))
        first, second = (_bytes_of(files, file[side[own]], low[side[own]], starts) for side in (left, right))
        equal[own] = np.logical_and.reduceat(first == second, starts[:-1])
    return equal


def _bytes_of(files: RecordFiles, file: np.ndarray, low: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return pieces of the texts of files, one after the other. Piece k begins at byte low[k] of its file, and at
    starts[k] of the result."""
    from curation.kernels.files import read_pieces  # loads Numba

    out, order = np.empty(starts[-1], np.uint8), np.lexsort((low, file))
    size = np.diff(starts)
    for own in _groups(file[order]):
        chosen = order[own]
        read = np.empty(size[chosen].sum(), np.uint8)
        read_pieces(files.texts[file[chosen[0]]], low[chosen], size[chosen], read)
        ends = np.cumsum(size[chosen])
        out[np.arange(len(read)) + np.repeat(starts[chosen] - ends + size[chosen], size[chosen])] = read
    return out


def _groups(values: np.ndarray) -> Iterator[slice]:
    """Yield a slice for each run of equal values in an ascending array."""
    changes = np.flatnonzero(np.diff(values)) + 1
    for first, last in pairwise([0, *changes.tolist(), len(values)]):
        yield slice(first, last)
