# SPDX-License-Identifier: Apache-2.0
"""Columns of Arrow whose values are lists of numbers, such as vectors."""

from __future__ import annotations

import orjson
import pyarrow as pa


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is a list of any form."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def as_json(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return each list of numbers as the text of a JSON array; nulls stay nulls. Numbers of 32 bits are written with
    only the digits that 32 bits need."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type.value_type
    narrow = pa.types.is_float32(kind) or pa.types.is_float16(kind)
    texts: list[str | None] = []
    for scalar in column:
        if not scalar.is_valid:
            texts.append(None)
        elif narrow and not scalar.values.null_count:
            numbers = scalar.values.cast(pa.float32()).to_numpy()
            texts.append(orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY).decode())
        else:
            texts.append(orjson.dumps(scalar.as_py()).decode())
    return pa.array(texts, pa.large_string())
