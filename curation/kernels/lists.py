# SPDX-License-Identifier: Apache-2.0
"""Counts the entries of a list that occur in texts: as hosts or their parent domains, as words, or as parts of the
text. Both engines call this module on the CPU.

Entries are 64-bit hashes in ascending order, `keys`, found by their first bits: `starts[b]` is the first key whose
first bits are `b`. Words and parts are compared after folding: only letters and digits remain, in lower case.
"""

import numpy as np

from curation.kernels import tables, utf8
from curation.kernels.cache import kernel
from curation.kernels.hashing import GOLDEN, combine64, load64, mix64, murmur3_x64_128
from curation.kernels.words import low_bytes

at = np.uint64  # unsigned indices need no test for negatives

DOT, ZERO, NINE, COLON, BLANK = 46, 48, 57, 58, 32
FINAL_SIGMA, SIGMA = 0x3C2, 0x3C3
SELECTORS = 0xE0100  # the first of 240 marks above those of `marks`
PADDING = 8  # zero bytes after a folded text
MAX_WORDS = 16  # of an entry
PREFIXES = 6  # first bytes of an entry by which it is looked up
SLOTS = 16  # bits
LONGEST = 64  # a bit of a mask stands for this number of bytes or more


@kernel
def find(key, keys, starts, shift):
    """Return the index of a key in `keys`; -1 if `keys` does not have it."""
    bucket = key >> shift
    for k in range(np.int64(starts[bucket]), np.int64(starts[bucket + np.uint64(1)])):
        if keys[at(k)] == key:
            return k
    return -1


@kernel
def hash_values(data, offsets, out):
    """Write the first 64 bits of the hash of each value; lists are searched by these."""
    for row in range(offsets.size - 1):
        out[row] = murmur3_x64_128(data, offsets[row], offsets[row + 1])[0]


@kernel
def _has_parents(data, start, end):
    """Whether a host has parent domains, as a name has. An IPv6 address (with a colon) and an IPv4 address (which ends
    in digits) have none."""
    i = end
    digits = True
    while i > start and data[i - 1] != DOT:
        i -= 1
        if data[i] == COLON:
            return False
        digits = digits and ZERO <= data[i] <= NINE
    return not digits


@kernel
def count_values(data, offsets, with_parents, keys, starts, shift, counts):
    """Count for each value the entries that equal it. With `with_parents`, also count entries that equal the part after
    any of its dots."""
    for row in range(offsets.size - 1):
        start, end = offsets[row], offsets[row + 1]
        if start == end:
            continue
        counts[row] = find(murmur3_x64_128(data, start, end)[0], keys, starts, shift) >= 0
        if with_parents and _has_parents(data, start, end):
            for i in range(start, end - 1):
                if data[i] == DOT:
                    counts[row] += find(murmur3_x64_128(data, i + 1, end)[0], keys, starts, shift) >= 0


@kernel
def _fold(data, i, end, separated, out, ascii_folded, pages, records, flags, lower, marks):
    """Write the letters and digits of data[i:end] to `out` in lower case; return their end, after which are zeros.

    A mark that follows a letter or digit belongs to it. With `separated`, one blank stands for a sequence of other
    characters.
    """
    o = 0
    inside = False  # letters and digits
    while i < end:
        byte = data[at(i)]
        if byte < 0x80:
            i += 1
            folded = ascii_folded[at(byte)]
            if folded:
                out[at(o)] = folded
                o += 1
                inside = True
                continue
        else:
            code_point, width = utf8.decode(data, i)
            i += width
            record = utf8.record_of(pages, records, code_point)
            is_part = int(flags[at(record)]) & tables.ALNUM != 0
            if not is_part and inside:
                is_selector = SELECTORS <= code_point < SELECTORS + 240
                is_part = is_selector or (code_point < marks.size and marks[at(code_point)])
            if is_part:
                code_point += int(lower[at(record)])
                o = utf8.encode(SIGMA if code_point == FINAL_SIGMA else code_point, out, o)
                inside = True
                continue
        if inside and separated:
            out[at(o)] = BLANK
            o += 1
        inside = False
    if inside and separated:
        out[at(o)] = BLANK
        o += 1
    for k in range(PADDING):
        out[at(o + k)] = 0
    return o


@kernel
def _hash(folded, i, end):
    """The hash of folded[i:end], which is not empty and has PADDING bytes after it."""
    state = at(end - i)
    while end - i > 8:
        state = combine64(state, load64(folded, i))
        i += 8
    return mix64(combine64(state, load64(folded, i) & low_bytes(end - i)))


@kernel
def _slot(folded, i, size):
    """Return the slot in `filters` for the first `size` bytes."""
    return (load64(folded, i) & low_bytes(size)) * GOLDEN >> np.uint64(64 - SLOTS)


@kernel
def _word_end(folded, i):
    while folded[at(i)] != BLANK:
        i += 1
    return i


@kernel
def hash_folded(data, offsets, separated, buffer, unicode, out, sizes, filters):
    """Write the hash and the size of each folded entry. The size is in words if `separated`, else in bytes; 0 if
    nothing is left.

    Fill `filters` if not `separated`.

    filters   uint64[PREFIXES, 2^SLOTS]: the sizes of entries, as bits, by their first bytes; row k for k + 1 bytes
    """
    ascii_folded, pages, records, flags, lower, marks = unicode
    for row in range(offsets.size - 1):
        size = _fold(
            data, offsets[row], offsets[row + 1], separated, buffer, ascii_folded, pages, records, flags, lower, marks
        )
        i = 0
        while i < size:
            end = _word_end(buffer, i) if separated else size
            word = _hash(buffer, i, end)
            out[row] = combine64(out[row], word) if i else word
            sizes[row] += 1
            i = end + 1
        if size and not separated:
            sizes[row] = size
            first = min(size, PREFIXES)
            filters[first - 1, _slot(buffer, 0, first)] |= np.uint64(1) << np.uint64(min(size, LONGEST) - 1)


@kernel
def count_words(data, offsets, buffer, unicode, lengths, keys, starts, shift, stamps, counts):
    """Count for each text the distinct entries whose words occur in it one after the other. Bit k of `lengths` is set
    if some entry has k + 1 words."""
    ascii_folded, pages, records, flags, lower, marks = unicode
    recent = np.zeros(MAX_WORDS, np.uint64)
    for row in range(offsets.size - 1):
        size = _fold(
            data, offsets[row], offsets[row + 1], True, buffer, ascii_folded, pages, records, flags, lower, marks
        )
        i = words = 0
        while i < size:
            end = _word_end(buffer, i)
            recent[words % MAX_WORDS] = _hash(buffer, i, end)
            words += 1
            i = end + 1
            left = lengths
            length = 1
            while left and length <= words:
                if left & 1:
                    key = recent[(words - length) % MAX_WORDS]
                    for k in range(words - length + 1, words):
                        key = combine64(key, recent[k % MAX_WORDS])
                    k = find(key, keys, starts, shift)
                    if k >= 0 and stamps[at(k)] != row + 1:
                        stamps[at(k)] = row + 1
                        counts[row] += 1
                left >>= 1
                length += 1


@kernel
def count_parts(data, offsets, buffer, unicode, filters, lengths, keys, starts, shift, stamps, counts):
    """Count the distinct entries that each folded text contains. `lengths`: the distinct sizes of entries."""
    ascii_folded, pages, records, flags, lower, marks = unicode
    used = 0
    for length in lengths:
        used |= 1 << (min(length, PREFIXES) - 1)
    for row in range(offsets.size - 1):
        size = _fold(
            data, offsets[row], offsets[row + 1], False, buffer, ascii_folded, pages, records, flags, lower, marks
        )
        for i in range(size):
            mask = np.uint64(0)
            for first in range(PREFIXES):
                if used >> first & 1:
                    mask |= filters[at(first), _slot(buffer, i, first + 1)]
            if mask == np.uint64(0):
                continue
            for length in lengths:
                if i + length <= size and mask >> np.uint64(min(length, LONGEST) - 1) & np.uint64(1):
                    k = find(_hash(buffer, i, i + length), keys, starts, shift)
                    if k >= 0 and stamps[at(k)] != row + 1:
                        stamps[at(k)] = row + 1
                        counts[row] += 1
