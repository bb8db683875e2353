# SPDX-License-Identifier: Apache-2.0
"""Kernels for near-duplicates: n-gram hashes, MinHash signatures, band keys, and the exact number of common n-grams.

A word has the hash of `kernels.words`, a character its mixed code point. The hash of an n-gram is the polynomial of its
items in `BASE` modulo 2^64, mixed at the end. The hash rolls: each further item costs one multiplication.
"""

import numpy as np

from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.hashing import FMIX_1, GOLDEN, combine64, mix64
from curation.kernels.tables import SPACE

at = np.uint64  # unsigned indices need no test for negatives, so LLVM vectorises the loops

BASE = GOLDEN  # odd; the largest power of 2 in BASE - 1 is 4, so swapped words collide for 1 in 2^62 pairs
EMPTY = np.uint32(0xFFFFFFFF)  # every item of the signature of a document without n-grams
NO_KEY = np.uint64(0)  # band key of documents without n-grams; no other document has it


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
def first_bytes(block, count):
    """The first 0 to 7 bytes as a big-endian number. Two shifts, since one shift by 64 is undefined."""
    return swap_bytes(block) >> (np.uint64(56) - np.uint64(8) * count) >> np.uint64(8)


@kernel
def add_item(value, item):
    """The polynomial of an n-gram after one more item."""
    return value * BASE + item


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
def common_count(hashes, i, i_end, j, j_end):
    """Number of common values of two sorted, distinct ranges of `hashes`. No branch depends on the values."""
    common = 0
    while i < i_end and j < j_end:
        left, right = hashes[at(i)], hashes[at(j)]
        common += int(left == right)
        i += int(left <= right)
        j += int(right <= left)
    return common
