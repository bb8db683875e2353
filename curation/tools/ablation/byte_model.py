# SPDX-License-Identifier: Apache-2.0
"""Models of bytes, which tell how well training texts predict others: interpolated modified Kneser-Ney of order 8.

The alphabet of all models is the same 256 bytes, so their bits per byte compare. Models of words do not: each has its
own vocabulary. Counts and logarithms are integers, and probabilities need only operations that IEEE 754 defines
exactly. So equal texts give equal bits on all machines, in any order of the training texts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from curation.base.arrays import text_buffers
from curation.kernels import byte_ngrams as kernel
from curation.models.discounts import FALLBACK, unbounded_discounts

UNITS = 1 << kernel.FRACTION  # of one bit
CHOICES = 256
LEAST = (0.25, 0.5, 0.75)  # discounts of counts of 1, 2, and 3 or more
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class HeldOut(NamedTuple):
    """Texts to predict, sorted once for all models.

    keys   uint64: the keys of their bytes, ascending (`curation.kernels.byte_ngrams`)
    rows   int32: the text of each key
    sizes  int64: the bytes of each text
    """

    keys: np.ndarray
    rows: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, texts: pa.LargeStringArray) -> HeldOut:
        """Return the sorted keys of texts."""
        _, offsets = text_buffers(texts)
        sizes, keys = np.diff(offsets), _keys(texts)
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)[order], sizes)


def _keys(texts: pa.LargeStringArray) -> np.ndarray:
    data, offsets = text_buffers(texts)
    keys = np.empty(int(offsets[-1] - offsets[0]), np.uint64)
    kernel.write_keys(data, offsets, keys)
    return keys


class ByteModel:
    """A model of the bytes of training texts. Memory: about 60 bytes per byte of the texts while it is made."""

    def __init__(self, texts: pa.LargeStringArray) -> None:
        keys = _keys(texts)
        keys.sort()
        arrays = _new_arrays(keys.size)
        self._orders = [_filled(arrays, *kernel.count_keys(keys, *arrays))]
        del keys
        for order in range(kernel.ORDER - 1, 0, -1):
            contexts, starts, symbols, _ = self._orders[-1]
            arrays = _new_arrays(symbols.size)
            sizes = kernel.count_shorter(contexts, starts, symbols, _mask(order), *arrays)
            self._orders.append(_filled(arrays, *sizes))
        self._discounts = [np.array([0.0, *_discounts(counts)]) for *_, counts in self._orders]

    def probabilities(self, keys: np.ndarray) -> np.ndarray:
        """Return the probability (float64) of each byte of sorted keys after the 7 bytes before it."""
        found = np.full(keys.size, 1 / CHOICES)
        for order in range(1, kernel.ORDER + 1):
            arrays, discounts = self._orders[-order], self._discounts[-order]
            kernel.interpolate(*arrays, discounts, _mask(order), keys, found)
        return found

    def bits(self, texts: HeldOut) -> np.ndarray:
        """Return the bits (int64, in UNITS) that each text takes if the model encodes it."""
        bits = np.zeros(texts.sizes.size, np.int64)
        kernel.add_bits(self.probabilities(texts.keys), texts.rows, bits)
        return bits


def _mask(order: int) -> np.uint64:
    """Return the mask of the contexts of n-grams of `order` bytes."""
    return np.uint64((1 << 64) - (1 << 8 * (9 - order))) if order > 1 else np.uint64(0)


def _new_arrays(size: int) -> Arrays:
    """Return arrays for at most `size` n-grams of one order (`curation.kernels.byte_ngrams`)."""
    return np.empty(size, np.uint64), np.empty(size + 1, np.int64), np.empty(size, np.uint8), np.empty(size, np.uint32)


def _filled(arrays: Arrays, number: int, found: int) -> Arrays:
    """Return copies of the used parts of arrays: those of `number` contexts and `found` n-grams."""
    contexts, starts, symbols, counts = arrays
    return contexts[:number].copy(), starts[: number + 1].copy(), symbols[:found].copy(), counts[:found].copy()


def _discounts(counts: np.ndarray) -> tuple[float, ...]:
    """Return the discounts, at least LEAST: copies in the texts make them smaller step by step, while a jump to
    FALLBACK would change the bits of all texts by some percent."""
    found = unbounded_discounts(np.bincount(np.minimum(counts, 5), minlength=6)[:5].tolist())
    return tuple(map(max, found, LEAST)) if found else FALLBACK
