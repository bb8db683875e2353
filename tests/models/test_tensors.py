# SPDX-License-Identifier: Apache-2.0
"""Files of safetensors: their tensors, and the files that are refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from curation.base.errors import InputError
from curation.models.tensors import read_tensors
from tests.models.tiny_files import write_safetensors


def test_tensors_have_the_values_and_types_of_the_file(tmp_path: Path):
    tensors = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([1.5, -2], np.float16),
        "c": np.array([[7], [-8]], np.int8),
        "empty": np.zeros((0, 4), np.float64),
    }
    write_safetensors(tmp_path / "t.safetensors", tensors)
    found = read_tensors(tmp_path / "t.safetensors")
    assert found.keys() == tensors.keys()
    for name, values in tensors.items():
        assert found[name].dtype == values.dtype and np.array_equal(found[name], values)


def raw(header: object, data: bytes) -> bytes:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + data


def test_bfloat16_becomes_float32(tmp_path: Path):
    values = np.array([1.0, -2.5, 3.140625], np.float32)
    upper = (values.view(np.uint32) >> 16).astype(np.uint16)
    entry = {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}
    (tmp_path / "t.safetensors").write_bytes(raw({"x": entry}, upper.tobytes()))
    assert np.array_equal(read_tensors(tmp_path / "t.safetensors")["x"], values)


def entry(**changes: object) -> dict[str, object]:
    return {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no file of safetensors: its header would have 0 bytes"),
        (struct.pack("<Q", 1 << 40) + b"{}", "its header would have 1,099,511,627,776 bytes"),
        (raw(b"{'x'}", b""), "is no file of safetensors: JSON is malformed"),
        (raw({"x": 3}, b""), "is no file of safetensors: Expected `object`, got `int`"),
        (raw(entry(dtype="F8_E4M3"), b"12345678"), "the tensor x has the dtype F8_E4M3; F64, F32"),
        (raw(entry(), b"1234"), "is damaged: the tensor x of 8 bytes has the bytes 0 to 8 of 4"),
        (raw(entry(shape=[3]), b"12345678"), "is damaged: the tensor x of 12 bytes has the bytes 0 to 8 of 8"),
        (raw(entry(shape=[-1, -2]), b"12345678"), "is damaged: the tensor x of 8 bytes"),
        (raw(entry(data_offsets=[-8, 0]), b"12345678"), "is damaged: the tensor x of 8 bytes has the bytes -8 to 0"),
    ],
)
def test_a_file_that_is_no_safetensors_is_one_message(tmp_path: Path, content: bytes, message: str):
    (tmp_path / "t.safetensors").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_tensors(tmp_path / "t.safetensors")
    assert message in str(caught.value) and str(caught.value).count("\n") == 0


def test_a_missing_file_is_one_message(tmp_path: Path):
    with pytest.raises(InputError, match="cannot open"):
        read_tensors(tmp_path / "t.safetensors")
