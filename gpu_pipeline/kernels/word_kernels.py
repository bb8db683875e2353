# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels that count repeated words and n-grams in documents of up to LARGE_WORDS words: one block per document.

One of several equal words or n-grams *stands for* all of them; its position identifies them. Which one it is may differ
between runs; the results do not. Two n-grams are equal if the same (n-1)-gram stands for their first n - 1 words, and
the same word for their last word. So the key of an n-gram is two positions, and comparison is exact. Positions count
from the first word. Arrays by position:

word_group, group   the word that stands for this word; the n-gram that stands for the one that starts here
keys                key of the n-gram
firsts              of an n-gram that stands for others: their number, or the position of the first visited

`active` lists the positions of n-grams that may repeat. If there are at most LANES, as for most longer n-grams, one
warp takes them and keeps them in registers. `shortest` is the smallest size whose duplicates are wanted. Tables and
masks are those of `repetition_kernels`; a slot has a position.
"""

import numpy as np

from curation.kernels.hashing import slot_of_pair
from curation.kernels.measures import M
from gpu_pipeline.functions.items import at, bits_below
from gpu_pipeline.functions.spans import VISIBLE, WORD
from gpu_pipeline.kernels.measure_kernels import ALL_LANES, lowest_bit
from gpu_pipeline.kernels.repetition_kernels import (
    EMPTY,
    LAST_POSITION,
    MASKS,
    NOT_VISITED,
    ONE_FIRST,
    WALK_ROUNDS,
    clear,
    end_before,
    has_bit,
    set_bit,
    visit,
    walk_alone,
    write_tops,
)

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder

LANES = 32  # threads of a warp
SMALL_BITS, MEDIUM_BITS, LARGE_BITS = 9, 11, 12  # of a position
SMALL_WORDS, MEDIUM_WORDS, LARGE_WORDS = 1 << SMALL_BITS, 1 << MEDIUM_BITS, 1 << LARGE_BITS  # of a document
SMALL_SLOTS, MEDIUM_SLOTS, LARGE_SLOTS = 2 * SMALL_WORDS, 2 * MEDIUM_WORDS, 2 * LARGE_WORDS
SMALL_THREADS, MEDIUM_THREADS, LARGE_THREADS = 32, 64, 256  # of a block
SMALL_MASKS, MEDIUM_MASKS, LARGE_MASKS = (
    MASKS * (words // 32 + 2) for words in (SMALL_WORDS, MEDIUM_WORDS, LARGE_WORDS)
)
FOLLOWERS = 2  # position in `totals` after the numbers of active n-grams of even and of odd size
PART = 16  # positions that a thread looks through for n-grams that may repeat


@cuda.jit(device=True)
def table_shift(items):
    """Return 32 minus the bits of a slot's number. The table has at least twice as many slots as items (1 or more)."""
    return cuda.clz(np.uint32(2 * items - 1))


@cuda.jit(device=True)
def claim_word(slots, mask, keep, word_hash, k):
    """Return the word that stands for word `k`: `k` itself if no equal word claimed a slot before. A slot has the
    position in its low bits, and bits of the word's hash above."""
    hashed = np.uint64(word_hash[at(k)])
    value = np.uint32(np.uint32(hashed >> np.uint64(32)) & ~keep | np.uint32(k))
    slot = np.uint32(np.uint32(hashed) & mask)
    other = np.uint32(cuda.atomic.cas(slots, slot, EMPTY, value))
    while other != EMPTY:
        position = np.uint32(other & keep)
        if np.uint32(other ^ value) <= keep and word_hash[at(position)] == hashed:
            return np.int32(position)
        slot = np.uint32(np.uint32(slot + np.uint32(1)) & mask)
        other = np.uint32(cuda.atomic.cas(slots, slot, EMPTY, value))
    return np.int32(k)


@cuda.jit(device=True)
def claim_ngram(slots, shift, mask, keys, k):
    """Return the n-gram that stands for the n-gram at `k`."""
    key = np.uint32(keys[at(k)])
    slot = np.uint32(slot_of_pair(key, shift))
    other = np.uint32(cuda.atomic.cas(slots, slot, EMPTY, np.uint32(k)))
    while other != EMPTY:
        if np.uint32(keys[at(other)]) == key:
            return np.int32(other)
        slot = np.uint32(np.uint32(slot + np.uint32(1)) & mask)
        other = np.uint32(cuda.atomic.cas(slots, slot, EMPTY, np.uint32(k)))
    return np.int32(k)


@cuda.jit(device=True)
def find_words(words, word_hash, word_group, slots, repeated, totals, tops, out, row):
    """Write `word_group`, set the bits of words that repeat, and write the number of distinct words."""
    mask = np.uint32(np.uint32(EMPTY) >> np.uint32(table_shift(words)))
    keep = np.uint32(mask)  # above every position
    clear(slots, np.int64(mask) + 1, EMPTY)
    clear(repeated, (words >> 5) + 2, np.uint32(0))
    if cuda.threadIdx.x == 0:
        for n in range(3):
            totals[n] = 0
            tops[n] = ONE_FIRST
    cuda.syncthreads()
    lane = cuda.threadIdx.x % LANES
    followers = 0
    k = np.int32(cuda.threadIdx.x)
    while k - lane < words:  # all threads of a warp
        follows = False
        if k < words:
            other = claim_word(slots, mask, keep, word_hash, k)
            word_group[at(k)] = other
            follows = other != k
            if follows:
                set_bit(repeated, other)
        votes = np.uint32(cuda.ballot_sync(ALL_LANES, follows))
        if lane == 0 and votes:
            cuda.atomic.or_(repeated, k >> 5, np.uint32(votes << np.uint32(k & 31)))
            followers += cuda.popc(votes)
        k += cuda.blockDim.x
    if followers:
        cuda.atomic.add(totals, FOLLOWERS, followers)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[M.distinct_words, row] = words - totals[FOLLOWERS]


@cuda.jit(device=True)
def list_ngrams(n, words, bits, before, word_group, keys, firsts, active, shorter, repeated, totals):
    """List the n-grams whose two (n-1)-grams repeat, with their keys; return the number of listed n-grams."""
    clear(repeated, (words >> 5) + 2, np.uint32(0))
    part = cuda.threadIdx.x
    while part * PART < words:
        chunk = part * PART >> 5
        shift = np.uint32(part * PART & 31)
        here = np.uint32(shorter[at(chunk)])
        candidates = np.uint32(here & (here >> np.uint32(1) | shorter[at(chunk + 1)] << np.uint32(31)))
        candidates = np.uint32(np.uint32(candidates >> shift) & np.uint32((1 << PART) - 1))
        if candidates:
            c = np.int32(cuda.atomic.add(totals, n & 1, cuda.popc(candidates)))
            while candidates:
                k = np.int32(part * PART + lowest_bit(candidates))
                active[at(c)] = k
                keys[at(k)] = np.uint32(np.uint32(before[at(k)]) << bits | np.uint32(word_group[at(k + n - 1)]))
                firsts[at(k)] = 0
                candidates = np.uint32(candidates & np.uint32(candidates - np.uint32(1)))
                c += 1
        part += cuda.blockDim.x
    cuda.syncthreads()
    return totals[n & 1]


@cuda.jit(device=True)
def find_groups(n, count, keys, group, firsts, active, slots, totals):
    """Write the groups of the active n-grams, and how many others each n-gram stands for; return whether any stands for
    others."""
    shift = np.uint32(table_shift(count))
    mask = np.uint32(np.uint32(EMPTY) >> shift)
    clear(slots, np.int64(mask) + 1, EMPTY)
    if cuda.threadIdx.x == 0:
        totals[1 - (n & 1)] = 0
    cuda.syncthreads()
    any_follow = 0
    c = np.int32(cuda.threadIdx.x)
    while c < count:
        k = np.int32(active[at(c)])
        other = claim_ngram(slots, shift, mask, keys, k)
        group[at(k)] = other
        if other != k:
            cuda.atomic.add(firsts, np.uint32(other), 1)
            any_follow = 1
        c += cuda.blockDim.x
    return cuda.syncthreads_or(any_follow)


@cuda.jit(device=True)
def mark_repeated(n, count, group, firsts, active, repeated, tops):
    """Set the bits of the active n-grams that repeat; up to 4-grams, find the most frequent one, the first of ties: the
    largest (occurrences, last position - position)."""
    best = np.int64(0)
    c = np.int32(cuda.threadIdx.x)
    while c < count:
        k = np.int32(active[at(c)])
        followers = firsts[at(group[at(k)])]
        if followers:
            cuda.atomic.or_(repeated, np.uint32(k >> 5), np.uint32(np.uint32(1) << np.uint32(k & 31)))
            best = max(best, (np.int64(followers + 1) << 32) + LAST_POSITION - k)
        c += cuda.blockDim.x
    if n <= 4 and best:
        cuda.atomic.max(tops, n - 2, best)
    cuda.syncthreads()


@cuda.jit(device=True)
def characters_of(k, n, word_end, base, first):
    """Return the visible characters of the n-gram at `k` from word `first` on."""
    return word_end[at(k + n - 1)] - end_before(word_end, base, first)


@cuda.jit(device=True)
def add_covered(n, count, word_end, base, active, repeated, out, row):
    """Add the characters that each n-gram covers and the n-gram before does not."""
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
            characters += characters_of(k, n, word_end, base, k + max(0, n - distance))
        c += cuda.blockDim.x
    if characters:
        cuda.atomic.add(out, (M.covered_5gram_characters + n - 5, row), characters)


@cuda.jit(device=True)
def forget_visits(count, firsts, active):
    """Reset `firsts` at the slots that a walk visited, which is cheaper than clearing all of it."""
    c = cuda.threadIdx.x
    while c < count:
        firsts[at(active[at(c)])] = NOT_VISITED
        c += cuda.blockDim.x
    cuda.syncthreads()


@cuda.jit(device=True)
def note_visited(count, group, firsts, active, visited):
    """Note for each group of equal n-grams the first one in the mask `visited`."""
    c = cuda.threadIdx.x
    while c < count:
        k = np.int32(active[at(c)])
        if has_bit(visited, k):
            cuda.atomic.min(firsts, np.uint32(group[at(k)]), k)
        c += cuda.blockDim.x
    cuda.syncthreads()


@cuda.jit(device=True)
def note_seen(count, group, firsts, active, repeated, seen, visited):
    """Set the bits of n-grams that equal an earlier visited n-gram; return whether the bit of a visited n-gram
    changed."""
    changed = 0
    c = cuda.threadIdx.x
    while c < count:
        k = np.int32(active[at(c)])
        if has_bit(repeated, k):
            is_seen = firsts[at(group[at(k)])] < k
            if is_seen != has_bit(seen, k):
                cuda.atomic.xor(seen, k >> 5, np.uint32(1 << (k & 31)))
                changed |= int(has_bit(visited, k))
        c += cuda.blockDim.x
    return cuda.syncthreads_or(changed)


@cuda.jit(device=True)
def add_duplicates(
    n, words, count, word_end, base, group, firsts, active, repeated, seen, visited, functions, entries, out, row
):
    """Add the number of characters in duplicate n-grams to `out`, as `repetition_kernels.add_duplicates` does."""
    chunks = (words >> 5) + 1
    clear(seen, chunks, np.uint32(0))
    clear(visited, chunks, np.uint32(0))
    forget_visits(count, firsts, active)
    note_visited(count, group, firsts, active, repeated)
    note_seen(count, group, firsts, active, repeated, seen, visited)
    changed, rounds = 1, 0
    while changed and rounds < WALK_ROUNDS:
        visit(n, chunks, repeated, seen, visited, functions, entries)
        forget_visits(count, firsts, active)
        note_visited(count, group, firsts, active, visited)
        changed = note_seen(count, group, firsts, active, repeated, seen, visited)
        rounds += 1
    characters = 0
    if changed:
        forget_visits(count, firsts, active)
        if cuda.threadIdx.x == 0:
            characters = walk_alone(n, words, word_end, base, group, firsts, repeated)
    else:
        c = cuda.threadIdx.x
        while c < count:
            k = np.int64(active[at(c)])
            if has_bit(visited, k) and has_bit(seen, k):
                characters += characters_of(k, n, word_end, base, k)
            c += cuda.blockDim.x
    if characters:
        cuda.atomic.add(out, (M.duplicate_2gram_characters + n - 2, row), characters)
    cuda.syncthreads()


@cuda.jit(device=True)
def walk_lanes(n, lane, position, same, votes):
    """Return the lanes of duplicate n-grams, by a greedy walk over the repeated n-grams, whose lanes are in the mask
    `votes`. The walk visits all of them up to the first that equals an earlier visited n-gram, and skips those that
    this n-gram overlaps."""
    left, visited, duplicates = votes, np.uint32(0), np.uint32(0)
    below = np.uint32(bits_below(lane))
    while left:
        earlier = np.uint32(same & below & np.uint32(visited | left))
        is_seen = earlier != np.uint32(0) and left >> np.uint32(lane) & np.uint32(1) != np.uint32(0)
        seen_lanes = np.uint32(cuda.ballot_sync(ALL_LANES, is_seen))
        if seen_lanes == np.uint32(0):
            break
        jump = lowest_bit(seen_lanes)
        bit = np.uint32(np.uint32(1) << np.uint32(jump))
        visited = np.uint32(visited | left & np.uint32(bit | np.uint32(bit - np.uint32(1))))
        duplicates = np.uint32(duplicates | bit)
        free = np.int32(cuda.shfl_sync(ALL_LANES, position, jump) + n)
        left = np.uint32(left & np.uint32(cuda.ballot_sync(ALL_LANES, position >= free)))
    return duplicates


@cuda.jit(device=True)
def count_in_lanes(
    n, max_ngram, coverage, shortest, count, words, bits, word_group, keys, active, word_end, base, tops, out, row
):  # fmt: skip
    """Write all measures of n-grams from size `n` on. Up to LANES n-grams may repeat; each lane takes one of them."""
    lane = np.int32(cuda.threadIdx.x)
    position = np.int32(active[at(lane)]) if lane < count else np.int32(words)
    rank = np.int32(0)
    for other in range(count):
        rank += np.int32(cuda.shfl_sync(ALL_LANES, position, other) < position)
    cuda.syncwarp()
    if lane < count:
        active[at(rank)] = position
    cuda.syncwarp()
    key = EMPTY
    if lane < count:
        position = np.int32(active[at(lane)])
        key = np.uint32(keys[at(position)])
    while n <= max_ngram:
        same = np.uint32(cuda.match_any_sync(ALL_LANES, np.int32(key)))
        repeats = key != EMPTY and cuda.popc(same) > 1
        votes = np.uint32(cuda.ballot_sync(ALL_LANES, repeats))
        if votes == np.uint32(0):
            return
        first = lowest_bit(same)
        if n <= 4:
            if repeats and first == lane:
                cuda.atomic.max(tops, n - 2, (np.int64(cuda.popc(same)) << 32) + LAST_POSITION - position)
        elif coverage:
            below = np.uint32(votes & bits_below(lane))
            previous = np.int32(cuda.shfl_sync(ALL_LANES, position, 31 - cuda.clz(below) if below else lane))
            if repeats:
                start = max(position, previous + n) if below else position
                cuda.atomic.add(
                    out, (M.covered_5gram_characters + n - 5, row), characters_of(position, n, word_end, base, start)
                )
        if n >= shortest:
            duplicates = walk_lanes(n, lane, position, same, votes)
            if duplicates >> np.uint32(lane) & np.uint32(1):
                cuda.atomic.add(
                    out,
                    (M.duplicate_2gram_characters + n - 2, row),
                    characters_of(position, n, word_end, base, position),
                )
        following = np.int32(cuda.shfl_sync(ALL_LANES, position, (lane + 1) % LANES))
        stands = np.int32(cuda.shfl_sync(ALL_LANES, position, first))
        key = EMPTY
        if repeats and following == position + 1 and votes >> np.uint32(lane) >> np.uint32(1) & np.uint32(1):
            key = np.uint32(np.uint32(stands) << bits | np.uint32(word_group[at(position + n)]))
        n += 1


@cuda.jit(device=True)
def count_document(
    row, words, bits, max_ngram, coverage, shortest, word_hash, word_end, base, word_group, group, keys, firsts, active,
    masks, functions, entries, slots, totals, tops, top_characters, out,
):  # fmt: skip
    """Write all measures of repeated words and n-grams of one document."""
    size = (words >> 5) + 2
    even, odd, seen, visited = masks[:size], masks[size : 2 * size], masks[2 * size : 3 * size], masks[3 * size :]
    find_words(words, word_hash, word_group, slots, odd, totals, tops, out, row)
    if max_ngram < 2:
        return
    count = list_ngrams(2, words, bits, word_group, word_group, keys, firsts, active, odd, even, totals)
    repeated, shorter = even, odd
    n = 2
    while count > LANES and find_groups(n, count, keys, group, firsts, active, slots, totals):
        mark_repeated(n, count, group, firsts, active, repeated, tops)
        if n > 4 and coverage:
            add_covered(n, count, word_end, base, active, repeated, out, row)
        if n >= shortest:
            add_duplicates(
                n, words, count, word_end, base, group, firsts, active, repeated, seen, visited, functions, entries,
                out, row,
            )  # fmt: skip
        n += 1
        count = 0
        if n <= max_ngram:
            repeated, shorter = shorter, repeated
            count = list_ngrams(n, words, bits, group, word_group, keys, firsts, active, shorter, repeated, totals)
    if 0 < count <= LANES and cuda.threadIdx.x < LANES:
        count_in_lanes(
            n, max_ngram, coverage, shortest, count, words, bits, word_group, keys, active, word_end, base, tops, out,
            row,
        )  # fmt: skip
        cuda.syncwarp()
    if cuda.threadIdx.x == 0:
        write_tops(words, max_ngram, word_end, base, tops, top_characters, out, row)


@cuda.jit(cache=True)
def repeat_words_small(listed, row_ranks, max_ngram, coverage, shortest, word_hash, word_end, top_characters, out):
    """One block per listed document of up to SMALL_WORDS words."""
    slots = cuda.shared.array(SMALL_SLOTS, types.uint32)
    word_group = cuda.shared.array(SMALL_WORDS, types.uint16)
    group = cuda.shared.array(SMALL_WORDS, types.uint16)
    active = cuda.shared.array(SMALL_WORDS, types.uint16)
    keys = cuda.shared.array(SMALL_WORDS, types.uint32)
    firsts = cuda.shared.array(SMALL_WORDS, types.int32)
    masks = cuda.shared.array(SMALL_MASKS, types.uint32)
    totals = cuda.shared.array(3, types.int32)
    tops = cuda.shared.array(3, types.int64)
    functions = cuda.shared.array(SMALL_THREADS, types.uint64)
    entries = cuda.shared.array(SMALL_THREADS, types.int32)
    index = cuda.blockIdx.x
    while index < listed.size:
        row = listed[index]
        first, last = row_ranks[WORD, row], row_ranks[WORD, row + 1]
        count_document(
            row, last - first, np.uint32(SMALL_BITS), max_ngram, coverage, shortest, word_hash[first:last],
            word_end[first:last], row_ranks[VISIBLE, row], word_group, group, keys, firsts, active, masks, functions,
            entries, slots, totals, tops, top_characters, out,
        )  # fmt: skip
        cuda.syncthreads()
        index += cuda.gridDim.x


@cuda.jit(cache=True)
def repeat_words_medium(listed, row_ranks, max_ngram, coverage, shortest, word_hash, word_end, top_characters, out):
    """One block per listed document of up to MEDIUM_WORDS words."""
    slots = cuda.shared.array(MEDIUM_SLOTS, types.uint32)
    word_group = cuda.shared.array(MEDIUM_WORDS, types.uint16)
    group = cuda.shared.array(MEDIUM_WORDS, types.uint16)
    active = cuda.shared.array(MEDIUM_WORDS, types.uint16)
    keys = cuda.shared.array(MEDIUM_WORDS, types.uint32)
    firsts = cuda.shared.array(MEDIUM_WORDS, types.int32)
    masks = cuda.shared.array(MEDIUM_MASKS, types.uint32)
    totals = cuda.shared.array(3, types.int32)
    tops = cuda.shared.array(3, types.int64)
    functions = cuda.shared.array(MEDIUM_THREADS, types.uint64)
    entries = cuda.shared.array(MEDIUM_THREADS, types.int32)
    index = cuda.blockIdx.x
    while index < listed.size:
        row = listed[index]
        first, last = row_ranks[WORD, row], row_ranks[WORD, row + 1]
        count_document(
            row, last - first, np.uint32(MEDIUM_BITS), max_ngram, coverage, shortest, word_hash[first:last],
            word_end[first:last], row_ranks[VISIBLE, row], word_group, group, keys, firsts, active, masks, functions,
            entries, slots, totals, tops, top_characters, out,
        )  # fmt: skip
        cuda.syncthreads()
        index += cuda.gridDim.x


@cuda.jit(cache=True)
def repeat_words_large(
    listed, row_ranks, max_ngram, coverage, shortest, word_hash, word_end, word_group, group, keys, firsts, active,
    top_characters, out,
):  # fmt: skip
    """One block per listed document of up to LARGE_WORDS words; arrays by position are in global memory."""
    slots = cuda.shared.array(LARGE_SLOTS, types.uint32)
    masks = cuda.shared.array(LARGE_MASKS, types.uint32)
    totals = cuda.shared.array(3, types.int32)
    tops = cuda.shared.array(3, types.int64)
    functions = cuda.shared.array(LARGE_THREADS, types.uint64)
    entries = cuda.shared.array(LARGE_THREADS, types.int32)
    index = cuda.blockIdx.x
    while index < listed.size:
        row = listed[index]
        first, last = row_ranks[WORD, row], row_ranks[WORD, row + 1]
        count_document(
            row, last - first, np.uint32(LARGE_BITS), max_ngram, coverage, shortest, word_hash[first:last],
            word_end[first:last], row_ranks[VISIBLE, row], word_group[first:last], group[first:last], keys[first:last],
            firsts[first:last], active[first:last], masks, functions, entries, slots, totals, tops, top_characters, out,
        )  # fmt: skip
        cuda.syncthreads()
        index += cuda.gridDim.x


def _signatures():
    i32, i64, u32, u64 = (kind[::1] for kind in (types.int32, types.int64, types.uint32, types.uint64))
    words = i64, types.int32[:, ::1], types.int64, types.bool_, types.int64, u64, i32
    results = types.int64[:, ::1], types.int32[:, ::1]
    return {
        repeat_words_small: (*words, *results),
        repeat_words_medium: (*words, *results),
        repeat_words_large: (*words, i32, i32, u32, i32, i32, *results),
    }


SIGNATURES = _signatures()
