# SPDX-License-Identifier: Apache-2.0
"""Computes histograms from tallies in fixed bins. `charts.html` draws them, and `live.js` reads their scale from
`data-bins`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from curation.base.errors import counted
from curation.results.report.page.rendering import number
from curation.rules.tallies import SHARES, bins_of, start_of

WIDTH, HEIGHT, TOP, BASE = 320, 118, 16, 98  # size of the drawing; its bars are between TOP and BASE
LETTER, GAP = 6.2, 8.0  # width of a letter at the axis, and minimum distance of two numbers
MAX_STEPS = 6  # maximum steps of an axis of shares
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25)
TAIL = 0.001  # share of documents outside the drawn range at either side; they count in the first or last bar


class BinCounts(NamedTuple):
    """Documents per bin, from the first to the last bin that is drawn."""

    first: int
    share: bool
    values: list[int]
    zeros: bool

    def place(self, value: float) -> float:
        """Return the x coordinate of a value, clipped to the drawing."""
        at = int(bins_of(np.array([value]), self.share)[0])
        low, high = start_of(at, self.share), start_of(at + 1, self.share)
        inside = (value - low) / (high - low) if value < high and high > low else 0.0
        return WIDTH * min(max((at + inside - self.first) / len(self.values), 0.0), 1.0)

    def start(self, place: int) -> float:
        """Return the first value of a drawn bin, or the end of the last bin. After the bin of zeros there is a gap."""
        at = self.first + place
        return 0.0 if self.zeros and place == 0 else min(start_of(at, self.share), 1.0 if self.share else math.inf)


def drawn(tallies: Sequence[Mapping[str, Any]], bounds: Sequence[float] = ()) -> list[BinCounts]:
    """Return the counts of each tally, all over one range of bins. The range includes the bounds."""
    share = bool(tallies[0]["share"])
    zeros = not share and any(0 in tally["bins"] for tally in tallies)
    ranges = [_range(tally) for tally in tallies if tally["counts"]]
    ranges += [(at, at) for at in bins_of(np.array(bounds, np.float64), share).tolist()] if bounds else []
    if zeros:  # no value is between 0 and the smallest other value
        others = [min((at for at in tally["bins"] if at), default=0) for tally in tallies]
        ranges = [(max(low, min(filter(None, others), default=1)), max(high, 1)) for low, high in ranges]
    first, last = min((low for low, _ in ranges), default=0), max((high for _, high in ranges), default=0)
    if bounds:  # room on both sides of a bound
        first, last = max(first - 1, 0), last + 1
    if zeros:
        first = max(first - 2, 0)
    last = min(last, SHARES - 1) if share else last
    first = min(first, last)
    found = []
    for tally in tallies:
        values = [0] * (last - first + 1)
        for at, count in zip(tally["bins"], tally["counts"], strict=True):
            values[min(max(at, first), last) - first] += count
        found.append(BinCounts(first, share, values, zeros))
    return found


def _range(tally: Mapping[str, Any]) -> tuple[int, int]:
    counts = np.cumsum(tally["counts"])
    low = int(np.searchsorted(counts, TAIL * counts[-1], side="right"))
    high = int(np.searchsorted(counts, (1 - TAIL) * counts[-1], side="left"))
    return tally["bins"][low], tally["bins"][high]


class Bar(NamedTuple):
    """A bar of a histogram. `name` is the CSS class with its colour."""

    x: float
    width: float
    height: float
    name: str
    title: str


class Mark(NamedTuple):
    """A number at the axis: its x coordinate, text, and SVG anchor."""

    x: float
    text: str
    anchor: str


class HistogramChart(NamedTuple):
    """The data that `charts.html` draws: bars, or one outline per colour, with bounds and an axis."""

    scale: str
    bars: list[Bar]
    outlines: dict[str, str]
    bounds: list[Mark]
    axis: list[Mark]


def histogram(tally: Mapping[str, Any], small: bool = False) -> HistogramChart:
    """Return the histogram of a rule with its bounds. Documents beyond a bound have another colour. `small`: one
    outline per colour, in few bytes and without titles."""
    bounds = [tally[name] for name in ("min", "max") if name in tally]
    counts = drawn([tally], bounds)[0]
    top = math.log1p(max(counts.values, default=0)) or 1.0
    step, bars = WIDTH / len(counts.values), []
    gap = 0.0 if small else min(0.6, step / 5)
    left = counts.place(tally["min"]) if "min" in tally else 0.0
    right = counts.place(tally["max"]) if "max" in tally else WIDTH
    for index, count in enumerate(counts.values):
        if count:
            tall = (BASE - TOP) * math.log1p(count) / top
            x, end = index * step, (index + 1) * step
            title = "" if small else f"{_bin(counts, index)}: {counted(count, 'document')}"
            for start, stop, name in ((x, min(end, left), "removed"), (max(x, left), min(end, right), "kept"),
                                      (max(x, right), end, "removed")):  # fmt: skip
                if stop - start > 0.01:
                    bars.append(Bar(start, stop - start - gap, tall, name, title))
    marks = [Mark(x, number(bound), _anchor(x, WIDTH / 8)) for bound in bounds for x in [counts.place(bound)]]
    return HistogramChart(_scale(counts), [] if small else bars, _outlines(bars) if small else {}, marks, _axis(counts))


def pairs_of_bars(before: Mapping[str, Any], after: Mapping[str, Any], unit: str = "") -> HistogramChart:
    """Return two histograms over each other: pale bars for documents before, other bars for documents after."""
    both = drawn([before, after])
    top = max(max(counts.values, default=0) for counts in both) or 1
    bars = []
    for counts, name in zip(both, ("pale", "kept"), strict=True):
        step = WIDTH / len(counts.values)
        for index, count in enumerate(counts.values):
            if count:
                title = f"{_bin(counts, index, unit)}: {count:,} {'read' if name == 'pale' else 'kept'}"
                bars.append(Bar(index * step, step - min(0.6, step / 5), (BASE - TOP) * count / top, name, title))
    return HistogramChart(_scale(both[0]), bars, {}, [], _axis(both[0], unit))


def single(tally: Mapping[str, Any]) -> HistogramChart:
    """Return a histogram without bounds, linear in the number of documents."""
    return pairs_of_bars({"share": tally["share"], "bins": [], "counts": []}, tally)


def _bin(counts: BinCounts, place: int, unit: str = "") -> str:
    if counts.zeros and place == 0:
        return "0"
    low, high = counts.start(place), counts.start(place + 1)
    return f"{_value(low, unit)} to {_value(high, unit)}"


def _value(value: float, unit: str) -> str:
    if unit != "B":
        return number(value)
    power = min(int(math.log10(value) // 3), 4) if value >= 1 else 0
    return f"{number(float(f'{value / 1000**power:.3g}'))} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def _outlines(bars: Sequence[Bar]) -> dict[str, str]:
    """Return, for each colour, the corners of the outline of its bars. `bars` are from left to right."""
    points: dict[str, list[str]] = {}
    for bar in bars:
        left, right = (f"{x:.1f}".removesuffix(".0") for x in (bar.x, bar.x + bar.width))
        y, base, found = round(BASE - max(bar.height, 1.0)), f"{left},{BASE}", points.setdefault(bar.name, [])
        if found[-1:] == [base]:  # the bar before ends here
            found.pop()
        else:
            found.append(base)
        found += [f"{left},{y}", f"{right},{y}", f"{right},{BASE}"]
    return {name: " ".join(found) for name, found in points.items()}


def _scale(counts: BinCounts) -> str:
    return f"{counts.first} {len(counts.values)} {counts.share:d}"


def _axis(counts: BinCounts, unit: str = "") -> list[Mark]:
    """Return the numbers of the axis, from left to right, without overlaps."""
    low, high = (counts.start(place) for place in (0, len(counts.values)))
    values = _shares(low, high) if counts.share else _powers(counts, high)
    found: list[Mark] = []
    end = -GAP
    for value in values if len(values) > 1 else [low, high]:
        x, text = counts.place(value), _tick(value, unit)
        half = len(text) * LETTER / 2
        anchor = _anchor(x, half)
        left = {"start": x, "end": x - 2 * half}.get(anchor, x - half)
        if left >= end + GAP:
            found.append(Mark(x, text, anchor))
            end = left + 2 * half
    return found


def _anchor(x: float, half: float) -> str:
    """Return the anchor for a text at x, so that the text is inside the drawing."""
    return "start" if x < half else "end" if x > WIDTH - half else "middle"


def _shares(low: float, high: float) -> list[float]:
    step = next((step for step in STEPS if (high - low) / step <= MAX_STEPS), STEPS[-1])
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [round(number * step, 9) for number in numbers]


def _powers(counts: BinCounts, high: float) -> list[float]:
    """Return the powers of 10 in the drawn range; if they are few, also twice and five times each. 0 is included if it
    is drawn."""
    least = counts.start(2 if counts.zeros and len(counts.values) > 2 else 0)  # a gap follows the bin of 0
    low = max(least, start_of(1, False))
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(max(high, low))) + 1)
    for factors in ((1,), (1, 2, 5)):
        values = [float(f"{factor}e{power}") for power in powers for factor in factors]
        values = [value for value in values if least <= value <= high]
        if len(values) > 2:
            break
    return [0.0] * counts.zeros + values


def _tick(value: float, unit: str) -> str:
    if unit or value < 10_000:
        return _value(value, unit)
    power = min(int(math.log10(value) // 3), 4)
    return f"{value / 1000**power:g}{' kMGT'[power]}"
