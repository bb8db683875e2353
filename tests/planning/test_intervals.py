# SPDX-License-Identifier: Apache-2.0
"""Intervals of the numbers of a plan."""

import numpy as np
import pytest

from curation.running.planning.intervals import Units, interval_of, quantile, spread_of


def test_the_quantile_is_that_of_students_t():
    for freedom, expected in {1: 12.706, 2: 4.303, 3: 3.182, 5: 2.571, 10: 2.228, 30: 2.042, 1000: 1.962}.items():
        assert quantile(freedom) == pytest.approx(expected, rel=0.05), freedom


def test_a_counted_total_is_exact_and_an_unread_rest_widens_it():
    stored, values = np.array([10.0, 10, 20]), np.array([1.0, 3, 2])

    def ratio(total: float, unread: float = 0.0, units: int = 3) -> float:
        low, high = interval_of([spread_of(1e6, Units(stored[:units], values[:units], total, unread))])
        return high / low

    assert ratio(40) == 1 and ratio(400) > ratio(50) > 1
    assert ratio(400, unread=0.5) > ratio(400)
    assert ratio(400, units=1) == pytest.approx(2, rel=0.03)
    assert interval_of([spread_of(1e6, Units(stored, 2 * stored, 400))]) == (1_000_000, 1_000_000)  # everywhere equal
    assert interval_of([spread_of(6, Units(stored, values, 40))]) == (6, 6) and interval_of([]) == (0, 0)


@pytest.mark.parametrize("order", ["random", "sorted"])
def test_most_intervals_hold_the_total_of_skewed_numbers(order: str):
    source = np.random.default_rng(7)
    sizes = np.exp(source.normal(0, 0.8, 4000))
    documents = 1 / (np.sort(sizes) if order == "sorted" else sizes)
    inside = widest = 0.0
    for _ in range(200):
        places = (np.arange(100) * 40 + source.integers(0, 40, 100)).astype(int)
        values = documents[places]
        low, high = interval_of([spread_of(float(values.sum()) * 40, Units(np.ones(100), values, 4000))])
        inside += low <= documents.sum() <= high
        widest = max(widest, high / low)
    assert inside >= 170 and widest < (1.5 if order == "sorted" else 2.5), (inside, widest)
