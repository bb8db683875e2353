# SPDX-License-Identifier: Apache-2.0
"""Whole-corpus operations on NumPy arrays: radix sorts and CUDA kernels."""

import cupy as cp
import numpy as np

from curation.base.contract import position_type
from curation.base.engine import load_engine
from curation.kernels.hashing import FMIX_1
from gpu_pipeline.kernels import core
from gpu_pipeline.memory.device import device_errors, memory, warn_of_short_memory

ROWS_AT_ONCE = 1 << 26  # rows per sort: 5 GB on the device
SORTED_BYTES = 80  # per row, with two columns of keys
COMPONENT_BYTES = 32  # per row and per edge
PAIR_BYTES = 1 << 30  # bytes of hashes on the device per batch
BLOCK = 1 << 20  # keys mixed per step, on the host


@device_errors()
def group_leaders(keys: np.ndarray, rank: np.ndarray | None = None, workers: int = 1) -> np.ndarray:
    """More than ROWS_AT_ONCE rows are split into ranges of key hashes, which are sorted one after the other."""
    if len(keys) <= ROWS_AT_ONCE:
        return _first_of_range(keys, rank, workers)
    ranges = -(-2 * len(keys) // ROWS_AT_ONCE)  # half full on average, so random variation does not overfill a range
    number = _range_of(keys, ranges)
    leaders = np.empty(len(keys), position_type(len(keys)))
    for k in range(ranges):
        rows = np.flatnonzero(number == k)
        leaders[rows] = rows[_first_of_range(keys[rows], None if rank is None else rank[rows], workers)]
    return leaders


def _range_of(keys: np.ndarray, ranges: int) -> np.ndarray:
    """Return the range (uint16) of each row; rows with equal keys are in the same range."""
    number = np.empty(len(keys), np.uint16)
    for start in range(0, len(keys), BLOCK):
        mixed = np.zeros(len(keys[start : start + BLOCK]), np.uint64)
        for column in keys[start : start + BLOCK].T:
            mixed = (mixed ^ column) * FMIX_1
            mixed ^= mixed >> np.uint64(32)
        number[start : start + BLOCK] = mixed % np.uint64(ranges)
    return number


def _first_of_range(keys: np.ndarray, rank: np.ndarray | None, workers: int) -> np.ndarray:
    """Return the leaders of the rows of one range. The CPU engine takes a range that does not fit the device, or is too
    large because many rows share a key."""
    if len(keys) <= ROWS_AT_ONCE:
        try:
            with memory().reserve(SORTED_BYTES * len(keys)):
                return _first_on_device(keys, rank)
        except MemoryError:
            warn_of_short_memory()
    return load_engine("cpu").group_leaders(keys, rank, workers)


def _first_on_device(keys: np.ndarray, rank: np.ndarray | None) -> np.ndarray:
    """Return the leader of each row. There is one radix sort per column, the most significant last, since CuPy's
    lexsort is a slower comparison sort."""
    dtype = position_type(len(keys))
    if len(keys) == 0:
        return np.zeros(0, dtype)
    columns = [cp.asarray(np.ascontiguousarray(column)) for column in keys.T]
    order = cp.arange(len(keys)) if rank is None else cp.argsort(cp.asarray(rank), kind="stable")
    for column in columns:
        order = order[cp.argsort(column[order], kind="stable")]
    starts = cp.zeros(len(keys), bool)
    starts[0] = True
    for column in columns:
        ordered = column[order]
        starts[1:] |= ordered[1:] != ordered[:-1]
    leaders = cp.empty(len(keys), np.int64)
    leaders[order] = order[starts][core.prefix_sums(starts, np.int64) - 1]
    return cp.asnumpy(leaders.astype(dtype))


def _common_of_batch(hashes: np.ndarray, offsets: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the number of common hashes of each pair of documents. Only the hashes of these documents are copied to
    the device; adjacent documents share one copy."""
    rows, positions = np.unique(np.concatenate([left, right]), return_inverse=True)
    groups = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    packed = np.concatenate([hashes[offsets[group[0]] : offsets[group[-1] + 1]] for group in groups])
    starts = core.starts_of(offsets[rows + 1] - offsets[rows])
    out = cp.zeros(len(left), np.int64)
    pairs = map(cp.asarray, (packed, starts, positions[: len(left)], positions[len(left) :]))
    core.launch(core.count_common, len(left), *pairs, out)
    return cp.asnumpy(out)


@device_errors()
def intersection_sizes(hashes: np.ndarray, offsets: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    sizes = offsets[left + 1] - offsets[left] + offsets[right + 1] - offsets[right]
    byte_starts = core.starts_of(sizes * core.HASH_BYTES)
    out = np.zeros(len(left), np.int64)
    first = 0
    while first < len(left):
        last = core.batch_end(byte_starts, first, PAIR_BYTES)
        with memory().reserve(int(byte_starts[last] - byte_starts[first])):
            out[first:last] = _common_of_batch(hashes, offsets, left[first:last], right[first:last])
        first = last
    return out


@device_errors()
def connected_components(left: np.ndarray, right: np.ndarray, rows: int) -> np.ndarray:
    """Each round joins components along all edges, then points every row to its root. At least half of the components
    disappear per round. Labels only decrease, so the final label is the smallest row."""
    with memory().reserve(COMPONENT_BYTES * (rows + len(left))):
        label = cp.arange(rows, dtype=np.int64)
        edges = cp.asarray(left, dtype=np.int64), cp.asarray(right, dtype=np.int64)
        changed = cp.ones(1, np.int32)
        while len(left) and int(changed[0]):
            changed[0] = 0
            core.launch(core.join_rows, len(left), *edges, label, changed)
            while (label[label] != label).any():
                label = label[label]
        return cp.asnumpy(label)
