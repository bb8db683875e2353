# SPDX-License-Identifier: Apache-2.0
"""Near-duplicates: n-gram hashes of a document, MinHash signature, band keys, exact overlap.

A word has the hash of `kernels.words`, a character its mixed code point. The hash of an n-gram is the polynomial of its
items in `BASE` modulo 2^64, mixed at the end. It rolls: one multiplication per item.
"""

import numpy as np

from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.hashing import FMIX_1, GOLDEN, combine64, load64, mix64
from curation.kernels.tables import SPACE
from curation.kernels.words import finish_word

at = np.uint64  # unsigned indices need no test for negatives, so LLVM vectorises the loops

BASE = GOLDEN  # odd; the largest power of 2 in BASE - 1 is 4, so swapped words collide for 1 in 2^62 pairs
EMPTY = np.uint32(0xFFFFFFFF)  # every item of the signature of a document without n-grams
NO_KEY = np.uint64(0)  # band key of a document without n-grams, and of no other

BYTES_LOW = np.uint64(0x0101010101010101)
BYTES_HIGH = np.uint64(0x8080808080808080)
BYTES_PLAIN = np.uint64(0x2121212121212121)  # 0x21, the first printable byte that is not white space
BLANK, NEWLINE = np.uint64(32), np.uint64(10)


@kernel
def space_width(data, i, pages, records, flags):
    """Bytes of the white space character at `i`; 0 for another character."""
    byte = utf8.byte_at(data, i)
    if byte < 0x80:
        return 1 if flags[at(byte)] & np.uint32(SPACE) else 0
    code_point, width = utf8.decode(data, i)
    return width if flags[at(utf8.record_of(pages, records, code_point))] & np.uint32(SPACE) else 0


@kernel
def swap_bytes(x):
    """The bytes of `x` in reverse order; LLVM compiles it to one instruction."""
    byte = np.uint64(0xFF)
    return (
        (x & byte) << np.uint64(56)
        | (x >> np.uint64(8) & byte) << np.uint64(48)
        | (x >> np.uint64(16) & byte) << np.uint64(40)
        | (x >> np.uint64(24) & byte) << np.uint64(32)
        | (x >> np.uint64(32) & byte) << np.uint64(24)
        | (x >> np.uint64(40) & byte) << np.uint64(16)
        | (x >> np.uint64(48) & byte) << np.uint64(8)
        | x >> np.uint64(56)
    )


@kernel
def _special_bytes(block):
    """Marks whose lowest set bit is in the first byte below 0x21 or above 0x7F; a borrow may set higher ones. 0 if all
    eight bytes are printable ASCII."""
    return ((block - BYTES_PLAIN) | block) & BYTES_HIGH


@kernel
def _bytes_before(marks):
    """Number of bytes before the one with the lowest mark."""
    below = (marks & (~marks + np.uint64(1))) - np.uint64(1)
    return ((below & BYTES_LOW) * BYTES_LOW >> np.uint64(56)) - np.uint64(1)


@kernel
def _ends_word(block, i):
    """Whether byte `i` is a space or a newline; other white space takes the slow path."""
    byte = block >> np.uint64(8) * i & np.uint64(0xFF)
    return byte == BLANK or byte == NEWLINE


@kernel
def first_bytes(block, count):
    """The first 0 to 7 bytes as a big-endian number. Two shifts, since one shift by 64 is undefined."""
    return swap_bytes(block) >> (np.uint64(56) - np.uint64(8) * count) >> np.uint64(8)


@kernel
def _hash_word(data, word, end, pages, records, flags):
    """(hash, end) of the word that starts at `word`; printable ASCII is read eight bytes at a time."""
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
    """Write the hashes of the words; return their number. Most words fit into eight bytes with the space after them:
    665 MB/s of English, 470 MB/s with `_hash_word` alone."""
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
def add_item(value, item):
    """The polynomial of an n-gram after one more item."""
    return value * BASE + item


@kernel
def shingle_hashes(data, start, end, ngram, by_character, pages, records, flags, out):
    """Write the hash of every n-gram of data[start:end], repeated ones included; return their number.

    ngram, by_character   length of the n-grams, in words or characters
    out                   uint64, at least as long as the text has items: half of its bytes, rounded up, for words; its
                          bytes for characters

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
    # N-gram k starts at item k: out[k] is read for the last time just before it is overwritten.
    for k in range(items - size):
        first = out[at(k)]
        out[at(k)] = mix64(value)
        value = add_item(value, out[at(k + size)]) - first * leaving
    out[at(items - size)] = mix64(value)
    return items - size + 1


@kernel
def _permuted(hashed, a, b):
    return np.uint32(np.uint32(hashed) * a + b)


@kernel
def signature(hashes, count, a, b, out):
    """Write the MinHash of hashes[:count]: out[k] = min over x of (a[k] * x + b[k]) mod 2^32, x the high 32 bits.

    hashes    uint64
    a, b      uint32, one per permutation, `a` odd
    out       uint32, one per permutation

    Each pass over the permutations takes eight hashes, so constants and minima are loaded once for eight and the inner
    loop vectorises: 2.9 times as fast as one hash per pass.
    """
    for k in range(at(out.size)):
        out[k] = EMPTY
    i = 0
    half = np.uint64(32)
    while i + 8 <= count:
        x0 = np.uint32(hashes[at(i)] >> half)
        x1 = np.uint32(hashes[at(i + 1)] >> half)
        x2 = np.uint32(hashes[at(i + 2)] >> half)
        x3 = np.uint32(hashes[at(i + 3)] >> half)
        x4 = np.uint32(hashes[at(i + 4)] >> half)
        x5 = np.uint32(hashes[at(i + 5)] >> half)
        x6 = np.uint32(hashes[at(i + 6)] >> half)
        x7 = np.uint32(hashes[at(i + 7)] >> half)
        for k in range(at(out.size)):
            low = min(_permuted(x0, a[k], b[k]), _permuted(x1, a[k], b[k]))
            low = min(low, min(_permuted(x2, a[k], b[k]), _permuted(x3, a[k], b[k])))
            low = min(low, min(_permuted(x4, a[k], b[k]), _permuted(x5, a[k], b[k])))
            low = min(low, min(_permuted(x6, a[k], b[k]), _permuted(x7, a[k], b[k])))
            out[k] = min(out[k], low)
        i += 8
    while i < count:
        x = np.uint32(hashes[at(i)] >> half)
        for k in range(at(out.size)):
            out[k] = min(out[k], _permuted(x, a[k], b[k]))
        i += 1


@kernel
def band_key(signed, first, rows):
    """The key (uint64) of the band signed[first:first + rows] (uint32); NO_KEY for a document without n-grams."""
    key = np.uint64(rows) * FMIX_1
    empty = True
    for k in range(rows):
        number = signed[at(first + k)]
        empty = empty and number == EMPTY
        key = combine64(key, np.uint64(number))
    if empty:
        return NO_KEY
    key = mix64(key)
    return key if key != NO_KEY else np.uint64(1)


@kernel
def keep_distinct(hashes, start, end, o):
    """Move the distinct values of the sorted hashes[start:end] to position `o` <= start; return their end."""
    for k in range(start, end):
        value = hashes[at(k)]
        if k == start or value != hashes[at(o - 1)]:
            hashes[at(o)] = value
            o += 1
    return o


@kernel
def common_count(hashes, i, i_end, j, j_end):
    """Number of common values of two sorted, distinct ranges of `hashes`. No branch depends on the values."""
    common = 0
    while i < i_end and j < j_end:
        left, right = hashes[at(i)], hashes[at(j)]
        common += int(left == right)
        i += int(left <= right)
        j += int(right <= left)
    return common
