# SPDX-License-Identifier: Apache-2.0
"""Parts of the measures of one document. `curation.base.measures` defines the measures; the scans of both engines call
these functions.

Arrays; "int" is int64:

lanes                  uint64, of `words.character_lanes`
word_hash, word_end    uint64 and int, one per word: hash; characters of all words up to this one
line_hash, line_mark   uint64 and int, one per text line: hash of its characters; 4 * characters, plus IS_FIRST for the
                       first line of a paragraph, plus IS_PROSE for a line of prose
active, active_hash, active_slot   int, uint64, int, one per word: positions of n-grams that may repeat, their hashes,
                                   their slots in the table
keys, counts           uint64 and int32: the table; a power of two of slots, at least twice the words
out                    int, (measures, rows); column `row` belongs to this document

An n-gram can repeat only where its first and its last (n-1)-gram repeat. So for each length, only positions that repeat
for the length before are read: on real text one word in three for 3-grams, one in a hundred for 6-grams. So memory
limits the speed, not hashing.
"""

from collections import namedtuple
from typing import Any

import numpy as np

from curation.base.measures import Measure
from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.utf8 import byte_at

# The positions of measures. Numba takes no members of an enumeration as positions.
M: Any = namedtuple("M", Measure.__members__)(*map(int, Measure))  # type: ignore[arg-type]


SHORT_LINE_CHARACTERS = 30
ELLIPSIS_END, ELLIPSIS_CHARACTER_END, PUNCTUATED_END = 1, 2, 4
BULLET_START, STAR_START = 1, 2
IS_FIRST, IS_PROSE = 1, 2
BACKTICK, TILDE, MIN_FENCE, MAX_FENCE = 96, 126, 3, 1 << 28  # the code of a longer fence would not fit int32
BARE, OF_TILDES = 1, 2


@kernel
def _is_space(data, i, end, pages, records, lanes):
    """Whether `i` is the end of the text or the start of a white space character."""
    if i >= end:
        return True
    code_point, _ = utf8.decode(data, i)
    return lanes[np.uint64(utf8.record_of(pages, records, code_point))] == np.uint64(0)


@kernel
def url_start(data, i, word, end, pages, records, lanes):
    """Return the distance from `i`, a ':' or '.', back to the start of a URL; 0 if there is no URL, or if white space
    follows."""
    if byte_at(data, i) == 46:
        if (
            i - word >= 3
            and byte_at(data, i - 1) == 119
            and byte_at(data, i - 2) == 119
            and byte_at(data, i - 3) == 119
        ):
            return 0 if _is_space(data, i + 1, end, pages, records, lanes) else 3
        return 0
    if i + 2 >= end or byte_at(data, i + 1) != 47 or byte_at(data, i + 2) != 47:
        return 0
    back = 5 if i - word >= 5 and byte_at(data, i - 1) == 115 else 4
    h = i - back
    if (
        h < word
        or byte_at(data, h) != 104
        or byte_at(data, h + 1) != 116
        or byte_at(data, h + 2) != 116
        or byte_at(data, h + 3) != 112
    ):
        return 0
    return 0 if _is_space(data, i + 3, end, pages, records, lanes) else back


@kernel
def last_code_point(data, start, end):
    """The code point that ends at byte `end`; 0 if there is none."""
    i = end - 1
    while i > start and (byte_at(data, i) & 0xC0) == 0x80:
        i -= 1
    if i < start:
        return 0
    return utf8.decode(data, i)[0]


@kernel
def is_closing(cp):
    """Whether a code point is a closing quote or bracket that may follow the end of a sentence."""
    if cp == 34 or cp == 39 or cp == 41 or cp == 93 or cp == 125:
        return True
    return cp == 0xBB or cp == 0x201D or cp == 0x2019


@kernel
def ends_in_sentence_mark(data, start, end):
    """Whether the last character of the word before closing quotes and brackets ends a sentence in some script."""
    while end > start:
        cp = last_code_point(data, start, end)
        if not is_closing(cp):
            if cp == 46 or cp == 33 or cp == 63 or cp == 0x2026:
                return True
            return cp == 0x3002 or cp == 0xFF01 or cp == 0xFF1F or cp == 0x0964
        end = utf8.start_of(data, start, end)
    return False


@kernel
def _is_terminal(cp):
    if cp == 46 or cp == 33 or cp == 63 or cp == 34 or cp == 39:
        return True
    return cp == 0x3002 or cp == 0xFF01 or cp == 0xFF1F or cp == 0x201D or cp == 0x2019 or cp == 0x2026


@kernel
def line_end_bits(data, last_word, last_end):
    """Return the bits that depend on the end of a line's last word: ELLIPSIS_END, ELLIPSIS_CHARACTER_END,
    PUNCTUATED_END."""
    cp = last_code_point(data, last_word, last_end)
    bits = PUNCTUATED_END if _is_terminal(cp) else 0
    if cp == 0x2026:
        return bits | ELLIPSIS_END | ELLIPSIS_CHARACTER_END
    if (
        cp == 46
        and last_end - last_word >= 3
        and byte_at(data, last_end - 2) == 46
        and byte_at(data, last_end - 3) == 46
    ):
        return bits | ELLIPSIS_END
    return bits


@kernel
def line_start_bits(data, word):
    """Return the bit that depends on the start of a line's first word: BULLET_START or STAR_START; 0 for neither."""
    byte = byte_at(data, word)
    if byte == 45 or (byte == 0xE2 and byte_at(data, word + 1) == 0x80 and byte_at(data, word + 2) == 0xA2):
        return BULLET_START
    return STAR_START if byte == 42 else 0


@kernel
def fence_code(data, word, end):
    """Return the code of a line that is a code fence (CommonMark, section 4.5); 0 for another line. The code is 4 *
    marks, plus OF_TILDES, plus BARE if no info string follows. `word` is the start of the first word, `end` the end of
    the last one."""
    mark = byte_at(data, word)
    if mark != BACKTICK and mark != TILDE:
        return 0
    i = word
    while i < end and byte_at(data, i) == mark:
        i += 1
    marks = min(i - word, MAX_FENCE)
    if marks < MIN_FENCE:
        return 0
    code = 4 * marks + (OF_TILDES if mark == TILDE else 0) + (BARE if i == end else 0)
    while mark == BACKTICK and i < end:  # else it is code in a line of text
        if byte_at(data, i) == BACKTICK:
            return 0
        i += 1
    return code


@kernel
def closes_fence(code, opening):
    """Whether a fence closes the fence `opening` (CommonMark): it is bare, has the same character, and is at least as
    long."""
    return code & BARE != 0 and code & OF_TILDES == opening & OF_TILDES and code >> 2 >= opening >> 2
