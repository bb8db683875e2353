# SPDX-License-Identifier: Apache-2.0
"""Locations of records: the file of a slice that holds a record, and its line or number in that file.

A slice does not store the location of each record. Usually a record directly follows the record before it in the same
file. Only the locations at the start of a file and after blank lines are stored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Location(NamedTuple):
    """The location of a record. Up to the next stored location, each following record is on the next line of the same
    file.

    row         position of the record in the slice
    file_index  position of the file among those of the slice
    line        for JSON Lines the line of the record, else its number among the records; from 0, in the range of the
                slice
    """

    row: int
    file_index: int
    line: int


def locations_after(blank: np.ndarray, row: int, line: int) -> list[Location]:
    """Return the location after each group of consecutive blank lines.

    blank      int64, ascending: blank lines
    row, line  position in the slice, and line, of the first record or blank line of the same block
    """
    if not len(blank):
        return []
    ends = blank[np.append(np.diff(blank) > 1, True)]
    rows = row + ends + 1 - line - np.searchsorted(blank, ends, side="right")
    return [Location(first, 0, after) for first, after in zip(rows.tolist(), (ends + 1).tolist(), strict=True)]


def locations_of_files(blank: Sequence[Location], starts: Sequence[int], row: int, first_file: int) -> list[Location]:
    """Return the locations of files whose lines were read together: at the start of each file, and after blank lines.

    blank       locations after blank lines, with lines counted over all files
    starts      number of lines before each file
    row         position in the slice of the first record
    first_file  position of the first file in the slice
    """
    lines, rows = [0, *(location.line for location in blank)], [row, *(location.row for location in blank)]
    locations = []
    for number, start in enumerate(starts):
        before = bisect_right(lines, start) - 1
        at = min([rows[before] + start - lines[before], *rows[before + 1 : before + 2]])
        locations.append(Location(at, first_file + number, 0))
    for location in blank:
        number = bisect_right(starts, location.line) - 1
        locations.append(Location(location.row, first_file + number, location.line - starts[number]))
    return sorted(locations)


def shifted(locations: Sequence[Location], rows: int, files: int) -> list[Location]:
    """Return locations with `rows` added to their rows, and `files` to the positions of their files in the slice."""
    return [Location(location.row + rows, location.file_index + files, location.line) for location in locations]
