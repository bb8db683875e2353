# SPDX-License-Identifier: Apache-2.0
"""Intervals of the numbers of a plan."""

import numpy as np
import pytest

from curation.running.planning.intervals import SampledUnits, Stratum, interval_of, quantile, share_between, spread_of


def test_the_quantile_is_that_of_students_t():
    for freedom, expected in {1: 12.706, 2: 4.303, 3: 3.182, 5: 2.571, 10: 2.228, 30: 2.042, 1000: 1.962}.items():
        assert quantile(freedom) == pytest.approx(expected, rel=0.05), freedom


def test_a_counted_total_is_exact_and_an_unread_rest_widens_it():
    stored, values = np.array([10.0, 10, 20]), np.array([1.0, 3, 2])

    def ratio(total: float, unread: float = 0.0, units: int = 3) -> float:
        low, high = interval_of([spread_of(1e6, SampledUnits(stored[:units], values[:units], total, unread))])
        return high / low

    assert ratio(40) == 1 and ratio(400) > ratio(50) > 1
    assert ratio(400, unread=0.5) > ratio(400)
    assert ratio(400, units=1) == pytest.approx(2, rel=0.03)
    assert interval_of([spread_of(1e6, SampledUnits(stored, 2 * stored, 400))]) == (
        1_000_000,
        1_000_000,
    )  # everywhere equal
    assert interval_of([spread_of(6, SampledUnits(stored, values, 40))]) == (6, 6) and interval_of([]) == (0, 0)


@pytest.mark.parametrize("order", ["random", "sorted"])
def test_most_intervals_hold_the_total_of_skewed_numbers(order: str):
    source = np.random.default_rng(7)
    sizes = np.exp(source.normal(0, 0.8, 4000))
    documents = 1 / (np.sort(sizes) if order == "sorted" else sizes)
    inside = widest = 0.0
    for _ in range(200):
        places = (np.arange(100) * 40 + source.integers(0, 40, 100)).astype(int)
        values = documents[places]
        low, high = interval_of([spread_of(float(values.sum()) * 40, SampledUnits(np.ones(100), values, 4000))])
        inside += low <= documents.sum() <= high
        widest = max(widest, high / low)
    assert inside >= 170 and widest < (1.5 if order == "sorted" else 2.5), (inside, widest)


def test_the_bounds_of_a_share_are_wilsons_and_exact_if_all_was_read():
    documents, removed = np.ones(100), np.zeros(100)
    assert share_between([]) == (0, 0) and share_between([Stratum(2, 0, documents, removed)]) == (0, 0)
    low, high = share_between([Stratum(50, 1, documents, removed)])
    assert low == 0 and high == pytest.approx(0.037, rel=0.1)
    removed[:30] = 1
    low, high = share_between([Stratum(50, 1, documents, removed)])
    assert (low, high) == pytest.approx((0.219, 0.396), rel=0.03)
    alike = [Stratum(50, 1, np.full(10, 10.0), np.array([10.0] * 3 + [0.0] * 7))]  # neighbours are alike
    assert share_between(alike)[1] - share_between(alike)[0] > 2 * (high - low)
    read = Stratum(1, 0, np.array([900.0]), np.array([0.0]))
    low, high = share_between([Stratum(1, 0.5, documents, removed), read])
    assert 0.02 < low < 0.03 < high < 0.04  # only a tenth of the documents is uncertain


def test_most_bounds_of_a_share_hold_it():
    source = np.random.default_rng(5)
    inside = 0
    for _ in range(300):
        strata, true, total = [], 0.0, 0
        for number, alike in ((9000, 0.1), (600, 2.0), (90, 0.5)):
            own = source.beta(alike, 9 * alike, number)  # share of each unit of 5 documents
            units = source.choice(number, 40, replace=False)
            strata.append(Stratum(number / 40, 1 - 40 / number, np.full(40, 5.0), source.binomial(5, own[units]) * 1.0))
            true, total = true + own.sum() * 5, total + number * 5
        low, high = share_between(strata)
        inside += low <= true / total <= high
    assert inside >= 270, inside
