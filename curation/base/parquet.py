# SPDX-License-Identifier: Apache-2.0
"""The Parquet files of a run: their compression, and the types that all readers accept.

Inside a run, strings have offsets of 64 bits and missing numbers are NaN. Files use the type `string`, which `datasets`
can concatenate with other data sets. They use null for missing numbers, which SQL leaves out of a mean. The conversion
copies no text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.base.errors import InputError
from curation.base.records import ID, LARGEST_STRING

# zstd level 1 writes twice as fast as level 3. Pages of 256 KiB are 5 % faster to write than of 1 MB, at the same size.
COMPRESSION: Mapping[str, Any] = {"compression": "zstd", "compression_level": 1, "data_page_size": 256 << 10}
GROUP_BYTES = 1_000_000_000  # maximum bytes of a column of strings in a row group; one value may be larger
SMALL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def file_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema that a file has for tables of `schema`."""
    return pa.schema([field.with_type(SMALL.get(field.type, field.type)) for field in schema])


def file_options(schema: pa.Schema, dictionaries: Sequence[str] | bool = ("source",)) -> dict[str, Any]:
    """Return the options of a file for pyarrow's writer. Numbers and `source` get statistics, which let readers skip
    row groups. Other texts get none, since their statistics would hold whole documents."""
    counted = [
        field.name
        for field in schema
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or field.name == "source"
    ]
    chosen = dictionaries if isinstance(dictionaries, bool) else [*dictionaries]
    return {**COMPRESSION, "use_dictionary": chosen, "write_statistics": counted}


def without_nan(table: pa.Table) -> pa.Table:
    """Return the table with nulls in place of NaN in its columns of floats."""
    for index, field in enumerate(table.schema):
        if pa.types.is_floating(field.type) and pc.any(mask := pc.is_nan(table.column(index))).as_py():
            numbers = pc.if_else(mask, pa.scalar(None, field.type), table.column(index))
            table = table.set_column(index, field, numbers)
    return table


def file_tables(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows with the types of Parquet files (`file_schema`), one table per row group. In a group, a column of
    strings has at most GROUP_BYTES, or one value. Raises InputError for a value above LARGEST_STRING."""
    return map(in_file_types, _groups(table))


def in_file_types(table: pa.Table) -> pa.Table:
    """Return the rows with the types of Parquet files (`file_schema`), and with nulls in place of NaN. The table may
    come from a file of a version up to 0.3. Raises InputError for a string above LARGEST_STRING."""
    check_strings(table)
    columns = [_small(column, SMALL[column.type]) if column.type in SMALL else column for column in table.columns]
    return without_nan(pa.table(columns, schema=file_schema(table.schema)))


def check_strings(table: pa.Table) -> None:
    """Raise InputError for a string above LARGEST_STRING."""
    if table.nbytes <= LARGEST_STRING:
        return
    for name, column in zip(table.column_names, table.columns, strict=True):
        longest = pc.max(pc.binary_length(column)).as_py() or 0 if column.type in SMALL else 0
        if longest > LARGEST_STRING:
            row = pc.index(pc.binary_length(column), longest).as_py()
            owner = f" of document {table.column(ID)[row].as_py()!r}" if ID in table.column_names else ""
            raise InputError(
                f"column {name!r}{owner} has a value of {longest:,} bytes, and a Parquet file takes at most "
                f"{LARGEST_STRING:,}. Set max_document_bytes of the input: records above it are rejected"
            )


def _groups(table: pa.Table) -> Iterator[pa.Table]:
    sizes = [column.nbytes for column in table.columns if column.type in SMALL] if table.nbytes > GROUP_BYTES else []
    if max(sizes, default=0) <= GROUP_BYTES or len(table) == 1:
        yield table
    else:
        half = len(table) // 2
        yield from _groups(table.slice(0, half))
        yield from _groups(table.slice(half))


def _small(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the column with offsets of 32 bits. A chunk is copied only if it is a slice of a larger array, in which
    its offsets exceed 32 bits."""
    chunks = []
    for chunk in column.chunks:
        try:
            chunks.append(chunk.cast(kind))
        except pa.ArrowInvalid:
            chunks.append(pa.concat_arrays([chunk, chunk[:0]]).cast(kind))
    return pa.chunked_array(chunks, kind)


class TableWriter:
    """An open Parquet file: a row group per table, if its strings are below GROUP_BYTES.

    sink      a path or an open file
    schema    schema of the tables; the file has `file_schema(schema)`
    options   options of pyarrow's writer, as `file_options` returns them
    """

    def __init__(self, sink: Any, schema: pa.Schema, options: Mapping[str, Any]) -> None:
        self._writer = pq.ParquetWriter(sink, file_schema(schema), **options)

    def write(self, table: pa.Table) -> None:
        """Append the rows of a table."""
        for rows in file_tables(table):
            self._writer.write_table(rows)

    def close(self) -> None:
        """Write the footer, without which no reader opens the file."""
        self._writer.close()

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def write_table(sink: Any, table: pa.Table, options: Mapping[str, Any]) -> None:
    """Write a whole Parquet file from one table."""
    with TableWriter(sink, table.schema, options) as writer:
        writer.write(table)
