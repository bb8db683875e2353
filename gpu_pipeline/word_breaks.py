# SPDX-License-Identifier: Apache-2.0
"""Where the words of any script end in many documents at once, for engines that cut work by bytes: the rules of
`curation.kernels.word_breaks`, at any place of a text.

A rule of `table` reads two characters before a place and one after it, one of `scripts` the last CONTEXT characters. So
a thread begins in the middle of a text. A run of a script without spaces has no such bound: `cut_run` divides it.

`blocks` and `borders` as in `byte_checks`, with the origin 0.
"""

import numpy as np

from curation.kernels.cache import kernel
from curation.kernels.utf8 import byte_at, decode, lead_width, start_of
from curation.kernels.word_breaks import (
    MAX_TAIL,
    class_of,
    continues_run,
    count_plain,
    ends_word_of_scripts,
    ends_word_of_table,
    mark_leads,
    may_begin_unspaced,
    next_state,
)
from curation.kernels.word_lists import HAN, INNER, LETTER, OPENING, OTHER, SPACE
from curation.kernels.words import first_mark
from gpu_pipeline.byte_checks import is_border
from gpu_pipeline.items import block_at
from gpu_pipeline.spans import MAX_CODE_POINT

# `next_state` is not 0 after MAX_TAIL marks and MAX_TAIL opening marks that follow a character; after one more it is.
CONTEXT = 2 * MAX_TAIL + 1
CONTEXT_OF_TABLE = 2


@kernel
def is_unspaced(data, i, pages, classes):
    """Whether the character at `i`, with a first byte of at least 0xE0, is of a script without spaces. Bytes under a
    null may be anything."""
    lead = byte_at(data, i)
    if i + lead_width(lead) > data.size or not may_begin_unspaced(lead, byte_at(data, i + 1)):
        return False
    code_point, _ = decode(data, i)
    return code_point <= MAX_CODE_POINT and class_of(pages, classes, code_point) >= HAN


@kernel
def unspaced_bits(data, blocks, start, end, i, pages, classes):
    """A bit (0 to 7) for each character of a script without spaces that starts in the block at `i`."""
    leads = mark_leads(block_at(data, blocks, i))
    found = 0
    while leads != np.uint64(0):
        k = first_mark(leads)
        if start <= i + k < end and is_unspaced(data, i + k, pages, classes):
            found |= 1 << k
        leads &= leads - np.uint64(1)
    return found


@kernel
def context_start(data, borders, i, most, pages, classes):
    """Where to begin so that the rules are right from the character at `i` on: up to `most` marks before it and the
    character before these, all of the same text."""
    for _ in range(most):
        if is_border(borders, 0, i):
            break
        i = start_of(data, max(i - 4, 0), i)
        kind = class_of(pages, classes, decode(data, i)[0])
        if kind != OTHER and kind != INNER and kind != OPENING:
            break
    return i


@kernel
def word_end_bits(data, blocks, borders, start, is_table, pages, classes):
    """Three masks of the 32 bytes from `start` on, with bits for first bytes of characters: before which a word ends,
    but for places within a run; those of scripts without spaces; with which a run begins."""
    stop = min(start + 32, data.size)
    ends = unspaced = begins = 0
    i = start
    while i < stop and byte_at(data, i) & 0xC0 == 0x80:
        i += 1
    if i < stop:
        i = context_start(data, borders, i, CONTEXT_OF_TABLE if is_table else CONTEXT, pages, classes)
    second, first, state, code_before = LETTER, LETTER, 0, -1
    while i < stop:
        if is_border(borders, 0, i):
            second, first, state, code_before = SPACE, SPACE, 0, -1
        code, width = decode(data, i)
        kind = class_of(pages, classes, code)
        is_inside = continues_run(first, kind)
        is_end = False
        if is_table and not is_inside:
            following = SPACE
            if kind == INNER and first == LETTER and not is_border(borders, 0, i + width):
                following = class_of(pages, classes, decode(data, i + width)[0])
            is_end = ends_word_of_table(second, first, kind, code == code_before, following)
        elif not is_inside:
            is_end = ends_word_of_scripts(first, kind, state)
            state = next_state(state, first, kind, is_end)
        if i >= start:
            ends |= int(is_end) << (i - start)
            unspaced |= int(kind >= HAN) << (i - start)
            begins |= int(kind >= HAN and not is_inside) << (i - start)
        second, first, code_before = first, kind, code
        i += width
        if i & 7 == 1 and i > start and code < 0x80 and count_plain(block_at(data, blocks, i - 1)) == 8:
            i += 7  # no word ends between letters and white space
            second = class_of(pages, classes, byte_at(data, i - 2))
            first = class_of(pages, classes, byte_at(data, i - 1))
            state, code_before = 0, -1
    return ends, unspaced, begins
