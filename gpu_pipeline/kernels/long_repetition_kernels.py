# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels that measure repetition in documents with more words or lines than one block takes.

Each step of `repetition_kernels` is a launch over all long documents of a batch, so the work of a thread is bounded. A
warp takes a piece of one document, word after word.

firsts, counts   int64: the first word of each long document in the batch, and its number of words
starts           int64: its first word among those of all long documents
chunks           int64: its first chunk; masks (uint32) have a bit per word, and a chunk more than they need
pieces, docs     int64: first piece of each long document, long document of each piece
rows             int64: the row of each long document
hashes           uint64, per word of the long documents: the hash of the n-gram that starts there
group            int32, per word: where the n-gram that stands for all equal ones starts; -1 - slot if it starts here
lowest           int32, per word where an n-gram that stands for others starts: their number, or the first visited one
"""

import numpy as np

from curation.kernels.hashing import combine64
from curation.kernels.measures import M
from gpu_pipeline.functions.items import at
from gpu_pipeline.functions.spans import VISIBLE
from gpu_pipeline.kernels.measure_kernels import ALL_LANES, lowest_bit, warp_max, warp_sum
from gpu_pipeline.kernels.repetition_kernels import (
    EMPTY,
    LAST_POSITION,
    characters_of,
    covered_from,
    has_bit,
    keep_of,
    leave_chunk,
    set_bit,
    visited_bits,
    write_tops,
)

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder

LANES = 32  # threads of a warp
PIECE = 512  # words or lines of a document that one warp takes
FAN = 32  # functions of chunks that one thread composes


@cuda.jit(device=True)
def claim_slot(slots, mask, keep, hashes, k):
    """Return the item that stands for all items with the hash of item `k`; if this is `k` itself, return -1 - its slot.
    A slot is read before it is claimed, since most items of a long document repeat."""
    hashed = np.uint64(hashes[at(k)])
    value = np.uint32(np.uint32(hashed >> np.uint64(32)) & ~keep | np.uint32(k))
    slot = np.uint64(hashed & mask)
    while True:
        other = np.uint32(slots[slot])
        if other == EMPTY:
            other = np.uint32(cuda.atomic.cas(slots, slot, EMPTY, value))
            if other == EMPTY:
                return -1 - np.int64(slot)
        if np.uint32(other ^ value) <= keep and hashes[at(other & keep)] == hashed:
            return np.int64(other & keep)
        slot = np.uint64(slot + np.uint64(1) & mask)


@cuda.jit(device=True)
def leader_of(number):
    """Return the lanes with the same number as the first lane that has a number, and this first lane. A lane with a
    negative number has none."""
    votes = np.uint32(cuda.ballot_sync(ALL_LANES, number >= 0))
    leader = lowest_bit(votes) if votes else 0
    wanted = cuda.shfl_sync(ALL_LANES, number, leader)
    return np.uint32(cuda.ballot_sync(ALL_LANES, number >= 0 and number == wanted)), leader


@cuda.jit(cache=True)
def claim_ngrams(
    firsts, counts, starts, chunks, pieces, docs, rows, slot_starts, all_slots, n, keys, active, group, lowest,
    repeated, any_repeats, out,
):  # fmt: skip
    """Find the active n-grams that repeat; for n up to 4, also how often each occurs. Count distinct words if n is 1.

    keys         uint64: hashes of n-grams, as `hashes`; those of all words of the batch if n is 1
    active       mask of n-grams that may repeat; empty if all may
    any_repeats  becomes 1 if one does
    """
    lane, piece = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    while piece < docs.size:
        doc = docs[piece]
        words, base = counts[doc], starts[doc]
        slots = all_slots[slot_starts[doc] : slot_starts[doc + 1]]
        mask, keep = np.uint64(slots.size - 1), keep_of(words)
        first = base if n > 1 else firsts[doc]
        hashes = keys[first : first + words]
        marked = repeated[chunks[doc] : chunks[doc + 1]]
        chosen = active[chunks[doc] : chunks[doc + 1]] if n > 1 else marked
        k = (piece - pieces[doc]) * PIECE + lane
        last = min(k - lane + PIECE, words)
        copies = 0
        while k - lane < last:
            other = np.int64(-1)
            if k < last and (n == 1 or has_bit(chosen, k)):
                other = np.int64(claim_slot(slots, mask, keep, hashes, k))
                group[at(base + k)] = other
            if other >= 0:
                copies += 1
                set_bit(marked, k)
                set_bit(marked, other)
            if n > 1 and n <= 4:
                same, leader = leader_of(other)
                if other >= 0:
                    if same >> np.uint32(lane) & np.uint32(1) == np.uint32(0):
                        cuda.atomic.add(lowest, base + other, 1)
                    elif lane == leader:
                        cuda.atomic.add(lowest, base + other, cuda.popc(same))
            k += LANES
        if copies:
            any_repeats[0] = 1
        if n == 1:
            copies = warp_sum(copies)
            if lane == 0:
                start = (piece - pieces[doc]) * PIECE
                cuda.atomic.add(out, (M.distinct_words, rows[doc]), min(PIECE, words - start) - copies)
        piece += cuda.gridsize(1) // LANES


@cuda.jit(device=True)
def first_equal(group, base, k):
    """Return the first word of the n-gram that stands for the n-gram at word `k`."""
    other = np.int64(group[at(base + k)])
    return other if other >= 0 else k


@cuda.jit(cache=True)
def find_tops(counts, starts, chunks, pieces, docs, n, repeated, group, lowest, tops):
    """Find the most frequent n-gram, the first of ties: it has the largest (occurrences, last position - position)."""
    lane, piece = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    while piece < docs.size:
        doc = docs[piece]
        base, marked = starts[doc], repeated[chunks[doc] : chunks[doc + 1]]
        k = (piece - pieces[doc]) * PIECE + lane
        last = min(k - lane + PIECE, counts[doc])
        best = np.int64(0)
        while k < last:
            if has_bit(marked, k):
                occurrences = np.int64(lowest[at(base + first_equal(group, base, k))]) + 1
                best = max(best, (occurrences << 32) + LAST_POSITION - k)
            k += LANES
        best = warp_max(best)
        if lane == 0 and best:
            cuda.atomic.max(tops, (doc, n - 2), best)
        piece += cuda.gridsize(1) // LANES


@cuda.jit(cache=True)
def prepare_ngrams(
    firsts, counts, starts, chunks, pieces, docs, slot_starts, all_slots, n, word_hash, active, repeated, group, hashes,
    following,
):  # fmt: skip
    """Empty the slots of the n-grams, and hash the (n + 1)-grams whose two n-grams repeat. Set a bit of `following` for
    each of these (n + 1)-grams."""
    lane, piece = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    while piece < docs.size:
        doc = docs[piece]
        base, first = starts[doc], firsts[doc]
        marked, marked_next = repeated[chunks[doc] : chunks[doc + 1]], following[chunks[doc] : chunks[doc + 1]]
        chosen = active[chunks[doc] : chunks[doc + 1]] if n > 1 else marked
        k = (piece - pieces[doc]) * PIECE + lane
        last = min(k - lane + PIECE, counts[doc])
        while k < last:
            if n == 1 or has_bit(chosen, k):
                slot = -1 - np.int64(group[at(base + k)])
                if slot >= 0:
                    all_slots[at(slot_starts[doc] + slot)] = EMPTY
                if has_bit(marked, k) and has_bit(marked, k + 1):
                    set_bit(marked_next, k)
                    hashed = hashes[at(base + k)] if n > 1 else word_hash[at(first + k)]
                    hashes[at(base + k)] = combine64(hashed, word_hash[at(first + k + n)])
            k += LANES
        piece += cuda.gridsize(1) // LANES


@cuda.jit(cache=True)
def note_visits(counts, starts, chunks, pieces, docs, visited, group, lowest):
    """Note for each group of equal n-grams the first one in the mask `visited`."""
    lane, piece = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    while piece < docs.size:
        doc = docs[piece]
        base, marked = starts[doc], visited[chunks[doc] : chunks[doc + 1]]
        k = (piece - pieces[doc]) * PIECE + lane
        last = min(k - lane + PIECE, counts[doc])
        while k - lane < last:
            other = np.int64(-1)
            if k < last and has_bit(marked, k):
                other = np.int64(first_equal(group, base, k))
            same, leader = leader_of(other)
            is_first = lane == leader or same >> np.uint32(lane) & np.uint32(1) == np.uint32(0)
            if other >= 0 and is_first and lowest[at(base + other)] > k:
                cuda.atomic.min(lowest, base + other, np.int32(k))
            k += LANES
        piece += cuda.gridsize(1) // LANES


@cuda.jit(cache=True)
def note_seen(counts, starts, chunks, pieces, docs, repeated, visited, group, lowest, seen, changed):
    """Update `seen`, which marks n-grams that equal an earlier visited n-gram. If this changes the bit of a visited
    n-gram, `changed` becomes True for its document."""
    lane, piece = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    while piece < docs.size:
        doc = docs[piece]
        base, marked = starts[doc], repeated[chunks[doc] : chunks[doc + 1]]
        here, before = visited[chunks[doc] : chunks[doc + 1]], seen[chunks[doc] : chunks[doc + 1]]
        k = (piece - pieces[doc]) * PIECE + lane
        last = min(k - lane + PIECE, counts[doc])
        while k < last:
            if has_bit(marked, k):
                is_seen = lowest[at(base + first_equal(group, base, k))] < k
                if is_seen != has_bit(before, k):
                    cuda.atomic.xor(before, k >> 5, np.uint32(1 << (k & 31)))
                    if has_bit(here, k):
                        changed[doc] = True
            k += LANES
        piece += cuda.gridsize(1) // LANES


# The walk. The last chunk of a document has no bits, so the walk always enters the next document at its start.


@cuda.jit(cache=True)
def leave_chunks(n, seen, functions):
    """One thread per chunk: writes where the walk enters the next chunk, four bits for each position where it can enter
    this chunk."""
    c = cuda.grid(1)
    while c < seen.size:
        value = np.uint64(0)
        if seen[at(c)] != np.uint32(0):
            for entry in range(n):
                value |= np.uint64(leave_chunk(seen[at(c)], n, entry)) << np.uint64(4 * entry)
        functions[at(c)] = value
        c += cuda.gridsize(1)


@cuda.jit(device=True)
def leave(function, entry):
    """Return where a walk leaves that enters at `entry`; `function` has four bits per entry."""
    return np.int64(function >> np.uint64(4 * entry) & np.uint64(15))


@cuda.jit(cache=True)
def compose_functions(n, functions, composed):
    """One thread per FAN functions: writes their composition."""
    g = cuda.grid(1)
    while g < composed.size:
        value = np.uint64(0)
        for entry in range(n):
            state = np.int64(entry)
            for c in range(FAN * g, min(FAN * (g + 1), functions.size)):
                state = leave(functions[at(c)], state)
            value |= np.uint64(state) << np.uint64(4 * entry)
        composed[at(g)] = value
        g += cuda.gridsize(1)


@cuda.jit(cache=True)
def enter_functions(functions, entries, entries_of_each):
    """One thread per FAN functions: writes where the walk enters the chunks of each function, given where it enters the
    first."""
    g = cuda.grid(1)
    while g < entries.size:
        state = np.int64(entries[at(g)])
        for c in range(FAN * g, min(FAN * (g + 1), functions.size)):
            entries_of_each[at(c)] = state
            state = leave(functions[at(c)], state)
        g += cuda.gridsize(1)


@cuda.jit(cache=True)
def visit_chunks(n, repeated, seen, entries, visited):
    """One thread per chunk: marks the repeated n-grams that the walk visits."""
    c = cuda.grid(1)
    while c < visited.size:
        visited[at(c)] = visited_bits(repeated[at(c)], seen[at(c)], n, np.int64(entries[at(c)]))
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def add_duplicates(
    firsts, counts, chunks, pieces, docs, rows, row_ranks, n, word_end, visited, seen, out
):  # fmt: skip
    """Add the characters of the visited n-grams that equal an earlier visited n-gram to the measure of duplicate
    n-grams."""
    lane, piece = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    while piece < docs.size:
        doc = docs[piece]
        ends, base = word_end[firsts[doc] : firsts[doc] + counts[doc]], row_ranks[VISIBLE, rows[doc]]
        here, before = visited[chunks[doc] : chunks[doc + 1]], seen[chunks[doc] : chunks[doc + 1]]
        k = (piece - pieces[doc]) * PIECE + lane
        last = min(k - lane + PIECE, counts[doc])
        characters = 0
        while k < last:
            if has_bit(here, k) and has_bit(before, k):
                characters += characters_of(ends, base, k, k + n)
            k += LANES
        characters = warp_sum(characters)
        if lane == 0 and characters:
            cuda.atomic.add(out, (M.duplicate_2gram_characters + n - 2, rows[doc]), characters)
        piece += cuda.gridsize(1) // LANES


@cuda.jit(cache=True)
def add_covered(firsts, counts, chunks, pieces, docs, rows, row_ranks, n, word_end, repeated, out):
    """Add the characters that each n-gram covers and the n-gram before does not."""
    lane, piece = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    while piece < docs.size:
        doc = docs[piece]
        ends, base = word_end[firsts[doc] : firsts[doc] + counts[doc]], row_ranks[VISIBLE, rows[doc]]
        marked = repeated[chunks[doc] : chunks[doc + 1]]
        k = (piece - pieces[doc]) * PIECE + lane
        last = min(k - lane + PIECE, counts[doc])
        characters = 0
        while k < last:
            if has_bit(marked, k):
                characters += characters_of(ends, base, covered_from(marked, n, k), k + n)
            k += LANES
        characters = warp_sum(characters)
        if lane == 0 and characters:
            cuda.atomic.add(out, (M.covered_5gram_characters + n - 5, rows[doc]), characters)
        piece += cuda.gridsize(1) // LANES


@cuda.jit(cache=True)
def write_long_tops(firsts, counts, rows, row_ranks, max_ngram, word_end, tops, top_characters, out):
    """One thread per long document: writes the measures of its most frequent n-grams."""
    doc = cuda.grid(1)
    if doc < rows.size:
        ends, base = word_end[firsts[doc] : firsts[doc] + counts[doc]], row_ranks[VISIBLE, rows[doc]]
        write_tops(counts[doc], max_ngram, ends, base, tops[doc], top_characters, out, rows[doc])


@cuda.jit(cache=True)
def repeat_long_items(item_starts, pieces, docs, rows, slot_starts, all_slots, hashes, lengths, measure, out):
    """Do the work of `repetition_kernels.count_items` for lines or paragraphs of long documents."""
    lane, piece = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    while piece < docs.size:
        doc = docs[piece]
        first, end = item_starts[rows[doc]], item_starts[rows[doc] + 1]
        slots = all_slots[slot_starts[doc] : slot_starts[doc + 1]]
        mask, keep = np.uint64(slots.size - 1), keep_of(end - first)
        keys = hashes[first:end]
        k = (piece - pieces[doc]) * PIECE + lane
        last = min(k - lane + PIECE, end - first)
        copies = characters = 0
        while k < last:
            if lengths[at(first + k)] >= 0 and claim_slot(slots, mask, keep, keys, k) >= 0:
                copies += 1
                characters += lengths[at(first + k)]
            k += LANES
        copies, characters = warp_sum(copies), warp_sum(characters)
        if lane == 0 and copies:
            cuda.atomic.add(out, (measure, rows[doc]), copies)
            cuda.atomic.add(out, (measure + 1, rows[doc]), characters)
        piece += cuda.gridsize(1) // LANES


def _signatures():
    i32, i64, u32, u64, mask = (
        kind[::1] for kind in (types.int32, types.int64, types.uint32, types.uint64, types.bool_)
    )
    number, pairs, out = types.int64, types.int64[:, ::1], types.int32[:, ::1]
    layout, table = (i64, i64, i64, i64, i64), (i64, u32)  # counts, starts, chunks, pieces, docs
    texts = i64, i64, i64, i64, i64, i64, out, number, i32  # without starts; with rows and what follows
    return {
        claim_ngrams: (i64, *layout, i64, *table, number, u64, u32, i32, i32, u32, i32, out),
        find_tops: (*layout, number, u32, i32, i32, pairs),
        prepare_ngrams: (i64, *layout, *table, number, u64, u32, u32, i32, u64, u32),
        note_visits: (*layout, u32, i32, i32),
        note_seen: (*layout, u32, u32, i32, i32, u32, mask),
        leave_chunks: (number, u32, u64),
        compose_functions: (number, u64, u64),
        enter_functions: (u64, i32, i32),
        visit_chunks: (number, u32, u32, i32, u32),
        add_duplicates: (*texts, u32, u32, out),
        add_covered: (*texts, u32, out),
        write_long_tops: (i64, i64, i64, out, number, i32, pairs, pairs, out),
        repeat_long_items: (i64, i64, i64, i64, *table, u64, i32, number, out),
    }


SIGNATURES = _signatures()
