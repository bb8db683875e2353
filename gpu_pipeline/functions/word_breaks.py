# SPDX-License-Identifier: Apache-2.0
"""Finds where words of any script end in many documents at once, for engines that divide work by bytes. The rules are
those of `curation.kernels.word_breaks`, applied at any position of a text.

A rule of `table` reads two characters before a position and one after it. A rule of `scripts` reads the last CONTEXT
characters before a position. Among these it skips U+200B, of which up to MAX_TAIL may follow each, and a line end that
wraps a span. So a thread can begin in the middle of a text. Spans of scripts without spaces have no such bound;
`cut_span` divides them.

`blocks` and `borders` are those of `byte_checks`, with the origin 0.
"""

import numpy as np

from curation.kernels.cache import kernel
from curation.kernels.utf8 import byte_at, decode, lead_width, start_of
from curation.kernels.word_breaks import (
    MAX_BLANKS,
    MAX_TAIL,
    WORD_SPACE,
    ZERO_WIDTH_BYTES,
    ZERO_WIDTH_SPACE,
    class_of,
    continues_span,
    count_plain,
    divides,
    ends_piece,
    ends_word_of_scripts,
    ends_word_of_table,
    mark_leads,
    may_divide,
    next_state,
    wrap_size,
    zero_width_at,
)
from curation.kernels.word_lists import HAN, INNER, LETTER, OPENING, OTHER, SPACE
from curation.kernels.words import first_mark
from gpu_pipeline.functions.byte_checks import is_border
from gpu_pipeline.functions.items import block_at
from gpu_pipeline.functions.spans import MAX_CODE_POINT

# `next_state` is not 0 after MAX_TAIL marks and MAX_TAIL opening marks that follow a character; after one more it is.
CONTEXT = 2 * MAX_TAIL + 1
CONTEXT_OF_TABLE = 2
MAX_WRAP = 2 * MAX_BLANKS + 2  # bytes of a line end that wraps a span


@kernel
def is_divided(data, i, pages, classes):
    """Whether the character at `i`, with a first byte of at least 0xE0, is of a script without spaces, or U+1361 or
    U+200B. The bytes of null rows may have any value."""
    lead = byte_at(data, i)
    if i + lead_width(lead) > data.size or not may_divide(lead, byte_at(data, i + 1), byte_at(data, i + 2)):
        return False
    code_point, _ = decode(data, i)
    return code_point <= MAX_CODE_POINT and divides(pages, classes, code_point)


@kernel
def divided_bits(data, blocks, start, end, i, pages, classes):
    """Return a bit (0 to 7) for each character that starts in the block at `i` and for which `is_divided` is true."""
    leads = mark_leads(block_at(data, blocks, i))
    bits = 0
    while leads != np.uint64(0):
        k = first_mark(leads)
        if start <= i + k < end and is_divided(data, i + k, pages, classes):
            bits |= 1 << k
        leads &= leads - np.uint64(1)
    return bits


@kernel
def context_start(data, borders, i, most, pages, classes):
    """Return where to begin so that the rules are right from the character at `i` on. Included are up to `most` marks
    before `i`, the character before these, and U+200B and white space between them; all in the same text."""
    hidden = blanks = 0
    while most > 0 and hidden <= MAX_TAIL and blanks <= MAX_WRAP and not is_border(borders, 0, i):
        i = start_of(data, max(i - 4, 0), i)
        code = decode(data, i)[0]
        kind = class_of(pages, classes, code)
        if code == ZERO_WIDTH_SPACE:
            hidden += 1
        elif kind == SPACE and code <= 0x20:  # a line end that wraps a span, perhaps
            blanks += 1
        elif kind != OTHER and kind != INNER and kind != OPENING:
            break
        else:
            hidden = 0
            most -= 1
    return i


@kernel
def wrap_at(data, borders, i, kind, pages, classes):
    """Return the result of `wrap_size` at byte `i`; 0 if a text starts or ends in these bytes or right after them."""
    size = wrap_size(data, i, data.size, kind, pages, classes)
    for k in range(size + 1 if size else 0):
        if is_border(borders, 0, i + k):
            return 0
    return size


@kernel
def following_class(data, borders, i, pages, classes):
    """Return the result of `class_after`, but read no character after the end of the text."""
    for _ in range(MAX_TAIL):
        if is_border(borders, 0, i) or not zero_width_at(data, i, data.size):
            break
        i += ZERO_WIDTH_BYTES
    return SPACE if is_border(borders, 0, i) else class_of(pages, classes, decode(data, i)[0])


@kernel
def bits_between(start, i, count):
    """Return a mask of the `count` bytes from `i` on, within the 32 bytes from `start` on."""
    bits = 0
    for k in range(max(i - start, 0), min(i - start + count, 32)):
        bits |= 1 << k
    return bits


@kernel
def word_end_bits(data, blocks, borders, start, is_table, in_pieces, pages, classes):
    """Return four masks of the 32 bytes from `start` on. Three have bits for first bytes of characters. The first has
    characters before which a word ends, positions within a span excepted. The second has characters of scripts without
    spaces, the third those with which a span begins. The fourth mask has the bytes that are in no word and end none."""
    stop = min(start + 32, data.size)
    ends = unspaced = begins = hidden_bytes = 0
    i = start
    while i < stop and byte_at(data, i) & 0xC0 == 0x80:
        i += 1
    cut = start_of(data, max(start - 4, 0), i) if i > start else i  # a character that the bytes before are the rest of
    if i < stop:
        i = context_start(data, borders, i, CONTEXT_OF_TABLE if is_table else CONTEXT, pages, classes)
    i = min(i, cut)
    second, first, state, code_before, hidden = LETTER, LETTER, 0, -1, 0
    while i < stop:
        if is_border(borders, 0, i):
            second, first, state, code_before, hidden = SPACE, SPACE, 0, -1, 0
        code, width = decode(data, i)
        if code == ZERO_WIDTH_SPACE:
            hidden += 1
            hidden_bytes |= bits_between(start, i, width)
            if hidden > MAX_TAIL:
                ends |= bits_between(start, i, 1)
                second, first, state, code_before = SPACE, SPACE, 0, -1
            i += width
            continue
        kind = class_of(pages, classes, code)
        is_inside = hidden == 0 and continues_span(first, kind)
        hidden = 0
        is_end = False
        if is_table and not is_inside:
            following = SPACE
            if kind == INNER and first == LETTER:
                following = following_class(data, borders, i + width, pages, classes)
            is_end = ends_word_of_table(second, first, kind, code == code_before, following)
        elif not is_inside:
            is_end = ends_word_of_scripts(first, kind, state)
            is_end |= in_pieces and ends_piece(first, kind, code_before, code)
            if code == WORD_SPACE:
                kind, is_end = SPACE, True
                hidden_bytes |= bits_between(start, i, width)
            state = next_state(state, first, kind, is_end)
        if i >= start:
            ends |= int(is_end) << (i - start)
            unspaced |= int(kind >= HAN) << (i - start)
            begins |= int(kind >= HAN and not is_inside) << (i - start)
        second, first, code_before = first, kind, code
        i += width
        if kind >= HAN:
            wrapped = wrap_at(data, borders, i, kind, pages, classes)
            hidden_bytes |= bits_between(start, i, wrapped)
            i += wrapped
        if in_pieces:
            continue
        if i & 7 == 1 and i > start and code < 0x80 and count_plain(block_at(data, blocks, i - 1)) == 8:
            i += 7  # no word ends between letters and white space
            second = class_of(pages, classes, byte_at(data, i - 2))
            first = class_of(pages, classes, byte_at(data, i - 1))
            state, code_before = 0, -1
    return ends, unspaced, begins, hidden_bytes
