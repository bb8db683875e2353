# SPDX-License-Identifier: Apache-2.0
"""Finds where the words of a text end, in any script, if a recipe has `words: scripts` or `words: table`.

    spaces   a word is a maximal run of characters that are not white space
    scripts  as `spaces`, and a word also ends between two words of a script without spaces, and between such a script
             and others: up to MAX_TAIL marks belong to the word of such a script before them, up to MAX_TAIL opening
             brackets and quotation marks to the one after them. The Ethiopic word space (U+1361) is white space
    table    a word is a run of letters, marks of letters and numbers, in which one of - . ' ’ , : may be between two of
             them; or a word of a script without spaces; or a run of one other character, as FineWeb-2 has it

    pieces   as `scripts`, for texts without white space, and a word also ends between two letters or numbers of other
             scripts if the sum of their code points is a multiple of PIECE: words are about as long as in English.
             `pieces` is no setting: near-duplicates are compared with it (`similarity.joined_text`)

With `scripts` and `table`, a zero width space (U+200B) is ignored, except between two letters of a script without
spaces, where it ends a word. More than MAX_TAIL of them in a row are white space.

A *span* is a maximal sequence of Han and kana, or of letters of Thai, Lao, Khmer and Burmese. A line end between two of
these characters, with at most MAX_BLANKS spaces and tabs on each side, is no character of the span and ends no word: it
only wraps the text. A span is cut into the words of the lists and unknown characters where the sum of the costs is
lowest; of equal sums, the first one found from the start of the span counts. A span of more than MAX_SPAN characters is
cut as if it were several. Costs:

    a word of Chinese or Japanese             its cost in the list
    a word of the four other lists            WORD_COST
    another character of Han or kana          UNKNOWN_COST
    a sequence of katakana                    KATAKANA_COST
    another letter of the four scripts, with its signs   CLUSTER_COST; adjacent ones are one word
"""

import numpy as np

from curation.kernels.cache import kernel
from curation.kernels.hashing import at, load64, store64
from curation.kernels.utf8 import byte_at, decode, prefix_end
from curation.kernels.word_lists import (
    HAN,
    INNER,
    KATAKANA,
    LEADING,
    LETTER,
    NO_WORD,
    OPENING,
    OTHER,
    SIGN,
    SOUTHEAST,
    SPACE,
    next_node,
)  # fmt: skip
from curation.kernels.words import HIGH_BITS, first_mark, mark_equal, mark_letters, mark_range, mark_spaces

SPACES, SCRIPTS, TABLE = "spaces", "scripts", "table"
WORDS = (SPACES, SCRIPTS, TABLE)
PIECES, PIECE = "pieces", 5
MAX_SPAN, MAX_TAIL, MAX_BLANKS = 256, 4, 8
WORD_COST, UNKNOWN_COST, KATAKANA_COST, CLUSTER_COST = 10, 255, 200, 25
FAR = 1 << 30  # above every sum of costs
TAB, LINE_FEED, CARRIAGE_RETURN, SEPARATOR = 0x09, 0x0A, 0x0D, 0x20
WORD_SPACE, ZERO_WIDTH_SPACE, ZERO_WIDTH_BYTES = 0x1361, 0x200B, 3
UNDERSCORES = np.uint64(0x5F5F5F5F5F5F5F5F)


@kernel
def class_of(pages, classes, code_point):
    """The class of a character (`word_lists`)."""
    page = np.int64(pages[np.uint64(code_point >> 8)])
    return np.int64(classes[np.uint64(page << 8 | code_point & 0xFF)])


@kernel
def ends_word_of_table(second, first, kind, is_same, following):
    """Whether a word of `table` ends before a character that does not continue a span.

    second, first  classes of the characters before it; SPACE before the text
    kind           its class
    is_same        whether it equals the character before it
    following      class of the character after it; SPACE after the text
    """
    if first == SPACE or kind == SPACE:
        return False
    if kind == LETTER:
        return first != LETTER and (first != INNER or second != LETTER)
    if kind == INNER and first == LETTER:
        return following != LETTER
    return kind >= HAN or not is_same


@kernel
def ends_word_of_scripts(first, kind, state):
    """Whether a word of `scripts` ends before a character of class `kind` that does not continue a span, after one of
    class `first`. `state` is that of the characters before (`next_state`)."""
    if first == SPACE or kind == SPACE:
        return False
    if kind >= HAN:
        return state >= 0
    return state > 0 and (kind == LETTER or kind == OPENING)


@kernel
def ends_piece(first, kind, code_before, code):
    """Whether a word of `pieces` ends between two adjacent characters outside spans, given their classes and code
    points."""
    return first == LETTER and kind == LETTER and (code_before + code) % PIECE == 0


@kernel
def next_state(state, first, kind, ends):
    """Return the state after a character, which the rules of `scripts` need: 1 after a character of a script without
    spaces, plus 1 for each of up to MAX_TAIL marks that follow it; -1 after an opening mark that begins a word, minus 1
    for each of up to MAX_TAIL - 1 more opening marks; else 0.

    first, kind  classes of the character before and of this character
    ends         whether a word ends before this character
    """
    if kind >= HAN:
        return 1
    if kind == OPENING:
        if first == SPACE or ends:
            return -1
        return state - 1 if -MAX_TAIL < state < 0 else 0
    if (kind == OTHER or kind == INNER) and 0 < state <= MAX_TAIL:
        return state + 1
    return 0


@kernel
def continues_span(first, kind):
    """Whether two characters of these classes may be in one span."""
    return (HAN <= first <= KATAKANA and HAN <= kind <= KATAKANA) or (first >= SOUTHEAST and kind >= SOUTHEAST)


@kernel
def cut_span(codes, kinds, count, roots, edges, costs, best, back, ends):
    """Set ends[k] if a word ends before character k of a span, for k from 1 to count - 1, else clear it.

    codes, kinds  code points (int32) and classes (uint8)
    count         characters of the span: 1 to MAX_SPAN
    best, back    int32 scratch, count + 1: the lowest sum of costs before a character; where the last word of this sum
                  begins, times 2, plus 1 for a word that is not an unknown cluster
    """
    for k in range(count + 1):
        best[k] = FAR
    best[0] = 0
    southeast = kinds[0] >= SOUTHEAST
    after_katakana = False
    for first in range(count):
        is_katakana = kinds[first] == KATAKANA
        sum_before = best[first]
        if sum_before < FAR:
            node, k = 0, first
            has_single = False
            while k < count:
                code = codes[k]
                if code > 0xFFFF:
                    break
                node = int(roots[code]) if k == first else next_node(edges, node, code)
                if node == 0:
                    break
                k += 1
                cost = np.int64(costs[node])
                if cost != NO_WORD and not (k < count and kinds[k] == SIGN):
                    total = sum_before + (WORD_COST if southeast else cost)
                    if total < best[k]:
                        best[k], back[k] = total, 2 * first + 1
                    has_single |= k == first + 1
            if not has_single:
                k = first + 1
                if kinds[first] == LEADING and k < count:
                    k += 1
                while k < count and kinds[k] == SIGN:
                    k += 1
                total = sum_before + (CLUSTER_COST if southeast else UNKNOWN_COST)
                if total < best[k]:
                    best[k], back[k] = total, 2 * first + (0 if southeast else 1)
            if is_katakana and not after_katakana:
                k = first + 1
                while k < count and kinds[k] == KATAKANA:
                    k += 1
                total = sum_before + KATAKANA_COST
                if total < best[k]:
                    best[k], back[k] = total, 2 * first + 1
        after_katakana = is_katakana
    for k in range(1, count):
        ends[k] = False
    k = count
    is_word = back[k] & 1
    while True:
        k = back[k] >> 1
        if k == 0:
            break
        before = back[k] & 1
        ends[k] = is_word | before
        is_word = before


@kernel
def find_divided(data, i, end):
    """Return the position, from `i` on, of the first character for which `may_divide` is true; `end` if there is
    none."""
    while i < end:
        if i + 8 <= end:
            leads = mark_leads(load64(data, i))
            if leads == np.uint64(0):
                i += 8
                continue
            i += first_mark(leads)
        byte = byte_at(data, i)
        if byte >= 0xE0 and may_divide(byte, byte_at(data, i + 1), byte_at(data, i + 2)):
            return i
        i += 1
    return end


@kernel
def mark_leads(block):
    """Mark the bytes from 0xE0 on."""
    return block & block << np.uint64(1) & block << np.uint64(2) & HIGH_BITS


@kernel
def may_divide(byte, second, third):
    """Whether a character with these first bytes may belong to a script without spaces or to the block of U+1361, or is
    U+200B. The first byte is at least 0xE0."""
    if byte == 0xE2:
        return second == 0x80 and third == 0x8B
    if byte == 0xE0:
        return second >= 0xB8
    if byte == 0xE1:
        return second <= 0x82 or second == 0x8D or 0x9E <= second <= 0x9F
    return byte != 0xF0 or second >= 0xA0


@kernel
def divides(pages, classes, code_point):
    """Whether a text with this character can have other words than those between white space."""
    return code_point == ZERO_WIDTH_SPACE or code_point == WORD_SPACE or class_of(pages, classes, code_point) >= HAN


@kernel
def count_plain(block):
    """Return how many of eight bytes, counted from the first, are ASCII letters, digits, `_` or white space; 0 if a
    byte is not ASCII. No word of `table` ends between such bytes."""
    if block & HIGH_BITS != np.uint64(0):
        return 0
    digits = mark_range(block, np.uint64(0x5050505050505050), np.uint64(0x4646464646464646))
    return first_mark(~(mark_letters(block) | digits | mark_spaces(block) | mark_equal(block, UNDERSCORES)) & HIGH_BITS)


@kernel
def class_at(data, i, end, pages, classes):
    """The class of the character that begins at byte `i`; SPACE at the end of the text."""
    if i >= end:
        return SPACE
    return class_of(pages, classes, decode(data, i)[0])


@kernel
def zero_width_at(data, i, end):
    """Whether the character that begins at byte `i` is U+200B."""
    if i + ZERO_WIDTH_BYTES > end or byte_at(data, i) != 0xE2:
        return False
    return byte_at(data, i + 1) == 0x80 and byte_at(data, i + 2) == 0x8B


@kernel
def class_after(data, i, end, pages, classes):
    """The class of the character at byte `i` or after up to MAX_TAIL U+200B; SPACE at the end of the text."""
    for _ in range(MAX_TAIL):
        if not zero_width_at(data, i, end):
            break
        i += ZERO_WIDTH_BYTES
    return class_at(data, i, end, pages, classes)


@kernel
def wrap_size(data, i, end, kind, pages, classes):
    """Return the bytes of the line end at `i` with the spaces and tabs around it; 0 if no line end at `i` only wraps a
    span. The character before `i` has the class `kind`."""
    k = skip_blanks(data, i, end)
    if k < end and byte_at(data, k) == CARRIAGE_RETURN:
        k += 1
    if k == end or byte_at(data, k) != LINE_FEED:
        return 0
    k = skip_blanks(data, k + 1, end)
    return k - i if continues_span(kind, class_at(data, k, end, pages, classes)) else 0


@kernel
def skip_blanks(data, i, end):
    """The position after up to MAX_BLANKS spaces and tabs."""
    limit = min(end, i + MAX_BLANKS)
    while i < limit and (byte_at(data, i) == SEPARATOR or byte_at(data, i) == TAB):
        i += 1
    return i


@kernel
def read_span(data, i, end, kind, pages, classes, codes, kinds):
    """Write the characters of a span from byte `i` on, at most MAX_SPAN, to `codes` and `kinds`, without line ends that
    wrap it; return their number and the position after them. `kind` is the class of the first one."""
    count = 0
    while True:
        code, width = decode(data, i)
        codes[count], kinds[count] = code, kind
        count += 1
        i += width
        i += wrap_size(data, i, end, kind, pages, classes)
        following = class_at(data, i, end, pages, classes)
        if count == MAX_SPAN or not continues_span(kind, following):
            return count, i
        kind = following


@kernel
def split_document(data, start, end, is_table, in_pieces, lists, scratch, out, o):
    """Write a text with a space between adjacent words to `out` at byte `o`, without the characters that are in no word
    and end none; return the position after it.

    lists    the arrays of `WordLists`
    scratch  the arrays of `allocate_span`
    """
    pages, classes, roots, edges, costs = lists
    codes, kinds, best, back, ends = scratch
    i, second, first, state, code_before, hidden = start, SPACE, SPACE, 0, -1, 0
    while i < end:
        if is_table:
            while (first == LETTER or first == SPACE) and i + 8 <= end:
                block = load64(data, i)
                count = count_plain(block)
                if count == 0:
                    break
                store64(out, o, block)
                i += count
                o += count
                second = class_of(pages, classes, byte_at(data, i - 2)) if count > 1 else first
                first = class_of(pages, classes, byte_at(data, i - 1))
                code_before, hidden = -1, 0
            if i == end:
                break
        code, width = decode(data, i)
        if code == ZERO_WIDTH_SPACE:
            hidden += 1
            if hidden > MAX_TAIL:
                out[at(o)] = SEPARATOR
                o += 1
                second, first, state, code_before = SPACE, SPACE, 0, -1
            i += width
            continue
        hidden = 0
        kind = class_of(pages, classes, code)
        if is_table:
            following = SPACE
            if kind == INNER and first == LETTER:
                following = class_after(data, i + width, end, pages, classes)
            is_end = ends_word_of_table(second, first, kind, code == code_before, following)
        else:
            is_space = code == WORD_SPACE
            kind = SPACE if is_space else kind
            is_end = is_space or ends_word_of_scripts(first, kind, state)
            is_end |= in_pieces and ends_piece(first, kind, code_before, code)
            state = next_state(state, first, kind, is_end)
        if is_end:
            out[at(o)] = SEPARATOR
            o += 1
        second, first, code_before = first, kind, code
        if kind < HAN:
            if is_table or code != WORD_SPACE:
                for k in range(width):
                    out[at(o + k)] = data[at(i + k)]
                o += width
            i += width
            continue
        position = i
        count, i = read_span(data, i, end, kind, pages, classes, codes, kinds)
        if count > 1:
            second, first = int(kinds[count - 2]), int(kinds[count - 1])
        cut_span(codes, kinds, count, roots, edges, costs, best, back, ends)
        for k in range(count):
            if k > 0 and ends[k]:
                out[at(o)] = SEPARATOR
                o += 1
            while byte_at(data, position) <= SEPARATOR:  # of a line end
                position += 1
            for _ in range(utf8_width(codes[k])):
                out[at(o)] = data[at(position)]
                o += 1
                position += 1
        code_before = -1
    return o


@kernel
def split_rows(data, offsets, rows, is_table, in_pieces, lists, scratch, out):
    """Write the texts of `rows` with a space between adjacent words; return where each ends, after a 0."""
    ends = np.zeros(rows.size + 1, np.int64)
    for k in range(rows.size):
        start, end = offsets[rows[k]], offsets[rows[k] + 1]
        ends[k + 1] = split_document(data, start, end, is_table, in_pieces, lists, scratch, out, ends[k])
    return ends


@kernel
def count_listed(data, offsets, max_characters, lists, scratch, counts):
    """Add the number of letters of Thai, Lao, Khmer and Burmese among the first `max_characters` characters of each
    text to counts[k, 0], and the number of letters in words of the lists to counts[k, 1]."""
    pages, classes, roots, edges, costs = lists
    codes, kinds, best, back, ends = scratch
    for row in range(offsets.size - 1):
        i, end = offsets[row], prefix_end(data, offsets[row], offsets[row + 1], max_characters)
        while i < end:
            code, width = decode(data, i)
            kind = class_of(pages, classes, code)
            if kind < SOUTHEAST:
                i += width
                continue
            count, i = read_span(data, i, end, kind, pages, classes, codes, kinds)
            cut_span(codes, kinds, count, roots, edges, costs, best, back, ends)
            counts[row, 0] += count
            while count > 0:
                first = back[count] >> 1
                if back[count] & 1:
                    counts[row, 1] += count - first
                count = first


@kernel
def utf8_width(code_point):
    """The bytes of a code point in UTF-8, 1 to 4."""
    return 1 + int(code_point >= 0x80) + int(code_point >= 0x800) + int(code_point >= 0x10000)


def allocate_span() -> tuple[np.ndarray, ...]:
    """Scratch of `cut_span` for one span: codes, kinds, best, back, ends."""
    return tuple(np.empty(MAX_SPAN + 1, kind) for kind in (np.int32, np.uint8, np.int32, np.int32, np.bool_))
