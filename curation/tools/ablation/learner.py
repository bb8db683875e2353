# SPDX-License-Identifier: Apache-2.0
"""What an ablation needs of a kind of model, and the models of the tiers `seconds` and `minutes`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from curation.tools.ablation.byte_model import UNITS, ByteModel, HeldOut


class Learner(Protocol):
    """Trains models on texts, and scores the held-out texts that it was made with.

    name        of the models
    plan        what is fixed about them, for the plan
    arm_draws   models of the smaller arm; their mean is compared
    whole_draws models of the larger arm without a removal
    has_stages  whether stages and parts of the budget are judged too
    """

    name: str
    plan: dict[str, Any]
    arm_draws: int
    whole_draws: int
    has_stages: bool

    def bits(self, texts: pa.LargeStringArray, seed: int, state: Path | None) -> np.ndarray:
        """Return the bits (float64) that each held-out text takes under a model of `texts`. `seed` determines what is
        random in the training; `state` is a path where the training may store where it is."""
        ...


class ByteLearner:
    """Models of `ByteModel`: nothing is random, and the order of texts does not matter."""

    name = "bytes"
    arm_draws, whole_draws, has_stages = 2, 1, True

    def __init__(self, held_out: pa.LargeStringArray) -> None:
        self.plan: dict[str, Any] = {"model": "modified Kneser-Ney over bytes, order 8"}
        self._held_out = HeldOut.of(held_out)

    def bits(self, texts: pa.LargeStringArray, seed: int, state: Path | None) -> np.ndarray:
        """Return the bits that each held-out text takes: see `Learner`."""
        return ByteModel(texts).bits(self._held_out) / UNITS
