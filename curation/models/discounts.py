# SPDX-License-Identifier: Apache-2.0
"""Discounts of modified Kneser-Ney smoothing, which n-gram models of words and of bytes share."""

from __future__ import annotations

from collections.abc import Sequence

FALLBACK = (0.5, 1.0, 1.5)  # discounts if the counts give none, as in lmplz --discount_fallback


def discounts_of(counts: Sequence[int]) -> tuple[float, float, float] | None:
    """Return the discounts of counts of 1, 2, and 3 or more (Chen and Goodman 1998, equation 26), from the numbers of
    n-grams that have each count from 0 to 4; None if they give none."""
    discounts = unbounded_discounts(counts)
    return discounts if discounts and all(0 <= taken <= k for k, taken in enumerate(discounts, 1)) else None


def unbounded_discounts(counts: Sequence[int]) -> tuple[float, float, float] | None:
    """Return the same discounts even if they are below 0, as those of texts with many copies; None if a number is 0."""
    _, one, two, three, four = counts
    if not (one and two and three):
        return None
    share = one / (one + 2 * two)
    return 1 - 2 * share * two / one, 2 - 3 * share * three / two, 3 - 4 * share * four / three
