# SPDX-License-Identifier: Apache-2.0
"""Tables: Parquet, and Arrow IPC as file and as stream."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from curation.arrays import joined
from curation.contract import ID, TEXT, Rejected
from curation.errors import InputError
from curation.reading.documents import Documents, is_text, schema_of, table_rows
from curation.reading.inputs import FilePart, SourceFile
from curation.reading.remote import UNKNOWN_SIZE
from curation.reading.streams import is_of_system, open_raw, open_stream
from curation.reading.urls import is_remote, shown

ARROW_FILE = b"ARROW1\0\0"  # begins the file form
STREAM_BYTES = 1 << 20
AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


def schema_in(file: SourceFile) -> pa.Schema:
    """The file's own schema; InputError where it is no such file."""
    return open_parquet(file).schema_arrow if file.format == "parquet" else _arrow_schema(file)


def check_types(file: SourceFile) -> None:
    """InputError where a wanted column is of a type that cannot be what it should be."""
    kinds, where = {field.name: field.type for field in schema_in(file)}, shown(file.path)
    text, id_ = kinds[file.text_column], kinds.get(file.id_column, pa.string())
    if not is_text(text):
        raise InputError(f"column {file.text_column!r} of {where} is {text}, expected strings. Set text_column")
    if not (is_text(id_) or pa.types.is_integer(id_)):
        raise InputError(
            f"column {file.id_column!r} of {where} is {id_}, expected strings or integers. Set id_column to another "
            "one, or to a name that is not there: ids are made then"
        )


def _wanted(names: list[str], file: SourceFile) -> list[str]:
    ids = [file.id_column] if file.id_column in names else []
    return list(dict.fromkeys([file.text_column, *ids, *file.columns]))


def _as_documents(table: Any, file: SourceFile, row: int, line: int) -> Documents:
    """A table or batch of the file's own columns as documents; its rows count from `row`, in the file from `line`."""
    names = table.schema.names
    rows = table.num_rows
    if file.id_column in names:
        ids = joined(table.column(names.index(file.id_column)).cast(pa.large_string()))
    else:
        ids = pa.nulls(rows, pa.large_string())
    columns = {ID: ids, TEXT: joined(table.column(names.index(file.text_column)).cast(pa.large_string()))}
    columns |= {name: _carried(table.column(names.index(name)), name, file) for name in file.columns}
    kept, rejected = table_rows(pa.table(columns), row, line, file.max_document_bytes)
    return Documents(kept, rejected, rows, rows)


def _carried(column: Any, name: str, file: SourceFile) -> pa.Array:
    try:
        return joined(column.cast(pa.large_string()))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise InputError(f"column {name!r} of {shown(file.path)} is {column.type}, which has no text form") from None


def _numbered(tables: Iterator[Any], file: SourceFile, row: int, line: int) -> Iterator[Documents]:
    """The documents of a run of tables; `row` is the position of the first row, `line` its number in the file."""
    taken = 0
    try:
        for table in tables:
            yield _as_documents(table, file, row + taken, line + taken)
            taken += table.num_rows
    except (pa.ArrowException, EOFError, OSError) as error:
        if is_of_system(error):
            raise
        damage = Rejected(row + taken, line + taken, -1, f"the file is damaged or cut off: {error}")
        yield Documents(schema_of(file.columns).empty_table(), [damage], 1, 1)


# Parquet


def open_parquet(file: SourceFile) -> pq.ParquetFile:
    """The opened file; InputError where it is none."""
    try:
        if is_remote(file.path):
            return pq.ParquetFile(pa.PythonFile(open_raw(file.path), "r"))
        # Not mapped: a mapped file that gets shorter ends the process. A buffer for all row groups gains nothing.
        return pq.ParquetFile(file.path, pre_buffer=False)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{shown(file.path)} is not a readable Parquet file: {error}") from None


def read_parquet(part: FilePart, batch_bytes: int) -> Iterator[Documents]:
    file, opened = part.file, open_parquet(part.file)
    if part.start == part.stop:
        return
    groups = range(part.start, part.stop)
    line = sum(opened.metadata.row_group(group).num_rows for group in range(part.start))
    size = _rows_per_batch(opened, groups, batch_bytes)
    names = _wanted(opened.schema_arrow.names, file)
    taken = 0
    try:
        for batch in opened.iter_batches(size, row_groups=groups, columns=names):
            yield _as_documents(batch, file, taken, line + taken)
            taken += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        if is_of_system(error):
            raise
        yield from _read_around_damage(opened, part, names, size, line, taken)


def _read_around_damage(
    opened: pq.ParquetFile, part: FilePart, names: list[str], size: int, line: int, taken: int
) -> Iterator[Documents]:
    """The rows behind `taken`, row group by row group: damage takes what follows in its own, and nothing in the others,
    which may be in other slices."""
    row = taken
    for group in range(part.start, part.stop):
        rows = opened.metadata.row_group(group).num_rows
        if rows > taken:
            for documents in _numbered(_batches(opened, group, names, size, taken), part.file, row, line + taken):
                yield documents
                row += documents.rows
        taken = max(0, taken - rows)
        line += rows


def _batches(opened: pq.ParquetFile, group: int, names: list[str], size: int, taken: int) -> Iterator[pa.RecordBatch]:
    """The rows of a group behind `taken`; in front of damage one by one, so that it does not matter what `size` is."""
    done = 0
    try:
        for batch in opened.iter_batches(size, row_groups=[group], columns=names):
            done += batch.num_rows
            if done > taken:
                yield batch.slice(batch.num_rows - (done - taken))
                taken = done
    except (pa.ArrowException, OSError) as error:
        if is_of_system(error):
            raise
        yield from islice(opened.iter_batches(1, row_groups=[group], columns=names), taken, None)


def _rows_per_batch(opened: pq.ParquetFile, groups: range, batch_bytes: int) -> int:
    found = [opened.metadata.row_group(group) for group in groups]
    rows = sum(group.num_rows for group in found)
    return max(1, min(rows, rows * batch_bytes // max(1, sum(group.total_byte_size for group in found))))


# Arrow IPC


def read_arrow(part: FilePart, batch_bytes: int) -> Iterator[Documents]:
    yield from _numbered(_arrow_batches(part.file), part.file, 0, 0)


def _arrow_schema(file: SourceFile) -> pa.Schema:
    with _opened_arrow(file) as opened:
        return opened.schema


@contextmanager
def _opened_arrow(file: SourceFile) -> Iterator[Any]:
    """A reader of the file form, which can be indexed, or of the stream form. The file form is the stream form behind
    eight bytes, and is read so where its end is not at hand. InputError where it is neither."""
    with io.BufferedReader(open_stream(file.path, file.compression), STREAM_BYTES) as buffered:
        try:
            opened = _open_arrow(buffered, not file.compression and file.bytes != UNKNOWN_SIZE)
        except (pa.ArrowException, EOFError, OSError, UnicodeDecodeError) as error:
            raise InputError(f"{shown(file.path)} is not readable Arrow IPC: {error}") from None
        yield opened


def _open_arrow(buffered: io.BufferedReader, seekable: bool) -> Any:
    source = pa.PythonFile(buffered, "r")
    if seekable:
        try:
            return pa.ipc.open_file(source)
        except pa.ArrowInvalid:  # a stream, or a file that is cut off
            buffered.seek(0)
    if buffered.peek(len(ARROW_FILE)).startswith(ARROW_FILE):
        buffered.read(len(ARROW_FILE))
    return pa.ipc.open_stream(source)


def _arrow_batches(file: SourceFile) -> Iterator[pa.RecordBatch]:
    with _opened_arrow(file) as opened:
        names = _wanted(opened.schema.names, file)
        if hasattr(opened, "num_record_batches"):
            batches = (opened.get_batch(number) for number in range(opened.num_record_batches))
        else:
            batches = iter(opened)
        for batch in batches:
            wanted = batch.select(names)
            for column in wanted.columns:
                _check_offsets(column)
            yield wanted


def _check_offsets(column: pa.Array) -> None:
    """ArrowInvalid for a damaged column. Arrow takes what it reads on trust, and a wrong offset would end the process;
    bytes that are no UTF-8 are looked for later, and cost one row."""
    kind = AS_BYTES.get(column.type)
    (column.view(kind) if kind else column).validate(full=True)
