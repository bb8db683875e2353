# SPDX-License-Identifier: Apache-2.0
"""Tables of polars, DuckDB, pyarrow and other libraries, by the Arrow PyCapsule interface, and single columns.

Stages see a frame of the CPU engine. Columns that stages do not write are taken from the table by the index of the
remaining rows, so their types and values do not change.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from curation.base.arrays import as_one_array
from curation.base.contract import Engine, Frame
from curation.base.engine import FRAME_LIBRARIES, load_engine
from curation.base.errors import ArgumentError, InputError
from curation.stages.invoke import as_column

VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
MAX_STRING_BYTES = 2**31 - 1  # of one array of `string`, whose offsets are int32


def _library_of(value: Any) -> str:
    """Return the package of a value's class, such as `polars`."""
    return type(value).__module__.partition(".")[0].lstrip("_")


def _has_engine(value: Any) -> bool:
    """Return whether a value is of a library whose frames an engine takes, lazy or not."""
    return _library_of(getattr(value, "_meta", value)) in FRAME_LIBRARIES


def is_table(value: Any) -> bool:
    """Return whether a value is a table of a library whose tables no engine takes."""
    return not _has_engine(value) and hasattr(value, "__arrow_c_stream__") and hasattr(value, "columns")


def is_column(value: Any) -> bool:
    """Return whether a value is a column: a Series of pandas, cuDF, Dask or polars, or an array of pyarrow."""
    seen = getattr(value, "_meta", value)
    if _has_engine(value):
        return hasattr(seen, "to_frame") and hasattr(seen, "iloc") and not hasattr(seen, "columns")
    is_stream = hasattr(seen, "__arrow_c_stream__") and hasattr(seen, "__len__") and not hasattr(seen, "columns")
    return is_stream or isinstance(seen, pa.Array)


def framed(column: Any, name: str) -> Any:
    """Return a column as a frame, or a table of pyarrow, that has only this column. Raises ArgumentError for a row of a
    frame."""
    if _library_of(column) == "pandas" and name in column.index:
        raise ArgumentError(f"expected texts, got a row of a frame, with the label {name!r}. Give frame.iloc[[NUMBER]]")
    if _has_engine(column):
        return column.to_frame(name)
    return pa.table({name: pa.chunked_array([column] if isinstance(column, pa.Array) else column)})


def unframed(column: Any, frame: Any, name: str) -> Any:
    """Return `frame`, which was made of a framed column, as a column of the same kind. If it has more columns than
    `name`, return it as a frame of the column's library."""
    if len(frame.columns) > 1 or name not in (frame.column_names if isinstance(frame, pa.Table) else frame.columns):
        return like(column, frame) if isinstance(frame, pa.Table) else frame
    if not isinstance(frame, pa.Table):
        return frame[name].rename(column.name)
    found = as_one_array(frame.column(name)) if isinstance(column, pa.Array) else frame.column(name)
    return like(column, found).alias(column.name) if _library_of(column) == "polars" else found


def in_memory(value: Any, name: str) -> Frame:
    """Return a frame, a table, or a column with the name `name` as a frame of an engine. Raises ArgumentError for a
    Dask frame."""
    value = framed(value, name) if is_column(value) else value
    if hasattr(value, "map_partitions"):
        raise ArgumentError("expected a frame in memory, got a Dask frame. Call compute() first")
    return as_frame(table_of(value)) if is_table(value) else value


def result_like(value: Any, engine: Engine, table: pa.Table) -> Any:
    """Return a table as a frame of the engine. If no engine takes tables of the library of `value`, return a table of
    that library."""
    return engine.from_arrow(table) if _has_engine(value) else like(value, table)


def check_once(names: Sequence[Any], name: Any) -> None:
    """Raise InputError if several columns have a name."""
    if (count := names.count(name)) > 1:
        raise InputError(f"the frame has {count} columns {name!r}. Drop or rename the others")


def table_of(value: Any) -> pa.Table:
    """Return a table of another library as a pyarrow Table. Strings of polars become large strings. Raises InputError
    for two columns with the same name."""
    table = pa.table(value)
    for name in table.column_names:
        check_once(table.column_names, name)
    return table.cast(pa.schema([field.with_type(VIEWS.get(field.type, field.type)) for field in table.schema]))


def as_frame(table: pa.Table) -> Frame:
    """Return a table as a frame of the CPU engine, whose index has the numbers of the rows."""
    return load_engine("cpu").from_arrow(table)


def as_table(frame: Frame, given: pa.Table, written: Collection[str]) -> pa.Table:
    """Return `frame`, which a stage made of the table `given`, as a table. `written` are the columns that the stage may
    have changed. Text that was of type `string` gets this type again, if it has less than 2 GiB."""
    found, rows = load_engine("cpu").to_arrow(frame), pa.array(frame.index.to_numpy())
    columns = {}
    for name, column in zip(found.column_names, found.columns, strict=True):
        before = given.schema.field(name).type if name in given.column_names else None
        if before is not None and name not in written:
            columns[name] = given.column(name).take(rows)
        elif before == pa.string() and column.nbytes <= MAX_STRING_BYTES:
            columns[name] = as_one_array(column).cast(pa.string())
        else:
            columns[name] = column
    return pa.table(columns)


def like(value: Any, table: pa.Table | pa.ChunkedArray) -> Any:
    """Return a table as a table of the library of `value`: a DataFrame of polars, a relation of DuckDB, else
    `table`."""
    library = _library_of(value)
    return sys.modules[library].from_arrow(table) if library in ("polars", "duckdb") else table


def with_column(engine: Engine, given: Any, frame: Frame, name: str, values: pa.Array) -> Any:
    """Return `given` with the column `name`, which has a value per row; as a frame, if `given` is a column. `frame` has
    the rows of `given`."""
    if _has_engine(given):
        return engine.with_columns(frame, {name: as_column(engine, frame, values)})
    table = engine.to_arrow(frame) if is_column(given) else table_of(given)
    kept = [other for other in table.column_names if other != name]
    return like(given, table.select(kept).append_column(name, values))
