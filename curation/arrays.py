# SPDX-License-Identifier: Apache-2.0
"""Long arrays, some at a time, and where rows are cut by their sizes."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from curation.contract import TEXT, position_type

if TYPE_CHECKING:  # training imports this module and needs no Arrow
    import pyarrow as pa

AT_ONCE = 1 << 16


def pieces_of(count: int) -> Iterator[slice]:
    """0 to `count` in slices of AT_ONCE."""
    for start in range(0, count, AT_ONCE):
        yield slice(start, min(start + AT_ONCE, count))


def positions_of(mask: np.ndarray) -> np.ndarray:
    """Where `mask` is true, in half the bytes of `np.flatnonzero`."""
    out = np.empty(int(np.count_nonzero(mask)), position_type(len(mask)))
    done = 0
    for piece in pieces_of(len(mask)):
        found = np.flatnonzero(mask[piece])
        out[done : done + len(found)] = found + piece.start
        done += len(found)
    return out


def map_file(path: Path, dtype: type | str) -> np.ndarray:
    """A file as a read-only array; an empty one cannot be mapped."""
    if path.stat().st_size == 0:
        return np.zeros(0, dtype)
    with open(path, "rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)


def write_array(file: BinaryIO, values: np.ndarray) -> None:
    """Appends the bytes of an array. OSError says why that fails, such as a full disk: NumPy's `tofile` does not."""
    file.write(np.ascontiguousarray(values).view(np.uint8).data)


def save_array(path: Path, values: np.ndarray) -> None:
    """As `np.save`, with the errors of `write_array`."""
    values = np.ascontiguousarray(values)
    with open(path, "wb") as file:
        header = np.lib.format.header_data_from_array_1_0(values)
        np.lib.format.write_array_header_1_0(file, header)
        write_array(file, values)


def joined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array; one chunk is not copied, unless it is empty: Arrow allows it to have no offsets."""
    import pyarrow as pa

    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 and len(column) else column.combine_chunks()


# Cutting


def end_of_piece(ends: np.ndarray, first: int, size: int, items: int | None = None, *, begun: bool = False) -> int:
    """Where a piece of the items from `first` on ends that takes at most `size` and so many `items`. It has one item at
    least, unless others are in it already. `ends`: the running sum of the items' sizes."""
    before = int(ends[first - 1]) if first else 0
    last = max(int(np.searchsorted(ends, before + size, side="right")), first + (not begun))
    return last if items is None else min(last, first + items)


def pieces_by_size(ends: np.ndarray, most: int) -> Iterator[slice]:
    """Cuts items, given by the running sum of their sizes, into pieces of up to `most`, or of one."""
    first = 0
    while first < len(ends):
        last = end_of_piece(ends, first, most)
        yield slice(first, last)
        first = last


def cut_tables(tables: Iterable[pa.Table], documents: int, size: int) -> Iterator[tuple[int, pa.Table]]:
    """The same rows in pieces of at most so many `documents` and bytes of their text, of one document at least: number
    of the piece, some of its rows. The pieces do not depend on how the tables were cut."""
    import pyarrow.compute as pc

    number = rows = taken = 0
    for table in tables:
        ends = np.cumsum(pc.binary_length(table.column(TEXT)).to_numpy())
        first = 0
        while first < len(table):
            last = end_of_piece(ends, first, size - taken, documents - rows, begun=rows > 0)
            if last == first:
                number, rows, taken = number + 1, 0, 0
                continue
            yield number, table.slice(first, last - first)
            rows += last - first
            taken += int(ends[last - 1]) - (int(ends[first - 1]) if first else 0)
            first = last
