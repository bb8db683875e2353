# SPDX-License-Identifier: Apache-2.0
"""Slices in, Arrow out.

Row groups of Parquet are decoded on the device where a look at them finds nothing unusual; everything else is read by
the host's readers, which are exact about what is not a document, and comes over in one transfer per batch.
"""

import logging
from collections.abc import Iterator
from typing import Any

import cudf
import cupy as cp
import msgspec
import numpy as np
import pyarrow as pa

from curation.contract import ID, ROW, TEXT, Batch
from curation.reading import read_documents, row_groups
from curation.reading.inputs import FilePart, Slice, SourceFile
from curation.reading.streams import is_remote
from curation.reading.tabular import schema_in
from gpu_pipeline import kernels
from gpu_pipeline.buffers import DEVICE, buffers_of, memory_errors, prepare_device

log = logging.getLogger(__name__)

CUDF_ERRORS = (MemoryError, OSError, OverflowError, RuntimeError, TypeError, ValueError)  # what C++ errors become
MAX_RUN_SHARE = 2  # of a batch: a row group that is larger is read on the host, which can cut it


def read_slice(piece: Slice, batch_bytes: int) -> Iterator[Batch]:
    if len(piece.parts) == 1 and _is_plain_parquet(piece.parts[0].file):
        yield from _read_row_groups(piece, batch_bytes)
    else:
        yield from _read_on_host(piece, batch_bytes, 0)


def _read_on_host(piece: Slice, batch_bytes: int, row: int) -> Iterator[Batch]:
    """The batches of the host's readers, with rows counted from `row`."""
    for documents in read_documents(piece, batch_bytes):
        frame = from_arrow(documents.table)
        if row:
            frame[ROW] += row
        rejected = [entry._replace(row=entry.row + row) for entry in documents.rejected]
        yield Batch(frame, rejected, *documents[2:])


def _is_plain_parquet(file: SourceFile) -> bool:
    """Strings in all wanted columns of a local file. cuDF takes folders as `key=value` for columns."""
    if file.format != "parquet" or is_remote(file.path) or "=" in file.path:
        return False
    kinds = {field.name: field.type for field in schema_in(file)}
    wanted = [kinds[name] for name in _columns(file, kinds)]
    return all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in wanted)


def _columns(file: SourceFile, names: Any) -> list[str]:
    return list(dict.fromkeys([file.text_column, *({file.id_column} & {*names}), *file.columns]))


def _read_row_groups(piece: Slice, batch_bytes: int) -> Iterator[Batch]:
    """Row groups of about `batch_bytes` together, each run of them on the device or, where that declines, the host."""
    row = 0
    for part, size in _runs(piece.parts[0], batch_bytes):
        frame = _decode(part, row) if size <= MAX_RUN_SHARE * batch_bytes else None
        found = (
            _read_on_host(msgspec.structs.replace(piece, parts=[part]), batch_bytes, row)
            if frame is None
            else [Batch(frame, [], len(frame), len(frame))]
        )
        for batch in found:
            yield batch
            row += batch.rows


def _runs(part: FilePart, batch_bytes: int) -> Iterator[tuple[FilePart, int]]:
    """Row groups and their bytes: as many as stay below `batch_bytes`, or one that is larger."""
    sizes = row_groups(part.file)
    start, taken = part.start, 0
    for group in range(part.start, part.stop):
        if taken and taken + sizes[group] > batch_bytes:
            yield msgspec.structs.replace(part, start=start, stop=group), taken
            start, taken = group, 0
        taken += sizes[group]
    if start < part.stop:
        yield msgspec.structs.replace(part, start=start, stop=part.stop), taken


@memory_errors()
def _decode(part: FilePart, row: int) -> cudf.DataFrame | None:
    """The documents of some row groups; None where they hold none, a null, malformed UTF-8, a document that is too
    large, or what cuDF cannot read or the device has no room for: the host's reader is exact about these."""
    prepare_device()
    file = part.file
    names = _columns(file, schema_in(file).names)
    groups = [[*range(part.start, part.stop)]]
    try:
        read = cudf.read_parquet(file.path, columns=names, row_groups=groups, use_pandas_metadata=False)
    except CUDF_ERRORS as error:
        log.warning("%s: row groups %d to %d are read on the host: %s", file.path, part.start, part.stop, error)
        return None
    if not (len(read) and _is_sound(read[file.text_column], file.max_document_bytes) and _is_sound_id(read, file)):
        return None
    columns = {ROW: cp.arange(row, row + len(read)), ID: _ids(read, file), TEXT: read[file.text_column]}
    return cudf.DataFrame(columns | {name: read[name] for name in file.columns})


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
    return frame.assign(**columns)
