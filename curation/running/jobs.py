# SPDX-License-Identifier: Apache-2.0
"""What all tasks of a phase share, on disk: a task takes its path and a number, and a process reads it once.

Sent along with each task, the list of slices would make the work of processes and clusters grow with its square
(2,000 tiny slices in two processes: 72 s, from a file 8 s; benchmarks/LOG.md).
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from curation.files import commit, piece_path

_LOADING = Lock()  # of the threads that begin a phase one reads the job, the others wait for it


def store_job(job: Any, folder: Path) -> Path:
    """The file of a picklable job. Its name tells its content, so that no process goes by what it read before."""
    data = pickle.dumps(job, pickle.HIGHEST_PROTOCOL)
    path = folder / f"job-{hashlib.sha256(data).hexdigest()[:16]}.pickle"
    if not path.exists():
        with commit(path) as temporary:
            temporary.write_bytes(data)
    return path


@lru_cache(maxsize=1)
def _load_job(path: Path) -> Any:
    return pickle.loads(path.read_bytes())


def run_stored(function: Callable[[Any, int], None], path: Path, number: int) -> None:
    """`function` of the job stored at `path` and one of its numbers, unless its done-record is there: Dask runs again
    what a worker had finished that died before the end of the phase."""
    if piece_path(path.parent, number, ".json").exists():
        return
    with _LOADING:
        job = _load_job(path)
    function(job, number)


__all__ = ["run_stored", "store_job"]
