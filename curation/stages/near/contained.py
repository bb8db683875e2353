# SPDX-License-Identifier: Apache-2.0
"""Remove from a group only the documents that a kept document contains.

The documents of a group are joined by pairs of near-duplicates. The first document by `keep` stays, and the documents
that it contains are removed. Of the remaining documents the first one stays, and so on. A document is compared with at
most COMPARED kept documents, so a group costs at most COMPARED comparisons per document.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from curation.base.system.sealed import read_sealed, write_sealed
from curation.stages.corpus.keep_orders import Keep
from curation.stages.corpus.kept_rows import rank_by, weight_of
from curation.stages.corpus.key_ranges import slice_group_count
from curation.stages.near import near_groups

if TYPE_CHECKING:
    from curation.base.contract import Engine
    from curation.stages.outcome import Corpus

COMPARED = 16


def choose_containing(
    engine: Engine, corpus: Corpus, slice_group: int, keep: Keep, open_files: near_groups.Open, bound: float
) -> None:
    """Write each removed row and the kept row that contains it, for the groups whose smallest row is in a group of
    slices.

    open_files  function that opens the files of a group of slices to compute shares of n-grams
    bound       lowest share of a removed document's n-grams that the kept document has
    """
    uncompared = 0

    def kept_of(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        nonlocal uncompared
        rank = np.arange(len(rows)) if keep == "first" else rank_by(weight_of(corpus, rows, keep))
        kept = np.arange(len(rows))
        left = kept.copy()
        for _ in range(COMPARED):
            leader = left[_leaders(engine, corpus, labels[left], rank[left])]
            left, leader = left[leader != left], leader[leader != left]
            shares = near_groups.compare_rows(corpus, open_files, rows[left], rows[leader], bound)
            kept[left[shares >= bound]] = leader[shares >= bound]
            left = left[shares < bound]
        uncompared = int(np.count_nonzero(_leaders(engine, corpus, labels[left], rank[left]) != np.arange(len(left))))
        return kept

    near_groups.choose_kept(corpus, slice_group, kept_of)
    write_sealed(_uncompared_path(corpus, slice_group), uncompared)


def _leaders(engine: Engine, corpus: Corpus, labels: np.ndarray, rank: np.ndarray) -> np.ndarray:
    return engine.group_leaders(labels.astype(np.uint64)[:, None], rank, corpus.threads)


def uncompared_count(corpus: Corpus) -> int:
    """Return how many kept documents were not compared with all earlier kept documents of their groups."""
    return sum(read_sealed(_uncompared_path(corpus, number)) for number in range(slice_group_count(corpus)))


def _uncompared_path(corpus: Corpus, slice_group: int) -> Path:
    return corpus.scratch / near_groups.REPRESENTATIVES / f"{slice_group:06d}.json"
