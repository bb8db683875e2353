# SPDX-License-Identifier: Apache-2.0
"""Phases of independent tasks, each with a done-record: the map phase and the write phase."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from curation.reading.source_files import Slice
from curation.running.map_phase import run_stored, store_job
from curation.running.task_records import Decoder, Record, TaskRecords
from curation.system.files import make_folder
from curation.system.interrupts import check as check_interrupts

if TYPE_CHECKING:
    from curation.running.corpus_phase import RunContext


class Task(NamedTuple):
    """A task of a phase: its number from 0, its size (stored bytes, or another measure), and further arguments."""

    number: int
    size: int
    arguments: tuple[Any, ...] = ()


def run_tasks(
    context: RunContext, label: str, function: Callable[..., None], job: Any, folder: Path, tasks: Sequence[Task],
    decoder: Decoder[Record],
) -> list[Record]:  # fmt: skip
    """Run `function(plan, job, number, *arguments)` for each task without a done-record, and return all records."""
    make_folder(folder)
    records = TaskRecords(folder, {task.number: task.size for task in tasks}, decoder)
    pending = records.pending()
    run = partial(run_stored, function, type(job), context.stored_plan, store_job(job, folder))
    check_interrupts()
    with context.progress.watch(label, len(tasks), records.count):
        context.session.map(run, [(task.number, *task.arguments) for task in tasks if task.number in pending])
    return records.all()


def stored_sizes(slices: Sequence[Slice]) -> list[int]:
    """Return the stored bytes of each slice, at least 1. The ranges of a file count as equal parts of it."""
    ranges: dict[int, int] = {}  # id of a file -> number of its ranges
    for input_slice in slices:
        for part in input_slice.ranges:
            ranges[id(part.file)] = ranges.get(id(part.file), 0) + 1
    sizes = (sum(max(part.file.bytes, 0) // ranges[id(part.file)] for part in each.ranges) for each in slices)
    return [max(size, 1) for size in sizes]
