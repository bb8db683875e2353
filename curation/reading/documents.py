# SPDX-License-Identifier: Apache-2.0
"""The result of every reader, and the checks that all readers share."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence
from math import isinf
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import as_one_array, text_buffers
from curation.base.contract import ID, ROW, TEXT, Rejected
from curation.base.records import OtherRecord
from curation.kernels import jsonl
from curation.reading.locations import Location

SHOWN_FIELDS = 10
HELD_BYTES = 256  # overhead of a row, archive record or rejected record besides its text: 158 to 358 measured
LINES_AT_ONCE = 1 << 16  # lines or texts: 4 MiB if each has 64 bytes; 20 MB if all are rejected
NULL_TEXT = "text is null"
TYPES = {  # texts of values, as Arrow converts them
    "integer": re.compile("-?[0-9]{1,25}"),
    "number": re.compile("-?[0-9]+(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?"),
    "boolean": re.compile("true|false", re.IGNORECASE),
}
SHOWN_CHARACTERS = 40
REJECTED = "curation.rejected"  # column in the file of a data set: a row with an error in it is no document
MALFORMED = "curation.malformed"  # codec error handler for encoding and decoding


def _mark_malformed(error: UnicodeError) -> tuple[str | bytes, int]:
    """Decode malformed bytes to a lone surrogate, and encode each lone surrogate as a byte that is not UTF-8."""
    assert isinstance(error, UnicodeDecodeError | UnicodeEncodeError)
    return ("\udcff" if isinstance(error, UnicodeDecodeError) else b"\xff" * (error.end - error.start)), error.end


codecs.register_error(MALFORMED, _mark_malformed)


class Documents(NamedTuple):
    """A batch of a slice.

    table      documents, with the schema of `schema_of`
    rejected   records that are no documents
    rows       number of records: documents, rejected records, and responses in web archives that are no pages
    lines      number of lines (JSON Lines), rows or records of the file
    repaired   number of documents in which malformed UTF-8 became U+FFFD
    locations  locations of records that do not directly follow the record before them
    others     skipped records of web archives
    """

    table: pa.Table
    rejected: list[Rejected]
    rows: int
    lines: int
    repaired: int = 0
    locations: Sequence[Location] = ()
    others: Sequence[OtherRecord] = ()


def schema_of(columns: Iterable[str]) -> pa.Schema:
    """Return the schema of documents: `row` (int64), then as large_string `id` (null where the record has none), `text`
    and the carried columns."""
    carried = [(name, pa.large_string()) for name in columns]
    return pa.schema([(ROW, pa.int64()), (ID, pa.large_string()), (TEXT, pa.large_string()), *carried])


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is a string type, or a dictionary of strings."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a type is bytes or a dictionary of bytes. Old Spark, Hive and Impala store UTF-8 as bytes."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)


def as_strings(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as large_string. Its bytes are not checked: `table_rows` rejects rows that are not UTF-8."""
    options = pc.CastOptions(pa.large_string(), allow_invalid_utf8=is_bytes(column.type))
    return as_one_array(column.cast(options=options))


def type_problem(name: str, value: str | None, kind: str) -> str:
    """Return why the value of a carried column does not have its declared type; "" if it does. Empty values are
    null."""
    if not value or kind not in TYPES:
        return ""
    if not TYPES[kind].fullmatch(value):
        return f"column {name} is {value[:SHOWN_CHARACTERS]!r}, expected the type {kind}"
    is_large = kind == "integer" and not -(1 << 63) <= int(value) < 1 << 63
    if is_large or (kind == "number" and isinf(float(value))):
        return f"column {name} is {value[:SHOWN_CHARACTERS]}, too large for the type {kind}. Leave its type out"
    return ""


def shown_names(names: Sequence[str]) -> str:
    """Return the first SHOWN_FIELDS names as a list for messages, with `...` if there are more names."""
    listed = ", ".join(map(repr, names[:SHOWN_FIELDS]))
    return f"[{listed}{', ...' if len(names) > SHOWN_FIELDS else ''}]"


def valid_utf8(text: pa.Array) -> np.ndarray:
    """Return per string (large_string array) whether it is not null and well-formed UTF-8 (bool array).

    Strings of Parquet and Arrow files may hold malformed bytes.
    """
    valid = np.empty(len(text), np.bool_)
    jsonl.check_utf8(*text_buffers(text), valid)
    return valid & np.asarray(text.is_valid())


def strings(values: Sequence[bytes]) -> tuple[pa.Array, int]:
    """Return texts as large_string, and the number of texts with malformed UTF-8.

    Malformed bytes become U+FFFD (Unicode 17.0, section 3.9).
    """
    raw = pa.array(values, pa.large_binary()).view(pa.large_string())
    broken = np.flatnonzero(~valid_utf8(raw))
    if len(broken) == 0:
        return raw, 0
    fixed = list(values)
    for k in broken.tolist():
        fixed[k] = values[k].decode("utf-8", "replace").encode()
    return pa.array(fixed, pa.large_binary()).view(pa.large_string()), len(broken)


def table_rows(
    table: pa.Table, row: int, line: int, reject_large: int, types: Mapping[str, str]
) -> tuple[pa.Table, list[Rejected]]:
    """Split a table into documents and rejected records.

    table          schema of `schema_of`, without `row`; REJECTED may follow
    row, line      position of the first row in the slice, and in the file; the column `row` of the documents begins at
                   `row`
    reject_large   maximum size of a text in bytes; larger texts are rejected
    types          declared type of carried columns

    A row is rejected for a null text, a text that is too large, malformed UTF-8, and a value of another type.
    """
    errors: list[str | None] = [None] * len(table)
    if REJECTED in table.column_names:
        errors, table = table.column(REJECTED).to_pylist(), table.drop_columns([REJECTED])
    text = as_one_array(table.column(TEXT))
    fits = np.diff(text_buffers(text)[1]) <= reject_large
    nulls = np.asarray(text.is_null())
    valid = {}
    for name in [TEXT, *(name for name in table.column_names if name != TEXT)]:
        column = as_one_array(table.column(name))
        valid[name] = valid_utf8(column) | np.asarray(column.is_null())
    rejected = []
    kept = fits & ~nulls & np.logical_and.reduce([*valid.values()])
    for name, kind in types.items():
        written = table.column(name).cast(pa.large_binary()).to_pylist()
        values = [value if is_valid else None for value, is_valid in zip(written, valid[name], strict=True)]
        for k, value in enumerate(values):
            problem = type_problem(name, value.decode() if value else None, kind)
            if problem and kept[k]:
                kept[k], errors[k] = False, problem
    for k in np.flatnonzero(~kept).tolist():
        malformed = next((name for name in valid if not valid[name][k]), "")
        if nulls[k]:
            error = errors[k] or NULL_TEXT
        elif malformed:
            error = f"{malformed if malformed in (TEXT, ID) else f'column {malformed}'} is not valid UTF-8"
        else:
            error = too_large(reject_large) if not fits[k] else errors[k] or ""
        rejected.append(Rejected(row + k, line + k, -1, error))
    numbered = table.add_column(0, ROW, pa.array(np.arange(row, row + len(text)), pa.int64()))
    return (numbered.filter(pa.array(kept)) if rejected else numbered), rejected


def too_large(limit: int) -> str:
    """Return the error of a record above the limit. The message does not have its size, since such a record is not read
    fully."""
    return f"larger than max_document_bytes ({limit})"
