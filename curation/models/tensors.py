# SPDX-License-Identifier: Apache-2.0
"""Reads files of safetensors: a header in JSON, then the values of tensors. Reading a file runs no code of it.

The format has eight bytes with the size of the header, the header, and the data, all little-endian:
https://huggingface.co/docs/safetensors. So static embeddings need no package to read them.
"""

from __future__ import annotations

import mmap
import struct
from math import prod
from pathlib import Path

import msgspec
import numpy as np

from curation.base.errors import InputError
from curation.base.system.os_errors import fault_of

MAX_HEADER = 100_000_000  # bytes, as in the package safetensors
MAX_AXES, MAX_AXIS = 8, 1 << 40  # a tensor of no values may have an axis of any size, which NumPy cannot hold
SHOWN = 80  # characters of a wrong shape
METADATA = "__metadata__"
BFLOAT16 = "BF16"  # the upper half of a float32
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", BFLOAT16: "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U8": "u1", "BOOL": "?",
}  # fmt: skip


class Tensor(msgspec.Struct, frozen=True):
    """An entry of the header. `data_offsets` are the first byte and the byte after the last, counted from the data."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def read_header(path: Path) -> dict[str, Tensor]:
    """Return the entries of the header of a file. Raises InputError for a file that is no safetensors."""
    return _read(path)[0]


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a file: views of the mapped file, or float32 for bfloat16. InputError for a file that is no
    safetensors."""
    header, start = _read(path)
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    tensors = {}
    for name, tensor in header.items():
        values = np.frombuffer(data, DTYPES[tensor.dtype], prod(tensor.shape), start + tensor.data_offsets[0])
        if tensor.dtype == BFLOAT16:
            values = (values.astype("<u4") << 16).view("<f4")
        tensors[name] = values.reshape(tensor.shape)
    return tensors


def _read(path: Path) -> tuple[dict[str, Tensor], int]:
    """Return the checked header, and the position of the data."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            start = file.read(8)
            header_bytes = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= header_bytes <= min(size - 8, MAX_HEADER):
                raise InputError(f"{path} is no file of safetensors: its header would have {header_bytes:,} bytes")
            entries = msgspec.json.decode(file.read(header_bytes), type=dict[str, msgspec.Raw])
            header = {
                name: msgspec.json.decode(entry, type=Tensor) for name, entry in entries.items() if name != METADATA
            }
    except OSError as error:
        raise InputError(f"cannot open {path}: {fault_of(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fault = "its header is nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"{path} is no file of safetensors: {fault}") from None
    data_bytes = size - 8 - header_bytes
    for name, tensor in header.items():
        if tensor.dtype not in DTYPES:
            raise InputError(f"{path}: the tensor {name} has the dtype {tensor.dtype}; {', '.join(DTYPES)} can be read")
        if len(tensor.shape) > MAX_AXES or max(tensor.shape, default=0) > MAX_AXIS:
            shape = f"{tensor.shape}"[:SHOWN]
            raise InputError(f"{path} is damaged: the tensor {name} has the shape {shape}")
        first, last = tensor.data_offsets
        expected = prod(tensor.shape) * np.dtype(DTYPES[tensor.dtype]).itemsize
        if min(tensor.shape, default=0) < 0 or not 0 <= first <= last <= data_bytes or last - first != expected:
            raise InputError(
                f"{path} is damaged: the tensor {name} of {expected:,} bytes has the bytes {first:,} to {last:,} of "
                f"{data_bytes:,}"
            )
    return header, 8 + header_bytes
