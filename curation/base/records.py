# SPDX-License-Identifier: Apache-2.0
"""Columns and positions of documents, and records that are not documents."""

from __future__ import annotations

from typing import NamedTuple

# Columns of every frame from a reader. `row` is the position among all records of the slice, including rejected ones.
ROW, ID, TEXT = "row", "id", "text"
LARGEST_STRING = 2**31 - 1  # maximum bytes of a value in a Parquet file, since readers have offsets of 32 bits


def position_type(rows: int) -> str:
    """Return the NumPy type for positions among `rows` rows: `int32` below 2^31 rows, else `int64`."""
    return "int32" if rows < 2**31 else "int64"


class Rejected(NamedTuple):
    """A record that is not a document, with the reason.

    row         position in the slice, as in the column `row`
    line        physical line in the slice, from 0; for Parquet the row in the file
    offset      byte offset of the line in the uncompressed file; -1 if the format has none
    error       the reason, as readable text
    file_index  position of the file among those of the slice
    """

    row: int
    line: int
    offset: int
    error: str
    file_index: int = 0


# Why a record of a web archive is no document: the standard does not know its type; its type is another one of the
# standard; or it is a response whose content is no page. OF_FILE marks the end of a file that has no document and no
# rejected record.
UNKNOWN_TYPE, OTHER_TYPE, NOT_PAGE, OF_FILE = "unknown type", "other type", "no page", "of file"


class OtherRecord(NamedTuple):
    """A record of a web archive that is skipped and counted.

    row   the row of the next document; for NOT_PAGE, the row of the record itself
    name  what is counted: the type of the record, the media type of its content, or the path of its file
    why   UNKNOWN_TYPE, OTHER_TYPE, NOT_PAGE or OF_FILE
    """

    row: int
    name: str
    why: str
