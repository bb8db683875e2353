# SPDX-License-Identifier: Apache-2.0
"""Counts words of lists by language, such as stop words. A word costs one table look-up, for any number of lists. The
CPU engine calls the loops, and the kernels of the GPU engine call the functions for single words.

A word is a maximal run of characters that are not white space, as in the measure `words`. With `endings`, a Korean word
also counts as its longest ending that the list has: `정부는` as `는`.
"""

from dataclasses import dataclass

import numpy as np

from curation.kernels import tables, utf8
from curation.kernels.cache import kernel
from curation.kernels.hashing import GOLDEN, combine64, load64, load_tail, mix64
from curation.kernels.lists import find
from curation.kernels.words import HIGH_BITS, LOW_BITS, first_mark, low_bytes, mark_spaces

at = np.uint64  # unsigned indices need no test for negatives
HANGUL_FIRST, HANGUL_LAST, HANGUL_BYTES = 0xAC00, 0xD7A3, 3
MAX_ENDING = 3  # syllables
FILTER_WORDS = 8  # uint64 per list: 512 bits, of which a list of 20 words sets 20
NO_LIST = np.int32(2**31 - 1)  # number of the list of a text that has none
TABLES_KEPT = 64  # tables cached per process
C2, E1, E2, E3 = (np.uint64(0x0101010101010101 * byte) for byte in (0xC2, 0xE1, 0xE2, 0xE3))


@dataclass(frozen=True, eq=False)
class StopWords:
    """The words of several lists in one table.

    keys      uint64, ascending: made from the hash of each word and the number of its list
    starts    uint32: first bits of a key -> index of the first key with these bits
    shift     number of bits of a key that `starts` does not use
    filters   uint64[lists, FILTER_WORDS]: see `mix_numbers`
    ranks     int32: position of each key's word within its list, from 0
    endings   uint64: hashes of endings of Korean words, which count as words too; empty if they do not count
    """

    keys: np.ndarray
    starts: np.ndarray
    shift: np.uint64
    filters: np.ndarray
    ranks: np.ndarray
    endings: np.ndarray

    def count(self, data: np.ndarray, offsets: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return for each text how many different words of its list it has, and how many of its words are in the list;
        int64. `numbers` (int32) has the list of each text, or NO_LIST."""
        different, occurrences = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
        listed = self.filters, self.keys, self.starts, self.shift, self.endings, np.zeros(len(self.keys), np.uint32)
        count_stop_words(data, offsets, numbers, *tables.load_tables()[:3], *listed, different, occurrences)
        return different, occurrences


@kernel
def _mark_byte(block, eight):
    """Mark the bytes that equal the byte of `eight`; above the lowest mark, other bytes may be marked too."""
    other = block ^ eight
    return (other - LOW_BITS) & ~other & HIGH_BITS


@kernel
def _marks(block):
    """Mark ASCII white space and the bytes with which other white space begins; above the lowest mark, other bytes may
    be marked too."""
    spaces = mark_spaces(block & ~HIGH_BITS) & ~block
    if block & HIGH_BITS:
        spaces |= _mark_byte(block, C2) | _mark_byte(block, E1) | _mark_byte(block, E2) | _mark_byte(block, E3)
    return spaces


@kernel
def _space_width(data, i, pages, records, flags):
    """The width of the character at a byte, negative if it is not white space."""
    byte = data[at(i)]
    if byte < 0x80:
        return 1 if byte == 32 or 9 <= byte <= 13 or 28 <= byte <= 31 else -1
    if byte == 0xC2 or 0xE1 <= byte <= 0xE3:
        code_point, width = utf8.decode(data, i)
        record = utf8.record_of(pages, records, code_point)
        return width if int(flags[at(record)]) & tables.SPACE else -width
    return -1


@kernel
def word_end(data, i, end, pages, records, flags):
    """The end of the run of characters at a byte that are not white space."""
    while i < end:
        if i + 8 <= data.size:
            marks = _marks(load64(data, i))
            if marks == np.uint64(0):
                i += 8
                continue
            i += first_mark(marks)
        if i >= end:
            break
        width = _space_width(data, i, pages, records, flags)
        if width > 0:
            return i
        i -= width
    return end


@kernel
def hash_listed(data, i, end):
    """The hash of data[i:end], which is not empty."""
    state = at(end - i)
    while end - i > 8:
        state = combine64(state, load64(data, i))
        i += 8
    if i + 8 <= data.size:
        return combine64(state, load64(data, i) & low_bytes(end - i))
    return combine64(state, load_tail(data, i, end - i))


@kernel
def word_start(data, i, end, pages, records, flags):
    """The first byte of the next word; `end` without one."""
    while i < end:
        width = _space_width(data, i, pages, records, flags)
        if width < 0:
            return i
        i += width
    return end


@kernel
def hash_words(data, offsets, pages, records, flags, out, sizes):
    """Write the hash of the first word of each text, and the text's number of words."""
    for row in range(offsets.size - 1):
        end = offsets[row + 1]
        i = word_start(data, offsets[row], end, pages, records, flags)
        while i < end:
            start = i
            i = word_end(data, i, end, pages, records, flags)
            sizes[row] += 1
            if sizes[row] == 1:
                out[row] = hash_listed(data, start, i)
            i = word_start(data, i, end, pages, records, flags)


@kernel
def key_of(word, number):
    """The key of a word, made from its hash and the number of its list."""
    return mix64(word + np.uint64(number + 1) * GOLDEN)


@kernel
def mix_numbers(words, numbers, out, filters):
    """Write the key of each listed word, made from the word's hash and the number of its list. Set a bit of `filters`
    for each word, in the row of the word's list."""
    for k in range(words.size):
        out[k] = key_of(words[k], numbers[k])
        filters[numbers[k], at(words[k] >> np.uint64(61))] |= _bit(words[k])


@kernel
def _bit(word):
    return np.uint64(1) << (word >> np.uint64(55) & np.uint64(63))


@kernel
def may_have(word, number, filters):
    """Whether list `number` may have a word. This filter saves look-ups in the table of words, which exceeds the
    nearest cache."""
    return filters[number, at(word >> np.uint64(61))] & _bit(word) != np.uint64(0)


@kernel
def longest_ending(data, start, end, number, filters, endings):
    """Return the hash of the longest ending of the word data[start:end] that is in `endings` and that list `number` may
    have. The ending is shorter than the word. Return 0 if there is no such ending."""
    longest = np.uint64(0)
    first = end
    while first - HANGUL_BYTES > start and end - first < MAX_ENDING * HANGUL_BYTES:
        first -= HANGUL_BYTES
        if not HANGUL_FIRST <= utf8.decode(data, first)[0] <= HANGUL_LAST:
            break
        word = hash_listed(data, first, end)
        if may_have(word, number, filters):
            for k in range(endings.size):
                if endings[at(k)] == word:
                    longest = word
    return longest


@kernel
def count_stop_words(
    data, offsets, numbers, pages, records, flags, filters, keys, starts, shift, endings, stamps, different, occurrences
):
    """Count the words of each text that are in the text's stop-word list: the distinct words, and all occurrences.
    `numbers` has the number of each text's list; a text with a number above all lists is skipped, such as NO_LIST.

    endings  uint64: hashes of endings of Korean words, which count as words, too
    """
    for row in range(offsets.size - 1):
        number = numbers[row]
        if number >= filters.shape[0]:
            continue
        end = offsets[row + 1]
        i = word_start(data, offsets[row], end, pages, records, flags)
        while i < end:
            start = i
            i = word_end(data, i, end, pages, records, flags)
            word = hash_listed(data, start, i)
            is_korean = endings.size > 0 and i - start > HANGUL_BYTES and 0xEA <= data[at(i - HANGUL_BYTES)] <= 0xED
            for part in range(1 + int(is_korean)):
                if part == 1:
                    word = longest_ending(data, start, i, number, filters, endings)
                if may_have(word, number, filters):
                    k = find(key_of(word, number), keys, starts, shift)
                    if k >= 0:
                        occurrences[row] += 1
                        if stamps[at(k)] != row + 1:
                            stamps[at(k)] = row + 1
                            different[row] += 1
            i = word_start(data, i, end, pages, records, flags)
