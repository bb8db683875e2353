# SPDX-License-Identifier: Apache-2.0
"""The result of a segment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from curation.record.partitions import Partitions
    from curation.record.removed import RemovedRows
    from curation.record.row_sums import RowSums
    from curation.stages.corpus.cutting import StoredCuts
    from curation.stages.corpus.written_columns import WrittenColumns


class SegmentState(NamedTuple):
    """The result of a segment, after its corpus phase.

    partitions  all rows of the segment
    mask        the `.npy` file with a bool per row: whether the corpus phase kept the row
    documents   int64, one per partition: its kept rows
    bytes       int64, one per partition: the bytes of their texts, without the spans to cut
    cuts        the spans to cut from texts; None if no stage cuts
    removed     the rows that the corpus phase removed, one entry per stage and reason
    columns     the columns that the last corpus stage writes; None if it writes none
    copies      the `.npy` file with how often each row is written (uint16); None: each kept row once
    """

    partitions: Partitions
    mask: Path
    documents: np.ndarray
    bytes: np.ndarray
    cuts: StoredCuts | None
    removed: list[RemovedRows]
    sums: RowSums
    columns: WrittenColumns | None = None
    copies: Path | None = None
