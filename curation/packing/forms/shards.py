# SPDX-License-Identifier: Apache-2.0
"""What all forms share: shard files, written whole or not at all, and the manifest that names them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from curation.errors import InputError, OutputError
from curation.files import commit, file_sha256, read_json

MANIFEST = "manifest.json"
FILE_TYPES = ("npy", "pt", "auto")
MAX_LENGTH = 1 << 24  # of a block, chunk or row
PIECE_TOKENS = 4 << 20  # written at a time


def check_counts(settings: Any, *fields: str) -> None:
    """ValueError for a count below 1, a length beyond MAX_LENGTH, or a file type that is none."""
    for field in fields:
        if getattr(settings, field) < 1:
            raise ValueError(f"{field} must be at least 1, not {getattr(settings, field)}")
    if getattr(settings, "length", 1) > MAX_LENGTH:
        raise ValueError(f"length must be at most {MAX_LENGTH}, not {settings.length}")
    file_type = getattr(settings, "file_type", "npy")
    if file_type not in FILE_TYPES:
        raise ValueError(f"file_type must be one of {', '.join(FILE_TYPES)}, not {file_type!r}")


def has_torch() -> bool:
    return find_spec("torch") is not None


def require_torch(wanted_for: str) -> Any:
    """PyTorch; OutputError where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise OutputError(
            f"{wanted_for} needs PyTorch, which cannot be imported ({error}). Install gpu-pipeline[torch], or write "
            "file_type: npy."
        ) from None
    return torch


def shard_path(folder: Path, split: str, number: int, suffix: str) -> Path:
    """`train_00000.npy` and so on; a run without splits is all `train`."""
    return folder / f"{split or 'train'}_{number:05d}{suffix}"


def write_array(path: Path, shape: tuple[int, ...], dtype: np.dtype, pieces: Iterable[np.ndarray]) -> None:
    """An `.npy` file from its content in pieces."""
    with commit(path) as temporary, open(temporary, "wb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for piece in pieces:
            file.write(np.ascontiguousarray(piece, dtype).data)


def write_tensor(path: Path, shape: tuple[int, ...], pieces: Iterable[np.ndarray], lengths: np.ndarray | None) -> None:
    """A `.pt` file: a LongTensor, or with `lengths` the list of LongTensors that it is cut into."""
    torch = require_torch(f"writing {path.name}")
    flat = np.empty(int(np.prod(shape)), np.int64)
    at = 0
    for piece in pieces:
        flat[at : at + piece.size] = piece.reshape(-1)
        at += piece.size
    tensor = torch.from_numpy(flat).reshape(shape)
    value = tensor if lengths is None else list(torch.split(tensor, lengths.tolist()))
    with commit(path) as temporary, open(temporary, "wb") as file:  # given a path, torch writes its name into the file
        torch.save(value, file)


def entry(path: Path, **counts: int) -> dict[str, Any]:
    """A file's line in the manifest."""
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": file_sha256(path), **counts}


def open_form(folder: str | Path, form: str, split: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(manifest, its entry of `split`) of a finished form, after a look at the folder.

    Raises InputError where there is no manifest or one of another form, the split is not in it, a file that it names is
    missing or has another size, or the folder holds a file that it does not name.
    """
    folder = Path(folder)
    manifest = read_json(folder / MANIFEST)
    if manifest is None:
        raise InputError(f"{folder} has no {MANIFEST}; expected the folder {form}/ of a finished run")
    if manifest.get("form") != form:
        raise InputError(f"{folder} holds {manifest.get('form')!r}, expected {form!r}; open it with its own data set")
    problem = next(problems(folder, manifest), "")
    if problem:
        raise InputError(f"{problem}. Write the form again, or put back the folder as it was")
    if split not in manifest["splits"]:
        raise InputError(f"{folder} has no split {split!r}; it has {', '.join(manifest['splits'])}")
    return manifest, manifest["splits"][split]


def problems(folder: Path, manifest: dict[str, Any]) -> Iterator[str]:
    """Files that are missing, of another size, or strange, in words; contents are not read."""
    named = {file["file"]: file["bytes"] for split in manifest["splits"].values() for file in split["files"]}
    for name, size in named.items():
        path = folder / name
        if not path.is_file():
            yield f"{path} is missing, though {MANIFEST} names it"
        elif path.stat().st_size != size:
            yield f"{path} has {path.stat().st_size} bytes, {MANIFEST} says {size}"
    for name in sorted(set(os.listdir(folder)) - {*named, MANIFEST}):
        yield f"{folder / name} is foreign: {MANIFEST} does not name it"
