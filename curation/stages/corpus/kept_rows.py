# SPDX-License-Identifier: Apache-2.0
"""The document that is kept of a group of duplicates, and the sizes of the groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from curation.base.arrays import batches_of
from curation.base.errors import RecipeError, nearest
from curation.stages.corpus.keep_orders import Keep, check_policy, order_weight
from curation.stages.corpus.stored_drops import runs_of, sorted_file

if TYPE_CHECKING:
    from curation.stages.outcome import Corpus

LARGEST_SHOWN = 10
SORTED = "sorted.partner"  # file


def check_keep(keep: Keep, names: Sequence[str]) -> None:
    """Raise ValueError unless `keep` is one of the names, a list of different input names, or a policy and its
    column."""
    if isinstance(keep, dict):
        return check_policy(keep)
    if isinstance(keep, str) and keep not in names:
        raise ValueError(f"keep must be one of {', '.join(names)} or a list of input names, not {keep!r}")
    if not keep or (len(set(keep)) < len(keep) and not isinstance(keep, str)):
        raise ValueError(f"keep must list each input once, not {keep!r}")


def check_inputs(keep: Keep, inputs: Sequence[str]) -> None:
    """Raise RecipeError if `keep` lists an input that does not exist."""
    for name in keep if isinstance(keep, list) else []:
        if name not in inputs:
            raise RecipeError(f"keep: no input is named {name!r}{nearest(name, inputs)}")


def rank_by(weight: np.ndarray) -> np.ndarray:
    """Return a different rank per row, from 0 for the lowest weight; rows of equal weight keep their order."""
    order = np.argsort(weight, kind="stable")
    rank = np.empty(len(weight), np.int64)
    for batch in batches_of(len(weight)):
        rank[order[batch]] = np.arange(batch.start, batch.stop)
    return rank


def longest_first(corpus: Corpus, rows: np.ndarray) -> np.ndarray:
    """Return a weight per row, lowest for the row whose text has the most bytes."""
    lengths = corpus.of(rows).byte_lengths()
    return np.negative(lengths, out=lengths)


def source_order(corpus: Corpus, rows: np.ndarray, keep: list[str]) -> np.ndarray:
    """Return a weight per row: the position of the row's input in the list `keep`. Inputs that are not listed come
    last."""
    check_inputs(keep, [name for name, _, _ in corpus.sources])
    order = np.full(len(rows), len(keep), np.int16)
    for name, low, high in corpus.sources:
        if name in keep:
            bounds = np.searchsorted(rows, np.array([low, high], rows.dtype))
            order[slice(*bounds)] = keep.index(name)
    return order


def weight_of(corpus: Corpus, rows: np.ndarray, keep: Keep) -> np.ndarray:
    """Return a weight per row for `longest`, a list of inputs, or a policy; the row with the lowest weight of a group
    is kept."""
    if isinstance(keep, list):
        return source_order(corpus, rows, keep)
    return order_weight(corpus, rows) if isinstance(keep, dict) else longest_first(corpus, rows)


def group_sizes(corpus: Corpus, partner: np.ndarray) -> dict[str, Any]:
    """Return the histogram of group sizes in powers of two, and the kept row and size of the largest groups. `partner`
    has the kept row of each removed document."""
    groups, by_top = 0, np.zeros(65, np.int64)
    largest = np.zeros(0, np.int64), np.zeros(0, np.int64)  # kept rows, and documents in their groups
    for kept, removed in runs_of(sorted_file(corpus.scratch / SORTED, [partner])):
        sizes = removed + 1
        groups += len(kept)
        by_top += np.bincount(np.ceil(np.log2(sizes)).astype(np.int64), minlength=len(by_top))
        rows, documents = np.append(largest[0], kept), np.append(largest[1], sizes)
        first = np.argsort(-documents, kind="stable")[:LARGEST_SHOWN]
        largest = rows[first], documents[first]
    return {
        "groups": groups,
        "group_sizes": {_size_range(top): int(by_top[top]) for top in np.flatnonzero(by_top).tolist()},
        "largest_groups": [{"row": row, "documents": size} for row, size in np.stack(largest, 1).tolist()],
    }


def _size_range(top: int) -> str:
    low, high = 2 ** (top - 1) + 1, 2**top
    return str(high) if low == high else f"{low}-{high}"
