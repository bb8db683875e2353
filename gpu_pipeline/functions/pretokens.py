# SPDX-License-Identifier: Apache-2.0
"""Finds where pre-tokens of byte-pair tokenizers start, with work divided by bytes: the regular expressions of GPT-2,
cl100k and Llama-3.

A *plane* has one bit per byte of the text. Each uint32 is a *word* of 32 bytes; the first begins at byte `origin`.
Three planes hold the bits of the class of each byte's character, so all bytes of a character have its class. `leads`
marks the first bytes of characters, `borders` the first bytes of documents and the end of the text. A *window* is a
uint64 of a plane: bits 16 to 47 are the word, the other bits belong to the words before and after it. A *run* is a
longest sequence of characters of one kind: letters, numbers, white space, or others.

For GPT-2, a start depends on seven bytes before it and three after it. The other two expressions take digits in groups
of three, and need the last line break of a run. `Runs` answers both questions in constant time, so a long run does not
slow a thread.
"""

from typing import Any, NamedTuple

import numpy as np

from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.expressions import OTHER
from gpu_pipeline.functions.items import block_at

at = np.uint64  # unsigned indices need no test for negatives


MAX_CODE_POINT = 0x10FFFF
HIGH_BITS = np.uint64(0x8080808080808080)
NO_BITS, ONE = np.uint64(0), np.uint64(1)
MARGIN = np.uint64(16)
AFTER = np.uint64(48)
CENTRE = np.uint64(0xFFFFFFFF0000)
QUOTES = np.uint64(0xFFFFFFFFF000)  # a contraction of four bytes may end in the word
LOW_HALF = np.int64(0xFFFFFFFF)
WORD = np.uint32(0xFFFFFFFF)


class Runs(NamedTuple):
    """Where runs start, and tables to jump over words without a start.

    starts  uint32 per word: the first bytes of runs, and the borders
    ranks   int32, words + 1: words with a start before this word
    jumps   int32: the numbers of the words with a start
    counts  int64, words + 1: leads (low 32 bits) and line breaks (high 32 bits) before this word
    """

    starts: Any
    ranks: Any
    jumps: Any
    counts: Any


# Classes


@kernel
def _class_at(data, i, pages, classes):
    """Return the class of the character that starts at `i`. The bytes of null rows may have any value."""
    if i + utf8.lead_width(utf8.byte_at(data, i)) > data.size:
        return OTHER
    code_point, _ = utf8.decode(data, i)
    if code_point > MAX_CODE_POINT:
        return OTHER
    page = int(pages[at(code_point >> 8)])
    return int(classes[at(page << 8 | code_point & 0xFF)])


@kernel
def class_bits(data, blocks, i, pages, classes):
    """Return four masks of the bytes i to i + 7, eight bits each: three for the bits of the byte's class, and one of
    the first bytes of characters.

    pages, classes   as `FlatTables` has them
    """
    low, middle, high, lead = 0, 0, 0, 0
    block = block_at(data, blocks, i)
    count = min(8, data.size - i)
    if block & HIGH_BITS == NO_BITS:
        for k in range(count):
            number = int(classes[at(block >> np.uint64(8 * k) & np.uint64(0x7F))])
            low |= (number & 1) << k
            middle |= (number >> 1 & 1) << k
            high |= (number >> 2) << k
        return low, middle, high, (1 << count) - 1
    number = OTHER
    if i > 0 and int(block & np.uint64(0xC0)) == 0x80:  # a character that starts in the block before
        number = _class_at(data, utf8.start_of(data, max(i - 3, 0), i), pages, classes)
    for k in range(count):
        if int(block >> np.uint64(8 * k) & np.uint64(0xC0)) != 0x80:
            number = _class_at(data, i + k, pages, classes)
            lead |= 1 << k
        low |= (number & 1) << k
        middle |= (number >> 1 & 1) << k
        high |= (number >> 2) << k
    return low, middle, high, lead


# Bits


@kernel
def count_bits(bits):
    """Return the number of set bits of a uint64, as an integer."""
    bits = bits - (bits >> ONE & np.uint64(0x5555555555555555))
    bits = (bits & np.uint64(0x3333333333333333)) + (bits >> np.uint64(2) & np.uint64(0x3333333333333333))
    bits = bits + (bits >> np.uint64(4)) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64(bits * np.uint64(0x0101010101010101) >> np.uint64(56))


@kernel
def lowest_bit(bits):
    """The position of the lowest bit of a uint64 that has one."""
    return count_bits(~bits & (bits - ONE))


@kernel
def highest_bit(bits):
    """The position of the highest bit of a uint64 below 2^32 that has one."""
    bits |= bits >> ONE
    bits |= bits >> np.uint64(2)
    bits |= bits >> np.uint64(4)
    bits |= bits >> np.uint64(8)
    bits |= bits >> np.uint64(16)
    return count_bits(bits) - 1


@kernel
def single_bit(position):
    """A mask of 64 bits with the bit at `position`."""
    return ONE << np.uint64(position)


@kernel
def bits_under(position):
    """All bits lower than the one at `position`."""
    return single_bit(position) - ONE


@kernel
def has_bit_at(words, i):
    """Whether byte `i` of the batch has its bit set in a plane."""
    return np.uint64(words[at(i >> 5)]) & single_bit(i & 31) != NO_BITS


@kernel
def window_at(words, c):
    """Return the window of word `c`: 16 bits before it, its 32 bits, and 16 bits after it. Rules read beyond the
    word."""
    window = np.uint64(words[at(c)]) << MARGIN
    if c > 0:
        window |= np.uint64(words[at(c - 1)]) >> MARGIN
    if c + 1 < words.size:
        window |= np.uint64(words[at(c + 1)]) << AFTER
    return window


@kernel
def centre_of(window):
    """Return the 32 bits of the word itself."""
    return np.uint32(window >> MARGIN & np.uint64(WORD))


# Runs


@kernel
def _kinds(low, middle, high):
    """Return the masks of letters, numbers and white space, from the three windows or words of the class bits."""
    return low & ~middle & ~high, middle & ~low & ~high, low & middle & ~high | high & ~middle


@kernel
def starts_of_runs(letters, numbers, spaces, borders):
    """Return a bit where a run of letters, numbers, spaces or others starts: the kind differs from that of the bit
    before."""
    same = letters & letters << ONE | numbers & numbers << ONE | spaces & spaces << ONE
    others = ~(letters | numbers | spaces)
    return borders | ~(same | others & others << ONE)


@kernel
def _break_word(low, middle, high, c):
    """Return a mask of the line breaks of word `c`."""
    return np.uint64(low[at(c)] & ~middle[at(c)] & high[at(c)])


@kernel
def count_runs(low, middle, high, leads, borders, c):
    """Return the starts of runs in word `c`, and the number of its leads and line breaks in the form of
    `Runs.counts`."""
    kinds = _kinds(window_at(low, c), window_at(middle, c), window_at(high, c))
    starts = centre_of(starts_of_runs(kinds[0], kinds[1], kinds[2], window_at(borders, c)))
    breaks = count_bits(_break_word(low, middle, high, c))
    return starts, breaks << 32 | count_bits(np.uint64(leads[at(c)]))


@kernel
def _run_start(runs, i):
    """Return the last start of a run at `i` or before."""
    c = i >> 5
    bits = np.uint64(runs.starts[at(c)]) & bits_under((i & 31) + 1)
    if bits == NO_BITS:
        c = np.int64(runs.jumps[at(runs.ranks[at(c)] - 1)])
        bits = np.uint64(runs.starts[at(c)])
    return 32 * c + highest_bit(bits)


@kernel
def end_of_run(runs, i):
    """Return the first start of a run after `i`. The end of the text counts as a start."""
    c = i >> 5
    bits = np.uint64(runs.starts[at(c)]) & ~bits_under((i & 31) + 1)
    if bits == NO_BITS:
        c = np.int64(runs.jumps[at(runs.ranks[at(c + 1)])])
        bits = np.uint64(runs.starts[at(c)])
    return 32 * c + lowest_bit(bits)


@kernel
def _breaks_before(low, middle, high, runs, i):
    c = i >> 5
    return (runs.counts[at(c)] >> 32) + count_bits(_break_word(low, middle, high, c) & bits_under(i & 31))


@kernel
def _characters_before(leads, runs, i):
    c = i >> 5
    return (runs.counts[at(c)] & LOW_HALF) + count_bits(np.uint64(leads[at(c)]) & bits_under(i & 31))


# Starts of pre-tokens


@kernel
def contraction_length(data, i, end, fold):
    """Return the number of bytes of the contraction at the quote at `i`, such as 's or 'll; 0 if there is none. `fold`
    ignores case."""
    if i + 1 >= end:
        return 0
    first = utf8.byte_at(data, i + 1)
    second = utf8.byte_at(data, i + 2) if i + 2 < end else 0
    if fold:
        if first == 0xC5 and second == 0xBF:  # U+017F is an s
            return 3
        first, second = first | 32, second | 32
    if first == 0x73 or first == 0x64 or first == 0x6D or first == 0x74:  # s d m t
        return 2
    if first == 0x6C and second == 0x6C:  # ll
        return 3
    if (first == 0x76 or first == 0x72) and second == 0x65:  # ve re
        return 3
    return 0


@kernel
def _cut_contractions(starts, quotes, letters, borders, data, first, end, fold):
    """Return `starts`, changed so that the contractions at `quotes` are separate pre-tokens. `first` is the byte of bit
    0."""
    bits = quotes & QUOTES
    while bits:
        k = lowest_bit(bits)
        length = contraction_length(data, first + k, end, fold)
        inner = bits_under(k + length) & ~bits_under(k + 1)
        if length > 0 and borders & inner == NO_BITS:
            starts = starts & ~inner | single_bit(k + length) & letters
        bits &= bits - ONE
    return starts


@kernel
def _leads_of_ends(ends, leads):
    """Return the first bytes of the characters, of at most three bytes, whose last bytes are `ends`."""
    before = (ends & ~leads) >> ONE
    return ends & leads | before & leads | (before & ~leads) >> ONE & leads


@kernel
def _after_characters(firsts, leads):
    """Return the bytes right after the characters that start at `firsts`."""
    after = NO_BITS
    bits = firsts << ONE
    for _ in range(4):
        after |= bits & leads
        bits = (bits & ~leads) << ONE
    return after


@kernel
def gpt2_starts(data, low, middle, high, leads, borders, origin, end, c):
    """Return a bit for each first byte of a pre-token of GPT-2 in word `c`, and for the border at `end`."""
    lows, middles, highs = window_at(low, c), window_at(middle, c), window_at(high, c)
    lead, border = window_at(leads, c), window_at(borders, c)
    letters, numbers, spaces = _kinds(lows, middles, highs)
    run = starts_of_runs(letters, numbers, spaces, border)
    attached = (highs & ~middles & ~lows) << ONE & ~border  # U+0020 before it
    last = _leads_of_ends(spaces & ~(spaces >> ONE) & ~(border >> ONE), lead)
    starts = border | run & (spaces | ~attached) | last
    quotes = highs & middles & ~lows & run & ~attached
    first = origin + 32 * c - 16
    return centre_of(_cut_contractions(starts, quotes, letters, border, data, first, end, False))


@kernel
def _starts_in_spaces(low, middle, high, borders, runs, i, to_end):
    """Whether a pre-token starts at the white space at `i`, which is no line break and follows one.  Line breaks belong
    to the run of others before them. The other white space of the run, up to its last line break, is one pre-token.
    White space after that break is another pre-token, unless the document ends and `to_end` is set.
    """
    start, stop = _run_start(runs, i), end_of_run(runs, i)
    before = _breaks_before(low, middle, high, runs, i)
    if before - _breaks_before(low, middle, high, runs, start) == i - start and not has_bit_at(borders, start):
        j = start - 1
        spaces = _kinds(np.uint64(low[at(j >> 5)]), np.uint64(middle[at(j >> 5)]), np.uint64(high[at(j >> 5)]))
        if (spaces[0] | spaces[1] | spaces[2]) & single_bit(j & 31) == NO_BITS:
            return True
    return _breaks_before(low, middle, high, runs, stop) == before and not (to_end and has_bit_at(borders, stop))


@kernel
def cl100k_starts(data, low, middle, high, leads, borders, origin, end, runs, to_end, c):
    """Return a bit for each first byte of a pre-token of cl100k (`to_end`) or Llama-3 in word `c`, and for the border
    at `end`."""
    lows, middles, highs = window_at(low, c), window_at(middle, c), window_at(high, c)
    lead, border = window_at(leads, c), window_at(borders, c)
    letters, numbers, spaces = _kinds(lows, middles, highs)
    others = ~(letters | numbers | spaces)
    breaks = highs & lows & ~middles
    plain = spaces & ~breaks  # white space but no line break
    run = starts_of_runs(letters, numbers, spaces, border)
    attached = (highs & ~middles & ~lows) << ONE & ~border  # U+0020 before it
    free = run & others & ~attached
    # One character before letters belongs to them: white space, or a single other character that belongs to none before
    # it.
    joined = (plain << ONE | _after_characters(free & lead, lead)) & letters & ~border
    # Line breaks after others belong to them.
    starts = border | run & (letters & ~joined | numbers | others & ~attached | spaces & ~(breaks & others << ONE))
    starts |= _leads_of_ends(plain & ~(spaces >> ONE) & ~(border >> ONE), lead)
    first = origin + 32 * c - 16
    bits = plain & lead & breaks << ONE & ~border & CENTRE
    while bits:
        k = lowest_bit(bits)
        if _starts_in_spaces(low, middle, high, borders, runs, 32 * c - 16 + k, to_end):
            starts |= single_bit(k)
        bits &= bits - ONE
    bits = numbers & lead & ~run & CENTRE
    while bits:
        k = lowest_bit(bits)
        i = 32 * c - 16 + k
        if (_characters_before(leads, runs, i) - _characters_before(leads, runs, _run_start(runs, i))) % 3 == 0:
            starts |= single_bit(k)
        bits &= bits - ONE
    quotes = highs & middles & ~lows & free
    return centre_of(_cut_contractions(starts, quotes, letters, border, data, first, end, True))


@kernel
def bits_between(i, start, end):
    """Return a mask of the bytes `start` to `end` - 1, for the word at byte `i`."""
    low = min(max(start - i, 0), 32)
    high = min(max(end - i, 0), 32)
    return np.uint32(bits_under(high) & ~bits_under(low))
