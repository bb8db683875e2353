# SPDX-License-Identifier: Apache-2.0
"""Where GPU tasks run, with made-up devices: one process per GPU, how much is worked on at a time, what is said."""

import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.gpu import stand_ins
from tests.gpu.interface import guarded

GIB = 1 << 30


@pytest.fixture
def session(monkeypatch):
    return stand_ins.install(monkeypatch)("session")


@pytest.fixture
def clusters(session, monkeypatch):
    """The settings of every cluster that was started, and what was connected to."""
    started, addresses = [], []

    @contextmanager
    def cluster(**settings):
        started.append(settings)
        yield "the local cluster"

    @contextmanager
    def connect(address):
        addresses.append(address)
        yield SimpleNamespace(executor="the cluster's")

    monkeypatch.setitem(
        sys.modules, "dask_cuda", SimpleNamespace(LocalCUDACluster=guarded("dask_cuda.LocalCUDACluster", cluster))
    )
    monkeypatch.setattr(session, "connect", connect)
    return started, addresses


def set_devices(session, monkeypatch, count, total=16 * GIB):
    monkeypatch.setattr(session.cp.cuda.runtime, "getDeviceCount", lambda: count)
    monkeypatch.setattr(session.cp.cuda.runtime, "memGetInfo", lambda: (total // 3, total))


@pytest.mark.parametrize(("devices", "workers", "processes", "threads"), [(1, 8, 1, 8), (8, 32, 8, 4), (8, 3, 3, 1)])
def test_one_process_per_gpu(session, clusters, monkeypatch, devices, workers, processes, threads):
    set_devices(session, monkeypatch, devices)
    with session.open_session(workers, "processes") as found:
        assert found.executor == "the cluster's"
    (settings,) = clusters[0]
    assert settings == {
        "n_workers": processes, "threads_per_worker": threads, "rmm_async": True, "enable_cudf_spill": False,
    }  # fmt: skip
    assert clusters[1] == ["the local cluster"]


def test_the_address_of_a_scheduler(session, clusters):
    with session.open_session(8, "tcp://host:8786") as found:
        assert found.executor == "the cluster's"
    assert clusters == ([], ["tcp://host:8786"])


@pytest.mark.parametrize(("devices", "said"), [(1, []), (8, ["threads use one GPU and leave 7 idle"])])
def test_threads_say_which_devices_they_leave_idle(session, monkeypatch, caplog, devices, said):
    set_devices(session, monkeypatch, devices)
    with session.open_session(4, "threads") as found:
        assert found.executor.pool._max_workers == 4
        assert found.map(lambda number: number + 1, [1, 2, 3]) == [2, 3, 4]
    assert [record.message.partition(";")[0] for record in caplog.records] == said


def test_describe(session):
    facts = session.describe()
    assert facts["engine"] == "gpu"
    assert (facts["device"], facts["memory"], facts["devices"], facts["cuda"]) == ("Made GPU", "16.0 GiB", "1", "13.2")
