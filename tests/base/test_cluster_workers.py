# SPDX-License-Identifier: Apache-2.0
"""Workers of a cluster are checked before a run, and prepare their machines once."""

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from curation.base.errors import EngineError, OutOfMemoryError, OutputError
from curation.base.system import cluster_workers
from curation.base.system.cluster_workers import ClusterConnection, Worker
from curation.base.system.memory import LOADED, Limit, choose
from curation.record.jobs import load_job
from curation.record.stored_plan import Stored
from curation.running import cluster_resources
from curation.running.cluster_resources import worker_limits

OWN = dict.fromkeys(cluster_workers.COMPARED, "1.0") | {"python": "3.11.7.final.0"}


class FakeClient:
    """A client of workers, given as address -> host. Functions run here, in the folder `roots[address]` if there is
    one, as on a machine that has other files under the same paths."""

    def __init__(self, hosts: dict[str, str]) -> None:
        self.hosts, self.roots, self.called = hosts, {}, []
        self.versions = {address: {"packages": OWN} for address in hosts}
        self.scheduler = SimpleNamespace(address="tcp://scheduler:1")

    def scheduler_info(self, n_workers: int = 5) -> dict[str, Any]:
        workers = {address: {"nthreads": 2, "memory_limit": 4 << 30} for address in self.hosts}
        return {"workers": workers, "n_workers": len(self.hosts)}

    def run(self, function: Callable[..., Any], *arguments: Any, on_error: str) -> dict[str, Any]:
        if function is socket.gethostname:
            return dict(self.hosts)
        results = {}
        for address in self.hosts:
            moved = [str(part).replace(*self.roots.get(address, ("", "", 0)[:2])) for part in arguments[:1]]
            results[address] = function(*moved, *arguments[1:])
        return results

    def get_versions(self, check: bool, packages: list[str]) -> dict[str, Any]:
        return {"client": {"packages": OWN}, "workers": self.versions}

    def submit(self, function: Callable[..., Any], *arguments: Any, workers: list[str], pure: bool) -> "Future[Any]":
        self.called += workers
        return Future()

    def gather(self, futures: list[Any]) -> list[Any]:
        return []


@pytest.fixture
def client() -> FakeClient:
    return FakeClient({"tcp://a:1": "one", "tcp://b:1": "two", "tcp://b:2": "two"})


def test_equal_workers_pass(client: FakeClient, tmp_path: Path):
    cluster = ClusterConnection(client)
    cluster.check_versions()
    cluster.check_folder(tmp_path, tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_worker_that_does_not_see_the_folder_is_named(client: FakeClient, tmp_path: Path):
    client.roots["tcp://b:1"] = str(tmp_path), str(tmp_path / "elsewhere")
    message = f"^worker tcp://b:1 on two does not see the output folder {tmp_path}. Share the folder {tmp_path}"
    with pytest.raises(OutputError, match=message):
        ClusterConnection(client).check_folder(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("name", "found", "told"),
    [
        ("numpy", "2.1", "numpy 2.1, here 1.0"),
        ("gpu-pipeline", None, "gpu-pipeline none, here 1.0"),
        ("python", "3.12.1", "python 3.12, here 3.11"),
    ],
)
def test_a_worker_of_another_version_is_named(client: FakeClient, name: str, found: str | None, told: str):
    client.versions["tcp://a:1"] = {"packages": OWN | {name: found}}
    message = f"^versions differ: worker tcp://a:1 on one has {told}. Install the same versions on all machines$"
    with pytest.raises(EngineError, match=message):
        ClusterConnection(client).check_versions()
    client.versions["tcp://a:1"] = {"packages": OWN | {"python": "3.11.9.final.0"}}
    ClusterConnection(client).check_versions()


def test_a_task_of_a_late_worker_names_its_host(tmp_path: Path):
    message = rf"job.json does not exist on {socket.gethostname()}, where a task of the run began\. Share"
    with pytest.raises(OutputError, match=message):
        load_job(dict, Stored(tmp_path / "job.json", "0" * 64))


def test_many_faults_are_one_message(tmp_path: Path):
    client = FakeClient({f"tcp://a:{number}": "one" for number in range(9)})
    client.versions = {address: {"packages": {}} for address in client.hosts}
    with pytest.raises(EngineError, match=r"6 more workers\. Install the same"):
        ClusterConnection(client).check_versions()


def test_workers_that_do_not_answer_are_not_waited_for(client: FakeClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster_workers, "ANSWER_SECONDS", 0.1)
    cluster = ClusterConnection(client)
    monkeypatch.setattr(client, "get_versions", lambda **_: time.sleep(1))
    with pytest.raises(EngineError, match=r"workers of tcp://scheduler:1 have not answered for 0\.1 s"):
        cluster.check_versions()


def test_no_worker_comes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster_workers, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(cluster_workers, "WAIT_SECONDS", 0.05)
    with pytest.raises(EngineError, match=r"tcp://scheduler:1 has had no worker for 0 s\. Start workers"):
        ClusterConnection(FakeClient({}))


def test_kernels_are_compiled_by_one_worker_of_each_machine(client: FakeClient):
    ClusterConnection(client).on_each_host(print)
    assert client.called == ["tcp://b:1", "tcp://a:1"]


def test_the_memory_rule_takes_the_limits_of_a_worker():
    worker, gib = Worker("tcp://b:1", "two", 4, 2 << 30), 1 << 30
    limits = [Limit("resident", "memory.max", 32 * gib, 16 * gib), Limit("private", "ulimit -d", gib, gib)]
    own, shared = worker_limits(worker, limits, neighbours=2)
    assert (own.name, own.free) == ("the memory limit of worker tcp://b:1 on two", 2 * gib - LOADED["resident"])
    assert (shared.name, shared.free) == ("memory.max of worker tcp://b:1 on two", 8 * gib - LOADED["resident"])
    assert choose([own, shared], 4, 4 << 20, 32 << 20, fixed_workers=True).limit == own
    small = worker_limits(worker._replace(memory_limit=200 << 20), limits, neighbours=1)
    with pytest.raises(OutOfMemoryError, match="the memory limit of worker tcp://b:1 on two leaves 21 MB"):
        choose(small, 4, 4 << 20, 32 << 20, fixed_workers=True)


def test_the_worker_with_the_least_memory_decides(client: FakeClient, monkeypatch: pytest.MonkeyPatch):
    cluster = ClusterConnection(client)
    cluster.workers[1] = cluster.workers[1]._replace(memory_limit=500 << 20)
    monkeypatch.setattr(client, "run", lambda *_, **__: {address: [] for address in client.hosts})
    engine = SimpleNamespace(batch_bytes=lambda _: 4 << 20)
    call: Any = SimpleNamespace(workers=0, engine=engine, choice=SimpleNamespace(name="cpu"))
    found = cluster_resources.find_cluster_resources(call, cluster)
    assert found.workers == 6 and found.limit and "tcp://b:1" in found.limit.name
    assert "start its worker with fewer --nthreads" in found.remark
