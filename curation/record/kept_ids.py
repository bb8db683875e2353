# SPDX-License-Identifier: Apache-2.0
"""Ids and `doc` of documents by their rows. Each slice is read once, however many of its rows are wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import load_mapped, save_array, text_buffers, write_array
from curation.base.contract import ID, ROW
from curation.base.system.files import commit, make_folder, numbered_path
from curation.record.partitions import Numbering, Partitions, open_partition

IdsAndDocs = tuple[pa.LargeStringArray, np.ndarray]  # ids of some documents, and their `doc` (int64; -1: another run)
TASK_ROWS = 1 << 17  # rows per task that looks up ids
DOCS = ".docs.npy"  # suffix of the files with `doc`


class StoredIds(NamedTuple):
    """Ids of documents in a file, one after the other.

    rows     ascending and unique: rows of a segment, or numbers of documents in a saved index
    offsets  int64, shape (len(rows) + 1,): start of each id in the file, in bytes
    """

    path: Path
    rows: np.ndarray
    offsets: np.ndarray

    def take(self, rows: np.ndarray) -> pa.LargeStringArray:
        """Return the ids of some of the rows, in any order. Raises IntegrityError if the file is too short."""
        from curation.kernels.files import read_pieces  # loads Numba

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
            data, bounds = text_buffers(chunk)
            write_array(file, data[bounds[0] : bounds[-1]])
    np.cumsum(offsets, out=offsets)
    return StoredIds(path, rows, offsets)


class KeptIds:
    """Ids and `doc` of documents in a folder. Each task writes the ids and `doc` of documents in consecutive slices, or
    in a part of a saved index.

    rows    the `.npy` file of ascending, unique rows
    bounds  int64: the first of the rows of each task, then the number of rows
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows, self.bounds = load_mapped(folder / "rows.npy"), load_mapped(folder / "bounds.npy")

    @staticmethod
    def plan(folder: Path, rows: np.ndarray, starts: np.ndarray) -> KeptIds:
        """Store ascending, unique rows and divide them among tasks. A task begins at one of the rows `starts`."""
        make_folder(folder)
        positions = np.searchsorted(rows, starts.astype(rows.dtype))  # starts of another dtype would copy all rows
        places = np.searchsorted(positions, np.arange(0, len(rows), TASK_ROWS))
        bounds = np.unique(np.concatenate([positions[places], [0, len(rows)]])).astype(np.int64)
        for name, values in (("rows.npy", rows), ("bounds.npy", bounds)):
            with commit(folder / name) as path:
                save_array(path, values)
        return KeptIds(folder)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def rows_of(self, task: int) -> np.ndarray:
        """Return the rows that a task writes, ascending."""
        return self.rows[self.bounds[task] : self.bounds[task + 1]]

    def store(self, task: int, documents: Iterable[IdsAndDocs]) -> None:
        """Store the ids and `doc` of the rows of a task, in their order."""
        docs = [np.zeros(0, np.int64)]

        def ids() -> Iterator[pa.LargeStringArray]:
            for own, doc in documents:
                docs.append(doc)
                yield own

        with commit(numbered_path(self.folder, task, ".bin")) as path:
            stored = store_ids(path, self.rows_of(task), ids())
        for suffix, values in ((".npy", stored.offsets), (DOCS, np.concatenate(docs))):
            with commit(numbered_path(self.folder, task, suffix)) as path:
                save_array(path, values)

    def take(self, rows: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """Return the ids and `doc` of some of the rows, in any order."""
        distinct, place = np.unique(rows, return_inverse=True)
        ends = np.searchsorted(np.searchsorted(self.rows, distinct), self.bounds)
        chunks, docs = [pa.array([], pa.large_string())], [np.zeros(0, np.int64)]
        for task in np.flatnonzero(np.diff(ends)).tolist():
            path = numbered_path(self.folder, task, ".bin")
            own, asked = self.rows_of(task), distinct[ends[task] : ends[task + 1]]
            chunks.append(StoredIds(path, own, load_mapped(path.with_suffix(".npy"))).take(asked))
            docs.append(load_mapped(path.with_suffix(DOCS))[np.searchsorted(own, asked)])
        return pa.concat_arrays(chunks).take(pa.array(place)), np.concatenate(docs)[place]


def ids_by_slice(partitions: Partitions, rows: np.ndarray, numbering: Numbering) -> Iterator[IdsAndDocs]:
    """Yield the ids and `doc` of ascending rows of a segment, one pair of arrays for each slice that has such rows."""
    bounds = np.searchsorted(rows, partitions.starts.astype(rows.dtype))  # bounds of another dtype would copy all rows
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        local = rows[bounds[number] : bounds[number + 1]] - partitions.starts[number]
        table = open_partition(partitions.path(number)).select([ROW, ID]).take(pa.array(local))
        documents = numbering.with_ids(table, number)
        yield documents.column(ID).combine_chunks(), documents.column("doc").to_numpy()


def ids_of(partitions: Partitions, rows: np.ndarray, numbering: Numbering) -> pa.Array:
    """Return the ids (large_string) of rows of a segment, in the order of `rows`, from their partitions."""
    distinct, place = np.unique(rows, return_inverse=True)
    chunks = [pa.array([], pa.large_string()), *(ids for ids, _ in ids_by_slice(partitions, distinct, numbering))]
    return pa.chunked_array(chunks).take(pa.array(place)).combine_chunks()
