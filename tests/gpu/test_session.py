# SPDX-License-Identifier: Apache-2.0
"""Sessions of GPU tasks on made-up devices: processes per GPU, sizes of batches, and messages."""

import os
import pickle
import sys
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from curation.base.errors import EngineError
from curation.stages.warm_up import GROUPS
from tests.gpu import stand_ins
from tests.gpu.interface import guarded
from tests.gpu.stand_ins import all_kernels, kernels

GIB = 1 << 30


@pytest.fixture
def session(monkeypatch):
    return stand_ins.install(monkeypatch)("session")


@pytest.fixture
def clusters(session, monkeypatch):
    """The settings of every cluster that was started, and what was connected to."""
    started, addresses, waited = [], [], []

    @contextmanager
    def cluster(**settings):
        spec = {number: {"options": {"env": {"CUDA_VISIBLE_DEVICES": str(number)}}} for number in range(8)}
        made = SimpleNamespace(
            worker_spec=dict([*spec.items()][: settings["n_workers"]]), scale=waited.append,
            wait_for_workers=lambda count, seconds: waited.append(count),
        )  # fmt: skip
        started.append((settings, made))
        yield made

    @contextmanager
    def connect(address):
        addresses.append(address)
        yield SimpleNamespace(executor=SimpleNamespace(on_each_worker=lambda function: 2 * [function()]))

    monkeypatch.setitem(
        sys.modules, "dask_cuda", SimpleNamespace(LocalCUDACluster=guarded("dask_cuda.LocalCUDACluster", cluster))
    )
    monkeypatch.setattr(session, "connect", connect)
    return started, addresses, waited


def set_devices(session, monkeypatch, count, total=16 * GIB):
    monkeypatch.setattr(session.cp.cuda.runtime, "getDeviceCount", lambda: count)
    monkeypatch.setattr(session.cp.cuda.runtime, "memGetInfo", lambda: (total // 3, total))


@pytest.mark.parametrize(
    ("devices", "workers", "total", "processes", "threads"),
    [
        (1, 1, 80, 1, 1),
        (1, 2, 80, 2, 1),
        (1, 4, 80, 4, 1),
        (1, 16, 80, 4, 4),
        (2, 6, 80, 3, 1),
        (8, 3, 80, 1, 1),
        (8, 32, 80, 4, 1),
        (1, 16, 32, 2, 8),  # 9.6 of 32 GiB: two batches
        (1, 8, 8, 1, 8),
    ],
)
def test_processes_share_devices(session, clusters, monkeypatch, devices, workers, total, processes, threads):
    set_devices(session, monkeypatch, devices, total * GIB)
    with session.open_session(workers, "processes"):
        pass
    [(settings, made)] = clusters[0]
    used = min(devices, workers)
    assert settings == {
        "n_workers": used, "threads_per_worker": threads, "memory_limit": 1 / (used * processes), "rmm_async": True,
        "enable_cudf_spill": False,
    }  # fmt: skip
    assert clusters[1] == [made] and clusters[2] == 2 * [used * processes]
    seen = Counter(spec["options"]["env"]["CUDA_VISIBLE_DEVICES"] for spec in made.worker_spec.values())
    assert seen == {str(number): processes for number in range(used)}
    assert used * processes * threads <= workers
    if processes > 1:
        memory = session.memory().total
        assert memory // processes >= session.BATCH_SHARE * session.MAX_BATCH_BYTES


@pytest.mark.slow("a Dask cluster with one worker per device becomes one with two, which both answer")
def test_one_device_as_two_workers(session):
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, memory_limit=0.5, dashboard_address="") as cluster:
        session._share_devices(cluster, 2)
        with Client(cluster) as client:
            assert len({*client.run(os.getpid).values()}) == 2
            assert {each["nthreads"] for each in client.scheduler_info()["workers"].values()} == {1}


def test_processes_that_do_not_start_are_one_message(session):
    def wait(count, seconds):
        raise TimeoutError

    cluster = SimpleNamespace(worker_spec={"0": {}}, scale=lambda count: None, wait_for_workers=wait)
    with pytest.raises(EngineError, match="not all of 3 processes on the GPU started within 300 s"):
        session._share_devices(cluster, 3)


def test_the_address_of_a_scheduler(session, clusters):
    with session.open_session(8, "tcp://host:8786"):
        pass
    assert clusters == ([], ["tcp://host:8786"], [])


@pytest.mark.parametrize(("devices", "said"), [(1, []), (8, ["threads use one GPU and leave 7 idle"])])
def test_threads_say_which_devices_they_leave_idle(session, monkeypatch, caplog, devices, said):
    set_devices(session, monkeypatch, devices)
    with session.open_session(4, "threads") as found:
        assert found.executor.pool._max_workers == 4
        assert found.map(lambda number: number + 1, [1, 2, 3]) == [2, 3, 4]
    assert [record.message.partition(";")[0] for record in caplog.records] == said


def test_one_thread_loads_the_kernels_of_a_run_before_the_first_task(session):
    groups = ("hashes", "rewrite")
    with session.open_session(4, "threads", groups) as found:
        expected = [(each.py_func.__name__, all_kernels.SIGNATURES[each]) for each in all_kernels.kernels_of(groups)]
        assert expected == stand_ins.LOADED and ("hash_rows", all_kernels.SIGNATURES[kernels.hash_rows]) in expected
        assert [*found.map(lambda number: len(stand_ins.LOADED), [1, 2])] == 2 * [len(expected)]


@pytest.mark.parametrize("scheduler", ["processes", "tcp://host:8786"])
def test_each_process_loads_the_kernels_of_a_run_once(session, clusters, monkeypatch, scheduler):
    set_devices(session, monkeypatch, 2)
    with session.open_session(4, scheduler, ["hashes"]) as found:
        assert stand_ins.LOADED == []
        begin = pickle.loads(pickle.dumps(found.begin))  # as a worker gets it
        begin()
        begin()
    assert [name for name, _ in stand_ins.LOADED].count("hash_rows") == 1


@pytest.mark.parametrize("scheduler", ["processes", "tcp://host:8786"])
def test_two_processes_on_one_device_divide_its_memory(session, clusters, monkeypatch, scheduler):
    set_devices(session, monkeypatch, 1)
    memory = sys.modules["gpu_pipeline.memory.device"].memory()
    alone = memory.total
    with session.open_session(4, scheduler) as found:
        found.begin()
    assert memory.total == alone // 2 > 0
    with session.open_session(4, scheduler) as found:  # a later run in the same processes
        found.begin()
    assert memory.total == alone // 2


def test_a_worker_that_joins_later_says_what_it_reserves(session, monkeypatch, caplog):
    device = sys.modules["gpu_pipeline.memory.device"]
    for _ in range(2):
        device.divide_device({"another device": 3})
    assert device.memory().total == stand_ins.TOTAL_BYTES // 4 // 100 * 90
    (record,) = caplog.records
    assert "this worker joined after the start of the run" in record.message and "3686 MiB, 90 %" in record.message


def test_groups_have_every_kernel():
    groups = [*all_kernels.OF_GROUPS]
    assert {*groups} <= {*GROUPS}
    assert {*all_kernels.kernels_of(groups)} == {*all_kernels.SIGNATURES}
    assert len(all_kernels.kernels_of(["hashes"])) == len(all_kernels.OF_EVERY_RUN)


@pytest.mark.slow("a run loads every kernel of its stages before the first task")
@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_every_kernel_that_its_functions_launch(monkeypatch, group):
    launched, engine = set(), stand_ins.install_engine(monkeypatch)
    run = stand_ins.FakeCuda.run_threads
    monkeypatch.setattr(
        stand_ins.FakeCuda, "run_threads", lambda cuda, *launch: launched.add(launch[2]) or run(cuda, *launch)
    )
    GROUPS[group](engine)
    assert launched <= {*all_kernels.kernels_of([group])}


def test_describe(session):
    facts = session.describe()
    assert facts["engine"] == "gpu"
    assert (facts["device"], facts["memory"], facts["devices"], facts["cuda"]) == ("Made GPU", "16.0 GiB", "1", "13.2")
