# SPDX-License-Identifier: Apache-2.0
"""How many workers, batches and slices fit the memory and the processors that this process may use.

What a run needs was measured (benchmarks/LOG.md, 2026-11-21; MiB, the default recipe on 1 GB, GPT-2, batches of 4 MiB):

                        loaded   run, beyond that, with 1, 2, 4, 8 workers   rule
    resident (RssAnon)  150      257, 423, 774, 1158                         170 + 155 per worker
    private (VmData)    240      291, 479, 856, 1281                         170 + 175 per worker
    virtual (VmSize)    570      572, 680, 1061, 1521                        270 + 175 and 1.2 slices per worker

A worker's memory is that of writing and tokenising a row group (16 MiB of text); reading takes 20 MiB and 16 batches,
which is more only with batches above 8 MiB. Compiling the kernels, once in every process, takes 190. An input file
takes 1.6 KB of each process (200,000: 281 MB more than 20,000, a good part of it for the report). Not in the rule:
at most 40 bytes per document at a barrier; a document that is far longer than a batch (20 times its length, 43 times in
virtual memory); the mapped file of signatures of `verify: signature`.

All numbers are of the CPU engine with the allocators of `configure_allocators`, before they kept free memory for the
next batch; since then peaks differ by a tenth either way.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from curation.errors import CurationError, OutOfMemoryError, is_shortage

MIB = 1 << 20
SHARED = {"resident": 170 * MIB, "private": 170 * MIB, "virtual": 270 * MIB}
WRITING, READING, READING_BATCHES = 155 * MIB, 20 * MIB, 16
STACKS = 20 * MIB  # of a worker's threads: address space that is hardly touched
MAPPED_SLICES = 1.2
FILE_BYTES = 1600  # of the plan and the report, for each input file
COMPILING = 190 * MIB
LOADED = {"resident": 150 * MIB, "private": 240 * MIB, "virtual": 570 * MIB}
LEAST_LOADED = {"resident": 80 * MIB, "private": 150 * MIB, "virtual": 455 * MIB}  # without a tokenizer
LEAST = {"resident": 60 * MIB, "private": 80 * MIB, "virtual": 85 * MIB}  # a run of 5 MB with one rule; default: 150
SMALL_BATCH_BYTES, SMALL_SLICE_BYTES = 1 * MIB, 16 * MIB
ULIMITS = {
    "ulimit -v": (resource.RLIMIT_AS, "virtual", "VmSize"),
    "ulimit -d": (resource.RLIMIT_DATA, "private", "VmData"),
}
MACHINE = "the machine"
UNLIMITED = 1 << 60  # what stands in files of version 1 where nothing was set is larger
GROUP_FILES = (  # limit, use, and how memory.stat calls what of it is files that can be dropped
    ("memory.max", "memory.current", ("inactive_file", "active_file")),
    ("memory.high", "memory.current", ("inactive_file", "active_file")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc's mallopt
PROCESSORS_PER_ARENA = 8
KEPT_BYTES, MAPPED_FROM = 128 * MIB, 32 * MIB  # free memory that is kept, and the size of what is given back at once


class Limit(NamedTuple):
    """A bound on this process's memory, in bytes, and how much below it is free."""

    kind: str  # of memory: resident, private or virtual
    name: str
    bound: int
    free: int
    hard: bool = True  # who exceeds it fails; a machine has swap, and `memory.high` only slows down

    def raised(self, needed: int) -> str:
        """What to do so that so many bytes are free."""
        bound = self.bound - self.free + needed
        if self.name == MACHINE:
            return f"end what else runs, to have {shown_bytes(needed)} free"
        return f"raise {self.name} to {shown_bytes(bound)}" + (f" ({bound >> 10})" if self.name in ULIMITS else "")


class Resources(NamedTuple):
    """How to run. `limit` is the tightest one (None where none is known), and `taken` what the run takes of it;
    `remark` says what was lowered, or that even this may be too much."""

    workers: int
    batch_bytes: int
    max_slice_bytes: int
    limit: Limit | None = None
    taken: int = 0
    remark: str = ""

    def __str__(self) -> str:
        found = [f"batches of {shown_bytes(self.batch_bytes)}"]
        if self.limit:
            left = shown_bytes(self.limit.free)
            found.append(f"takes about {shown_bytes(self.taken)}, and {self.limit.name} leaves {left}")
        return "; ".join([*found, *([self.remark] if self.remark else [])])


def shown_bytes(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.0f} MB"


# The rule


def needs(kind: str, workers: int, batch_bytes: int, slice_bytes: int) -> int:
    """Bytes that a run in one process takes beyond what is loaded before it."""
    worker = max(WRITING, READING + READING_BATCHES * batch_bytes)
    if kind != "resident":
        worker += STACKS
    if kind == "virtual":
        worker += int(MAPPED_SLICES * slice_bytes)
    return SHARED[kind] + workers * worker


def needs_in_processes(kind: str, workers: int, batch_bytes: int, slice_bytes: int) -> int:
    """The same for workers that are processes, each loaded as this one is. ulimit counts them one by one."""
    one = needs(kind, 1, batch_bytes, slice_bytes)
    return workers * (LOADED[kind] + one) if kind == "resident" else one


def choose(
    limits: Sequence[Limit], workers: int, batch_bytes: int, slice_bytes: int, *,
    files: int = 0, fixed_workers: bool = False, processes: bool = False, compiled: bool = True,
) -> Resources:  # fmt: skip
    """The most workers up to `workers`, and the largest batches and slices, that fit all limits.

    limits         as `read_limits` gives them once everything is loaded
    slice_bytes    the most of a slice; it and batches are lowered before workers, but only where the tightest limit
                   gains by it: slices count in virtual memory, batches above 8 MiB
    files          of the input
    fixed_workers  workers are not lowered
    compiled       whether the kernels were compiled by an earlier run; if not, every process compiles them

    OutOfMemoryError where a hard limit leaves less than the smallest run was seen to take.
    """
    check_room(limits, loaded=True)
    need = needs_in_processes if processes else needs
    small = min(batch_bytes, SMALL_BATCH_BYTES), min(slice_bytes, SMALL_SLICE_BYTES)
    remark = ""
    for count in [workers] if fixed_workers else range(workers, 0, -1):
        tightest = Resources(count, batch_bytes, slice_bytes)
        for batch, piece in ((batch_bytes, slice_bytes), small):
            rooms = []
            for limit in limits:
                compilers = 0 if compiled else count if processes and limit.kind == "resident" else 1
                holders = count + 1 if processes and limit.kind == "resident" else 1
                taken = need(limit.kind, count, batch, piece) + compilers * COMPILING + holders * files * FILE_BYTES
                rooms.append(Resources(count, batch, piece, limit, taken, remark))
            tried = min(rooms, key=_left, default=tightest)
            if _left(tried) >= 0:
                return tried
            if not tightest.limit or _left(tried) > _left(tightest):
                tightest = tried
            taken_shown = shown_bytes(tried.taken)
            remark = remark or f"{count} workers with batches of {shown_bytes(batch)} would take {taken_shown}"
    return tightest._replace(remark=f"that may be too little: {_remedy(tightest, tightest.taken)}")


def _left(room: Resources) -> int:
    return room.limit.free - room.taken if room.limit else 0


def _remedy(room: Resources, needed: int) -> str:
    """What a user can set so that so many bytes are free, or fewer are needed."""
    fewer = ["give --workers 1"] if room.workers > 1 else []
    return ", or ".join([*fewer, *([room.limit.raised(needed)] if room.limit else [])])


def check_room(limits: Iterable[Limit], loaded: bool) -> None:
    """OutOfMemoryError where a hard limit leaves less than the smallest run was seen to take; `loaded`: beyond what is
    loaded for every run."""
    for limit in limits:
        least = LEAST[limit.kind] + (0 if loaded else LEAST_LOADED[limit.kind])
        if limit.hard and limit.free < least:
            roomy = needs(limit.kind, 1, SMALL_BATCH_BYTES, SMALL_SLICE_BYTES) + (0 if loaded else LOADED[limit.kind])
            raise OutOfMemoryError(
                f"{limit.name} leaves {shown_bytes(max(limit.free, 0))}, and the smallest run takes "
                f"{shown_bytes(least)}; {limit.raised(roomy)}"
            )


# Readings


def read_limits(
    proc: Path = Path("/proc"), rlimit: Callable[[int], tuple[int, int]] = resource.getrlimit
) -> list[Limit]:
    """Every bound on this process's memory: the machine, its groups (cgroup 1 and 2, those around them too), ulimit."""
    status, machine = _fields(proc / "self/status"), _fields(proc / "meminfo")
    limits = []
    for name, (which, kind, field) in ULIMITS.items():
        bound = rlimit(which)[0]
        if bound != resource.RLIM_INFINITY:
            limits.append(Limit(kind, name, bound, bound - 1024 * status.get(field, 0)))
    limits += [limit for folder in group_folders(proc, "memory") for limit in _group_limits(folder)]
    if "MemAvailable" in machine:
        total, free = (1024 * machine[name] for name in ("MemTotal", "MemAvailable"))
        limits.append(Limit("resident", MACHINE, total, free, hard=False))
    return limits


def read_processors(proc: Path = Path("/proc"), allowed: int = 0) -> int:
    """Processors that this process may use: its affinity (`allowed`), and the quotas of its groups, rounded up."""
    shares = [share for folder in group_folders(proc, "cpu") if (share := _quota(folder))]
    return min([allowed or len(os.sched_getaffinity(0)), *(max(math.ceil(share), 1) for share in shares)])


def group_folders(proc: Path, controller: str) -> Iterator[Path]:
    """The control group of this process and those around it, in every hierarchy that has the controller."""
    groups = [line.split(":", 2)[1:] for line in _lines(proc / "self/cgroup")]
    for line in _lines(proc / "self/mountinfo"):
        before, _, after = line.partition(" - ")
        root, mount = before.split()[3:5]
        kind, options = after.split(" ", 1)[0], after.rsplit(" ", 1)[-1]  # what is between may be empty
        if kind != "cgroup2" and not (kind == "cgroup" and controller in options.split(",")):
            continue
        wanted = "" if kind == "cgroup2" else controller  # version 2 names none: one hierarchy for all
        for path in [path for controllers, path in groups if wanted in controllers.split(",")]:
            inside = Path(path.removeprefix(root.rstrip("/")).lstrip("/"))
            yield from (Path(mount, folder) for folder in (inside, *inside.parents))


def _group_limits(folder: Path) -> Iterator[Limit]:
    for limit_name, use_name, files in GROUP_FILES:
        bound, used = _number(folder / limit_name), _number(folder / use_name)
        if bound is not None and used is not None and bound < UNLIMITED:
            stat = _fields(folder / "memory.stat")
            used -= sum(stat.get(name, 0) for name in files)
            hard = limit_name != "memory.high"
            yield Limit("resident", str(folder / limit_name), bound, bound - used, hard)


def _quota(folder: Path) -> float:
    """Processors that a group may use at once; 0 where it may use all."""
    quota, *period = next(iter(_lines(folder / "cpu.max")), "max").split()
    if quota == "max":
        found = _number(folder / "cpu.cfs_quota_us") or -1, _number(folder / "cpu.cfs_period_us") or 0
        return found[0] / found[1] if min(found) > 0 else 0.0
    return int(quota) / int(period[0])


def _lines(path: Path) -> list[str]:
    """The lines of a file; none where it is not there or not ours to read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    text = next(iter(_lines(path)), "")
    return int(text) if text.lstrip("-").isdigit() else None


def _fields(path: Path) -> dict[str, int]:
    """The numbers of lines as `Name: 12 kB` and `name 12`."""
    pairs = [line.replace(":", " ").split()[:2] for line in _lines(path)]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


# Allocators


def arenas_for(processors: int) -> int:
    return 1 if processors <= PROCESSORS_PER_ARENA else max(2, processors // PROCESSORS_PER_ARENA)


def configure_allocators() -> None:
    """Makes this process and those it starts take less memory; to be called before other libraries are loaded.

    Arrow's own pool (mimalloc) reserves 1 GiB of addresses and keeps more of what is freed, glibc has an arena per
    thread: with its malloc for both, and one arena, a run of two workers peaks at 540 MB where it was 614, and is no
    slower (benchmarks/LOG.md). Up to 8 processors there is one; above, where nothing is measured, one for every 8 and
    two at least, so that threads wait less. The memory of a batch is kept for the next one: given back each time, and
    cleared by the system when it is fetched again, it took a twenty-fifth of the CPU time; peaks differ by a tenth
    either way. OpenBLAS, which hardly anything here calls, would reserve 41 MB per processor.
    """
    libc, arenas = ctypes.CDLL(None), arenas_for(read_processors())
    settings = {
        "MALLOC_ARENA_MAX": (M_ARENA_MAX, arenas),
        "MALLOC_TRIM_THRESHOLD_": (M_TRIM_THRESHOLD, KEPT_BYTES),
        "MALLOC_MMAP_THRESHOLD_": (M_MMAP_THRESHOLD, MAPPED_FROM),
    }
    for name, (parameter, value) in settings.items():
        if name not in os.environ and hasattr(libc, "mallopt"):  # not in musl and macOS
            libc.mallopt(parameter, value)
        os.environ.setdefault(name, str(value))  # for processes that this one starts
    for name, text in {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}.items():
        os.environ.setdefault(name, text)


# When it runs out in spite of all


@contextmanager
def explain_memory_errors(room: Resources) -> Iterator[None]:
    """Raises OutOfMemoryError, which says what to set, for all the ways in which libraries say that memory ran out."""
    try:
        yield
    except Exception as error:
        if isinstance(error, CurationError) or not is_shortage(error):
            raise
        needed = max(room.taken, 2 * room.limit.free) if room.limit else 0
        advice = _remedy(room, needed) or "give --workers 1"
        happened = f"memory ran out ({str(error) or type(error).__name__}):"
        if isinstance(error, BrokenExecutor):
            happened = "a worker process ended abruptly, most often because memory ran out;"
        raise OutOfMemoryError(
            f"{happened} {advice}; or lower max_document_bytes where documents are very long. "
            "What is done stays, the same command, without --force, goes on from here"
        ) from error
