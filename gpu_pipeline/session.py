# SPDX-License-Identifier: Apache-2.0
"""Where GPU tasks run: threads that share one device, one process per device, or the workers of a cluster.

Threads overlap what the host does (reading, tokenising, writing) with what the device does; one of them at a time
launches kernels (`buffers.DEVICE`), since their scratch would not fit twice.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import cudf
import cupy as cp
import dask.threaded
import numba
import numba_cuda
import pyarrow
import rmm

from curation.cluster import DaskSession, connect
from gpu_pipeline.buffers import prepare_device

LIBRARIES = (cudf, cp, rmm, pyarrow, numba, numba_cuda, dask)

# Unmeasured. 256 MB are some 60,000 documents of the web, one thread each, of which an H200 holds 67,000.
MIN_BATCH_BYTES, MAX_BATCH_BYTES = 4 << 20, 256 << 20
BATCH_SHARE = 8  # of a task's memory: a batch takes up to six times its text, and the allocator needs some room

log = logging.getLogger(__name__)


def _driver_version() -> str:
    """The driver's own number; CUDA's interface tells only the CUDA version it supports."""
    try:
        found = re.search(r"(\d+\.\d+[.\d]*)", Path("/proc/driver/nvidia/version").read_text())
    except OSError:  # WSL has no such file
        found = None
    return found[1] if found else "unknown"


def describe() -> dict[str, str]:
    runtime = cp.cuda.runtime
    cuda = runtime.driverGetVersion()
    return {
        "engine": "gpu",
        "device": runtime.getDeviceProperties(cp.cuda.Device().id)["name"].decode(),
        "memory": f"{runtime.memGetInfo()[1] / 2**30:.1f} GiB",
        "devices": str(runtime.getDeviceCount()),
        "driver": _driver_version(),
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
        **{library.__name__: library.__version__ for library in LIBRARIES},
    }


@contextmanager
def _cluster_of_this_machine(workers: int) -> Iterator[Any]:
    """One process per GPU of CUDA_VISIBLE_DEVICES, `workers` tasks at once in all. cuDF must not spill: the kernels
    hold raw pointers."""
    from dask_cuda import LocalCUDACluster

    devices = min(workers, cp.cuda.runtime.getDeviceCount())
    threads = max(workers // devices, 1)
    with LocalCUDACluster(
        n_workers=devices, threads_per_worker=threads, rmm_async=True, enable_cudf_spill=False
    ) as cluster:
        yield cluster


@contextmanager
def open_session(workers: int, scheduler: str) -> Iterator[DaskSession]:
    if scheduler == "threads":
        prepare_device()
        _say_that_devices_are_idle(cp.cuda.runtime.getDeviceCount() - 1)
        yield DaskSession(partial(dask.threaded.get, num_workers=workers))
        return
    if scheduler == "processes":
        with _cluster_of_this_machine(workers) as cluster, connect(cluster) as get:
            yield DaskSession(get)
        return
    with connect(scheduler) as get:
        yield DaskSession(get)


def _say_that_devices_are_idle(devices: int) -> None:
    if devices:
        log.warning("threads use one GPU and leave %d idle; --scheduler processes uses all", devices)


def batch_bytes(workers: int) -> int:
    """A share of one device's memory: all tasks may have their batch on the same one."""
    share = cp.cuda.runtime.memGetInfo()[1] // (BATCH_SHARE * workers)
    return min(max(share, MIN_BATCH_BYTES), MAX_BATCH_BYTES)
