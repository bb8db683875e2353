# SPDX-License-Identifier: Apache-2.0
"""The texts and columns of documents in `removed/`, for `output.removed: text`.

Rows are collected and sorted without their texts. A row has the place of its text: in the records of removed documents
of a segment, or in a partition. Texts are read for one row group at a time, so memory does not depend on their size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import batch_end_at
from curation.base.contract import ID, TEXT, Engine
from curation.base.parquet import file_options
from curation.models.vectors import arrow_type
from curation.record.documents import ROW_GROUP_BYTES, ROW_GROUP_DOCUMENTS, columns_beside_text, in_schema
from curation.record.partitions import in_order, open_partition, rows_at
from curation.stages import Stage
from curation.stages.base import noted_columns
from curation.stages.corpus.stored_notes import with_notes

FILE_BYTES = 32_000_000  # of text in one file of removed/, equal to the default of `part_bytes`

DICTIONARIES = ("source", "stage", "reason")
STORE, POSITION, SIZE = "store", "position", "bytes"  # columns with the place of a text, and its bytes
REMOVED_OUTPUT = pa.schema(
    [
        ("doc", pa.int64()),
        (ID, pa.large_string()),
        ("source", pa.string()),
        ("stage", pa.string()),
        ("reason", pa.large_string()),
        ("value", pa.float64()),
        ("duplicate_of", pa.large_string()),
        ("duplicate_of_doc", pa.int64()),  # null for a document of a saved index, which another run has made
        ("file", pa.string()),
        ("line", pa.int64()),
    ]
)


class AddedColumns(NamedTuple):
    """The columns that `removed/` has only with `removed: text`, besides the text.

    documents  carried columns and columns of stages, as in `documents/`, unless `removed/` has another of that name
    told       columns that only removed documents have: the bound, and the notes of stages
    """

    documents: pa.Schema
    told: pa.Schema

    @classmethod
    def of(cls, carried: Sequence[str], stages: Sequence[Stage]) -> AddedColumns:
        """Return the columns of a run, without carried columns that have the name of a column of `removed/`."""
        told = pa.schema(
            [("bound", pa.float64()), *((name, arrow_type(kind)) for name, kind in noted_columns(stages).items())]
        )
        names = {*REMOVED_OUTPUT.names, *told.names}
        fields = columns_beside_text(carried, stages)
        return cls(pa.schema([field for field in fields if field.name not in names]), told)

    @property
    def of_records(self) -> pa.Schema:
        """All these columns, with the text, as the records of removed documents have them."""
        return pa.schema([*self.documents, *self.told, pa.field(TEXT, pa.large_string())])

    @property
    def of_partitions(self) -> pa.Schema:
        """These columns as partitions have them, with the text: those of `documents` only."""
        return pa.schema([*self.documents, pa.field(TEXT, pa.large_string())])


class Store(NamedTuple):
    """Texts of removed documents. `path_of` returns the Arrow IPC file with the texts of a slice, `schema` has the
    columns to read. `notes` is the folder of the notes of a corpus stage (`stored_notes`); None: the file has the
    notes."""

    path_of: Callable[[int], Path]
    schema: pa.Schema
    notes: Path | None = None

    def rows_at(self, number: int, positions: np.ndarray) -> pa.Table:
        """Return the rows of a slice at `positions`, with their notes."""
        rows = rows_at(self.path_of(number), positions, self.schema)
        return rows if self.notes is None else with_notes(rows, self.notes, number, positions)


class RemovedTexts(NamedTuple):
    """The texts of removed documents.

    stores   the places of the texts
    offsets  int64: `doc` of the first row of each slice
    added    the columns that `removed/` has only with texts; a column is null where a store lacks it
    """

    stores: Sequence[Store]
    offsets: np.ndarray
    added: pa.Schema

    def located(self, rows: pa.Table, store: int, number: int, positions: np.ndarray) -> pa.Table:
        """Return the rows of a slice with three more columns about their texts: the number of the store, the position
        in the store's file, and the bytes."""
        sizes = pa.array([], pa.int64())
        if len(rows):
            texts = open_partition(self.stores[store].path_of(number)).column(TEXT)
            sizes = pc.fill_null(pc.binary_length(texts), 0).take(pa.array(positions))
        rows = rows.append_column(STORE, pa.array(np.full(len(rows), store)))
        rows = rows.append_column(POSITION, pa.array(positions, pa.int64()))
        return rows.append_column(SIZE, sizes)

    def write(self, path: Path, rows: pa.Table, columns: pa.Table, encoder: Engine) -> None:
        """Write a file of `removed/` with the columns of `columns` and `added`. `rows` come from `located`, in the
        order of `doc`. `encoder`: the engine that encodes the file."""
        schema = pa.schema([*columns.schema, *self.added])
        with encoder.parquet_file(path, schema, file_options(schema, DICTIONARIES)) as file:
            for start, stop in _row_groups(rows):
                added = self._added(rows.slice(start, stop - start))
                file.write(pa.table([*columns.slice(start, stop - start).columns, *added.columns], schema=schema))

    def _added(self, rows: pa.Table) -> pa.Table:
        number = np.searchsorted(self.offsets, rows.column("doc").to_numpy(), side="right") - 1
        store, position = rows.column(STORE).to_numpy(), rows.column(POSITION).to_numpy()
        place = number * len(self.stores) + store
        tables, order = [self.added.empty_table()], [np.zeros(0, np.int64)]
        for value in np.unique(place).tolist():
            at = np.flatnonzero(place == value)
            slice_number, store_number = divmod(value, len(self.stores))
            rows_of_slice = self.stores[store_number].rows_at(slice_number, position[at])
            tables.append(in_schema(rows_of_slice, self.added))
            order.append(at)
        return in_order(tables, np.concatenate(order))


def _row_groups(rows: pa.Table) -> Iterator[tuple[int, int]]:
    ends, first = np.cumsum(rows.column(SIZE).to_numpy()), 0
    while first < len(rows):
        last = batch_end_at(ends, first, ROW_GROUP_BYTES, ROW_GROUP_DOCUMENTS)
        yield first, last
        first = last
