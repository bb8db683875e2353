# SPDX-License-Identifier: Apache-2.0
"""Stores vectors of documents as 8-bit integers in columns, and computes their cosines.

A vector v is stored once, as the integers rint(127 v / max|v|). Each is the result of one product, one division and one
rounding, which IEEE 754 defines exactly, so every machine stores the same integers. Only directions are compared, so no
scale is stored. `scales` returns the factors that turn the integers into unit vectors.

All further arithmetic is on integers, so dot products and squared norms are exact. The cosine is dot / sqrt(a * b).
IEEE 754 rounds the product, the root and the quotient correctly in float64, and there is no sum whose order could
differ, so every machine gets the same cosine. Decisions use it in ten-thousandths, rounded down.

A column of vectors is `fixed_size_list<int8>`. A document without a vector has a null: an empty text, or a vector of
zeros, which has no direction.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.errors import InputError
from curation.base.number_lists import is_list

UNITS = 10_000  # of a cosine of 1
LARGEST = 127
Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows on the left and on the right, and their dot products
_NO_PAIRS: Pairs = (np.zeros(0, np.int64),) * 3

# Dot products of vectors up to this size are exact in float32: |a . b| <= 1,024 * 128^2 = 2^24, and so is each partial
# sum in any order. Up to 2^39 dimensions they are exact in float64.
FLOAT32_DIMENSIONS = 1 << 10
ROWS_AT_ONCE = 1 << 12
SEEDS = (0x243F6A8885A308D3, 0x13198A2E03707344)  # digits of pi
FACTORS = np.array([0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53], np.uint64)  # odd; those of murmur3
TYPE_NAME = re.compile(r"(int8|uint32)\[(\d+)\]")


# Types


def type_name(dimensions: int) -> str:
    """Return the name of the type of a column of vectors, for the `writes` of a stage: `int8[384]`."""
    return f"int8[{dimensions}]"


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a name: an alias of Arrow, a `type_name`, or `uint32[n]`, which is the type of
    signatures. Raises ValueError for another name."""
    if isinstance(name, str) and (match := TYPE_NAME.fullmatch(name)):
        return pa.list_(pa.type_for_alias(match[1]), int(match[2]))
    return pa.type_for_alias(name)


# Integers


def quantised(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors (float, shape (n, dimensions)) as int8 of the same shape, and a bool per vector: False for a
    vector of zeros, which has no direction. The largest absolute value of each vector becomes 127. Vectors of integers
    whose largest absolute value is 127 stay the same. Raises ValueError for NaN and infinite numbers."""
    out = np.zeros(vectors.shape, np.int8)
    has_direction = np.zeros(len(vectors), bool)
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        exact = vectors[rows].astype(np.float64)
        if not np.isfinite(exact).all():
            raise ValueError("a vector holds NaN or an infinite number")
        largest = np.abs(exact).max(axis=1, initial=0)
        exponent = np.frexp(largest)[1]  # a power of two keeps the digits, and very large numbers stay finite
        exact = np.ldexp(exact, -exponent[:, None])
        largest = np.ldexp(largest, -exponent)
        has_direction[rows] = largest > 0
        exact *= LARGEST
        exact /= np.where(largest > 0, largest, 1)[:, None]
        out[rows] = np.rint(exact)
    return out, has_direction


def squared_norms(vectors: np.ndarray) -> np.ndarray:
    """Return the squared norm of each vector (int8, shape (n, dimensions)), int64."""
    return dots(vectors, vectors)


def dots(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the dot product, int64, of each vector on the left with the vector of the same row on the right (int8,
    shape (n, dimensions))."""
    out = np.empty(len(left), np.int64)
    for start in range(0, len(left), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        products = np.multiply(left[rows], right[rows], dtype=np.int16)  # at most 128^2 = 2^14
        out[rows] = products.sum(axis=1, dtype=np.int64)
    return out


def scales(vectors: np.ndarray) -> np.ndarray:
    """Return for each vector (int8) the factor that turns it into a unit vector, float32; 0 for a vector of zeros."""
    norms = np.sqrt(squared_norms(vectors).astype(np.float64))
    return np.divide(1, norms, out=np.zeros(len(norms)), where=norms > 0).astype(np.float32)


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """Return vectors (int8) as float32 unit vectors, for libraries that compute in floats."""
    return vectors.astype(np.float32) * scales(vectors)[:, None]


def cosines(dot: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return cosines in ten-thousandths, rounded down (int64), from dot products and the squared norms of both sides.
    Norms are above 0."""
    product = left.astype(np.float64) * right.astype(np.float64)
    return np.floor(dot.astype(np.float64) / np.sqrt(product) * UNITS).astype(np.int64)


def units_of(threshold: float) -> int:
    """Return the ten-thousandths that a cosine needs to reach a threshold. The threshold is taken as the decimal number
    that was written."""
    return math.ceil(Decimal(repr(threshold)) * UNITS)


def vector_hashes(vectors: np.ndarray) -> np.ndarray:
    """Return a 128-bit hash of each vector (int8), uint64 of shape (n, 2). The first number is above 0."""
    words = np.zeros((len(vectors), -(-vectors.shape[1] // 8) * 8), np.int8)
    words[:, : vectors.shape[1]] = vectors
    hashes = np.tile(np.array(SEEDS, np.uint64), (len(vectors), 1))
    for word in words.view("<u8").T:
        hashes ^= word[:, None]
        hashes *= FACTORS
        hashes ^= hashes >> np.uint64(29)
    hashes *= FACTORS
    hashes ^= hashes >> np.uint64(32)
    np.maximum(hashes[:, 0], 1, out=hashes[:, 0])
    return hashes


# Columns


def to_column(vectors: np.ndarray, present: np.ndarray | None = None) -> pa.FixedSizeListArray:
    """Return vectors (int8, shape (n, dimensions)) as a column. `present` is false where a document has none."""
    values = pa.array(np.ascontiguousarray(vectors).reshape(-1), pa.int8())
    mask = None if present is None or present.all() else pa.array(~present)
    return pa.FixedSizeListArray.from_arrays(values, type=pa.list_(pa.int8(), vectors.shape[1]), mask=mask)


def from_column(
    column: pa.Array | pa.ChunkedArray, name: str, ids: Sequence[str | None] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of a column: int8 of shape (rows, dimensions), and the bool per row if it has a vector.

    A column holds lists of int8 as `to_column` makes them, lists of other numbers, or JSON arrays as text, as inputs
    carry them. Rows without a vector are zeros; a column without any has 0 dimensions.

    name  the column's name, for messages
    ids   ids of the rows, for messages

    InputError: no vectors, vectors of several sizes, NaN or infinite numbers, nulls in a vector.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = _parsed(column, name, ids)
    if pa.types.is_null(column.type):
        return np.zeros((len(column), 0), np.int8), np.zeros(len(column), bool)
    if not is_list(column.type) or not _is_number(column.type.value_type):
        raise InputError(
            f"column {name!r} holds {column.type}, but vectors are lists of numbers. Name the column of the vectors"
        )
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    present = lengths > 0
    sizes, first = np.unique(lengths[present], return_index=True)
    if len(sizes) > 1:
        rows = np.flatnonzero(present)[first]
        parts = [f"{size:,} in {_shown(int(row), ids)}" for size, row in zip(sizes[:2], rows[:2], strict=True)]
        raise InputError(
            f"column {name!r} has vectors of different dimensions: {' and '.join(parts)}. Use vectors of one model"
        )
    dimensions = int(sizes[0]) if len(sizes) else 0
    values = column.filter(pa.array(present)).flatten()
    if values.null_count:
        row = int(np.flatnonzero(present)[int(np.flatnonzero(values.is_null())[0]) // dimensions])
        raise InputError(f"column {name!r}: the vector of {_shown(row, ids)} holds a null. Use numbers, or no vector")
    return _filled(values, present, dimensions, name, ids)


def _filled(
    values: pa.Array, present: np.ndarray, dimensions: int, name: str, ids: Sequence[str | None] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of all rows, and whether each row has a vector with a direction. `values` has the numbers of
    the vectors that are `present`; other rows become zeros."""
    numbers = values.to_numpy(zero_copy_only=False).reshape(-1, max(dimensions, 1))[:, :dimensions]
    if numbers.dtype == np.int8:
        vectors, has_direction = numbers, numbers.any(axis=1)
    else:
        finite = np.isfinite(numbers).all(axis=1)
        if not finite.all():
            row = int(np.flatnonzero(present)[int(np.flatnonzero(~finite)[0])])
            raise InputError(
                f"column {name!r}: the vector of {_shown(row, ids)} holds NaN or an infinite number. "
                "Compute it again, or give the document no vector (null)"
            )
        vectors, has_direction = quantised(numbers)
    if present.all() and has_direction.all():
        return vectors, present
    out = np.zeros((len(present), dimensions), np.int8)
    out[present] = vectors
    present = present.copy()
    present[present] = has_direction
    return out, present


def _parsed(column: pa.Array, name: str, ids: Sequence[str | None] | None) -> pa.Array:
    """Return JSON arrays of numbers as lists of float64. An empty string is no vector."""
    parsed = []
    for index, text in enumerate(column.to_pylist()):
        try:
            value = orjson.loads(text) if text else None
            parsed.append(value)
            pa.array(value or [], pa.float64())
        except (ValueError, TypeError, pa.ArrowException):
            raise InputError(
                f"column {name!r}: the value of {_shown(index, ids)} is {str(text)[:40]!r}, but a vector is a JSON "
                "array of numbers, such as [0.1, -0.2]. Name the column of the vectors"
            ) from None
    return pa.array(parsed, pa.list_(pa.float64()))


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)


def _shown(row: int, ids: Sequence[str | None] | None) -> str:
    """Return the name of a row for messages."""
    return f"document {ids[row]!r}" if ids is not None and ids[row] is not None else f"row {row:,} of a batch"


def in_order(blocks: Sequence[Pairs]) -> Pairs:
    """Return the pairs of all blocks, sorted by the left row, then by the right row."""
    i, j, dot = (np.concatenate(parts) for parts in zip(_NO_PAIRS, *blocks, strict=True))
    order = np.lexsort((j, i))
    return i[order], j[order], dot[order]
