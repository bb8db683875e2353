# SPDX-License-Identifier: Apache-2.0
"""Back-off n-gram language models (ARPA files): reading, and the probability of one document, in integers.

Logarithms (base 10) are integers in units of 10^-7, the precision that ARPA files have, so sums are exact: all machines
give the same bits, in any order. Words are runs of bytes without ASCII white space, as KenLM's Python package splits
them. Each line of a text is a sentence between `<s>` and `</s>`; a line without words is no sentence.

A hash table holds the n-grams of all orders. The key of an n-gram is a 64-bit hash of its words, chained from the last
word to the first: the keys of all n-grams that end at a word share their steps.

settings   int64[NUM_SETTINGS]
entries    uint64[2 * slots]: key and weights of each slot; weights are 0 in a free slot. Bit 63 of the weights is set,
           bits 32 to 62 are the negative log probability, bits 0 to 31 the back-off weight (signed)
scratch    int64[3 * order]: hashes of the words of the history, the latest first; then two rows of back-off weights by
           length: of contexts that end before a word, and of those that end with it
"""

import numpy as np

from curation.kernels.cache import kernel
from curation.kernels.hashing import GOLDEN, combine64, load64, load_tail, mix64

# Positions in `settings` (int64).
ORDER, CLOSED, BEGIN, END, UNKNOWN = 0, 1, 2, 3, 4  # the last three are hashes of words
LONGEST = 5  # bytes; no word of the model is longer
NUM_SETTINGS = 6

UNITS = 10_000_000  # of a logarithm
DIGITS = 7
USED = np.uint64(1 << 63)
LOW_31 = np.uint64((1 << 31) - 1)
LOW_32 = np.uint64((1 << 32) - 1)
LOWEST = 200 * UNITS  # absolute value of a weight; fits 31 bits

# Columns of a result.
TOTAL, WORDS, LINES, UNKNOWN_WORDS = 0, 1, 2, 3
NUM_RESULTS = 4

# Faults of a file.
SOUND, BAD_NUMBER, BAD_WORDS, REPEATED, TOO_FEW, POSITIVE, OUT_OF_RANGE = 0, 1, 2, 3, 4, 5, 6


@kernel
def is_space(byte):
    """Space, TAB, LF, VT, FF, CR."""
    return byte == 0x20 or 0x09 <= byte <= 0x0D


@kernel
def hash_span(data, first, last):
    """Hash (uint64) of the word data[first:last]."""
    state = GOLDEN
    i = first
    while i + 8 <= last:
        state = combine64(state, load64(data, i))
        i += 8
    return mix64(combine64(state, load_tail(data, i, last - i)) + np.uint64(last - first) * GOLDEN)


@kernel
def longer_key(key, word):
    """Return the key of an n-gram after a word is put before it."""
    return mix64(combine64(key, word))


@kernel
def slot_of_key(entries, key):
    """Position in `entries` of the slot that holds `key`, or of the free slot for it (linear probing)."""
    slots = np.uint64(entries.size // 2)
    slot = (key >> np.uint64(32)) * slots >> np.uint64(32)
    while entries[np.uint64(2) * slot + np.uint64(1)] != np.uint64(0) and entries[np.uint64(2) * slot] != key:
        slot += np.uint64(1)
        if slot == slots:
            slot = np.uint64(0)
    return np.uint64(2) * slot


@kernel
def weights_of(entries, key):
    """Weights of an n-gram; 0 if the model does not have it."""
    return entries[slot_of_key(entries, key) + np.uint64(1)]


@kernel
def log_probability(weights):
    """The logarithm of an entry, at most 0: its sign is not stored."""
    return -np.int64((weights >> np.uint64(32)) & LOW_31)


@kernel
def back_off(weights):
    """The back-off weight of an entry, which may have either sign."""
    return np.int64(np.int32(weights & LOW_32))


@kernel
def word_of(data, first, last, settings, entries):
    """Hash of the word data[first:last], or that of the unknown word if the model does not have it."""
    if last - first > settings[LONGEST]:
        return np.uint64(settings[UNKNOWN])
    word = hash_span(data, first, last)
    return word if weights_of(entries, word) != np.uint64(0) else np.uint64(settings[UNKNOWN])


# Reading, on the host only


@kernel
def longest_word(data, first, last):
    """Length of the longest run of bytes of data[first:last] without white space."""
    longest, start = 0, first
    for i in range(first, last):
        if is_space(data[i]):
            start = i + 1
        else:
            longest = max(longest, i + 1 - start)
    return longest


@kernel
def parse_number(data, first, last):
    """Return the decimal number data[first:last] in units of 10^-DIGITS, rounded half away from zero, and whether the
    bytes are a number."""
    i = first
    negative = i < last and data[i] == 0x2D
    if i < last and (data[i] == 0x2D or data[i] == 0x2B):
        i += 1
    mantissa, power, digits, is_fraction = 0, DIGITS, 0, False
    while i < last and (0x30 <= data[i] <= 0x39 or (data[i] == 0x2E and not is_fraction)):
        if data[i] == 0x2E:
            is_fraction = True
        else:
            digits += 1
            if mantissa < 10**16:
                mantissa = 10 * mantissa + int(data[i]) - 0x30
                power -= 1 if is_fraction else 0
            elif not is_fraction:
                power += 1
        i += 1
    if digits == 0:
        return 0, False
    if i < last and (data[i] == 0x65 or data[i] == 0x45):
        i += 1
        shrinks = i < last and data[i] == 0x2D
        if i < last and (data[i] == 0x2D or data[i] == 0x2B):
            i += 1
        exponent, exponent_digits = 0, 0
        while i < last and 0x30 <= data[i] <= 0x39 and exponent_digits < 4:
            exponent = 10 * exponent + int(data[i]) - 0x30
            exponent_digits += 1
            i += 1
        if exponent_digits == 0:
            return 0, False
        power += -exponent if shrinks else exponent
    if i != last:
        return 0, False
    while power > 0 and mantissa < 10**17:
        mantissa *= 10
        power -= 1
    rest = 0
    while power < 0 and mantissa:
        rest = mantissa % 10
        mantissa //= 10
        power += 1
    if rest >= 5 and power == 0:
        mantissa += 1
    return -mantissa if negative else mantissa, True


@kernel
def parse_ngram(data, first, last, order, entries):
    """Read a line of an n-gram into `entries`. Return (fault, whether the model has the n-gram without its first
    word)."""
    i = first
    while i < last and not is_space(data[i]):
        i += 1
    probability, is_number = parse_number(data, first, i)
    if not is_number:
        return BAD_NUMBER, True
    if probability > 0:
        return POSITIVE, True
    if probability < -LOWEST:
        return OUT_OF_RANGE, True
    key, suffix = np.uint64(0), np.uint64(0)
    starts = i
    # The chain begins with the last word: find where the words end, then go back.
    words = 0
    end = i
    while words < order and i < last:
        while i < last and is_space(data[i]):
            i += 1
        if i == last:
            break
        while i < last and not is_space(data[i]):
            i += 1
        words += 1
        end = i
    if words < order:
        return BAD_WORDS, True
    while i < last and is_space(data[i]):
        i += 1
    weight = 0
    if i < last:
        begin = i
        while i < last and not is_space(data[i]):
            i += 1
        weight, is_number = parse_number(data, begin, i)
        if not is_number:
            return BAD_NUMBER, True
        if abs(weight) > LOWEST:
            return OUT_OF_RANGE, True
        while i < last and is_space(data[i]):
            i += 1
        if i < last:
            return BAD_WORDS, True
    position = end
    for n in range(order):
        stop = position
        while position > starts and not is_space(data[position - 1]):
            position -= 1
        word = hash_span(data, position, stop)
        suffix = key
        key = word if n == 0 else longer_key(key, word)
        while position > starts and is_space(data[position - 1]):
            position -= 1
    slot = slot_of_key(entries, key)
    if entries[slot + np.uint64(1)] != np.uint64(0):
        return REPEATED, True
    entries[slot] = key
    entries[slot + np.uint64(1)] = USED | np.uint64(-probability) << np.uint64(32) | (np.uint64(weight) & LOW_32)
    return SOUND, order == 1 or weights_of(entries, suffix) != np.uint64(0)


@kernel
def parse_section(data, position, order, count, entries):
    """Read `count` lines of n-grams of `order` words from `position` on. Return three results: the fault; the position
    after the lines, or of the line with the fault; and whether the model has each n-gram without its first word."""
    closed = True
    for _ in range(count):
        end = position
        while end < data.size and data[end] != 0x0A:
            end += 1
        if position >= data.size or end == position or data[position] == 0x5C:
            return TOO_FEW, position, closed
        fault, has_suffix = parse_ngram(data, position, end, order, entries)
        if fault != SOUND:
            return fault, position, closed
        closed = closed and has_suffix
        position = end + 1
    return SOUND, position, closed
