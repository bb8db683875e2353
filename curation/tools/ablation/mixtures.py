# SPDX-License-Identifier: Apache-2.0
"""Training texts that are mixed by weights over domains, and the bits of held-out texts under models of them.

A model sees much less text than the mixture that the weights are for. So each draw takes from a domain only as large a
share of its text as a model has of the mixture. Then a weight repeats documents in a model as often as in the mixture.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.tools.ablation.byte_model import UNITS, ByteModel, HeldOut
from curation.tools.ablation.draws import Documents, first_texts

LEAST = 1e-6  # weight: other weights are multiples of it
DRAWS = 1000  # per seed


class Mixtures:
    """Mixtures of domains.

    sizes   int64[domains]: bytes of the text of each domain
    budget  bytes of the training text of a model
    caps    float64[domains]: the largest weight of each domain, at which its text is repeated `max_epochs` times in a
            mixture of `final` bytes
    proportional, uniform    float64[domains]: weights by size, and equal weights, both within the caps
    """

    def __init__(
        self, tables: list[pa.Table], sizes: np.ndarray, *, budget: int, final: int, max_epochs: int, seed: int,
        held_out: HeldOut,
    ) -> None:  # fmt: skip
        self.sizes, self.budget, self.final, self.seed, self.held_out = sizes, budget, final, seed, held_out
        self._documents = [Documents(table) for table in tables]
        self._window = lru_cache(len(tables))(self._new_window)
        self.caps = np.minimum(1.0, max_epochs * sizes / final)
        self.proportional = capped(sizes / sizes.sum(), self.caps)
        self.uniform = capped(np.ones(len(sizes)), self.caps)

    def text(self, amounts: np.ndarray, draw: int) -> pa.LargeStringArray:
        """Return a training text with so many bytes of each domain (int64), from the draw `draw`."""
        parts = []
        for number, amount in enumerate(amounts.tolist()):
            window, size = self._window(number, draw)
            parts += [window] * (amount // size) + [first_texts(window, amount % size)]
        return pa.concat_arrays(parts)

    def bits(self, amounts: np.ndarray, draw: int) -> np.ndarray:
        """Return the bits (float64) of the held-out texts under a model of such a text."""
        return ByteModel(self.text(amounts, draw)).bits(self.held_out) / UNITS

    def amounts(self, weights: np.ndarray, part: float = 1.0) -> np.ndarray:
        """Return the bytes of each domain in a part of the budget (int64)."""
        return np.asarray(weights * (self.budget * part), np.int64)

    def within_caps(self, weights: np.ndarray) -> np.ndarray:
        """Return weights with a sum of 1, none above its cap."""
        return capped(weights, self.caps)

    def epochs(self, weights: np.ndarray) -> np.ndarray:
        """Return how often the text of each domain is in the final mixture (float64)."""
        return weights * self.final / self.sizes

    def _new_window(self, number: int, draw: int) -> tuple[pa.LargeStringArray, int]:
        """Return the documents that a draw takes from a domain, and their bytes."""
        documents = self._documents[number]
        share = min(1.0, self.budget / self.final)
        order = documents.draw(self.seed * DRAWS + draw)
        texts = documents.take(order, max(1, int(self.sizes[number] * share)))
        return texts, int(pc.sum(pc.binary_length(texts)).as_py())


def capped(weights: np.ndarray, caps: np.ndarray) -> np.ndarray:
    """Return weights (float64[..., domains]) with a sum of 1 that are not above the caps, which add up to 1 or more.
    The others get the excess by their weights, as in `mix` with `max_epochs`. Weights are multiples of LEAST."""
    weights = np.maximum(weights, LEAST)
    full = np.zeros(weights.shape, bool)
    for _ in caps:
        others = np.where(full, 0, weights)
        total = others.sum(axis=-1, keepdims=True)
        left = 1 - np.where(full, caps, 0).sum(axis=-1, keepdims=True)
        found = np.where(full, caps, others * (left / np.where(total, total, 1)))
        if not (found > caps).any():
            break
        full |= found > caps
    return np.asarray(np.round(found / LEAST) * LEAST)
