# SPDX-License-Identifier: Apache-2.0
"""Checks of the workers of a Dask cluster before a run: their versions, and that they share the folder of the run."""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from curation.base.errors import EngineError, OutputError, counted
from curation.base.system.cluster import PATIENCE_SECONDS, POLL_SECONDS, no_worker, open_client
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.interrupts import wait_for
from curation.base.system.os_errors import fault_of

# Packages whose versions must be equal on all machines. So must the first two numbers of Python's version.
COMPARED = ("gpu-pipeline", "numba", "numpy", "pyarrow", "dask", "distributed")
MAX_SHOWN = 3
ANSWER_SECONDS = 60.0
WAIT_SECONDS = 0.5
Result = TypeVar("Result")

log = logging.getLogger(__name__)


class Worker(NamedTuple):
    """A worker of a cluster. `memory_limit` is in bytes, 0 without one."""

    address: str
    host: str
    threads: int
    memory_limit: int

    def __str__(self) -> str:
        return f"worker {self.address} on {self.host}"


class ClusterConnection:
    """A connection to a cluster, for checks and preparations before the run."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._wait_for_workers()
        known = client.scheduler_info(n_workers=-1)["workers"]
        hosts = self._on_each(socket.gethostname)
        self.workers = [
            Worker(address, hosts[address], content["nthreads"], content.get("memory_limit") or 0)
            for address, content in known.items()
            if address in hosts
        ]

    def _on_each(self, function: Callable[..., Result], *arguments: Any) -> dict[str, Result]:
        """Return the result of a function in each worker, by the worker's address. If the function raises an exception
        in a worker, the exception is the result."""
        results: dict[str, Result] = self._answer(lambda: self._client.run(function, *arguments, on_error="return"))
        return results

    def _answer(self, ask: Callable[[], Result]) -> Result:
        """Return the answer of the workers. Raises EngineError if they do not answer within `ANSWER_SECONDS`."""
        try:
            return wait_for(ask, ANSWER_SECONDS)
        except TimeoutError:
            address = self._client.scheduler.address
            raise EngineError(
                f"workers of {address} have not answered for {ANSWER_SECONDS:g} s. Restart those that the dashboard or "
                "the log of the scheduler shows as silent"
            ) from None

    def _wait_for_workers(self) -> None:
        """Wait for a first worker. Raises EngineError after `PATIENCE_SECONDS` without one."""
        seconds = 0.0
        while not self._client.scheduler_info(n_workers=0)["n_workers"]:
            if seconds == POLL_SECONDS:
                log.warning("no worker at %s; waiting %d s for one", self._client.scheduler.address, PATIENCE_SECONDS)
            if seconds >= PATIENCE_SECONDS:
                raise no_worker(self._client.scheduler.address, seconds)
            check_interrupts()
            time.sleep(WAIT_SECONDS)
            seconds += WAIT_SECONDS

    def check_versions(self) -> None:
        """Raise EngineError if a worker has other versions than this process, or lacks a package."""
        versions = self._answer(lambda: self._client.get_versions(check=False, packages=[*COMPARED]))
        ours = _compared(versions["client"])
        faults = []
        for worker in self.workers:
            theirs = _compared(versions["workers"].get(worker.address) or {})
            differ = [
                f"{name} {theirs[name] or 'none'}, here {ours[name]}" for name in ours if theirs[name] != ours[name]
            ]
            faults += [f"{worker} has {'; '.join(differ)}"] if differ else []
        if faults:
            raise EngineError(f"versions differ: {_listed(faults)}. Install the same versions on all machines")

    def check_folder(self, folder: Path, below: Path) -> None:
        """Raise OutputError if a worker does not see `folder`, or cannot write to its subfolder `below`."""
        mark = below / f"seen-{uuid.uuid4().hex}.tmp"
        mark.write_bytes(mark.name.encode())
        try:
            answers = self._on_each(_fault_of_folder, str(mark), str(folder))
        finally:
            mark.unlink(missing_ok=True)
        faults = [f"{worker} {answers[worker.address]}" for worker in self.workers if answers.get(worker.address)]
        if faults:
            raise OutputError(f"{_listed(faults)}. Share the folder {folder} with all workers, under the same path")

    def on_each_worker(self, function: Callable[..., Result], *arguments: Any) -> dict[Worker, Result]:
        """Return the result of a function of this package in each worker. The first error is raised."""
        answers = self._on_each(function, *arguments)
        results: dict[Worker, Result] = {}
        for worker in self.workers:
            result = answers[worker.address]
            if isinstance(result, BaseException):
                raise EngineError(f"{worker}: {result}") from result
            results[worker] = result
        return results

    def on_each_host(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function once on each host, as a task of one of its workers."""
        first: Mapping[str, Worker] = {worker.host: worker for worker in reversed(self.workers)}
        futures = [
            self._client.submit(function, *arguments, workers=[worker.address], pure=False) for worker in first.values()
        ]
        wait_for(lambda: self._client.gather(futures))


@contextmanager
def open_cluster(scheduler: str) -> Iterator[ClusterConnection]:
    """Connect to the scheduler at an address. Raises EngineError if the scheduler does not answer."""
    with open_client(scheduler) as client:
        yield ClusterConnection(client)


def _compared(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions that must be equal; for Python only the first two numbers."""
    packages = content.get("packages", {})
    python = str(packages.get("python") or "")
    return {"python": ".".join(python.split(".")[:2]), **{name: str(packages.get(name) or "") for name in COMPARED}}


def _listed(faults: Sequence[str]) -> str:
    more = len(faults) - MAX_SHOWN
    return ". ".join(faults[:MAX_SHOWN]) + (f". {counted(more, 'more worker')}" if more > 0 else "")


def _fault_of_folder(mark: str, folder: str) -> str:
    """Return why this process cannot use the folder with the file `mark`; "" if it can. Runs in a worker."""
    path = Path(mark)
    try:
        path.read_bytes()
        probe = path.with_name(f"{path.stem}-{socket.gethostname()}-{os.getpid()}.tmp")
        probe.touch()
        probe.unlink()
    except FileNotFoundError:
        return f"does not see the output folder {folder}"
    except OSError as error:
        return f"cannot use the folder {folder}: {fault_of(error)}"
    return ""
