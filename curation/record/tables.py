# SPDX-License-Identifier: Apache-2.0
"""The tables of a finished run as commands read them: `documents/`, `removed/` and `measures/`.

Every read checks the columns and their types, the number of rows, offsets and UTF-8. A fault raises an IntegrityError
that names the file. Only `verify` finds a changed value that passes these checks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curation.base.contract import ID, TEXT
from curation.base.parquet import file_schema, in_file_types
from curation.base.system.damage import damaged, reading

DOC, SOURCE = "doc", "source"
OF_ALL = {DOC: pa.int64(), ID: pa.string(), SOURCE: pa.string()}
# Folder -> the columns that every version has written.
COLUMNS: Mapping[str, Mapping[str, pa.DataType]] = {
    "documents": OF_ALL | {TEXT: pa.string()},
    "removed": OF_ALL
    | {"stage": pa.string(), "reason": pa.string(), "value": pa.float64(), "duplicate_of": pa.string()},
    "measures": OF_ALL | {"stage": pa.string()},
}
WITH_TEXT = {"bound": pa.float64(), TEXT: pa.string()}  # columns of `removed/` with `output.removed: text`


def part_paths(folder: Path, outputs: Iterable[str], name: str) -> list[Path]:
    """Return the files of a table that a report names among its `outputs`, in the order of their numbers. Numbers may
    have more than five digits."""
    names = [output for output in outputs if output.startswith(f"{name}/")]
    return [folder / output for output in sorted(names, key=lambda output: (len(output), output))]


class TablePart:
    """A Parquet file of a run. `schema` has its columns in the types of this version.

    path     its path, in a folder with the name of the table
    columns  further columns that the file must have

    Raises IntegrityError for a damaged file, also when it is read later.
    """

    def __init__(self, path: Path, columns: Mapping[str, pa.DataType] | None = None) -> None:
        self.path = path
        if not os.path.lexists(path):
            raise damaged(path, "it is missing")
        with reading(path):
            self._file = pq.ParquetFile(path)
            self._metadata = self._file.metadata
            self.schema: pa.Schema = file_schema(self._file.schema_arrow)
            self.groups = range(self._metadata.num_row_groups)
            rows = sum(self._metadata.row_group(group).num_rows for group in self.groups)
        self.rows = int(self._metadata.num_rows)
        if rows != self.rows:
            raise damaged(path, f"its footer counts {self.rows:,} rows, and {rows:,} in its row groups")
        self.check({**COLUMNS.get(path.parent.name, {}), **(columns or {})})

    def check(self, columns: Mapping[str, pa.DataType]) -> None:
        """Raise IntegrityError for a column that is missing, double or of another type."""
        for name, kind in columns.items():
            if self.schema.names.count(name) != 1 or self.schema.field(name).type != kind:
                raise damaged(self.path, f"it has no column {name!r} of type {kind}")

    def bounds(self, group: int) -> tuple[int, int] | None:
        """Return the least and the largest `doc` of a row group; None if the statistics of the row group lack them."""
        with reading(self.path):
            doc = self._metadata.row_group(group).column(self.schema.get_field_index(DOC)).statistics
            return (int(doc.min), int(doc.max)) if doc and doc.has_min_max else None

    def read_row(self, row: int, columns: Sequence[str]) -> dict[str, Any]:
        """Return a row, counted over all row groups, as column -> value. Raises IntegrityError if there is none."""
        first = 0
        for group in self.groups:
            count = self._metadata.row_group(group).num_rows
            if row < first + count:
                return dict(self.read(group, columns).slice(row - first, 1).to_pylist()[0])
            first += count
        raise damaged(self.path, f"it has {self.rows:,} rows, and row {row:,} was expected")

    def read(self, group: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a row group, or some of its columns, in the types of this version."""
        if missing := [name for name in columns or () if name not in self.schema.names]:
            raise damaged(self.path, f"it has no column {missing[0]!r}")
        with reading(self.path):
            table = in_file_types(self._file.read_row_group(group, columns=columns))
            table.validate(full=True)
            if len(table) != (expected := self._metadata.row_group(group).num_rows):
                raise ValueError(f"row group {group} has {len(table):,} rows, its footer counts {expected:,}")
            if DOC in table.column_names and table.column(DOC).null_count:
                raise ValueError("it has rows without doc")
        return table


def read_tables(
    paths: Iterable[Path], columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None
) -> Iterator[pa.Table]:
    """Yield columns of the row groups of files. `types` has the types of columns that not every run has."""
    for path in paths:
        part = TablePart(path, types)
        for group in part.groups:
            yield part.read(group, columns)
