# SPDX-License-Identifier: Apache-2.0
"""The texts in `removed/`, for `output.removed: text`.

Rows are collected and sorted without their texts. A row notes where its text is: in the records of removed documents of
a segment, or in a partition. Texts are read for one row group at a time, so memory does not depend on their size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.arrays import batch_end_at
from curation.contract import TEXT
from curation.models.vectors import arrow_type
from curation.parquet import TableWriter, file_options
from curation.run_folder.documents import ROW_GROUP_BYTES, ROW_GROUP_DOCUMENTS
from curation.run_folder.partitions import in_order, open_partition, texts_at

FILE_BYTES = 32_000_000  # of text in one file of removed/, as the default of `part_bytes`
DICTIONARIES = ("source", "stage", "reason")
STORE, POSITION, SIZE = "store", "position", "bytes"  # columns that note where a text is, and its bytes


class Texts(NamedTuple):
    """The texts of removed documents.

    stores   functions that return, for the number of a slice, an Arrow IPC file with texts
    offsets  int64: `doc` of the first row of each slice
    notes    the columns of stages: name -> Arrow type
    """

    stores: Sequence[Callable[[int], Path]]
    offsets: np.ndarray
    notes: Mapping[str, str]

    @property
    def told(self) -> pa.Schema:
        """What the records of removed documents tell besides the text: the bound, and the notes of stages."""
        return pa.schema([("bound", pa.float64()), *((name, arrow_type(kind)) for name, kind in self.notes.items())])

    def located(self, rows: pa.Table, store: int, number: int, positions: np.ndarray) -> pa.Table:
        """Return the rows of a slice with the columns that note the place of their texts: row numbers in a store."""
        sizes = pa.array([], pa.int64())
        if len(rows):
            texts = open_partition(self.stores[store](number)).column(TEXT)
            sizes = pc.fill_null(pc.binary_length(texts), 0).take(pa.array(positions))
        rows = rows.append_column(STORE, pa.array(np.full(len(rows), store)))
        rows = rows.append_column(POSITION, pa.array(positions, pa.int64()))
        return rows.append_column(SIZE, sizes)

    def write(self, path: Path, rows: pa.Table, columns: pa.Table) -> None:
        """Write a file of `removed/`: `columns`, `told` and the text. `rows` are located, and in the order of `doc`."""
        schema = pa.schema([*columns.schema, *self.told, pa.field(TEXT, pa.large_string())])
        with TableWriter(path, schema, file_options(schema, DICTIONARIES)) as writer:
            for start, stop in _row_groups(rows):
                added = self._added(rows.slice(start, stop - start))
                writer.write(pa.table([*columns.slice(start, stop - start).columns, *added], schema=schema))

    def _added(self, rows: pa.Table) -> list[pa.Array]:
        number = np.searchsorted(self.offsets, rows.column("doc").to_numpy(), side="right") - 1
        told = [rows.column(name).combine_chunks() for name in self.told.names]
        return [*told, self._texts(rows, number)]

    def _texts(self, rows: pa.Table, number: np.ndarray) -> pa.Array:
        store, position = rows.column(STORE).to_numpy(), rows.column(POSITION).to_numpy()
        place = number * len(self.stores) + store
        chunks, order = [pa.array([], pa.large_string())], [np.zeros(0, np.int64)]
        for value in np.unique(place).tolist():
            at = np.flatnonzero(place == value)
            slice_number, store_number = divmod(value, len(self.stores))
            chunks.append(texts_at(self.stores[store_number](slice_number), position[at]))
            order.append(at)
        return in_order(chunks, np.concatenate(order))


def _row_groups(rows: pa.Table) -> Iterator[tuple[int, int]]:
    ends, first = np.cumsum(rows.column(SIZE).to_numpy()), 0
    while first < len(rows):
        last = batch_end_at(ends, first, ROW_GROUP_BYTES, ROW_GROUP_DOCUMENTS)
        yield first, last
        first = last
