# SPDX-License-Identifier: Apache-2.0
"""DoReMi as published (Xie et al. 2023, algorithm 1), with small transformers over bytes in PyTorch.

The reference model is trained on rows drawn by the weights by size, the proxy on equally many rows of each domain. In
each step, the excess loss of each token over the reference, or 0 if it is negative, is averaged over each domain. It
changes the weights of the domains, and these weigh the losses of the step. The result is the mean of all weights. This
module has not run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from curation.base.errors import InputError
from curation.base.system.steps import each
from curation.tools.ablation.reweighting import STEP, reweighed
from curation.tools.ablation.transformer import SIZES, Size, Transformer, losses, make, optimizer_of, update, windows


class Training(NamedTuple):
    """How the two models are trained.

    size   their shape
    steps  of each model
    rows   of each domain in a step of the proxy; a step of the reference has as many in total
    rate   highest learning rate: it rises over a tenth of the steps, then falls to a tenth along a cosine
    """

    size: Size = SIZES["4M"]
    steps: int = 2000
    rows: int = 8
    rate: float = 1e-3


def train(
    domains: dict[str, pa.LargeStringArray], proportional: np.ndarray, training: Training, *, seed: int, device: str
) -> np.ndarray:
    """Return the weights after each step (float64[steps, domains]), whose mean is the result.

    domains       name -> training texts
    proportional  float64[domains]: the weights by size
    device        of PyTorch, such as `cuda`

    InputError: a domain has fewer bytes than the context of the model.
    """
    rows = [windows(texts, training.size.context) for texts in domains.values()]
    for name, own in zip(domains, rows, strict=True):
        if not len(own):
            raise InputError(f"mix: domain {name!r} has less text than a context of {training.size.context:,} bytes")
    count = len(rows)
    reference, chance = make(training.size, seed, device), np.random.default_rng([seed, 2])
    for optimizer in _steps(reference, training, "training the reference model"):
        numbers = chance.choice(count, training.rows * count, p=proportional / proportional.sum())
        drawn = np.stack([rows[number][chance.integers(len(rows[number]))] for number in numbers])
        update(reference, optimizer, losses(reference, _ids(drawn, device)).mean())
    reference.eval()
    proxy, chance = make(training.size, seed, device), np.random.default_rng([seed, 3])
    weights, found = np.full(count, 1 / count), []
    for optimizer in _steps(proxy, training, "training the proxy model"):
        ids = _ids(np.concatenate([own[chance.integers(len(own), size=training.rows)] for own in rows]), device)
        own_losses = losses(proxy, ids)
        with torch.no_grad():
            excess = (own_losses - losses(reference, ids)).clamp(min=0)
        weights = reweighed(weights, _by_domain(excess, count).double().cpu().numpy(), STEP)
        found.append(weights)
        update(proxy, optimizer, _by_domain(own_losses, count) @ torch.tensor(weights, dtype=torch.float32).to(device))
    return np.array(found)


def _by_domain(values: Tensor, domains: int) -> Tensor:
    """Return the means of the values of each domain, whose rows follow one another."""
    return values.view(domains, -1).mean(1)


def _ids(rows: np.ndarray, device: str) -> Tensor:
    return torch.from_numpy(rows.astype(np.int64)).to(device)


def _steps(model: Transformer, training: Training, label: str) -> Iterator[torch.optim.Optimizer]:
    """Yield an optimizer for each step, with the learning rate of the step."""
    optimizer = optimizer_of(model, training.rate)
    rise = max(1, training.steps // 10)
    for step in each(range(training.steps), label, "step"):
        fall = (step - rise) / max(1, training.steps - rise)
        share = (step + 1) / rise if step < rise else 0.55 + 0.45 * float(np.cos(np.pi * fall))
        for group in optimizer.param_groups:
            group["lr"] = training.rate * share
        yield optimizer
