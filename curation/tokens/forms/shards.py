# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the shard files of all forms; a file is written completely or not at all. `stored.py` has the
manifest that lists them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from curation.base.arrays import load_mapped
from curation.base.errors import OutputError, installation
from curation.base.system.damage import damaged, reading
from curation.base.system.files import commit, file_sha256
from curation.base.system.packages import check_torch

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
FILE_TYPES = ("npy", "pt", "auto")
MAX_LENGTH = 1 << 24  # tokens of a block, chunk or row
SPLIT, NUMBER = "{split}", "{number"  # in the name of shards
SHARD_NAME = re.compile(r"(?!\.)(?:[A-Za-z0-9._-]|\{split\}|\{number(?::0[1-9])?\})+")
WRITE_TOKENS = 4 << 20  # tokens per write


def check_counts(settings: Any, *fields: str) -> None:
    """Raise ValueError for a field below 1, a `length` above MAX_LENGTH (2^24), an unknown `file_type`, or a
    `shard_name` that is no pattern of names."""
    for field in fields:
        if getattr(settings, field) < 1:
            raise ValueError(f"{field} must be at least 1, not {getattr(settings, field)}")
    if getattr(settings, "length", 1) > MAX_LENGTH:
        raise ValueError(f"length must be at most {MAX_LENGTH}, not {settings.length}")
    file_type = getattr(settings, "file_type", "npy")
    if file_type not in FILE_TYPES:
        raise ValueError(f"file_type must be one of {', '.join(FILE_TYPES)}, not {file_type!r}")
    if not SHARD_NAME.fullmatch(settings.shard_name):
        raise ValueError(
            "shard_name must be letters, digits, '.', '_', '-', {split} and {number} or {number:05}, such as "
            f"shard_{{number}}, not {settings.shard_name!r}"
        )


def has_torch() -> bool:
    """Return whether PyTorch is installed, without importing it."""
    return find_spec("torch") is not None


def require_torch(purpose: str) -> Any:
    """Return the module torch. OutputError: it cannot be imported. `purpose`: start of the message."""
    try:
        import torch
    except ImportError as error:
        raise OutputError(
            f"{purpose} needs PyTorch, which cannot be imported ({error}). Run: {installation('torch')}, or write "
            "file_type: npy."
        ) from None
    return torch


def open_array(path: Path, dtype: np.dtype | None = None) -> np.ndarray:
    """Return the array of a shard, memory-mapped: from an `.npy` or `.pt` file, or with `dtype` from a file of raw ids.
    The call is logged as `Loading shard: NAME`. OutputError: a `.pt` file without PyTorch. IntegrityError: a damaged
    file.
    """
    if path.suffix == ".pt":
        tensors = load_tensors(path)
        with reading(path):
            return np.asarray(tensors.numpy())
    log.info("Loading shard: %s", path.name)
    if dtype is None:
        return load_mapped(path)
    with reading(path):
        return np.asarray(np.memmap(path, dtype, "r"))  # indexing of np.memmap is slow


def open_rows(path: Path, rows: int, length: int) -> np.ndarray:
    """Return `open_array` of a shard of integers of shape (rows, length). IntegrityError: another array."""
    array = open_array(path)
    if array.shape != (rows, length) or array.dtype.kind not in "iu":
        raise damaged(path, f"it has {array.dtype} of shape {array.shape}, expected integers of shape {(rows, length)}")
    return array


def open_ids(path: Path, dtype: np.dtype, count: int) -> np.ndarray:
    """Return the `count` raw ids of a shard. IntegrityError: another number."""
    array = open_array(path, dtype)
    if len(array) != count:
        raise damaged(path, f"it has {len(array):,} ids, expected {count:,}")
    return array


def load_tensors(path: Path) -> Any:
    """Return the tensor, or the list of tensors, of a `.pt` file, memory-mapped. No code of the file runs."""
    torch = require_torch(f"reading {path.name}")
    check_torch()
    log.info("Loading shard: %s", path.name)
    with reading(path):
        return torch.load(path, weights_only=True, mmap=True)


def write_array(path: Path, shape: tuple[int, ...], dtype: np.dtype, batches: Iterable[np.ndarray]) -> None:
    """Write an `.npy` file of `shape` and `dtype` from batches of its content, in C order."""
    with commit(path) as temporary, open(temporary, "wb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for batch in batches:
            file.write(np.ascontiguousarray(batch, dtype).data)


def write_tensor(path: Path, shape: tuple[int, ...], batches: Iterable[np.ndarray], lengths: np.ndarray | None) -> None:
    """Write a `.pt` file: a LongTensor of `shape`, or with `lengths` a list of LongTensors of these lengths.

    Memory holds the whole tensor. OutputError: PyTorch cannot be imported.
    """
    torch = require_torch(f"writing {path.name}")
    flat = np.empty(int(np.prod(shape)), np.int64)
    position = 0
    for batch in batches:
        flat[position : position + batch.size] = batch.reshape(-1)
        position += batch.size
    tensor = torch.from_numpy(flat).reshape(shape)
    value = tensor if lengths is None else list(torch.split(tensor, lengths.tolist()))
    with commit(path) as temporary, open(temporary, "wb") as file:  # torch writes the name of a path into the file
        torch.save(value, file)


def entry(path: Path, folder: Path | None = None, **counts: int) -> dict[str, Any]:
    """Return a file's entry in the manifest: path in `folder`, size in bytes, SHA-256 and `counts`. Without `folder`,
    the file is directly in the folder of the form."""
    name = path.relative_to(folder or path.parent).as_posix()
    return {"file": name, "bytes": path.stat().st_size, "sha256": file_sha256(path), **counts}
