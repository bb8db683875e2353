# SPDX-License-Identifier: Apache-2.0
"""Values of columns for rules: numbers, membership in a list, matches of a regular expression. Columns are on the host.
Texts are copied to the host when a rule reads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import TEXT, Engine, Text

EXPECTED = {"text": "strings", "number": "numbers", "truth": "columns of true and false"}
NUMBER = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"
MARK = r"\0!"  # replaces a match with itself and one more byte


class Texts:
    """Texts of an engine as a column for rules. The engine counts stop words in them, and only rules that read the
    texts bring them to the host.

    make  returns the texts, one per row; called once, when they are needed
    rows  number of texts
    """

    type = pa.large_string()

    def __init__(self, engine: Engine, make: Callable[[], Text], rows: int) -> None:
        self.engine, self._make, self._rows = engine, make, rows

    def __len__(self) -> int:
        return self._rows

    @cached_property
    def text(self) -> Text:
        """The texts, where the engine has them."""
        return self._make()

    @cached_property
    def on_host(self) -> pa.ChunkedArray:
        """The texts on the host, as large_string."""
        return self.engine.to_arrow(self.text.to_frame(TEXT)).column(TEXT)

    def filter(self, mask: pa.Array) -> Texts:
        """Return the texts where `mask` (bool) is true."""
        rows = np.asarray(mask)
        return Texts(
            self.engine,
            lambda: self.engine.filter_rows(self.text.to_frame(TEXT), rows)[TEXT],
            int(np.count_nonzero(rows)),
        )

    def slice(self, start: int, count: int) -> Texts:
        """Return the texts from `start` on, at most `count`."""
        rows = max(min(self._rows - start, count), 0)
        return self if rows == self._rows else Texts(self.engine, lambda: self.text.iloc[start : start + rows], rows)


def on_host(column: pa.ChunkedArray | Texts) -> pa.ChunkedArray:
    """Return a column on the host."""
    return column.on_host if isinstance(column, Texts) else column


def kind_of(value: object) -> str:
    """Return the kind of a value in a rule: `text`, `number`, `truth`, or "" if no column can have it."""
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, str):
        return "text"
    return "number" if isinstance(value, int | float) and math.isfinite(value) else ""


def has_kind(kind: pa.DataType, wanted: str) -> bool:
    """Return whether a column of this type has values of a kind. A column of only nulls has all kinds."""
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
    """Return the numbers in a column of strings, float64; NaN for a null and for a string that is not a number."""
    column = pc.utf8_trim_whitespace(_decoded(column))
    is_number = pc.match_substring_regex(column, pattern=NUMBER)
    return pc.if_else(is_number, column, None).cast(pa.float64()).to_numpy()


def numbers_of(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column as float64; NaN for a null. A column of strings or of only nulls is all NaN."""
    column = _decoded(column)
    if _is_text(column.type) or pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return column.cast(pa.float64(), safe=False).to_numpy()  # a safe cast refuses integers above 2^53


def is_among(column: pa.ChunkedArray, values: Sequence[object]) -> np.ndarray:
    """Return a bool per row of a column: whether the row has one of `values`; false for a null. Numbers are compared in
    the column's type."""
    column = _decoded(column)
    if pa.types.is_null(column.type):
        return np.zeros(len(column), bool)
    return pc.is_in(column, value_set=_as_column(column.type, values)).to_numpy()


def _as_column(kind: pa.DataType, values: Sequence[object]) -> pa.Array:
    """Return the values as an array of a column's type, without values that the type cannot hold."""
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        whole = [int(value) for value in values if value == int(value)]  # type: ignore[call-overload]
        return pa.array([value for value in whole if limits.min <= value <= limits.max], kind)
    if pa.types.is_floating(kind):
        return pa.array([float(value) for value in values], pa.float64()).cast(kind, safe=False)  # type: ignore[arg-type]
    return pa.array(values, kind)


def count_matches(column: pa.ChunkedArray, pattern: str) -> np.ndarray:
    """Return the number of non-overlapping matches per row, float64. A null counts as an empty text.

    Arrow's `count_substring_regex` restarts the search after each match, so that `^` and `\\b` match there again. So
    matches are counted by a replacement that adds a byte per match, only in rows with a match.
    """
    column = _decoded(column).cast(pa.large_string()).fill_null("")
    is_match = pc.match_substring_regex(column, pattern=pattern)
    rows = is_match.to_numpy()
    counts = np.zeros(len(column))
    if rows.any():
        matching = column.filter(is_match)
        marked = pc.replace_substring_regex(matching, pattern=pattern, replacement=MARK)
        counts[rows] = pc.subtract(pc.binary_length(marked), pc.binary_length(matching)).to_numpy()
    return counts


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column on the host without categories, with strings as large_string and decimals as float64."""
    column = on_host(column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_text(column.type):
        return column.cast(pa.large_string())
    return column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column
