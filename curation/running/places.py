# SPDX-License-Identifier: Apache-2.0
"""The places of removed documents: the file of each, and its line or number in the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from curation.reading.places import Mark
from curation.reading.source_files import Slice, SourceFile
from curation.reading.urls import shown
from curation.running.ledger import SliceRecord
from curation.system.files import commit, numbered_path

SUFFIX = ".places.npy"
LINES = "jsonl"  # the format whose records are lines


def store_marks(folder: Path, number: int, marks: Sequence[Mark]) -> None:
    """Store the marks of a slice, if there are any."""
    if marks:
        with commit(numbered_path(folder, number, SUFFIX)) as temporary, open(temporary, "wb") as file:
            np.save(file, np.array(marks, np.int64))


def name_of(file: SourceFile) -> str:
    """Return the name of a file for people: its path without secrets, or the name of its data set."""
    return file.label or shown(file.path)


class Places:
    """The places of the rows of all slices.

    folder    the folder of the first segment
    slices    the slices of the plan
    records   their done-records
    """

    def __init__(self, folder: Path, slices: Sequence[Slice], records: Sequence[SliceRecord]) -> None:
        self.folder, self.slices, self.records = folder, slices, records
        self.before: list[int] = []  # lines or records of the first file of each slice in earlier slices
        total: dict[str, int] = {}
        for input_slice, record in zip(slices, records, strict=True):
            file = input_slice.ranges[0].file
            self.before.append(total.get(file.path, 0))
            total[file.path] = self.before[-1] + (record.lines if file.format == LINES else record.rows)

    def columns(self, number: int, row: np.ndarray) -> dict[str, pa.Array]:
        """Return `file` and `line` of rows of a slice: positions in the slice, int64. Lines and records count
        from 1; those of data sets are null, since a run reads them in pieces."""
        marks = np.zeros((1, 3), np.int64)
        if self.records[number].marks:
            marks = np.concatenate([marks, np.load(numbered_path(self.folder, number, SUFFIX))])
        at = np.searchsorted(marks[:, 0], row, side="right") - 1
        first, index, line = marks[at].T
        line = line + row - first + 1 + np.where(index == 0, self.before[number], 0)
        names = pa.array([name_of(file_range.file) for file_range in self.slices[number].ranges], pa.string())
        unknown = np.array([bool(file_range.file.label) for file_range in self.slices[number].ranges])[index]
        return {"file": names.take(pa.array(index)), "line": pa.array(line, pa.int64(), mask=unknown)}


__all__ = ["Places", "name_of", "store_marks"]
