# SPDX-License-Identifier: Apache-2.0
"""Finds where pre-tokens of o200k's regular expression start. The expression cuts words where a lower-case letter
precedes an upper-case one, and keeps contractions with their word.

Whether a pre-token starts at a byte depends on the text before, at any distance: in "x's's't" every other "'s" is a
contraction, and a mark after "!!" belongs to no word. So a walk over the text has nine states. A word of 32 bytes maps
the state before it to the state after it: a function, stored with four bits per state. White space or a border in the
word makes this function constant. Functions are composed, 32 at a time, so each word gets the state in which the walk
enters it. Words, planes and windows are those of `gpu_pipeline.functions.pretokens`.

Two questions look ahead without a limit, and `Runs` answers them: whether capitals end a word, and whether another line
break follows in white space. Here `Runs` has runs of capitals, of white space, and of all other characters.

With U, B and L for capitals, other letters or marks, and lower-case letters, a word is `[UB]*[BL]+|[UB]+[BL]*`. By the
backtracking of this expression, a U starts a pre-token in two cases: the last U or L before it is an L; or a B is
before it, and only U follow.
"""

from typing import Any, NamedTuple

import numpy as np

from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.case_classes import BREAK, LETTER, LOWER, MARK, NUMBER, OTHER, SPACE, UPPER
from gpu_pipeline.functions.pretokens import (
    CENTRE,
    MARGIN,
    NO_BITS,
    ONE,
    at,
    bits_under,
    centre_of,
    contraction_length,
    count_bits,
    end_of_run,
    has_bit_at,
    highest_bit,
    lowest_bit,
    single_bit,
    starts_of_runs,
    window_at,
)

# States: at a start or in white space; in a word without and with a lower-case letter since its start; in others;
# in line breaks and slashes after others; after one and two digits; with one and two letters of a contraction to come.
FRESH, UPPERS, LOWERS, OTHERS, TAIL, ONE_DIGIT, TWO_DIGITS, ONE_LETTER, TWO_LETTERS = range(9)
STATES = 9
EACH_STATE = np.uint64(0x111111111)
SLASH, APOSTROPHE, SPACE_BYTE, LONG_S = 0x2F, 0x27, 0x20, 0xC5  # U+017F starts with the last
THREE = np.uint64(0xE000)  # the three bytes before the word


class WordWindows(NamedTuple):
    """Windows of a word: the three bits of the class, the first bytes of characters and of documents, and the
    characters right before letters and marks."""

    low: Any
    middle: Any
    high: Any
    leads: Any
    borders: Any
    followed: Any


@kernel
def _windows_of(low, middle, high, leads, borders, c):
    highs, lead = window_at(high, c), window_at(leads, c)
    followed = _before_characters(highs & lead, lead)
    return WordWindows(window_at(low, c), window_at(middle, c), highs, lead, window_at(borders, c), followed)


@kernel
def _before_characters(firsts, leads):
    """Return the first bytes of the characters that precede the characters at `firsts`."""
    before = NO_BITS
    bits = firsts >> ONE
    for _ in range(4):
        before |= bits & leads
        bits = (bits & ~leads) >> ONE
    return before


@kernel
def _class_of(windows, k):
    number = windows.low >> np.uint64(k) & ONE
    number |= (windows.middle >> np.uint64(k) & ONE) << ONE
    return np.int64(number | (windows.high >> np.uint64(k) & ONE) << np.uint64(2))


@kernel
def _visible_leads(windows):
    """Return the characters of the word that change the state or may start a pre-token. A lower-case letter after
    another lower-case letter is left out, unless a contraction may be near."""
    lower = windows.high & ~windows.middle & windows.low
    others = ~(windows.high | windows.middle | windows.low)
    near = others << ONE | others << np.uint64(2) | others << np.uint64(3)
    return windows.leads & CENTRE & (~(lower & lower << ONE) | near | windows.borders)


# The walk


@kernel
def _step_in_word(state, before, number):
    if state == ONE_LETTER:
        return FRESH, False
    if state == TWO_LETTERS:
        return ONE_LETTER, False
    if number == MARK and state == OTHERS:
        return OTHERS, False
    joined = state == UPPERS or (state == LOWERS and number != UPPER) or (state == FRESH and before == SPACE)
    if number == LOWER or (number != UPPER and state == LOWERS):
        return LOWERS, not joined
    return UPPERS, not joined


@kernel
def _step_at_other(windows, k, state, before, data, first, end):
    """Return the results of `_step` for a punctuation character or symbol at bit `k`."""
    i = first + k
    byte = utf8.byte_at(data, i)
    if byte == APOSTROPHE and (state == UPPERS or state == LOWERS):
        length = contraction_length(data, i, end, True)
        inner = bits_under(k + length) & ~bits_under(k + 1)
        if length > 0 and windows.borders & inner == NO_BITS:
            return (ONE_LETTER if length == 2 or utf8.byte_at(data, i + 1) == LONG_S else TWO_LETTERS), False
    if byte == SLASH and state == TAIL:
        return TAIL, False
    if state == OTHERS or (state == FRESH and before == SPACE and utf8.byte_at(data, i - 1) == SPACE_BYTE):
        return OTHERS, False
    return (UPPERS if windows.followed >> np.uint64(k) & ONE else OTHERS), True


@kernel
def _step(windows, k, state, data, first, end):
    """Return the state after the character at bit `k`, and whether a pre-token starts at this character. The second
    result is not final for capitals in a word, and for white space other than line breaks."""
    number, before = _class_of(windows, k), _class_of(windows, k - 1)
    if windows.borders >> np.uint64(k) & ONE:
        state, before = FRESH, OTHER
    if number >= UPPER:
        return _step_in_word(state, before, number)
    if number == OTHER:
        return _step_at_other(windows, k, state, before, data, first, end)
    if number == NUMBER:
        if state == ONE_DIGIT:
            return TWO_DIGITS, False
        return (FRESH, False) if state == TWO_DIGITS else (ONE_DIGIT, True)
    in_spaces = before == SPACE or before == BREAK
    if number == SPACE:
        return FRESH, not in_spaces or state == TAIL
    if state == OTHERS or state == TAIL:
        return TAIL, False
    return FRESH, not in_spaces


@kernel
def _walk(windows, bits, state, data, first, end):
    while bits:
        state, _ = _step(windows, lowest_bit(bits), state, data, first, end)
        bits &= bits - ONE
    return state


@kernel
def _entries(windows):
    """Return a bit for each state in which the walk can enter the word, given the characters before the word."""
    before = _class_of(windows, 15)
    others = ~(windows.high | windows.middle | windows.low)
    if before == SPACE:
        return 1 << FRESH
    if before == BREAK:
        return 1 << FRESH | 1 << TAIL
    if before == NUMBER:
        return 1 << FRESH | 1 << ONE_DIGIT | 1 << TWO_DIGITS
    if before == OTHER:
        return 1 << UPPERS | 1 << OTHERS | 1 << TAIL | 1 << ONE_LETTER | 1 << TWO_LETTERS
    if before == MARK:
        return 1 << UPPERS | 1 << LOWERS | 1 << OTHERS
    if before == LETTER:
        return 1 << UPPERS | 1 << LOWERS
    near = (1 << FRESH | 1 << ONE_LETTER) if others & THREE else 0
    return near | 1 << (UPPERS if before == UPPER else LOWERS)


@kernel
def _leave_word(windows, data, first, end):
    """Return the function of a word: the state in which the walk leaves the word, four bits for each state in which it
    enters.

    first   the byte of bit 0
    end     the end of the text
    """
    bits = _visible_leads(windows)
    spaces = windows.middle & ~windows.high & ~windows.low
    constant = (windows.borders | spaces) & windows.leads & CENTRE
    if constant:
        bits &= ~bits_under(highest_bit(constant >> MARGIN) + 16)
        return np.uint64(_walk(windows, bits, FRESH, data, first, end)) * EACH_STATE
    entries = _entries(windows)
    value = np.uint64(0)
    for state in range(STATES):
        if entries >> state & 1:
            value |= np.uint64(_walk(windows, bits, state, data, first, end)) << np.uint64(4 * state)
    return value


# Runs


@kernel
def _count_case_runs(windows):
    """Return the starts of runs in the word, and its number of line breaks in the form of `Runs.counts`."""
    white = windows.middle & ~windows.high
    upper = windows.high & ~windows.middle & ~windows.low
    starts = centre_of(starts_of_runs(upper, NO_BITS, white, windows.borders))
    return starts, count_bits(white & windows.low & CENTRE) << 32


@kernel
def case_word(low, middle, high, leads, borders, c, data, first, end):
    """Return the results of `_count_case_runs` and of `_leave_word` for word `c`."""
    windows = _windows_of(low, middle, high, leads, borders, c)
    return _count_case_runs(windows), _leave_word(windows, data, first, end)


@kernel
def _breaks_before(low, middle, high, runs, i):
    c = i >> 5
    breaks = np.uint64(low[at(c)] & middle[at(c)] & ~high[at(c)])
    return (runs.counts[at(c)] >> 32) + count_bits(breaks & bits_under(i & 31))


@kernel
def _capitals_end(high, borders, runs, i):
    """Whether the word ends where the run of capitals ends that contains byte `i`."""
    stop = end_of_run(runs, i)
    return has_bit_at(borders, stop) or not has_bit_at(high, stop)


# Starts of pre-tokens


@kernel
def o200k_starts(data, low, middle, high, leads, borders, origin, end, runs, entry, c):
    """Return a bit for each first byte of a pre-token of o200k in word `c`, and for the border at `end`. The walk
    enters the word in the state `entry`."""
    windows = _windows_of(low, middle, high, leads, borders, c)
    first = origin + 32 * c - 16
    white = windows.middle & ~windows.high
    plain = white & ~windows.low
    # The last of several white spaces starts a pre-token, unless the document ends.
    last = _before_characters(windows.leads & ~white & ~windows.borders, windows.leads)
    starts = windows.borders | last & plain
    state = entry
    bits = _visible_leads(windows)
    while bits:
        k = lowest_bit(bits)
        after, is_start = _step(windows, k, state, data, first, end)
        if not is_start:
            i, number, before = 32 * c - 16 + k, _class_of(windows, k), _class_of(windows, k - 1)
            if number == UPPER and state == UPPERS and before >= LETTER:
                is_start = _capitals_end(high, borders, runs, i)
            elif number == SPACE and before == BREAK:
                stop = end_of_run(runs, i)
                breaks = _breaks_before(low, middle, high, runs, stop)
                is_start = breaks == _breaks_before(low, middle, high, runs, i)
        if is_start:
            starts |= single_bit(k)
        state = after
        bits &= bits - ONE
    return centre_of(starts)
