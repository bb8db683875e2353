# SPDX-License-Identifier: Apache-2.0
"""Renders an ablation as an HTML page in the style of `report.html`, without scripts and external files."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any, NamedTuple

from curation.results.report.page.rendering import rendered
from curation.tools.ablation.experiment import Budgets, Row, plan_lines

WIDTH = 640  # of a drawing
EDGE = 0.05  # of the width, free at both sides
CURVE_HEIGHT, CURVE_TOP = 220, 12


class Line(NamedTuple):
    """A row of a forest plot: x coordinates of its interval, its value and its placebos."""

    row: Row
    text: str
    low: float
    high: float
    value: float
    placebos: list[float]


class Forest(NamedTuple):
    """A forest plot: its rows, the x coordinates of no difference, and those of the smallest effect of interest."""

    lines: list[Line]
    zero: float
    bounds: tuple[float, float]
    most: float


def forest(rows: Sequence[Row], smallest: float) -> Forest:
    """Return the coordinates of rows. 0 is in the middle; the plot has room for all intervals."""
    most = max(smallest * 2, *(abs(end) for row in rows for end in (row.low, row.high, *row.placebos)))

    def x(value: float) -> float:
        return round(WIDTH * (0.5 + (0.5 - EDGE) * value / most), 1)

    lines = [
        Line(row, row.text, x(row.low), x(row.high), x(row.value), [x(one) for one in row.placebos]) for row in rows
    ]
    return Forest(lines, x(0), (x(-smallest), x(smallest)), most)


def curve_of(budgets: Budgets) -> dict[str, Any]:
    """Return the points of placebos and of curated text over the size of the training text, and the fitted curve."""
    curated = [base * (1 + row.value) for base, row in zip(budgets.bits, budgets.rows, strict=True)]
    low, high = min(*budgets.bits, *curated), max(*budgets.bits, *curated)
    first, last = budgets.sizes[0], budgets.sizes[-1]
    steps = [first * (last / first) ** (k / 16) for k in range(17)]  # the page cuts longer attributes

    def point(size: float, bits: float) -> tuple[float, float]:
        across = log(size / first) / log(last / first)
        down = (high - bits) / (high - low) if high > low else 0.5
        return (
            round(WIDTH * (EDGE + (1 - 2 * EDGE) * across), 1),
            round(CURVE_TOP + (CURVE_HEIGHT - 2 * CURVE_TOP) * down, 1),
        )

    return {
        "raw": [point(*pair) for pair in zip(budgets.sizes, budgets.bits, strict=True)],
        "curated": [point(*pair) for pair in zip(budgets.sizes, curated, strict=True)],
        "fitted": " ".join("{},{}".format(*point(size, budgets.curve.at(size))) for size in steps),
        "sizes": [(f"{size / 1e6:.2f} MB", point(size, low)[0]) for size in budgets.sizes],
        "bits": (f"{high:.3f}", f"{low:.3f}"),
    }


def worth_line(budgets: Budgets) -> str:
    """Return what curated text is worth, as a sentence."""
    factor, low, high = budgets.worth[1:]
    size = f"{budgets.worth.size / 1e6:.2f} MB"
    if factor is None or low is None or high is None:
        return f"At {size}, the worth of curated text in raw text is outside of the sizes that were measured."
    return f"At {size}, curated text is worth {factor:.2f} [{low:.2f}, {high:.2f}] times as much raw text."


def ablation_page(found: Any) -> str:
    """Return an `Ablation` as a complete page of HTML."""
    smallest = found.plan["smallest_effect"]
    arms = [found.curated, found.everything, found.control]
    content = {
        "found": found, "plan": found.plan, "plan_lines": plan_lines(found.plan),
        "detectable": f"{found.detectable:.2%}", "smallest": f"{smallest:.1%}",
        "arms": forest(arms, smallest), "sources": forest(found.sources, smallest) if found.sources else None,
        "kinds": forest(found.kinds, smallest), "stages": forest(found.stages, smallest) if found.stages else None,
        "models": forest(found.models, smallest) if found.models else None, "width": WIDTH, "height": CURVE_HEIGHT,
    }  # fmt: skip
    if found.budgets is not None:
        content |= {
            "curve": curve_of(found.budgets), "worth": worth_line(found.budgets), "trend": found.budgets.trend.text,
        }  # fmt: skip
    return rendered("ablation.html", content)
