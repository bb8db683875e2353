# SPDX-License-Identifier: Apache-2.0
"""Masks of the rows of a segment in files, and sums over its rows. Both work in batches, so memory does not grow with
documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from curation.base.arrays import load_mapped, write_array
from curation.base.system.files import commit
from curation.record.partitions import Partitions

BATCH_ROWS = 1 << 20


def row_batches(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield bounds of at most BATCH_ROWS rows, from `start` to `stop` (exclusive)."""
    for low in range(start, stop, BATCH_ROWS):
        yield low, min(low + BATCH_ROWS, stop)


def write_mask(path: Path, rows: int, removed: Sequence[np.ndarray]) -> None:
    """Write the mask (bool) of `rows` rows as `.npy`. The mask is false for the rows in `removed`, which are arrays of
    ascending rows."""
    with commit(path) as temporary, open(temporary, "wb") as file:
        header = np.lib.format.header_data_from_array_1_0(np.zeros(0, bool)) | {"shape": (rows,)}
        np.lib.format.write_array_header_1_0(file, header)
        for low, high in row_batches(0, rows):
            mask = np.ones(high - low, bool)
            for positions in removed:
                mask[positions[slice(*_bounds(positions, low, high))] - low] = False
            write_array(file, mask)


def removed_by_partition(partitions: Partitions, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of `rows` (ascending) in each partition, and the bytes of their texts; int64."""
    counts, sizes = np.zeros((2, len(partitions.starts) - 1), np.int64)
    for low, high in row_batches(0, len(rows)):
        batch = np.asarray(rows[low:high])
        partition = np.searchsorted(partitions.starts, batch, side="right") - 1
        np.add.at(counts, partition, 1)
        np.add.at(sizes, partition, partitions.corpus(0, batch).byte_lengths())
    return counts, sizes


def kept_sizes(
    partitions: Partitions, mask: Path, start: int, stop: int, copy: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows of a mask from `start` to `stop` and the bytes of their texts (int64), in batches.

    If `mask` has a number of copies per row, yield the rows that have the copy number `copy`, counted from 0.
    """
    present = load_mapped(mask)
    for low, high in row_batches(start, stop):
        rows = np.flatnonzero(present[low:high] > copy) + low
        if len(rows):
            yield rows, partitions.corpus(0, rows).byte_lengths()


def _bounds(rows: np.ndarray, low: int, high: int) -> list[int]:
    bounds: list[int] = np.searchsorted(rows, np.array([low, high], rows.dtype)).tolist()
    return bounds
