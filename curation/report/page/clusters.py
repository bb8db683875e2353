# SPDX-License-Identifier: Apache-2.0
"""The map of clusters: a mark per document, whose form and colour are those of its cluster, and typical words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from curation.errors import counted
from curation.report.page.parts import fit, row, shown, table

WIDTH, HEIGHT, EDGE, RADIUS = 640, 400, 12, 5
MAP_BYTES, TABLE_BYTES = 220_000, 40_000
OTHERS = 8  # the mark of all clusters without one of their own


def _ring(corners: int, turn: float, inner: float = 1.0) -> list[tuple[float, float]]:
    """Return the corners of a polygon around (0, 0); every second one has the radius `inner`."""
    angles = (2 * math.pi * (k + turn) / corners for k in range(corners))
    return [
        (math.cos(angle) * (inner if k % 2 else 1.0), math.sin(angle) * (inner if k % 2 else 1.0))
        for k, angle in enumerate(angles)
    ]


MARKS = [
    _ring(10, 0), _ring(4, 0.5), _ring(3, 0.25), _ring(4, 0), _ring(3, 0.75), _ring(8, 0.25, 0.4), _ring(12, 0, 0.45),
    _ring(6, 0.5, 0.35), _ring(4, 0),
]  # fmt: skip


def clusters(content: dict[str, Any]) -> str:
    """Return the map of each stage with clusters, and their typical words; "" without any."""
    return "".join(map(_map, content.get("texts", {}).get("clusters", [])[:1]))


def _map(found: dict[str, Any]) -> str:
    names = [entry["name"] for entry in found["clusters"]]
    points = found["points"]
    marks = fit(_points(points, names), "document", len(points), MAP_BYTES)
    drawn, _, more = marks.partition('<p class="quiet">')
    first, second = (f"{share:.0%}" for share in found["shares"])
    label = f"{counted(len(points), 'document')} on two principal components of their vectors"
    svg = f'<svg class="chart map" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{drawn}</svg>\n'
    rows = (
        row((f"{_key(index)} {shown(entry['name'])}", f"{entry['documents']:,}", shown(", ".join(entry["words"]))))
        for index, entry in enumerate(found["clusters"][:OTHERS])
    )
    inner = fit(rows, "cluster", len(found["clusters"]), TABLE_BYTES)
    body, _, rest = inner.rpartition("</tr>\n")
    left = found["count"] - len(names)
    others = f" {_key(OTHERS)} {counted(left, 'other cluster')}." if left > 0 else ""
    note = (
        f"{label}, chosen by a hash. The axes have one scale and show {first} and {second} of the variance: marks that "
        "lie together may be far apart in other dimensions. Hover over a mark for its text. Typical words: those that "
        "these documents of a cluster use more than the others, by log-odds with a Dirichlet prior."
    )
    listed = table(("cluster", "documents", "typical words"), f"{body}</tr>\n" if body else "")
    more = f'<p class="quiet">{more}' if more else ""
    more += f"<p>{others}</p>\n" if others else ""
    return f'{svg}{more}<div class="words">{listed}</div>{rest}<p class="quiet">{note}</p>\n'


def _points(points: Sequence[Sequence[Any]], names: Sequence[str]) -> Iterator[str]:
    wide, high = WIDTH / 2 - EDGE, HEIGHT / 2 - EDGE
    scale = 1 / max(1e-9, *(max(abs(x) / wide, abs(y) / high) for x, y, *_ in points))
    for x, y, place, id_, text in sorted(points, key=lambda point: point[2] >= 0):  # the others lie below
        own = 0 <= place < min(len(names), OTHERS)
        title = f"{id_}; cluster {names[place]}: {text}" if own else f"{id_}: {text}"
        mark = place if own else OTHERS
        yield _mark(mark, WIDTH / 2 + scale * x, HEIGHT / 2 - scale * y, f"<title>{shown(title)}</title>")


def _mark(place: int, x: float, y: float, title: str = "", radius: float = RADIUS) -> str:
    radius = radius / 2 if place == OTHERS else radius
    corners = " ".join(f"{x + radius * a:.1f},{y + radius * b:.1f}" for a, b in MARKS[place])
    return f'<polygon class="c{place}" points="{corners}">{title}</polygon>'


def _key(place: int) -> str:
    return f'<svg class="sign" viewBox="0 0 14 14" aria-hidden="true">{_mark(place, 7, 7, radius=6)}</svg>'
