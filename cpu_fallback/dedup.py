# SPDX-License-Identifier: Apache-2.0
"""Whole-corpus operations on plain arrays."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cpu_fallback.kernels import count_common, count_keys, find_leaders, join_rows
from curation.contract import position_type

KEYS_PER_THREAD = 1 << 20  # of fewer, the table is in the cache, and hashing the others' keys costs more


def group_leaders(keys: np.ndarray, rank: np.ndarray | None = None, workers: int = 1) -> np.ndarray:
    # Tables of row numbers: 10 bytes per row with the result, where sorting takes 40 and four times as long.
    dtype = np.dtype(position_type(len(keys)))
    ranks = np.zeros(0, np.int64) if rank is None else rank
    leaders = np.empty(len(keys), f"u{dtype.name}")  # slots first, of which there may be more than rows

    def find(part: int, parts: int) -> None:
        count = len(keys) if parts == 1 else count_keys(keys, part, parts)
        slots = np.full(count + count // 2 + 1, -1, dtype)
        find_leaders(keys, ranks, part, parts, slots, leaders)

    parts = min(workers, len(keys) // KEYS_PER_THREAD + 1)
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(find, range(parts), [parts] * parts))
    return leaders.view(dtype)


def intersection_sizes(hashes: np.ndarray, offsets: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    out = np.empty(len(left), np.int64)
    count_common(hashes, offsets, left, right, out)
    return out


def connected_components(left: np.ndarray, right: np.ndarray, rows: int) -> np.ndarray:
    label = np.arange(rows)
    join_rows(left, right, label)
    return label
