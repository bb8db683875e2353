# SPDX-License-Identifier: Apache-2.0
"""Finds and hashes words and lines of many documents at once; work is divided by bytes, words and lines.

Masks and `blocks` are those of `items`. A *rank* is the number of bits before a byte; `ranks` has one rank per 32
bytes. Positions of words and lines are int32 and count from `origin`, so a batch is shorter than 2^31 bytes.
"""

import numpy as np

from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.hashing import combine64, load_tail
from curation.kernels.measures import ends_in_sentence_mark, is_closing
from curation.kernels.tables import LINE_BREAK
from curation.kernels.utf8 import byte_at
from curation.kernels.words import (
    HIGH_BITS,
    LANE_ALPHABETIC,
    LANE_ALPHANUMERIC,
    LANE_BRACKET,
    LANE_HASH_SIGN,
    LANE_VISIBLE,
    finish_word,
    first_mark,
    low_bytes,
    mark_equal,
    mark_letters,
    mark_range,
    mark_spaces,
)
from gpu_pipeline.functions.items import GATHER, at, is_solid

# Masks of a batch. Those of RANKED have ranks.
LEAD, BREAK, LETTER, WORD, VISIBLE, SOLID, ADDRESS, END = range(8)
MASKS, RANKED = 8, 5
BLANKS = np.uint64(0x2020202020202020)
LOW_SEVEN = np.uint64(0x7F7F7F7F7F7F7F7F)
# For `mark_range`: 0x80 minus the first digit, and 0x80 minus the byte after the last digit
BELOW_DIGITS, AFTER_DIGITS = np.uint64(0x5050505050505050), np.uint64(0x4646464646464646)
MAX_CODE_POINT = 0x10FFFF
FULL_STOP, COLON, SLASH, SMALL_W, LINE_FEED, RETURN = 46, 58, 47, 119, 10, 13
ELLIPSIS, OPEN_ANGLE, CLOSE_ANGLE = 0x2026, 0x27E8, 0x27E9
# The lanes of `words` count all classes except two: letters and visible characters have masks.
LANE_SIGN, LANE_ELLIPSIS = LANE_ALPHABETIC, LANE_VISIBLE  # "#" and "…"
KEPT_LANES = np.uint64(sum(0xFF << lane for lane in range(8, 56, 8)))
KEPT_ASCII_LANES = np.uint64(sum(0xFF << lane for lane in range(8, 48, 8)))


@kernel
def bits_of(marks):
    """Return eight bits: bit k is the mark (the top bit) of byte k."""
    return np.int64((marks >> np.uint64(7)) * GATHER >> np.uint64(56))


@kernel
def mark_bytes_equal(block, byte):
    """Mark the bytes that equal `byte`, in any block."""
    differing = block ^ (np.uint64(byte) * np.uint64(0x0101010101010101))
    return ~((differing & LOW_SEVEN) + LOW_SEVEN | differing) & HIGH_BITS


@kernel
def _mark_breaks(block):
    """Mark the line breaks of an ASCII block: bytes 10 to 13 and 28 to 30."""
    control = mark_range(block, np.uint64(0x7676767676767676), np.uint64(0x7272727272727272))
    return control | mark_range(block, np.uint64(0x6464646464646464), np.uint64(0x6161616161616161))


@kernel
def record_at(data, i, pages, records):
    """Return the record of the character that starts at `i`, and its code point; (-1, 0) for bytes of null rows that
    are no character."""
    lead = byte_at(data, i)
    if i + utf8.lead_width(lead) > data.size:
        return -1, 0
    code_point, _ = utf8.decode(data, i)
    if code_point > MAX_CODE_POINT:
        return -1, 0
    return utf8.record_of(pages, records, code_point), code_point


@kernel
def text_bits(data, block, i, pages, records, flags, lanes):
    """Return four masks of the block at `i`: SOLID, LEAD, BREAK and LETTER. SOLID has a bit for every byte of a
    character, the others for its first byte only."""
    if block & HIGH_BITS == np.uint64(0):
        letters = bits_of(mark_letters(block))
        if (block - BLANKS) & ~block & HIGH_BITS == np.uint64(0):  # no control character
            return bits_of(mark_equal(block, BLANKS)) ^ 0xFF, 0xFF, 0, letters
        return bits_of(mark_spaces(block)) ^ 0xFF, 0xFF, bits_of(_mark_breaks(block)), letters
    solid = True
    if i > 0 and int(block & np.uint64(0xC0)) == 0x80:  # a character that starts in the block before
        solid = is_solid(data, utf8.start_of(data, max(i - 3, 0), i), pages, records, flags)
    solids = leads = breaks = letters = 0
    for k in range(min(8, data.size - i)):
        if np.int64(block >> np.uint64(8 * k) & np.uint64(0xC0)) != 0x80:
            record, _ = record_at(data, i + k, pages, records)
            solid = True
            if record >= 0:
                lane = lanes[at(record)]
                solid = lane != np.uint64(0)
                letters |= int(np.int64(lane >> np.uint64(LANE_ALPHABETIC) & np.uint64(1))) << k
                breaks |= int(flags[at(record)] & np.uint32(LINE_BREAK) != np.uint32(0)) << k
            leads |= 1 << k
        solids |= int(solid) << k
    return solids, leads, breaks, letters


@kernel
def alphanumeric_bits(data, block, i, pages, records, lanes):
    """Return a bit for the first byte of each letter and number of the block at `i`."""
    if block & HIGH_BITS == np.uint64(0):
        return bits_of(mark_letters(block) | mark_range(block, BELOW_DIGITS, AFTER_DIGITS))
    bits = 0
    for k in range(min(8, data.size - i)):
        if np.int64(block >> np.uint64(8 * k) & np.uint64(0xC0)) != 0x80:
            record, _ = record_at(data, i + k, pages, records)
            if record >= 0:
                bits |= int(np.int64(lanes[at(record)] >> np.uint64(LANE_ALPHANUMERIC) & np.uint64(1))) << k
    return bits


@kernel
def _may_be_address(data, i):
    """Whether the colon or full stop at `i` is one of "://" or "www."."""
    if byte_at(data, i) == 46:
        return i >= 1 and byte_at(data, i - 1) == 119
    return i + 2 < data.size and byte_at(data, i + 1) == 47 and byte_at(data, i + 2) == 47


@kernel
def address_bits(data, block, i):
    """Return a bit for each colon or full stop of the block at `i` that may belong to the start of a URL."""
    stops, colons = mark_bytes_equal(block, FULL_STOP), mark_bytes_equal(block, COLON)
    if stops | colons == np.uint64(0):
        return 0
    # A full stop must follow a "w", and a colon precede a "/". Bytes outside the block are checked below.
    stops &= mark_bytes_equal(block, SMALL_W) << np.uint64(8) | np.uint64(0x80)
    colons &= mark_bytes_equal(block, SLASH) >> np.uint64(8) | np.uint64(0x80 << 56)
    marks = stops | colons
    kept = 0
    while marks:
        k = first_mark(marks)
        if _may_be_address(data, i + k):
            kept |= 1 << k
        marks &= marks - np.uint64(1)
    return kept


@kernel
def ascii_lanes(byte, byte_lanes):
    """Return the class counters of an ASCII character that is no letter."""
    lane = byte_lanes[at(byte)]
    return lane & KEPT_ASCII_LANES | (lane >> np.uint64(LANE_HASH_SIGN) & np.uint64(1)) << np.uint64(LANE_SIGN)


@kernel
def character_lanes_at(data, i, pages, records, lanes, byte_lanes):
    """Return the class counters of the character that starts at `i`."""
    byte = byte_at(data, i)
    if byte < 0x80:
        return ascii_lanes(byte, byte_lanes)
    code_point, _ = utf8.decode(data, i)
    counters = lanes[at(utf8.record_of(pages, records, code_point))] & KEPT_LANES
    if code_point == ELLIPSIS:
        return counters | np.uint64(1 << LANE_ELLIPSIS)
    if code_point == OPEN_ANGLE or code_point == CLOSE_ANGLE:
        return counters | np.uint64(1 << LANE_BRACKET)
    return counters


@kernel
def aligned_block(data, blocks, k):
    """Return the eight bytes from 8 * k; zeros beyond the end."""
    if k < blocks.size:
        return blocks[at(k)]
    return load_tail(data, 8 * k, max(data.size - 8 * k, 0))


@kernel
def join_blocks(low, high, shift):
    """Return the eight bytes that start `shift` bits (below 64) after the start of `low`; `high` is the block after
    `low`."""
    return low >> shift | high << np.uint64(1) << (np.uint64(63) - shift)  # a shift by 64 is undefined


@kernel
def span_state(data, blocks, start, end):
    """Return the state of a hash after all but the last 1 to 8 bytes; these last bytes; and whether the other bytes
    have a full stop."""
    state = dots = np.uint64(0)
    shift = np.uint64(start & 7) * np.uint64(8)
    k, left = start >> 3, end - start
    low = aligned_block(data, blocks, k)
    inner = min((left - 1) >> 3, blocks.size - 1 - k)  # blocks that need no test for the end of the text
    while inner > 0:
        k += 1
        high = blocks[at(k)]
        block = join_blocks(low, high, shift)
        dots |= mark_bytes_equal(block, FULL_STOP)
        state = combine64(state + np.uint64(1), block)
        low = high
        left -= 8
        inner -= 1
    while left > 8:
        k += 1
        high = aligned_block(data, blocks, k)
        block = join_blocks(low, high, shift)
        dots |= mark_bytes_equal(block, FULL_STOP)
        state = combine64(state + np.uint64(1), block)
        low = high
        left -= 8
    rest = low >> shift
    if shift + np.uint64(8 * left) > np.uint64(64):
        rest = join_blocks(low, aligned_block(data, blocks, k + 1), shift)
    rest &= low_bytes(left)
    return state, rest, dots != np.uint64(0)


@kernel
def hash_span(data, blocks, start, end):
    """Return a hash of the bytes, for use within a batch only."""
    state, rest, _ = span_state(data, blocks, start, end)
    return finish_word(state, rest, end - start)


@kernel
def may_have_ellipsis(rest, dots):
    """Whether a word may contain "...", by the last two results of `span_state`. False is certain, True is not."""
    marks = mark_bytes_equal(rest, FULL_STOP)
    return dots or marks & marks >> np.uint64(8) & marks >> np.uint64(16) != np.uint64(0)


@kernel
def count_ellipses(data, start, end, stops):
    """Return the number of "..." that end in data[start:end], if `stops` full stops precede it."""
    count = 0
    for i in range(start, end):
        stops = stops + 1 if byte_at(data, i) == FULL_STOP else 0
        if stops == 3:
            count += 1
            stops = 0
    return count


@kernel
def ends_sentence(data, start, end, last):
    """Whether the word ends a sentence; `last` is its last byte."""
    if last >= 0x80 or last == 34 or last == 39 or last == 41 or last == 93 or last == 125:
        return ends_in_sentence_mark(data, start, end)
    return last == 46 or last == 33 or last == 63


@kernel
def last_other_character(data, start, end):
    """Return the start of the last character of data[start:end] that is no closing quote or bracket; -1 if there is
    none. `start` and `end` are not inside a character."""
    while end > start:
        i = utf8.start_of(data, start, end)
        if not is_closing(utf8.decode(data, i)[0]):
            return i
        end = i
    return -1


@kernel
def character_start(data, i, end):
    """The first byte from `i` that starts a character, or `end`."""
    while i < end and byte_at(data, i) & 0xC0 == 0x80:
        i += 1
    return i


@kernel
def is_second_of_pair(data, i, start):
    """Whether the line break at `i` is the LF of CR LF in a document that starts at `start`."""
    return byte_at(data, i) == LINE_FEED and i > start and byte_at(data, i - 1) == RETURN


@kernel
def after_character(data, i):
    """Return where the next character starts, if `i` is the first byte of a character."""
    return i + utf8.lead_width(byte_at(data, i))


@kernel
def after_last_other_byte(data, start, end):
    """Return the position after the last byte of data[start:end] that is no full stop; -1 if all are full stops."""
    while end > start and byte_at(data, end - 1) == FULL_STOP:
        end -= 1
    return end if end > start else -1


@kernel
def segment_of(starts, k):
    """Return the last segment that starts at or before item `k`; -1 if there is none. `starts` is ascending."""
    low, high = -1, starts.size
    while high - low > 1:
        middle = (low + high) >> 1
        if starts[middle] <= k:
            low = middle
        else:
            high = middle
    return low
