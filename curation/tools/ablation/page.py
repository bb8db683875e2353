# SPDX-License-Identifier: Apache-2.0
"""Renders an ablation as an HTML page in the style of `report.html`, without scripts and external files."""

from __future__ import annotations

from typing import Any

from curation.results.report.page.rendering import rendered
from curation.tools.ablation.experiment import Budgets, plan_lines

WIDTH, HEIGHT, EDGE = 640, 196, 32  # of the drawing of the curve, without its free edges


def curve_of(budgets: Budgets) -> dict[str, Any]:
    """Return the points of placebos and of curated text over the size of the training text, and the fitted curve. Each
    size is twice the one before."""
    curated = [base * (1 + row.value) for base, row in zip(budgets.bits, budgets.rows, strict=True)]
    low, high = min(*budgets.bits, *curated), max(*budgets.bits, *curated)
    first, last = budgets.sizes[0], budgets.sizes[-1]

    def points(bits: list[float]) -> list[tuple[float, float]]:
        across, down = WIDTH / (len(bits) - 1), HEIGHT / ((high - low) or 1)
        return [(round(EDGE + k * across, 1), round(EDGE + (high - y) * down, 1)) for k, y in enumerate(bits)]

    sizes = [first * (last / first) ** (k / 16) for k in range(17)]  # the page cuts longer attributes
    fitted = points([budgets.curve.at(size) for size in sizes])
    raw = points(budgets.bits)
    return {
        "raw": raw, "curated": points(curated), "fitted": " ".join("{},{}".format(*point) for point in fitted),
        "sizes": [(f"{size / 1e6:.2f} MB", x) for size, (x, _) in zip(budgets.sizes, raw, strict=True)],
        "bits": (f"{high:.3f}", f"{low:.3f}"), "width": WIDTH + 2 * EDGE, "height": HEIGHT + 2 * EDGE,
    }  # fmt: skip


def worth_line(budgets: Budgets) -> str:
    """Return what curated text is worth, as a sentence."""
    factor, low, high = budgets.worth[1:]
    size = f"{budgets.worth.size / 1e6:.2f} MB"
    if factor is None or low is None or high is None:
        return f"At {size}, the worth of curated text in raw text is outside of the sizes that were measured."
    return f"At {size}, curated text is worth {factor:.2f} [{low:.2f}, {high:.2f}] times as much raw text."


def ablation_page(found: Any) -> str:
    """Return an `Ablation` as a complete page of HTML."""
    content = {
        "found": found, "plan": found.plan, "plan_lines": plan_lines(found.plan),
        "curve": curve_of(found.budgets), "worth": worth_line(found.budgets),
    }  # fmt: skip
    return rendered("ablation.html", content)
