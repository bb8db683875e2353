# SPDX-License-Identifier: Apache-2.0
"""The wall time of a run on a cluster, simulated from the task times of a run on this machine.

    python -m benchmarks.replay measure TIMES.json CORPUS.jsonl...   runs the default recipe over all corpora by turns
    python -m benchmarks.replay table TIMES.json                     prints those of docs/measurements/large_runs.md

`measure` notes the processor time of each task, with one worker. The rest is the time of the run's own process: a line
through the sizes, of three or more, tells its fixed part from what grows with the bytes of the input. Of ROUNDS rounds,
the fastest and the slowest give both ends of a range. `table` scales phases by the bytes of the input, and gives
batches of tasks to threads in the order in which the run submits them: a batch starts when a thread is free, and not
before the client has submitted it.
"""

from __future__ import annotations

import argparse
import heapq
import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from curation.base.system.cluster import BATCH_SECONDS, MAX_MESSAGE, batch_of
from curation.base.system.progress import Progress
from curation.base.system.sessions import TaskSession
from curation.recipes.recipe import load_recipe
from curation.record import totals
from curation.record.row_sums import TASK_PARTITIONS, TASK_ROWS
from curation.record.totals import TASK_SLICES
from curation.running.run import run
from curation.running.tasks.deletion import MAX_TASK_FILES, MIN_TASK_FILES
from curation.running.tasks.deletion import TASKS_PER_WORKER as DELETIONS_PER_WORKER
from curation.stages import ExactDedup, FuzzyDedup
from curation.stages.corpus.key_ranges import DIVISION, MAX_BUNDLE_ROWS, MIN_BUNDLE_ROWS, TASKS_PER_WORKER
from curation.stages.near.near_groups import JOIN_PAIRS

JOINS = ("joined", "groups")  # one task, or rounds of tasks for many pairs
ROUNDS_WORK = 6  # of joining by rounds, by `bench_keys` with 10^9 documents, to joining in one task
ROUNDS = 4  # runs of each corpus
SIDE_PHASES = {"delete_share": "deletion", "run_sums": "sums of rows", "run_totals": "sums of records"}
MEASURED_SLICES = 4  # of a task that adds up records, so that the measured run has such tasks
FILES_PER_SLICE = 8  # in `_work/`, with those of output parts and tasks
SIZES = {"1 TB": 1e12, "15 TB": 15e12, "60 TB": 60e12}
NODES = (1, 10, 100, 1000)
THREADS = 64
TASK_BYTES = 32 << 20  # of input, in a task of the map phase
FINISH_BYTES = 2.5e9  # of input, per task: a pair of 10 GB, or 250,000 rows of `removed/`


class Labels(Progress):
    """A display that only notes the phase that runs."""

    label = ""

    def watch(self, label: str, total: int, count: Any, **options: Any) -> Any:
        self.label = label if not options.get("is_loop") else self.label
        return super().watch(label, total, count, **options)


def measure(corpus: Path) -> dict[str, Any]:
    """Run the default recipe with one worker. Return the seconds of each task by phase, and those of the process."""
    phases: dict[str, list[float]] = {}
    display = Labels()
    plain = TaskSession.run

    def timed(self: TaskSession, function: Any, items: Iterable[Any], *done: Any) -> None:
        name = phase_name(display.label, function)

        def task(item: Any) -> Any:
            started = time.thread_time()
            result = function(item)
            seconds.append(time.thread_time() - started)
            return result

        seconds: list[float] = []
        begun = time.process_time()
        plain(self, task, items, *done)
        if seconds:  # tasks have threads of their own, which tokenise and hash
            factor = (time.process_time() - begun) / sum(seconds)
            phases.setdefault(name, []).extend(value * factor for value in seconds)

    TaskSession.run = timed  # type: ignore[method-assign]
    totals.TASK_SLICES = MEASURED_SLICES
    folder = Path(tempfile.mkdtemp())
    before, moved = time.process_time(), bytes_moved()
    try:
        options: dict[str, Any] = {"engine": "cpu", "workers": 1, "scheduler": "threads", "progress": display}
        report = run(load_recipe("default", input=str(corpus)), folder / "out", **options).report
    finally:
        TaskSession.run = plain  # type: ignore[method-assign]
        shutil.rmtree(folder)
    seconds = time.process_time() - before
    own = seconds - sum(sum(times) for times in phases.values())
    return {
        "bytes": corpus.stat().st_size, "documents": report["documents"], "seconds": seconds, "own": own,
        "moved": bytes_moved() - moved, "phases": phases,
    }  # fmt: skip


def phase_name(label: str, function: Any) -> str:
    """Return the label of a phase; with the name of the step if it is one of a corpus stage."""
    stages: dict[str, ExactDedup | FuzzyDedup] = {"exact_dedup": ExactDedup(), "fuzzy_dedup": FuzzyDedup()}
    if function.func.__name__ in SIDE_PHASES:
        return SIDE_PHASES[function.func.__name__]
    if label not in stages:
        return label
    return f"{label}: {stages[label].phases()[function.args[1]].name}"


def bytes_moved() -> int:
    """Return the bytes that this process has read and written by system calls."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar", "wchar")))


def schedule(seconds: Iterable[float], threads: int, submit: float) -> float:
    """Return the time at which the last task ends; `seconds` of each task, in the order of their submission."""
    free = [0.0] * threads
    end = 0.0
    for number, length in enumerate(seconds):
        started = max(heapq.heappop(free), number * submit)
        heapq.heappush(free, started + length)
        end = max(end, started + length)
    return end


def count_tasks(name: str, size: float, documents: float, threads: int) -> int:
    """Return the tasks of a phase for an input of `size` bytes."""
    if name == "finish":
        return max(round(size / FINISH_BYTES), 1)
    if name == "deletion":
        files = FILES_PER_SLICE * size / TASK_BYTES
        per_task = min(max(files / (DELETIONS_PER_WORKER * threads), MIN_TASK_FILES), MAX_TASK_FILES)
        return max(round(files / per_task), 1)
    if name == "sums of rows":
        return max(round(size / TASK_BYTES / TASK_PARTITIONS), round(documents / TASK_ROWS), 1)
    if name == "sums of records":
        return max(round(size / TASK_BYTES / TASK_SLICES), 1)
    if ": " not in name:
        return max(round(size / TASK_BYTES), 1)
    batch = min(max(documents / (TASKS_PER_WORKER * threads), MIN_BUNDLE_ROWS), MAX_BUNDLE_ROWS)
    return max(round(documents / batch), 1)  # there are about as many reducers


class Costs(NamedTuple):
    """What one round has measured: the line of the time of the run's own process, and its largest run."""

    fixed: float  # seconds
    per_byte: float
    run: dict[str, Any]


def costs(rounds: list[list[dict[str, Any]]]) -> list[Costs]:
    """Return the costs of each round, the ones that grow slowest first."""
    found = []
    for runs in rounds:
        per_byte, fixed = np.polyfit([run["bytes"] for run in runs], [run["own"] for run in runs], 1).tolist()
        found.append(Costs(fixed, max(per_byte, 0.0), max(runs, key=lambda run: run["bytes"])))
    return sorted(found, key=lambda costs: costs.per_byte)


def simulate(costs: Costs, size: float, nodes: int) -> dict[str, float]:
    """Return the seconds of each phase, and of the run's process ("own")."""
    large = costs.run
    factor = size / large["bytes"]
    result = {"own": costs.fixed + costs.per_byte * size}
    for name, measured in large["phases"].items():
        total = sum(measured) * factor
        documents, phase = large["documents"]["read"] * factor, name.partition(": ")[2]
        in_rounds = phase in JOINS and documents - large["documents"]["kept"] * factor > JOIN_PAIRS
        if phase == DIVISION or (phase in JOINS and not in_rounds):
            result[name] = total
            continue
        total *= ROUNDS_WORK if in_rounds else 1
        tasks = count_tasks(name, size, documents, nodes * THREADS)
        mean = sum(measured) / len(measured)
        sizes = batches(tasks, nodes * THREADS, total / tasks) if name != "finish" else [1] * tasks  # uneven tasks
        lengths = (size * total / tasks * measured[k % len(measured)] / mean for k, size in enumerate(sizes))
        result[name] = schedule(lengths, nodes * THREADS, BATCH_SECONDS)
    return result


def batches(tasks: int, threads: int, seconds: float) -> Iterator[int]:
    """Yield the numbers of tasks in batches, as a cluster gets them. The mean `seconds` of a task are known after the
    first two messages."""
    for number in count(0):
        if not tasks:
            break
        size = batch_of(tasks, threads, seconds if number >= 2 * MAX_MESSAGE else 0.0)
        yield size
        tasks -= size


def shown(seconds: float) -> str:
    """Return a time as 40 s, 12 min or 3.4 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def spread(values: Iterable[float], digits: int = 2) -> str:
    """Return the smallest and the largest of some values."""
    ordered = sorted(values)
    low, high = f"{ordered[0]:,.{digits}f}", f"{ordered[-1]:,.{digits}f}"
    return low if low == high else f"{low} to {high}"


def table(rounds: list[list[dict[str, Any]]]) -> None:
    """Print ranges: processor times by size and phase, wall times by size and nodes, the part of the run's process in
    them, and the bytes per second of the file system."""
    print("| input | all, CPU s per GB | the run's process, CPU s |\n|---:|---:|---:|")
    for runs in zip(*rounds, strict=True):
        every = spread((run["seconds"] / run["bytes"] * 1e9 for run in runs), 1)
        print(f"| {runs[0]['bytes'] / 1e6:,.0f} MB | {every} | {spread(run['own'] for run in runs)} |")
    found = costs(rounds)
    line = spread(each.fixed for each in found), spread(each.per_byte * 1e9 for each in found)
    print(f"\nthe run's process: {line[0]} s, and {line[1]} s per GB\n\n| phase | CPU s per GB |\n|---|---:|")
    for name in found[0].run["phases"]:
        print(f"| {name} | {spread(sum(each.run['phases'][name]) / each.run['bytes'] * 1e9 for each in found)} |")
    print("\n| nodes | " + " | ".join(SIZES) + " |\n|---:|" + "---:|" * len(SIZES))
    for nodes in NODES:
        cells = []
        for size in SIZES.values():
            walls, parts, rates = [], [], []
            for each in (found[0], found[-1]):
                seconds = simulate(each, size, nodes)
                walls.append(sum(seconds.values()))
                parts.append(seconds["own"] / walls[-1] * 100)
                rates.append(each.run["moved"] / each.run["bytes"] * size / walls[-1] / 1e9)
            low, high = map(shown, sorted(walls))
            cells.append(f"{low} to {high} ({spread(parts, 0)} %, {spread(rates, 0)} GB/s)")
        print(f"| {nodes:,} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "table"])
    parser.add_argument("times", type=Path)
    parser.add_argument("corpora", type=Path, nargs="*")
    arguments = parser.parse_args()
    if arguments.what == "table":
        table(json.loads(arguments.times.read_bytes()))
        return
    if len(arguments.corpora) < 3:
        parser.error("give three corpora or more, of different sizes, the smallest first")
    measure(arguments.corpora[0])  # compiles
    rounds = [[measure(corpus) for corpus in arguments.corpora] for _ in range(ROUNDS)]
    arguments.times.write_text(json.dumps(rounds))


if __name__ == "__main__":
    main()
