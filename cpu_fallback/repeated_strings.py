# SPDX-License-Identifier: Apache-2.0
"""Measures how much the strings of n characters repeat, for the CPU.

Most strings of ten characters occur once. A first table of bytes rejects most of these; few pass as possibly repeated.
Only the strings that pass are counted by their hashes, as `vector_tables` does with 2-grams of words. The tables take
up to 48 bytes per byte of a document. So the hashes of a long document, 8 bytes each, are sorted instead.
"""

import numpy as np

from cpu_fallback.vector_tables import FREE, slot_of
from curation.kernels.cache import kernel
from curation.kernels.hashing import mix64, table_mask
from curation.kernels.strings import MULTIPLIER, first_power
from curation.kernels.utf8 import decode

at = np.uint64
SEEN_SLOTS = 4  # bytes of the first table per slot of the second
LONG_BYTES = 1 << 20


def allocate_strings(longest: int) -> tuple[np.ndarray, ...]:
    """Return the arrays that `repeat_rows` writes, for documents of up to `longest` bytes."""
    longest = min(longest, LONG_BYTES)
    slots = int(table_mask(longest)) + 1
    return (
        np.empty(longest, np.uint64),  # hashes
        np.empty(SEEN_SLOTS * slots, np.uint8),  # seen
        np.empty(slots, np.uint64),  # keys
        np.empty(slots, np.int32),  # counts
    )


@kernel
def _hash_strings(data, start, end, size, power, hashes):
    """Write the hash of the string of `size` characters that starts at each character; return the number of strings."""
    hashed = at(0)
    strings, characters = 0, 0
    first = i = start
    while i < end:
        code_point, width = decode(data, i)
        hashed = hashed * MULTIPLIER + at(code_point)
        i += width
        characters += 1
        if characters >= size:
            hashes[at(strings)] = mix64(hashed)
            strings += 1
            code_point, width = decode(data, first)
            hashed -= at(code_point) * power
            first += width
    return strings


@kernel
def _find_candidates(hashes, strings, seen, mask):
    """Move the hashes that may repeat to the front; return the number of these hashes."""
    seen[: np.int64(mask) + 1] = 0
    for k in range(at(strings)):
        slot = hashes[k] >> at(32) & mask
        seen[slot] = seen[slot] << np.uint8(1) | np.uint8(1)
    candidates = at(0)
    for k in range(at(strings)):
        hashed = hashes[k]
        hashes[candidates] = hashed
        candidates += at(seen[hashed >> at(32) & mask] > 1)
    return np.int64(candidates)


@kernel
def _count_candidates(hashes, candidates, keys, counts):
    """Count the hashes, and move the counts above 1 to the front; return the number of distinct hashes, and of counts
    above 1."""
    mask = table_mask(candidates)
    slots = np.int64(mask) + 1
    keys[:slots] = FREE
    counts[:slots] = 0
    different = repeated = 0
    for c in range(at(candidates)):
        slot, key = slot_of(keys, mask, hashes[c])
        different += int(keys[slot] == FREE)
        keys[slot] = key
        counts[slot] += 1
    for slot in range(slots):
        count = counts[at(slot)]
        counts[at(repeated)] = count
        repeated += int(count > 1)
    return different, repeated


@kernel
def _sum_of_largest(counts, number, chosen):
    """Return the sum of the `chosen` largest of counts[:number], or of all if there are fewer."""
    low, high = 0, 1 << 31  # at most `chosen` counts are above `high`, and more are above `low`
    total = above = 0
    for c in range(number):
        total += counts[at(c)]
    if number <= chosen:
        return total
    while high - low > 1:
        middle = (low + high) >> 1
        above = 0
        for c in range(number):
            above += int(counts[at(c)] > middle)
        if above <= chosen:
            high = middle
        else:
            low = middle
    total = above = 0
    for c in range(number):
        above += int(counts[at(c)] > high)
        total += counts[at(c)] if counts[at(c)] > high else 0
    return total + (chosen - above) * high


@kernel
def repeat_rows(data, offsets, valid, size, scratch, out):
    """Write the measure of repeated strings of `size` characters to `out` (int64); long documents are left out."""
    hashes, seen, keys, counts = scratch
    power = first_power(size)
    for row in range(len(valid)):
        length = offsets[row + 1] - offsets[row]
        if not valid[row] or length <= size or length > LONG_BYTES:
            continue
        strings = _hash_strings(data, offsets[row], offsets[row + 1], size, power, hashes)
        mask = table_mask(strings) * at(SEEN_SLOTS) + at(SEEN_SLOTS - 1)
        candidates = _find_candidates(hashes, strings, seen, mask)
        different, repeated = _count_candidates(hashes, candidates, keys, counts)
        different += strings - candidates
        out[row] = _sum_of_largest(counts, repeated, np.int64(np.sqrt(different)))


@kernel
def _counts_above_1(hashes, strings):
    """Replace sorted hashes by the counts above 1; return the number of distinct hashes, and of counts above 1."""
    different = repeated = first = 0
    for k in range(1, strings + 1):
        if k < strings and hashes[at(k)] == hashes[at(first)]:
            continue
        different += 1
        if k - first > 1:
            hashes[at(repeated)] = at(k - first)
            repeated += 1
        first = k
    return different, repeated


def repeat_long_rows(data: np.ndarray, offsets: np.ndarray, valid: np.ndarray, size: int) -> np.ndarray:
    """Return the measure of the documents that `repeat_rows` leaves out, and 0 for the others."""
    out = np.zeros(len(valid), np.int64)
    for row in np.flatnonzero(valid & (np.diff(offsets) > LONG_BYTES)):
        hashes = np.empty(offsets[row + 1] - offsets[row], np.uint64)
        strings = _hash_strings(data, offsets[row], offsets[row + 1], size, at(first_power(size)), hashes)
        hashes[:strings].sort()
        different, repeated = _counts_above_1(hashes, strings)
        out[row] = _sum_of_largest(hashes.view(np.int64), repeated, int(np.sqrt(different)))
    return out
