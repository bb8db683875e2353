# SPDX-License-Identifier: Apache-2.0
"""What a run is given of the machine: limits as they are read, and the most that fits them."""

import errno
import resource
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pyarrow as pa
import pytest

from curation.base.errors import InputError, OutOfMemoryError
from curation.base.system.memory import (
    DEVICE_BATCHES,
    FILE_BYTES,
    MIB,
    SHARED,
    Limit,
    Resources,
    arenas_for,
    check_resources,
    choose,
    choose_for_device,
    count_compilers,
    document_remark,
    explain_memory_errors,
    group_folders,
    needs,
    needs_in_processes,
    pooled_bytes,
    read_limits,
    read_processors,
)
from curation.cli.plan_text import _memory_line
from curation.reading.inputs import Input
from curation.reading.source_files import SourceFile
from curation.running.planning.arguments import document_bytes
from curation.running.planning.estimate import MemoryNeed
from curation.running.run import _slice_planner

BATCH, SLICE = 4 * MIB, 64 * MIB
STATUS = "Name:\tpython\nVmSize:\t 1000 kB\nVmData:\t  400 kB\n"
MACHINE = "MemTotal: 8000 kB\nMemFree: 100 kB\nMemAvailable: 5000 kB\n"


def limit_of(kind: str, free: int, hard: bool = True) -> Limit:
    return Limit(kind, {"virtual": "ulimit -v", "private": "ulimit -d"}.get(kind, "the group"), 10 * free, free, hard)


def endless(_: int) -> tuple[int, int]:
    return resource.RLIM_INFINITY, resource.RLIM_INFINITY


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A made /proc of a process in no group."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text(MACHINE)
    (tmp_path / "proc" / "self" / "status").write_text(STATUS)
    return tmp_path / "proc"


def put_into_groups(proc: Path, group: str, root: str = "/", version: int = 2) -> Path:
    """Makes the process of /proc a member of a group; gives the folder where its hierarchy is mounted."""
    mount = proc.parent / "cgroup"
    (proc / "self" / "cgroup").write_text(
        f"0::{group}\n" if version == 2 else f"12:cpuset:/elsewhere\n4:memory:{group}\n3:cpu,cpuacct:{group}\n"
    )
    options = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,memory,cpu,cpuacct"
    (proc / "self" / "mountinfo").write_text(
        "20 1 0:1 / /proc rw,relatime - proc proc rw\n21 1 0:2 / /mnt rw - tmpfs  rw\n"  # that one has no source
        f"33 31 0:30 {root} {mount} rw,nosuid shared:9 - {options}\n"
    )
    mount.mkdir()
    return mount


def write_files(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


# Readings


def test_without_limits_there_is_the_machine(proc: Path):
    assert read_limits(proc, endless) == [Limit("resident", "the machine", 8000 << 10, 5000 << 10, hard=False)]


def test_ulimits_count_what_is_used(proc: Path):
    bounds = {resource.RLIMIT_AS: 3000 << 10, resource.RLIMIT_DATA: 2500 << 10}
    virtual, private, _ = read_limits(proc, lambda which: (bounds[which], resource.RLIM_INFINITY))
    assert virtual == Limit("virtual", "ulimit -v", 3000 << 10, 2000 << 10)
    assert private == Limit("private", "ulimit -d", 2500 << 10, 2100 << 10)


def test_groups_of_version_2_and_those_around_them(proc: Path):
    mount = put_into_groups(proc, "/job/step")
    files = {"memory__current": "700", "memory__stat": "anon 300\ninactive_file 250\nactive_file 50"}
    write_files(mount / "job" / "step", memory__max="max", **files)
    write_files(mount / "job", memory__max="1000", memory__high="900", **files)
    write_files(mount, memory__stat="anon 1")
    *found, _ = read_limits(proc, endless)
    assert found == [
        Limit("resident", str(mount / "job" / "memory.max"), 1000, 1000 - 400),
        Limit("resident", str(mount / "job" / "memory.high"), 900, 900 - 400, hard=False),
    ]
    assert found[1].raised(1000) == f"raise {mount / 'job' / 'memory.high'} to 1 kB"


def test_groups_of_version_1(proc: Path):
    mount = put_into_groups(proc, "/docker/1a2b/inner", root="/docker/1a2b", version=1)
    stat = "cache 9\ninactive_file 1\ntotal_inactive_file 250\ntotal_active_file 50"
    write_files(mount, memory__limit_in_bytes="1000", memory__usage_in_bytes="700", memory__stat=stat)
    write_files(mount / "inner", memory__limit_in_bytes=str(2**63 - 4096), memory__usage_in_bytes="700")
    assert list(group_folders(proc, "memory")) == [mount / "inner", mount]
    *found, _ = read_limits(proc, endless)
    assert found == [Limit("resident", str(mount / "memory.limit_in_bytes"), 1000, 600)]


@pytest.mark.parametrize(
    ("quota", "processors"),
    [("max 100000", 8), ("250000 100000", 3), ("200000 100000", 2), ("1000 100000", 1), ("9900000 100000", 8)],
)
def test_processors_of_a_quota(proc: Path, quota: str, processors: int):
    mount = put_into_groups(proc, "/job/step")
    write_files(mount / "job", cpu__max=quota)
    assert read_processors(proc, 8) == processors


@pytest.mark.parametrize(("quota", "processors"), [("-1", 8), ("150000", 2), ("400000", 4)])
def test_processors_of_a_quota_of_version_1(proc: Path, quota: str, processors: int):
    mount = put_into_groups(proc, "/job", version=1)
    write_files(mount / "job", cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000")
    assert read_processors(proc, 8) == processors


def test_this_machine_can_be_read():
    limits = read_limits()
    assert limits[-1].name == "the machine" and 0 < limits[-1].free <= limits[-1].bound
    assert read_processors() >= 1


# The rule


@pytest.mark.parametrize("kind", ["resident", "private", "virtual"])
@pytest.mark.parametrize("workers", [1, 3, 8])
def test_the_most_workers_that_fit(kind: str, workers: int):
    enough = needs(kind, workers, BATCH, SLICE)
    assert choose([limit_of(kind, enough)], 8, BATCH, SLICE)[:3] == (workers, BATCH, SLICE)
    chosen = choose([limit_of(kind, enough - 1)], 8, BATCH, SLICE)
    assert chosen.workers < workers or chosen.max_slice_bytes < SLICE or "too little" in chosen.remark


def test_slices_and_batches_are_lowered_before_workers():
    limit = limit_of("virtual", needs("virtual", 8, BATCH, SLICE) - 1)
    chosen = choose([limit], 8, BATCH, SLICE)
    assert chosen[:3] == (8, 1 * MIB, 16 * MIB)
    assert chosen.remark.startswith("8 workers with batches of 4 MB would need 2.4 GB"), chosen.remark
    large = limit_of("resident", needs("resident", 2, 64 * MIB, SLICE) - 1)
    assert choose([large], 2, 64 * MIB, SLICE)[:2] == (2, 1 * MIB)


def test_batches_that_would_gain_nothing_stay():
    limit = limit_of("resident", needs("resident", 2, BATCH, SLICE) - 1)
    assert choose([limit], 2, BATCH, SLICE)[:3] == (1, BATCH, SLICE)
    assert choose([limit], 2, BATCH, SLICE, fixed_workers=True)[:3] == (2, BATCH, SLICE)
    large = limit_of("resident", needs("resident", 2, 1 * MIB, SLICE) - 1)
    assert choose([large], 2, 64 * MIB, SLICE, fixed_workers=True)[:3] == (2, 1 * MIB, 16 * MIB)


def test_the_tightest_limit_decides():
    wide, narrow = limit_of("resident", 100 << 30), limit_of("virtual", needs("virtual", 2, BATCH, SLICE))
    for limits in ([wide, narrow], [narrow, wide]):
        chosen = choose(limits, 8, BATCH, SLICE)
        assert (chosen.limit, chosen.needed_bytes) == (narrow, narrow.free) and chosen.workers >= 2
    assert choose([], 8, BATCH, SLICE) == Resources(8, BATCH, SLICE)


def test_workers_that_were_asked_for_stay():
    limit = limit_of("resident", needs("resident", 2, BATCH, SLICE))
    chosen = choose([limit], 5, BATCH, SLICE, fixed_workers=True)
    assert chosen.workers == 5
    assert "that may be too little: give --workers 1, or raise the group to " in str(chosen)


def test_compilers_fit_the_free_memory():
    limits = [
        limit_of("resident", 1000 * MIB),
        limit_of("virtual", 10 * MIB),
    ]  # per process
    assert [count_compilers(limits, workers) for workers in (1, 2, 8)] == [1, 2, 3]
    assert count_compilers([limit_of("resident", 10 * MIB)], 4) == 1
    assert count_compilers([], 4) == 4


def test_files_count_in_every_process():
    limit, million = limit_of("resident", 1 << 40), 1_000_000
    for scheduler, holders in (("threads", 1), ("processes", 3)):
        few, many = (choose([limit], 2, BATCH, SLICE, files=files, scheduler=scheduler) for files in (0, million))
        assert many.needed_bytes - few.needed_bytes == holders * million * FILE_BYTES


def test_processes_are_loaded_once_each_and_limited_one_by_one():
    one = needs_in_processes("resident", [1], BATCH, SLICE)
    assert needs_in_processes("resident", [1] * 4, BATCH, SLICE) == 4 * one > 4 * needs("resident", 1, BATCH, SLICE)
    limits = [limit_of("resident", 3 * one), limit_of("virtual", needs("virtual", 1, BATCH, SLICE))]
    assert choose(limits, 8, BATCH, SLICE, scheduler="processes").workers == 3


def test_a_limit_below_the_smallest_run_says_what_to_set():
    limit = Limit("virtual", "ulimit -v", 400 * MIB, 390 * MIB)
    with pytest.raises(OutOfMemoryError) as refused:
        check_resources([limit], loaded=False)
    text = str(refused.value)
    assert text.startswith("ulimit -v leaves 409 MB, and the smallest run needs 566 MB; raise ulimit -v to 1.1 GB (")
    raised = int(text.rsplit("(", 1)[1].rstrip(")")) << 10
    check_resources([limit._replace(bound=raised, free=raised - 10 * MIB)], loaded=False)
    check_resources([Limit("resident", "the machine", 8 << 30, 10 * MIB, hard=False)], loaded=False)
    with pytest.raises(OutOfMemoryError, match="the smallest run needs 63 MB; raise the group to"):
        choose([limit_of("resident", 40 * MIB)], 2, BATCH, SLICE)


# Batches of a GPU

LARGE = 256 * MIB
TASK = DEVICE_BATCHES * LARGE


@pytest.mark.parametrize(("free", "workers"), [(100 * TASK, 16), (4 * TASK + SHARED["resident"], 4), (TASK // 2, 1)])
def test_batches_of_a_gpu_keep_their_size_and_workers_are_lowered(free: int, workers: int):
    limits = [limit_of("virtual", MIB), limit_of("resident", free), limit_of("resident", 200 * TASK)]
    chosen = choose_for_device(limits, 16, LARGE, SLICE)
    assert (chosen.workers, chosen.batch_bytes, chosen.max_slice_bytes) == (workers, LARGE, LARGE)
    assert chosen.min_slice_bytes == LARGE and chosen.limit == limits[1]
    assert chosen.needed_bytes == SHARED["resident"] + workers * TASK
    if workers == 16:
        assert str(chosen).startswith("batches of 268 MB; about 34.7 GB of 214.7 GB free in the group")
    else:
        lowered = "16 workers with batches of 268 MB would need 34.7 GB"
        assert chosen.remark.startswith(lowered if free > TASK else "that may be too little: raise the group to")


def test_the_pool_of_a_gpu_is_part_of_the_need_and_leaves_room_for_other_arrays():
    chosen = choose_for_device([limit_of("resident", TASK)], 3, LARGE, SLICE, fixed_workers=True)
    assert chosen.needed_bytes - SHARED["resident"] - pooled_bytes(3, LARGE) == 3 * 5 * LARGE


def test_workers_that_were_asked_for_are_kept_on_a_gpu():
    chosen = choose_for_device([limit_of("resident", 4 * TASK)], 16, LARGE, SLICE, fixed_workers=True)
    assert chosen.workers == 16 and chosen.remark.startswith("that may be too little: give --workers 1, or raise")
    assert choose_for_device([], 16, LARGE, SLICE) == Resources(16, LARGE, LARGE, min_slice_bytes=LARGE)


@pytest.mark.parametrize("workers", [1, 4, 16, 64])
def test_a_slice_for_a_gpu_is_a_batch_for_any_number_of_workers(workers: int):
    resources = choose_for_device([], workers, LARGE, SLICE)
    sizes = [4 * LARGE // 64] * 64
    files = [
        SourceFile(path=str(k), source="s", format="jsonl", compression="gzip", bytes=size, modified_ns=0)
        for k, size in enumerate(sizes)
    ]
    slices = list(_slice_planner(0, resources, workers)(files))
    assert [sum(each.file.bytes for each in piece.ranges) for piece in slices] == [LARGE] * 4


# Allocators


@pytest.mark.parametrize(("processors", "arenas"), [(1, 1), (8, 1), (9, 2), (16, 2), (23, 2), (64, 8)])
def test_more_processors_have_more_arenas(processors: int, arenas: int):
    assert arenas_for(processors) == arenas


# When it runs out


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        pa.lib.ArrowMemoryError("malloc of size 100 failed"),
        pa.lib.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable"),
        RuntimeError("can't start new thread"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_shortage_is_one_message(error: Exception):
    limit = Limit("virtual", "ulimit -v", 1000 * MIB, 400 * MIB)
    with pytest.raises(OutOfMemoryError) as told, explain_memory_errors(Resources(2, BATCH, SLICE, limit, 300 * MIB)):
        raise error
    assert str(error) in str(told.value)
    assert "give --workers 1, or raise ulimit -v to 1.5 GB (1433600)" in str(told.value)
    assert told.value.exit_code == 1 and "Rerun the same command without --force to resume" in str(told.value)


def test_a_process_that_ended_is_not_said_to_be_a_shortage_for_certain():
    limit = Limit("virtual", "ulimit -v", 1000 * MIB, 400 * MIB)
    with pytest.raises(OutOfMemoryError) as told, explain_memory_errors(Resources(2, BATCH, SLICE, limit, 300 * MIB)):
        raise BrokenProcessPool("A process in the process pool was terminated abruptly")
    start = "a worker process ended abruptly, most often because memory ran out; give --workers 1, or raise ulimit -v"
    assert str(told.value).startswith(start)


@pytest.mark.parametrize("error", [InputError("no such file"), OSError(errno.ENOSPC, "full"), ValueError("x")])
def test_other_errors_stay_what_they_are(error: Exception):
    with pytest.raises(type(error)) as raised, explain_memory_errors(Resources(1, BATCH, SLICE)):
        raise error
    assert raised.value is error


def test_a_raised_limit_of_documents_is_a_remark():
    raised, usual, low = (Input(path="a", max_document_bytes=size) for size in (1 << 30, 100_000_000, 5))
    assert document_bytes([usual, raised, low]) == 20 << 30
    assert document_bytes([usual, low]) == document_bytes([]) == 0
    needed = MemoryNeed(needed=10**9, limit="the machine", free=2 * 10**9, document=20 << 30)
    assert _memory_line(needed, named=False) == (
        "memory: needs about 1.0 GB; up to 21.5 GB more for a document of max_document_bytes; the machine leaves 2.0 GB"
    )
    assert document_remark(0) == ""
