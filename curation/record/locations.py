# SPDX-License-Identifier: Apache-2.0
"""The locations of removed documents: the file of each document, and its line or number in the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from curation.base.arrays import load_mapped, save_array
from curation.base.system.files import commit, numbered_path
from curation.reading.locations import Location
from curation.reading.slice_table import SliceTable
from curation.reading.source_files import SourceFile
from curation.reading.urls import shown
from curation.record.ledger import SliceTotals

SUFFIX, FIRSTS = ".locations.npy", ".firsts.npy"


def store_locations(folder: Path, number: int, locations: Sequence[Location], firsts: Sequence[np.ndarray]) -> None:
    """Store the locations of a task, if there are any. If the task's documents are split, `firsts` has the row of the
    first part of each record."""
    if firsts:
        with commit(numbered_path(folder, number, FIRSTS)) as temporary:
            save_array(temporary, np.concatenate(firsts))
    if locations:
        with commit(numbered_path(folder, number, SUFFIX)) as temporary, open(temporary, "wb") as file:
            np.save(file, np.array(locations, np.int64))


def name_of(file: SourceFile) -> str:
    """Return the name of a file to show: its path without secrets, or the name of its data set."""
    return file.label or shown(file.path)


class LocationTable:
    """The locations of the rows of all partitions.

    folder         the folder of the first segment
    slices         the slices of the plan
    before         int64, one per task: lines or records of its first file in earlier slices
    has_locations  one per task: whether locations are stored
    """

    def __init__(self, folder: Path, slices: SliceTable, before: np.ndarray, has_locations: np.ndarray) -> None:
        self.folder, self.slices, self.before, self.has_locations = folder, slices, before, has_locations

    @staticmethod
    def of(folder: Path, slices: SliceTable, totals: SliceTotals) -> LocationTable:
        """Return the locations of the rows of slices. `totals` has the counts of the slices."""
        starts = np.zeros(len(slices), np.int64)
        before, path = 0, ""
        for number, input_slice in enumerate(slices):
            first = input_slice.ranges[0]
            before = before if first.file.path == path and first.start else 0
            starts[number] = before
            before += int(totals.lines[number])
            path = first.file.path
        return LocationTable(folder, slices, starts[slices.task_starts[:-1]], totals.has_locations)

    def columns(self, number: int, row: np.ndarray) -> dict[str, pa.Array]:
        """Return the columns `file` and `line` for rows of a partition, given as positions (int64). Lines and records
        count from 1. `line` is null for data sets, since a run reads these in pieces."""
        locations = np.zeros((1, 3), np.int64)
        files = self.slices.files_of_task(number)
        if files[0].parts and len(row):  # a slice without records has no file of firsts
            firsts = load_mapped(numbered_path(self.folder, number, FIRSTS))
            row = np.searchsorted(firsts, row, side="right") - 1
        if self.has_locations[number]:
            locations = np.concatenate([locations, load_mapped(numbered_path(self.folder, number, SUFFIX))])
        at = np.searchsorted(locations[:, 0], row, side="right") - 1
        first, index, line = locations[at].T
        line = line + row - first + 1 + np.where(index == 0, int(self.before[number]), 0)
        names = pa.array([name_of(file) for file in files], pa.string())
        unknown = np.array([bool(file.label) for file in files])[index]
        return {"file": names.take(pa.array(index)), "line": pa.array(line, pa.int64(), mask=unknown)}
