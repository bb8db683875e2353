# SPDX-License-Identifier: Apache-2.0
"""Measures repetition on the CPU, by hash tables and by loops with few branches that depend on the text.

A table is cleared before each document, so slots need no mark of the document, and a new key needs no branch. A table
is only as large as its items need, and usually fits into the first-level cache. `curation.kernels.measures` describes
the arrays.

Three of four 2-grams occur once in real text. A first table of bytes rejects most of these; few pass as possibly
repeated. Only the 2-grams that pass are counted by their hashes.
"""

import numpy as np

from curation.kernels.cache import kernel
from curation.kernels.hashing import FMIX_1, combine64, table_mask
from curation.kernels.measures import IS_FIRST, IS_PROSE, M

at = np.uint64
FREE = np.uint64(0)  # key of an empty slot
ZERO = FMIX_1  # key of the hash 0


@kernel
def _empty_table(keys, items):
    """Empty the slots that a table of `items` needs; return its index mask."""
    mask = table_mask(items)
    keys[: np.int64(mask) + 1] = FREE
    return mask


@kernel
def slot_of(keys, mask, hashed):
    """Return the slot of a hash, and the hash's key. The slot has this key or is free."""
    key = hashed if hashed != FREE else ZERO
    slot = key & mask
    while keys[slot] != key and keys[slot] != FREE:
        slot = slot + at(1) & mask
    return slot, key


@kernel
def count_duplicate_lines(line_hash, line_mark, text_lines, keys, out, row):
    """Write the measures of prose, and of duplicate text lines and paragraphs. The hash of a paragraph is made from the
    hashes of its lines."""
    mask = _empty_table(keys, text_lines)
    duplicates = characters = 0
    for k in range(at(text_lines)):
        slot, key = slot_of(keys, mask, line_hash[k])
        repeated = int(keys[slot] == key)
        keys[slot] = key
        duplicates += repeated
        characters += (line_mark[k] >> 2) * repeated
    out[M.duplicate_lines, row] = duplicates
    out[M.duplicate_line_characters, row] = characters
    mask = _empty_table(keys, text_lines)
    for k in range(at(text_lines)):
        if line_mark[k] & IS_PROSE:
            slot, key = slot_of(keys, mask, line_hash[k])
            repeated = int(keys[slot] == key)
            keys[slot] = key
            out[M.prose_lines, row] += 1
            out[M.prose_line_characters, row] += line_mark[k] >> 2
            out[M.duplicate_prose_lines, row] += repeated
            out[M.duplicate_prose_line_characters, row] += (line_mark[k] >> 2) * repeated
    mask = _empty_table(keys, text_lines)
    duplicates = characters = 0
    line = at(0)
    while line < at(text_lines):
        paragraph = line_hash[line]
        length = line_mark[line] >> 2
        line += at(1)
        while line < at(text_lines) and line_mark[line] & IS_FIRST == 0:
            paragraph = combine64(paragraph, line_hash[line])
            length += 1 + (line_mark[line] >> 2)
            line += at(1)
        slot, key = slot_of(keys, mask, paragraph)
        repeated = int(keys[slot] == key)
        keys[slot] = key
        duplicates += repeated
        characters += length * repeated
    out[M.duplicate_paragraphs, row] = duplicates
    out[M.duplicate_paragraph_characters, row] = characters


@kernel
def count_distinct_words(word_hash, words, keys, out, row):
    """Write how many different hashes the words have, by a table in the scratch `keys`."""
    mask = _empty_table(keys, words)
    distinct = 0
    for w in range(at(words)):
        slot, key = slot_of(keys, mask, word_hash[w])
        distinct += int(keys[slot] == FREE)
        keys[slot] = key
    out[M.distinct_words, row] = distinct


@kernel
def _find_candidates(words, word_hash, seen, active, active_hash):
    """Write the positions and hashes of the 2-grams that may repeat; return the number of such 2-grams.

    seen   uint8, at least 16 items per word, and 64
    """
    if words < 2:
        return 0
    for w in range(at(words - 1)):
        active_hash[w] = combine64(word_hash[w], word_hash[w + at(1)])
    mask = (table_mask(words) << at(2)) | at(3)
    seen[: np.int64(mask) + 1] = 0
    for w in range(at(words - 1)):
        slot = active_hash[w] >> at(32) & mask
        seen[slot] = seen[slot] << np.uint8(1) | np.uint8(1)
    candidates = at(0)
    for w in range(at(words - 1)):
        hashed = active_hash[w]
        active[candidates] = w
        active_hash[candidates] = hashed
        candidates += at(seen[hashed >> at(32) & mask] > 1)
    return np.int64(candidates)


@kernel
def _extend(n, word_hash, active, active_hash, num_active):
    """Replace the active (n-1)-grams by the n-grams whose two (n-1)-grams are active; return the number of n-grams."""
    extended = at(0)
    for c in range(at(max(num_active - 1, 0))):
        position = active[c]
        active[extended] = position
        active_hash[extended] = active_hash[c]
        extended += at(active[c + at(1)] == position + 1)
    for c in range(extended):
        active_hash[c] = combine64(active_hash[c], word_hash[at(active[c] + n - 1)])
    return np.int64(extended)


@kernel
def _count_repeated(active, active_hash, active_slot, num_active, keys, counts):
    """Count the active n-grams, and keep those that occur more than once; return the number of n-grams kept."""
    mask = _empty_table(keys, num_active)
    counts[: np.int64(mask) + 1] = 0
    for c in range(at(num_active)):
        slot, key = slot_of(keys, mask, active_hash[c])
        keys[slot] = key
        counts[slot] += 1
        active_slot[c] = np.int64(slot)
    repeated = at(0)
    for c in range(at(num_active)):
        active[repeated], active_hash[repeated], active_slot[repeated] = active[c], active_hash[c], active_slot[c]
        repeated += at(counts[at(active_slot[c])] > 1)
    return np.int64(repeated)


@kernel
def count_ngrams(
    words, max_ngram, coverage, first_duplicates, word_hash, word_end, active, active_hash, active_slot, keys, counts,
    out, row,
):  # fmt: skip
    """Write the measures of top 2- to 4-grams, and of duplicate n-grams from size `first_duplicates` on. With
    `coverage`, also write those of covered 5- to 10-grams. Sizes end at `max_ngram`."""
    repeated = _find_candidates(words, word_hash, keys.view(np.uint8), active, active_hash)
    for n in range(2, max_ngram + 1):
        if n > 2:
            repeated = _extend(n, word_hash, active, active_hash, repeated)
        repeated = _count_repeated(active, active_hash, active_slot, repeated, keys, counts)
        if n <= 4:
            write_top(n, words, word_end, active, active_slot, repeated, counts, out, row)
        elif coverage:
            write_covered(n, word_end, active, repeated, out, row)
        if n >= first_duplicates:
            write_duplicates(n, word_end, active, active_slot, repeated, counts, out, row)
        if repeated == 0 and n >= 4:
            break


@kernel
def _characters_between(word_end, first, after):
    return word_end[after - 1] - (word_end[first - 1] if first > 0 else 0)


@kernel
def write_top(n, words, word_end, active, active_slot, repeated, counts, out, row):
    """Write count and characters of the most frequent n-gram, the first of ties. If all occur once, that is the first
    n-gram."""
    best = 1
    position = 0
    for c in range(repeated):
        if counts[active_slot[c]] > best:
            best = counts[active_slot[c]]
            position = active[c]
    if words >= n:
        out[M.top_2gram_count + n - 2, row] = best
        out[M.top_2gram_characters + n - 2, row] = best * (
            _characters_between(word_end, position, position + n) + n - 1
        )


@kernel
def write_duplicates(n, word_end, active, active_slot, repeated, counts, out, row):
    """Write the characters of duplicate n-grams, found by a greedy walk. A negative count marks an n-gram seen
    before."""
    free = 0
    characters = 0
    for c in range(repeated):
        position = active[c]
        if position < free:
            continue
        slot = active_slot[c]
        if counts[slot] < 0:
            characters += _characters_between(word_end, position, position + n)
            free = position + n
        else:
            counts[slot] = -counts[slot]
    out[M.duplicate_2gram_characters + n - 2, row] = characters


@kernel
def write_covered(n, word_end, active, repeated, out, row):
    """Write the characters of words that repeated n-grams cover; overlapping ones count once."""
    free = 0
    characters = 0
    for c in range(repeated):
        position = active[c]
        characters += _characters_between(word_end, max(position, free), position + n)
        free = position + n
    out[M.covered_5gram_characters + n - 5, row] = characters
