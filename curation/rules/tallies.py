# SPDX-License-Identifier: Apache-2.0
"""Counts documents by value in fixed bins. This is cheap while a run measures, and the sum over slices does not depend
on how the input is sliced."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from curation.rules.grammar import Rule

CELLS = 1 << 18  # values of all rules that are counted at once: 2 MB in each of a few arrays
SHARES = 100  # bins of equal width from 0 to 1
STEPS_BITS = 2  # 2**2 bins for each factor of two
SHIFT = 52 - STEPS_BITS  # bits of a float64 that a bin ignores
LOWEST = (1023 - 30) << STEPS_BITS  # bin of 2**-30, which also has all smaller values
SIZE = ((1023 + 63) << STEPS_BITS) - LOWEST + 2  # number of bins: up to 2**63, and bin 0 for the value 0


class Tally(msgspec.Struct, kw_only=True):
    """Numbers of documents by value.

    share         true: bin k has the values from k % to k + 1 %, and the last bin all values from 100 % on. False: bin
                  0 has the value 0, and each factor of two has four bins
    below, above  number of documents below the lower bound, and above the upper bound
    bins, counts  the bins with documents, ascending, and their numbers of documents
    """

    share: bool = False
    below: int = 0
    above: int = 0
    bins: list[int] = []
    counts: list[int] = []

    def add(self, other: Tally) -> None:
        """Add the counts of other documents."""
        total = dict(zip(self.bins, self.counts, strict=True))
        for number, count in zip(other.bins, other.counts, strict=True):
            total[number] = total.get(number, 0) + count
        self.bins, self.counts = sorted(total), [total[number] for number in sorted(total)]
        self.below, self.above = self.below + other.below, self.above + other.above


def bins_of(values: np.ndarray, share: bool = False) -> np.ndarray:
    """Return the bin of each value (at least 0), int64."""
    values = values.astype(np.float64, copy=False)
    if share:
        return np.minimum((values * SHARES + 1e-9).astype(np.int64), SHARES)
    codes = (values.view(np.int64) >> SHIFT) - LOWEST + 1
    return np.where(values > 0, np.clip(codes, 1, SIZE - 1), 0)


def start_of(number: int, share: bool) -> float:
    """Return the first value of a bin."""
    if share:
        return number / SHARES
    return 0.0 if number <= 0 else float(np.int64((number - 1 + LOWEST) << SHIFT).view(np.float64))


def tally_of(values: np.ndarray) -> Tally:
    """Return the tally of values; no bounds are counted."""
    counts = np.bincount(bins_of(values, False), minlength=SIZE)
    bins = np.flatnonzero(counts)
    return Tally(share=False, bins=bins.tolist(), counts=counts[bins].tolist())


class Tallies:
    """One tally per rule on measures; each frame adds its documents. In the arrays, rules on shares come first."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.order = sorted(range(len(rules)), key=lambda number: not rules[number].is_share)
        self.rules = [rules[number] for number in self.order]
        self.shares = sum(rule.is_share for rule in rules)
        self.starts = SIZE * np.arange(len(rules))[:, None]
        self.counts = np.zeros(len(rules) * SIZE, np.int64)
        self.beyond = np.zeros((2, len(rules)), np.int64)
        bounds = np.array([rule.bounds for rule in self.rules])
        self.sides = [(np.flatnonzero(np.isfinite(side)), side[np.isfinite(side)][:, None]) for side in bounds.T]

    def add(self, measures: Mapping[str, np.ndarray]) -> None:
        """Add documents. `measures` is name -> int64, one per document, for every measure in the rules."""
        documents, step = len(next(iter(measures.values()))), max(CELLS // max(len(self.rules), 1), 1)
        for start in range(0, documents, step):
            self._add_block({name: values[start : start + step] for name, values in measures.items()})

    def _add_block(self, measures: Mapping[str, np.ndarray]) -> None:
        floats = {name: values.astype(np.float64) for name, values in measures.items()}
        below = {rule.ratio[1]: np.maximum(floats[rule.ratio[1]], 1.0) for rule in self.rules if rule.ratio}
        values = np.empty((len(self.rules), len(next(iter(floats.values())))))
        for row, rule in zip(values, self.rules, strict=True):
            if rule.ratio:
                np.divide(floats[rule.ratio[0]], below[rule.ratio[1]], out=row)
            elif rule.measure:
                row[:] = floats[rule.measure]
            else:
                row[:] = rule.values(measures)
        bins = np.concatenate([bins_of(values[: self.shares], True), bins_of(values[self.shares :])])
        bins += self.starts
        self.counts += np.bincount(bins.ravel(), minlength=len(self.counts))
        for total, (rows, bounds), compare in zip(self.beyond, self.sides, (np.less, np.greater), strict=True):
            total[rows] += np.count_nonzero(compare(values[rows], bounds), axis=1)

    def result(self) -> list[Tally]:
        """Return the tallies, in the order of the rules."""
        tallies = [Tally()] * len(self.rules)
        rows = zip(self.order, self.counts.reshape(-1, SIZE), *self.beyond.tolist(), strict=True)
        for index, (number, row, below, above) in enumerate(rows):
            bins = np.flatnonzero(row)
            counts = row[bins].tolist()
            share = index < self.shares
            tallies[number] = Tally(share=share, below=below, above=above, bins=bins.tolist(), counts=counts)
        return tallies


def as_report(rule: Rule, tally: Tally) -> dict[str, object]:
    """Return the entry of a rule in `report.json`: its bounds, the documents beyond them, and its tally."""
    bounds = {name: bound for name, bound in zip(("min", "max"), rule.bounds, strict=True) if math.isfinite(bound)}
    entry = {"reason": rule.name, "measure": " / ".join(rule.measures), **bounds}
    return entry | dict(msgspec.to_builtins(tally))
