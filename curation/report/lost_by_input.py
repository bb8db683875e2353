# SPDX-License-Identifier: Apache-2.0
"""The removed documents of each input and language, counted by stage and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from curation.phases.ledger import SliceTotals
    from curation.phases.removed import RemovedRows
    from curation.planning.stored_plan import Plan
from curation.planning.cuts import Cuts, add_cut, warn_of_cuts
from curation.planning.lost_groups import Group, Reason
from curation.stages import Language, Stage
from curation.stages.outcome import StageCount
from curation.stages.rows.language import UNLABELLED, unlabelled_line, unlabelled_warning


class LostByInput:
    """Counts the removed documents of each input, and of each language in `removed/`, by stage and reason; and the
    bytes that stages cut."""

    def __init__(self) -> None:
        self.removed: dict[str, Counter[Reason]] = {}
        self.of_languages: dict[str, Counter[Reason]] = {}
        self.cuts: Cuts = {}

    def add_rules(self, totals: SliceTotals) -> None:
        """Add what the row stages of a segment removed."""
        for input_slice, record in zip(totals.slices, totals.records, strict=True):
            for stage in record.stages:
                reasons = {(stage.name, reason): number for reason, number in stage.reasons.items()}
                self.removed.setdefault(input_slice.source, Counter()).update(reasons)
                add_cut(self.cuts, stage.name, input_slice.source, stage.cut_bytes, stage.kept_bytes_before)

    def add_duplicates(self, plan: Plan, removed: Sequence[RemovedRows]) -> None:
        """Add what corpus stages removed."""
        stage_names = plan.recipe.stage_names
        for rows in removed:
            ends = np.array([bounds for _, *bounds in rows.partitions.inputs], rows.row.dtype).reshape(-1, 2)
            counts = np.diff(np.searchsorted(rows.row, ends), axis=1)[:, 0].tolist()
            key = stage_names[rows.stage], rows.reason
            for (name, _, _), count in zip(rows.partitions.inputs, counts, strict=True):
                self.removed.setdefault(name, Counter())[key] += count

    def warn_of_cuts(self, stages: Sequence[Stage], counts: Sequence[StageCount]) -> list[str]:
        """Return the warnings about stages that cut most of a text. The cuts of corpus stages are those of all inputs.

        `counts` are those of all stages."""
        for stage, count in zip(stages, counts, strict=True):
            if stage.compares:
                add_cut(self.cuts, count.name, "", count.cut_bytes, count.kept_bytes_before)
        names = [count.name for count in counts]
        return [*warn_of_cuts(self.cuts, dict(zip(names, stages, strict=True)))]

    def add_languages(self, counts: Iterable[tuple[str, str, str, int]]) -> None:
        """Add counts of `curation.phases.removed.lost_by_language`."""
        for name, stage, reason, documents in counts:
            self.of_languages.setdefault(name, Counter())[stage, reason] += documents

    def groups(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Group]:
        """Return the documents of each input. `parts` are the records of the written parts."""
        groups = {name: Group(removed=Counter(removed)) for name, removed in self.removed.items()}
        for part in parts:
            if "source" in part and not part["copy"]:
                groups.setdefault(part["source"], Group()).kept += part["documents"]
        return groups


def largest(removed: Mapping[str, Counter[Reason]]) -> dict[str, dict[str, Any]]:
    """Return the reason that removes most documents of each name: `stage`, `reason` and `documents`."""
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
    """Add the line on documents without a label to those of the last `language` stage, and return its warning.

    parts    the records of the written parts; with copies, if `mix` repeats documents
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
