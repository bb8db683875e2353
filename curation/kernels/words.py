# SPDX-License-Identifier: Apache-2.0
"""Words: maximal runs of characters that are not white space, and their 64-bit hashes."""

import numpy as np
from numba import njit

from curation.kernels import tables, utf8
from curation.kernels.hashing import GOLDEN, combine64, mix64
from curation.kernels.utf8 import byte_at

# One 64-bit number per character, eight counters of eight bits: adding them counts eight classes at once.
LANE_ALPHABETIC, LANE_ALPHANUMERIC, LANE_DIGIT, LANE_UPPERCASE = 0, 8, 16, 24
LANE_BRACKET, LANE_PUNCTUATION, LANE_UNSPACED, LANE_VISIBLE = 32, 40, 48, 56
LANE_HASH_SIGN = LANE_UNSPACED  # of ASCII, which has no unspaced script
MAX_LANE = 255

BRACKETS = "()[]{}⟨⟩"


def character_lanes(unicode: tables.UnicodeTables) -> tuple[np.ndarray, np.ndarray]:
    """Counters per Unicode record (uint64), and per byte. 0 exactly where the character is white space, and for the
    bytes of characters beyond ASCII, which are counted by their record."""
    flags = unicode.flags.astype(np.uint64)
    lanes = np.zeros(len(flags), np.uint64)
    for flag, lane in (
        (tables.ALPHA, LANE_ALPHABETIC),
        (tables.ALNUM, LANE_ALPHANUMERIC),
        (tables.DIGIT, LANE_DIGIT),
        (tables.UPPER, LANE_UPPERCASE),
        (tables.PUNCTUATION, LANE_PUNCTUATION),
        (tables.UNSPACED, LANE_UNSPACED),
    ):
        lanes |= np.where(flags & np.uint64(flag), np.uint64(1 << lane), np.uint64(0))
    lanes |= np.where(flags & np.uint64(tables.SPACE), np.uint64(0), np.uint64(1 << LANE_VISIBLE))
    byte_lanes = np.zeros(256, np.uint64)
    byte_lanes[:128] = lanes[:128]  # records 0 to 127 are the ASCII code points
    for bracket in BRACKETS[:6]:
        byte_lanes[ord(bracket)] |= np.uint64(1 << LANE_BRACKET)
    byte_lanes[ord("#")] |= np.uint64(1 << LANE_HASH_SIGN)
    return lanes, byte_lanes


# Eight ASCII bytes at once. A mark is the top bit of a byte; all bytes that are tested are below 0x80, so that no
# addition reaches into the next byte.
LOW_BITS = np.uint64(0x0101010101010101)
HIGH_BITS = np.uint64(0x8080808080808080)
CASE_BITS = np.uint64(0x2020202020202020)
ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)


@njit(cache=True, nogil=True)
def mark_stops(block):
    """Marks the bytes up to U+0020 and from 0x80 on; only the lowest mark is sure, a borrow may set those above."""
    return ((block - np.uint64(0x2121212121212121)) | block) & HIGH_BITS


@njit(cache=True, nogil=True)
def first_mark(marks):
    """Position (0 to 7) of the lowest marked byte; 8 where none is marked."""
    if marks == np.uint64(0):
        return 8
    below = (marks & (~marks + np.uint64(1))) - np.uint64(1)
    return int((below & LOW_BITS) * LOW_BITS >> np.uint64(56)) - 1


@njit(cache=True, nogil=True)
def count_marks(marks):
    return int((marks >> np.uint64(7)) * LOW_BITS >> np.uint64(56))


@njit(cache=True, nogil=True)
def low_bytes(count):
    """A mask of the first `count` (1 to 8) bytes."""
    return ALL_BITS >> np.uint64(64 - 8 * count)


@njit(cache=True, nogil=True)
def mark_equal(block, eight):
    """Marks the bytes of an ASCII block that equal those of `eight`."""
    return ~((block ^ eight) + np.uint64(0x7F7F7F7F7F7F7F7F)) & HIGH_BITS


@njit(cache=True, nogil=True)
def _mark_range(block, below_first, below_after):
    return (block + below_first) & ~(block + below_after) & HIGH_BITS


@njit(cache=True, nogil=True)
def mark_letters(block):
    return _mark_range(block | CASE_BITS, np.uint64(0x1F1F1F1F1F1F1F1F), np.uint64(0x0505050505050505))


@njit(cache=True, nogil=True)
def mark_capitals(block):
    return _mark_range(block, np.uint64(0x3F3F3F3F3F3F3F3F), np.uint64(0x2525252525252525))


@njit(cache=True, nogil=True)
def mark_digits(block):
    return _mark_range(block, np.uint64(0x5050505050505050), np.uint64(0x4646464646464646))


@njit(cache=True, nogil=True)
def finish_word(state, pending, num_bytes):
    """The hash of a word from its full 8-byte blocks (`state`), its last bytes (`pending`) and its length."""
    return mix64(combine64(state, pending) + np.uint64(num_bytes) * GOLDEN)


@njit(cache=True, nogil=True)
def count_words(data, start, end, pages, records, lanes, byte_lanes):
    """How many words a document has, where scratch must be laid out before the scan."""
    words = 0
    inside = False
    i = start
    while i < end:
        byte = byte_at(data, i)
        if byte < 0x80:
            visible = byte_lanes[np.uint64(byte)] != np.uint64(0)
            i += 1
        else:
            code_point, width = utf8.decode(data, i)
            visible = lanes[np.uint64(utf8.record_of(pages, records, code_point))] != np.uint64(0)
            i += width
        if visible and not inside:
            words += 1
        inside = visible
    return words
