# SPDX-License-Identifier: Apache-2.0
"""Whole-corpus operations on plain arrays, each share of them in a thread of its own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cpu_fallback.kernels import count_common, count_keys, find_leaders, join_rows
from curation.contract import position_type

KEYS_PER_THREAD = 1 << 20  # of fewer, the table is in the cache, and hashing the others' keys costs more
PAIRS_PER_THREAD = 1 << 12


def _in_threads(function: Callable[[int, int], None], parts: int) -> None:
    """Calls function(part, parts) for all parts."""
    if parts == 1:
        function(0, 1)
        return
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(function, range(parts), [parts] * parts))


def first_of_group(keys: np.ndarray, rank: np.ndarray | None = None, workers: int = 1) -> np.ndarray:
    # Tables of row numbers: 10 bytes per row with the result, where sorting takes 40 and four times as long.
    dtype = np.dtype(position_type(len(keys)))
    ranks = np.zeros(0, np.int64) if rank is None else rank
    leaders = np.empty(len(keys), f"u{dtype.name}")  # slots first, of which there may be more than rows

    def find(part: int, parts: int) -> None:
        count = len(keys) if parts == 1 else count_keys(keys, part, parts)
        slots = np.full(count + count // 2 + 1, -1, dtype)
        find_leaders(keys, ranks, part, parts, slots, leaders)

    _in_threads(find, min(workers, len(keys) // KEYS_PER_THREAD + 1))
    return leaders.view(dtype)


def overlap(
    hashes: np.ndarray, offsets: np.ndarray, left: np.ndarray, right: np.ndarray, workers: int = 1
) -> np.ndarray:
    out = np.empty(len(left), np.int64)

    def count(part: int, parts: int) -> None:
        pairs = slice(len(left) * part // parts, len(left) * (part + 1) // parts)
        count_common(hashes, offsets, left[pairs], right[pairs], out[pairs])

    _in_threads(count, min(workers, len(left) // PAIRS_PER_THREAD + 1))
    return out


def connected(left: np.ndarray, right: np.ndarray, rows: int) -> np.ndarray:
    label = np.arange(rows)
    join_rows(left, right, label)
    return label
