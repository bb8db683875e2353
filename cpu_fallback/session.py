# SPDX-License-Identifier: Apache-2.0
"""Where CPU tasks run: Dask's threads (the kernels hold no lock), its processes, or the workers of a cluster."""

import platform
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version

import dask.multiprocessing
import dask.threaded

from curation.cluster import DaskSession, connect, process_pool

LIBRARIES = ("pandas", "pyarrow", "numba", "dask")
BATCH_BYTES = 4 << 20  # more only adds memory (benchmarks/LOG.md)


def describe() -> dict[str, str]:
    return {"engine": "cpu", "device": platform.machine(), **{name: version(name) for name in LIBRARIES}}


@contextmanager
def open_session(workers: int, scheduler: str) -> Iterator[DaskSession]:
    if scheduler == "threads":
        with ThreadPoolExecutor(workers) as pool:  # what runs on beside an error ends before the run lets its folder go
            yield DaskSession(partial(dask.threaded.get, pool=pool))
    elif scheduler == "processes":
        with process_pool(workers) as pool:
            yield DaskSession(partial(dask.multiprocessing.get, pool=pool, chunksize=1))
    else:
        with connect(scheduler) as get:
            yield DaskSession(get)


def batch_bytes(workers: int) -> int:
    return BATCH_BYTES
