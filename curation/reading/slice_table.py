# SPDX-License-Identifier: Apache-2.0
"""The slices of a plan as columns: 44 bytes per file range and 8 per slice. A slice takes 500 bytes
as an object.

A slice object is created on access. A task reads one slice, or consecutive small slices of different inputs.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import overload

import msgspec
import numpy as np

from curation.reading.source_files import FileRange, Slice, SourceFile

EDGE_DIGITS = 16  # of a digest in hexadecimal


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a table as bytes, little-endian.

    ends   int64, per slice: number of file ranges up to its end
    file   int32, per file range: number of the file
    start  int64, per file range
    stop   int64, per file range
    edges  16 hexadecimal digits per file range, or zeros for none
    limits number of a slice -> (skip, stop, ended_by), for slices that are not read whole
    tasks  int64, per task: number of slices up to its end; empty if each task has one slice
    """

    ends: bytes
    file: bytes
    start: bytes
    stop: bytes
    edges: bytes
    limits: dict[int, tuple[int, int, str]] = {}
    tasks: bytes = b""


class SliceTable(Sequence[Slice]):
    """Slices, numbered in order. `files` are the files that they refer to; `columns` are as in `Columns`.

    `task_starts` (int64) has the first slice of each task, then the number of slices.

    Raises ValueError if the columns do not fit each other or the files.
    """

    def __init__(self, files: Sequence[SourceFile], columns: Columns) -> None:
        self.files = files
        self._columns = columns
        self._ends = np.frombuffer(columns.ends, "<i8")
        self._file = np.frombuffer(columns.file, "<i4")
        self._start, self._stop = np.frombuffer(columns.start, "<i8"), np.frombuffer(columns.stop, "<i8")
        self._edges = np.frombuffer(columns.edges, f"S{EDGE_DIGITS}")
        ends = np.frombuffer(columns.tasks, "<i8") if columns.tasks else np.arange(1, len(self._ends) + 1)
        self.task_starts = np.concatenate([[0], ends]).astype(np.int64)
        self._check()

    def _check(self) -> None:
        counts = np.diff(self._ends, prepend=0)
        if (counts <= 0).any():
            raise ValueError("a slice without file ranges")
        lengths = {len(self._file), len(self._start), len(self._stop), len(self._edges)}
        if lengths != {int(counts.sum())}:
            raise ValueError(f"a slice without some of its {int(counts.sum())} file ranges")
        wrong = (self._file < 0) | (self._file >= len(self.files)) | (self._start < 0) | (self._start > self._stop)
        beyond = [number for number in self._columns.limits if not 0 <= number < len(self._ends)]
        if beyond or any(skip < 0 or -1 < stop < skip for skip, stop, _ in self._columns.limits.values()):
            raise ValueError("a slice with records from and to wrong places")
        if (np.diff(self.task_starts) <= 0).any() or self.task_starts[-1] != len(self._ends):
            raise ValueError("a slice without a task")
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ValueError(f"a slice from {self._start[at]} to {self._stop[at]} of file {self._file[at]}")

    @staticmethod
    def of(slices: Iterable[Slice]) -> SliceTable:
        """Return a table of slices. The ranges of a file are adjacent."""
        files: list[SourceFile] = []
        limits: dict[int, tuple[int, int, str]] = {}
        ends, number, start, stop, edges = array("q"), array("i"), array("q"), array("q"), bytearray()
        tasks = array("q")
        for input_slice in slices:
            for part in input_slice.ranges:
                if not files or part.file is not files[-1]:
                    files.append(part.file)
                number.append(len(files) - 1)
                start.append(part.start)
                stop.append(part.stop)
                edges += part.edges.encode().ljust(EDGE_DIGITS, b"\0")
            if input_slice.stop >= 0 or input_slice.skip:
                limits[len(ends)] = input_slice.skip, input_slice.stop, input_slice.ended_by
            if input_slice.joins and tasks:
                tasks.pop()
            ends.append(len(number))
            tasks.append(len(ends))
        columns = Columns(
            ends=ends.tobytes(),
            file=number.tobytes(),
            start=start.tobytes(),
            stop=stop.tobytes(),
            edges=bytes(edges),
            limits=limits,
            tasks=tasks.tobytes() if len(tasks) < len(ends) else b"",
        )
        return SliceTable(files, columns)

    def columns(self) -> Columns:
        """Return the bytes of each column, as the file of a plan stores them."""
        return self._columns

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SliceTable):
            return NotImplemented
        return self._columns == other._columns and list(self.files) == list(other.files)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> Slice: ...
    @overload
    def __getitem__(self, index: slice) -> list[Slice]: ...
    def __getitem__(self, index: int | slice) -> Slice | list[Slice]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        first = int(self._ends[index - 1]) if index else 0
        ranges = [self._range(position) for position in range(first, int(self._ends[index]))]
        skip, stop, ended_by = self._columns.limits.get(index, (0, -1, ""))
        joins = int(self.task_starts[self.task_of(index)]) < index
        return Slice(index=index, ranges=ranges, skip=skip, stop=stop, ended_by=ended_by, joins=joins)

    @property
    def tasks(self) -> int:
        """The number of tasks that read the slices."""
        return len(self.task_starts) - 1

    def task_of(self, index: int) -> int:
        """Return the number of the task that reads a slice."""
        return int(np.searchsorted(self.task_starts, index, side="right")) - 1

    def of_task(self, number: int) -> list[Slice]:
        """Return the slices that a task reads. They carry the same columns, and either all or none are split."""
        return self[int(self.task_starts[number]) : int(self.task_starts[number + 1])]

    def sources_of_task(self, number: int) -> list[str]:
        """Return the input of each slice that a task reads."""
        first_ranges = self._range_starts(number)[:-1]
        return [self.files[self._file[index]].source for index in first_ranges]

    def files_of_task(self, number: int) -> list[SourceFile]:
        """Return one file per range. A file with several ranges occurs several times."""
        first, *_, last = self._range_starts(number)
        return [self.files[index] for index in self._file[first:last].tolist()]

    def _range_starts(self, number: int) -> list[int]:
        """Return the number of the first file range of each slice of a task, then of the range after the last."""
        first, last = self.task_starts[number : number + 2].tolist()
        return [int(self._ends[first - 1]) if first else 0, *self._ends[first:last].tolist()]

    def task_sizes(self) -> np.ndarray:
        """Return the stored bytes that each task reads (int64), at least 1."""
        sizes = self.stored_sizes()
        return np.add.reduceat(sizes, self.task_starts[:-1]) if len(sizes) else sizes

    def _range(self, index: int) -> FileRange:
        return FileRange(
            file=self.files[self._file[index]], start=int(self._start[index]), stop=int(self._stop[index]),
            edges=self._edges[index].decode(),
        )  # fmt: skip

    def stored_sizes(self) -> np.ndarray:
        """Return the stored bytes of each slice (int64), at least 1. The ranges of a file count as equal parts."""
        if not len(self):
            return np.zeros(0, np.int64)
        ranges = np.bincount(self._file, minlength=len(self.files))
        size = np.array([max(file.bytes, 0) for file in self.files], np.int64) // np.maximum(ranges, 1)
        starts = np.concatenate([[0], self._ends[:-1]])
        return np.maximum(np.add.reduceat(size[self._file], starts), 1)

    def ended_by(self) -> dict[str, str]:
        """Return input -> the setting because of which the rest of the input is not read."""
        limited = ((self[number].source, entry[2]) for number, entry in sorted(self._columns.limits.items()))
        return {source: setting for source, setting in limited if setting}

    @cached_property
    def carried(self) -> list[str]:
        """Return the carried columns of all files, each once, in the order of the files."""
        return list(dict.fromkeys(name for file in self.files for name in file.output_columns))
