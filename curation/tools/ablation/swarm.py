# SPDX-License-Identifier: Apache-2.0
"""Weights of domains by a regression over a swarm of random mixtures, after RegMix (Liu et al. 2024)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from curation.base.system.steps import each
from curation.tools.ablation.mixtures import Mixtures, capped

SWARM = 64  # models
CANDIDATES, BEST = 20_000, 100  # mixtures that the regression judges, and those whose mean is taken
TEMPERATURE = 0.5  # exponent of the weights by size, around which mixtures are drawn
STRENGTHS = (0.5, 5.0)  # of Dirichlet's distribution, times the number of domains
FLOOR = 0.01  # added to weights before logarithms
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
DRAW = 200  # another draw than those that judge the weights; one for all mixtures, so that they compare
MIN_CORRELATION = 0.5


class Swarm(NamedTuple):
    """What a swarm says.

    weights      float64[domains]
    correlation  rank correlation of the bits of its mixtures with the predictions of regressions without them
    """

    weights: np.ndarray
    correlation: float


def choose(mixtures: Mixtures, loss: Callable[[np.ndarray], float]) -> Swarm:
    """Return weights with few bits per byte of the target.

    loss  bits of held-out texts -> bits per byte of the target
    """
    chance = np.random.default_rng([mixtures.seed, 1])
    weights = _mixtures(chance, mixtures, SWARM)
    draws = each(range(SWARM), "training models of random mixtures", "model")
    bits = np.array([loss(mixtures.bits(mixtures.amounts(weights[k]), DRAW)) for k in draws])
    once = mixtures.sizes / mixtures.final
    predict, held_back = fit(features(weights, once), bits)
    candidates = _mixtures(chance, mixtures, CANDIDATES)
    best = np.argsort(predict(features(candidates, once)), kind="stable")[:BEST]
    return Swarm(capped(candidates[best].mean(axis=0), mixtures.caps), rank_correlation(held_back, bits))


def _mixtures(chance: np.random.Generator, mixtures: Mixtures, count: int) -> np.ndarray:
    """Return random weights within the caps (float64[count, domains])."""
    center = mixtures.proportional**TEMPERATURE
    center *= len(center) / center.sum()
    low, high = np.log(STRENGTHS)
    strengths = np.exp(chance.uniform(low, high, count))
    drawn = chance.gamma(strengths[:, np.newaxis] * center)  # shares of gamma variables are of Dirichlet's distribution
    return capped(drawn / np.maximum(drawn.sum(axis=1, keepdims=True), 1e-300), mixtures.caps)


def features(weights: np.ndarray, once: np.ndarray) -> np.ndarray:
    """Return the features of mixtures: the logarithms of weights, because the gain of more text of a domain shrinks,
    and of the weights of different text. `once`: the weights that repeat nothing."""
    return np.log(np.concatenate([weights, np.minimum(weights, once)], axis=1) + FLOOR)


def fit(features: np.ndarray, values: np.ndarray) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]:
    """Return the predictions of a ridge regression, and for each row that of a regression without it. The ridge is that
    with the smallest error of the latter."""
    center, scale = features.mean(axis=0), features.std(axis=0) + 1e-12
    known, mean = (features - center) / scale, values.mean()
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    for ridge in RIDGES:
        gram = known.T @ known + ridge * len(values) * np.eye(known.shape[1])
        inverse = np.linalg.solve(gram, known.T)
        slopes = inverse @ (values - mean)
        leverage = np.einsum("ij,ji->i", known, inverse) + 1 / len(values)
        without = values - (values - mean - known @ slopes) / (1 - leverage)
        error = float(((values - without) ** 2).sum())
        if best is None or error < best[0]:
            best = error, slopes, without
    assert best is not None
    _, slopes, without = best
    return lambda rows: mean + (rows - center) / scale @ slopes, without


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return Spearman's rank correlation of two series; 0 if one is constant."""
    ranks = [np.unique(values, return_inverse=True)[1].astype(float) for values in (one, other)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
