# SPDX-License-Identifier: Apache-2.0
"""Reads the folder of each finished output form. A manifest is checked before anything in its folder is used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from curation.base.errors import InputError
from curation.base.system.damage import damaged, reading, remedy
from curation.base.system.files import read_json
from curation.tokens.forms import FORMS
from curation.tokens.forms.base import Count
from curation.tokens.forms.shards import MANIFEST


class _File(msgspec.Struct):
    file: str
    bytes: Count
    sha256: str


class _Split(msgspec.Struct):
    files: list[_File]
    documents: Count


class _Tokenizer(msgspec.Struct):
    name: str
    sha256: str


class _Manifest(msgspec.Struct):
    """The fields of the manifests of all forms."""

    form: str
    dtype: str
    vocabulary: Count
    tokenizer: _Tokenizer
    pad_id: int
    settings: dict[str, Any]
    splits: dict[str, _Split]


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest in the folder of a form; None if there is none. IntegrityError: a damaged manifest."""
    path = folder / MANIFEST
    manifest: dict[str, Any] | None = read_json(path, _Manifest)
    if manifest is not None:
        with reading(path):
            _check(manifest)
    return manifest


def written_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a form that this run has written. IntegrityError: a damaged or missing manifest."""
    if (manifest := read_manifest(folder)) is None:
        raise damaged(folder / MANIFEST, "it is missing")
    return manifest


def _check(manifest: dict[str, Any]) -> None:
    """Raise ValueError or TypeError if the manifest is not one that its form writes."""
    form = FORMS.get(manifest["form"])
    if form is None:
        raise ValueError(f"there is no form {manifest['form']!r}")
    if np.dtype(manifest["dtype"]).kind not in "iu":
        raise ValueError(f"ids cannot have the dtype {manifest['dtype']!r}")
    msgspec.convert(manifest["settings"], form)
    for name, split in manifest["splits"].items():
        counts = [msgspec.convert(file[form.unit], Count) for file in split["files"] if form.unit in file]
        if not counts or sum(counts) != split.get(form.unit):
            raise ValueError(f"split {name} has {split.get(form.unit)} {form.unit}, and its files {sum(counts)}")
        for file in split["files"]:
            if {"", ".", ".."} & {*file["file"].split("/")}:
                raise ValueError(f"it names the file {file['file']!r}, which is not in its folder")


def open_form(folder: str | Path, form: str, split: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Check the folder of a finished form; return its manifest, and the manifest's entry of `split`. The contents of
    shards are not read.

    InputError: no manifest, a manifest of another form, a split that it lacks, a file that is missing or has another
    size, or a file that the manifest does not name. IntegrityError: a damaged manifest.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest is None:
        raise InputError(f"{folder} has no {MANIFEST}, expected the folder {form}/ of a finished run. Correct the path")
    if manifest["form"] != form:
        raise InputError(
            f"{folder} holds {manifest['form']!r}, expected {form!r}. Open it with the data set of its form"
        )
    problem = next(problems(folder, manifest), "")
    if problem:
        raise InputError(f"{problem}. {remedy(folder / MANIFEST)}")
    if split not in manifest["splits"]:
        raise InputError(f"{folder} has no split {split!r}; it has {', '.join(manifest['splits'])}. Give one of these")
    return manifest, manifest["splits"][split]


def problems(folder: Path, manifest: dict[str, Any]) -> Iterator[str]:
    """Yield a message for each file that is missing, has another size or is not in the manifest."""
    named = {file["file"]: file["bytes"] for split in manifest["splits"].values() for file in split["files"]}
    for name, size in named.items():
        path = folder / name
        if not path.is_file():
            yield f"{path} is missing, though {MANIFEST} names it"
        elif path.stat().st_size != size:
            yield f"{path} has {path.stat().st_size} bytes, expected {size} by {MANIFEST}"
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    for name in sorted(present - {*named, MANIFEST}):
        yield f"{folder / name} is foreign: {MANIFEST} does not name it"
