# SPDX-License-Identifier: Apache-2.0
"""Hashes are sorted whatever their number is, and however uneven they are."""

import numpy as np
import pytest

from cpu_fallback.kernels import MAX_BUCKET, sort_hashes

SIZES = (0, 1, 2, 3, 8, 9, 100, MAX_BUCKET, MAX_BUCKET + 1, 1000, 200_000)


@pytest.mark.parametrize("kind", ["even", "equal", "repeated", "low bits", "a few high bits", "sorted", "backward"])
def test_hashes_are_sorted(kind: str):
    dice = np.random.default_rng(5)
    buckets = np.full(1 << 16, 7, np.int64)
    for size in SIZES:
        even = dice.integers(0, 2**64, size, np.uint64)
        hashes = {
            "even": even,
            "equal": np.full(size, 2**63, np.uint64),
            "repeated": even[dice.integers(0, size // 3 + 1, size)] if size else even,
            "low bits": even >> np.uint64(50),
            "a few high bits": even | np.uint64(0xFFF0 << 48),
            "sorted": np.sort(even),
            "backward": np.sort(even)[::-1].copy(),
        }[kind]
        expected = np.sort(hashes)
        sort_hashes(hashes, np.empty(size, np.uint64), buckets)
        assert (hashes == expected).all(), size
