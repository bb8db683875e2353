# SPDX-License-Identifier: Apache-2.0
"""Words: maximal runs of characters that are not white space, and their 64-bit hashes."""

import numpy as np

from curation.kernels import tables
from curation.kernels.cache import kernel
from curation.kernels.hashing import GOLDEN, combine64, mix64

# A uint64 per character holds eight counters of eight bits: one addition counts eight classes.
LANE_ALPHABETIC, LANE_ALPHANUMERIC, LANE_DIGIT, LANE_UPPERCASE = 0, 8, 16, 24
LANE_BRACKET, LANE_PUNCTUATION, LANE_UNSPACED, LANE_VISIBLE = 32, 40, 48, 56
LANE_HASH_SIGN = LANE_UNSPACED  # classes in ASCII, which has no script without spaces

BRACKETS = "()[]{}⟨⟩"


def character_lanes(unicode: tables.UnicodeTables) -> tuple[np.ndarray, np.ndarray]:
    """Return counters per Unicode record (uint64[records]), and per byte (uint64[256]).  The counters of a record are 0
    if and only if it is white space. Those of bytes above 0x7F are 0: such characters are counted by record.
    """
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


# Eight ASCII bytes at once. A mark is the top bit of a byte. All tested bytes are below 0x80, so additions never carry
# into the next byte.
LOW_BITS = np.uint64(0x0101010101010101)
HIGH_BITS = np.uint64(0x8080808080808080)
CASE_BITS = np.uint64(0x2020202020202020)
ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel
def first_mark(marks):
    """Position (0 to 7) of the lowest marked byte; 8 if none is marked."""
    if marks == np.uint64(0):
        return 8
    below = (marks & (~marks + np.uint64(1))) - np.uint64(1)
    return int((below & LOW_BITS) * LOW_BITS >> np.uint64(56)) - 1


@kernel
def low_bytes(count):
    """A mask of the first `count` (1 to 8) bytes."""
    return ALL_BITS >> np.uint64(64 - 8 * count)


@kernel
def mark_equal(block, eight):
    """Mark the bytes of an ASCII block that equal the byte of `eight` at the same position."""
    return ~((block ^ eight) + np.uint64(0x7F7F7F7F7F7F7F7F)) & HIGH_BITS


@kernel
def mark_range(block, below_first, below_after):
    """The high bit of each byte that lies in a range of ASCII, for eight bytes at once.

    below_first, below_after  0x80 minus the first byte of the range, and minus the byte after its last, in each byte
    """
    return (block + below_first) & ~(block + below_after) & HIGH_BITS


@kernel
def mark_letters(block):
    """Mark A to Z and a to z in a block of eight bytes of ASCII."""
    return mark_range(block | CASE_BITS, np.uint64(0x1F1F1F1F1F1F1F1F), np.uint64(0x0505050505050505))


@kernel
def mark_capitals(block):
    """Mark the ASCII capital letters."""
    return mark_range(block, np.uint64(0x3F3F3F3F3F3F3F3F), np.uint64(0x2525252525252525))


@kernel
def mark_spaces(block):
    """Mark the white space of an ASCII block: bytes 9 to 13 and 28 to 32."""
    control = mark_range(block, np.uint64(0x7777777777777777), np.uint64(0x7272727272727272))
    return control | mark_range(block, np.uint64(0x6464646464646464), np.uint64(0x5F5F5F5F5F5F5F5F))


@kernel
def word_state(state, pending, num_bytes):
    """Return the value of `finish_word` before its last step."""
    return combine64(state, pending) + np.uint64(num_bytes) * GOLDEN


@kernel
def finish_word(state, pending, num_bytes):
    """The hash (uint64) of a word from its whole 8-byte blocks (`state`), its last bytes (`pending`) and its length."""
    return mix64(word_state(state, pending, num_bytes))
