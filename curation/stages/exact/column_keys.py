# SPDX-License-Identifier: Apache-2.0
"""Keys of documents from columns, in place of their texts. Documents with equal keys are duplicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import TEXT

if TYPE_CHECKING:
    from curation.base.contract import Engine

Compare = Callable[[pa.Array], pa.Array]  # strings -> the strings that are compared


def key_texts(columns: Sequence[pa.ChunkedArray], compare: Compare) -> pa.LargeStringArray:
    """Return a key per row. The key is empty if one of the row's values is null, or empty after `compare`.

    Keys of several values are equal if all values are: the key has the length of each value before the value."""
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
    """Return the hash of each key, uint64 of shape (n, 2); the hash of an empty key is (0, 0)."""
    return engine.hash_text(engine.from_arrow(pa.table({TEXT: keys}))[TEXT])
