# SPDX-License-Identifier: Apache-2.0
"""Columns as rules see them, on the host: numbers, values in a list, matches of a regular expression."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

EXPECTED = {"text": "strings", "number": "numbers", "truth": "columns of true and false"}
NO_LOOKING_AROUND = "; RE2 has no lookaround and no backreferences"
NUMBER = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"
MARK = r"\0!"  # what a match becomes: itself and one more byte


def kind_of(value: object) -> str:
    """`text`, `number` or `truth`; "" for what no column can be compared with."""
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, str):
        return "text"
    return "number" if isinstance(value, int | float) and math.isfinite(value) else ""


def has_kind(kind: pa.DataType, wanted: str) -> bool:
    """Whether a column of this type has values of a kind; one of nulls alone has all kinds."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_null(kind):
        return True
    if wanted == "truth":
        return pa.types.is_boolean(kind)
    return _is_text(kind) if wanted == "text" else _is_number(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def written_numbers(column: pa.ChunkedArray) -> np.ndarray:
    """float64 of a column of strings, such as the columns that an input carries: NaN where one is no number."""
    column = pc.utf8_trim_whitespace(_decoded(column))
    is_number = pc.match_substring_regex(column, pattern=NUMBER)
    return pc.if_else(is_number, column, None).cast(pa.float64()).to_numpy()


def numbers_of(column: pa.ChunkedArray) -> np.ndarray:
    """float64, NaN for a null, and for all rows of a column of strings or of nulls alone."""
    column = _decoded(column)
    if _is_text(column.type) or pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return column.cast(pa.float64(), safe=False).to_numpy()  # safe: no integer above 2^53


def is_among(column: pa.ChunkedArray, values: Sequence[object]) -> np.ndarray:
    """Whether each row has one of the values; a null has none. Numbers are compared in the column's own type."""
    column = _decoded(column)
    if pa.types.is_null(column.type):
        return np.zeros(len(column), bool)
    return pc.is_in(column, value_set=_as_column(column.type, values)).to_numpy()


def _as_column(kind: pa.DataType, values: Sequence[object]) -> pa.Array:
    """The values in a column's type, but for those that it cannot have."""
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        whole = [int(value) for value in values if value == int(value)]  # type: ignore[call-overload]
        return pa.array([value for value in whole if limits.min <= value <= limits.max], kind)
    if pa.types.is_floating(kind):
        return pa.array([float(value) for value in values], pa.float64()).cast(kind, safe=False)  # type: ignore[arg-type]
    return pa.array(values, kind)


def count_matches(column: pa.ChunkedArray, pattern: str) -> np.ndarray:
    """Matches that do not overlap (float64), in a null as in an empty text.

    Not by `count_substring_regex`: it looks at the rest of a text as at a text of its own, where `^` and `\\b` match
    again. Only rows with a match are counted.
    """
    column = _decoded(column).cast(pa.large_string()).fill_null("")
    found = pc.match_substring_regex(column, pattern=pattern)
    rows = found.to_numpy()
    counts = np.zeros(len(column))
    if rows.any():
        matching = column.filter(found)
        marked = pc.replace_substring_regex(matching, pattern=pattern, replacement=MARK)
        counts[rows] = pc.subtract(pc.binary_length(marked), pc.binary_length(matching)).to_numpy()
    return counts


def pattern_problem(pattern: object) -> str:
    """Why RE2 does not take a pattern; "" where it does."""
    if not isinstance(pattern, str):
        return "must be a string"
    if not pattern:
        return "is empty, and matches every text"
    try:
        pc.match_substring_regex(pa.array([""], pa.large_string()), pattern=pattern)
    except pa.ArrowInvalid as error:
        told = str(error).removeprefix("Invalid regular expression: ")
        hint = NO_LOOKING_AROUND if "perl operator" in told or "escape sequence" in told else ""
        return f"is no regular expression of RE2: {told}{hint}"
    except UnicodeEncodeError:
        return "must be text that UTF-8 can hold"
    return ""


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Categories as their values, strings as large_string, decimals as float64."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_text(column.type):
        return column.cast(pa.large_string())
    return column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column


__all__ = [
    "EXPECTED", "count_matches", "has_kind", "is_among", "kind_of", "numbers_of", "pattern_problem", "written_numbers",
]  # fmt: skip
