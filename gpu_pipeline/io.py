# SPDX-License-Identifier: Apache-2.0
"""Reads slices into cuDF frames; converts frames from and to Arrow.

The device decodes Parquet row groups if all wanted columns are strings, without nulls or malformed UTF-8. The device
also finds the documents of JSON Lines (`gpu_pipeline.json_lines`). The host's readers read everything else, with one
transfer per batch; they report exactly which records are not documents.
"""

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import cudf
import cupy as cp
import msgspec
import numpy as np
import pyarrow as pa

from curation.base.contract import ID, ROW, TEXT, Batch
from curation.reading import lines, read_documents
from curation.reading.documents import Documents
from curation.reading.formats import format_of
from curation.reading.formats.tabular import Parquet, decoded_row_groups, open_parquet, rows_in
from curation.reading.locations import Location, shifted
from curation.reading.slice_documents import groups_of
from curation.reading.source_files import FileRange, Slice, SourceFile
from curation.reading.urls import is_remote
from gpu_pipeline.json_lines import parse_block
from gpu_pipeline.kernels import text_kernels
from gpu_pipeline.memory import host_memory
from gpu_pipeline.memory.buffers import buffers_of, eight_byte_blocks, is_text, string_array, uploaded
from gpu_pipeline.memory.device import column_bytes, is_lost, on_device, reserved

log = logging.getLogger(__name__)

# Python errors that cuDF raises for C++ exceptions
CUDF_ERRORS = (ArithmeticError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)
PATH_MARKS = ("=", "*", "?", "[", "]", "~", "::")  # cuDF reads paths with these as patterns or partitions
MAX_GROUPS_SHARE = 2  # of a batch; the host reads larger row groups, since it can split them


def read_slice(input_slice: Slice, batch_bytes: int) -> Iterator[Batch]:
    host_memory.prepare(batch_bytes)
    if all(format_of(file_range.file).is_plain_lines(file_range.file) for file_range in input_slice.ranges):
        yield from _read_lines(input_slice, batch_bytes)
        return
    columns = {_plain_columns(file_range.file) for file_range in input_slice.ranges}
    plain = columns.pop() if len(columns) == 1 else None
    if plain is None:
        yield from _read_on_host(input_slice, batch_bytes)
    else:
        yield from _read_row_groups(input_slice, list(plain), batch_bytes)


def _plain_columns(file: SourceFile) -> tuple[str, ...] | None:
    """Return the wanted columns of a local Parquet file if all are strings, else None. The result is also None for
    paths that cuDF would expand: `key=value` folders, patterns, home directories, chained file systems."""
    is_parquet = isinstance(format_of(file), Parquet)
    if not is_parquet or file.types or is_remote(file.path) or any(mark in file.path for mark in PATH_MARKS):
        return None
    kinds = {field.name: field.type for field in open_parquet(file).schema_arrow}
    names = tuple(dict.fromkeys([file.text_column, *({file.id_column} & {*kinds}), *file.carried.values()]))
    plain = all(pa.types.is_string(kinds[name]) or pa.types.is_large_string(kinds[name]) for name in names)
    return names if plain else None


def _read_on_host(input_slice: Slice, batch_bytes: int, row: int = 0, first_range: int = 0) -> Iterator[Batch]:
    """Yield the batches of the host's readers. Rows are numbered from `row`, the ranges of the slice from
    `first_range`."""
    for documents in read_documents(input_slice, batch_bytes):
        with reserved(documents.table.nbytes):
            yield _as_batch(documents, row, first_range)


def _as_batch(documents: Documents, row: int, first_range: int) -> Batch:
    frame = from_arrow(documents.table) if isinstance(documents.table, pa.Table) else documents.table
    if row:
        frame[ROW] += row
    rejected = [
        entry._replace(row=entry.row + row, file_index=entry.file_index + first_range) for entry in documents.rejected
    ]
    locations = shifted(documents.locations, row, first_range)
    return Batch(frame, rejected, *documents[2:5], locations=locations, others=documents.others)  # archives: row is 0


def _read_lines(input_slice: Slice, batch_bytes: int) -> Iterator[Batch]:
    """Read JSON Lines: the device parses large files; the host reads small files, several together."""
    row = number = 0
    for ranges in groups_of(input_slice.ranges):
        if len(ranges) > 1:
            batches = _read_on_host(msgspec.structs.replace(input_slice, ranges=ranges), batch_bytes, row, number)
        else:
            batches = _read_file(ranges[0], batch_bytes, row, number, len(input_slice.ranges) > 1)
        for batch in batches:
            row += batch.rows
            yield batch
            del batch  # its memory is reserved no longer
        number += len(ranges)


def _read_file(file_range: FileRange, batch_bytes: int, row: int, number: int, is_marked: bool) -> Iterator[Batch]:
    start = [Location(row, number, 0)] if is_marked else []
    for documents in lines.read_jsonl(file_range, batch_bytes, _parse, host_memory.empty_bytes):
        batch = _as_batch(documents, row, number)
        yield batch._replace(locations=[*start, *batch.locations])
        del batch, documents
        start = []


def _parse(data: np.ndarray, *arguments: Any) -> Iterator[Documents]:
    with reserved(data.size):  # until the documents of the block are done
        yield from parse_block(data, *arguments)


class RowGroups(NamedTuple):
    """Row groups that are read together: from one file range of a slice, or from several small ranges."""

    first_range: int  # number of the first range in the slice
    ranges: list[FileRange]
    bytes: int


def _read_row_groups(input_slice: Slice, columns: list[str], batch_bytes: int) -> Iterator[Batch]:
    """Read row groups in turn, on the device, or on the host if `_decode` returns None."""
    row = 0
    for groups in _row_groups(input_slice, batch_bytes):
        continued = groups.ranges[0].start != input_slice.ranges[groups.first_range].start
        start = [] if continued or len(input_slice.ranges) == 1 else [Location(row, groups.first_range, 0)]
        for batch in _read_groups(input_slice, groups, columns, batch_bytes, row):
            row += batch.rows
            yield batch._replace(
                locations=[*start, *(each for each in batch.locations if each.file_index > groups.first_range)]
            )
            start = []
            del batch  # its memory is reserved no longer


def _read_groups(
    input_slice: Slice, groups: RowGroups, columns: list[str], batch_bytes: int, row: int
) -> Iterator[Batch]:
    if groups.bytes <= MAX_GROUPS_SHARE * batch_bytes:
        with reserved(groups.bytes):
            frame = _decode(groups.ranges, columns, row)
            if frame is not None:
                yield Batch(frame, [], len(frame), len(frame), locations=_locations(groups, row))
                return
    ranges = msgspec.structs.replace(input_slice, ranges=groups.ranges)
    yield from _read_on_host(ranges, batch_bytes, row, groups.first_range)


def _locations(groups: RowGroups, row: int) -> list[Location]:
    """Return the location of the first document of each file range in `groups`; the documents are numbered from
    `row`."""
    locations = []
    for number, file_range in enumerate(groups.ranges):
        locations.append(Location(row, groups.first_range + number, 0))
        row += rows_in(file_range)
    return locations


def _row_groups(input_slice: Slice, batch_bytes: int) -> Iterator[RowGroups]:
    """Yield row groups of at most `batch_bytes` in all, or a single larger row group."""
    members: list[tuple[int, int]] = []  # (file range, row group)
    size = 0
    for number, file_range in enumerate(input_slice.ranges):
        for group, group_bytes in enumerate(
            decoded_row_groups(file_range, MAX_GROUPS_SHARE * batch_bytes), file_range.start
        ):
            if members and size + group_bytes > batch_bytes:
                yield _joined_groups(input_slice, members, size)
                members, size = [], 0
            members.append((number, group))
            size += group_bytes
    if members:
        yield _joined_groups(input_slice, members, size)


def _joined_groups(input_slice: Slice, members: list[tuple[int, int]], size: int) -> RowGroups:
    (first, start), (last, stop) = members[0], members[-1]
    ranges = input_slice.ranges[first : last + 1]
    ranges[0] = msgspec.structs.replace(ranges[0], start=start)
    ranges[-1] = msgspec.structs.replace(ranges[-1], stop=stop + 1)
    return RowGroups(first, ranges, size)


@on_device(lambda ranges, *_: 0)
def _decode(ranges: list[FileRange], columns: list[str], row: int) -> cudf.DataFrame | None:
    """Return the documents of some row groups, or None if the host must read them. Reasons are no rows, a null,
    malformed UTF-8, a document above the limit, and row groups that cuDF cannot read or the device cannot hold."""
    ranges = [each for each in ranges if each.start < each.stop]
    paths, groups = [each.file.path for each in ranges], [[*range(each.start, each.stop)] for each in ranges]
    try:
        read = cudf.read_parquet(
            paths,
            columns=columns,
            row_groups=groups,
            use_pandas_metadata=False,
            ignore_missing_columns=False,
            dataset_kwargs={},
        )
    except CUDF_ERRORS as error:
        if is_lost(error):
            raise
        log.warning("%s: row groups from %d on are read on the host: %s", paths[0], ranges[0].start, error)
        return None
    file = ranges[0].file
    others = [name for name in read.columns if name != file.text_column]
    if not (len(read) and _is_sound(read[file.text_column], file.max_document_bytes)):
        return None
    if not all(_is_utf8(read[name]) for name in others):
        return None
    documents = {ROW: cp.arange(row, row + len(read)), ID: _ids(read, file), TEXT: read[file.text_column]}
    return cudf.DataFrame(documents | {name: read[field] for name, field in file.carried.items()})


def _ids(read: cudf.DataFrame, file: SourceFile) -> cudf.Series:
    if file.id_column in read.columns:
        return read[file.id_column]
    return cudf.Series.from_arrow(pa.nulls(len(read), pa.large_string()))


def _is_sound(text: cudf.Series, max_bytes: int) -> bool:
    """Whether a column has no nulls, no document above `max_bytes`, and well-formed UTF-8 only."""
    if text.null_count:
        return False
    _, offsets, _ = buffers_of(text)
    return not bool((offsets[1:] - offsets[:-1] > max_bytes).any()) and _is_utf8(text)


def _is_utf8(text: cudf.Series) -> bool:
    data, offsets, nulls = buffers_of(text)
    valid = cp.ones(len(text), bool) if nulls is None else nulls
    return bool(text_kernels.sound_documents(data, eight_byte_blocks(data), offsets, valid).all())


@on_device(lambda table: table.nbytes)
def from_arrow(table: pa.Table) -> cudf.DataFrame:
    """Texts are copied through page-locked memory."""
    texts, others = {}, {}
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            texts[field.name] = column.cast(pa.large_string())
        elif pa.types.is_fixed_size_list(field.type):  # cuDF has no such lists
            others[field.name] = column.cast(pa.list_(field.type.value_type))
        else:
            others[field.name] = column
    rest = cudf.DataFrame.from_arrow(pa.table(others)) if others else {}
    index = cudf.RangeIndex(len(table))
    columns = {name: uploaded(texts[name], index, name) if name in texts else rest[name] for name in table.column_names}
    return cudf.DataFrame(columns, index=index)


def to_arrow(frame: cudf.DataFrame) -> pa.Table:
    """Texts are copied through page-locked memory."""
    texts = {name: string_array(frame[name]) for name in frame.columns if is_text(frame[name])}
    others = [name for name in frame.columns if name not in texts]
    rest = dict(zip(others, frame[others].to_arrow(preserve_index=False).columns, strict=True)) if others else {}
    return pa.table({str(name): texts[name] if name in texts else rest[name] for name in frame.columns})


def _text_bytes(frame: cudf.DataFrame, *_: Any) -> int:
    return column_bytes(frame[TEXT]) if TEXT in frame.columns else 0


@on_device(_text_bytes)
def filter_rows(frame: cudf.DataFrame, mask: np.ndarray) -> cudf.DataFrame:
    return frame if mask.all() else frame[mask]


@on_device(_text_bytes)
def with_columns(frame: cudf.DataFrame, columns: dict[str, Any]) -> cudf.DataFrame:
    out = frame.copy(deep=False)
    for name, values in columns.items():
        out[name] = host_memory.in_one_piece(values) if isinstance(values, np.ndarray) else values
    return out
