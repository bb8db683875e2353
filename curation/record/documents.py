# SPDX-License-Identifier: Apache-2.0
"""The schema of `documents/`, and the options of its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import cut_tables
from curation.base.contract import ID, TEXT, Engine
from curation.base.engine import load_engine
from curation.base.number_lists import is_list
from curation.base.parquet import file_options
from curation.models.vectors import arrow_type
from curation.recipes.recipe import Output
from curation.stages import Stage
from curation.stages.base import added_columns
from curation.tokens.ordering import SPLIT

ARROW_TYPES = {"integer": "int64", "number": "double", "boolean": "bool"}
NO_TYPES: Mapping[str, str] = MappingProxyType({})
ROW_GROUP_DOCUMENTS = 20_000
ROW_GROUP_BYTES = 16 << 20  # of text
DOCUMENT_SCHEMA = pa.schema(
    [("doc", pa.int64()), (ID, pa.large_string()), ("source", pa.string()), (TEXT, pa.large_string())]
)


def document_schema(
    columns: Sequence[str], stages: Sequence[Stage] = (), *, splits: bool = False, types: Mapping[str, str] = NO_TYPES
) -> pa.Schema:
    """Return the schema of the tables of `documents/`: doc, id, source and text, then carried columns, then columns of
    stages, then `split` if the run has `splits`. `types` has the declared types of carried columns.
    `curation.base.parquet.file_schema` turns it into the schema of files."""
    carried = {name: ARROW_TYPES.get(types.get(name, ""), "large_string") for name in columns}
    added = (carried | added_columns(stages)).items()
    last = [(SPLIT, pa.string())] if splits else []
    return pa.schema([*DOCUMENT_SCHEMA, *((name, arrow_type(kind)) for name, kind in added), *last])


def encoding_engine(output: Output, engine: str) -> Engine:
    """Return the engine that encodes `documents/` and `removed/` in a run of an engine ("cpu" or "gpu")."""
    return load_engine(engine if output.parquet == "gpu" else "cpu")


def columns_beside_text(columns: Sequence[str], stages: Sequence[Stage]) -> pa.Schema:
    """Return the columns of `documents/` after the text: carried columns and columns of stages, without vectors."""
    fields = [*document_schema(columns, stages)][len(DOCUMENT_SCHEMA) :]
    return pa.schema([field for field in fields if not is_list(field.type)])


def document_options(schema: pa.Schema) -> dict[str, Any]:
    """Return the options of the files of `documents/`. Only `source` and `split` have dictionaries, since dictionaries
    do not make texts smaller."""
    return file_options(schema, ("source", SPLIT))


def in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table in a schema. Columns of the schema that the table lacks are null."""
    known = {*table.column_names}
    columns = [
        _cast(table.column(field.name), field.type) if field.name in known else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column in another type. Empty strings become null if the new type is a number or bool."""
    if pa.types.is_large_string(column.type) and (pa.types.is_primitive(kind) or pa.types.is_boolean(kind)):
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    return column.cast(kind)


def row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows as row groups, cut at fixed counts of documents and bytes, so that they do not depend on
    slices and batches."""
    for _, group in groupby(cut_tables(tables, ROW_GROUP_DOCUMENTS, ROW_GROUP_BYTES), itemgetter(0)):
        yield pa.concat_tables([rows for _, rows in group]).combine_chunks()
