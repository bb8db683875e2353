# SPDX-License-Identifier: Apache-2.0
"""Words of lists, such as stop words, by language: a word costs one probe, whatever the number of lists. Host of both
engines.

A word is a maximal run of characters that are not white space, as in the measure `words`.
"""

import numpy as np

from curation.kernels import tables, utf8
from curation.kernels.cache import kernel
from curation.kernels.hashing import GOLDEN, mix64
from curation.kernels.lists import find

at = np.uint64  # unsigned indices need no test for negatives
FNV_PRIME = np.uint64(0x100000001B3)


@kernel
def next_word(data, i, end, pages, records, flags):
    """(hash of the first word of data[i:end], the byte after it); the byte is -1 without a word."""
    state = np.uint64(0)
    inside = False
    while i < end:
        byte = data[at(i)]
        width = 1
        if byte < 0x80:
            is_space = byte == 32 or 9 <= byte <= 13 or 28 <= byte <= 31
        elif byte == 0xC2 or 0xE1 <= byte <= 0xE3:  # the lead bytes of all other white space
            code_point, width = utf8.decode(data, i)
            is_space = int(flags[at(utf8.record_of(pages, records, code_point))]) & tables.SPACE != 0
        else:
            is_space = False
        if not is_space:
            inside = True
            for k in range(width):
                state = (state ^ np.uint64(data[at(i + k)])) * FNV_PRIME
        elif inside:
            return mix64(state), i
        i += width
    return mix64(state), end if inside else -1


@kernel
def hash_words(data, offsets, pages, records, flags, out, sizes):
    """The hash of the first word of each text, and its number of words."""
    for row in range(offsets.size - 1):
        i = offsets[row]
        while i >= 0:
            word, i = next_word(data, i, offsets[row + 1], pages, records, flags)
            if i >= 0:
                sizes[row] += 1
                if sizes[row] == 1:
                    out[row] = word


@kernel
def _of_list(word, number):
    return mix64(word + np.uint64(number + 1) * GOLDEN)


@kernel
def mix_numbers(words, numbers, out):
    """The key of each word in the list of a number."""
    for k in range(words.size):
        out[k] = _of_list(words[k], numbers[k])


@kernel
def count_stop_words(
    data, offsets, numbers, pages, records, flags, keys, starts, shift, stamps, different, occurrences
):
    """Count the words of each text that are in the list of its number: different ones, and all."""
    for row in range(offsets.size - 1):
        i = offsets[row]
        end = offsets[row + 1]
        while i >= 0:
            word, i = next_word(data, i, end, pages, records, flags)
            if i >= 0:
                k = find(_of_list(word, numbers[row]), keys, starts, shift)
                if k >= 0:
                    occurrences[row] += 1
                    if stamps[at(k)] != row + 1:
                        stamps[at(k)] = row + 1
                        different[row] += 1
