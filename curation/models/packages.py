# SPDX-License-Identifier: Apache-2.0
"""Finds models that an installed package contains: `package:NAME`. Only the package's list of files is read; its code
is not imported or run, and nothing is downloaded."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import PurePosixPath

from curation.base.errors import InputError

MARK = "package:"
TOKENIZER = "tokenizer.json"
WEIGHTS = ("model.safetensors", "model.onnx", "onnx/model.onnx")


@lru_cache(maxsize=64)
def model_folder(model: str) -> str:
    """Return the folder of a model in an installed package, for `package:NAME` or, if the package has several models,
    `package:NAME/FOLDER`. Other paths are returned unchanged. Raises InputError for a package that is missing, or has
    no such model."""
    if not model.startswith(MARK):
        return model
    name, _, wanted = model.removeprefix(MARK).partition("/")
    try:
        package = distribution(name)
    except (PackageNotFoundError, ValueError):  # ValueError: an empty name
        raise InputError(
            f"model: the package {name!r} is not installed in this environment. Models are never downloaded: pip "
            f"install {name or 'NAME'}, or give the path of a local folder"
        ) from None
    files = {path.as_posix() for path in package.files or () if ".." not in path.parts}
    weights = {_folder(path) for path in files if any(PurePosixPath(path).match(file) for file in WEIGHTS)}
    folders = sorted(folder for folder in weights if f"{folder}/{TOKENIZER}" in files)
    if not folders:
        raise InputError(
            f"model: the package {name} {package.version} has no model: no folder with {TOKENIZER} and one of "
            f"{', '.join(WEIGHTS)}. Give the path of a local folder"
        )
    if wanted not in folders and (wanted or len(folders) > 1):
        choices = ", ".join(f"{MARK}{name}/{folder}" for folder in folders)
        fault = f"has no model {wanted!r}" if wanted else f"has {len(folders):,} models"
        raise InputError(f"model: the package {name} {package.version} {fault}. Give {choices}")
    return str(package.locate_file(wanted or folders[0]))


def _folder(path: str) -> str:
    """Return the folder of a model, given the path of its weights."""
    parent = PurePosixPath(path).parent
    return str(parent.parent if parent.name == "onnx" else parent)


def named_in(model: str, files: dict[str, str]) -> dict[str, str]:
    """Return path -> SHA-256 of the files of a model. If the model is in a package, paths are replaced by names that
    are equal on all machines."""
    folder = model_folder(model)
    if folder == model:
        return files
    return {f"{model}{path.removeprefix(folder)}": digest for path, digest in files.items()}
