# SPDX-License-Identifier: Apache-2.0
"""External sort of rows of integers. A buffer of rows bounds the memory; all other rows are in files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from curation.base.arrays import write_array
from curation.base.system.interrupts import check
from curation.kernels import ngram_counts as kernel

BUFFER_ROWS = 1 << 20
BATCH_ROWS = 1 << 17


class Sorter:
    """Sorts rows by their keys. Rows with equal keys become one row, with the sums of their values.

    folder   folder of the files; it must have no files of this name
    name     name of the files
    width    number of int32 keys of a row, 0 or more each
    values   number of int64 values of a row
    """

    def __init__(self, folder: Path, name: str, width: int, values: int) -> None:
        self.paths = folder / f"{name}.keys", folder / f"{name}.values"
        self.keys = np.empty((BUFFER_ROWS, width), np.int32)
        self.values = np.empty((BUFFER_ROWS, values), np.int64)
        self.size = 0
        self.ends: list[int] = []  # ends of the sorted blocks in the files, in rows

    def add(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Take rows into the buffer, which is sorted and written whenever it is full."""
        first = 0
        while first < len(keys):
            last = min(first + BUFFER_ROWS - self.size, len(keys))
            rows = slice(self.size, self.size + last - first)
            self.keys[rows], self.values[rows] = keys[first:last], values[first:last]
            self.size += last - first
            first = last
            if self.size == BUFFER_ROWS:
                self._write_block()

    def release(self) -> None:
        """Write the buffer of rows to the files, and free its memory."""
        self._write_block()
        self.keys, self.values = self.keys[:0].copy(), self.values[:0].copy()

    def grow(self) -> None:
        """Allocate the buffer of rows again, after `release` has freed it."""
        self.keys = np.empty((BUFFER_ROWS, self.keys.shape[1]), np.int32)
        self.values = np.empty((BUFFER_ROWS, self.values.shape[1]), np.int64)

    def merged(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the rows in order, in batches, and remove the files at the end. After this call, no rows can be
        added."""
        self._write_block()
        if not self.ends:
            return
        ends = np.array(self.ends, np.int64)
        width, num_values = self.keys.shape[1], self.values.shape[1]
        keys = np.memmap(self.paths[0], np.int32, "r+", shape=(self.ends[-1], width))
        values = np.memmap(self.paths[1], np.int64, "r+", shape=(self.ends[-1], num_values))
        self.keys, self.values = np.empty((0, width), np.int32), np.empty((0, num_values), np.int64)
        heads = np.concatenate([[0], ends[:-1]])
        heap = np.arange(len(ends), dtype=np.int64)
        size = len(ends)
        kernel.begin_merge(np.asarray(keys), heads, heap, size)
        while size:
            check()
            out_keys = np.empty((BATCH_ROWS, width), np.int32)
            out_values = np.empty((BATCH_ROWS, num_values), np.int64)
            count, size = kernel.merge_blocks(
                np.asarray(keys), np.asarray(values), heads, ends, heap, size, out_keys, out_values
            )
            yield out_keys[:count], out_values[:count]
        del keys, values
        for path in self.paths:
            path.unlink()

    def _write_block(self) -> None:
        check()
        if not self.size:
            return
        keys, values = self.keys[: self.size], self.values[: self.size]
        order = np.lexsort(_packed(keys)[::-1])
        keys, values = keys[order], values[order]
        is_first = np.ones(len(keys), bool)
        is_first[1:] = (keys[1:] != keys[:-1]).any(axis=1)
        values = np.add.reduceat(values, np.flatnonzero(is_first), axis=0)
        with self.paths[0].open("ab") as key_file, self.paths[1].open("ab") as value_file:
            write_array(key_file, keys[is_first])
            write_array(value_file, values)
        self.ends.append((self.ends[-1] if self.ends else 0) + len(values))
        self.size = 0


def _packed(keys: np.ndarray) -> list[np.ndarray]:
    """Return keys for `np.lexsort`, each packed from two columns; the first columns come first."""
    wide = keys.astype(np.uint64)
    return [
        wide[:, k] << np.uint64(32) | wide[:, k + 1] if k + 1 < wide.shape[1] else wide[:, k]
        for k in range(0, wide.shape[1], 2)
    ]
