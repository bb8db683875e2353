# SPDX-License-Identifier: Apache-2.0
"""Keys of documents from columns, in place of their texts: strings, of which equal ones make duplicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.contract import ID, TEXT
from curation.errors import InputError
from curation.rules.columns import has_kind
from curation.stages.exact.keep_orders import orders_of_dates, orders_of_numbers

if TYPE_CHECKING:
    from curation.contract import Engine, Frame

Compare = Callable[[pa.Array], pa.Array]  # strings -> the strings that are compared


def read_column(engine: Engine, frame: Frame, name: str) -> pa.ChunkedArray:
    """Return a column in host memory. InputError for `id` of a frame without ids."""
    if name == ID and ID not in frame.columns:
        raise InputError(f"the frame has no column {ID!r}; it has {list(frame.columns)}")
    column = engine.to_arrow(frame[[name]]).column(0)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return pc.if_else(pc.is_nan(column), None, column) if pa.types.is_floating(column.type) else column


def as_strings(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column as strings, numbers as they are written. InputError for lists and the like."""
    try:
        return column.cast(pa.large_string())
    except pa.ArrowException:
        raise InputError(f"column {name!r} holds {column.type}; give a column of strings, numbers or dates") from None


def key_texts(columns: Sequence[pa.ChunkedArray], compare: Compare) -> pa.LargeStringArray:
    """Return a key per row, which is empty if one of its values is null or, compared, empty.

    Keys of several values are equal if all values are: the lengths before them tell where each ends."""
    compared = [compare(column.combine_chunks().fill_null("")) for column in columns]
    if len(compared) == 1:
        return compared[0]
    sizes = [pc.binary_length(values) for values in compared]
    has_all = np.logical_and.reduce([np.asarray(size) > 0 for size in sizes])
    parts = [part for size, values in zip(sizes, compared, strict=True)
             for part in (size.cast(pa.large_string()), values)]  # fmt: skip
    joined = pc.binary_join_element_wise(*parts, pa.scalar(":", pa.large_string()))
    return pc.if_else(pa.array(has_all), joined, pa.scalar("", pa.large_string()))


def hash_keys(engine: Engine, keys: pa.LargeStringArray) -> np.ndarray:
    """Return the hash of each key, uint64 of shape (n, 2): that of an empty key is 0, 0."""
    return engine.hash_text(engine.from_arrow(pa.table({TEXT: keys}))[TEXT])


def keep_orders(engine: Engine, frame: Frame, policy: str, name: str) -> np.ndarray:
    """Return the order of each row by its number (`highest`) or date (`newest`): uint64, as in `keep_orders.py`."""
    column = read_column(engine, frame, name)
    if policy == "newest":
        return orders_of_dates(as_strings(column, name))
    is_number = has_kind(column.type, "number") or has_kind(column.type, "truth")
    is_number &= not pa.types.is_null(column.type)  # has all kinds
    return orders_of_numbers(column if is_number else as_strings(column, name))
