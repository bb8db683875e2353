# SPDX-License-Identifier: Apache-2.0
"""From pandas' string columns to the arrays the kernels loop over, and back; no text is copied on either way.

Only a column of several chunks is copied, by joining them.
"""

import numpy as np
import pandas as pd
import pyarrow as pa

from curation.arrays import joined
from curation.errors import InputError

STRING = pd.StringDtype("pyarrow", na_value=np.nan)  # pandas 3's own `str`


def string_array(text: pd.Series) -> pa.LargeStringArray:
    """The column as one Arrow array; InputError where an object column holds anything but strings and nulls, or a lone
    surrogate."""
    try:
        array = joined(pa.array(text, from_pandas=True))
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise InputError(f"column {text.name!r} must hold strings: {error}") from None
    except UnicodeEncodeError as error:
        raise InputError(
            f"column {text.name!r} holds {error.object[error.start : error.end]!a}, half a character, which UTF-8 does "
            "not have. Replace it: .str.encode('utf-8', 'replace').str.decode('utf-8')"
        ) from None
    if pa.types.is_large_string(array.type):
        return array
    held = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if not (pa.types.is_string(held) or pa.types.is_large_string(held) or pa.types.is_null(held)):
        raise InputError(f"column {text.name!r} must hold strings, not {held}. Convert it: .astype(str)")
    return array.cast(pa.large_string())


def view(buffer: pa.Buffer | None, dtype: type, offset: int, count: int) -> np.ndarray:
    """`count` items of a buffer from item `offset`, read-only; zeros where there is no buffer."""
    if buffer is None or buffer.size == 0:
        array = np.zeros(count, dtype)
    else:
        array = np.frombuffer(buffer, dtype, count, offset * np.dtype(dtype).itemsize)
    array.setflags(write=False)
    return array


def buffers_of(text: pd.Series | pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """UTF-8 bytes, int64 offsets (rows + 1 of them, not always from 0), and which rows are not null (None: all)."""
    array = text if isinstance(text, pa.LargeStringArray) else string_array(text)
    _, offsets, data = array.buffers()
    size = 0 if data is None else data.size
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    return view(data, np.uint8, 0, size), view(offsets, np.int64, array.offset, len(array) + 1), valid


def series_of(
    data: np.ndarray, offsets: np.ndarray, index: pd.Index, valid: np.ndarray | None = None, name=None
) -> pd.Series:
    """A `str` column over these bytes and offsets; rows that are not `valid` are null."""
    nulls = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    array = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data), nulls)
    return pd.Series(STRING.__from_arrow__(array), index=index, name=name, copy=False)
