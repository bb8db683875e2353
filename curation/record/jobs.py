# SPDX-License-Identifier: Apache-2.0
"""The jobs of tasks: files that all tasks of a phase share."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from curation.base.system.files import commit, numbered_path
from curation.record.partitions import Partitions
from curation.record.records import TaskCounts
from curation.record.stored_plan import Loaded, Plan, Stored, load_plan, load_shared

# The function of a task that reads URLs with secrets -> the function that finds these URLs: `find(plan, job, number)`.
URLS: dict[Any, Callable[[Plan, Any, int], tuple[str, ...]]] = {}


def store_job(job: Any, folder: Path) -> Stored:
    """Write a job to a file, unless it exists, and return the file.

    A job is a `msgspec.Struct` whose fields are JSON, paths, int64 arrays (stored in base64), `Partitions` or `Stored`.
    """
    data = msgspec.json.encode(job, enc_hook=_encode)
    digest = hashlib.sha256(data).hexdigest()
    path = folder / f"job-{digest[:16]}.json"
    if not path.exists():
        with commit(path) as temporary:
            temporary.write_bytes(data)
    return Stored(path, digest)


def run_stored(
    function: Callable[..., TaskCounts | None], kind: type[Any], plan: Stored, job: Stored,
    item: tuple[int, *tuple[Any, ...]],
) -> TaskCounts | None:  # fmt: skip
    """Return `function(plan, job, *item)`, or None if the done-record of the item exists.

    `kind` is the class of the job; `item` is a number and the further arguments of its task. Dask repeats finished
    tasks of a worker that dies before the end of the phase, so the record is checked again here.
    """
    if numbered_path(job.path.parent, item[0], ".json").exists():
        return None
    return function(load_plan(plan), load_job(kind, job), *item)


def load_job(kind: type[Loaded], stored: Stored) -> Loaded:
    """Return the job of class `kind` in a file, read once per process."""
    return load_shared(stored, lambda data: msgspec.json.decode(data, type=kind, dec_hook=_decode))


def _encode(value: Any) -> Any:
    match value:
        case Path():
            return str(value)
        case np.ndarray():
            return value.astype("<i8").tobytes()
        case Partitions():
            return [str(value.folder), np.diff(value.starts)]
    raise NotImplementedError(f"a job cannot hold a {type(value).__name__}")


def _decode(kind: type[Any], value: Any) -> Any:
    if kind is Path:
        return Path(value)
    if kind is np.ndarray:
        return _int64(value)
    if kind is Partitions:
        return Partitions(Path(value[0]), _int64(value[1]))
    raise NotImplementedError(f"a job cannot hold a {kind.__name__}")


def _int64(value: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(value), "<i8")
