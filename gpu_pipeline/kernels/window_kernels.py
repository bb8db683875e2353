# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels of the windows of texts (`curation.kernels.spans`), and the functions that lay out their memory.

Windows, strings and anchors of a whole batch are found at once. Prefix sums give the hashes of strings. The least hash
of a window is the least of two sets: whole chunks between its ends, found by doubling, and strings at its ends. The
module imports neither cuDF nor CuPy.
"""

import numpy as np

from curation.kernels.hashing import murmur3_x64_128
from curation.kernels.spans import NODE, hash_node, hash_window
from gpu_pipeline.functions.items import at
from gpu_pipeline.functions.spans import segment_of
from gpu_pipeline.functions.window_strings import (
    CHUNK,
    CHUNK_SHIFT,
    anchor_of,
    are_equal,
    better,
    hash_chunk,
    sum_chunk,
)
from gpu_pipeline.kernels import core

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder


@cuda.jit(cache=True)
def sum_chunks(data, sums):
    """One thread per chunk: writes the chunk's `sum_chunk`."""
    c = np.int64(cuda.grid(1))
    while c < sums.size:
        sums[at(c)] = sum_chunk(data, c)
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def hash_chunks(data, sums, size, values, least):
    """One thread per chunk: writes the hashes of the strings that begin in it, and the position of the least. `sums`
    are prefix sums."""
    c = np.int64(cuda.grid(1))
    while c < least.size:
        least[at(c)] = hash_chunk(data, sums, size, c, values)
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def widen_minima(values, least, step, wider):
    """One thread per chunk: writes the position of the least hash of 2 * `step` chunks, or of all that remain. It reads
    `least`, the positions for `step` chunks."""
    c = np.int64(cuda.grid(1))
    while c < wider.size:
        position = np.int64(least[at(c)])
        if c + step < wider.size:
            position = better(values, position, np.int64(least[at(c + step)]))
        wider[at(c)] = position
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def find_anchors(values, least, step, strings, distances):
    """One thread per window: writes the distance to its anchor, also for a window that does not end in its text."""
    window = np.int64(cuda.grid(1))
    while window < distances.size:
        distances[at(window)] = anchor_of(values, least, step, strings, window) - window
        window += cuda.gridsize(1)


@cuda.jit(cache=True)
def mark_periods(data, offsets, rows, length, values, places, repeated):
    """One thread per anchor: writes whether it repeats the anchor before it in its text. The two hashes must be equal,
    and the bytes of its windows must equal those before them at the distance of the two anchors."""
    k = np.int64(cuda.grid(1))
    while k < repeated.size:
        is_period = False
        if k > 0 and rows[at(k)] == rows[at(k - 1)] and values[at(k)] == values[at(k - 1)]:
            low, before = places[k, 0], places[k, 0] - (places[k, 2] - places[k - 1, 2])
            is_period = before >= offsets[at(rows[at(k)])] and are_equal(data, low, before, places[k, 1] + length - low)
        repeated[at(k)] = is_period
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def hash_anchors(data, places, length, hashes):
    """One thread per anchor: writes the hash of all bytes of its windows."""
    k = np.int64(cuda.grid(1))
    while k < hashes.shape[0]:
        hashes[k, 0], hashes[k, 1] = murmur3_x64_128(data, places[k, 0], places[k, 1] + length)
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def hash_nodes(data, places, starts, length, records, nodes):
    """One thread per node: writes its record and its position. Anchor k has the nodes from starts[k], in the order of
    their windows."""
    k = np.int64(cuda.grid(1))
    while k < records.shape[0]:
        row = segment_of(starts, k)
        low, high, anchor = places[row, 0], places[row, 1], places[row, 2]
        node = (anchor - low) // NODE - (k - starts[at(row)])
        hash_node(data, low, high, anchor, node, length, records, nodes, k)
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def hash_windows(data, places, starts, length, records, windows):
    """One thread per window: writes its hash and its position. Node k has the windows from starts[k]."""
    k = np.int64(cuda.grid(1))
    while k < records.shape[0]:
        row = segment_of(starts, k)
        hash_window(data, places[row, 0] + k - starts[at(row)], length, records, windows, k)
        k += cuda.gridsize(1)


def _signatures():
    i32, i64, u8, u16, u64, mask = (
        kind[::1] for kind in (types.int32, types.int64, types.uint8, types.uint16, types.uint64, types.bool_)
    )
    number, places, records = types.int64, types.int64[:, ::1], types.uint64[:, ::1]
    return {
        sum_chunks: (u8, u64),
        hash_chunks: (u8, u64, number, u64, i32),
        widen_minima: (u64, i32, number, i32),
        find_anchors: (u64, i32, number, number, u16),
        mark_periods: (u8, i64, i64, number, u64, places, mask),
        hash_anchors: (u8, places, number, records),
        hash_nodes: (u8, places, i64, number, records, places),
        hash_windows: (u8, places, i64, number, records, places),
    }


SIGNATURES = _signatures()


def anchor_distances(data, length: int):
    """Return the hash of each string of `length // 2` bytes (uint64), and the distance from each window to its anchor
    (uint16). All texts are treated as one, of `length` bytes or more."""
    size = length // 2
    strings = length - size + 1  # of a window
    sums = core.empty(data, np.uint64, -(-data.size // CHUNK))
    core.launch(sum_chunks, sums.size, data, sums)
    values = core.empty(data, np.uint64, data.size - size + 1)
    least = core.empty(data, np.int32, -(-values.size // CHUNK))
    core.launch(hash_chunks, least.size, data, core.starts_of(sums), size, values, least)
    between, step = ((strings - 1) >> CHUNK_SHIFT) - 1, 1
    while 2 * step <= between:
        wider = core.empty(data, np.int32, least.size)
        core.launch(widen_minima, least.size, values, least, step, wider)
        least, step = wider, 2 * step
    distances = core.empty(data, np.uint16, data.size - length + 1)
    core.launch(find_anchors, distances.size, values, least, step, strings, distances)
    return values, distances
