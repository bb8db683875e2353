# SPDX-License-Identifier: Apache-2.0
"""Sums over the rows of a segment, computed by tasks: rows that corpus stages removed or cut, and sizes of rows to
write.

A task reads the sizes of the rows of some consecutive partitions. Its file, which is its done-record, has

    int64   per file of removed rows: the number of rows and the bytes of their texts in each partition
    int64   if the last stage cuts: the number of rows that it changes and of bytes that it cuts, in each partition
    int64   per copy: the running sum of the bytes of the texts that have this copy
    uint32  per copy: the rows of these texts, counted from the first row of the task

That is 12 bytes per written document. The process of the run finds the ends of output parts by binary searches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from curation.base.arrays import Cutter, load_mapped, map_file
from curation.base.system.damage import reading
from curation.base.system.files import make_folder, numbered_path
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.steps import Count
from curation.record.jobs import load_job, store_job
from curation.record.masks import kept_sizes, removed_by_partition, row_batches
from curation.record.partitions import Partitions
from curation.record.stored_plan import Stored
from curation.stages.corpus.cutting import count_cuts
from curation.stages.corpus.key_ranges import write_cells

if TYPE_CHECKING:
    from curation.record.context import RunContext

TASK_ROWS, TASK_PARTITIONS = 1 << 20, 64  # largest numbers of a task, unless one partition has more rows


class SumsJob(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of the phase share, stored in one file."""

    partitions: Partitions
    removed: list[Path]  # .npy files of ascending rows
    mask: Path  # .npy (bool) of the rows that stages keep
    cuts: Path | None  # folder of the spans that the last stage cuts, if it cuts any
    written: Path | None  # .npy of the rows that are written: a mask, or the number of their copies; None: no rows
    bounds: np.ndarray  # int64: first partition of each task, then the number of partitions
    folder: Path


def divide_partitions(starts: np.ndarray) -> np.ndarray:
    """Return the first partition of each task, then the number of partitions; int64. `starts` (int64) has the first row
    of each partition, then the number of rows."""
    firsts = starts[:-1]
    keys = np.stack([firsts // TASK_ROWS, np.arange(len(firsts)) // TASK_PARTITIONS])
    changes = np.flatnonzero(np.diff(keys, axis=1).any(axis=0)) + 1
    return np.concatenate([[0], changes, [len(firsts)]]).astype(np.int64)


class RowSums:
    """The sums of a segment: files of finished tasks, in the order of its rows.

    lost     int64, shape (files of removed rows, 2, partitions): the number of removed rows of each partition, and
             their bytes. With `cuts`, the first axis has one more entry: the number of changed rows, and the bytes that
             are cut
    """

    def __init__(self, job: SumsJob) -> None:
        self.job = job
        self.lost = np.zeros((len(job.removed) + bool(job.cuts), 2, len(job.partitions.starts) - 1), np.int64)
        self._firsts = job.partitions.starts[job.bounds[:-1]]  # first row of each task
        self._opened: tuple[int, list[np.ndarray]] = (-1, [])
        for number in range(len(job.bounds) - 1):
            first, last = job.bounds[number : number + 2].tolist()
            cells = _cells_of(self._path(number))
            self.lost[:, :, first:last] = cells[0].view(np.int64).reshape(len(self.lost), 2, last - first)

    def _path(self, number: int) -> Path:
        return numbered_path(self.job.folder, number, ".bin")

    def pieces(self, low: int, high: int, copy: int = 0) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield the documents of an input that have the copy number `copy`, task by task: the first row of the task,
        the rows counted from it (uint32), and the running sum of the bytes of their texts (int64).

        low, high  first row of the input, and the row after its last
        copy       number of the copy, from 0
        """
        for start, rows, ends, first, last in self._documents(low, high, copy):
            before = int(ends[first - 1]) if first else 0
            if first < last:
                yield start, rows[first:last], ends[first:last] - before if before else ends[first:last]

    def ends_of(self, low: int, high: int, copy: int) -> Iterator[tuple[np.ndarray, int, int]]:
        """Yield the documents among the rows `low` to `high` (exclusive) that have the copy number `copy`, task by
        task.

        A tuple has the running sum (int64) of the bytes of all texts of the task that have the copy, the position of
        the first document in this array, and the position after the last.
        """
        for _, _, ends, first, last in self._documents(low, high, copy):
            yield ends, first, last

    def _documents(self, low: int, high: int, copy: int) -> Iterator[tuple[int, np.ndarray, np.ndarray, int, int]]:
        """Yield the first row of each task, its rows that have the copy, the running sum of their bytes, and the first
        and last position (exclusive) of the rows from `low` to `high` among them."""
        first = int(np.searchsorted(self._firsts, low, side="right")) - 1
        for number in range(max(first, 0), len(self._firsts)):
            start = int(self._firsts[number])
            if start >= high:
                return
            if number != self._opened[0]:  # many inputs may be in one task: its file is read once for all
                self._opened = number, _cells_of(self._path(number))
            cells = self._opened[1]
            copies = len(cells) // 2
            if copy < copies:
                rows = cells[1 + copies + copy].view(np.uint32)
                bounds = np.clip([low - start, high - start], 0, 2**32 - 1).astype(np.uint32)
                yield start, rows, cells[1 + copy].view(np.int64), *np.searchsorted(rows, bounds).tolist()


def _cells_of(path: Path) -> list[np.ndarray]:
    """Return the arrays of a file as bytes (uint8), through a memory map."""
    with reading(path):
        data = map_file(path, np.uint8)
        count = int(data[:8].view(np.int64)[0]) // 8 - 1
        bounds = data[: 8 * (count + 1)].view(np.int64).tolist()
        if bounds != sorted(bounds) or bounds[-1] != len(data):
            raise ValueError(f"its last cell does not end at byte {len(data):,}, the end of the file")
    return [data[start:stop] for start, stop in pairwise(bounds)]


def sum_rows(context: RunContext, segment: int, job: SumsJob) -> RowSums:
    """Run the tasks that have no file, and return the sums. The number of the segment distinguishes the phases of a
    run."""
    make_folder(job.folder)
    count = len(job.bounds) - 1
    missing = [number for number in range(count) if not numbered_path(job.folder, number, ".bin").exists()]
    done: list[int] = []
    if missing:
        stored = store_job(job, job.folder)
        with context.progress.watch("adding up sizes", len(missing), lambda: Count(len(done)), is_loop=True):
            context.session.run(partial(run_sums, stored, segment), missing, lambda number, *_: done.append(number))
    return RowSums(job)


def run_sums(stored: Stored, segment: int, number: int) -> None:
    """Write the file of a task, unless it exists."""
    check_interrupts()
    job = load_job(SumsJob, stored)
    path = numbered_path(job.folder, number, ".bin")
    if path.exists():
        return
    partitions, (first, last) = job.partitions, job.bounds[number : number + 2].tolist()
    low, high = int(partitions.starts[first]), int(partitions.starts[last])
    lost = []
    for file in job.removed:
        rows = load_mapped(file)
        chosen = rows[slice(*np.searchsorted(rows, np.array([low, high], rows.dtype)))]
        lost += [sums[first:last] for sums in removed_by_partition(partitions, chosen)]
    if job.cuts:
        mask = load_mapped(job.mask)
        bounds = pairwise(partitions.starts[first : last + 1].tolist())
        found = [count_cuts(job.cuts, first + index, mask[slice(*bound)]) for index, bound in enumerate(bounds)]
        lost += list(np.array(found, np.int64).T)
    copies = range(_most_copies(job.written, low, high) if job.written else 0)

    def cells() -> Iterator[Iterable[np.ndarray]]:
        yield lost
        yield from (_running_sums(job, low, high, copy) for copy in copies)
        yield from (_local_rows(job, low, high, copy) for copy in copies)

    write_cells(path, cells(), 1 + 2 * len(copies))


def _most_copies(path: Path, low: int, high: int) -> int:
    written = load_mapped(path)
    return max((int(written[start:stop].max()) for start, stop in row_batches(low, high)), default=0)


def _running_sums(job: SumsJob, low: int, high: int, copy: int) -> Iterator[np.ndarray]:
    assert job.written
    total = 0
    for _, sizes in kept_sizes(job.partitions, job.written, low, high, copy):
        ends = np.cumsum(sizes) + total
        total = int(ends[-1])
        yield ends


def _local_rows(job: SumsJob, low: int, high: int, copy: int) -> Iterator[np.ndarray]:
    assert job.written
    for rows, _ in kept_sizes(job.partitions, job.written, low, high, copy):
        yield (rows - low).astype(np.uint32)


class RowSpan(NamedTuple):
    """Documents that follow each other: the first row, the row after the last, and their number."""

    start: int
    stop: int
    documents: int


def cut_pieces(pieces: Iterable[tuple[int, np.ndarray, np.ndarray]], size: int, items: int) -> Iterator[RowSpan]:
    """Yield spans of at most `items` documents and at most `size` bytes, but at least one document. `pieces` is as in
    `RowSums.pieces`. The spans do not depend on how documents are divided into pieces."""
    cutter, current = Cutter(size, items), 0
    start = stop = documents = 0
    for base, rows, ends in pieces:
        for number, first, last in cutter.add(ends):
            if number != current:
                yield RowSpan(start, stop, documents)
                current, documents = number, 0
            start = start if documents else base + int(rows[first])
            stop = base + int(rows[last - 1]) + 1
            documents += last - first
    if documents:
        yield RowSpan(start, stop, documents)
