# SPDX-License-Identifier: Apache-2.0
"""Slices in, Arrow out.

Row groups of Parquet are decoded on the device where a look at them finds nothing unusual; everything else is read by
the host's readers, which are exact about what is not a document, and comes over in one transfer per batch.
"""

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import cudf
import cupy as cp
import msgspec
import numpy as np
import pyarrow as pa

from curation.contract import ID, ROW, TEXT, Batch
from curation.reading import read_documents, row_groups
from curation.reading.source_files import FilePart, Slice, SourceFile
from curation.reading.tabular import schema_in
from curation.reading.urls import is_remote
from gpu_pipeline import kernels
from gpu_pipeline.buffers import DEVICE, buffers_of, memory_errors, prepare_device

log = logging.getLogger(__name__)

# What C++ errors become
CUDF_ERRORS = (ArithmeticError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)
PATH_MARKS = ("=", "*", "?", "[", "]", "~", "::")
MAX_RUN_SHARE = 2  # of a batch: a row group that is larger is read on the host, which can cut it


def read_slice(piece: Slice, batch_bytes: int) -> Iterator[Batch]:
    columns = {_plain_columns(part.file) for part in piece.parts}
    if len(columns) == 1 and None not in columns:
        yield from _read_row_groups(piece, list(columns.pop()), batch_bytes)
    else:
        yield from _read_on_host(piece, batch_bytes)


def _plain_columns(file: SourceFile) -> tuple[str, ...] | None:
    """The wanted columns of a local Parquet file, where all are strings. cuDF takes some paths for more than they are:
    folders as `key=value`, patterns, a home directory, a chain of file systems."""
    if file.format != "parquet" or is_remote(file.path) or any(mark in file.path for mark in PATH_MARKS):
        return None
    kinds = {field.name: field.type for field in schema_in(file)}
    names = tuple(dict.fromkeys([file.text_column, *({file.id_column} & {*kinds}), *file.columns]))
    plain = all(pa.types.is_string(kinds[name]) or pa.types.is_large_string(kinds[name]) for name in names)
    return names if plain else None


def _read_on_host(piece: Slice, batch_bytes: int, row: int = 0, part: int = 0) -> Iterator[Batch]:
    """The batches of the host's readers; rows and the slice's parts count from `row` and `part`."""
    for documents in read_documents(piece, batch_bytes):
        frame = from_arrow(documents.table)
        if row:
            frame[ROW] += row
        rejected = [entry._replace(row=entry.row + row, part=entry.part + part) for entry in documents.rejected]
        yield Batch(frame, rejected, *documents[2:])


class Run(NamedTuple):
    """Row groups that are read together: of one part of a slice, or of several small ones."""

    number: int  # of the first part
    parts: list[FilePart]
    bytes: int


def _read_row_groups(piece: Slice, columns: list[str], batch_bytes: int) -> Iterator[Batch]:
    """One run after the other, each on the device or, where that declines, by the host."""
    row = 0
    for run in _runs(piece, batch_bytes):
        frame = _decode(run.parts, columns, row) if run.bytes <= MAX_RUN_SHARE * batch_bytes else None
        found = (
            _read_on_host(msgspec.structs.replace(piece, parts=run.parts), batch_bytes, row, run.number)
            if frame is None
            else [Batch(frame, [], len(frame), len(frame))]
        )
        for batch in found:
            yield batch
            row += batch.rows


def _runs(piece: Slice, batch_bytes: int) -> Iterator[Run]:
    """As many row groups as stay below `batch_bytes`, or one that is larger."""
    places: list[tuple[int, int]] = []  # part and row group
    taken = 0
    for number, part in enumerate(piece.parts):
        sizes = row_groups(part.file)
        for group in range(part.start, part.stop):
            if places and taken + sizes[group] > batch_bytes:
                yield _run_of(piece, places, taken)
                places, taken = [], 0
            places.append((number, group))
            taken += sizes[group]
    if places:
        yield _run_of(piece, places, taken)


def _run_of(piece: Slice, places: list[tuple[int, int]], size: int) -> Run:
    (first, start), (last, stop) = places[0], places[-1]
    parts = piece.parts[first : last + 1]
    parts[0] = msgspec.structs.replace(parts[0], start=start)
    parts[-1] = msgspec.structs.replace(parts[-1], stop=stop + 1)
    return Run(first, parts, size)


@memory_errors()
def _decode(parts: list[FilePart], columns: list[str], row: int) -> cudf.DataFrame | None:
    """The documents of some row groups; None where they hold none, a null, malformed UTF-8, a document that is too
    large, or what cuDF cannot read or the device has no room for: the host's reader is exact about these."""
    prepare_device()
    parts = [part for part in parts if part.start < part.stop]
    paths, groups = [part.file.path for part in parts], [[*range(part.start, part.stop)] for part in parts]
    try:
        read = cudf.read_parquet(
            paths, columns=columns, row_groups=groups, use_pandas_metadata=False, ignore_missing_columns=False
        )
    except CUDF_ERRORS as error:
        log.warning("%s: row groups from %d on are read on the host: %s", paths[0], parts[0].start, error)
        return None
    file = parts[0].file
    if not (len(read) and _is_sound(read[file.text_column], file.max_document_bytes) and _is_sound_id(read, file)):
        return None
    documents = {ROW: cp.arange(row, row + len(read)), ID: _ids(read, file), TEXT: read[file.text_column]}
    return cudf.DataFrame(documents | {name: read[name] for name in file.columns})


def _ids(read: cudf.DataFrame, file: SourceFile) -> cudf.Series:
    if file.id_column in read.columns:
        return read[file.id_column]
    return cudf.Series.from_arrow(pa.nulls(len(read), pa.large_string()))


def _is_sound_id(read: cudf.DataFrame, file: SourceFile) -> bool:
    return file.id_column not in read.columns or _is_utf8(read[file.id_column])


def _is_sound(text: cudf.Series, max_bytes: int) -> bool:
    """No nulls, nothing larger than `max_bytes`, and well-formed UTF-8."""
    if text.null_count:
        return False
    _, offsets, _ = buffers_of(text)
    return not bool((offsets[1:] - offsets[:-1] > max_bytes).any()) and _is_utf8(text)


def _is_utf8(text: cudf.Series) -> bool:
    data, offsets, nulls = buffers_of(text)
    with DEVICE:
        valid = cp.ones(len(text), bool) if nulls is None else nulls
        sound = cp.ones(len(text), bool)
        order = kernels.longest_first(offsets[1:] - offsets[:-1])
        kernels.launch(kernels.check_rows, len(text), data, offsets, valid, order, sound)
        return bool(sound.all())


@memory_errors()
def from_arrow(table: pa.Table) -> cudf.DataFrame:
    prepare_device()
    return cudf.DataFrame.from_arrow(table.replace_schema_metadata())


def to_arrow(frame: cudf.DataFrame) -> pa.Table:
    table = frame.to_arrow(preserve_index=False)
    # cuDF gives `string` or `large_string` by the column's dtype.
    arrays = [column.cast(pa.large_string()) if pa.types.is_string(column.type) else column for column in table.columns]
    return pa.table(arrays, names=[str(name) for name in frame.columns])


@memory_errors()
def filter_rows(frame: cudf.DataFrame, mask: np.ndarray) -> cudf.DataFrame:
    return frame if mask.all() else frame[mask]


@memory_errors()
def with_columns(frame: cudf.DataFrame, columns: dict[str, Any]) -> cudf.DataFrame:
    out = frame.copy(deep=False)
    for name, values in columns.items():
        out[name] = values
    return out
