# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals for totals that a sample estimates.

A total is estimated from the sampled units: the sum of `y` divided by their stored bytes, times all bytes. This is the
ratio estimator of a systematic sample (Cochran, Sampling Techniques, 1977, sections 6.3 and 8.6). Its variance comes
from the differences between neighbouring units, since in sorted files these are smaller than the differences from the
mean. Totals have no upper bound and are skewed, so the intervals are symmetric in the logarithm. 95 % of them should
hold the total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

NORMAL = 1.95996  # quantile of a normal distribution, two-sided 5 %
UNSEEN = 0.335  # half width, a factor of 2: fewer than two units, or only beginnings of files are read
MIN_ERROR = 0.005  # minimum relative error of a sample, since records do not end where batches end
MIN_UNITS, FEW_UNITS = 2, 10
EPSILON = 1e-9  # relative tolerance for rounding errors of sums


class SampledUnits(NamedTuple):
    """The units of a sample, in the order of their positions in the files.

    stored    bytes of each unit (float64)
    values    the value of each unit whose total is estimated (float64)
    total     bytes of all units, sampled or not
    unread    share of all bytes from which no unit can be drawn
    counted   number of documents of the units; 0 if each file is one document
    """

    stored: np.ndarray
    values: np.ndarray
    total: float
    unread: float = 0.0
    counted: float = 0.0


class Stratum(NamedTuple):
    """The sampled documents of one kind of file, per unit.

    weight     number of documents that each sampled document represents
    rest       share of the kind that is not sampled
    documents  number of documents of each unit (float64)
    removed    number of removed documents of each unit (float64)
    """

    weight: float
    rest: float
    documents: np.ndarray
    removed: np.ndarray


class Spread(NamedTuple):
    """An estimate of a total, and its uncertainty relative to the estimate.

    value     the estimate
    error     its standard error
    freedom   degrees of freedom of the error
    unread    uncertainty from the part that was not read: half the width of an interval of the logarithm
    """

    value: float
    error: float = 0.0
    freedom: int = 0
    unread: float = 0.0


def quantile(freedom: int) -> float:
    """Return the quantile of Student's t distribution, two-sided 5 %, for degrees of freedom of at least 1."""
    if freedom < 3:
        return {1: 12.706, 2: 4.303}[freedom]
    z = NORMAL
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return z + sum(term / freedom ** (power + 1) for power, term in enumerate(terms))


def spread_of(value: float, units: SampledUnits, more_variance: float = 0.0) -> Spread:
    """Return an estimate with its uncertainty; the uncertainty is 0 if all units were seen.

    value           the estimate
    more_variance   variance of the sum of the values of the units
    """
    stored, values = units.stored, units.values
    seen, total = float(stored.sum()), float(values.sum())
    rest = max(1 - seen / units.total, 0.0) if units.total else 0.0
    rest = 0.0 if rest < EPSILON else rest
    unread = min(-math.log1p(-units.unread), UNSEEN) if units.unread < 1 else UNSEEN
    if rest and len(values) < MIN_UNITS:
        return Spread(value, UNSEEN / NORMAL, 0, unread)
    variance = more_variance
    if rest and total:
        differences = np.diff(values - total / seen * stored)
        variance += rest * len(values) / (2 * (len(values) - 1)) * float(differences @ differences)
    error = math.sqrt(variance) / total if total else 0.0
    error = 0.0 if error < EPSILON else max(error, MIN_ERROR) if rest else error
    if rest and units.counted and len(values) < FEW_UNITS:  # a few units may be similar by chance
        error = max(error, math.sqrt(rest / units.counted))
    return Spread(value, error, len(values) - 1 if error else 0, unread)


def share_between(strata: Sequence[Stratum]) -> tuple[float, float]:
    """Return the lower and upper bound of the share of removed documents; both are equal if all documents were sampled.

    The share is a ratio of two sums over strata (Cochran, section 6.11). The bounds are those of Wilson's interval,
    which is not empty for a sample without any removed document. Documents of a unit are neighbours and may be similar.
    So the interval uses the number of independent documents that would have the same variance.
    """
    total = sum(own.weight * float(own.documents.sum()) for own in strata)
    if not total:
        return 0.0, 0.0
    share = sum(own.weight * float(own.removed.sum()) for own in strata) / total
    one = share * (1 - share)  # variance of one document
    variance = freedom = 0.0
    for own in strata:
        rest = 0.0 if own.rest < EPSILON else own.rest
        differences = own.removed - share * own.documents
        units = len(differences)
        alike = float(((differences - differences.mean()) ** 2).sum()) * units / (units - 1) if units > 1 else 0.0
        least = float(own.documents.sum())
        variance += own.weight**2 * rest * (max(alike / one, least) if one > EPSILON else least)
        freedom += units if rest else 0
    if not variance:
        return share, share
    size, squared = total**2 / variance, quantile(max(int(freedom) - 1, 2)) ** 2
    middle = (share + squared / (2 * size)) / (1 + squared / size)
    width = math.sqrt(squared * (one / size + squared / (4 * size**2))) / (1 + squared / size)
    return max(min(middle - width, share), 0.0), min(max(middle + width, share), 1.0)


def interval_of(parts: Sequence[Spread]) -> tuple[int, int]:
    """Return the bounds of the sum of independent estimates. The degrees of freedom of their errors are added."""
    total = sum(part.value for part in parts)
    if not total:
        return 0, 0
    error = math.sqrt(sum((part.value * part.error) ** 2 for part in parts)) / total
    unread = sum(part.value * part.unread for part in parts) / total
    freedom = sum(part.freedom for part in parts if part.value)
    width = math.hypot((quantile(freedom) if freedom else NORMAL) * error, unread)
    return math.floor(total * math.exp(-width) + EPSILON * total), math.ceil(total * (math.exp(width) - EPSILON))
