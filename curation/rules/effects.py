# SPDX-License-Identifier: Apache-2.0
"""The effects of rules on measured documents: percentiles, histograms, and the documents that changed bounds would
remove.

Everything is computed from measures, so no text is read. Each array in use takes 8 bytes of memory per document, and
one array takes 1 byte.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from curation.base.errors import counted, shown_number
from curation.base.system.html_table import html_table
from curation.base.system.svg import svg_histogram
from curation.rules.grammar import Rule
from curation.rules.group_tallies import SHOWN_GROUPS, is_measured
from curation.rules.groups import groups_in, of_all_documents
from curation.rules.tallies import Tally, bins_of, start_of

RANKS = (1, 5, 25, 50, 75, 95, 99, 99.9)  # in percent
MOVES = (-0.25, -0.10, 0.0, 0.10, 0.25)  # relative changes of a bound
BINS = 24
MAX_CHARTS = 30  # charts in a notebook, of 4 kB each
# Percentiles at which a histogram begins and ends, so that single documents do not stretch it
SHOWN_RANKS = (0.1, 99.9)
MIN_LOG_SPAN = 50.0  # from this ratio of the last to the first value on, bins have equal widths on a logarithmic scale


class Histogram(NamedTuple):
    """Number of documents per bin of values.

    edges   float64, ascending: the edges of the bins, one more than there are bins
    counts  int64, one per bin; values outside the edges are counted in the first or the last bin
    """

    edges: np.ndarray
    counts: np.ndarray

    def bin_of(self, value: float) -> int:
        """Return the number of the bin of a value; the first or the last bin for a value outside the edges."""
        return int(np.clip(np.searchsorted(self.edges, value, "right") - 1, 0, len(self.counts) - 1))

    def __repr__(self) -> str:
        span = " from {} to {}".format(*map(shown_number, self.edges[[0, -1]])) if len(self.counts) else ""
        return f"<histogram: {counted(int(self.counts.sum()), 'document')} in {counted(len(self.counts), 'bin')}{span}>"

    def _repr_html_(self) -> str:
        rows = zip(self.edges[:-1].tolist(), self.edges[1:].tolist(), self.counts.tolist(), strict=True)
        return html_table(repr(self)[1:-1], ("from", "to", "documents"), rows, charts=self.svg())

    def svg(self, bound: float = math.nan, side: str = "", label: str = "histogram") -> str:
        """Return the histogram as SVG; see `curation.base.system.svg.svg_histogram`."""
        return svg_histogram(self.edges.tolist(), self.counts.tolist(), bound, side, label)


class Effect(NamedTuple):
    """The effect of one bound of a rule on documents.

    rule         the rule
    side         "min" or "max"
    bound        its value
    percentiles  for each of RANKS: the smallest value of the measure or ratio that at least this percentage of the
                 documents does not exceed; empty without documents
    removed      for each of MOVES: number of documents beyond the bound if it were moved by this share
    alone        number of documents beyond the bound that break no other rule
    histogram    histogram of the measure or ratio
    """

    rule: Rule
    side: str
    bound: float
    percentiles: tuple[float, ...]
    removed: tuple[int, ...]
    alone: int
    histogram: Histogram

    @property
    def removed_now(self) -> int:
        """Number of documents beyond the present bound."""
        return self.removed[MOVES.index(0.0)]

    def describe(self) -> str:
        """Return the condition that kept documents satisfy, as in `words / lines <= 3.5`."""
        return f"{' / '.join(self.rule.measures)} {'>=' if self.side == 'min' else '<='} {shown_number(self.bound, 6)}"

    def __repr__(self) -> str:
        documents = counted(self.removed_now, "document")
        return f"<effect of {self.describe()}: {documents} removed, {self.alone:,} by this bound only>"

    def _repr_html_(self) -> str:
        rows: list[tuple[str, float]] = [*zip(map(_move_name, MOVES), self.removed, strict=True)]
        rows.append(("this only", self.alone))
        rows += [(f"p{rank:g}", value) for rank, value in zip(RANKS, self.percentiles, strict=False)]
        return html_table(repr(self)[1:-1], (), rows, charts=self.svg())

    def svg(self) -> str:
        """Return the histogram with the bound as SVG."""
        return self.histogram.svg(self.bound, self.side, self.describe())


class Effects(NamedTuple):
    """The effects of all rules on measures.

    effects    one per bound, in the order of the rules; `pandas.DataFrame(effects.effects)` makes a frame of them
    documents  number of documents
    removed    number of documents that break at least one of the rules
    skipped    names of rules without effects: those on columns or texts, and `any`
    """

    effects: tuple[Effect, ...]
    documents: int
    removed: int
    skipped: tuple[str, ...]

    def __repr__(self) -> str:
        bounds = counted(len(self.effects), "bound")
        return f"<effects of {bounds}: {self.removed:,} of {counted(self.documents, 'document')} removed>"

    def _repr_html_(self) -> str:
        rows = [(effect.describe(), effect.rule.name, *effect.removed, effect.alone) for effect in self.effects]
        header = ("bound", "reason", *map(_move_name, MOVES), "this only")
        figures = "".join(map(_figure, self.effects[:MAX_CHARTS]))
        charts = f'<div style="display: flex; flex-wrap: wrap; gap: 1em">{figures}</div>' if figures else ""
        return html_table(repr(self)[1:-1], header, rows, charts=charts)


def _figure(effect: Effect) -> str:
    caption = f"{effect.describe()}: removes {effect.removed_now:,}, {effect.alone:,} by this bound only"
    return f'<figure style="margin: 0"><figcaption>{escape(caption)}</figcaption>{effect.svg()}</figure>'


def _move_name(move: float) -> str:
    return f"{move:+.0%}" if move else "removed"


def rule_effects(rules: Sequence[Rule], measures: Mapping[str, np.ndarray], rows: int) -> Effects:
    """Return the effects of rules on `rows` documents.

    measures   name -> int64, one per document, for every measure in the rules. Each is accessed twice per rule, so the
               mapping may load them from files
    """
    judged = of_all_documents(rules)
    broken = np.zeros(rows, np.uint8)  # number of rules that a document breaks; 2 means several
    for rule in judged:
        values = rule.values(measures)
        np.minimum(broken + _outside(rule, values), 2, out=broken)
    effects: list[Effect] = []
    for rule in judged:
        effects += _effects(rule, rule.values(measures), broken == 1)
    skipped = tuple(rule.name for rule in rules if not of_all_documents([rule]))
    return Effects(tuple(effects), rows, int(np.count_nonzero(broken)), skipped)


class GroupEffects(NamedTuple):
    """The effects of rules on a group of documents.

    column     the column whose values have different rules
    group      the values of the group
    documents  number of documents
    effects    effects of the group's rules on measures; only for the SHOWN_GROUPS largest groups of a column, else None
    """

    column: str
    group: str
    documents: int
    effects: Effects | None


def group_effects(
    rules: Sequence[Rule], measures: Mapping[str, np.ndarray], column_of: Callable[[str], pa.ChunkedArray]
) -> list[GroupEffects]:
    """Return what the rules remove from each group of documents with bounds of its own, such as a language.

    Groups are listed per column, the largest first.

    measures   as in `rule_effects`
    column_of  function that returns a column by name, with one value per document

    Raises RecipeError for values that no group lists.
    """
    found: list[GroupEffects] = []
    for groups in groups_in(rules):
        numbers = groups.numbers_of({groups.column: column_of(groups.column)})
        present, counts = np.unique(numbers, return_counts=True)
        for place, k in enumerate(np.argsort(-counts, kind="stable").tolist()):
            number, effects = int(present[k]), None
            if place < SHOWN_GROUPS:
                rows = np.flatnonzero(numbers == number)
                own = [rule.of_group(number) for rule in rules if is_measured(rule, groups)]
                effects = rule_effects([rule for rule in own if rule], _Rows(measures, rows), len(rows))
            found.append(GroupEffects(groups.column, groups.name(number), int(counts[k]), effects))
    return found


class _Rows(Mapping[str, np.ndarray]):
    """Measures of some of the documents."""

    def __init__(self, measures: Mapping[str, np.ndarray], rows: np.ndarray) -> None:
        self.measures, self.rows = measures, rows

    def __getitem__(self, name: str) -> np.ndarray:
        return self.measures[name][self.rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self.measures)

    def __len__(self) -> int:
        return len(self.measures)


def _outside(rule: Rule, values: np.ndarray) -> np.ndarray:
    low, high = rule.bounds
    return (values < low) | (values > high)


def _effects(rule: Rule, values: np.ndarray, breaks_one: np.ndarray) -> Iterator[Effect]:
    """Yield the effect of each bound of a rule. `breaks_one` (bool) marks documents that break exactly one rule."""
    ordered = np.sort(values)
    percentiles = _percentiles(ordered, RANKS)
    for side, bound, beyond in zip(("min", "max"), rule.bounds, (np.less, np.greater), strict=True):
        if math.isfinite(bound):
            yield Effect(
                rule=rule,
                side=side,
                bound=bound,
                percentiles=percentiles,
                removed=tuple(_count_beyond(ordered, side, bound * (1 + move)) for move in MOVES),
                alone=int(np.count_nonzero(beyond(values, bound) & breaks_one)),
                histogram=_histogram(ordered, bound),
            )


def histogram_of(tally: Tally, bound: float) -> Histogram:
    """Return a histogram from a tally, with at most BINS bins, in which the bound is also visible."""
    place = int(bins_of(np.array([bound]), tally.share)[0])
    first, last = min([place, *tally.bins]), max([place, *tally.bins])
    width = -(-(last - first + 1) // BINS)
    bins = -(-(last - first + 1) // width)
    counts = np.bincount((np.array(tally.bins, np.int64) - first) // width, tally.counts, bins).astype(np.int64)
    return Histogram(np.array([start_of(first + width * k, tally.share) for k in range(bins + 1)]), counts)


def _percentiles(ordered: np.ndarray, ranks: Sequence[float]) -> tuple[float, ...]:
    if not len(ordered):
        return ()
    places = [max(math.ceil(len(ordered) * rank / 100) - 1, 0) for rank in ranks]
    return tuple(ordered[places].tolist())


def _count_beyond(ordered: np.ndarray, side: str, bound: float) -> int:
    if side == "min":
        return int(np.searchsorted(ordered, bound, "left"))
    return len(ordered) - int(np.searchsorted(ordered, bound, "right"))


def _histogram(ordered: np.ndarray, bound: float) -> Histogram:
    """Return a histogram in which the bound is also visible. Bins have equal widths on a linear or logarithmic
    scale."""
    low, high = _percentiles(ordered, SHOWN_RANKS) or (bound, bound)
    low, high = min(low, bound), max(high, bound)
    if high <= low:
        high = low + 1
    smallest = max(low, 1.0)
    if high / smallest >= MIN_LOG_SPAN:
        edges = np.geomspace(smallest, high, BINS + 1)
        edges[0] = low
    else:
        edges = np.linspace(low, high, BINS + 1)
    ends = np.searchsorted(ordered, edges[1:-1], "left")
    return Histogram(edges, np.diff(np.concatenate([[0], ends, [len(ordered)]])))
