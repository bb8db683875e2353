# SPDX-License-Identifier: Apache-2.0
"""Counts for each group that rules distinguish: its documents, the documents that each rule removes, and the documents
in the bins of `curation.rules.tallies`.

All counts of all groups are in one sparse array, which has only the counts above 0. So each rule of a group takes as
many numbers as it has bins with documents. Two million documents of 1,929 languages with the rules of `fineweb2` have
1.1 million counts, 12 MB in a record. The sum over slices does not depend on how the input is sliced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from curation.rules.grammar import Rule
from curation.rules.groups import GroupedRule, Groups, groups_in
from curation.rules.tallies import SIZE, Tally, as_report, bins_of

BELOW, ABOVE = SIZE, SIZE + 1  # codes after those of bins
BLOCK_ROWS = 1 << 16
SHOWN_GROUPS = 8  # number of groups of a column whose histograms are shown: those with the most documents


class GroupCounts(msgspec.Struct, kw_only=True):
    """The counts above 0. `codes` are codes of `GroupTallies`, ascending."""

    codes: list[int] = []
    counts: list[int] = []

    def add(self, other: GroupCounts) -> None:
        """Add the counts of other documents."""
        codes, counts = (np.array(own, np.int64) for own in (self.codes + other.codes, self.counts + other.counts))
        codes, counts = _summed(codes, counts)
        self.codes, self.counts = codes.tolist(), counts.tolist()


class GroupTallies:
    """Counts for the groups of one column. Each frame adds its documents to the counts.

    groups  the groups
    rules   all rules of the stage, in the order of the reasons of its verdict

    A group has `width` codes: one for its documents, and one per rule for the documents that the rule removes. Each
    rule on measures also has codes for its bins, and for documents BELOW and ABOVE the bounds of the group.
    """

    def __init__(self, groups: Groups, rules: Sequence[Rule]) -> None:
        self.groups, self.rules = groups, rules
        self.measured = [rule for rule in rules if is_measured(rule, groups)]
        self.shares = [rule.is_share for rule in self.measured]
        self.starts = [1 + len(rules) + number * (SIZE + 2) for number in range(len(self.measured) + 1)]
        self.width = self.starts[-1]
        self.codes, self.counts = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def add(self, numbers: np.ndarray, measures: Mapping[str, np.ndarray], reason: np.ndarray) -> None:
        """Add documents.

        numbers   the group of each document
        measures  name -> int64, one per document, for every measure in the rules
        reason    the rule that removes each document, -1 for kept documents
        """
        for start in range(0, len(numbers), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            cut = {name: values[block] for name, values in measures.items()}
            found, counts = np.unique(self._codes(numbers[block], cut, reason[block]), return_counts=True)
            self.codes, self.counts = _summed(
                np.concatenate([self.codes, found]), np.concatenate([self.counts, counts])
            )

    def _codes(self, numbers: np.ndarray, measures: Mapping[str, np.ndarray], reason: np.ndarray) -> np.ndarray:
        first = numbers.astype(np.int64) * self.width
        gone = np.flatnonzero(reason >= 0)
        codes = [first, first[gone] + 1 + reason[gone]]
        for rule, share, start in zip(self.measured, self.shares, self.starts, strict=False):
            values, place = rule.values(measures), first + start
            bounds: tuple[float, float] | np.ndarray = rule.bounds
            if isinstance(rule, GroupedRule):
                own = rule.member[numbers]
                values, place = values[own], place[own]
                bounds = rule.bounds_of(numbers[own])
            below, above = place[values < bounds[0]], place[values > bounds[1]]
            codes += [place + bins_of(values, share), below + BELOW, above + ABOVE]
        return np.concatenate(codes)

    def result(self) -> GroupCounts:
        """Return the counts of all added documents."""
        return GroupCounts(codes=self.codes.tolist(), counts=self.counts.tolist())

    def as_report(self, found: GroupCounts) -> dict[str, Any]:
        """Return the entry of the column in `report.json`: each group with its documents and reasons, the largest group
        first. The first SHOWN_GROUPS also have their bounds and values."""
        parts = self._parts(found)
        entries = [
            {"group": self.groups.name(number), "documents": int(counts[0]), "reasons": self._reasons(codes, counts)}
            for number, codes, counts in parts
        ]
        for entry, part in zip(entries[:SHOWN_GROUPS], parts, strict=False):
            entry["rules"] = self._values(*part)
        return {"column": self.groups.column, "groups": entries}

    def largest(self, found: GroupCounts) -> list[int]:
        """Return the numbers of the SHOWN_GROUPS largest groups, in the order of the report."""
        return [number for number, *_ in self._parts(found)[:SHOWN_GROUPS]]

    def _parts(self, found: GroupCounts) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """Return (number, codes from 0 within the group, their counts) for each group, the largest group first."""
        codes, counts = np.array(found.codes, np.int64), np.array(found.counts, np.int64)
        numbers, edges = np.unique(codes // self.width, return_index=True)
        cuts = zip(numbers.tolist(), edges.tolist(), [*edges.tolist(), len(codes)][1:], strict=True)
        parts = [(number, codes[a:b] - number * self.width, counts[a:b]) for number, a, b in cuts]
        return sorted(parts, key=lambda part: (-part[2][0], part[0]))

    def _reasons(self, codes: np.ndarray, counts: np.ndarray) -> dict[str, int]:
        reasons: dict[str, int] = {}
        gone = slice(1, int(np.searchsorted(codes, self.starts[0])))
        for code, count in zip(codes[gone].tolist(), counts[gone].tolist(), strict=True):
            name = self.rules[code - 1].name
            reasons[name] = reasons.get(name, 0) + count
        return reasons

    def _values(self, group: int, codes: np.ndarray, counts: np.ndarray) -> list[dict[str, object]]:
        entries = []
        edges = np.searchsorted(codes, self.starts).tolist()
        for number, rule in enumerate(self.measured):
            if (own := rule.of_group(group)) is not None:
                part, start = slice(*edges[number : number + 2]), self.starts[number]
                found = dict(zip((codes[part] - start).tolist(), counts[part].tolist(), strict=True))
                tally = Tally(share=self.shares[number], below=found.pop(BELOW, 0), above=found.pop(ABOVE, 0))
                tally.bins, tally.counts = [*found], [*found.values()]
                entries.append(as_report(own, tally))
        return entries


def tallies_of_groups(rules: Sequence[Rule]) -> list[GroupTallies]:
    """Return the tallies of a stage with these rules, one per result of `groups_in`."""
    return [GroupTallies(groups, rules) for groups in groups_in(rules)]


def is_measured(rule: Rule, groups: Groups) -> bool:
    """Return whether a rule bounds a measure or ratio, for all documents or for these groups."""
    return rule.is_on_measures and (not isinstance(rule, GroupedRule) or rule.groups is groups)


def _summed(codes: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct codes, ascending, and the sum of the counts of each code. `codes` is the concatenation of two
    ascending arrays."""
    order = np.argsort(codes, kind="stable")  # merges the two
    codes, counts = codes[order], counts[order]
    first = np.flatnonzero(np.diff(codes, prepend=-1))
    return codes[first], np.add.reduceat(counts, first) if len(first) else counts
