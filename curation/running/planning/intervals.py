# SPDX-License-Identifier: Apache-2.0
"""Intervals of totals that a sample estimates.

A total is the mean of `y` per stored byte in the sampled units, times all bytes: the ratio estimator of a systematic
sample (Cochran, Sampling Techniques, 1977, sections 6.3 and 8.6). Its variance comes from the differences between
neighbouring units: sorted files vary less around them than around their mean. Totals have no upper bound and are
skewed, so the intervals are symmetric in the logarithm. 95 % of them should hold the total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

NORMAL = 1.95996  # quantile of a normal distribution, two-sided 5 %
UNSEEN = 0.335  # half width of a total without two units, or of files whose beginning alone is read: a factor of 2
MIN_ERROR = 0.005  # of a sample: records do not end where batches do
MIN_UNITS, FEW_UNITS = 2, 10
EPSILON = 1e-9  # of a total, for sums that are rounded


class SampledUnits(NamedTuple):
    """The units of a sample in the order of their places.

    stored    bytes of each unit (float64)
    values    what is summed, of each unit (float64)
    total     bytes of all units, sampled or not
    unread    share of these that no unit can come from
    counted   documents of the units; 0 where each file has one
    """

    stored: np.ndarray
    values: np.ndarray
    total: float
    unread: float = 0.0
    counted: float = 0.0


class Stratum(NamedTuple):
    """The sampled documents of one kind of file, by their units.

    weight     documents that each of them stands for
    rest       share of the kind that is not sampled
    documents  of each unit (float64)
    removed    of each unit (float64)
    """

    weight: float
    rest: float
    documents: np.ndarray
    removed: np.ndarray


class Spread(NamedTuple):
    """An estimate of a total and how far it may be from the total, both relative to it.

    value     the estimate
    error     its standard error
    freedom   degrees of freedom of the error
    unread    what the part that was not read may add, as half the width of an interval in the logarithm
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
    """Return how far an estimate may be from its total; not at all where all units were seen.

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
    if rest and units.counted and len(values) < FEW_UNITS:  # which may be alike by chance
        error = max(error, math.sqrt(rest / units.counted))
    return Spread(value, error, len(values) - 1 if error else 0, unread)


def share_between(strata: Sequence[Stratum]) -> tuple[float, float]:
    """Return the bounds of the share of documents that are removed; both are the share itself if all were sampled.

    The share is a ratio of two sums over strata (Cochran, section 6.11). The bounds are Wilson's, for as many documents
    as would vary as much if each was drawn on its own: a sample without any removed document does not mean that none
    is. The documents of a unit are neighbours, and may be alike.
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
    """Return the bounds of the sum of independent estimates. Their errors share the degrees of freedom."""
    total = sum(part.value for part in parts)
    if not total:
        return 0, 0
    error = math.sqrt(sum((part.value * part.error) ** 2 for part in parts)) / total
    unread = sum(part.value * part.unread for part in parts) / total
    freedom = sum(part.freedom for part in parts if part.value)
    width = math.hypot((quantile(freedom) if freedom else NORMAL) * error, unread)
    return math.floor(total * math.exp(-width) + EPSILON * total), math.ceil(total * (math.exp(width) - EPSILON))
