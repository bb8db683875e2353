# SPDX-License-Identifier: Apache-2.0
"""Conversion between pandas string columns and the arrays of the kernels, without a copy of the text.

A column of several chunks is the exception: its chunks are joined, which copies the text.
"""

import reprlib
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from curation.base.arrays import as_one_array
from curation.base.errors import InputError
from curation.frames.engine_functions import check_text

STRING: Any = pd.StringDtype("pyarrow", na_value=np.nan)  # `str` of pandas 3


def string_array(text: pd.Series) -> pa.LargeStringArray:
    """Return a text column as one Arrow array.

    Raises TypeError for a value that is no Series. Raises InputError for a column of another type, or an object column
    with a lone surrogate or with a value that is neither a string nor null.
    """
    check_text("cpu_fallback", text, pd.Series)
    try:
        array = as_one_array(pa.array(text, from_pandas=True))
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise _no_strings(text, f": {error}") from None
    except UnicodeEncodeError as error:
        raise InputError(
            f"column {text.name!r} holds {error.object[error.start : error.end]!a}, half a character, which UTF-8 does "
            "not have. Replace it: .str.encode('utf-8', 'replace').str.decode('utf-8')"
        ) from None
    if pa.types.is_large_string(array.type):
        return array
    value_type = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if not (pa.types.is_string(value_type) or pa.types.is_large_string(value_type) or pa.types.is_null(value_type)):
        raise _no_strings(text, f", not {value_type}. Convert it: .astype(str)")
    return array.cast(pa.large_string())


def _no_strings(text: pd.Series, otherwise: str) -> InputError:
    """Return the error for a column with values that are no strings. For a column of objects, the message shows the
    first such value."""
    others = text[text.notna() & ~text.map(lambda value: isinstance(value, str)).astype(bool)]
    if text.dtype == object and len(others):
        row, value = others.index[0], others.iloc[0]
        remedy = ".map(lambda text: text.decode() if isinstance(text, bytes) else text)"
        remedy = remedy if isinstance(value, bytes) else ".astype(str)"
        otherwise = (
            f", but the row with index {row} holds {reprlib.repr(value)} ({type(value).__name__}). Convert them: "
            f"{remedy}, or leave such rows out"
        )
    return InputError(f"column {text.name!r} must hold strings{otherwise}")


def view(buffer: pa.Buffer | None, dtype: type, offset: int, count: int) -> np.ndarray:
    """Return `count` items of `dtype` from item `offset` of a buffer, read-only; zeros if there is no buffer."""
    if buffer is None or buffer.size == 0:
        array: np.ndarray = np.zeros(count, dtype)
    else:
        array = np.frombuffer(buffer, dtype, count, offset * np.dtype(dtype).itemsize)
    array.setflags(write=False)
    return array


def buffers_of(text: pd.Series | pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the arrays of a text column.

    UTF-8 bytes (uint8), offsets (int64, rows + 1, the first may exceed 0), and validity (bool; None: no row is null).
    """
    array = text if isinstance(text, pa.LargeStringArray) else string_array(text)
    _, offsets, data = array.buffers()
    size = 0 if data is None else data.size
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    return view(data, np.uint8, 0, size), view(offsets, np.int64, array.offset, len(array) + 1), valid


def series_of(
    data: np.ndarray, offsets: np.ndarray, index: pd.Index, valid: np.ndarray | None = None, name=None
) -> pd.Series:
    """Return a `str` column over UTF-8 bytes (uint8) and offsets (rows + 1); rows that are not `valid` are null."""
    nulls = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    array = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data), nulls)
    return pd.Series(STRING.__from_arrow__(array), index=index, name=name, copy=False)
