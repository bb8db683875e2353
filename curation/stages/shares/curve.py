# SPDX-License-Identifier: Apache-2.0
"""Curves of `mix`: how often documents are written, by their rank in a column of numbers.

A curve is a list of pieces. A piece ends at a share of the documents, ranked from the lowest number to the highest, and
has a number of copies. Ranks are cut at whole documents, computed in decimals: 0.3 of 10 documents are 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import NamedTuple

Curve = Sequence[tuple[float, float]]  # share at which the piece ends, copies


class Step(NamedTuple):
    """Documents of a piece that are written equally often: all, or those that a fraction divides it into."""

    piece: int
    copies: int


def check_curve(curve: Curve, max_copies: int) -> None:
    """Raise ValueError for a curve whose shares do not ascend to 1, or whose copies are not 0 to `max_copies`."""
    if any(len(piece) != 2 for piece in curve):
        raise ValueError(f"curve must be a list of [share, copies], such as [[0.4, 0], [1.0, 2]], not {_shown(curve)}")
    shares, copies = [share for share, _ in curve], [number for _, number in curve]
    ascends = all(low < high for low, high in pairwise([0, *shares]))
    if not ascends or shares[-1] != 1:
        hint = ". Write 0.4 for 40 %" if max(shares) > 1 else ""
        raise ValueError(f"the shares of curve must ascend from above 0 to 1.0, not {_shown(shares)}{hint}")
    for number in copies:
        if not 0 <= number <= max_copies:
            raise ValueError(f"the copies of curve must be 0 to {max_copies:,}, not {number}")
    if not any(copies):
        raise ValueError("curve removes all documents, since all copies are 0. Give a piece copies above 0")


def _shown(values: object) -> str:
    return str(values).replace("(", "[").replace(")", "]")


def steps_of(curve: Curve) -> list[Step]:
    """Return the steps of a curve, from the lowest rank to the highest. A piece with a fraction of copies has two."""
    return [
        Step(number, math.floor(copies) + more)
        for number, (_, copies) in enumerate(curve)
        for more in range(1 if float(copies).is_integer() else 2)
    ]


def ends_of(curve: Curve, documents: int) -> list[int]:
    """Return the rank after the last document of each of `steps_of(curve)`, for a number of documents.

    A piece of m documents with c copies is written floor(c * m) times in all: each document floor(c) times, and those
    of the highest ranks once more."""
    ends: list[int] = []
    low = 0
    for share, copies in curve:
        high = int(_exact(share) * documents)
        more = int(_exact(copies) * (high - low)) - math.floor(copies) * (high - low)
        ends += [high] if float(copies).is_integer() else [high - more, high]
        low = high
    return ends


def names_of(curve: Curve) -> list[str]:
    """Return the range of ranks of each piece, such as `40% to 95%`."""
    ends = [f"{(_exact(share) * 100).normalize():f}%" for share, _ in curve]
    return [f"{low} to {high}" for low, high in pairwise(["0%", *ends])]


def size_of(curve: Curve) -> float:
    """Return the number of written documents per document."""
    shares = pairwise([Decimal(0), *(_exact(share) for share, _ in curve)])
    return float(sum((high - low) * _exact(copies) for (low, high), (_, copies) in zip(shares, curve, strict=True)))


def _exact(number: float) -> Decimal:
    """Return the decimal number that the user wrote."""
    return Decimal(repr(float(number)))
