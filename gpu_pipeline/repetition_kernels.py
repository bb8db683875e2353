# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels of the measures of repetition: one block per document, its threads take words, n-grams or lines.

A table has a slot (uint32) per item at most: the item's position, and bits of its hash above it. The item that claims a
slot first stands for all items of its hash; which one is first differs between runs, results do not. Tables of short
documents are in shared memory.

Arrays of a batch, per word: `word_hash`, `word_end` of `measure_kernels`; `level_hash` (uint64), the hash of the n-gram
that starts there; `group` (int32), the position that stands for this n-gram; `firsts` (int32), of a group the number of
its n-grams but one, or the first of them that is visited; `active` (int32), the positions of n-grams that may repeat.
Masks (uint32) have a bit per word, in chunks of 32: `repeated` of n-grams that repeat, `seen` of n-grams that equal a
visited one before them, `visited` of those that the walk visits. Positions count from the document's first word.
"""

import numpy as np

from curation.kernels.hashing import combine64, table_mask
from curation.kernels.items import at
from curation.kernels.measures import M_COVERED, M_DISTINCT, M_DUP_NGRAM, M_TOP_COUNT
from curation.kernels.spans import VISIBLE, WORD
from gpu_pipeline.measure_kernels import lowest_bit

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder

SMALL_SLOTS, LARGE_SLOTS = 1024, 8192  # of tables in shared memory
SMALL_THREADS, THREADS = 128, 512  # of a block
EMPTY = np.uint32(0xFFFFFFFF)
NOT_VISITED = np.int32(0x7FFFFFFF)
MASKS = 4
COUNTED = 2  # place of `totals` behind the numbers of active n-grams of even and of odd size
WALK_ROUNDS = 8  # then one thread walks
LAST_POSITION = 0xFFFFFFFF
ONE_FIRST = np.int64((1 << 32) + LAST_POSITION)  # one occurrence, at position 0


@cuda.jit(device=True)
def keep_of(items):
    """A mask (uint32) for positions below `items`, which has a bit more than they need: no slot equals EMPTY."""
    keep = np.uint32(1)
    while np.int64(keep) <= items:
        keep = np.uint32(keep << np.uint32(1) | np.uint32(1))
    return keep


@cuda.jit(device=True)
def claim(slots, mask, keep, hashes, k):
    """The item that stands for the hash of item `k`: `k` itself if no other one has claimed a slot before."""
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
    k = cuda.threadIdx.x
    while k < count:
        array[at(k)] = value
        k += cuda.blockDim.x


@cuda.jit(device=True)
def has_bit(mask, k):
    return mask[at(k >> 5)] >> np.uint32(k & 31) & np.uint32(1) != np.uint32(0)


@cuda.jit(device=True)
def set_bit(mask, k):
    bit = np.uint32(1 << (k & 31))
    if mask[at(k >> 5)] & bit == np.uint32(0):
        cuda.atomic.or_(mask, k >> 5, bit)


@cuda.jit(device=True)
def end_before(word_end, base, k):
    """Visible characters before word `k`."""
    return word_end[at(k - 1)] if k > 0 else base


@cuda.jit(device=True)
def find_repeated_words(words, word_hash, slots, repeated, totals, out, row):
    """Set the bits of words that repeat, and write the number of distinct words."""
    mask, keep = np.uint64(table_mask(words)), keep_of(words)
    clear(slots, np.int64(mask) + 1, EMPTY)
    clear(repeated, (words >> 5) + 2, np.uint32(0))
    if cuda.threadIdx.x == 0:
        totals[0] = 0
        totals[COUNTED] = 0
    cuda.syncthreads()
    count = 0
    k = cuda.threadIdx.x
    while k < words:
        other = claim(slots, mask, keep, word_hash, k)
        if other != k:
            count += 1
            set_bit(repeated, k)
            set_bit(repeated, other)
        k += cuda.blockDim.x
    if count:
        cuda.atomic.add(totals, COUNTED, count)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[M_DISTINCT, row] = words - totals[COUNTED]


@cuda.jit(device=True)
def list_pairs(words, word_hash, level_hash, active, repeated, totals):
    """List the 2-grams of words that repeat, and hash them; return their number."""
    k = cuda.threadIdx.x
    while k + 1 < words:
        if has_bit(repeated, k) and has_bit(repeated, k + 1):
            active[at(cuda.atomic.add(totals, 0, 1))] = k
            level_hash[at(k)] = combine64(word_hash[at(k)], word_hash[at(k + 1)])
        k += cuda.blockDim.x
    cuda.syncthreads()
    return totals[0]


@cuda.jit(device=True)
def list_next(n, words, count, word_hash, level_hash, active, following, repeated, totals):
    """List the (n + 1)-grams whose two n-grams repeat in `following`, and hash them; return their number."""
    c = cuda.threadIdx.x
    while c < count:
        k = active[at(c)]
        if k + n < words and has_bit(repeated, k) and has_bit(repeated, k + 1):
            following[at(cuda.atomic.add(totals, 1 - (n & 1), 1))] = k
            level_hash[at(k)] = combine64(level_hash[at(k)], word_hash[at(k + n)])
        c += cuda.blockDim.x
    cuda.syncthreads()
    return totals[1 - (n & 1)]


@cuda.jit(device=True)
def find_repeated(n, words, count, level_hash, group, firsts, active, slots, repeated, seen, totals):
    """Set the bits of the active n-grams that repeat; write their groups and, up to 4-grams, how often each occurs."""
    mask, keep = np.uint64(table_mask(count)), keep_of(words)
    clear(slots, np.int64(mask) + 1, EMPTY)
    clear(repeated, (words >> 5) + 2, np.uint32(0))
    clear(seen, (words >> 5) + 2, np.uint32(0))
    fill_active(count, active, firsts, np.int32(0) if n <= 4 else NOT_VISITED)
    if cuda.threadIdx.x == 0:
        totals[1 - (n & 1)] = 0
    cuda.syncthreads()
    c = cuda.threadIdx.x
    while c < count:
        k = active[at(c)]
        other = claim(slots, mask, keep, level_hash, k)
        if other != k:
            group[at(k)] = other
            group[at(other)] = other
            set_bit(repeated, k)
            set_bit(repeated, other)
            if n <= 4:
                cuda.atomic.add(firsts, other, 1)
        c += cuda.blockDim.x
    cuda.syncthreads()


@cuda.jit(device=True)
def fill_active(count, active, values, value):
    c = cuda.threadIdx.x
    while c < count:
        values[at(active[at(c)])] = value
        c += cuda.blockDim.x


@cuda.jit(device=True)
def find_top(n, count, group, firsts, active, repeated, tops):
    """The most frequent n-gram, the first of ties: the largest (occurrences, last position - position)."""
    best = np.int64(0)
    c = cuda.threadIdx.x
    while c < count:
        k = np.int64(active[at(c)])
        if has_bit(repeated, k):
            occurrences = np.int64(firsts[at(group[at(k)])]) + 1
            best = max(best, (occurrences << 32) + LAST_POSITION - k)
        c += cuda.blockDim.x
    if best:
        cuda.atomic.max(tops, n - 2, best)


@cuda.jit(device=True)
def write_tops(words, max_ngram, word_end, base, tops, top_characters, out, row):
    for n in range(2, min(max_ngram, 4) + 1):
        if words >= n:
            count, k = tops[n - 2] >> 32, LAST_POSITION - (tops[n - 2] & LAST_POSITION)
            characters = word_end[at(k + n - 1)] - end_before(word_end, base, k) + n - 1
            out[M_TOP_COUNT + n - 2, row] = count
            top_characters[n - 2, row] = count * characters


@cuda.jit(device=True)
def add_covered(n, count, word_end, base, active, repeated, out, row):
    """Add the characters that each n-gram covers and the one before it does not."""
    characters = 0
    c = cuda.threadIdx.x
    while c < count:
        k = np.int64(active[at(c)])
        if has_bit(repeated, k):
            shift = k & 31
            window = np.uint32(repeated[at(k >> 5)] << np.uint32(32 - shift)) if shift else np.uint32(0)
            if k >= 32:
                window = np.uint32(window | repeated[at((k >> 5) - 1)] >> np.uint32(shift))
            distance = cuda.clz(window) + 1  # to the repeated n-gram before; 33 for none near
            first = k + max(0, n - distance)
            characters += word_end[at(k + n - 1)] - end_before(word_end, base, first)
        c += cuda.blockDim.x
    if characters:
        cuda.atomic.add(out, (M_COVERED + n - 5, row), characters)


@cuda.jit(device=True)
def leave_chunk(seen, n, position):
    """How many positions of the next chunk the walk skips that enters a chunk at `position`."""
    while position < 32:
        left = np.uint32(seen & np.uint32(EMPTY << np.uint32(position)))
        if left == np.uint32(0):
            return 0
        position = lowest_bit(left) + n
    return position - 32


@cuda.jit(device=True)
def chunk_function(seen, n):
    """`leave_chunk` for entries at 0 to n - 1, four bits each."""
    value = np.uint64(0)
    if seen != np.uint32(0):
        for entry in range(n):
            value |= np.uint64(leave_chunk(seen, n, entry)) << np.uint64(4 * entry)
    return value


@cuda.jit(device=True)
def visited_bits(repeated, seen, n, position):
    """The bits of the repeated n-grams that the walk visits in a chunk that it enters at `position`."""
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
def visit(n, chunks, repeated, seen, visited, functions, skips):
    """The n-grams that the walk visits if `seen` is right. One thread composes the functions of the chunks."""
    c = cuda.threadIdx.x
    while c < chunks:
        functions[at(c)] = chunk_function(seen[at(c)], n)
        c += cuda.blockDim.x
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        skip = 0
        for c in range(chunks):
            skips[at(c)] = skip
            skip = np.int64(functions[at(c)] >> np.uint64(4 * skip) & np.uint64(15))
    cuda.syncthreads()
    c = cuda.threadIdx.x
    while c < chunks:
        visited[at(c)] = visited_bits(repeated[at(c)], seen[at(c)], n, skips[at(c)])
        c += cuda.blockDim.x
    cuda.syncthreads()


@cuda.jit(device=True)
def note_visited(count, group, firsts, active, visited):
    """For each group the first of its n-grams in the mask."""
    c = cuda.threadIdx.x
    while c < count:
        k = active[at(c)]
        if has_bit(visited, k):
            cuda.atomic.min(firsts, group[at(k)], np.int32(k))
        c += cuda.blockDim.x
    cuda.syncthreads()


@cuda.jit(device=True)
def note_seen(count, group, firsts, active, repeated, seen, visited):
    """Set the bits of n-grams that equal a visited one before them; whether this changed for a visited one."""
    changed = 0
    c = cuda.threadIdx.x
    while c < count:
        k = active[at(c)]
        if has_bit(repeated, k):
            is_seen = firsts[at(group[at(k)])] < k
            if is_seen != has_bit(seen, k):
                cuda.atomic.xor(seen, k >> 5, np.uint32(1 << (k & 31)))
                changed |= int(has_bit(visited, k))
        c += cuda.blockDim.x
    return cuda.syncthreads_or(changed)


@cuda.jit(device=True)
def walk_alone(n, words, word_end, base, group, firsts, repeated):
    """The greedy walk of `measures.write_duplicates`; returns its characters."""
    free = characters = 0
    for k in range(words):
        if k >= free and has_bit(repeated, k):
            if firsts[at(group[at(k)])] < k:
                characters += word_end[at(k + n - 1)] - end_before(word_end, base, k)
                free = k + n
            else:
                firsts[at(group[at(k)])] = k
    return characters


@cuda.jit(device=True)
def add_duplicates(
    n, words, count, word_end, base, group, firsts, active, repeated, seen, visited, functions, skips, out, row
):
    """Add the characters of duplicate n-grams. The walk is greedy: what it skips depends on what it visited before. A
    guess of what was seen is improved until it agrees with the visited n-grams, which only the greedy walk does."""
    chunks = (words >> 5) + 1
    note_visited(count, group, firsts, active, repeated)
    clear(visited, chunks, np.uint32(0))
    cuda.syncthreads()
    note_seen(count, group, firsts, active, repeated, seen, visited)
    changed, rounds = 1, 0
    while changed and rounds < WALK_ROUNDS:
        visit(n, chunks, repeated, seen, visited, functions, skips)
        fill_active(count, active, firsts, NOT_VISITED)
        cuda.syncthreads()
        note_visited(count, group, firsts, active, visited)
        changed = note_seen(count, group, firsts, active, repeated, seen, visited)
        rounds += 1
    characters = 0
    if changed:
        fill_active(count, active, firsts, NOT_VISITED)
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            characters = walk_alone(n, words, word_end, base, group, firsts, repeated)
    else:
        c = cuda.threadIdx.x
        while c < count:
            k = np.int64(active[at(c)])
            if has_bit(visited, k) and has_bit(seen, k):
                characters += word_end[at(k + n - 1)] - end_before(word_end, base, k)
            c += cuda.blockDim.x
    if characters:
        cuda.atomic.add(out, (M_DUP_NGRAM + n - 5, row), characters)


@cuda.jit(device=True)
def count_document(
    row, words, first, max_ngram, coverage, word_hash, word_end, base, level_hash, group, firsts, active, masks,
    functions, skips, slots, totals, tops, top_characters, out,
):  # fmt: skip
    """All measures of words and n-grams that repeat in one document."""
    size = (words >> 5) + 2
    even, odd, seen, visited = masks[:size], masks[size : 2 * size], masks[2 * size : 3 * size], masks[3 * size :]
    find_repeated_words(words, word_hash, slots, odd, totals, out, row)
    if max_ngram < 2:
        return
    if cuda.threadIdx.x == 0:
        for n in range(3):
            tops[n] = ONE_FIRST
    count = list_pairs(words, word_hash, level_hash, active[:words], odd, totals)
    n = 2
    while n <= max_ngram and count > 0:
        repeated, here, following = even, active[:words], active[words:]
        if n & 1:
            repeated, here, following = odd, active[words:], active[:words]
        find_repeated(n, words, count, level_hash, group, firsts, here, slots, repeated, seen, totals)
        if n <= 4:
            find_top(n, count, group, firsts, here, repeated, tops)
        else:
            if coverage:
                add_covered(n, count, word_end, base, here, repeated, out, row)
            add_duplicates(
                n, words, count, word_end, base, group, firsts, here, repeated, seen, visited, functions, skips, out,
                row,
            )  # fmt: skip
        count = list_next(n, words, count, word_hash, level_hash, here, following, repeated, totals)
        n += 1
    if cuda.threadIdx.x == 0:
        write_tops(words, max_ngram, word_end, base, tops, top_characters, out, row)


@cuda.jit(cache=True)
def repeat_words_small(
    listed, row_ranks, max_ngram, coverage, word_hash, word_end, chunk_starts, level_hash, group, firsts, active, masks,
    functions, skips, top_characters, out,
):  # fmt: skip
    """One block per listed document of up to SMALL_SLOTS / 2 words."""
    slots = cuda.shared.array(SMALL_SLOTS, types.uint32)
    totals = cuda.shared.array(3, types.int32)
    tops = cuda.shared.array(3, types.int64)
    place = cuda.blockIdx.x
    while place < listed.size:
        row = listed[place]
        first, last = row_ranks[WORD, row], row_ranks[WORD, row + 1]
        chunk, chunk_end = chunk_starts[row], chunk_starts[row + 1]
        count_document(
            row, np.int64(last - first), first, max_ngram, coverage, word_hash[first:last], word_end[first:last],
            row_ranks[VISIBLE, row], level_hash[first:last], group[first:last], firsts[first:last],
            active[2 * first : 2 * last], masks[MASKS * chunk : MASKS * chunk_end], functions[chunk:chunk_end],
            skips[chunk:chunk_end], slots, totals, tops, top_characters, out,
        )  # fmt: skip
        cuda.syncthreads()
        place += cuda.gridDim.x


@cuda.jit(cache=True)
def repeat_words_large(
    listed, row_ranks, max_ngram, coverage, word_hash, word_end, chunk_starts, level_hash, group, firsts, active, masks,
    functions, skips, top_characters, out,
):  # fmt: skip
    """One block per listed document of up to LARGE_SLOTS / 2 words."""
    slots = cuda.shared.array(LARGE_SLOTS, types.uint32)
    totals = cuda.shared.array(3, types.int32)
    tops = cuda.shared.array(3, types.int64)
    place = cuda.blockIdx.x
    while place < listed.size:
        row = listed[place]
        first, last = row_ranks[WORD, row], row_ranks[WORD, row + 1]
        chunk, chunk_end = chunk_starts[row], chunk_starts[row + 1]
        count_document(
            row, np.int64(last - first), first, max_ngram, coverage, word_hash[first:last], word_end[first:last],
            row_ranks[VISIBLE, row], level_hash[first:last], group[first:last], firsts[first:last],
            active[2 * first : 2 * last], masks[MASKS * chunk : MASKS * chunk_end], functions[chunk:chunk_end],
            skips[chunk:chunk_end], slots, totals, tops, top_characters, out,
        )  # fmt: skip
        cuda.syncthreads()
        place += cuda.gridDim.x


@cuda.jit(cache=True)
def repeat_words_huge(
    listed, row_ranks, max_ngram, coverage, word_hash, word_end, chunk_starts, level_hash, group, firsts, active, masks,
    functions, skips, slot_starts, all_slots, top_characters, out,
):  # fmt: skip
    """One block per listed document, with a table in global memory."""
    totals = cuda.shared.array(3, types.int32)
    tops = cuda.shared.array(3, types.int64)
    place = cuda.blockIdx.x
    while place < listed.size:
        row = listed[place]
        first, last = row_ranks[WORD, row], row_ranks[WORD, row + 1]
        chunk, chunk_end = chunk_starts[row], chunk_starts[row + 1]
        slots = all_slots[slot_starts[place] : slot_starts[place + 1]]
        count_document(
            row, np.int64(last - first), first, max_ngram, coverage, word_hash[first:last], word_end[first:last],
            row_ranks[VISIBLE, row], level_hash[first:last], group[first:last], firsts[first:last],
            active[2 * first : 2 * last], masks[MASKS * chunk : MASKS * chunk_end], functions[chunk:chunk_end],
            skips[chunk:chunk_end], slots, totals, tops, top_characters, out,
        )  # fmt: skip
        cuda.syncthreads()
        place += cuda.gridDim.x


@cuda.jit(device=True)
def count_items(row, items, hashes, lengths, slots, totals, measure, out):
    """Add the items that equal another one before them to a measure, and their characters to the next measure. Items of
    a negative length are none."""
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
    place = cuda.blockIdx.x
    while place < listed.size:
        row = listed[place]
        first, last = item_starts[row], item_starts[row + 1]
        count_items(row, np.int64(last - first), hashes[first:last], lengths[first:last], slots, totals, measure, out)
        cuda.syncthreads()
        place += cuda.gridDim.x


@cuda.jit(cache=True)
def repeat_items_huge(listed, item_starts, hashes, lengths, slot_starts, all_slots, measure, out):
    """One block per listed document, with a table in global memory."""
    totals = cuda.shared.array(2, types.int32)
    place = cuda.blockIdx.x
    while place < listed.size:
        row = listed[place]
        first, last = item_starts[row], item_starts[row + 1]
        slots = all_slots[slot_starts[place] : slot_starts[place + 1]]
        count_items(row, np.int64(last - first), hashes[first:last], lengths[first:last], slots, totals, measure, out)
        cuda.syncthreads()
        place += cuda.gridDim.x


def _signatures():
    i32, i64, u32, u64 = (kind[::1] for kind in (types.int32, types.int64, types.uint32, types.uint64))
    number, flag, ranks, out = types.int64, types.bool_, types.int32[:, ::1], types.int32[:, ::1]
    words = i64, ranks, number, flag, u64, i32, i64, u64, i32, i32, i32, u32, u64, i32
    items = i64, i64, u64, i32
    table = i64, u32
    return {
        repeat_words_small: (*words, types.int64[:, ::1], out),
        repeat_words_large: (*words, types.int64[:, ::1], out),
        repeat_words_huge: (*words, *table, types.int64[:, ::1], out),
        repeat_items_small: (*items, number, out),
        repeat_items_huge: (*items, *table, number, out),
    }


SIGNATURES = _signatures()
