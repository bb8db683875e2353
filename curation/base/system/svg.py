# SPDX-License-Identifier: Apache-2.0
"""Histograms as SVG inside HTML for notebooks, without scripts and requests. Size and colours are as in `report.html`.
But in `report.html`, the height of a bar is the logarithm of its count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from curation.base.errors import counted, shown_number

WIDTH, TOP, BASE, HEIGHT = 320, 16, 98, 118  # pixels, as in `curation.results.report.page.charts`
KEPT, REMOVED = "#3a7cc4", "#d9621f"  # readable on light and dark backgrounds
LINE = 14  # height of a line of text
CLIPPED = 1.0  # height of a bin with few documents
GAP = 0.6  # between two bars


def svg_histogram(edges: Sequence[float], counts: Sequence[int], bound: float, side: str, label: str) -> str:
    """Return a histogram as `<svg>`, with bars of equal width, whose heights are proportional to counts.

    "log scale" below the axis means that each bin's edge is a multiple of the one before. A bin with few documents is a
    line.

    edges    edges of the bins, ascending: one more than there are bins
    counts   documents per bin
    bound    drawn as a line; bars beyond it have another colour. NaN (default): none
    side     "min" if documents above the bound are kept, "max" if those below it are
    label    text for screen readers
    """
    step, top = WIDTH / max(len(counts), 1), max(counts, default=0) or 1
    bound_x = _x_of(bound, edges, step)
    parts = []
    for number, count in enumerate(counts):
        if count:
            height = max((BASE - TOP) * count / top, CLIPPED)
            values = f"{shown_number(edges[number])} to {shown_number(edges[number + 1])}"
            title = f"<title>{values}: {counted(count, 'document')}</title>"
            for left, right, color in _pieces(number * step, (number + 1) * step - GAP, bound_x, side):
                parts.append(
                    f'<rect x="{left:.1f}" y="{BASE - height:.1f}" width="{right - left:.1f}" height="{height:.1f}" '
                    f'fill="{color}">{title}</rect>'
                )
    if not math.isnan(bound):
        parts.append(f'<path d="M{bound_x:.1f} {TOP - 2}V{BASE}" stroke="currentColor" stroke-dasharray="4 2"/>')
        parts.append(_text(bound_x, TOP - 5, shown_number(bound, 6)))
    parts.append(f'<path d="M0 {BASE + 0.5}H{WIDTH}" stroke="currentColor" stroke-width="0.8"/>')
    ends = sorted({0, len(edges) // 2, len(edges) - 1}) if len(edges) else []
    parts += [_text(number * step, HEIGHT - 6, shown_number(edges[number])) for number in ends]
    height = HEIGHT
    if grows(edges):
        height += LINE
        parts.append(_text(WIDTH, height - 6, "log scale"))
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    font = 'font-family="sans-serif" font-size="11" fill="currentColor"'
    return f'<svg {size} role="img" aria-label="{escape(label)}" {font}>{"".join(parts)}</svg>'


def grows(edges: Sequence[float]) -> bool:
    """Return whether the bins have equal widths on a logarithmic scale. The first bin may begin at 0."""
    return len(edges) > 3 and edges[1] > 0 and edges[-1] - edges[-2] > 2 * (edges[2] - edges[1])


def _x_of(value: float, edges: Sequence[float], step: float) -> float:
    """Return the x coordinate of a value, clipped to the drawing; 0 for NaN."""
    for number in range(len(edges) - 1):
        if value < edges[number + 1]:
            width = edges[number + 1] - edges[number]
            return step * (number + max((value - edges[number]) / width if width > 0 else 0.0, 0.0))
    return 0.0 if math.isnan(value) else step * (len(edges) - 1)


def _pieces(left: float, right: float, bound_x: float, side: str) -> list[tuple[float, float, str]]:
    """Divide a bar from `left` to `right` at the bound. Return (left, right, colour) of each piece."""
    colors = {"min": (REMOVED, KEPT), "max": (KEPT, REMOVED)}.get(side, (KEPT, KEPT))
    middle = min(max(bound_x, left), right)
    pieces = [(left, middle, colors[0]), (middle, right, colors[1])]
    return [piece for piece in pieces if piece[1] - piece[0] > 0.01]


def _text(x: float, y: float, text: str) -> str:
    anchor = "start" if x < WIDTH / 8 else "end" if x > WIDTH * 7 / 8 else "middle"
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{text}</text>'
