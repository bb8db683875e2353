# SPDX-License-Identifier: Apache-2.0
"""Equal keys of a corpus, found by tasks that share only files.

A *group of slices* is some consecutive partitions. A task per group of slices writes its keys, divided by *ranges* of
hashed keys. The keys of one band (a group of key columns) and one range are a *cell*, a numbered part of each file. A
*reducer* is a task that reads some cells from all groups of slices: it sees all rows with its keys, in ascending order.
Results depend neither on the number of groups of slices and ranges nor on the order of the tasks. The files have 8
bytes per key and 4 per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from curation.base.arrays import batches_of, write_array
from curation.base.contract import position_type
from curation.base.errors import IntegrityError
from curation.base.system.files import commit
from curation.base.system.sealed import read_sealed, write_sealed
from curation.kernels.hashing import GOLDEN
from curation.stages.base import Phase

if TYPE_CHECKING:
    from curation.base.contract import Engine
    from curation.stages.outcome import Corpus

DIVISION, RUNS = "division", "runs"  # phases
MIN_GROUP_ROWS, MAX_GROUP_ROWS = 1 << 15, 1 << 21
REDUCER_KEYS = 1 << 24  # keys that one reducer reads, in several cells
RANGE_KEYS = 1 << 19  # keys of a range: 9 MB with their rows and table; more do not fit the cache
TASKS_PER_WORKER = 2
MAX_RANGES = 1 << 15


class Division(NamedTuple):
    """The division of a corpus into tasks. The division is stored, because a resumed run may have another number of
    workers.

    slice_groups  first partition of each group of slices, then the number of partitions
    ranges        number of ranges of keys
    reducers      number of reducers
    """

    slice_groups: list[int]
    ranges: int
    reducers: int

    def cells(self, reducer: int, bands: int) -> range:
        """Return the numbers of the cells that the task `reducer` reads: an equal share of all cells. The number of a
        cell is `band * ranges + range`."""
        count = bands * self.ranges
        return range(count * reducer // self.reducers, count * (reducer + 1) // self.reducers)


def divide(starts: np.ndarray, bands: int, workers: int) -> Division:
    """Return the division of the partitions that begin at `starts` (the last element is the number of rows)."""
    rows = int(starts[-1])
    size = min(max(rows // (TASKS_PER_WORKER * workers), MIN_GROUP_ROWS), MAX_GROUP_ROWS)
    firsts = np.searchsorted(starts[:-1], np.arange(0, rows, size))
    slice_groups = np.unique(np.append(firsts[firsts < len(starts) - 1], 0))
    ranges = min(max(-(-rows // RANGE_KEYS), 1), MAX_RANGES)
    wanted = max(-(-rows * bands // REDUCER_KEYS), TASKS_PER_WORKER * workers if rows > MIN_GROUP_ROWS else 1)
    return Division([*slice_groups.tolist(), len(starts) - 1], ranges, min(wanted, bands * ranges))


def stored_starts(corpus: Corpus) -> np.ndarray:
    """Return the first row of each partition, then the number of rows."""
    return corpus.storage.starts


def text_starts(corpus: Corpus, key_bytes: int) -> np.ndarray:
    """Return about how many keys precede each partition, then their total, if there is a key per `key_bytes` bytes of
    text."""
    parts = range(len(corpus.storage.starts) - 1)
    sizes = [int(corpus.between(part, part + 1).byte_lengths().sum()) for part in parts]
    return np.cumsum([0, *sizes]) // key_bytes


def division_phase(bands: int, starts_of: Callable[[Corpus], np.ndarray] = stored_starts) -> Phase:
    """Return the phase that divides a corpus with this number of bands. `starts_of` returns the number of keys of a
    band before each partition, then their total; by default each row has one key."""

    def write(engine: Engine, corpus: Corpus, task: int) -> None:
        write_sealed(_division_path(corpus), list(divide(starts_of(corpus), bands, corpus.workers)))

    return Phase(DIVISION, once, write, durable=True)


def _division_path(corpus: Corpus) -> Path:
    return corpus.scratch / DIVISION / "division.json"


def division_of(corpus: Corpus) -> Division:
    """Return the division of a corpus that the phase DIVISION has stored."""
    return Division(*read_sealed(_division_path(corpus)))


def once(corpus: Corpus) -> int:
    """Return 1: the number of tasks of a phase that is not divided."""
    return 1


def slice_group_count(corpus: Corpus) -> int:
    """Return the number of groups of slices, which is the number of tasks of a phase over slices."""
    return len(division_of(corpus).slice_groups) - 1


def reducer_count(corpus: Corpus) -> int:
    """Return the number of tasks of a phase over ranges of keys."""
    return division_of(corpus).reducers


def slice_group(corpus: Corpus, number: int) -> Corpus:
    """Return the part of a corpus that one task over slices reads."""
    first, last = division_of(corpus).slice_groups[number : number + 2]
    return corpus.between(first, last)


def slice_group_starts(corpus: Corpus) -> np.ndarray:
    """Return the first row of each group of slices, then the number of rows; int64."""
    return np.asarray(corpus.storage.starts[division_of(corpus).slice_groups], np.int64)


def row_type(corpus: Corpus) -> str:
    """Return the smallest dtype that can hold every row number of the run, so that the files of all tasks have the same
    type."""
    return position_type(int(corpus.storage.starts[-1]))


# Files of cells


def write_cells(path: Path, cells: Iterable[Iterable[np.ndarray]], count: int) -> None:
    """Write a file of `count` cells (numbered parts). First come the bytes at which each cell begins and the last ends
    (int64), then the arrays of the cells."""
    bounds = np.full(count + 1, 8 * (count + 1), np.int64)
    with commit(path) as temporary, open(temporary, "wb") as file:
        write_array(file, bounds)
        for number, arrays in enumerate(cells):
            for values in arrays:
                write_array(file, values)
            bounds[number + 1] = file.tell()
        file.seek(0)
        write_array(file, bounds)


def read_cell(path: Path, cell: int) -> bytes:
    """Return the bytes of the cell (part) number `cell` of a file. Raises IntegrityError if the file is too short."""
    with open(path, "rb", buffering=0) as file:
        low, high = np.frombuffer(_read(file, 8 * cell, 16), np.int64).tolist()
        return _read(file, low, high - low)


def cell_size(path: Path, cell: int) -> int:
    """Return the number of bytes of the cell number `cell` of a file. Raises IntegrityError if the file is too
    short."""
    low, high = cell_bounds(path, cell)
    return high - low


def cell_bounds(path: Path, cell: int) -> tuple[int, int]:
    """Return the first byte of a cell and the byte after its last. Raises IntegrityError if the file is too short."""
    low, high = np.frombuffer(read_bytes(path, 8 * cell, 16), np.int64).tolist()
    return low, high


def read_bytes(path: Path, start: int, size: int) -> bytes:
    """Return `size` bytes of a file from the byte `start` on. Raises IntegrityError if the file is too short."""
    with open(path, "rb", buffering=0) as file:
        return _read(file, start, size)


def _read(file: FileIO, start: int, size: int) -> bytes:
    file.seek(start)
    data = file.read(size)
    if len(data) < size:
        raise IntegrityError(f"{file.name} is too short: another program has written to it. Start over with --force")
    return data


# Runs


def runs_path(corpus: Corpus, number: int) -> Path:
    """Return the file with the keys of a group of slices."""
    return corpus.scratch / RUNS / f"{number:06d}.bin"


def write_run(corpus: Corpus, part: Corpus, number: int, bands: Sequence[Sequence[str]], skip_zeros: bool) -> None:
    """Write the keys of the group of slices `part` of `corpus`, by band and range, each with its rows in ascending
    order.

    bands       names of the key columns of each band, of unsigned keys
    skip_zeros  leave out rows whose first key is 0
    """
    division = division_of(corpus)
    first_row = int(slice_group_starts(corpus)[number])
    local = (part.rows - first_row).astype(np.uint32)

    def cells() -> Iterator[list[np.ndarray]]:
        for columns in bands:
            keys = np.empty((len(local), len(columns)), np.uint64)
            for index, name in enumerate(columns):
                keys[:, index] = part.column(name)
            rows = local
            if skip_zeros and not keys[:, 0].all():
                chosen = np.flatnonzero(keys[:, 0])
                keys, rows = keys[chosen], rows[chosen]
            bounds = np.array([0, len(rows)])
            if division.ranges > 1:
                numbers = range_of(keys[:, 0], division.ranges)
                order = np.argsort(numbers, kind="stable")
                keys, rows = keys[order], rows[order]
                bounds = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=division.ranges))])
            for low, high in pairwise(bounds.tolist()):
                yield [keys[low:high], rows[low:high]]

    write_cells(runs_path(corpus, number), cells(), len(bands) * division.ranges)


def range_of(keys: np.ndarray, ranges: int) -> np.ndarray:
    """Return the range (uint16) of each key by a hash of the key, because keys themselves may be unevenly spread."""
    numbers = np.empty(len(keys), np.uint16)
    for batch in batches_of(len(keys)):
        mixed = (keys[batch] ^ keys[batch] >> np.uint64(32)) * GOLDEN >> np.uint64(32)
        numbers[batch] = mixed * np.uint64(ranges) >> np.uint64(32)
    return numbers


def read_keys_of(corpus: Corpus, reducer: int, bands: int, width: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield the cells that the task `reducer` reads: the band, the keys (uint64, shape (n, width)) and their rows,
    ascending."""
    division, starts = division_of(corpus), slice_group_starts(corpus)
    paths = [runs_path(corpus, number) for number in range(len(starts) - 1)]
    for cell in division.cells(reducer, bands):
        yield cell // division.ranges, *read_keys(paths, cell, width, starts)


def read_keys(paths: Sequence[Path], cell: int, width: int, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys (uint64, shape (n, width)) of a cell from the files of all groups of slices, and their rows.

    `starts` has the first row of each group of slices, then the number of rows. A file has rows as uint32, counted from
    the first row of its group of slices."""
    counts = [size // (8 * width + 4) for size in (cell_size(path, cell) for path in paths)]
    keys = np.empty((sum(counts), width), np.uint64)
    rows = np.empty(len(keys), position_type(int(starts[-1])))
    done = 0
    for path, first_row, count in zip(paths, starts.tolist(), counts, strict=False):
        piece = read_cell(path, cell)
        keys[done : done + count] = np.frombuffer(piece, np.uint64, count * width).reshape(-1, width)
        local = np.frombuffer(piece, np.uint32, count, 8 * width * count)
        rows[done : done + count] = local.astype(rows.dtype) + rows.dtype.type(first_row)
        done += count
    return keys, rows
