# SPDX-License-Identifier: Apache-2.0
"""Memory of the process of a run, and of a Dask scheduler, by the number of tasks.

python -m benchmarks.bench_driver plan 10000 100000         the plan and the done-records of so many slices
python -m benchmarks.bench_driver scheduler 10000 100000    empty tasks on a scheduler and two workers on localhost
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from curation import __version__
from curation.base.system.cluster import connect
from curation.base.system.files import numbered_path
from curation.reading.slice_table import SliceTable
from curation.reading.source_files import FileRange, Slice, SourceFile
from curation.recipes.recipe import Recipe
from curation.record.ledger import SliceRecord, SliceTotals, add_up
from curation.record.records import TaskCounts, TaskRecords
from curation.record.stored_plan import Plan, digest_of, load_plan, store_plan
from curation.record.totals import TASK_SLICES
from curation.running.phase_loop import SLICE_RECORDS
from curation.stages.outcome import StageCount

SLICE_BYTES = 32 << 20


def made_slices(count: int) -> Iterator[Slice]:
    """Yield slices of one file, as the planner does."""
    file = SourceFile(path="/data/made.jsonl", source="made", format="jsonl", bytes=count * SLICE_BYTES, modified_ns=1)
    for number in range(count):
        start = number * SLICE_BYTES
        part = FileRange(file=file, start=start, stop=start + SLICE_BYTES, edges=f"{number:016x}")
        yield Slice(index=number, ranges=[part])


def measure_plan(count: int, folder: Path) -> None:
    """Print the bytes per slice of a plan in memory and on disk, and of reading all done-records."""
    tracemalloc.start()
    slices = SliceTable.of(made_slices(count))
    plan = Plan(
        version=__version__, recipe=Recipe(), files=[*slices.files], slices=slices, stage_files={}, tokenizer={}
    )
    held, peak = tracemalloc.get_traced_memory()
    path = folder / "plan.json"
    store_plan(path, plan)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    load_plan(digest_of(path))
    loaded = tracemalloc.get_traced_memory()
    print(f"{count:,} slices: plan {held / count:.0f} B in memory (peak {peak / count:.0f} B while planned),", end=" ")
    print(
        f"{path.stat().st_size / count:.0f} B on disk; a worker process {(loaded[0] - before) / count:.0f} B", end=" "
    )
    print(f"(peak {(loaded[1] - before) / count:.0f} B)")
    stage = StageCount(kind="filter", name="filter", reasons={"too_few_words": 3, "too_long": 1})
    record = msgspec.to_builtins(SliceRecord(rows=9, documents=8, stages=[stage] * 3))
    records_folder = folder / "records"
    for number in range(0, count, 10_000):
        numbered_path(records_folder, number, "").parent.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.encode(record)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    records = TaskRecords(records_folder, slices.stored_sizes(), SLICE_RECORDS)
    for number in records.pending().tolist():
        records.begin(number)
        numbered_path(records_folder, number, ".json").write_bytes(text)
        records.end(number, TaskCounts(9, 90, 8))
    left = records.each()
    tasks = (range(first, min(first + TASK_SLICES, count)) for first in range(0, count, TASK_SLICES))
    parts = (add_up(slices, numbers, islice(left, len(numbers))) for numbers in tasks)
    totals = SliceTotals(slices, parts, [stage] * 3)
    held, peak = tracemalloc.get_traced_memory()
    print(f"  records: {(held - before) / count:.0f} B held (peak {(peak - before) / count:.0f} B)", end=" ")
    print(f"for {int(totals.rows.sum()):,} rows")
    tracemalloc.stop()


def nothing(number: int) -> TaskCounts:
    """A task that only returns counts."""
    return TaskCounts(number, number, number)


def resident(process: int, field: str = "VmHWM") -> float:
    """Return the peak resident memory of a process in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1e3


def processor_seconds(process: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def measure_scheduler(counts: list[int], folder: Path) -> None:
    """Print the memory of a scheduler on localhost, and of this process, after so many tasks."""
    file = folder / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli"]
    options = ["--scheduler-file", str(file), "--no-dashboard"]
    kinds = {"scheduler": ["--host", "127.0.0.1", "--port", "0"], "worker": ["--no-nanny", "--nthreads", "2"]}
    started = []
    for kind, own in kinds.items():
        code = f"from {command[2]}.dask_{kind} import main; main()"
        started.append(
            subprocess.Popen([sys.executable, "-c", code, *options, *own], cwd=folder, stderr=subprocess.DEVNULL)
        )
        while not file.exists():
            time.sleep(0.05)
    try:
        with connect(msgspec.json.decode(file.read_bytes())["address"]) as session:
            for count in counts:
                before = time.perf_counter(), time.process_time(), processor_seconds(started[0].pid)
                session.run(nothing, range(count))
                after = time.perf_counter(), time.process_time(), processor_seconds(started[0].pid)
                seconds, own, other = (1e3 * (end - start) / count for start, end in zip(before, after, strict=True))
                now = resident(started[0].pid, "VmRSS"), resident(started[0].pid), resident("self")  # type: ignore[arg-type]
                print(f"{count:,} tasks: {seconds:.2f} ms each, of which the client uses {own:.2f} CPU ms", end=" ")
                print(f"and the scheduler {other:.2f}; scheduler {now[0]:.0f} MB", end=" ")
                print(f"(peak {now[1]:.0f} MB), client peak {now[2]:.0f} MB", flush=True)
    finally:
        for process in started:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["plan", "scheduler"])
    parser.add_argument("counts", type=int, nargs="+")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.what == "scheduler":
            measure_scheduler(arguments.counts, Path(folder))
        for count in arguments.counts if arguments.what == "plan" else []:
            made = Path(folder, str(count))
            made.mkdir()
            measure_plan(count, made)


if __name__ == "__main__":
    main()
