# SPDX-License-Identifier: Apache-2.0
"""Places of records: the file of a slice that holds a record, and its line or number in that file.

A slice stores no place per record. A record follows the one before it in the same file, except at the start of a file
and after blank lines: only these are marked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Mark(NamedTuple):
    """The place of a record. Each record after it, up to the next mark, is one line further in the same file.

    row         position of the record in the slice
    file_index  position of the file among those of the slice
    line        its line for JSON Lines, else its number among the records of the file; from 0, in the slice's range
    """

    row: int
    file_index: int
    line: int


def marks_after(blank: np.ndarray, row: int, line: int) -> list[Mark]:
    """Return a mark after each run of blank lines.

    blank      int64, ascending: blank lines
    row, line  position in the slice, and line, of the first record or blank line that was read with them
    """
    if not len(blank):
        return []
    ends = blank[np.append(np.diff(blank) > 1, True)]
    rows = row + ends + 1 - line - np.searchsorted(blank, ends, side="right")
    return [Mark(first, 0, after) for first, after in zip(rows.tolist(), (ends + 1).tolist(), strict=True)]


def marks_of_files(blank: Sequence[Mark], starts: Sequence[int], row: int, first_file: int) -> list[Mark]:
    """Return the marks of files whose lines were read together: at the start of each, and after its blank lines.

    blank       marks after blank lines, with lines counted over all files
    starts      lines before each file
    row         position in the slice of the first record
    first_file  position of the first file in the slice
    """
    lines, rows = [0, *(mark.line for mark in blank)], [row, *(mark.row for mark in blank)]
    marks = []
    for number, start in enumerate(starts):
        before = bisect_right(lines, start) - 1
        at = min([rows[before] + start - lines[before], *rows[before + 1 : before + 2]])
        marks.append(Mark(at, first_file + number, 0))
    for mark in blank:
        number = bisect_right(starts, mark.line) - 1
        marks.append(Mark(mark.row, first_file + number, mark.line - starts[number]))
    return sorted(marks)


def shifted(marks: Sequence[Mark], rows: int, files: int) -> list[Mark]:
    """Return marks after so many rows and files of the slice."""
    return [Mark(mark.row + rows, mark.file_index + files, mark.line) for mark in marks]
