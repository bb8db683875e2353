# SPDX-License-Identifier: Apache-2.0
"""Rewrites the characters of many documents at once, for engines that divide work by bytes. The steps of `rewrite`
become bits of each byte, and bytes that replace it.

A character is *gone*, a *space* (if white space is treated) or *solid*. A character of n bytes in the output has n
bits, those of its first n bytes. Few characters are one byte longer in lower case than in the text; they have one more
bit. Which spaces stay, and which bytes are in tags, depends on neighbouring characters: engines find that by masks.

`drop`, `markup`, `whitespace`, `lowercase` and `fold` are those of `rewrite.plan_steps`, `pages`, `records`, `flags`
and `lower` those of `tables.UnicodeTables`. The text is data[start:end], well-formed UTF-8.
"""

import numpy as np

from curation.kernels import rewrite, tables, utf8
from curation.kernels.cache import kernel
from curation.kernels.words import HIGH_BITS, first_mark, mark_capitals, mark_equal, mark_letters, mark_spaces
from gpu_pipeline.functions.items import at, block_at
from gpu_pipeline.functions.spans import BLANKS, LOW_SEVEN, bits_of, join_blocks, mark_bytes_equal

GONE, SPACE, SOLID = range(3)
NEWLINES = np.uint64(0x0A0A0A0A0A0A0A0A)
I_WITH_DOT = np.uint64(0x87CC69)  # the lower case of U+0130: i, U+0307
SIGMA, FINAL_SIGMA = np.uint64(0x83CF), np.uint64(0x82CF)
ASCII_END, CAPITAL_SIGMA = 0x80, 0x3A3


def _halves(*classes: np.ndarray) -> tuple[int, ...]:
    """Return two int64 for each class of ASCII bytes (bool[128]): one bit per byte, the first 64 bytes in one number,
    the last 64 in the other."""
    return tuple(map(int, np.packbits(np.stack(classes), axis=1, bitorder="little").view(np.int64).ravel()))


def ascii_classes(drop: int, fold: int) -> tuple[int, ...]:
    """Return three classes of ASCII bytes: those that are dropped, those that become 0, and those that become
    spaces."""
    flags = tables.load_tables().flags[:ASCII_END].astype(np.int64)
    dropped = flags & drop != 0
    zeros = ~dropped & (flags & fold & tables.DIGIT != 0)
    return _halves(dropped, zeros, ~dropped & ~zeros & (flags & fold != 0))


def ignored_ascii(fold: int) -> tuple[int, ...]:
    """Return the class of the ASCII bytes that do not decide the form of a nearby sigma, as two numbers (`_halves`)."""
    flags = tables.load_tables().flags[:ASCII_END].astype(np.int64)
    return _halves((flags & tables.CASE_IGNORABLE != 0) & (flags & fold == 0))


@kernel
def encoded_width(code_point):
    """Bytes of a code point in UTF-8."""
    return 1 + int(code_point >= 0x80) + int(code_point >= 0x800) + int(code_point >= 0x10000)


@kernel
def effect_of(code_point, width, record, drop, whitespace, lowercase, fold, flags, lower):
    """Return what a character becomes (GONE, SPACE or SOLID), its number of bits, whether it grows, and whether its
    bytes change.

    Capital letters and white space in ASCII do not count as changes: `changed_ascii` treats them.
    """
    char_flags = int(flags[at(record)])
    if char_flags & drop:
        return GONE, 0, False, False
    if char_flags & fold:
        is_space = whitespace != rewrite.KEEP and char_flags & tables.DIGIT == 0
        return SPACE if is_space else SOLID, 1, False, True
    if whitespace != rewrite.KEEP and char_flags & tables.SPACE:
        if whitespace == rewrite.COLLAPSE:
            return SPACE, 1, False, code_point >= ASCII_END
        return SPACE, width, False, False
    if lowercase and code_point >= ASCII_END:
        if char_flags & tables.SIGMA:
            return SOLID, width, False, True
        distance = int(lower[at(record)])
        if distance != 0 or char_flags & tables.LOWER_SPECIAL:
            new = 3 if char_flags & tables.LOWER_SPECIAL else encoded_width(code_point + distance)
            return SOLID, min(new, width), new > width, True
    return SOLID, width, False, False


@kernel
def shifted_bits(count, shift):
    """Return `count` set bits from bit `shift` (-3 to 7) on; bits outside 0 to 7 are dropped."""
    bits = (1 << count) - 1
    return (bits << shift if shift >= 0 else bits >> -shift) & 0xFF


@kernel
def first_character(data, i, start):
    """The start of the character that the byte at `i` belongs to."""
    return utf8.start_of(data, max(i - 3, start), i + 1)


@kernel
def bits_inside(i, start, end):
    """Return a bit for each of the bytes i to i + 7 that is in start:end."""
    low, high = min(max(start - i, 0), 8), min(max(end - i, 0), 8)
    return (1 << high) - (1 << low) if high > low else 0


@kernel
def tag_bits(block, start, end, i, markup):
    """Return two masks of the block at `i`: of "<", and of bytes that end a tag or the search for its end."""
    inside = bits_inside(i, start, end)
    ends = mark_bytes_equal(block, rewrite.TAG_END)
    if markup == rewrite.BRACKETS_LINE:
        ends |= mark_bytes_equal(block, rewrite.NEWLINE)
    return bits_of(mark_bytes_equal(block, rewrite.TAG_BEGIN)) & inside, bits_of(ends) & inside


@kernel
def in_class(byte, low, high):
    """Whether an ASCII byte is in the class whose bits are `low` (bytes below 64) and `high`."""
    return (high if byte & 64 else low) >> (byte & 63) & 1 != 0


@kernel
def ascii_bits(block, inside, whitespace, classes):
    """Return four masks of the ASCII bytes of a block: solid bytes; spaces; line feeds among the spaces; and bytes that
    change. `inside` has the bits of the bytes in the text."""
    spaces = feeds = gone = changed = 0
    ascii_bytes = block & LOW_SEVEN
    if whitespace != rewrite.KEEP:
        spaces = bits_of(mark_spaces(ascii_bytes))
        if whitespace == rewrite.LINES:
            feeds = bits_of(mark_equal(ascii_bytes, NEWLINES))
    dropped_low, dropped_high, zeros_low, zeros_high, blanks_low, blanks_high = classes
    folds = zeros_low | zeros_high | blanks_low | blanks_high != 0
    if folds or dropped_low | dropped_high:
        others = ~(mark_letters(ascii_bytes) | block) & HIGH_BITS
        if not in_class(rewrite.BLANK, dropped_low, dropped_high):
            others &= ~mark_equal(ascii_bytes, BLANKS)
        while others:
            k = first_mark(others)
            byte = np.int64(block >> np.uint64(8 * k) & np.uint64(0xFF))
            gone |= int(in_class(byte, dropped_low, dropped_high)) << k
            if folds:
                blank = int(in_class(byte, blanks_low, blanks_high)) << k
                changed |= blank | int(in_class(byte, zeros_low, zeros_high)) << k
                if whitespace != rewrite.KEEP:
                    spaces |= blank
            others &= others - np.uint64(1)
    inside &= ~gone
    return inside & ~spaces, inside & spaces, inside & feeds, inside & changed


@kernel
def marks_of(bits):
    """Return eight bytes as a uint64: the mark (the top bit) of byte k is bit k of `bits`."""
    each = np.uint64(bits) * np.uint64(0x0101010101010101) & np.uint64(0x8040201008040201)
    return (each + np.uint64(0x7F7F7F7F7F7F7F7F)) & HIGH_BITS


@kernel
def decode_block(block):
    """Return code point and width in bytes of the character in the first bytes of a block."""
    lead, second = np.int64(block & np.uint64(0xFF)), np.int64(block >> np.uint64(8) & np.uint64(0x3F))
    if lead < 0xE0:
        return (lead & 0x1F) << 6 | second, 2
    third = np.int64(block >> np.uint64(16) & np.uint64(0x3F))
    if lead < 0xF0:
        return (lead & 0x0F) << 12 | second << 6 | third, 3
    return (lead & 0x07) << 18 | second << 12 | third << 6 | np.int64(block >> np.uint64(24) & np.uint64(0x3F)), 4


@kernel
def bytes_before(before):
    """Return how many bytes in block `before` belong to a character that continues in the next block."""
    if before >> np.uint64(62) == np.uint64(3):
        return 1
    return 2 if before >> np.uint64(54) & np.uint64(3) == np.uint64(3) else 3


@kernel
def step_bits(
    data, blocks, block, start, end, i, drop, whitespace, lowercase, fold, classes, pages, records, flags, lower
):  # fmt: skip
    """Return six masks of the block at `i`, eight bits each: solid bytes; spaces; line feeds among the spaces; first
    bytes of characters that grow; bytes that change; first bytes of U+03A3 that become lower case. `classes` is that of
    `ascii_classes`."""
    inside, marks = bits_inside(i, start, end), block & HIGH_BITS
    solids, spaces, feeds, changes = ascii_bits(block, inside & ~bits_of(marks), whitespace, classes)
    grown = sigmas = 0
    if marks == np.uint64(0):
        return solids, spaces, feeds, 0, changes, 0
    after_block = block_at(data, blocks, i + 8)
    marks &= marks_of(inside)
    while marks:  # characters beyond ASCII
        k = first_mark(marks)
        window = join_blocks(block, after_block, np.uint64(8 * k))
        if window & np.uint64(0x40) == np.uint64(0):
            before = blocks[at((i >> 3) - 1)]
            k = -bytes_before(before)
            window = join_blocks(before, block, np.uint64(64 + 8 * k))
        code_point, width = decode_block(window)
        record = utf8.record_of(pages, records, code_point)
        kind, count, grows, changed = effect_of(
            code_point, width, record, drop, whitespace, lowercase, fold, flags, lower
        )
        bits = shifted_bits(count, k)
        if kind == SOLID:
            solids |= bits
        elif kind == SPACE:
            spaces |= bits
        if changed:
            changes |= bits
            if k >= 0:
                grown |= int(grows) << k
                sigmas |= int(lowercase != 0 and code_point == CAPITAL_SIGMA) << k
        k += width
        marks = marks >> np.uint64(8 * k) << np.uint64(8 * k) if k < 8 else np.uint64(0)
    return solids, spaces, feeds, grown, changes, sigmas


@kernel
def changed_ascii(block, whitespace, lowercase):
    """Return the block with its ASCII capitals in lower case, and with spaces for ASCII white space if white space
    collapses."""
    ascii_bytes = block & LOW_SEVEN
    if lowercase:
        block |= (mark_capitals(ascii_bytes) & ~block) >> np.uint64(2)
    if whitespace == rewrite.COLLAPSE:
        spaces = mark_spaces(ascii_bytes) & ~block & HIGH_BITS
        mask = (spaces >> np.uint64(7)) * np.uint64(0xFF)
        block = block & ~mask | BLANKS & mask
    return block


@kernel
def without_bytes(block, gone):
    """Return the block without the bytes whose bits (0 to 7) are in `gone`, filled up with zeros."""
    k = 7
    while gone:
        if gone >> k & 1:
            below = (np.uint64(1) << np.uint64(8 * k)) - np.uint64(1)
            block = block & below | block >> np.uint64(8) & ~below
            gone ^= 1 << k
        k -= 1
    return block


@kernel
def packed_utf8(code_point):
    """The UTF-8 of a code point as a little-endian number."""
    if code_point < 0x80:
        return np.uint64(code_point)
    last = 0x80 | code_point & 0x3F
    if code_point < 0x800:
        return np.uint64(0xC0 | code_point >> 6 | last << 8)
    middle = 0x80 | code_point >> 6 & 0x3F
    if code_point < 0x10000:
        return np.uint64(0xE0 | code_point >> 12 | middle << 8 | last << 16)
    return np.uint64(0xF0 | code_point >> 18 | (0x80 | code_point >> 12 & 0x3F) << 8 | middle << 16 | last << 24)


@kernel
def new_bytes(code_point, record, is_final, whitespace, lowercase, fold, flags, lower):
    """The bytes of a character in the output, as a little-endian number."""
    char_flags = int(flags[at(record)])
    if char_flags & fold:
        return np.uint64(rewrite.ZERO if char_flags & tables.DIGIT else rewrite.BLANK)
    if whitespace == rewrite.COLLAPSE and char_flags & tables.SPACE:
        return np.uint64(rewrite.BLANK)
    if lowercase:
        if char_flags & tables.SIGMA:
            return FINAL_SIGMA if is_final else SIGMA
        if char_flags & tables.LOWER_SPECIAL:
            return I_WITH_DOT
        return packed_utf8(code_point + int(lower[at(record)]))
    return packed_utf8(code_point)


@kernel
def bounding_bits(data, block, start, end, i, kept, fold, ignored_low, ignored_high, pages, records, flags):
    """Return a bit for each character that starts in the block at `i`, has a bit in `kept`, and is not case-ignorable:
    such characters decide the form of a nearby sigma. The class `ignored` is that of `ignored_ascii`."""
    if block & HIGH_BITS == np.uint64(0):
        others = ~(mark_letters(block) | mark_equal(block, BLANKS)) & HIGH_BITS
        while others:
            k = first_mark(others)
            byte = np.int64(block >> np.uint64(8 * k) & np.uint64(0xFF))
            kept &= ~(int(in_class(byte, ignored_low, ignored_high)) << k)
            others &= others - np.uint64(1)
        return kept
    bits = 0
    for j in range(max(i, start), min(i + 8, end)):
        lead = np.int64(block >> np.uint64(8 * (j - i)) & np.uint64(0xFF))
        if lead & 0xC0 != 0x80 and kept >> (j - i) & 1:
            code_point, _ = utf8.decode(data, j)
            char_flags = int(flags[at(utf8.record_of(pages, records, code_point))])
            if char_flags & fold or char_flags & tables.CASE_IGNORABLE == 0:
                bits |= 1 << (j - i)
    return bits


@kernel
def is_cased(data, i, pages, records, flags):
    """Whether Unicode calls the character at `i` cased, which decides the lowercase form of a sigma near it."""
    code_point, _ = utf8.decode(data, i)
    return int(flags[at(utf8.record_of(pages, records, code_point))]) & tables.CASED != 0
