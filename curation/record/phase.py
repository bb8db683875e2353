# SPDX-License-Identifier: Apache-2.0
"""Phases of independent tasks, each with a done-record, such as map, write, look-ups and finish."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curation.base.system.files import make_folder
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.sessions import CountedItems
from curation.record.jobs import run_stored, store_job
from curation.record.records import Decoder, Record, TaskCounts, TaskRecords

if TYPE_CHECKING:
    from curation.record.context import RunContext


MAX_UNEVEN = 4  # largest size of a task, as a multiple of the mean size


def run_tasks(
    context: RunContext, label: str, function: Callable[..., TaskCounts | None], job: Any, folder: Path,
    sizes: Sequence[int] | np.ndarray, decoder: Decoder[Record],
    arguments: Callable[[int], tuple[Any, ...]] = lambda number: (),
) -> Iterator[Record]:  # fmt: skip
    """Run `function(plan, job, number, *arguments(number))` for each task without a done-record.

    Return an iterator over the records of all tasks. Each record is read when it is needed, since there may be a
    million.

    sizes  size of each task (stored bytes, or another measure)
    """
    make_folder(folder)
    records = TaskRecords(folder, sizes, decoder)
    run = partial(run_stored, function, type(job), context.stored_plan, store_job(job, folder))
    check_interrupts()

    pending = records.pending().tolist()

    def items() -> Iterator[tuple[Any, ...]]:
        for number in pending:
            records.begin(number)
            yield number, *arguments(number)

    with context.progress.watch(label, len(sizes), records.count):
        tasks = CountedItems(items(), len(pending)) if _are_even(records.sizes[pending]) else items()
        context.session.run(run, tasks, lambda _, item, counts: records.end(item[0], counts))
    return records.each()


def _are_even(sizes: np.ndarray) -> bool:
    """Return whether sizes are so even that a cluster may get several tasks at a time: two large tasks must not be in
    one batch."""
    return len(sizes) > 0 and int(sizes.max()) * len(sizes) <= MAX_UNEVEN * int(sizes.sum())
