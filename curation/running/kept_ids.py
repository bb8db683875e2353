# SPDX-License-Identifier: Apache-2.0
"""Ids of documents by their rows, with one read of each slice however many rows are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.arrays import read_pieces, write_array
from curation.contract import ID, ROW
from curation.running.intermediate import Numbering, Partitions, open_partition, with_ids


class StoredIds(NamedTuple):
    """Ids of documents in a file, one after the other.

    rows     ascending and unique: rows of a segment, or numbers of documents in a saved index
    offsets  int64, shape (len(rows) + 1,): start of each id in the file, in bytes
    """

    path: Path
    rows: np.ndarray
    offsets: np.ndarray

    def take(self, rows: np.ndarray) -> pa.LargeStringArray:
        """Return the ids of some of the rows, in any order. IntegrityError if the file is too short."""
        distinct, place = np.unique(rows, return_inverse=True)
        at = np.searchsorted(self.rows, distinct)
        lengths = self.offsets[at + 1] - self.offsets[at]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        data = np.empty(ends[-1], np.uint8)
        read_pieces(self.path, self.offsets[at], lengths, data)
        ids = pa.LargeStringArray.from_buffers(len(distinct), pa.py_buffer(ends), pa.py_buffer(data))
        return ids.take(pa.array(place))


def store_ids(path: Path, rows: np.ndarray, ids: Iterable[pa.LargeStringArray]) -> StoredIds:
    """Write the ids of `rows` to a file; `ids` yields them in the order of `rows`."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    done = 0
    with open(path, "wb") as file:
        for chunk in ids:
            offsets[done + 1 : done + 1 + len(chunk)] = pc.binary_length(chunk)
            done += len(chunk)
            if len(chunk):
                bounds = np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
                write_array(file, np.frombuffer(chunk.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]])
    np.cumsum(offsets, out=offsets)
    return StoredIds(path, rows, offsets)


def ids_by_slice(partitions: Partitions, rows: np.ndarray, numbering: Numbering) -> Iterator[pa.LargeStringArray]:
    """Yield the ids of ascending rows of a segment, one array per slice with any of them."""
    bounds = np.searchsorted(rows, partitions.starts.astype(rows.dtype))  # bounds of another dtype would copy all rows
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        local = rows[bounds[number] : bounds[number + 1]] - partitions.starts[number]
        table = open_partition(partitions.path(number)).select([ROW, ID]).take(pa.array(local))
        documents = with_ids(table, numbering.slices[number].source, int(numbering.offsets[number]))
        yield documents.column(ID).combine_chunks()


def ids_of(partitions: Partitions, rows: np.ndarray, numbering: Numbering) -> pa.Array:
    """Return the ids (large_string) of rows of a segment, in the order of `rows`, from their partitions."""
    distinct, place = np.unique(rows, return_inverse=True)
    chunks = [pa.array([], pa.large_string()), *ids_by_slice(partitions, distinct, numbering)]
    return pa.chunked_array(chunks).take(pa.array(place)).combine_chunks()
