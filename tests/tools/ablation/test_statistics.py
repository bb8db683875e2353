# SPDX-License-Identifier: Apache-2.0
"""Intervals of differences: SciPy's quantiles, and the share of made differences that their intervals contain."""

import numpy as np
import pytest

from curation.tools.ablation.statistics import (
    Difference,
    compare,
    compare_pairs,
    compare_placebos,
    holm,
    t_quantile,
    t_share,
)

TEXTS, SOURCES = 200, 12
# scipy.stats.t.ppf((1 + level) / 2, freedom) of SciPy 1.17
QUANTILES = [
    (0.95, 1.5, 6.016663), (0.95, 4, 2.776445), (0.95, 7, 2.364624), (0.6, 7, 0.896030), (0.99, 30, 2.749996),
    (0.95, 385.5, 1.966137), (0.95, 1e5, 1.959988),
]  # fmt: skip


@pytest.mark.parametrize(("level", "freedom", "quantile"), QUANTILES)
def test_quantiles_are_those_of_scipy(level: float, freedom: float, quantile: float):
    assert t_quantile(level, freedom) == pytest.approx(quantile, rel=2e-5)
    assert t_share(quantile, freedom) == pytest.approx(level, abs=1e-5)


def made(rng: np.random.Generator, placebos: int, draws: float, documents: float, rest: float) -> tuple:
    """Bits of texts whose models differ by chance only: in each draw, in each text, and in both."""
    sizes = rng.integers(100, 1500, TEXTS)
    per_byte = rng.normal(2, 0.5, TEXTS) + rng.normal(0, draws, placebos + 1)[:, np.newaxis]
    per_byte += rng.normal(0, rest, (placebos + 1, TEXTS))
    per_byte[-1] += rng.normal(0, documents, TEXTS)
    bits = per_byte * sizes
    return bits[-1], bits[:-1], sizes, np.arange(TEXTS) % SOURCES


@pytest.mark.parametrize(
    "placebos",
    [
        5,
        *(
            pytest.param(
                number, marks=pytest.mark.slow("intervals of an ablation contain the truth as often as they say")
            )
            for number in (8, 20)
        ),
    ],
)
@pytest.mark.parametrize("spread", [(0.011, 0.06, 0.03), (0.011, 0, 0.03), (0, 0.06, 0.03), (0.03, 0.02, 0)])
def test_intervals_contain_the_truth_as_often_as_they_say(placebos: int, spread: tuple[float, float, float]):
    rng = np.random.default_rng(5)
    found = [compare(*made(rng, placebos, *spread)) for _ in range(300)]
    covered = np.mean([low < 0 < high for low, high in (each.interval() for each in found)])
    assert 0.92 <= covered <= 0.98
    assert all((each.p_value() < 0.05) != (each.interval()[0] < 0 < each.interval()[1]) for each in found[:20])


@pytest.mark.parametrize(("draws", "seeds"), [(0.011, 0), (0.011, 0.011), (0, 0.011)])
def test_intervals_of_a_mean_of_three_seeds_are_not_too_narrow(draws: float, seeds: float):
    """The tier `gpu`: the compared arm is one draw with three seeds, and each placebo another draw with one."""
    rng, sizes, sources = np.random.default_rng(5), np.full(TEXTS, 1000), np.arange(TEXTS) % SOURCES

    def model(spread: float) -> np.ndarray:
        return (rng.normal(0, spread) + rng.normal(0, 3 * spread, TEXTS)) * sizes

    covered = 0
    for _ in range(300):
        placebos = np.array([model(draws) + model(seeds) for _ in range(8)])
        arm = model(draws) + np.mean([model(seeds) for _ in range(3)], axis=0)
        low, high = compare(arm, placebos, sizes, sources).interval()
        covered += low < 0 < high
    assert covered >= 0.92 * 300


def test_the_effect_that_is_detectable_is_found_as_often_as_it_says():
    rng, smallest = np.random.default_rng(7), 0.01
    found = []
    for _ in range(200):
        bits, placebos, sizes, sources = made(rng, 8, 0.011, 0.06, 0.03)
        effect = compare(bits, placebos, sizes, sources).detectable(smallest)
        found.append(compare(bits - effect * sizes, placebos, sizes, sources).verdict(smallest) == "better")
    assert 0.72 <= np.mean(found) <= 0.88


def test_placebos_alone_tell_the_error_of_a_difference_by_chance():
    rng = np.random.default_rng(9)
    bits, placebos, sizes, sources = made(rng, 30, 0.011, 0, 0.03)
    alone, found = compare_placebos(placebos, sizes, sources), compare(bits, placebos, sizes, sources)
    assert alone.value == 0 and alone.error == pytest.approx(found.error, rel=0.15)


@pytest.mark.parametrize(
    ("value", "verdict"), [(-0.04, "better"), (0.04, "worse"), (0.001, "no difference"), (-0.012, "undecided")]
)
def test_verdicts(value: float, verdict: str):
    assert Difference(value, 0.002, 50).verdict(0.01) == verdict
    mirrored = {"better": "worse", "worse": "better"}.get(verdict, verdict)
    assert Difference(-value, 0.002, 50).verdict(0.01) == mirrored


def test_a_wide_interval_around_0_is_undecided():
    assert Difference(0.0, 0.02, 50).verdict(0.01) == "undecided"


@pytest.mark.parametrize("sources", [[0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 0, 1], [0, 0, 1, 2]])
def test_sources_with_a_single_text_count_together(sources: list[int]):
    bits = np.array([10.0, 22, 29, 41])
    found = compare(bits, np.array([bits + 1, bits - 1, bits]), np.array([5, 10, 15, 20]), np.array(sources))
    assert found.value == 0 and 0 < found.error < 1


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.6]) == [1.0, 1.0] and holm([]) == []


@pytest.mark.parametrize(
    "pairs",
    [5, pytest.param(8, marks=pytest.mark.slow("intervals of pairs of models contain the truth as often as they say"))],
)
@pytest.mark.parametrize("spread", [(0.011, 0.06, 0.03), (0.011, 0, 0.03), (0, 0.06, 0.03)])
def test_intervals_of_pairs_contain_the_truth_as_often_as_they_say(pairs: int, spread: tuple[float, float, float]):
    """Differences that vary by draw, by text and by both; the true one is 0.02 bits per byte."""
    rng, (draws, documents, rest) = np.random.default_rng(6), spread
    covered = []
    for _ in range(300):
        sizes = rng.integers(100, 1500, TEXTS)
        per_byte = 0.02 + rng.normal(0, draws, (pairs, 1)) + rng.normal(0, rest, (pairs, TEXTS))
        per_byte += rng.normal(0, documents, TEXTS)
        low, high = compare_pairs(per_byte * sizes, sizes, np.arange(TEXTS) % SOURCES).interval()
        covered.append(low < 0.02 < high)
    assert 0.92 <= np.mean(covered) <= 0.98
