# SPDX-License-Identifier: Apache-2.0
"""Weights of domains by their excess losses: DoReMi (Xie et al. 2023), and an adaptation to models of bytes.

The excess loss of a domain is the loss of a model (the proxy) less that of a reference model, or 0 if that is negative.
It is what the proxy can still learn. Noise has none: no model predicts it better than another.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from curation.base.system.steps import each
from curation.tools.ablation.mixtures import LEAST, Mixtures

STEP = 1.0  # eta of DoReMi, with losses in nats per token
BYTE_STEP = 0.4  # of models of bytes, with fewer steps
SMOOTHING = 1e-3  # its c: the share of equal weights
ROUNDS = 16
PROXY = 0.5  # part of the budget that the proxy sees in the last round: what is still to learn tells domains apart
DOUBLING = 2  # rounds in which the text of the proxy doubles: losses fall with the logarithm of the text
DRAW = 100  # other draws than those that judge the weights
NATS = float(np.log(2))  # per bit


def reweighed(weights: np.ndarray, excess: np.ndarray, step: float) -> np.ndarray:
    """Return the weights of the next step, from the excess losses in nats (float64[domains])."""
    scaled = weights * np.exp(step * (excess - excess.max()))
    smoothed = (1 - SMOOTHING) * scaled / scaled.sum() + SMOOTHING / len(weights)
    return np.asarray(np.round(smoothed / LEAST) * LEAST)


def reweigh(mixtures: Mixtures, losses: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the weights of each round (float64[rounds, domains]), whose mean DoReMi takes.

    losses  bits of held-out texts -> bits per byte of each domain

    A model of bytes is not trained step by step. So the proxy is trained anew in each round, on a text that grows by
    parts, each mixed by the weights of its round, up to half of the budget. The reference model sees the whole budget,
    mixed by size. The excess is that of held-out texts of each domain. No weight exceeds its cap.
    """
    reference = losses(mixtures.bits(mixtures.amounts(mixtures.proportional), DRAW))
    weights, total, found = mixtures.uniform, np.zeros(len(reference)), []
    for number in each(range(ROUNDS), "reweighing domains", "round"):
        total += (PROXY * 2 ** ((number + 1 - ROUNDS) / DOUBLING) - total.sum()) * weights
        excess = losses(mixtures.bits(mixtures.amounts(total), DRAW)) - reference
        weights = mixtures.within_caps(reweighed(weights, NATS * np.maximum(excess, 0), BYTE_STEP))
        found.append(weights)
    return np.array(found)
