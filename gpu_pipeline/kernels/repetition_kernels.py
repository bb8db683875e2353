# SPDX-License-Identifier: Apache-2.0
"""The CUDA kernel that counts repeated lines and paragraphs, one block per document. Functions here also serve the
kernels of words and n-grams (`word_kernels`, and `long_repetition_kernels` for longer documents).

A table is in shared memory and has slots (uint32): the low bits are an item's position, the high bits are part of its
hash. The item that claims a slot first stands for all items with its hash. Which item is first may differ between runs;
the results do not.

`word_end` is that of `measure_kernels`. Masks (uint32) have a bit per word, in chunks of 32: `repeated` marks n-grams
that repeat, `visited` those that the walk visits, `seen` those that equal an earlier visited n-gram. `firsts` has the
position of the first visited n-gram of each group of equal ones. Positions count from the first word.
"""

import numpy as np

from curation.kernels.hashing import table_mask
from curation.kernels.measures import M
from gpu_pipeline.functions.items import at
from gpu_pipeline.kernels.measure_kernels import lowest_bit

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder

SMALL_SLOTS = 1024  # of tables in shared memory
SMALL_THREADS = 32  # of a block
LANES = 32  # threads of a warp
EMPTY = np.uint32(0xFFFFFFFF)
NOT_VISITED = np.int32(0x7FFFFFFF)
MASKS = 4
WALK_ROUNDS = 64  # then one thread walks
LAST_POSITION = 0xFFFFFFFF
ONE_FIRST = np.int64((1 << 32) + LAST_POSITION)  # one occurrence, at position 0


@cuda.jit(device=True)
def keep_of(items):
    """Return a mask (uint32) of position bits for positions below `items`. The mask has one bit more than these
    positions need, so no slot equals EMPTY."""
    keep = np.uint32(1)
    while np.int64(keep) <= items:
        keep = np.uint32(keep << np.uint32(1) | np.uint32(1))
    return keep


@cuda.jit(device=True)
def claim(slots, mask, keep, hashes, k):
    """Return the item that stands for all items with the hash of item `k`: the first one to claim a slot, so perhaps
    `k` itself."""
    hashed = np.uint64(hashes[at(k)])
    value = np.uint32(np.uint32(hashed >> np.uint64(32)) & ~keep | np.uint32(k))
    slot = np.uint64(hashed & mask)
    other = cuda.atomic.cas(slots, slot, EMPTY, value)
    while other != EMPTY:
        if np.uint32(other ^ value) <= keep and hashes[at(other & keep)] == hashed:
            return np.int64(other & keep)
        slot = np.uint64(slot + np.uint64(1) & mask)
        other = cuda.atomic.cas(slots, slot, EMPTY, value)
    return np.int64(k)


@cuda.jit(device=True)
def clear(array, count, value):
    """Fill the first `count` items; all threads of the block take part, four items each at a time."""
    k, step = np.int64(cuda.threadIdx.x), np.int64(cuda.blockDim.x)
    while k + 3 * step < count:
        array[at(k)] = value
        array[at(k + step)] = value
        array[at(k + 2 * step)] = value
        array[at(k + 3 * step)] = value
        k += 4 * step
    while k < count:
        array[at(k)] = value
        k += step


@cuda.jit(device=True)
def has_bit(mask, k):
    """Whether bit `k` of a mask of 32-bit words is set."""
    return mask[at(k >> 5)] >> np.uint32(k & 31) & np.uint32(1) != np.uint32(0)


@cuda.jit(device=True)
def set_bit(mask, k):
    """Set bit `k` by an atomic operation, which is left out where the bit is set already."""
    bit = np.uint32(1 << (k & 31))
    if mask[at(k >> 5)] & bit == np.uint32(0):
        cuda.atomic.or_(mask, k >> 5, bit)


@cuda.jit(device=True)
def end_before(word_end, base, k):
    """Return the number of visible characters before word `k`."""
    return word_end[at(k - 1)] if k > 0 else base


@cuda.jit(device=True)
def characters_of(word_end, base, first, after):
    """Return the number of characters of the words `first` to `after` - 1."""
    return word_end[at(after - 1)] - end_before(word_end, base, first)


@cuda.jit(device=True)
def covered_from(repeated, n, k):
    """Return the first word of the repeated n-gram at `k` that the repeated n-gram before it does not contain."""
    shift = k & 31
    window = np.uint32(repeated[at(k >> 5)] << np.uint32(32 - shift)) if shift else np.uint32(0)
    if k >= 32:
        window = np.uint32(window | repeated[at((k >> 5) - 1)] >> np.uint32(shift))
    distance = cuda.clz(window) + 1  # to the repeated n-gram before; 33 for none near
    return k + max(0, n - distance)


@cuda.jit(device=True)
def write_tops(words, max_ngram, word_end, base, tops, top_characters, out, row):
    """Write count and characters of the most frequent n-grams. `tops` packs the count above the inverted position."""
    for n in range(2, min(max_ngram, 4) + 1):
        if words >= n:
            count, k = tops[n - 2] >> 32, LAST_POSITION - (tops[n - 2] & LAST_POSITION)
            characters = word_end[at(k + n - 1)] - end_before(word_end, base, k) + n - 1
            out[M.top_2gram_count + n - 2, row] = count
            top_characters[n - 2, row] = count * characters


@cuda.jit(device=True)
def leave_chunk(seen, n, position):
    """Return how many positions of the next chunk the walk skips if it enters this chunk at `position`."""
    while position < 32:
        left = np.uint32(seen & np.uint32(EMPTY << np.uint32(position)))
        if left == np.uint32(0):
            return 0
        position = lowest_bit(left) + n
    return position - 32


@cuda.jit(device=True)
def visited_bits(repeated, seen, n, position):
    """Return a mask of the repeated n-grams that the walk visits in a chunk, if it enters the chunk at `position`."""
    visited = np.uint32(0)
    while position < 32:
        left = np.uint32(EMPTY << np.uint32(position))
        jumps = np.uint32(seen & left)
        if jumps == np.uint32(0):
            return np.uint32(visited | repeated & left)
        jump = lowest_bit(jumps)
        visited = np.uint32(visited | repeated & left & np.uint32((2 << jump) - 1 & 0xFFFFFFFF))
        position = jump + n
    return visited


@cuda.jit(device=True)
def leave_segment(seen, first, end, n, entry):
    """Apply `leave_chunk` to the chunks from `first` to `end`."""
    for c in range(first, end):
        entry = leave_chunk(seen[at(c)], n, entry)
    return entry


@cuda.jit(device=True)
def visit(n, chunks, repeated, seen, visited, functions, entries):
    """Mark the n-grams that the greedy walk visits, if `seen` marks exactly those that equal an earlier visited n-gram.
    Each thread takes a segment of chunks, and finds for each entry of the segment where the walk leaves it, four bits
    per entry. One thread composes these functions. The block must meet at a barrier before `visited` is read or this
    runs again."""
    thread, threads = np.int64(cuda.threadIdx.x), np.int64(cuda.blockDim.x)
    share = (chunks + threads - 1) // threads
    first, end = thread * share, min((thread + 1) * share, chunks)
    any_seen, value = np.uint32(0), np.uint64(0)
    for c in range(first, end):
        any_seen = np.uint32(any_seen | seen[at(c)])
    for begin in range(n if any_seen else 0):
        value |= np.uint64(leave_segment(seen, first, end, n, begin)) << np.uint64(4 * begin)
    functions[thread] = value
    cuda.syncthreads()
    if thread == 0:
        entry = np.int64(0)
        for segment in range((chunks + share - 1) // share):
            entries[segment] = entry
            entry = np.int64(functions[segment] >> np.uint64(4 * entry) & np.uint64(15))
    cuda.syncthreads()
    entry = np.int64(entries[thread]) if first < end else np.int64(0)
    for c in range(first, end):
        visited[at(c)] = visited_bits(repeated[at(c)], seen[at(c)], n, entry)
        entry = leave_chunk(seen[at(c)], n, entry)


@cuda.jit(device=True)
def walk_alone(n, words, word_end, base, groups, firsts, repeated):
    """Return the characters of duplicate n-grams, found by the greedy walk on one thread. `groups` has the group of the
    n-gram at each position."""
    free = characters = 0
    for k in range(words):
        if k >= free and has_bit(repeated, k):
            if firsts[at(groups[at(k)])] < k:
                characters += characters_of(word_end, base, k, k + n)
                free = k + n
            else:
                firsts[at(groups[at(k)])] = k
    return characters


@cuda.jit(device=True)
def count_items(row, items, hashes, lengths, slots, totals, measure, out):
    """Write the number of items that equal an earlier item to `measure`, and their characters to the next measure. An
    item with a negative length is skipped."""
    mask, keep = np.uint64(table_mask(items)), keep_of(items)
    clear(slots, np.int64(mask) + 1, EMPTY)
    if cuda.threadIdx.x == 0:
        totals[0] = 0
        totals[1] = 0
    cuda.syncthreads()
    k = cuda.threadIdx.x
    while k < items:
        if lengths[at(k)] >= 0 and claim(slots, mask, keep, hashes, k) != k:
            cuda.atomic.add(totals, 0, 1)
            cuda.atomic.add(totals, 1, lengths[at(k)])
        k += cuda.blockDim.x
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[measure, row] = totals[0]
        out[measure + 1, row] = totals[1]


@cuda.jit(cache=True)
def repeat_items_small(listed, item_starts, hashes, lengths, measure, out):
    """One block per listed document of up to SMALL_SLOTS / 2 lines or paragraphs."""
    slots = cuda.shared.array(SMALL_SLOTS, types.uint32)
    totals = cuda.shared.array(2, types.int32)
    index = cuda.blockIdx.x
    while index < listed.size:
        row = listed[index]
        first, last = item_starts[row], item_starts[row + 1]
        count_items(row, np.int64(last - first), hashes[first:last], lengths[first:last], slots, totals, measure, out)
        index += cuda.gridDim.x


def _signatures():
    i32, i64, u64 = (kind[::1] for kind in (types.int32, types.int64, types.uint64))
    number, out = types.int64, types.int32[:, ::1]
    items = i64, i64, u64, i32
    return {
        repeat_items_small: (*items, number, out),
    }


SIGNATURES = _signatures()
