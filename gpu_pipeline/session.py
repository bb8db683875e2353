# SPDX-License-Identifier: Apache-2.0
"""Sessions of GPU tasks: threads that share one device, one process per device, or the workers of a cluster.

Threads overlap work of the host (reading, writing) with work of the device, and copies of one batch with kernels of
others. Each thread reserves memory for its batch (`gpu_pipeline.device`).
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import cudf
import cupy as cp
import dask
import numba
import numba_cuda
import pyarrow
import rmm

from curation.base.system.cluster import connect
from curation.base.system.sessions import LocalExecutor, TaskSession
from curation.base.system.toolchain import driver_release
from gpu_pipeline.device import BATCH_SHARE, memory
from gpu_pipeline.host_memory import session_of

LIBRARIES = (cudf, cp, rmm, pyarrow, numba, numba_cuda, dask)

# Not measured. Kernels cut a batch by bytes: 256 MB are 33 million threads of 8 bytes, and an H200 holds 270,000.
MIN_BATCH_BYTES, MAX_BATCH_BYTES = 4 << 20, 256 << 20

log = logging.getLogger(__name__)


def describe() -> dict[str, str]:
    """Return the device, its memory (GiB), the number of devices, and the versions of driver, CUDA and libraries."""
    runtime = cp.cuda.runtime
    cuda = runtime.driverGetVersion()
    return {
        "engine": "gpu",
        "device": runtime.getDeviceProperties(cp.cuda.Device().id)["name"].decode(),
        "memory": f"{runtime.memGetInfo()[1] / 2**30:.1f} GiB",
        "devices": str(runtime.getDeviceCount()),
        "driver": driver_release() or "unknown",
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
        **{library.__name__: library.__version__ for library in LIBRARIES},
    }


@contextmanager
def _cluster_of_this_machine(workers: int) -> Iterator[Any]:
    """Start one process per GPU of CUDA_VISIBLE_DEVICES, with `workers` tasks at once in all. cuDF must not spill
    memory to the host, since kernels hold raw pointers."""
    from dask_cuda import LocalCUDACluster

    devices = min(workers, cp.cuda.runtime.getDeviceCount())
    threads = max(workers // devices, 1)
    with LocalCUDACluster(
        n_workers=devices, threads_per_worker=threads, rmm_async=True, enable_cudf_spill=False
    ) as cluster:
        yield cluster


@contextmanager
def open_session(workers: int, scheduler: str) -> Iterator[TaskSession]:
    """Open a session of `workers` tasks at once on "threads" or "auto", "processes" or a Dask scheduler's address.

    Raises EngineError if the scheduler does not answer.
    """
    if scheduler in ("threads", "auto"):
        memory()
        _warn_of_idle_devices(cp.cuda.runtime.getDeviceCount() - 1)
        with session_of(workers), ThreadPoolExecutor(workers) as pool:
            yield TaskSession(LocalExecutor(pool, workers))
        return
    if scheduler == "processes":
        with _cluster_of_this_machine(workers) as cluster, connect(cluster) as session:
            yield session
        return
    with connect(scheduler) as session:
        yield session


def _warn_of_idle_devices(devices: int) -> None:
    if devices:
        log.warning("threads use one GPU and leave %d idle; --scheduler processes uses all", devices)


def batch_bytes(workers: int) -> int:
    """Return the batch size in bytes: MAX_BATCH_BYTES, or less if the device cannot hold a batch. The size does not
    depend on `workers`: threads wait for memory, and small batches would leave most of the device idle."""
    return min(max(memory().total // BATCH_SHARE, MIN_BATCH_BYTES), MAX_BATCH_BYTES)
