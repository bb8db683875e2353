# SPDX-License-Identifier: Apache-2.0
"""Sessions of CPU tasks: threads (the kernels release the GIL), processes, or the workers of a cluster."""

import platform
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from curation.base.system.cluster import connect, pool_of_processes, process_pool
from curation.base.system.packages import package_version
from curation.base.system.pools import threads_of_processes
from curation.base.system.sessions import LocalExecutor, TaskSession

LIBRARIES = ("pandas", "pyarrow", "numba", "dask")
BATCH_BYTES = 4 << 20  # larger batches need more memory and are not faster (benchmarks/LOG.md)


def describe() -> dict[str, str]:
    """Return the architecture of the machine and the versions of the libraries."""
    return {"engine": "cpu", "device": platform.machine(), **{name: package_version(name) for name in LIBRARIES}}


@contextmanager
def open_session(workers: int, scheduler: str, kernels: Sequence[str] = ()) -> Iterator[TaskSession]:
    """Open a session of `workers` tasks at once on "threads", "processes", "auto" or a Dask scheduler's address.

    Raises EngineError if the scheduler does not answer.
    """
    threads = threads_of_processes(scheduler, workers)
    if threads and scheduler == "auto":
        with pool_of_processes(threads) as processes:
            yield TaskSession(LocalExecutor(processes, workers))
    elif scheduler in ("threads", "auto"):
        with ThreadPoolExecutor(workers) as pool:  # after an error, running tasks end before the run unlocks its folder
            yield TaskSession(LocalExecutor(pool, workers))
    elif scheduler == "processes":
        with process_pool(workers) as pool:
            yield TaskSession(LocalExecutor(pool, workers))
    else:
        with connect(scheduler) as session:
            yield session


def batch_bytes(workers: int) -> int:
    """Return the batch size in bytes; it does not depend on `workers`."""
    return BATCH_BYTES
