# SPDX-License-Identifier: Apache-2.0
"""Hashes all n-grams of one document, item by item. `curation.kernels.minhash` describes the hashes.

`vector_shingles` is faster on words, and calls this for characters and long n-grams.
"""

import numpy as np

from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.hashing import GOLDEN, combine64, load64, mix64
from curation.kernels.minhash import BASE, add_item, at, first_bytes, space_width, swap_bytes
from curation.kernels.words import finish_word

BYTES_LOW = np.uint64(0x0101010101010101)
BYTES_HIGH = np.uint64(0x8080808080808080)
BYTES_PLAIN = np.uint64(0x2121212121212121)  # 0x21, the first printable byte that is not white space
BLANK, NEWLINE = np.uint64(32), np.uint64(10)


@kernel
def _special_bytes(block):
    """Return a number whose lowest set bit is in the first byte below 0x21 or above 0x7F; 0 if all eight bytes are
    printable ASCII. Higher bits may be wrong, by a borrow."""
    return ((block - BYTES_PLAIN) | block) & BYTES_HIGH


@kernel
def _bytes_before(marks):
    """Return the number of bytes before the byte with the lowest mark."""
    below = (marks & (~marks + np.uint64(1))) - np.uint64(1)
    return ((below & BYTES_LOW) * BYTES_LOW >> np.uint64(56)) - np.uint64(1)


@kernel
def _ends_word(block, i):
    """Whether byte `i` is a space or a newline; other white space is handled by slower code."""
    byte = block >> np.uint64(8) * i & np.uint64(0xFF)
    return byte == BLANK or byte == NEWLINE


@kernel
def _hash_word(data, word, end, pages, records, flags):
    """Return hash and end of the word that starts at `word`; printable ASCII is read eight bytes at a time."""
    state = np.uint64(0)
    i = word
    while i + 8 <= end:
        block = load64(data, i)
        marks = _special_bytes(block)
        if marks != np.uint64(0):
            plain = _bytes_before(marks)
            if _ends_word(block, plain):
                stop = i + np.int64(plain)
                return finish_word(state, first_bytes(block, plain), stop - word), stop
            break
        state = combine64(state + np.uint64(1), swap_bytes(block))
        i += 8
    pending = np.uint64(0)
    num_pending = 0
    while i < end:
        if space_width(data, i, pages, records, flags):
            break
        width = utf8.decode(data, i)[1]
        for k in range(width):
            pending = pending << np.uint64(8) | np.uint64(utf8.byte_at(data, i + k))
            num_pending += 1
            if num_pending == 8:
                state = combine64(state + np.uint64(1), pending)
                pending = np.uint64(0)
                num_pending = 0
        i += width
    return finish_word(state, pending, i - word), i


@kernel
def _hash_words(data, start, end, pages, records, flags, out):
    """Write the hashes of the words; return the number of words. Most words, with the space after them, fit into eight
    bytes: so English takes 665 MB/s, instead of 470 MB/s with `_hash_word` alone."""
    count = 0
    i = start
    while i < end:
        if i + 8 <= end:
            block = load64(data, i)
            marks = _special_bytes(block)
            if marks != np.uint64(0):
                plain = _bytes_before(marks)
                if _ends_word(block, plain):
                    if plain != np.uint64(0):
                        out[at(count)] = finish_word(np.uint64(0), first_bytes(block, plain), plain)
                        count += 1
                    i += np.int64(plain) + 1
                    continue
        width = space_width(data, i, pages, records, flags)
        if width:
            i += width
            continue
        out[at(count)], i = _hash_word(data, i, end, pages, records, flags)
        count += 1
    return count


@kernel
def _hash_characters(data, start, end, out):
    count = 0
    i = start
    while i < end:
        code_point, width = utf8.decode(data, i)
        out[at(count)] = mix64(np.uint64(code_point) + GOLDEN)
        i += width
        count += 1
    return count


@kernel
def shingle_hashes(data, start, end, ngram, by_character, pages, records, flags, out):
    """Write the hash of every n-gram of data[start:end], repeated ones included; return their number.

    ngram, by_character   length of the n-grams, in words or characters
    out                   uint64, one item or more per word or character of the text: for words, half of its bytes,
                      rounded up; for characters, its bytes

    A text with fewer items than `ngram` has one n-gram, itself; a text without items has none.
    """
    if by_character:
        items = _hash_characters(data, start, end, out)
    else:
        items = _hash_words(data, start, end, pages, records, flags, out)
    if items == 0:
        return 0
    size = min(ngram, items)
    value = np.uint64(0)
    leaving = np.uint64(1)  # BASE ** size
    for k in range(size):
        value = add_item(value, out[at(k)])
        leaving *= BASE
    # N-gram k starts at item k, so out[k] is read for the last time just before it is overwritten.
    for k in range(items - size):
        first = out[at(k)]
        out[at(k)] = mix64(value)
        value = add_item(value, out[at(k + size)]) - first * leaving
    out[at(items - size)] = mix64(value)
    return items - size + 1
