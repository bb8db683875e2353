# SPDX-License-Identifier: Apache-2.0
"""The facts that the phases of a run share, and the result of a segment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from curation.contract import Engine, Session
from curation.reading.paths import RUN_PLAN
from curation.running.progress import Progress
from curation.running.stored_plan import Plan, Stored

if TYPE_CHECKING:
    from curation.running.intermediate import Partitions
    from curation.running.removed import RemovedRows
    from curation.running.row_sums import RowSums

WORK = RUN_PLAN[0]


class RunContext(NamedTuple):
    """The facts that all phases of a run share.

    stored_plan  the file of `plan`, which tasks load
    folder       the output folder, an absolute path
    workers      tasks at once
    batch_bytes  input bytes of a batch
    """

    plan: Plan
    stored_plan: Stored
    folder: Path
    engine: Engine
    engine_name: str
    session: Session
    progress: Progress
    workers: int
    batch_bytes: int

    @property
    def work(self) -> Path:
        """The folder `_work/`."""
        return self.folder / WORK


class SegmentState(NamedTuple):
    """The result of a segment, after its corpus phase.

    partitions  all rows of the segment
    mask        the `.npy` file of a bool per row: whether the corpus phase kept it
    documents   int64, one per partition: its kept rows
    bytes       int64, one per partition: the bytes of their texts
    cuts        the decision with the spans to cut from texts; None if no stage cuts
    removed     the rows that the corpus phase removed, one entry per stage and reason
    copies      the `.npy` file of how often each row is written (uint16); None: each row of the mask once
    """

    partitions: Partitions
    mask: Path
    documents: np.ndarray
    bytes: np.ndarray
    cuts: Path | None
    removed: list[RemovedRows]
    sums: RowSums
    copies: Path | None = None


__all__ = ["WORK", "RunContext", "SegmentState"]
