# SPDX-License-Identifier: Apache-2.0
"""Choose workers, batches and slices that fit the memory and the processors of this process.

The rule comes from measurements (MiB, the default recipe on 1 GB, GPT-2, batches of 4 MiB; resident 2026-11-23, the
others 2026-11-21, benchmarks/LOG.md). "loaded" is the memory before the run starts; the other columns are in addition
to it. Resident memory includes mapped files, of which 60 MiB are libraries and kernels that a run loads later:

                        loaded   run with 1, 2, 4, 8 workers                 rule
    resident (VmRSS)    180      391, 625, 876, 1277                         330 + 155 per worker
    private (VmData)    240      291, 479, 856, 1281                         170 + 175 per worker
    virtual (VmSize)    570      572, 680, 1061, 1521                        270 + 175 and 1.2 slices per worker

A worker needs most memory when it writes and tokenises a row group (16 MiB of text). Reading needs 20 MiB and 16
batches, which exceeds writing only for batches above 8 MiB. Processes that compile kernels end before the run begins.
An input file needs 1.6 KB in each process (200,000 files: 281 MB more than 20,000, much of it for the report).

Tasks of corpus stages need less than writing: at most 130 MB, for the keys of 2^21 documents (2026-11-22, 2^22
documents with 12 % duplicates: runs 130 MB, duplicates 48, pairs 27). The rule does not include four needs. One task of
`fuzzy_dedup` takes 12 bytes per joined document, up to 8,388,608 pairs. A task has all documents with one key: 40 bytes
each, or 110 in `fuzzy_dedup`. A document far longer than a batch takes 20 times its length, 43 times in virtual memory.
`verify: signature` maps the file of signatures.

A task of the GPU engine has a batch of 256 MB, which a GPU needs to be fast. So the number of workers is lowered, never
the batch. Reading JSON Lines took 5.9 times a batch of 64 MiB and 3.9 times one of 128 MiB (2026-11-22); the kept text
takes 2 more. The host memory of CUDA and cuDF themselves is unknown. Free memory is therefore read after both are
loaded.

All other numbers are of the CPU engine with the allocators of `configure_allocators`, measured before the allocators
kept free memory for the next batch. That change moved peaks by a tenth, up or down.
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

from curation.base.errors import CurationError, OutOfMemoryError, is_shortage
from curation.base.system.pools import threads_of_processes

MIB = 1 << 20
SHARED = {"resident": 330 * MIB, "private": 170 * MIB, "virtual": 270 * MIB}
WRITING, READING, READING_BATCHES = 155 * MIB, 20 * MIB, 16
DEVICE_BATCHES = 8  # per task of the GPU engine: reading and the kept text
POOLED_BATCHES = (
    3  # of them in `gpu_pipeline.memory.host_memory`: the block of a file, the kept text, and other results
)
STACKS = 20 * MIB  # address space of a worker's threads, mostly untouched
MAPPED_SLICES = 1.2
DOCUMENT_FACTOR = 20  # bytes per byte of a document far longer than a batch
FILE_BYTES = 1600  # per input file, in the plan and the report
COMPILER = 330 * MIB  # a process that compiles one group of kernels at a time, with its libraries
LOADED = {"resident": 180 * MIB, "private": 240 * MIB, "virtual": 570 * MIB}
MIN_LOADED = {"resident": 80 * MIB, "private": 150 * MIB, "virtual": 455 * MIB}  # smallest, without a tokenizer
MIN_RUN = {  # 5 MB of input with one rule; the default recipe needs 150 MiB
    "resident": 60 * MIB,
    "private": 80 * MIB,
    "virtual": 85 * MIB,
}
SMALL_BATCH_BYTES, SMALL_SLICE_BYTES = 1 * MIB, 16 * MIB
ULIMITS = {
    "ulimit -v": (resource.RLIMIT_AS, "virtual", "VmSize"),
    "ulimit -d": (resource.RLIMIT_DATA, "private", "VmData"),
}
MACHINE = "the machine"
UNLIMITED = 1 << 60  # cgroup version 1 writes a larger number if no limit is set
GROUP_FILES = (  # limit, use, and the fields of memory.stat for cached file pages, which the kernel can drop
    ("memory.max", "memory.current", ("inactive_file", "active_file")),
    ("memory.high", "memory.current", ("inactive_file", "active_file")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc's mallopt
PROCESSORS_PER_ARENA = 8
# Free memory that the allocator keeps, and the size from which it returns blocks to the system at once
KEPT_BYTES, MAPPED_FROM = 128 * MIB, 32 * MIB


class Limit(NamedTuple):
    """A bound on the memory of this process.

    kind   the memory it counts: "resident", "private" or "virtual"
    name   "ulimit -v", "ulimit -d", the path of a cgroup file, or "the machine"
    bound  bytes
    free   bytes of `bound` that are not in use
    hard   whether exceeding the bound fails. It does not for the machine, which has swap, and for `memory.high`, which
           only slows the process down
    """

    kind: str
    name: str
    bound: int
    free: int
    hard: bool = True

    def raised(self, needed_bytes: int) -> str:
        """Return how to make `needed_bytes` free, as a phrase of a message."""
        bound = self.bound - self.free + needed_bytes
        if self.name == MACHINE:
            return f"end other programs until {shown_bytes(needed_bytes)} are free"
        return f"raise {self.name} to {shown_bytes(bound)}" + (f" ({bound >> 10})" if self.name in ULIMITS else "")


class Resources(NamedTuple):
    """The resources of a run; `str` gives the line that a run logs.

    workers          tasks at once
    batch_bytes      input bytes of a batch
    max_slice_bytes  maximum input bytes of a slice
    limit            the tightest limit; None if no limit is known
    needed_bytes     the estimated need of the run, counted as `limit` counts memory
    remark           values that were lowered, or a warning that memory may not be enough; "" for neither
    min_slice_bytes  minimum input bytes of a slice; 0: a quarter of a batch
    """

    workers: int
    batch_bytes: int
    max_slice_bytes: int
    limit: Limit | None = None
    needed_bytes: int = 0
    remark: str = ""
    min_slice_bytes: int = 0

    @property
    def spare_bytes(self) -> int:
        """The bytes that the limit leaves after the need; below 0 if the run may be too large."""
        return self.limit.free - self.needed_bytes if self.limit else 0

    def __str__(self) -> str:
        facts = [f"batches of {shown_bytes(self.batch_bytes)}"]
        if self.limit:
            facts.append(
                f"about {shown_bytes(self.needed_bytes)} of {shown_bytes(self.limit.free)} free in {self.limit.name}"
            )
        return "; ".join([*facts, *([self.remark] if self.remark else [])])


def shown_bytes(size: float) -> str:
    """Return a number of bytes as text: 21 kB, 503 MB, 24.3 GB (powers of 1000)."""
    if size < 1e6:
        return f"{size / 1e3:,.0f} kB" if size >= 1e3 else f"{size:,.0f} bytes"
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.0f} MB"


def document_remark(size: int) -> str:
    """Return the end of a line about memory: how much more one long document may take; "" for a `size` of 0."""
    return f"; up to {shown_bytes(size)} more for a document of max_document_bytes" if size else ""


def count_compilers(limits: Sequence[Limit], workers: int) -> int:
    """Return how many processes can compile kernels at once before the run begins: 1 to `workers`."""
    free = [limit.free for limit in limits if limit.kind == "resident"]
    return max(1, min([workers, *(bytes_ // COMPILER for bytes_ in free)]))


# The rule


def needs(kind: str, workers: int, batch_bytes: int, slice_bytes: int) -> int:
    """Return the bytes that a run with threads needs on top of the loaded libraries.

    kind         "resident", "private" or "virtual"
    batch_bytes  input bytes of a batch
    slice_bytes  input bytes of a slice; they count in virtual memory only
    """
    worker = max(WRITING, READING + READING_BATCHES * batch_bytes)
    if kind != "resident":
        worker += STACKS
    if kind == "virtual":
        worker += int(MAPPED_SLICES * slice_bytes)
    return SHARED[kind] + workers * worker


def needs_in_processes(kind: str, threads: Sequence[int], batch_bytes: int, slice_bytes: int) -> int:
    """Return the same as `needs` for a run with processes that have these numbers of threads. Each process loads the
    libraries.

    Resident memory is the sum over all processes. Private and virtual memory are those of the largest process, since
    ulimit limits each process alone.
    """
    needed = [needs(kind, count, batch_bytes, slice_bytes) for count in threads]
    return sum(LOADED[kind] + size for size in needed) if kind == "resident" else max(needed)


def choose(
    limits: Sequence[Limit], workers: int, batch_bytes: int, slice_bytes: int, *,
    files: int = 0, fixed_workers: bool = False, scheduler: str = "threads",
) -> Resources:  # fmt: skip
    """Return the largest number of workers, and the largest batches and slices, that fit all limits.

    Batches and slices are lowered before workers, but only if that helps the tightest limit. Slices count only in
    virtual memory; batches count only above 8 MiB.

    limits         the limits that `read_limits` returns after all libraries are loaded
    workers        maximum number of workers
    batch_bytes    maximum input bytes of a batch
    slice_bytes    maximum input bytes of a slice
    files          number of input files
    fixed_workers  whether to keep `workers` even if memory is short
    scheduler      as in `threads_of_processes`

    Raises OutOfMemoryError if a hard limit leaves less than the smallest measured run needs."""
    check_resources(limits, loaded=True)
    small = min(batch_bytes, SMALL_BATCH_BYTES), min(slice_bytes, SMALL_SLICE_BYTES)
    remark = ""
    for count in [workers] if fixed_workers else range(workers, 0, -1):
        tightest = Resources(count, batch_bytes, slice_bytes)
        for batch, slice_size in ((batch_bytes, slice_bytes), small):
            candidates = []
            for limit in limits:
                threads = threads_of_processes(scheduler, count)
                holders = len(threads) + 1 if limit.kind == "resident" else 1
                needed = (
                    needs_in_processes(limit.kind, threads, batch, slice_size)
                    if threads
                    else needs(limit.kind, count, batch, slice_size)
                ) + holders * files * FILE_BYTES
                candidates.append(Resources(count, batch, slice_size, limit, needed, remark))
            candidate = min(candidates, key=lambda each: each.spare_bytes, default=tightest)
            if candidate.spare_bytes >= 0:
                return candidate
            if not tightest.limit or candidate.spare_bytes > tightest.spare_bytes:
                tightest = candidate
            needed_shown = shown_bytes(candidate.needed_bytes)
            remark = remark or f"{count} workers with batches of {shown_bytes(batch)} would need {needed_shown}"
    return tightest._replace(remark=f"that may be too little: {_remedy(tightest, tightest.needed_bytes)}")


def choose_for_device(
    limits: Sequence[Limit], workers: int, batch_bytes: int, slice_bytes: int, *, fixed_workers: bool = False
) -> Resources:
    """Return the resources of a run on a GPU: the largest number of workers whose batches fit the memory of the host.

    The arguments are those of `choose`. Batches keep their size, and slices are not smaller than a batch. Only limits
    of resident memory count: CUDA reserves more addresses than any limit.
    """
    most = Resources(workers, batch_bytes, max(slice_bytes, batch_bytes), min_slice_bytes=batch_bytes)
    task = max(WRITING, DEVICE_BATCHES * batch_bytes)
    tightest = min((limit for limit in limits if limit.kind == "resident"), key=lambda limit: limit.free, default=None)
    if tightest is None:
        return most
    fitting = max(1, min(workers, (tightest.free - SHARED["resident"]) // task))
    count = workers if fixed_workers else fitting
    needed = SHARED["resident"] + count * task
    chosen = most._replace(workers=count, limit=tightest, needed_bytes=needed)
    if chosen.spare_bytes < 0:
        return chosen._replace(remark=f"that may be too little: {_remedy(chosen, needed)}")
    if count < workers:
        shown = shown_bytes(SHARED["resident"] + workers * task)
        return chosen._replace(
            remark=f"{workers} workers with batches of {shown_bytes(batch_bytes)} would need {shown}"
        )
    return chosen


def pooled_bytes(tasks: int, batch_bytes: int) -> int:
    """Return the size of the pool of host memory of a process that runs so many tasks of the GPU engine at once. It is
    part of what `choose_for_device` counts."""
    return tasks * POOLED_BATCHES * batch_bytes


def _remedy(resources: Resources, needed_bytes: int) -> str:
    """Return how to lower the need, or how to make `needed_bytes` free."""
    fewer = ["give --workers 1"] if resources.workers > 1 else []
    return ", or ".join([*fewer, *([resources.limit.raised(needed_bytes)] if resources.limit else [])])


def check_resources(limits: Iterable[Limit], loaded: bool) -> None:
    """Raise OutOfMemoryError if a hard limit leaves less than the smallest measured run needs.

    loaded  whether the libraries of a run are already loaded, so that `free` does not include them
    """
    for limit in limits:
        min_bytes = MIN_RUN[limit.kind] + (0 if loaded else MIN_LOADED[limit.kind])
        if limit.hard and limit.free < min_bytes:
            advised = needs(limit.kind, 1, SMALL_BATCH_BYTES, SMALL_SLICE_BYTES) + (0 if loaded else LOADED[limit.kind])
            raise OutOfMemoryError(
                f"{limit.name} leaves {shown_bytes(max(limit.free, 0))}, and the smallest run needs "
                f"{shown_bytes(min_bytes)}; {limit.raised(advised)}"
            )


# Readings


def read_limits(
    proc: Path = Path("/proc"), rlimit: Callable[[int], tuple[int, int]] = resource.getrlimit
) -> list[Limit]:
    """Return every limit on the memory of this process: ulimit, cgroups (1 and 2, with their parents), the machine.

    The machine is last. `proc` and `rlimit` replace /proc and `resource.getrlimit` in tests.
    """
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
    """Return the number of processors that this process may use, at least 1.

    It is the minimum of the affinity (`allowed`; 0 asks the system) and the quotas of its cgroups, rounded up.
    """
    shares = [share for folder in group_folders(proc, "cpu") if (share := _quota(folder))]
    return min([allowed or len(os.sched_getaffinity(0)), *(max(math.ceil(share), 1) for share in shares)])


def group_folders(proc: Path, controller: str) -> Iterator[Path]:
    """Yield the cgroup folder of this process and its parents, in every hierarchy that has the controller."""
    groups = [line.split(":", 2)[1:] for line in _lines(proc / "self/cgroup")]
    for line in _lines(proc / "self/mountinfo"):
        before, _, after = line.partition(" - ")
        root, mount = before.split()[3:5]
        kind, options = after.split(" ", 1)[0], after.rsplit(" ", 1)[-1]  # the field between them may be empty
        if kind != "cgroup2" and not (kind == "cgroup" and controller in options.split(",")):
            continue
        wanted = "" if kind == "cgroup2" else controller  # version 2 has one hierarchy, and names no controllers
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
    """Return how many processors a cgroup may use at once; 0 without a quota."""
    quota, *period = next(iter(_lines(folder / "cpu.max")), "max").split()
    if quota == "max":
        quota_us, period_us = _number(folder / "cpu.cfs_quota_us") or -1, _number(folder / "cpu.cfs_period_us") or 0
        return quota_us / period_us if min(quota_us, period_us) > 0 else 0.0
    return int(quota) / int(period[0])


def _lines(path: Path) -> list[str]:
    """Return the lines of a file; no lines if the file is missing or not readable."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    text = next(iter(_lines(path)), "")
    return int(text) if text.lstrip("-").isdigit() else None


def _fields(path: Path) -> dict[str, int]:
    """Return name -> number for the lines of a file such as `Name: 12 kB` and `name 12`."""
    pairs = [line.replace(":", " ").split()[:2] for line in _lines(path)]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


# Allocators


def arenas_for(processors: int) -> int:
    """Return the number of malloc arenas for this many processors."""
    return 1 if processors <= PROCESSORS_PER_ARENA else max(2, processors // PROCESSORS_PER_ARENA)


def configure_allocators() -> None:
    """Set the allocators of this process, and of processes it starts, to use less memory.

    Call it before other libraries are loaded. Variables that the environment already has are kept.

    - Arrow also uses glibc's malloc. Arrow's own pool (mimalloc) reserves 1 GiB of addresses and keeps more freed
      memory.
    - One arena up to 8 processors; above that, unmeasured, one per 8 processors and at least two, so threads wait less.
      glibc's default is an arena per thread. The settings lower the peak of a run of two workers from 614 MB to 540 MB
      and do not slow it down (benchmarks/LOG.md).
    - A batch reuses the memory of the batch before. Returning it to the system each time cost 4 % of the CPU time,
      since the system clears it again. Peaks moved by a tenth, up or down.
    - OpenBLAS gets one thread. It is hardly used, and would reserve 41 MB per processor.
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
        os.environ.setdefault(name, str(value))  # for child processes
    for name, text in {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}.items():
        os.environ.setdefault(name, text)


# Memory errors


@contextmanager
def explain_memory_errors(resources: Resources) -> Iterator[None]:
    """Turn memory errors of all libraries into an OutOfMemoryError that names the remedy.

    Other errors pass unchanged, and so do errors of `curation.base.errors`.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, CurationError) or not is_shortage(error):
            raise
        needed = max(resources.needed_bytes, 2 * resources.limit.free) if resources.limit else 0
        remedy = _remedy(resources, needed) or "give --workers 1"
        cause = f"memory ran out ({str(error) or type(error).__name__}):"
        if isinstance(error, BrokenExecutor):
            cause = "a worker process ended abruptly, most often because memory ran out;"
        raise OutOfMemoryError(
            f"{cause} {remedy}; or lower max_document_bytes if documents are very long. "
            "Completed work is kept. Rerun the same command without --force to resume"
        ) from error
