# SPDX-License-Identifier: Apache-2.0
"""Trains transformers for `--tier gpu`. It has not run on a GPU yet.

The state of a training is stored every SAVE_SECONDS. A training that goes on from it ends with the same weights, bit by
bit on a CPU with as many threads. Nothing is random after the first step but the order of the windows, which the seed
determines. On a GPU, last digits may differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from curation.base.arrays import seeded_hashes
from curation.base.errors import EngineError, IntegrityError
from curation.base.system.damage import FAULTS
from curation.base.system.files import commit, sweep_dead
from curation.base.system.steps import Every, each
from curation.tools.ablation.store import AGAIN
from curation.tools.ablation.transformer import (
    SIZES,
    Size,
    Transformer,
    bits,
    losses,
    make,
    optimizer_of,
    update,
    windows,
)

BYTES_PER_PARAMETER = 20  # of training text (Hoffmann et al. 2022: 20 tokens)
BATCH = 32  # windows per step
SAVE_SECONDS = 60.0
WARM_UP = 0.05  # of the steps
LEAST_RATE = 0.1  # of the learning rate, at the end
AVERAGED, APART = 5, 0.02  # models whose mean is scored, and the part of the steps between two of them


class Settings(NamedTuple):
    """How models of one size are trained: `rate` is the highest learning rate, and `batch` windows are in a step."""

    size: Size
    rate: float
    batch: int = BATCH


# An eighth of the learning rate of OLMo's ladder, 0.0047 (parameters / 108 million)^(-1/3). Small rates rank training
# texts more reliably (arXiv 2512.24503). Not tuned: of 0.0141, 0.0035 and 0.002, the last learned fastest in 160 steps
# of 16 windows of 64 bytes with 4M on a CPU, which are too few to choose by.
LADDER = {
    name: Settings(size, round(0.0047 / 8 * (size.parameters / 108e6) ** (-1 / 3), 4)) for name, size in SIZES.items()
}


class TransformerLearner:
    """Transformers of one size (`curation.tools.ablation.learner`). Each seed has other first weights and another order
    of the windows. `name` and `settings`: of `LADDER`; `device`: of PyTorch."""

    arm_draws, whole_draws, has_stages = 3, 3, False

    def __init__(self, held_out: pa.LargeStringArray, name: str, settings: Settings, device: str) -> None:
        self.name, self._held_out, self._settings, self._device = name, held_out, settings, device
        size = settings.size
        self.plan: dict[str, Any] = {
            "model": f"transformer over bytes, {name}", "parameters": size.parameters, "layers": size.layers,
            "width": size.width, "heads": size.heads, "context": size.context, "batch": settings.batch,
            "learning_rate": settings.rate, "bytes_per_parameter": BYTES_PER_PARAMETER,
            "averaged_checkpoints": AVERAGED,
        }  # fmt: skip

    def bits(self, texts: pa.LargeStringArray, seed: int, state: Path | None) -> np.ndarray:
        """Return the bits that each held-out text takes: see `Learner`."""
        model = train(texts, self._settings, seed, self._device, state)
        found = bits(model, self._held_out)
        if state is not None:
            state.unlink(missing_ok=True)
        return found


def learners(device: str) -> list[tuple[Callable[[pa.LargeStringArray], TransformerLearner], int]]:
    """Return what makes the learner of each size from the held-out texts, and the bytes of its training text."""

    def maker(name: str, settings: Settings) -> Callable[[pa.LargeStringArray], TransformerLearner]:
        return lambda held_out: TransformerLearner(held_out, name, settings, device)

    return [
        (maker(name, settings), BYTES_PER_PARAMETER * settings.size.parameters) for name, settings in LADDER.items()
    ]


def need_cuda() -> str:
    """Return the device of CUDA. EngineError: there is none."""
    if not torch.cuda.is_available():
        raise EngineError("the tier gpu needs a GPU that PyTorch can use; it finds none. Take --tier minutes")
    return "cuda"


def train(texts: pa.LargeStringArray, settings: Settings, seed: int, device: str, state: Path | None) -> Transformer:
    """Return a model of texts, the mean of the last AVERAGED checkpoints.

    seed   of the first weights and of the order of windows
    state  file from which a training goes on, and where it is stored at most every SAVE_SECONDS; None: no file

    Raises IntegrityError if the file is damaged.
    """
    ids = windows(texts, settings.size.context)
    order = np.argsort(seeded_hashes(np.arange(len(ids)), seed), kind="stable")
    steps, model = math.ceil(len(ids) / settings.batch), make(settings.size, seed, device)
    optimizer = optimizer_of(model, settings.rate)
    mean = {name: torch.zeros_like(weights) for name, weights in model.named_parameters()}
    saved = {"model": model.state_dict(), "mean": mean}
    chosen = _chosen_steps(steps)
    first = _resume(state, model, optimizer, mean) if state is not None else 0
    model.train()
    clock = Every(SAVE_SECONDS)
    if state is not None:
        sweep_dead(state)
    for step in each(range(first, steps), f"training a model of {settings.size.parameters:,} parameters", "step"):
        batch = torch.from_numpy(ids[order[step * settings.batch : (step + 1) * settings.batch]].astype(np.int64))
        optimizer.param_groups[0]["lr"] = settings.rate * rate_at(step, steps)
        with torch.autocast(device, torch.bfloat16, enabled=device != "cpu"):
            loss = losses(model, batch.to(device)).mean()
        update(model, optimizer, loss)
        if step in chosen:
            for name, weights in model.named_parameters():
                mean[name].lerp_(weights.detach(), 1 / (chosen.index(step) + 1))
        if state is not None and clock.is_due():
            with commit(state) as temporary:
                torch.save(saved | {"optimizer": optimizer.state_dict(), "step": step + 1}, temporary)
    model.load_state_dict(mean)
    return model


def rate_at(step: int, steps: int) -> float:
    """Return the learning rate of a step, as a share of the highest: linear warm-up, then a half cosine."""
    warm_up = max(1, round(WARM_UP * steps))
    if step < warm_up:
        return (step + 1) / warm_up
    share = (step - warm_up) / max(1, steps - warm_up)
    return LEAST_RATE + (1 - LEAST_RATE) * (1 + math.cos(math.pi * share)) / 2


def _chosen_steps(steps: int) -> list[int]:
    """Return the steps after which the weights are added to the mean, ascending."""
    apart = max(1, round(APART * steps))
    return [step for k in reversed(range(AVERAGED)) if (step := steps - 1 - k * apart) >= 0]


def _resume(state: Path, model: Transformer, optimizer: torch.optim.Optimizer, mean: dict[str, torch.Tensor]) -> int:
    """Restore a stored training, if there is one, and return its next step."""
    if not state.is_file():
        return 0
    try:
        found = torch.load(state, map_location="cpu", weights_only=True)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        for name, weights in found["mean"].items():
            mean[name].copy_(weights)
        return int(found["step"])
    except FAULTS as error:
        fault = " ".join(str(error).split())[:100]
        raise IntegrityError(f"{state} is damaged: {fault}. {AGAIN}") from None
