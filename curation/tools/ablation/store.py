# SPDX-License-Identifier: Apache-2.0
"""The folder of an ablation: its plan, and what a killed ablation need not compute again."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from curation import __version__
from curation.base.errors import IntegrityError
from curation.base.system.damage import FAULTS
from curation.base.system.files import (
    as_json,
    check_new,
    check_new_or_same,
    commit,
    local_output,
    make_folder,
    remove,
    sweep_dead,
)

PLAN, CONTENT, PAGE, MODELS = "plan.json", "ablation.json", "ablation.html", "models"
STORED = re.compile(r"(bits|leaks)-[0-9a-f]{32}\.(npz|pt)")  # names in MODELS
AGAIN = "Delete it, and the same command makes it again"


class Store:
    """Arrays in files of `models/` in a folder, named by what they depend on. Without a folder, nothing is stored."""

    def __init__(self, folder: str | os.PathLike[str] = "") -> None:
        self._models = local_output(folder) / MODELS if os.fspath(folder) else None
        self._is_open = False
        self._waiting: dict[str, np.ndarray] = {}  # until the plan is written

    def begin(self, plan: dict[str, Any], force: bool = False) -> int:
        """Write the plan to the folder, and return how many trained models it has. See `write_plan`."""
        if self._models is None:
            return 0
        write_plan(self._models.parent, plan, force)
        make_folder(self._models)
        self._is_open = True
        for name, values in self._waiting.items():
            self._write(self._models / name, values)
        return len([*self._models.glob("bits-*.npz")])

    def get(self, kind: str, key: bytes, make: Callable[[Path | None], np.ndarray]) -> np.ndarray:
        """Return an array that was stored, or make and store it.

        kind  what it has: `bits` of a trained model, or another noun
        key   all that the array depends on
        make  returns the array. It gets a path for what it stores meanwhile, or None, and deletes the file at the end

        Raises IntegrityError for a damaged file.
        """
        name = f"{kind}-{hashlib.sha256(__version__.encode() + key).hexdigest()[:32]}.npz"
        if self._models is None:
            return make(None)
        path = self._models / name
        if path.is_file():
            values = _read(path)
        else:
            values = make(path.with_suffix(".pt") if self._is_open else None)
            if self._is_open:
                self._write(path, values)
        if not self._is_open:
            self._waiting[name] = values
        return values

    def _write(self, path: Path, values: np.ndarray) -> None:
        if not path.exists():
            sweep_dead(path)
            with commit(path) as temporary, open(temporary, "wb") as file:
                np.savez(file, values)


def _read(path: Path) -> np.ndarray:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:  # a zip file, which has checksums
            return np.asarray(found["arr_0"])
    except FAULTS as error:
        raise IntegrityError(f"{path} is damaged: {error}. {AGAIN}") from None


def write_plan(folder: str | os.PathLike[str], plan: dict[str, Any], force: bool) -> Path:
    """Write the plan of an ablation to a folder, and return its path. An ablation with the same plan may be there; one
    with another plan only with `force`, which deletes its models."""
    path, text = local_output(folder), as_json(plan, indent=True)
    check_new_or_same(path / PLAN, text, force)
    for name in (CONTENT, PAGE):
        check_new(path / name, force or (path / PLAN).exists())
    make_folder(path)
    if (path / PLAN).exists() and (path / PLAN).read_bytes() != text:
        for file in (path / MODELS).glob("*"):
            if STORED.fullmatch(file.name):
                remove(file)
    with commit(path / PLAN) as temporary:
        temporary.write_bytes(text)
    return path
