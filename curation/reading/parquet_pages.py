# SPDX-License-Identifier: Apache-2.0
"""Upper bounds of the decoded size of rows of a Parquet file, from the headers of its pages.

A footer has the sizes of encoded columns. With a dictionary, 4,000 rows of one text of 1 MB are a file of 386 bytes.
The headers name the encoding of a page (https://parquet.apache.org/docs/file-format). If a page has its values in full,
they have together at most the size of the page. Otherwise each value is at most as long as the longest value in the
dictionary, or as the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curation.reading.documents import LINES_AT_ONCE

MIN_ROWS = 8  # minimum rows to decode at once: a step takes 40 us, and the bound of a page may be far above its values
UNKNOWN_BYTES = 1 << 40  # assumed for an unknown row, so that only MIN_ROWS are decoded at once
HEADER_BYTES, MAX_HEADER_BYTES = 1 << 9, 1 << 20  # first attempt, second attempt: headers with statistics are long
MAX_DICTIONARY_BYTES = 1 << 26
ROW_BYTES = 16  # of a row without its values: offsets
SPELLED_OUT = (0, 6)  # PLAIN, DELTA_LENGTH_BYTE_ARRAY
DICTIONARY = (2, 8)  # PLAIN_DICTIONARY, RLE_DICTIONARY
POSITION_BYTES = 4  # of a position in a dictionary
CODECS = {"LZ4": "lz4_raw"}
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}


class RowBounds(NamedTuple):
    """Points (row, upper bound of the decoded bytes of all rows before it); between points, the bound is linear.

    rows   ascending from 0, int64
    bytes  ascending from 0, float64
    """

    rows: np.ndarray
    bytes: np.ndarray

    def rows_from(self, row: int, size: int) -> int:
        """Return how many rows from `row` on have at most `size` bytes; at least MIN_ROWS, at most LINES_AT_ONCE."""
        most = float(np.interp(row, self.rows, self.bytes)) + size
        return min(max(int(np.interp(most, self.bytes, self.rows)) - row, MIN_ROWS), LINES_AT_ONCE)


def bounds_of(path: str, opened: pq.ParquetFile, groups: Sequence[int], names: Sequence[str]) -> RowBounds:
    """Return the bounds of the rows in consecutive row groups, with the columns `names`. If the pages of a file cannot
    be read, `path` is "", and MIN_ROWS are decoded at once."""
    kept = _dictionary_columns(opened)
    rows, sizes = [np.zeros(1)], [np.zeros(1)]
    with open(path or "/dev/null", "rb") as file:
        for number in groups:
            group = opened.metadata.row_group(number)
            columns = [group.column(k) for k in range(group.num_columns)]
            lines = [
                _line_of(file, column, group.num_rows, column.path_in_schema in kept)
                for column in columns
                if column.path_in_schema.partition(".")[0] in names
            ]
            points = np.unique(np.concatenate([[0, group.num_rows], *(line.rows for line in lines)]))
            total = sum((np.interp(points, *line) for line in lines), points * ROW_BYTES)
            rows.append(rows[-1][-1] + points[1:])
            sizes.append(sizes[-1][-1] + total[1:])
    return RowBounds(np.concatenate(rows), np.concatenate(sizes))


def _dictionary_columns(opened: pq.ParquetFile) -> set[str]:
    """Return the columns that Arrow reads as positions in a dictionary."""
    return {field.name for field in opened.schema_arrow if pa.types.is_dictionary(field.type)}


def _line_of(file: BinaryIO, column: Any, rows: int, stays: bool) -> RowBounds:
    """Return the bounds of a column in a row group. `stays`: whether Arrow keeps the values as positions in a
    dictionary."""
    # A column of numbers, or a list: the pages of a list do not show where its rows begin
    if column.physical_type in WIDTHS or "." in column.path_in_schema:
        size = max(column.num_values * WIDTHS.get(column.physical_type, 0), column.total_uncompressed_size)
        return RowBounds(np.array([0, rows]), np.array([0, size]))
    ends, sizes = [0], [0]
    try:
        for values, size in _pages(file, column, stays):
            ends.append(ends[-1] + values)
            sizes.append(sizes[-1] + size)
    except (IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
        pass  # the file is damaged, encrypted, or of a later version
    if ends[-1] < rows:
        sizes.append(sizes[-1] + (rows - ends[-1]) * UNKNOWN_BYTES)
        ends.append(rows)
    return RowBounds(np.array(ends), np.array(sizes, np.float64))


def _pages(file: BinaryIO, column: Any, stays: bool) -> Iterator[tuple[int, int]]:
    """Yield (number of values, upper bound of their bytes) for each data page."""
    starts = [column.data_page_offset, column.dictionary_page_offset if column.has_dictionary_page else None]
    offset = min((start for start in starts if start), default=0)
    end, longest = offset + column.total_compressed_size, 0
    while offset < end:
        header, length = _header(file, offset)
        size, stored = header[2], header[3]
        if min(size, stored) < 0:
            raise ValueError("a page has a size below 0")
        if 7 in header:
            longest = POSITION_BYTES if stays else _longest(file, offset + length, stored, size, column.compression)
        else:
            data = header.get(5) or header[8]
            values, encoding = data[1], data[2 if 5 in header else 4]
            spelled = encoding in SPELLED_OUT
            yield values, size if spelled else values * (longest if encoding in DICTIONARY else size)
        offset += length + stored


def _longest(file: BinaryIO, offset: int, stored: int, size: int, codec: str) -> int:
    """Return the size of the longest value in a dictionary page; the size of the page if it cannot be decompressed."""
    if size > MAX_DICTIONARY_BYTES:
        return size
    file.seek(offset)
    data: bytes = file.read(stored)
    if codec != "UNCOMPRESSED":
        try:
            data = pa.decompress(data, size, CODECS.get(codec, codec.lower()), asbytes=True)
        except (pa.ArrowException, OSError, ValueError):
            return size
    longest = at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        longest, at = max(longest, length), at + 4 + length
    return longest


# Headers are in Thrift's compact protocol (thrift-compact-protocol.md of Apache Thrift)


def _header(file: BinaryIO, offset: int) -> tuple[dict[int, Any], int]:
    """Return the header of a page as field number in parquet.thrift -> value, and its length."""
    for size in (HEADER_BYTES, MAX_HEADER_BYTES):
        file.seek(offset)
        with suppress(IndexError):
            return _struct(file.read(size), 0)
    raise ValueError("a header does not end")


def _struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    number = 0
    while kind := data[at]:
        at += 1
        if kind >> 4:
            number += kind >> 4
        else:
            number, at = _integer(data, at)
        fields[number], at = _value(data, at, kind & 15)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:  # true and false have no bytes
            return kind == 1, at
        case 3:
            return data[at], at + 1
        case 4 | 5 | 6:
            return _integer(data, at)
        case 7:
            return 0.0, at + 8
        case 8:
            size, at = _varint(data, at)
            return None, at + size
        case 12:
            return _struct(data, at)
    raise ValueError(f"headers of pages have no type {kind}")


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        number |= (data[at + shift // 7] & 127) << shift
        if data[at + shift // 7] < 128:
            return number, at + shift // 7 + 1
    raise ValueError("a number has more than 64 bits")
