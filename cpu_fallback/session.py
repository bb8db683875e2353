# SPDX-License-Identifier: Apache-2.0
"""Where CPU tasks run: Dask's threads (the kernels hold no lock), its processes, or the workers of a cluster."""

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import dask

LIBRARIES = ("pandas", "pyarrow", "numba", "dask")
BATCH_BYTES = 4 << 20  # more only adds memory (benchmarks/LOG.md)


class DaskSession:
    """Maps a function over items with Dask; `settings` go to `dask.compute`."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        task = dask.delayed(function, pure=False)
        return list(dask.compute(*map(task, items), **self.settings))


def describe() -> dict[str, str]:
    return {"engine": "cpu", "device": platform.machine(), **{name: version(name) for name in LIBRARIES}}


@contextmanager
def open_session(workers: int, scheduler: str) -> Iterator[DaskSession]:
    if scheduler in ("threads", "processes"):
        yield DaskSession(scheduler=scheduler, num_workers=workers)
        return
    from distributed import Client

    with Client(scheduler) as client:
        yield DaskSession(scheduler=client.get)


def batch_bytes(workers: int) -> int:
    return BATCH_BYTES
