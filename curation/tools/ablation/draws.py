# SPDX-License-Identifier: Apache-2.0
"""Chooses the documents of a training text of a given size at random. A draw is such a choice. Its number and the
positions of the documents decide it, by hashes, so every machine draws the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import seeded_hashes
from curation.tools.ablation.documents import sources_of, texts_of

SHUFFLED = 0.3  # share of the words of the positive control that change their places


class Documents:
    """The documents of an arm: `texts`, and `sizes` in bytes, int64."""

    def __init__(self, table: pa.Table) -> None:
        self.texts = texts_of(table)
        self.sizes = np.asarray(pc.binary_length(self.texts).to_numpy(), np.int64)
        self.sources = sources_of(table)

    @property
    def bytes(self) -> int:
        """The bytes of all texts."""
        return int(self.sizes.sum())

    @property
    def bytes_by_source(self) -> dict[str, int]:
        """The bytes of the texts of each source."""
        return {name: int(self.sizes[self.sources == name].sum()) for name in np.unique(self.sources).tolist()}

    def draw(self, number: int, shares: dict[str, int] | None = None, without: np.ndarray | None = None) -> np.ndarray:
        """Return the positions of documents in a random order, that of the draw `number`.

        shares   source -> bytes. Documents with about so many bytes of each source come first, and the others, which a
                 random removal takes out, after them
        without  bool, one per document: those that are left out
        """
        order = np.argsort(seeded_hashes(np.arange(len(self.sizes)), number), kind="stable")
        if without is not None:
            order = order[~without[order]]
        if shares is None:
            return order
        is_left = np.zeros(len(order), bool)
        for name in np.unique(self.sources).tolist():
            at = np.flatnonzero(self.sources[order] == name)
            before = np.cumsum(self.sizes[order[at]]) - self.sizes[order[at]]
            is_left[at] = before < shares.get(name, 0)
        return np.concatenate([order[is_left], order[~is_left]])

    def take(self, order: np.ndarray, size: int) -> pa.LargeStringArray:
        """Return the first texts of an order, of `size` bytes in total; the last one is cut."""
        count = int(np.searchsorted(np.cumsum(self.sizes[order]), size)) + 1
        return first_texts(self.texts.take(pa.array(order[:count])), size)


def first_texts(texts: pa.LargeStringArray, size: int) -> pa.LargeStringArray:
    """Return the first texts, of `size` bytes in total; the last one is cut."""
    ends = np.cumsum(pc.binary_length(texts).to_numpy())
    count = int(np.searchsorted(ends, size)) + 1
    if count > len(texts) or ends[count - 1] == size:
        return texts[:count]
    before = int(ends[count - 2]) if count > 1 else 0
    last = texts[count - 1].as_py().encode()[: size - before].decode(errors="ignore")
    return pa.concat_arrays([texts[: count - 1], pa.array([last], pa.large_string())])


def shuffled(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return the texts with SHUFFLED of the words of each in other places of it: the positive control. Equal texts stay
    equal."""
    return pa.array(map(_shuffled, texts.to_pylist()), pa.large_string())


def _shuffled(text: str) -> str:
    words = np.array(text.split(" "), object)
    hashes = seeded_hashes(np.arange(len(words)), 0)
    chosen = np.flatnonzero(hashes < np.uint64(int(SHUFFLED * 2**64)))
    words[chosen] = words[chosen[np.argsort(seeded_hashes(hashes[chosen], 1), kind="stable")]]
    return " ".join(words.tolist())
