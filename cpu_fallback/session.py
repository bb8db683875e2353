# SPDX-License-Identifier: Apache-2.0
"""Where CPU tasks run: Dask's threads (the kernels hold no lock), its processes, or the workers of a cluster."""

import platform
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import dask.multiprocessing
import dask.threaded

from curation.cluster import connect

LIBRARIES = ("pandas", "pyarrow", "numba", "dask")
LOCAL = {"threads": dask.threaded.get, "processes": dask.multiprocessing.get}
BATCH_BYTES = 4 << 20  # more only adds memory (benchmarks/LOG.md)


class DaskSession:
    """Maps a function over items by `get`, a scheduler of Dask: it takes a graph and the names of what is wanted."""

    def __init__(self, get: Callable[..., Any]) -> None:
        self.get = get

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        # A plain graph: of delayed objects, 10,000 take six seconds. Dask begins with the greatest name.
        run = uuid.uuid4().hex
        names = [f"{run}-{number:09d}" for number in reversed(range(len(items)))]
        tasks = [(partial(function, item),) for item in items]
        return list(self.get(dict(zip(names, tasks, strict=True)), names))


def describe() -> dict[str, str]:
    return {"engine": "cpu", "device": platform.machine(), **{name: version(name) for name in LIBRARIES}}


@contextmanager
def open_session(workers: int, scheduler: str) -> Iterator[DaskSession]:
    if scheduler in LOCAL:
        yield DaskSession(partial(LOCAL[scheduler], num_workers=workers))
        return
    with connect(scheduler) as get:
        yield DaskSession(get)


def batch_bytes(workers: int) -> int:
    return BATCH_BYTES
