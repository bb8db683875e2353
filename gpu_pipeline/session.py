# SPDX-License-Identifier: Apache-2.0
"""Sessions of GPU tasks: threads that share one device, processes that share all devices, or the workers of a cluster.

Threads overlap work of the host (reading, writing) with work of the device, and copies of one batch with kernels of
others. Each thread reserves memory for its batch (`gpu_pipeline.memory.device`).
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import cudf
import cupy as cp
import dask
import numba
import numba_cuda
import pyarrow
import rmm

from curation.base.errors import EngineError
from curation.base.speeds import PROCESSES_PER_DEVICE
from curation.base.system.cluster import connect
from curation.base.system.sessions import LocalExecutor, TaskSession
from curation.base.system.toolchain import driver_release
from gpu_pipeline.kernels.all_kernels import load_kernels
from gpu_pipeline.memory.device import BATCH_SHARE, memory
from gpu_pipeline.memory.host_memory import prepare, session_of
from gpu_pipeline.workers import begin, device_of_worker

LIBRARIES = (cudf, cp, rmm, pyarrow, numba, numba_cuda, dask)

# Not measured. Kernels cut a batch by bytes: 256 MB are 33 million threads of 8 bytes, and an H200 holds 270,000.
MIN_BATCH_BYTES, MAX_BATCH_BYTES = 4 << 20, 256 << 20

START_SECONDS = 300  # for the workers of this machine, which import cuDF

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
    """Start the processes of `_processes_of` on the GPUs of CUDA_VISIBLE_DEVICES. cuDF must not spill memory to the
    host, since kernels hold raw pointers."""
    from dask_cuda import LocalCUDACluster

    devices = min(workers, cp.cuda.runtime.getDeviceCount())
    processes, threads = _processes_of(workers, devices)
    with LocalCUDACluster(
        n_workers=devices,
        threads_per_worker=threads,
        memory_limit=1 / (devices * processes),
        rmm_async=True,
        enable_cudf_spill=False,
    ) as cluster:
        _share_devices(cluster, processes)
        yield cluster


def _processes_of(workers: int, devices: int) -> tuple[int, int]:
    """Return the number of processes per device, and of threads per process, for `workers` tasks at once in all: one
    thread, unless there are more workers than PROCESSES_PER_DEVICE per device. Each process's share of the device holds
    the largest batch."""
    most = min(PROCESSES_PER_DEVICE, memory().total // (BATCH_SHARE * MAX_BATCH_BYTES))
    processes = max(min(workers // devices, most), 1)
    return processes, max(workers // (devices * processes), 1)


def _share_devices(cluster: Any, processes: int) -> None:
    """Add workers to a cluster that has one per device, until each device has `processes`. LocalCUDACluster refuses
    more workers than devices.

    Raises EngineError if they do not start."""
    for name, spec in [*cluster.worker_spec.items()]:
        cluster.worker_spec |= {f"{name}-{number}": deepcopy(spec) for number in range(1, processes)}
    count = len(cluster.worker_spec)
    cluster.scale(count)
    try:
        cluster.wait_for_workers(count, START_SECONDS)
    except TimeoutError as error:
        raise EngineError(
            f"not all of {count} processes on the GPU started within {START_SECONDS} s. Use fewer --workers, or "
            "--scheduler threads"
        ) from error


@contextmanager
def open_session(workers: int, scheduler: str, kernels: Sequence[str] = ()) -> Iterator[TaskSession]:
    """Open a session of `workers` tasks at once on "threads" or "auto", "processes" or a Dask scheduler's address.

    One thread loads the kernels of the groups `kernels` before the first task of each process. Workers of a cluster on
    one device divide its memory.

    Raises EngineError if the scheduler does not answer.
    """
    if scheduler in ("threads", "auto"):
        memory()
        _warn_of_idle_devices(cp.cuda.runtime.getDeviceCount() - 1)
        load_kernels(tuple(kernels))
        with session_of(workers), ThreadPoolExecutor(workers) as pool:
            prepare(batch_bytes(workers))
            yield TaskSession(LocalExecutor(pool, workers))
        return
    if scheduler == "processes":
        with _cluster_of_this_machine(workers) as cluster, connect(cluster) as session:
            yield _on_devices(session, kernels)
        return
    with connect(scheduler) as session:
        yield _on_devices(session, kernels)


def _on_devices(session: Any, kernels: Sequence[str]) -> TaskSession:
    """Return the session of a cluster whose workers divide their devices, and load their kernels, before their first
    task."""
    processes = Counter(session.executor.on_each_worker(device_of_worker))
    session.begin = partial(begin, dict(processes), tuple(kernels))
    return session


def _warn_of_idle_devices(devices: int) -> None:
    if devices:
        log.warning("threads use one GPU and leave %d idle; --scheduler processes uses all", devices)


def batch_bytes(workers: int) -> int:
    """Return the batch size in bytes: MAX_BATCH_BYTES, or less if the device cannot hold a batch. The size does not
    depend on `workers`: threads wait for memory, and small batches would leave most of the device idle."""
    return min(max(memory().total // BATCH_SHARE, MIN_BATCH_BYTES), MAX_BATCH_BYTES)
