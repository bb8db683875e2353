# SPDX-License-Identifier: Apache-2.0
"""How much raw text a curated text is worth: the raw size that gives the same bits per byte.

The bits per byte of models of D bytes of raw text follow E + A D^-b (Hoffmann et al. 2022, equation 2, for one model
size). The curve is fitted on parts of the budget, and never read outside of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

PARTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of the budget
EXPONENTS = np.arange(2, 151) / 100


class Curve(NamedTuple):
    """Bits per byte by bytes of training text: floor + scale * size ** -exponent, for sizes from `low` to `high`."""

    floor: float
    scale: float
    exponent: float
    low: float
    high: float

    def at(self, size: float) -> float:
        """Return the bits per byte of a model of `size` bytes of text."""
        return float(self.floor + self.scale * size**-self.exponent)

    def size_for(self, bits: float) -> float | None:
        """Return the size that gives the bits per byte; None if it is outside of the fitted sizes."""
        if bits <= self.floor or self.scale <= 0:
            return None
        size = math.exp(math.log(self.scale / (bits - self.floor)) / self.exponent)
        return size if self.low <= size <= self.high else None


class Worth(NamedTuple):
    """Curated text of `size` bytes is worth `factor` times as much raw text. Ends of the interval of 95 % are None if
    they are outside of the fitted sizes."""

    size: int
    factor: float | None
    low: float | None
    high: float | None


def fit_curve(sizes: Sequence[int], bits: Sequence[float]) -> Curve:
    """Return the curve of least squares, with a floor of 0 or more."""
    best = (math.inf, Curve(0, 0, 1, 1, 1))
    x, y = np.array(sizes, float), np.array(bits, float)
    for exponent in EXPONENTS.tolist():
        powers = x**-exponent
        deviation = powers - powers.mean()
        scale = float((deviation * (y - y.mean())).sum() / (deviation**2).sum())
        floor = float(y.mean() - scale * powers.mean())
        if floor < 0:
            floor, scale = 0.0, float((powers * y).sum() / (powers**2).sum())
        error = float(((floor + scale * powers - y) ** 2).sum())
        if error < best[0]:
            best = error, Curve(floor, scale, exponent, float(x.min()), float(x.max()))
    return best[1]


def worth_of(curve: Curve, size: int, differences: tuple[float, float, float], inverted: bool) -> Worth:
    """Return what curated text of `size` bytes is worth.

    differences  its bits per byte less those of raw text of this size: the value and the ends of its interval
    inverted     whether the curve is that of curated text, and the differences are those of raw text
    """
    sizes = [curve.size_for(curve.at(size) + difference) for difference in differences]
    factors = [None if found is None else (size / found if inverted else found / size) for found in sizes]
    value, *ends = factors
    low, high = ends if inverted else ends[::-1]
    return Worth(size, value, low, high)


def slope_weights(sizes: Sequence[int]) -> np.ndarray:
    """Return the weights with which values at sizes sum to the slope of their line of least squares, per doubling."""
    x = np.log2(np.array(sizes, float))
    x -= x.mean()
    return np.asarray(x / (x**2).sum())
