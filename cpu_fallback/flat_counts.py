# SPDX-License-Identifier: Apache-2.0
"""Counts words and characters of many short texts: first masks of the whole buffer, then differences of ranks per text.

The scan of a document (`vector_scan`) takes 0.2 us before its first byte, longer than a line of 40 bytes takes here.
"""

import numpy as np

from cpu_fallback.masks import AHEAD, NO_BITS, ONE, count_bits, first_bits, prefetch, text_masks
from cpu_fallback.vector_scan import read_beyond_ascii
from curation.base.measures import NUM_MEASURES
from curation.kernels.cache import kernel
from curation.kernels.hashing import at

NAMES = ("bytes", "characters", "words", "word_characters", "space_characters", "max_word_characters")
SHORT_BYTES = 512  # the mean size below which the masks of the whole buffer are faster
START, LEAD, VISIBLE, SOLID = range(4)  # masks; the last has no ranks


def count_flat(
    data: np.ndarray, offsets: np.ndarray, tables: tuple, lanes: np.ndarray, longest: bool
) -> dict[str, np.ndarray]:
    """Return the measures NAMES of texts without nulls, int64; the last measure only if `longest`. `tables` are pages,
    records and flags of `UnicodeTables`."""
    blocks = int(offsets[-1] - offsets[0]) // 64 + 2
    masks, ranks = np.empty((4, blocks), np.uint64), np.empty((3, blocks), np.int64)
    mark_blocks(data, offsets[0], offsets[-1], *tables, lanes, masks, ranks, np.zeros((NUM_MEASURES, 1), np.int64))
    counts = {name: np.empty(len(offsets) - 1, np.int64) for name in NAMES}
    count_texts(offsets, masks, ranks, *list(counts.values())[:-1])
    if longest:
        find_longest(offsets, masks, ranks, counts["max_word_characters"])
    return counts


@kernel
def mark_blocks(data, start, end, pages, records, flags, lanes, masks, ranks, unused):
    """Write the masks of each 64 bytes, and the bits before them: starts of words, of characters, and of characters
    that are not white space."""
    next_spaces = last_visible = NO_BITS
    starts_before = leads_before = visible_before = block = 0
    base = start
    while base <= end:
        visible = leads = NO_BITS
        if base < end:
            prefetch(data, base + AHEAD)
            spaces, _, _, beyond, laters, _, _ = text_masks(data, base)
            valid = ~NO_BITS if end - base >= 64 else first_bits(end - base)
            spaces |= next_spaces
            next_spaces = NO_BITS
            if beyond & valid:
                more_spaces, _, _, next_spaces = read_beyond_ascii(
                    data, base, beyond & valid & ~laters, pages, records, flags, lanes, False, unused, 0
                )
                spaces |= more_spaces
            visible, leads = ~spaces & valid, valid & ~laters
        starts = visible & ~(visible << ONE | last_visible)
        last_visible = visible >> at(63)
        masks[START, block], masks[LEAD, block], masks[VISIBLE, block] = starts, leads, leads & visible
        masks[SOLID, block] = visible
        ranks[START, block], ranks[LEAD, block] = starts_before, leads_before
        ranks[VISIBLE, block] = visible_before
        starts_before += count_bits(starts)
        leads_before += count_bits(leads)
        visible_before += count_bits(leads & visible)
        block += 1
        base += 64


@kernel
def bits_before(masks, ranks, mask, offset):
    """Number of bits of a mask before a byte."""
    block = at(offset) >> at(6)
    return ranks[at(mask), block] + count_bits(masks[at(mask), block] & first_bits(offset & 63))


@kernel
def has_bit(masks, offset):
    """Return whether the byte at `offset` belongs to a character that is not white space, so to a word."""
    return masks[at(SOLID), at(offset) >> at(6)] >> at(offset & 63) & ONE != NO_BITS


@kernel
def count_texts(offsets, masks, ranks, sizes, characters, words, word_characters, space_characters):
    """Write the counts of each text. A word that crosses a border of texts counts in both."""
    origin = offsets[0]
    for row in range(len(sizes)):
        start, end = offsets[row] - origin, offsets[row + 1] - origin
        count = bits_before(masks, ranks, START, end) - bits_before(masks, ranks, START, start)
        if 0 < start < end and has_bit(masks, start) and has_bit(masks, start - 1):
            count += 1
        leads = bits_before(masks, ranks, LEAD, end) - bits_before(masks, ranks, LEAD, start)
        visible = bits_before(masks, ranks, VISIBLE, end) - bits_before(masks, ranks, VISIBLE, start)
        sizes[row], characters[row], words[row] = end - start, leads, count
        word_characters[row], space_characters[row] = visible, leads - visible


@kernel
def find_longest(offsets, masks, ranks, longest):
    """Write the number of characters of the longest word of each text: the visible characters from its start to the
    next word."""
    origin = offsets[0]
    for row in range(len(longest)):
        start, end = offsets[row] - origin, offsets[row + 1] - origin
        most = 0
        before = bits_before(masks, ranks, VISIBLE, start)
        block = start >> 6
        while block << 6 < end:
            starts = masks[at(START), at(block)]
            if block << 6 < start:
                starts &= ~first_bits(start & 63)
            if end - (block << 6) < 64:
                starts &= first_bits(end & 63)
            while starts:
                below = (starts & (~starts + ONE)) - ONE
                visible = ranks[at(VISIBLE), at(block)] + count_bits(masks[at(VISIBLE), at(block)] & below)
                most = max(most, visible - before)
                before = visible
                starts &= starts - ONE
            block += 1
        longest[row] = max(most, bits_before(masks, ranks, VISIBLE, end) - before)
