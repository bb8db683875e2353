# SPDX-License-Identifier: Apache-2.0
"""Near-duplicates of many made documents by keys alone: processor time, memory and temporary bytes of each phase.

python -m benchmarks.bench_keys 100000000 --folder /tmp/keys
python -m benchmarks.bench_keys 1000000000 --folder /tmp/keys     the long benchmark: 14 bytes of disk per key

An eighth of the documents copy earlier ones. Keys are computed from the numbers of documents when they are read, so
they take no disk. Tasks run one after the other in one process with one thread, in blocks of TASKS per process:
its peak of resident memory is that of its largest task. NumPy, Arrow and Numba are 188 MB of it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curation.base.arrays import seeded_hashes
from curation.base.engine import load_engine
from curation.stages import FuzzyDedup
from curation.stages.corpus.key_ranges import slice_group_count
from curation.stages.invoke import run_phase_task, run_phases
from curation.stages.near import near_groups
from curation.stages.near.near_groups import check_counts, removed_of
from curation.stages.outcome import Corpus

BANDS = 3
IN_PARTITION = 20_000  # rows
COPIES = 8  # one document of so many is a copy
TASKS = 64  # of one process


class MadeKeys:
    """The storage of `rows` documents whose keys are computed."""

    def __init__(self, rows: int) -> None:
        self.starts = np.append(np.arange(0, rows, IN_PARTITION), rows)

    def key_names(self, partition: int) -> Sequence[str]:
        return [f"0.band_{band:03d}" for band in range(BANDS)]

    def key_type(self, partition: int, name: str) -> np.dtype:
        return np.dtype(np.uint64)

    def read_keys(self, partition: int, name: str, rows: np.ndarray, out: np.ndarray) -> None:
        rows = rows.astype(np.int64)
        chance = seeded_hashes(rows, 1)
        copied = np.where(chance % COPIES == 0, (chance >> np.uint64(8)).astype(np.int64) % np.maximum(rows, 1), rows)
        out[:] = seeded_hashes(copied, 10 + int(name[-3:])) | np.uint64(1)

    def read_texts(self, partition: int, rows: np.ndarray, column: str) -> Any:
        raise NotImplementedError


class AllRows(Corpus):
    """A corpus of all rows of the storage, without a mask."""

    def between(self, first: int, last: int) -> Corpus:
        low, high = (int(self.storage.starts[partition]) for partition in (first, last))
        return self.of(np.arange(low, high))


def run_tasks(place: int, tasks: Sequence[int], rows: int, folder: Path, limit: int, results: Any) -> None:
    """Run tasks of a phase in this process; send their processor time and the peak of memory."""
    near_groups.JOIN_PAIRS = limit
    stage, engine, corpus = stage_of(), load_engine("cpu"), AllRows(MadeKeys(rows), np.zeros(0), 0, folder)
    before = time.process_time()
    for task in tasks:
        run_phase_task(stage, engine, corpus, place, task)
    results.put((time.process_time() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3))


def stage_of() -> FuzzyDedup:
    return FuzzyDedup(bands=BANDS, rows=6, verify="none")


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.bin"))


def measure(rows: int, folder: Path, limit: int) -> None:
    """Run all phases, and print a line for each."""
    near_groups.JOIN_PAIRS = limit
    stage, corpus = stage_of(), AllRows(MadeKeys(rows), np.zeros(0), 0, folder)
    keys, context = rows * BANDS, multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["curation.stages.near.fuzzy_dedup", "curation.base.engine"])
    total = peak = wall = temporary = 0.0
    print(f"{rows:,} documents, {keys:,} keys; at most {limit:,} pairs are joined by one task", flush=True)

    def run(place: int, tasks: Sequence[int]) -> None:
        nonlocal total, peak, wall, temporary
        began, seconds, most = time.perf_counter(), 0.0, 0.0
        for first in range(0, len(tasks), TASKS):
            results = context.SimpleQueue()
            arguments = (place, [*tasks[first : first + TASKS]], rows, folder, limit, results)
            process = context.Process(target=run_tasks, args=arguments)
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(f"a task ended with {process.exitcode}")
            used, resident = results.get()
            seconds, most = seconds + used, max(most, resident)
        name = stage.phases()[place].name
        total, peak, wall = total + seconds, max(peak, most), wall + time.perf_counter() - began
        written = disk_bytes(folder / name)
        temporary = max(temporary, sum(map(disk_bytes, folder.iterdir())))
        print(
            f"  {name}: {len(tasks)} tasks, {seconds:.1f} CPU s ({1e9 * seconds / keys:.1f} ns per key), "
            f"peak {most:.0f} MB, {written / keys:.2f} B per key",
            flush=True,
        )

    run_phases(stage, corpus, run)
    removed = sum(removed_of(corpus, slice_group).shape[1] for slice_group in range(slice_group_count(corpus)))
    print(
        f"{removed:,} removed, {check_counts(corpus)[0]:,} pairs; {total:.1f} CPU s, {1e9 * total / keys:.0f} ns per "
        f"key; peak of a task {peak:.0f} MB; at most {temporary / keys:.1f} temporary bytes per key; {wall:.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int)
    parser.add_argument("--folder", type=Path, required=True, help="for temporary files; it must not exist")
    parser.add_argument("--limit", type=int, default=near_groups.JOIN_PAIRS, help="pairs that one task joins")
    arguments = parser.parse_args()
    os.makedirs(arguments.folder)
    try:
        measure(arguments.rows, arguments.folder, arguments.limit)
    finally:
        shutil.rmtree(arguments.folder)


if __name__ == "__main__":
    main()
