# SPDX-License-Identifier: Apache-2.0
"""The done-records of a segment, added up by tasks, because reading a record takes a fifth of a millisecond, and a run
may have a million. A task writes the sums of some consecutive records to a file, which is its done-record. Another file
has the candidates for samples in the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.system.files import commit, make_folder, numbered_path
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.sealed import read_sealed, sealed
from curation.base.system.steps import Count
from curation.record.candidates import held, sample_of
from curation.record.jobs import load_job, store_job
from curation.record.ledger import PartialTotals, SliceRecord, SliceTotals, add_up
from curation.record.partitions import IpcFile, open_partition
from curation.record.slice_notes import SAMPLES
from curation.record.stored_plan import Plan, Stored, load_plan
from curation.stages.outcome import StageCount

if TYPE_CHECKING:
    from curation.record.context import RunContext

MERGED = 16  # tables of candidates in memory
TASK_SLICES = 256  # slices, or records, per task; a run with at most this many needs no task


class TotalsJob(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of the phase share, stored in one file."""

    segment: Path  # folder of the records
    folder: Path
    records: int  # number of records that a task adds up


def add_records(context: RunContext, number: int, segment: Path, stages: Sequence[StageCount]) -> SliceTotals:
    """Return the totals of the segment `number`, whose records are in the folder `segment`. Add the counts of its
    stages to `stages`."""
    slices = context.plan.slices
    count = _count(context.plan)
    if count <= 1:
        return SliceTotals(slices, [_add_up(context.plan, segment, _numbers(context.plan, 0, TASK_SLICES))], stages)
    job = TotalsJob(segment=segment, folder=_folder(context, number), records=TASK_SLICES)
    make_folder(job.folder)
    paths = [numbered_path(job.folder, task, ".json") for task in range(count)]
    missing = [task for task, path in enumerate(paths) if not path.exists()]
    done: list[int] = []
    if missing:
        run = partial(run_totals, context.stored_plan, store_job(job, job.folder), number)
        with context.progress.watch("adding up records", len(missing), lambda: Count(len(done)), is_loop=True):
            context.session.run(run, missing, lambda place, *_: done.append(place))
    return SliceTotals(slices, (read_sealed(path, PartialTotals) for path in paths), stages)


def run_totals(stored_plan: Stored, stored: Stored, segment: int, task: int) -> None:
    """Write the file of a task, unless it exists. `segment` is not read: it only makes the arguments of each phase
    different."""
    check_interrupts()
    job = load_job(TotalsJob, stored)
    path = numbered_path(job.folder, task, ".json")
    if not path.exists():
        plan = load_plan(stored_plan)
        numbers = _numbers(plan, task, job.records)
        with commit(path.with_suffix(SAMPLES)) as temporary:
            _write_table(temporary, _candidates(plan, job.segment, numbers))
        content = sealed(msgspec.json.encode(_add_up(plan, job.segment, numbers)))
        with commit(path) as temporary:
            temporary.write_bytes(content)


def candidates(context: RunContext, number: int, segment: Path) -> Iterator[pa.Table]:
    """Yield the candidates for samples of documents that rules removed in a segment, with the column `slice`."""
    if _count(context.plan) <= 1:
        yield _candidates(context.plan, segment, _numbers(context.plan, 0, TASK_SLICES))
        return
    for task in range(_count(context.plan)):
        yield open_partition(numbered_path(_folder(context, number), task, SAMPLES))


def _candidates(plan: Plan, segment: Path, numbers: range) -> pa.Table:
    samples = held(plan.recipe.report.samples)
    tables: list[pa.Table] = []
    for number in numbers:
        rows = open_partition(numbered_path(segment, number, SAMPLES))
        tables.append(rows.append_column("slice", pa.array(np.full(len(rows), number))))
        if len(tables) > MERGED:
            tables = [sample_of(pa.concat_tables(tables), samples)]
    return sample_of(pa.concat_tables(tables), samples)


def _write_table(path: Path, table: pa.Table) -> None:
    with IpcFile(path, table.schema) as file:
        file.write(table)


def _count(plan: Plan) -> int:
    return -(-plan.slices.tasks // TASK_SLICES)


def _folder(context: RunContext, number: int) -> Path:
    return context.work / f"totals-{number}"


def _numbers(plan: Plan, task: int, records: int) -> range:
    return range(task * records, min((task + 1) * records, plan.slices.tasks))


def _add_up(plan: Plan, segment: Path, numbers: range) -> PartialTotals:
    return add_up(plan.slices, numbers, _records(segment, numbers))


def _records(segment: Path, numbers: range) -> Iterator[SliceRecord]:
    for number in numbers:
        yield read_sealed(numbered_path(segment, number, ".json"), SliceRecord)
