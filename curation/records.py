# SPDX-License-Identifier: Apache-2.0
"""Columns and positions of documents, and records that are not documents."""

from __future__ import annotations

from typing import NamedTuple

# Columns of every frame from a reader. `row` is the position in the slice, which counts rejected records too.
ROW, ID, TEXT = "row", "id", "text"
LARGEST_STRING = 2**31 - 1  # bytes of a value in a Parquet file: readers have offsets of 32 bits


def position_type(rows: int) -> str:
    """Return the NumPy type for positions among `rows` rows: `int32` below 2^31 rows, else `int64`."""
    return "int32" if rows < 2**31 else "int64"


class Rejected(NamedTuple):
    """A record that is not a document, with the reason.

    row         position in the slice, as in the column `row`
    line        physical line in the slice, from 0; for Parquet the row in the file
    offset      byte offset of the line in the uncompressed file; -1 if the format has none
    error       the reason, for people
    file_index  position of the file among those of the slice
    """

    row: int
    line: int
    offset: int
    error: str
    file_index: int = 0


class Unknown(NamedTuple):
    """A record that is skipped, because no reader knows its type. `row` is that of the next document."""

    row: int
    kind: str
