# SPDX-License-Identifier: Apache-2.0
"""The marks in the map of clusters: one per document, whose form and colour are those of its cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

WIDTH, HEIGHT, EDGE, RADIUS = 640, 400, 12, 5
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


def marks(found: Mapping[str, Any]) -> list[tuple[int, str, str, str, str]]:
    """Return (form, corners, id, name of the cluster or "", text) of each document, those of other clusters first."""
    names, points = [entry["name"] for entry in found["clusters"]][:OTHERS], found["points"]
    wide, high = WIDTH / 2 - EDGE, HEIGHT / 2 - EDGE
    scale = 1 / max(1e-9, *(max(abs(x) / wide, abs(y) / high) for x, y, *_ in points))
    drawn = []
    for x, y, place, id_, text in sorted(points, key=lambda point: point[2] >= 0):  # the others lie below
        form = place if 0 <= place < len(names) else OTHERS
        where = corners(form, WIDTH / 2 + scale * x, HEIGHT / 2 - scale * y, RADIUS)
        drawn.append((form, where, id_, "" if form == OTHERS else names[form], text))
    return drawn


def corners(form: int, x: float = 7, y: float = 7, radius: float = 6) -> str:
    """Return the corners of a mark; by default, for a drawing of 14 by 14."""
    radius = radius / 2 if form == OTHERS else radius
    return " ".join(f"{x + radius * a:.1f},{y + radius * b:.1f}" for a, b in MARKS[form])
