# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels of the measures of repetition: one block per document, its threads take words, n-grams or lines.

A table has a slot (uint32) per item at most: the item's position, and bits of its hash above it. The item that claims a
slot first stands for all items of its hash; which one is first differs between runs, results do not. Tables are in
shared memory; `long_repetition_kernels` takes longer documents.

`word_hash` and `word_end` are those of `measure_kernels`. The n-grams of a size that may repeat are an unordered list:
`active` (int32) has the position of each, `hashes` (uint64) its hash, `group` (int32) the place in the list of the one
that stands for it, and of that one `firsts` (int32) has the number of equal ones but one, or the position of the first
one visited. Masks (uint32) have a bit per word, in chunks of 32: `repeated` of n-grams that repeat, `seen` of n-grams
that equal a visited one before them, `visited` of those that the walk visits. Positions count from the first word.
"""

import numpy as np

from curation.kernels.hashing import combine64, table_mask
from curation.kernels.items import at, bits_below
from curation.kernels.measures import M_COVERED, M_DISTINCT, M_DUP_NGRAM, M_TOP_COUNT
from curation.kernels.spans import VISIBLE, WORD
from gpu_pipeline.measure_kernels import ALL_LANES, lowest_bit

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder

SMALL_SLOTS, LARGE_SLOTS = 1024, 8192  # of tables in shared memory
SMALL_THREADS, LARGE_THREADS = 64, 128  # of a block
LANES = 32  # threads of a warp
EMPTY = np.uint32(0xFFFFFFFF)
NOT_VISITED = np.int32(0x7FFFFFFF)
MASKS = 4
SMALL_MASKS, LARGE_MASKS = (MASKS * (slots // 64 + 2) for slots in (SMALL_SLOTS, LARGE_SLOTS))
COUNTED = 2  # place of `totals` behind the numbers of active n-grams of even and of odd size
WALK_ROUNDS = 64  # then one thread walks
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
def characters_of(word_end, base, first, after):
    """Characters of the words first to after - 1."""
    return word_end[at(after - 1)] - end_before(word_end, base, first)


@cuda.jit(device=True)
def covered_from(repeated, n, k):
    """The first word of the repeated n-gram at `k` that the repeated one before it does not have."""
    shift = k & 31
    window = np.uint32(repeated[at(k >> 5)] << np.uint32(32 - shift)) if shift else np.uint32(0)
    if k >= 32:
        window = np.uint32(window | repeated[at((k >> 5) - 1)] >> np.uint32(shift))
    distance = cuda.clz(window) + 1  # to the repeated n-gram before; 33 for none near
    return k + max(0, n - distance)


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
def mark_pairs(words, repeated, pairs):
    """Set a bit for each bit of `repeated` whose next one is set too."""
    c = cuda.threadIdx.x
    while c <= words >> 5:
        pairs[at(c)] = repeated[at(c)] & (repeated[at(c)] >> np.uint32(1) | repeated[at(c + 1)] << np.uint32(31))
        c += cuda.blockDim.x
    cuda.syncthreads()


@cuda.jit(device=True)
def append(is_new, totals, place):
    """Where the thread's item goes in the list whose length is totals[place]: threads of a warp append together."""
    votes = np.uint32(cuda.ballot_sync(ALL_LANES, is_new))
    lane = cuda.threadIdx.x % LANES
    start = np.int32(0)
    if lane == 0 and votes:
        start = np.int32(cuda.atomic.add(totals, place, cuda.popc(votes)))
    return cuda.shfl_sync(ALL_LANES, start, 0) + cuda.popc(np.uint32(votes & bits_below(lane)))


@cuda.jit(device=True)
def list_pairs(words, word_hash, hashes, active, repeated, pairs, totals):
    """List the 2-grams of words that repeat, and hash them; return their number."""
    mark_pairs(words, repeated, pairs)
    k = np.int64(cuda.threadIdx.x)
    while k - k % LANES < words:  # all threads of a warp
        is_pair = k < words and has_bit(pairs, k)
        place = append(is_pair, totals, 0)
        if is_pair:
            active[at(place)] = k
            hashes[at(place)] = combine64(word_hash[at(k)], word_hash[at(k + 1)])
        k += cuda.blockDim.x
    cuda.syncthreads()
    return totals[0]


@cuda.jit(device=True)
def list_next(
    n, words, count, word_hash, hashes, active, next_hashes, next_active, repeated, pairs, totals
):  # fmt: skip
    """List the (n + 1)-grams whose two n-grams repeat, and hash them; return their number."""
    mark_pairs(words, repeated, pairs)
    c = np.int64(cuda.threadIdx.x)
    while c - c % LANES < count:
        k = active[at(min(c, count - 1))]
        is_next = c < count and has_bit(pairs, k)
        place = append(is_next, totals, 1 - (n & 1))
        if is_next:
            next_active[at(place)] = k
            next_hashes[at(place)] = combine64(hashes[at(c)], word_hash[at(k + n)])
        c += cuda.blockDim.x
    cuda.syncthreads()
    return totals[1 - (n & 1)]


@cuda.jit(device=True)
def find_repeated(n, words, count, hashes, group, firsts, active, slots, repeated, seen, totals):
    """Set the bits of the active n-grams that repeat; write their groups and, up to 4-grams, how often each occurs.
    Return whether any repeats."""
    mask, keep = np.uint64(table_mask(count)), keep_of(count)
    clear(slots, np.int64(mask) + 1, EMPTY)
    clear(repeated, (words >> 5) + 2, np.uint32(0))
    clear(seen, (words >> 5) + 2, np.uint32(0))
    clear(firsts, count, np.int32(0) if n <= 4 else NOT_VISITED)
    if cuda.threadIdx.x == 0:
        totals[1 - (n & 1)] = 0
    cuda.syncthreads()
    found = 0
    c = cuda.threadIdx.x
    while c < count:
        other = claim(slots, mask, keep, hashes, c)
        group[at(c)] = other
        if other != c:
            set_bit(repeated, active[at(c)])
            set_bit(repeated, active[at(other)])
            found = 1
            if n <= 4:
                cuda.atomic.add(firsts, other, 1)
        c += cuda.blockDim.x
    return cuda.syncthreads_or(found)


@cuda.jit(device=True)
def find_top(n, count, group, firsts, active, repeated, tops):
    """The most frequent n-gram, the first of ties: the largest (occurrences, last position - position)."""
    best = np.int64(0)
    c = cuda.threadIdx.x
    while c < count:
        k = np.int64(active[at(c)])
        if has_bit(repeated, k):
            occurrences = np.int64(firsts[at(group[at(c)])]) + 1
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
            characters += characters_of(word_end, base, covered_from(repeated, n, k), k + n)
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
def leave_segment(seen, first, end, n, entry):
    """`leave_chunk` over several chunks."""
    for c in range(first, end):
        entry = leave_chunk(seen[at(c)], n, entry)
    return entry


@cuda.jit(device=True)
def visit(n, chunks, repeated, seen, visited, functions, entries):
    """The n-grams that the walk visits if `seen` is right. Each thread takes a segment of chunks; one thread composes
    the functions from where the walk enters a segment to where it leaves it, four bits per entry."""
    thread, threads = np.int64(cuda.threadIdx.x), np.int64(cuda.blockDim.x)
    own = (chunks + threads - 1) // threads
    first, end = thread * own, min((thread + 1) * own, chunks)
    any_seen, value = np.uint32(0), np.uint64(0)
    for c in range(first, end):
        any_seen = np.uint32(any_seen | seen[at(c)])
    for entry in range(n if any_seen else 0):
        value |= np.uint64(leave_segment(seen, first, end, n, entry)) << np.uint64(4 * entry)
    functions[thread] = value
    cuda.syncthreads()
    if thread == 0:
        entry = np.int64(0)
        for segment in range((chunks + own - 1) // own):
            entries[segment] = entry
            entry = np.int64(functions[segment] >> np.uint64(4 * entry) & np.uint64(15))
    cuda.syncthreads()
    entry = np.int64(entries[thread]) if first < end else np.int64(0)
    for c in range(first, end):
        visited[at(c)] = visited_bits(repeated[at(c)], seen[at(c)], n, entry)
        entry = leave_chunk(seen[at(c)], n, entry)
    cuda.syncthreads()


@cuda.jit(device=True)
def note_visited(count, group, firsts, active, visited):
    """For each group the first of its n-grams in the mask."""
    c = cuda.threadIdx.x
    while c < count:
        k = active[at(c)]
        if has_bit(visited, k):
            cuda.atomic.min(firsts, group[at(c)], np.int32(k))
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
            is_seen = firsts[at(group[at(c)])] < k
            if is_seen != has_bit(seen, k):
                cuda.atomic.xor(seen, k >> 5, np.uint32(1 << (k & 31)))
                changed |= int(has_bit(visited, k))
        c += cuda.blockDim.x
    return cuda.syncthreads_or(changed)


@cuda.jit(device=True)
def walk_alone(n, words, word_end, base, groups, firsts, repeated):
    """The greedy walk of `measures.write_duplicates`; returns its characters. `groups` has the group by position."""
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
def add_duplicates(
    n,
    words,
    count,
    word_end,
    base,
    group,
    firsts,
    active,
    groups,
    repeated,
    seen,
    visited,
    functions,
    entries,
    out,
    row,
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
        visit(n, chunks, repeated, seen, visited, functions, entries)
        clear(firsts, count, NOT_VISITED)
        cuda.syncthreads()
        note_visited(count, group, firsts, active, visited)
        changed = note_seen(count, group, firsts, active, repeated, seen, visited)
        rounds += 1
    characters = 0
    if changed:
        clear(firsts, count, NOT_VISITED)
        c = cuda.threadIdx.x
        while c < count:
            groups[at(active[at(c)])] = group[at(c)]
            c += cuda.blockDim.x
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            characters = walk_alone(n, words, word_end, base, groups, firsts, repeated)
    else:
        c = cuda.threadIdx.x
        while c < count:
            k = np.int64(active[at(c)])
            if has_bit(visited, k) and has_bit(seen, k):
                characters += characters_of(word_end, base, k, k + n)
            c += cuda.blockDim.x
    if characters:
        cuda.atomic.add(out, (M_DUP_NGRAM + n - 5, row), characters)
    cuda.syncthreads()


@cuda.jit(device=True)
def count_document(
    row, words, max_ngram, coverage, word_hash, word_end, base, hashes, group, firsts, active, masks, functions,
    entries, slots, totals, tops, top_characters, out,
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
    count = list_pairs(words, word_hash, hashes[:words], active[:words], odd, seen, totals)
    n = 2
    while n <= max_ngram and count > 0:
        repeated, here, following = even, active[:words], active[words:]
        here_hashes, following_hashes = hashes[:words], hashes[words:]
        if n & 1:
            repeated, here, following = odd, following, here
            here_hashes, following_hashes = following_hashes, here_hashes
        if not find_repeated(n, words, count, here_hashes, group, firsts, here, slots, repeated, seen, totals):
            break
        if n <= 4:
            find_top(n, count, group, firsts, here, repeated, tops)
        else:
            if coverage:
                add_covered(n, count, word_end, base, here, repeated, out, row)
            add_duplicates(
                n, words, count, word_end, base, group, firsts, here, following, repeated, seen, visited, functions,
                entries, out, row,
            )  # fmt: skip
        count = list_next(
            n, words, count, word_hash, here_hashes, here, following_hashes, following, repeated, seen, totals
        )
        n += 1
    if cuda.threadIdx.x == 0:
        write_tops(words, max_ngram, word_end, base, tops, top_characters, out, row)


@cuda.jit(cache=True)
def repeat_words_small(
    listed, row_ranks, max_ngram, coverage, word_hash, word_end, hashes, group, firsts, active, top_characters, out
):
    """One block per listed document of up to SMALL_SLOTS / 2 words."""
    slots = cuda.shared.array(SMALL_SLOTS, types.uint32)
    masks = cuda.shared.array(SMALL_MASKS, types.uint32)
    totals = cuda.shared.array(3, types.int32)
    tops = cuda.shared.array(3, types.int64)
    functions = cuda.shared.array(SMALL_THREADS, types.uint64)
    entries = cuda.shared.array(SMALL_THREADS, types.int32)
    place = cuda.blockIdx.x
    while place < listed.size:
        row = listed[place]
        first, last = row_ranks[WORD, row], row_ranks[WORD, row + 1]
        count_document(
            row, np.int64(last - first), max_ngram, coverage, word_hash[first:last], word_end[first:last],
            row_ranks[VISIBLE, row], hashes[2 * first : 2 * last], group[first:last], firsts[first:last],
            active[2 * first : 2 * last], masks, functions, entries, slots, totals, tops, top_characters, out,
        )  # fmt: skip
        cuda.syncthreads()
        place += cuda.gridDim.x


@cuda.jit(cache=True)
def repeat_words_large(
    listed, row_ranks, max_ngram, coverage, word_hash, word_end, hashes, group, firsts, active, top_characters, out
):
    """One block per listed document of up to LARGE_SLOTS / 2 words."""
    slots = cuda.shared.array(LARGE_SLOTS, types.uint32)
    masks = cuda.shared.array(LARGE_MASKS, types.uint32)
    totals = cuda.shared.array(3, types.int32)
    tops = cuda.shared.array(3, types.int64)
    functions = cuda.shared.array(LARGE_THREADS, types.uint64)
    entries = cuda.shared.array(LARGE_THREADS, types.int32)
    place = cuda.blockIdx.x
    while place < listed.size:
        row = listed[place]
        first, last = row_ranks[WORD, row], row_ranks[WORD, row + 1]
        count_document(
            row, np.int64(last - first), max_ngram, coverage, word_hash[first:last], word_end[first:last],
            row_ranks[VISIBLE, row], hashes[2 * first : 2 * last], group[first:last], firsts[first:last],
            active[2 * first : 2 * last], masks, functions, entries, slots, totals, tops, top_characters, out,
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


def _signatures():
    i32, i64, u64 = (kind[::1] for kind in (types.int32, types.int64, types.uint64))
    number, flag, ranks, out = types.int64, types.bool_, types.int32[:, ::1], types.int32[:, ::1]
    words = i64, ranks, number, flag, u64, i32, u64, i32, i32, i32
    items = i64, i64, u64, i32
    return {
        repeat_words_small: (*words, types.int64[:, ::1], out),
        repeat_words_large: (*words, types.int64[:, ::1], out),
        repeat_items_small: (*items, number, out),
    }


SIGNATURES = _signatures()
