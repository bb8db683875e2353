# SPDX-License-Identifier: Apache-2.0
"""Whole-corpus operations on NumPy arrays: hash tables and loops."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cpu_fallback.kernels import count_common, count_keys, find_leaders, join_rows
from curation.contract import position_type

KEYS_PER_THREAD = 1 << 20  # the table of fewer keys fits the cache; each thread hashes all keys, which costs more


def group_leaders(keys: np.ndarray, rank: np.ndarray | None = None, workers: int = 1) -> np.ndarray:
    # A hash table of row numbers takes 10 bytes per row with the result; sorting takes 40 bytes and four times as long.
    dtype = np.dtype(position_type(len(keys)))
    ranks = np.zeros(0, np.int64) if rank is None else rank
    leaders = np.empty(len(keys), f"u{dtype.name}")  # holds slots first, which may outnumber the rows

    def find(partition: int, partitions: int) -> None:
        count = len(keys) if partitions == 1 else count_keys(keys, partition, partitions)
        slots = np.full(count + count // 2 + 1, -1, dtype)
        find_leaders(keys, ranks, partition, partitions, slots, leaders)

    partitions = min(workers, len(keys) // KEYS_PER_THREAD + 1)
    with ThreadPoolExecutor(partitions) as pool:
        list(pool.map(find, range(partitions), [partitions] * partitions))
    return leaders.view(dtype)


def intersection_sizes(hashes: np.ndarray, offsets: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    out = np.empty(len(left), np.int64)
    count_common(hashes, offsets, left, right, out)
    return out


def connected_components(left: np.ndarray, right: np.ndarray, rows: int) -> np.ndarray:
    label = np.arange(rows)
    join_rows(left, right, label)
    return label
