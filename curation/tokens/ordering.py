# SPDX-License-Identifier: Apache-2.0
"""Seeded orders and splits. The orders and splits look random, and are equal on every machine and in every version of
NumPy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from curation.base.arrays import GOLDEN, split_mix
from curation.base.errors import as_share, near_or_nothing

SPLITS = ("train", "valid", "test")
SPLIT = "split"  # the column of `documents/` with the split's name
HASH_BYTES = 8


def seeded_order(count: int, *seeds: int) -> np.ndarray:
    """Return a permutation of 0 to `count` - 1: int64, shape (count,).

    The permutation depends only on `count` and `seeds`, such as (seed, epoch, shard). Different seeds give unrelated
    orders. Numbers are sorted by a 64-bit hash (SplitMix64), since NumPy's generators may change between versions.
    """
    hashes = split_mix((np.arange(count, dtype=np.uint64) + np.uint64(_mixed(seeds))) * np.uint64(GOLDEN))
    return np.argsort(hashes, kind="stable").astype(np.int64)


def _mixed(numbers: Iterable[int]) -> int:
    data = b"".join(int(number).to_bytes(16, "little", signed=True) for number in numbers)
    return int.from_bytes(hashlib.blake2b(data, digest_size=HASH_BYTES).digest(), "little")


def check_shares(shares: Mapping[str, float]) -> None:
    """Raise ValueError unless `shares` is empty, or has `train`, another split, and shares above 0 with the sum 1."""
    if not shares:
        return
    for name, share in shares.items():
        if name not in SPLITS:
            close = "; did you mean valid?" if name.startswith(("val", "dev")) else near_or_nothing(name, SPLITS)
            raise ValueError(f"splits may name {', '.join(SPLITS)}, not {name!r}{close}")
        if not 0 < share <= 1:
            advice = as_share(share) or "; or leave it out"
            raise ValueError(f"the share of split {name} must be above 0 and at most 1, not {share}{advice}")
    if "train" not in shares or len(shares) == 1:
        raise ValueError("splits must have a share for train and for another split; leave splits out for no split")
    if abs(sum(shares.values()) - 1) > 1e-6:
        total = sum(shares.values())
        raise ValueError(f"the shares of splits must add up to 1, not {total:g}. Change one by {1 - total:g}")


def split_names(shares: Mapping[str, float]) -> list[str]:
    """Return the splits of a run in the order of SPLITS, or [""] without splits."""
    return [name for name in SPLITS if name in shares] or [""]


def assign_splits(texts: Iterable[bytes], shares: Mapping[str, float], seed: int) -> np.ndarray:
    """Return the split of each text: uint8, shape (texts,), its number in `split_names(shares)`.

    texts   UTF-8 bytes
    shares  split -> share, as `check_shares` accepts
    seed    key of the hash, modulo 2^64

    The split depends only on a 64-bit BLAKE2b hash of the text. Equal texts are in the same split, and other documents
    do not change the split of a text.
    """
    key = (seed % 2**64).to_bytes(8, "little")
    hashed = b"".join(hashlib.blake2b(text, digest_size=HASH_BYTES, key=key).digest() for text in texts)
    names = split_names(shares)
    edges = np.cumsum([shares[name] for name in names])[:-1] * 2.0**64
    bounds = np.array([min(int(edge), 2**64 - 1) for edge in edges], np.uint64)
    return np.searchsorted(bounds, np.frombuffer(hashed, "<u8"), side="right").astype(np.uint8)
