# SPDX-License-Identifier: Apache-2.0
"""Seeded orders and sides: what looks random and is the same on every machine and in every version of NumPy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

SPLITS = ("train", "valid", "test")
HASH_BYTES = 8


def seeded_order(count: int, *seeds: int) -> np.ndarray:
    """A permutation of `count` numbers (int64) that depends on `seeds` alone, as (seed, epoch, shard), and has nothing
    in common with those of others: by a 64-bit hash of each (SplitMix64; NumPy promises no stream across versions)."""
    with np.errstate(over="ignore"):
        x = (np.arange(count, dtype=np.uint64) + np.uint64(_mixed(seeds))) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.argsort(x ^ (x >> np.uint64(31)), kind="stable").astype(np.int64)


def _mixed(numbers: Iterable[int]) -> int:
    data = b"".join(int(number).to_bytes(16, "little", signed=True) for number in numbers)
    return int.from_bytes(hashlib.blake2b(data, digest_size=HASH_BYTES).digest(), "little")


def check_shares(shares: Mapping[str, float]) -> None:
    """ValueError unless `shares` is empty, or names splits with shares above 0 that add up to 1, `train` among them."""
    if not shares:
        return
    for name, share in shares.items():
        if name not in SPLITS:
            raise ValueError(f"splits may name {', '.join(SPLITS)}, not {name!r}")
        if not 0 < share <= 1:
            raise ValueError(f"the share of split {name} must be above 0 and at most 1, not {share}; or leave it out")
    if "train" not in shares or len(shares) == 1:
        raise ValueError("splits must have a share for train and for another side; leave splits out for no split")
    if abs(sum(shares.values()) - 1) > 1e-6:
        raise ValueError(f"the shares of splits must add up to 1, not {sum(shares.values()):g}")


def split_names(shares: Mapping[str, float]) -> list[str]:
    """The splits of a run in their fixed order, whatever the order in the recipe; [""] without any."""
    return [name for name in SPLITS if name in shares] or [""]


def assign_splits(texts: Iterable[bytes], shares: Mapping[str, float], seed: int) -> np.ndarray:
    """The number in `split_names(shares)` of each text's split (uint8).

    By a 64-bit BLAKE2b of the text's UTF-8, keyed by the seed, so that equal texts fall on one side wherever they
    stand, and a document keeps its side when others come or go.
    """
    key = (seed % 2**64).to_bytes(8, "little")
    hashed = b"".join(hashlib.blake2b(text, digest_size=HASH_BYTES, key=key).digest() for text in texts)
    names = split_names(shares)
    edges = np.cumsum([shares[name] for name in names])[:-1] * 2.0**64
    bounds = np.array([min(int(edge), 2**64 - 1) for edge in edges], np.uint64)
    return np.searchsorted(bounds, np.frombuffer(hashed, "<u8"), side="right").astype(np.uint8)
