# SPDX-License-Identifier: Apache-2.0
"""Tables: Parquet, and Arrow IPC in its file form and its stream form."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.base.arrays import as_one_array, batch_end_at
from curation.base.contract import ID, TEXT, Rejected
from curation.base.errors import InputError
from curation.base.number_lists import as_json, is_list
from curation.base.system.os_errors import is_of_system
from curation.reading.answers import UNKNOWN_SIZE
from curation.reading.copies import local_path
from curation.reading.documents import (
    LINES_AT_ONCE,
    REJECTED,
    Documents,
    as_strings,
    is_bytes,
    is_text,
    schema_of,
    table_rows,
)
from curation.reading.formats.base import NEEDED, PROBED_RECORDS, USED, ColumnFormat, SampledRange
from curation.reading.ipc import FILE_MAGIC, STREAM_BYTES, Source, has_forged_length
from curation.reading.parquet_pages import MIN_ROWS, RowBounds, bounds_of
from curation.reading.remote import refuse_local
from curation.reading.source_files import FileRange, SourceFile
from curation.reading.streams import DamageError, open_raw, open_stream
from curation.reading.urls import is_remote, shown

log = logging.getLogger(__name__)
FOOTER_END = 4 + len(FILE_MAGIC)  # bytes after the footer: its length and the magic
BUFFER_BYTES = 1 << 20
PROBED_TEXT = 16 << 20  # maximum bytes of the first rows
AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


def _check_types(schema: pa.Schema, file: SourceFile) -> None:
    """Raise InputError if the text column does not have strings, or the id column neither strings nor integers."""
    kinds, where = {field.name: field.type for field in schema}, shown(file.path)
    text, id_ = kinds[file.text_column], kinds.get(file.id_column, pa.string())
    if not (is_text(text) or is_bytes(text)):
        raise InputError(f"column {file.text_column!r} of {where} is {text}, expected strings. Set text_column")
    if not (is_text(id_) or is_bytes(id_) or pa.types.is_integer(id_)):
        raise InputError(
            f"column {file.id_column!r} of {where} is {id_}, expected strings or integers. Set id_column to another "
            "one, or to a name that is not there: ids are made then"
        )


def _is_plain(kind: pa.DataType) -> bool:
    return is_text(kind) or is_bytes(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _wanted(names: list[str], file: SourceFile) -> list[str]:
    ids = [file.id_column] if file.id_column in names else []
    errors = [REJECTED] if file.label and REJECTED in names else []
    return list(dict.fromkeys([file.text_column, *ids, *file.carried.values(), *errors]))


def _cut(batches: Iterator[pa.RecordBatch], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most `batch_bytes`, but at least one row, and at most LINES_AT_ONCE.

    A value of a dictionary counts in each of its rows. All rows may have the longest value, and a column of strings may
    have at most 2 GB. A part of a batch is copied, so that it does not keep the whole batch in memory while the next
    batch is read.
    """
    for batch in batches:
        yield from _pieces(batch, batch_bytes)
        del batch


def _pieces(batch: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    sizes = sum((_sizes(column) for column in batch.columns), np.zeros(len(batch), np.int64))
    ends, first = np.cumsum(sizes), 0
    while first < len(batch):
        last = batch_end_at(ends, first, batch_bytes, LINES_AT_ONCE)
        piece = batch.slice(first, last - first)
        yield piece if len(piece) == len(batch) else pa.concat_batches([piece, piece[:0]])
        first = last


def _sizes(column: pa.Array) -> np.ndarray:
    """Return the size of each value in bytes. Types other than strings and bytes have their mean size."""
    if pa.types.is_dictionary(column.type):
        sizes = _sizes(column.dictionary)
        return sizes[column.indices.fill_null(0).to_numpy()] if len(sizes) else np.zeros(len(column), np.int64)
    if is_text(column.type) or is_bytes(column.type):
        if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):  # Arrow cannot measure them
            column = column.cast(pa.large_binary())
        return np.asarray(pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False), np.int64)
    return np.full(len(column), column.nbytes // max(len(column), 1))


def _as_documents(table: Any, file: SourceFile, row: int, line: int) -> Documents:
    """Convert a table or batch of the file to documents. `row` and `line` are the numbers of its first row in the slice
    and in the file."""
    positions = {name: position for position, name in enumerate(table.schema.names)}
    rows = table.num_rows
    if file.id_column in positions:
        ids = as_strings(table.column(positions[file.id_column]))
    else:
        ids = pa.nulls(rows, pa.large_string())
    columns = {ID: ids, TEXT: as_strings(table.column(positions[file.text_column]))}
    columns |= {name: _carried(table.column(positions[field]), field, file) for name, field in file.carried.items()}
    if file.label and REJECTED in positions:
        columns[REJECTED] = as_strings(table.column(positions[REJECTED]))
    kept, rejected = table_rows(pa.table(columns), row, line, file.max_document_bytes, file.types)
    return Documents(kept, rejected, rows, rows)


def _carried(column: Any, name: str, file: SourceFile) -> pa.Array:
    try:
        return as_one_array(as_json(column)) if is_list(column.type) else as_strings(column)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, TypeError):
        raise InputError(f"column {name!r} of {shown(file.path)} is {column.type}, which has no text form") from None


def _numbered(
    batches: Iterator[pa.RecordBatch], file: SourceFile, batch_bytes: int, row: int, line: int
) -> Iterator[Documents]:
    """Yield the documents of consecutive batches. `row`: position of the first row; `line`: its number in the file."""
    taken = 0
    try:
        for batch in _cut(batches, batch_bytes):
            yield _as_documents(batch, file, row + taken, line + taken)
            taken += len(batch)
    except (pa.ArrowException, EOFError, OSError) as error:
        if is_of_system(error):
            raise
        yield _damage(file, row + taken, line + taken, str(error))


def _damage(file: SourceFile, row: int, line: int, error: str) -> Documents:
    damage = Rejected(row, line, -1, f"the file is damaged or cut off: {error}")
    return Documents(schema_of(file.carried).empty_table(), [damage], 1, 1)


# Parquet


def open_parquet(file: SourceFile) -> pq.ParquetFile:
    """Open a Parquet file. Raises InputError if it is not a Parquet file."""
    path = local_path(file)
    try:
        if is_remote(path):
            return pq.ParquetFile(pa.PythonFile(open_raw(file.path, file.planned), "r"))
        # Not memory-mapped, since truncating a mapped file kills the process. Buffering all row groups is not faster.
        # Without a small buffer per column, the stored bytes of a whole row group would be in memory.
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES)
    except MemoryError:  # Arrow's MemoryError is an ArrowException too
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        refuse_local(file.path, error)
        what = str(error).partition(". Either the file")[0]
        raise InputError(
            f"{shown(file.path)} is not a readable Parquet file: {what}. Download it again, or set format: of the input"
        ) from None


def row_groups(file: SourceFile) -> list[int]:
    """Return the uncompressed bytes of each row group of a Parquet file."""
    metadata = open_parquet(file).metadata
    return [metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)]


def decoded_row_groups(file_range: FileRange, allowed: int) -> list[int]:
    """Return the bytes of each row group of a range: its uncompressed bytes. If its decoded bytes may exceed `allowed`,
    return their upper bound instead."""
    file, opened = file_range.file, open_parquet(file_range.file)
    names, sizes = _wanted(opened.schema_arrow.names, file), []
    for group in range(file_range.start, file_range.stop):
        most = int(_bounds_of(file, opened, range(group, group + 1), names).bytes[-1])
        sizes.append(most if most > allowed else opened.metadata.row_group(group).total_byte_size)
    return sizes


def rows_in(file_range: FileRange) -> int:
    """Return the number of rows in a range of row groups, from the footer of the file."""
    metadata = open_parquet(file_range.file).metadata
    return sum(metadata.row_group(group).num_rows for group in range(file_range.start, file_range.stop))


def _read_around_damage(
    opened: pq.ParquetFile, file_range: FileRange, names: list[str], batch_bytes: int, line: int, taken: int
) -> Iterator[Documents]:
    """Yield the rows after the first `taken`, row group by row group. Damage loses only the rest of the row group that
    has it, so the result does not depend on the slices."""
    row = taken
    for group in range(file_range.start, file_range.stop):
        rows = opened.metadata.row_group(group).num_rows
        if rows > taken:
            batches = _batches(opened, group, names, taken)
            for documents in _numbered(batches, file_range.file, batch_bytes, row, line + taken):
                yield documents
                row += documents.rows
        taken = max(0, taken - rows)
        line += rows


def _batches(opened: pq.ParquetFile, group: int, names: list[str], taken: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group after the first `taken`. If the group is damaged, rows before the damage are read
    one by one."""
    done = 0
    try:
        for batch in opened.iter_batches(MIN_ROWS, row_groups=[group], columns=names):
            done += batch.num_rows
            if done > taken:
                yield batch.slice(batch.num_rows - (done - taken))
                taken = done
    except (pa.ArrowException, OSError) as error:
        if is_of_system(error):
            raise
        yield from islice(opened.iter_batches(1, row_groups=[group], columns=names), taken, None)


def _bounded_batches(
    file: SourceFile, opened: pq.ParquetFile, groups: range, names: list[str], batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of row groups. As many rows are decoded at once as can have at most `batch_bytes`."""
    bounds = _bounds_of(file, opened, groups, names)
    taken, first = 0, bounds.rows_from(0, batch_bytes)
    for batch in opened.iter_batches(first, row_groups=groups, columns=names):
        taken += len(batch)
        opened.reader.set_batch_size(bounds.rows_from(taken, batch_bytes))  # for the next batch
        yield batch
        del batch


def _bounds_of(file: SourceFile, opened: pq.ParquetFile, groups: range, names: list[str]) -> RowBounds:
    path = local_path(file)
    return bounds_of("" if is_remote(path) else path, opened, groups, names)


# Arrow IPC


@contextmanager
def _opened_arrow(file: SourceFile) -> Iterator[tuple[Any, list[str], Source]]:
    """Open Arrow IPC: yield its reader (indexed for the file form), its column names, and its source.

    If a file in the file form can only be read from its beginning, it is read as a stream. Raises InputError if the
    file is not Arrow IPC.
    """
    with _source(file) as source:
        try:
            is_seekable = not (file.compression or file.is_whole or file.bytes == UNKNOWN_SIZE)
            opened = _open_arrow(source, is_seekable)
            names = opened.schema.names
        except MemoryError:  # Arrow's MemoryError is an ArrowException too
            raise
        except (pa.ArrowException, EOFError, OSError, UnicodeDecodeError) as error:
            refuse_local(file.path, error)
            raise InputError(f"{shown(file.path)} is not readable Arrow IPC: {error}") from None
        yield opened, names, source


def _source(file: SourceFile) -> Source:
    return Source(open_stream(file.path, file.compression, file.planned), STREAM_BYTES)


def _open_arrow(source: Source, seekable: bool) -> Any:
    opened = pa.PythonFile(source, "r")
    if seekable:
        try:
            return pa.ipc.open_file(opened)
        except pa.ArrowInvalid:  # the stream form, or a truncated file form
            source.seek(0)
    source.pass_start()
    return pa.ipc.open_stream(opened)


def _arrow_batches(file: SourceFile) -> Iterator[pa.RecordBatch]:
    with _opened_arrow(file) as (opened, names, source):
        wanted = _wanted(names, file)
        batches = _batches_of(opened)
        while (batch := _next_batch(batches, file, source)) is not None:
            columns = batch.select(wanted)
            for column in columns.columns:
                _check_offsets(column)
            yield columns
            del batch, columns, column  # before the next one is read
        if not _is_indexed(opened):
            _check_end(source, file)


def _is_indexed(opened: Any) -> bool:
    return hasattr(opened, "num_record_batches")


def _batches_of(opened: Any) -> Iterator[pa.RecordBatch]:
    if _is_indexed(opened):
        return (opened.get_batch(number) for number in range(opened.num_record_batches))
    return iter(opened)


def _next_batch(batches: Iterator[pa.RecordBatch], file: SourceFile, source: Source) -> pa.RecordBatch | None:
    """Return the next batch; None at the end. Raises DamageError if memory runs out because of a wrong length in the
    file."""
    try:
        return next(batches, None)
    except MemoryError:
        with _source(file) as again:
            if not has_forged_length(again, source.position):
                raise
    raise DamageError("the length of a compressed buffer is not that of what is in it")


def _check_end(source: Source, file: SourceFile) -> None:
    """Raise DamageError if other bytes than the footer follow the stream, or the footer is missing. The whole file is
    read, since compressed files have checksums at their end."""
    has_mark = not source.short
    size, tail = 0, b""
    while block := source.read(STREAM_BYTES):
        size, tail = size + len(block), (tail + block)[-FOOTER_END:]
    if source.is_file:
        length = int.from_bytes(tail[: -len(FILE_MAGIC)], "little")
        if not tail.endswith(FILE_MAGIC) or size != length + FOOTER_END:
            raise DamageError("no footer follows its last batch")
    elif size:
        raise DamageError(f"{size} bytes follow the end of its stream")
    elif not has_mark:
        log.warning(
            "%s has no end-of-stream mark. Its format allows that, so nobody can tell whether it is cut off: compare "
            "its number of rows with that of its source", shown(file.path),
        )  # fmt: skip


def _check_offsets(column: pa.Array) -> None:
    """Raise ArrowInvalid for a damaged column. Arrow does not check offsets, and a wrong one would kill the process.

    Malformed UTF-8 is detected later and costs one row.
    """
    kind = AS_BYTES.get(column.type)
    (column.view(kind) if kind else column).validate(full=True)


class _Table(ColumnFormat):
    parts = USED
    may_grow = False
    expansion = (1.0, 8.0)

    def schema(self, file: SourceFile) -> pa.Schema:
        raise NotImplementedError

    def first_rows(self, file: SourceFile) -> pa.RecordBatch | None:
        """Return about the first PROBED_RECORDS rows, fewer if they are long; None for a table without rows."""
        raise NotImplementedError

    def columns(self, file: SourceFile) -> list[str]:
        return list(self.schema(file).names)

    def probe(self, file: SourceFile) -> SourceFile:
        schema = self.schema(file)
        probed = self._with_column(file, list(schema.names))
        _check_types(schema, probed)
        return probed

    def sample_columns(self, file: SourceFile) -> dict[str, list[Any]]:
        """Return the first values of the columns that have only strings, bytes or numbers."""
        try:
            batch = self.first_rows(file)
        except (pa.ArrowException, DamageError) as error:
            raise InputError(
                f"{shown(file.path)} cannot be read: {error}. Download it again, or leave it out"
            ) from None
        if batch is None:
            return {}
        rows, names = batch.slice(0, PROBED_RECORDS), batch.schema.names
        return {names[k]: rows.column(k).to_pylist() for k, field in enumerate(batch.schema) if _is_plain(field.type)}


class Parquet(_Table):
    """Parquet. Ranges are row groups. The format has its own compression."""

    name = "parquet"
    suffixes = (".parquet", ".pq")
    start = rb"PAR1"
    parts = NEEDED
    expansion = (2.5, 8.0)

    def read(self, file_range: FileRange, batch_bytes: int) -> Iterator[Documents]:
        """Yield the documents of row groups. Bad rows are rejected. Damage loses the rest of its row group, which
        becomes one rejected record."""
        file, opened = file_range.file, open_parquet(file_range.file)
        if file_range.start == file_range.stop:
            return
        groups = range(file_range.start, file_range.stop)
        line = sum(opened.metadata.row_group(group).num_rows for group in range(file_range.start))
        names = _wanted(opened.schema_arrow.names, file)
        taken = 0
        try:
            for batch in _cut(_bounded_batches(file, opened, groups, names, batch_bytes), batch_bytes):
                yield _as_documents(batch, file, taken, line + taken)
                taken += len(batch)
        except (pa.ArrowException, OSError) as error:
            if is_of_system(error):
                raise
            yield from _read_around_damage(opened, file_range, names, batch_bytes, line, taken)
        else:
            rows = sum(opened.metadata.row_group(group).num_rows for group in groups)
            if taken != rows:
                yield _damage(file, taken, line + taken, f"its footer counts {rows} rows, but it has {taken}")

    def schema(self, file: SourceFile) -> pa.Schema:
        """Return the Arrow schema that the footer holds or implies."""
        return open_parquet(file).schema_arrow

    def first_rows(self, file: SourceFile) -> pa.RecordBatch | None:
        opened = open_parquet(file)
        names = [field.name for field in opened.schema_arrow if _is_plain(field.type)]
        first: list[pa.RecordBatch] = []
        for batch in opened.iter_batches(MIN_ROWS, columns=names):
            first.append(batch)
            if sum(map(len, first)) >= PROBED_RECORDS or sum(each.nbytes for each in first) > PROBED_TEXT:
                break
        return pa.concat_batches(first) if first else None

    def is_divisible(self, file: SourceFile) -> bool:
        return True

    def spans(self, file: SourceFile, size: Callable[[int], int], later_bytes: int) -> list[tuple[int, int]]:
        """Return the ranges of row groups; sizes are in uncompressed bytes. Later files are assumed to have the same
        compression ratio."""
        groups = row_groups(file)
        spans: list[tuple[int, int]] = []
        remaining = sum(groups) + later_bytes * sum(groups) // max(file.bytes, 1)
        start = taken = 0
        for group, group_bytes in enumerate(groups):
            taken += group_bytes
            if taken >= size(remaining):
                spans.append((start, group + 1))
                remaining -= taken
                start, taken = group + 1, 0
        if start < len(groups) or not spans:
            spans.append((start, len(groups)))
        return spans

    def piece(self, file: SourceFile, number: int, size: int) -> SampledRange | None:
        rows = self.row_counts(file)
        group = number * len(rows) // -(-file.bytes // size)
        return SampledRange(group, min(group + 1, len(rows)), size, max(sum(rows), 1))

    def row_counts(self, file: SourceFile) -> list[int]:
        metadata = open_parquet(file).metadata
        return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


class Arrow(_Table):
    """Arrow IPC in its file form and its stream form."""

    name = "arrow"
    suffixes = (".arrow", ".feather")
    start = rb"ARROW1"

    def read(self, file_range: FileRange, batch_bytes: int) -> Iterator[Documents]:
        """Yield the documents; only one batch of the file is in memory at a time. Bad rows are rejected, and so is the
        rest of a damaged file."""
        return _numbered(_arrow_batches(file_range.file), file_range.file, batch_bytes, 0, 0)

    def schema(self, file: SourceFile) -> pa.Schema:
        """Return the schema at the beginning of the file; no batch is read."""
        with _opened_arrow(file) as (opened, _, _):
            return opened.schema

    def first_rows(self, file: SourceFile) -> pa.RecordBatch | None:
        with _opened_arrow(file) as (opened, _, source):
            batch = _next_batch(_batches_of(opened), file, source)
        for column in batch.columns if batch is not None else ():
            _check_offsets(column)
        return batch

    def piece(self, file: SourceFile, number: int, size: int) -> SampledRange | None:
        return None if file.compression else SampledRange(0, file.bytes, size)
