# SPDX-License-Identifier: Apache-2.0
"""Compares the bits of held-out texts under one model with those under models of placebos.

A placebo is raw text after a random removal of as much text as curation removed. So placebos differ only by chance.
The held-out texts are a random sample too. The variance of a difference is the sum of two parts:

    draws      variance of the placebos' totals, times 1 + 1 / placebos: the other model is one more draw
    documents  variance, within sources, of the difference of each text less the mean difference per byte times its size

Both parts contain the interaction of draw and text once, so its variance is subtracted once. The sum has the degrees of
freedom of Satterthwaite (1946). An interval for a share of the outcomes is that of Student's t with these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.95  # of intervals
POWER = 0.8  # probability that the minimum detectable effect is found
ANGLES = 1 << 16  # of the numerical integral of Student's t


class Difference(NamedTuple):
    """A difference in bits per byte; negative: the model predicts held-out text better than those of the placebos.

    value    the difference
    error    its standard error
    freedom  degrees of freedom of the error
    """

    value: float
    error: float
    freedom: float

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the ends of the interval that contains the true difference in a share `level` of outcomes."""
        half = t_quantile(level, self.freedom) * self.error
        return self.value - half, self.value + half

    def verdict(self, smallest: float) -> str:
        """Return what the interval shows. `smallest`: the smallest difference of interest, in bits per byte.

        better         the whole interval is below -smallest
        worse          the whole interval is above smallest
        no difference  the whole interval is between them
        undecided      anything else
        """
        low, high = self.interval()
        if high < -smallest:
            return "better"
        if low > smallest:
            return "worse"
        return "no difference" if -smallest < low and high < smallest else "undecided"

    def p_value(self) -> float:
        """Return the probability of a difference at least as far from 0 if there is none."""
        return 1 - t_share(abs(self.value) / self.error, self.freedom) if self.error else float(self.value == 0)

    def detectable(self, smallest: float) -> float:
        """Return the minimum detectable effect, in bits per byte: how much better a model must be to get the verdict
        `better` in a share POWER of outcomes."""
        quantiles = t_quantile(LEVEL, self.freedom) + t_quantile(2 * POWER - 1, self.freedom)
        return smallest + quantiles * self.error


def compare(bits: np.ndarray, placebos: np.ndarray, sizes: np.ndarray, sources: np.ndarray) -> Difference:
    """Compare the bits of texts under one model with those under models of placebos.

    bits      float64, one per text: its bits under the model, or their mean over draws from its training texts
    placebos  float64[placebos, texts]: bits under the model of each placebo; at least two
    sizes     int64: bytes of each text
    sources   int64: number of the source of each text. A source with a single text counts as part of a source of all
              such texts
    """
    return _crossed(bits - placebos.mean(axis=0), placebos, 1 + 1 / len(placebos), sizes, sources)


def compare_pairs(differences: np.ndarray, sizes: np.ndarray, sources: np.ndarray) -> Difference:
    """Return the mean difference of models in pairs. Both models of a pair are trained on the same draw.

    differences  float64[pairs, texts]: bits under one model less those under the other; at least two pairs
    sizes, sources    as in `compare`
    """
    return _crossed(differences.mean(axis=0), differences, 1 / len(differences), sizes, sources)


def _crossed(
    differences: np.ndarray, draws_bits: np.ndarray, more: float, sizes: np.ndarray, sources: np.ndarray
) -> Difference:
    """Return the sum of differences of texts, with the variances of `more` draws, which `draws_bits` has as rows, and
    of the texts."""
    count, total = len(draws_bits), float(sizes.sum())
    means = draws_bits.mean(axis=0)
    totals = draws_bits.sum(axis=1) / total
    value = float(differences.sum() / total)
    draws = float(totals.var(ddof=1)) * more
    documents, freedom = _of_documents(differences - value * sizes, _merged(sources))
    documents /= total**2
    rest = draws_bits - means - (totals - totals.mean())[:, np.newaxis] * sizes
    interaction = float((rest**2).sum()) / (count - 1) * more / total**2
    variance = max(draws + documents - interaction, draws, documents)
    parts = draws**2 / (count - 1) + documents**2 / freedom
    return Difference(value, math.sqrt(variance), variance**2 / parts if parts else float(count - 1))


def compare_placebos(placebos: np.ndarray, sizes: np.ndarray, sources: np.ndarray) -> Difference:
    """Return the difference between a placebo and the others, with 0 as its value: what chance alone gives. The error
    is the root of the mean variance over all placebos."""
    found = [compare(each, np.delete(placebos, k, axis=0), sizes, sources) for k, each in enumerate(placebos)]
    error = math.sqrt(float(np.mean([difference.error**2 for difference in found])))
    return Difference(0.0, error, float(np.mean([difference.freedom for difference in found])))


def _of_documents(differences: np.ndarray, sources: np.ndarray) -> tuple[float, float]:
    """Return the variance of the sum of differences of texts drawn within sources, and its degrees of freedom."""
    counts = np.bincount(sources)
    means = np.bincount(sources, differences) / counts
    squares = np.bincount(sources, (differences - means[sources]) ** 2)
    return float((counts * squares / np.maximum(counts - 1, 1)).sum()), float(max(len(sources) - len(counts), 1))


def _merged(sources: np.ndarray) -> np.ndarray:
    """Return the sources numbered from 0, with one number for all that have a single text."""
    _, numbers, counts = np.unique(sources, return_inverse=True, return_counts=True)
    alone = counts[numbers] == 1
    joined = numbers[~alone][0] if alone.sum() == 1 < len(numbers) else -1  # one text joins the first source
    return np.unique(np.where(alone, joined, numbers), return_inverse=True)[1]


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number by the method of Holm (1979)."""
    order = sorted(range(len(p_values)), key=lambda k: p_values[k])
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, k in enumerate(order):
        least = max(least, min(1.0, p_values[k] * (len(p_values) - rank)))
        adjusted[k] = least
    return adjusted


def t_quantile(level: float, freedom: float) -> float:
    """Return t so that a variable with Student's distribution is between -t and t with the probability `level`."""
    angles, shares = _t_table(freedom)
    return math.sqrt(freedom) * math.tan(float(np.interp(level, shares, angles)))


def t_share(t: float, freedom: float) -> float:
    """Return the probability that a variable with Student's distribution is between -t and t."""
    angles, shares = _t_table(freedom)
    return float(np.interp(math.atan(t / math.sqrt(freedom)), angles, shares))


def _t_table(freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """Return angles, and for each the probability of |t| < sqrt(freedom) tan(angle): the share of the integral of
    cos^(freedom - 1)."""
    angles = np.linspace(0, math.pi / 2, ANGLES)
    density = np.cos(angles) ** (freedom - 1)
    areas = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return angles, areas / areas[-1]
