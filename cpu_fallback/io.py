# SPDX-License-Identifier: Apache-2.0
"""Reads slices into pandas frames over the readers' own buffers; converts frames from and to Arrow."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from cpu_fallback.buffers import STRING, string_array
from curation.base.contract import TEXT, Batch
from curation.base.number_lists import is_list
from curation.reading import read_documents
from curation.reading.source_files import Slice

# Types of columns with nulls: by default pandas makes them float64, which rounds 2**60 + 1. cuDF keeps integers.
NULLABLE: dict[pa.DataType, Any] = {
    pa.bool_(): pd.BooleanDtype(), pa.int8(): pd.Int8Dtype(), pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(), pa.uint8(): pd.UInt8Dtype(), pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(), pa.uint64(): pd.UInt64Dtype(),
}  # fmt: skip


def read_slice(input_slice: Slice, batch_bytes: int) -> Iterator[Batch]:
    for documents in read_documents(input_slice, batch_bytes):
        yield Batch(from_arrow(documents.table), *documents[1:])


def _is_string(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def from_arrow(table: pa.Table) -> pd.DataFrame:
    # String columns keep their Arrow buffers: to_pandas copies, __from_arrow__ does not.
    columns = {
        field.name: pd.Series(STRING.__from_arrow__(column.cast(pa.large_string())), copy=False)
        if _is_string(field.type)
        else pd.Series(pd.arrays.ArrowExtensionArray(column), copy=False)  # vectors; by default an object per row
        if is_list(field.type)
        else column.to_pandas(types_mapper=NULLABLE.get if column.null_count else None)
        for field, column in zip(table.schema, table.columns, strict=True)
    }
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows), copy=False)


def to_arrow(frame: pd.DataFrame) -> pa.Table:
    arrays = [
        string_array(column)
        if name == TEXT or isinstance(column.dtype, pd.StringDtype)
        else pa.array(column, from_pandas=True)
        for name, column in frame.items()
    ]
    return pa.table(arrays, names=[str(name) for name in frame.columns])


def filter_rows(frame: pd.DataFrame, mask: np.ndarray) -> pd.DataFrame:
    return frame if mask.all() else frame[mask]


def with_columns(frame: pd.DataFrame, columns: dict[str, Any]) -> pd.DataFrame:
    out = frame.copy(deep=False)
    for name, values in columns.items():
        out[name] = values
    return out
