# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels that tokenise, and the functions that lay out their memory.

Work is divided by bytes, words of 32 bytes, pre-tokens and documents. A pre-token that is no token of the vocabulary is
encoded by merges of pairs. One thread does this up to SHORT_BYTES, one warp up to MERGED_BYTES, and the host beyond.
The module imports neither cuDF nor CuPy. The layout functions take NumPy and CuPy arrays.
"""

from typing import Any, NamedTuple

import numba
import numpy as np

from curation.kernels.bpe import MISSING, NO_PAIR, TokenTable, find_pair, find_token, merge_pairs
from curation.kernels.expressions import GPT2, LLAMA3, O200K
from gpu_pipeline.functions.case_pretokens import STATES, case_word, o200k_starts
from gpu_pipeline.functions.items import at
from gpu_pipeline.functions.pretokens import (
    Runs,
    bits_between,
    cl100k_starts,
    class_bits,
    count_bits,
    count_runs,
    gpt2_starts,
    lowest_bit,
)
from gpu_pipeline.kernels import core

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder

SHORT_BYTES = 32  # a thread needs 10,000 instructions for a pre-token of this size
MERGED_BYTES = 512
POSITION_BITS = 9  # of a byte in such a pre-token
WARP = 32
THREADS = core.THREADS
WARPS = THREADS // WARP
SHORT_SLOTS, LONG_SLOTS = THREADS * SHORT_BYTES, WARPS * MERGED_BYTES  # of the blocks' scratch
ALL_LANES = 0xFFFFFFFF
NO_ID = -1


@cuda.jit(cache=True)
def mark_classes(data, blocks, origin, pages, classes, low, middle, high, leads):
    """One thread per eight bytes: writes eight bits of each plane of `gpu_pipeline.functions.pretokens`."""
    k = cuda.grid(1)
    while k < leads.size:
        i = origin + 8 * k
        lows, middles, highs, lead = 0, 0, 0, 0
        if i < data.size:
            lows, middles, highs, lead = class_bits(data, blocks, i, pages, classes)
        low[at(k)], middle[at(k)], high[at(k)], leads[at(k)] = lows, middles, highs, lead
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def mark_runs(low, middle, high, leads, borders, starts, filled, counts):
    """One thread per word: writes `Runs.starts`, whether the word has a start, and the word's own part of
    `Runs.counts`."""
    c = cuda.grid(1)
    while c < starts.size:
        bits, counts[at(c)] = count_runs(low, middle, high, leads, borders, c)
        starts[at(c)] = bits
        filled[at(c)] = bits != np.uint32(0)
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def mark_gpt2(data, low, middle, high, leads, borders, origin, start, end, starts, counts):
    """One thread per word: sets a bit for each first byte of a pre-token, and counts these bits."""
    c = cuda.grid(1)
    while c < starts.size:
        firsts = gpt2_starts(data, low, middle, high, leads, borders, origin, end, c)
        firsts &= bits_between(origin + 32 * c, start, end)
        starts[at(c)] = firsts
        counts[at(c)] = count_bits(np.uint64(firsts))
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def mark_cl100k(
    data, low, middle, high, leads, borders, origin, start, end, run_starts, ranks, jumps, run_counts, to_end, starts,
    counts,
):  # fmt: skip
    """Sets and counts bits as `mark_gpt2` does, for the expressions of cl100k (`to_end`) and Llama-3."""
    c = cuda.grid(1)
    runs = Runs(run_starts, ranks, jumps, run_counts)
    while c < starts.size:
        firsts = cl100k_starts(data, low, middle, high, leads, borders, origin, end, runs, to_end, c)
        firsts &= bits_between(origin + 32 * c, start, end)
        starts[at(c)] = firsts
        counts[at(c)] = count_bits(np.uint64(firsts))
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def mark_cases(data, low, middle, high, leads, borders, origin, end, starts, filled, counts, functions):
    """Writes runs as `mark_runs` does, for the expression of o200k, and the function of each word."""
    c = cuda.grid(1)
    while c < starts.size:
        runs, function = case_word(low, middle, high, leads, borders, c, data, origin + 32 * c - 16, end)
        starts[at(c)], counts[at(c)] = runs
        filled[at(c)] = runs[0] != np.uint32(0)
        functions[at(c)] = function
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def mark_o200k(
    data, low, middle, high, leads, borders, origin, start, end, run_starts, ranks, jumps, run_counts, entries, starts,
    counts,
):  # fmt: skip
    """Sets and counts bits as `mark_gpt2` does, for the expression of o200k. `entries` has the state in which the walk
    enters each word."""
    c = cuda.grid(1)
    runs = Runs(run_starts, ranks, jumps, run_counts)
    while c < starts.size:
        entry = np.int64(entries[at(c)])
        firsts = o200k_starts(data, low, middle, high, leads, borders, origin, end, runs, entry, c)
        firsts &= bits_between(origin + 32 * c, start, end)
        starts[at(c)] = firsts
        counts[at(c)] = count_bits(np.uint64(firsts))
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def place_pieces(starts, ranks, positions):
    """One thread per word: writes the first bytes of its pre-tokens, counted from byte `origin`."""
    c = cuda.grid(1)
    while c < starts.size:
        bits = np.uint64(starts[at(c)])
        k = ranks[at(c)]
        while bits:
            positions[at(k)] = 32 * c + lowest_bit(bits)
            bits &= bits - np.uint64(1)
            k += 1
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def find_ids(data, blocks, origin, positions, keys, token_ids, token_data, token_offsets, longest, ids):
    """One thread per pre-token: writes its id, or MISSING if it is no token."""
    k = cuda.grid(1)
    tokens = TokenTable(keys, token_ids, token_data, token_offsets, longest)
    while k < ids.size:
        start, end = origin + np.int64(positions[at(k)]), origin + np.int64(positions[at(k + 1)])
        ids[at(k)] = find_token(data, blocks, start, end, tokens)
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def merge_short(data, origin, positions, missing, numbers, pool_starts, byte_ids, pairs, pool, counts):
    """One thread per pre-token of `numbers`, each of at most SHORT_BYTES: writes its ids to the pool, and their
    number."""
    ids = cuda.shared.array(SHORT_SLOTS, numba.int32)
    merges = cuda.shared.array(SHORT_SLOTS, numba.int32)
    lane = cuda.threadIdx.x
    j = cuda.grid(1)
    while j < numbers.size:
        number = numbers[j]
        k = missing[number]
        start, size = origin + np.int64(positions[k]), np.int64(positions[k + 1] - positions[k])
        count = merge_pairs(data, start, size, byte_ids, pairs, ids, merges, lane, THREADS)
        counts[number] = count
        for i in range(count):
            pool[pool_starts[number] + i] = ids[lane + i * THREADS]
        j += cuda.gridsize(1)


@cuda.jit(cache=True)
def merge_long(data, origin, positions, missing, numbers, pool_starts, byte_ids, pairs, pool, counts):
    """One warp per pre-token of at most MERGED_BYTES: writes its ids and their number, as `merge_short` does.

    Ids form a linked list over the bytes. The pairs of a lane are WARP bytes apart; the lane keeps the least of them as
    (merged id, byte). The least pair of all lanes is merged. Then only lanes with a changed pair search for their least
    pair again.
    """
    ids = cuda.shared.array(LONG_SLOTS, numba.int32)
    merges = cuda.shared.array(LONG_SLOTS, numba.int32)
    following = cuda.shared.array(LONG_SLOTS, numba.int32)
    preceding = cuda.shared.array(LONG_SLOTS, numba.int32)
    lane = cuda.threadIdx.x % WARP
    base = cuda.threadIdx.x // WARP * MERGED_BYTES
    j = cuda.grid(1) // WARP
    while j < numbers.size:
        number = numbers[j]
        k = missing[number]
        start, size = origin + np.int64(positions[k]), np.int32(positions[k + 1] - positions[k])
        i = lane
        while i < size:
            ids[base + i] = byte_ids[at(data[at(start + i)])]
            following[base + i], preceding[base + i] = i + 1, i - 1
            i += WARP
        cuda.syncwarp()
        least = np.int32(NO_PAIR)
        i = lane
        while i < size:
            merged = np.int32(NO_PAIR)
            if i + 1 < size:
                merged = find_pair(pairs, ids[base + i], ids[base + i + 1])
                if merged != NO_PAIR:
                    least = min(least, np.int32(merged << POSITION_BITS | i))
            merges[base + i] = merged
            i += WARP
        count = size
        while True:
            best = least
            for distance in (16, 8, 4, 2, 1):
                best = min(best, np.int32(cuda.shfl_xor_sync(ALL_LANES, best, distance)))
            if best == NO_PAIR:
                break
            left = best & (MERGED_BYTES - 1)
            right = following[base + left]
            after, before = following[base + right], preceding[base + left]
            cuda.syncwarp()
            if lane == 0:
                ids[base + left] = best >> POSITION_BITS
                following[base + left] = after
                merges[base + right] = NO_PAIR
                if after < size:
                    preceding[base + after] = left
            cuda.syncwarp()
            if lane == 0:
                merged = np.int32(NO_PAIR)
                if after < size:
                    merged = find_pair(pairs, ids[base + left], ids[base + after])
                merges[base + left] = merged
            elif lane == 1 and before >= 0:
                merges[base + before] = find_pair(pairs, ids[base + before], ids[base + left])
            cuda.syncwarp()
            if lane == left % WARP or lane == right % WARP or (before >= 0 and lane == before % WARP):
                least = np.int32(NO_PAIR)
                i = lane
                while i < size:
                    merged = merges[base + i]
                    if merged != NO_PAIR:
                        least = min(least, np.int32(merged << POSITION_BITS | i))
                    i += WARP
            count -= 1
        if lane == 0:
            counts[number] = count
            i = np.int32(0)
            o = pool_starts[number]
            while i < size:
                pool[o] = ids[base + i]
                i = following[base + i]
                o += 1
        cuda.syncwarp()
        j += cuda.gridsize(1) // WARP


@cuda.jit(cache=True)
def add_special_ids(pieces, bos, eod, counts):
    """One thread per document: counts one more id at its first and last pre-token for each special token."""
    row = cuda.grid(1)
    if row < pieces.size - 1 and pieces[row] < pieces[row + 1]:
        if bos != NO_ID:
            counts[at(pieces[row])] += 1
        if eod != NO_ID:
            counts[at(pieces[row + 1] - 1)] += 1


@cuda.jit(cache=True)
def gather_ids(ids, starts, positions, borders, bos, pool_starts, pool, pool_counts, out):
    """One thread per pre-token: copies its ids to their positions in `out`, after the special id of the document's
    start. A negative id -1 - j is the missing pre-token j, whose ids are in the pool. The host later writes the ids
    that it made itself."""
    k = cuda.grid(1)
    while k < ids.size:
        o = starts[at(k)]
        i = positions[at(k)]
        if bos != NO_ID and borders[at(i >> 5)] & np.uint32(1 << (i & 31)):
            out[at(o)] = bos
            o += 1
        number = ids[at(k)]
        if number >= 0:
            out[at(o)] = number
        else:
            first = pool_starts[at(-1 - number)]
            for n in range(pool_counts[at(-1 - number)]):
                out[at(o + n)] = pool[at(first + n)]
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def end_documents(pieces, starts, eod, out, lengths):
    """One thread per document: writes its number of ids, and the special id at its end."""
    row = cuda.grid(1)
    if row < lengths.size:
        first, last = starts[pieces[row]], starts[pieces[row + 1]]
        lengths[row] = last - first
        if eod != NO_ID and first < last:
            out[last - 1] = eod


def _signatures():
    i32, i64, u8, u16, u32, u64, mask = (
        kind[::1]
        for kind in (types.int32, types.int64, types.uint8, types.uint16, types.uint32, types.uint64, types.bool_)
    )
    number, flag = types.int64, types.bool_
    planes = (u32,) * 5
    merged = u8, number, i32, i64, i64, i64, i32, u64, i32, i32
    return {
        mark_classes: (u8, u64, number, u16, u8, *[u8] * 4),
        mark_runs: (*planes, u32, mask, i64),
        mark_gpt2: (u8, *planes, *[number] * 3, u32, i64),
        mark_cl100k: (u8, *planes, *[number] * 3, u32, i32, i32, i64, flag, u32, i64),
        mark_cases: (u8, *planes, number, number, u32, mask, i64, u64),
        mark_o200k: (u8, *planes, *[number] * 3, u32, i32, i32, i64, i32, u32, i64),
        place_pieces: (u32, i64, i32),
        find_ids: (u8, u64, number, i32, u64, i32, u8, i32, number, i32),
        merge_short: merged,
        merge_long: merged,
        add_special_ids: (i64, number, number, i32),
        gather_ids: (i32, i64, i32, u32, number, i64, i32, i32, i32),
        end_documents: (i64, i64, number, i32, i64),
    }  # fmt: skip


SIGNATURES = _signatures()


class Pieces(NamedTuple):
    """The pre-tokens of a batch of documents."""

    origin: int  # positions count from this byte
    positions: Any  # int32, pre-tokens + 1: first bytes, and the end of the last
    borders: Any  # uint32 per 32 bytes: a bit for the first byte of each document
    rows: Any  # int64, documents + 1: pre-tokens before each


def _empty_runs(borders):
    size = borders.size
    starts, filled = core.empty(borders, np.uint32, size), core.empty(borders, bool, size)
    return starts, filled, core.empty(borders, np.int64, size)


def _runs_of(starts, filled, counts) -> Runs:
    jumps = filled.nonzero()[0].astype(np.int32)
    return Runs(starts, core.starts_of(filled.astype(np.int32)).astype(np.int32), jumps, core.starts_of(counts))


def find_pieces(data, blocks, offsets, pattern: int, pages, classes) -> Pieces:
    """Find the pre-tokens of documents of less than 2^31 bytes together; `blocks` is `data` as uint64."""
    start, end = int(offsets[0]), int(offsets[-1])
    origin, borders = core.find_borders(offsets)
    size = borders.size
    planes = [core.empty(offsets, np.uint32, size) for _ in range(4)]
    halves = [plane.view(np.uint8) for plane in planes]
    core.launch_shared(mark_classes, 4 * size, data, blocks, origin, pages, classes, *halves)
    starts, counts = core.empty(offsets, np.uint32, size), core.empty(offsets, np.int64, size)
    bounds = origin, start, end
    if pattern == GPT2:
        core.launch_shared(mark_gpt2, size, data, *planes, borders, *bounds, starts, counts)
    elif pattern == O200K:
        run_arrays, functions = _empty_runs(borders), core.empty(borders, np.uint64, size)
        core.launch_shared(mark_cases, size, data, *planes, borders, origin, end, *run_arrays, functions)
        runs, entries = _runs_of(*run_arrays), core.entries_of(STATES, functions)
        core.launch_shared(mark_o200k, size, data, *planes, borders, *bounds, *runs, entries, starts, counts)
    else:
        run_arrays = _empty_runs(borders)
        core.launch_shared(mark_runs, size, *planes, borders, *run_arrays)
        runs = _runs_of(*run_arrays)
        to_end = pattern != LLAMA3
        core.launch_shared(mark_cl100k, size, data, *planes, borders, *bounds, *runs, to_end, starts, counts)
    del planes, halves
    ranks = core.starts_of(counts)
    positions = core.empty(offsets, np.int32, int(ranks[-1]) + 1)
    positions[-1] = end - origin
    core.launch_shared(place_pieces, size, starts, ranks, positions)
    rows = core.empty(offsets, np.int64, offsets.size)
    core.launch(core.rank_rows, offsets.size, offsets, origin, starts, ranks, rows)
    return Pieces(origin, positions, borders, rows)


__all__ = ["MERGED_BYTES", "MISSING", "NO_ID", "SHORT_BYTES", "SIGNATURES", "Pieces", "find_pieces"]
