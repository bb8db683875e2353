# SPDX-License-Identifier: Apache-2.0
"""Whole-corpus operations on NumPy arrays: hash tables and loops."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cpu_fallback.kernels import count_common, find_leaders, find_partitions, join_rows
from curation.base.contract import position_type

KEYS_PER_THREAD = 1 << 20  # a table of fewer keys fits the cache
MAX_PARTITIONS = 1 << 8


def group_leaders(keys: np.ndarray, rank: np.ndarray | None = None, workers: int = 1) -> np.ndarray:
    # A hash table of row numbers takes 10 bytes per row with the result; sorting takes 40 bytes and four times as long.
    partitions = min(workers, len(keys) // KEYS_PER_THREAD + 1, MAX_PARTITIONS)
    ranks = np.zeros(0, np.int64) if rank is None else rank
    if partitions == 1:
        return _leaders(keys, ranks)
    # With several threads, each key is hashed once to find its partition, and each thread takes the keys of one
    # partition.
    number = np.empty(len(keys), np.uint8)
    batches = [slice(start, start + KEYS_PER_THREAD) for start in range(0, len(keys), KEYS_PER_THREAD)]
    leaders = np.empty(len(keys), position_type(len(keys)))

    def find(rows: np.ndarray) -> None:
        leaders[rows] = rows[_leaders(keys[rows], ranks[rows] if len(ranks) else ranks)]

    with ThreadPoolExecutor(partitions) as pool:
        list(pool.map(lambda batch: find_partitions(keys[batch], partitions, number[batch]), batches))
        order = np.argsort(number, kind="stable").astype(leaders.dtype, copy=False)  # a radix sort
        ends = np.cumsum(np.bincount(number, minlength=partitions))
        list(pool.map(find, np.split(order, ends[:-1])))
    return leaders


def _leaders(keys: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    dtype = np.dtype(position_type(len(keys)))
    slots = np.full(len(keys) + len(keys) // 2 + 1, -1, dtype)
    leaders = np.empty(len(keys), f"u{dtype.name}")  # first has slot numbers, which may exceed the number of rows
    find_leaders(keys, ranks, slots, leaders)
    return leaders.view(dtype)


def intersection_sizes(hashes: np.ndarray, offsets: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    out = np.empty(len(left), np.int64)
    count_common(hashes, offsets, left, right, out)
    return out


def connected_components(left: np.ndarray, right: np.ndarray, rows: int) -> np.ndarray:
    label = np.arange(rows)
    join_rows(left, right, label)
    return label
