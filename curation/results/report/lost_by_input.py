# SPDX-License-Identifier: Apache-2.0
"""Counts the removed documents of each input and language by stage and reason, and the bytes that stages cut from
inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from curation.record.ledger import SliceTotals
    from curation.record.removed import RemovedRows
    from curation.record.segment_state import SegmentState
    from curation.record.stored_plan import Plan
from curation.base.arrays import load_mapped
from curation.record.large_shares import MAX_GROUP_SHARE, Cuts, add_cut, warn_of_group
from curation.record.lost_groups import GroupTotals, Reason
from curation.stages import Language, Stage
from curation.stages.corpus.cutting import StoredCuts, load_cuts
from curation.stages.outcome import StageCount
from curation.stages.rows.language import UNLABELLED, unlabelled_line, unlabelled_warning


class LostByInput:
    """Collects three results: the removed documents of each input and of each language in `removed/`, by stage and
    reason; the bytes that stages cut from each input; and warnings about groups of duplicates that have most documents
    of an input."""

    def __init__(self) -> None:
        self.removed: dict[str, Counter[Reason]] = {}
        self.of_languages: dict[str, Counter[Reason]] = {}
        self.cuts: Cuts = {}
        self.large_groups: list[str] = []  # warnings

    def add_rules(self, totals: SliceTotals) -> None:
        """Add the documents that the row stages of a segment removed, and the bytes that these stages cut."""
        for input_slice, record in zip(totals.slices, totals.records, strict=True):
            for stage in record.stages:
                reasons = {(stage.name, reason): number for reason, number in stage.reasons.items()}
                self.removed.setdefault(input_slice.source, Counter()).update(reasons)
                add_cut(self.cuts, stage.name, f"input {input_slice.source!r}", stage.cut_bytes, stage.bytes_before)

    def add_duplicates(self, plan: Plan, state: SegmentState) -> None:
        """Add the documents that the corpus stages of a segment removed."""
        names, inputs = plan.recipe.stage_names, state.partitions.inputs
        ends = np.array([bounds for _, *bounds in inputs], np.int64).reshape(-1, 2)
        reached = np.diff(ends, axis=1)[:, 0]
        for rows in state.removed:
            places = np.searchsorted(rows.row, ends.astype(rows.row.dtype))
            counts = np.diff(places, axis=1)[:, 0]
            if not rows.index_folder:
                self.large_groups += _large_groups(rows, names[rows.stage], state, places, reached)
            reached = reached - counts
            for (name, _, _), count in zip(inputs, counts.tolist(), strict=True):
                self.removed.setdefault(name, Counter())[names[rows.stage], rows.reason] += count

    def add_spans(self, stage: str, cuts: StoredCuts, state: SegmentState) -> None:
        """Add the bytes that `stage`, the last corpus stage of a segment, cut from the texts of each input."""
        inputs = [bounds for bounds in state.partitions.inputs if bounds[1] < bounds[2]]
        firsts, starts = np.array([first for _, first, _ in inputs]), state.partitions.starts
        for partition, (low, high) in enumerate(pairwise(starts.tolist())):
            own = inputs[int(firsts.searchsorted(low, "right")) - 1 : int(firsts.searchsorted(high, "left"))]
            if len(own) == 1 and low < high:
                cut = int(cuts.bytes[partition])
                add_cut(self.cuts, stage, f"input {own[0][0]!r}", cut, cut + int(state.bytes[partition]))
            elif low < high:  # small inputs share a task
                cut_of, size_of = _cut_by_row(cuts, state, partition)
                for name, first, last in own:
                    rows = slice(max(first - low, 0), last - low)
                    add_cut(self.cuts, stage, f"input {name!r}", int(cut_of[rows].sum()), int(size_of[rows].sum()))

    def add_languages(self, counts: Iterable[tuple[str, str, str, int]]) -> None:
        """Add counts of `curation.record.removed.lost_by_language`."""
        for name, stage, reason, documents in counts:
            self.of_languages.setdefault(name, Counter())[stage, reason] += documents

    def groups(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, GroupTotals]:
        """Return the kept and removed documents of each input. `parts` are the records of the written parts."""
        groups = {name: GroupTotals(removed=Counter(removed)) for name, removed in self.removed.items()}
        for part in parts:
            if "source" in part and not part["copy"]:
                groups.setdefault(part["source"], GroupTotals()).kept += part["documents"]
        return groups


def _cut_by_row(cuts: StoredCuts, state: SegmentState, partition: int) -> tuple[np.ndarray, np.ndarray]:
    """Return, per row of a partition, the bytes that are cut from its text, and the bytes of the text before; 0 if the
    row is removed."""
    low, high = state.partitions.starts[partition : partition + 2].tolist()
    kept, spans = load_mapped(state.mask)[low:high] > 0, load_cuts(cuts.folder, partition)
    cut = np.bincount(spans.row, spans.stop - spans.start, high - low).astype(np.int64)
    sizes = state.partitions.corpus(0, np.arange(low, high)).byte_lengths()
    return np.where(kept, cut, 0), np.where(kept, sizes, 0)


def _large_groups(
    rows: RemovedRows, stage: str, state: SegmentState, places: np.ndarray, reached: np.ndarray
) -> Iterator[str]:
    """Yield warnings about groups that have most documents of an input. If more than half of the rows have the same
    value, this is the median.

    places   int64, shape (inputs, 2): for each input, the first of its removed rows and the last + 1
    reached  int64: number of documents of each input that reached the stage
    """
    inputs = state.partitions.inputs
    for (name, first, last), (start, stop), documents in zip(inputs, places.tolist(), reached.tolist(), strict=True):
        if stop - start < MAX_GROUP_SHARE * documents - 1:
            continue
        kept_rows = rows.kept_row[start:stop]
        kept = int(np.partition(kept_rows, len(kept_rows) // 2)[len(kept_rows) // 2]) if len(kept_rows) else -1
        size = int(np.count_nonzero(kept_rows == kept)) + (first <= kept < last)
        if kept >= 0:
            yield from warn_of_group(stage, name, size, documents)


def largest(removed: Mapping[str, Counter[Reason]]) -> dict[str, dict[str, Any]]:
    """Return name of an input or language -> the reason that removes the most of its documents: `stage`, `reason` and
    `documents`."""
    found = {}
    for name, counts in removed.items():
        if +counts:
            (stage, reason), documents = min(counts.items(), key=lambda entry: (-entry[1], entry[0]))
            found[name] = {"stage": stage, "reason": reason, "documents": documents}
    return found


def report_unlabelled(
    stages: Sequence[Stage], counts: Sequence[StageCount], lines: Sequence[list[str]],
    parts: Sequence[Mapping[str, Any]], removed: Mapping[tuple[str, str], int],
) -> list[str]:  # fmt: skip
    """Add a line about documents without a label to the lines of the last `language` stage. Return the warning about
    them.

    parts    the records of the written parts, which count copies if `mix` repeats documents
    removed  stage and reason -> removed documents without a label; empty without `removed: text`
    """
    for stage, count, own in reversed([*zip(stages, counts, lines, strict=True)]):
        if isinstance(stage, Language):
            number = count.details.get(UNLABELLED, 0)
            written = sum(part.get("languages", {}).get(UNLABELLED, 0) for part in parts)
            kept = number - sum(removed.values()) if removed else min(number, written)
            own += [unlabelled_line(count.documents_in, number, kept, removed)] if number else []
            return unlabelled_warning(stage, count.name, count.documents_in, number)
    return []
