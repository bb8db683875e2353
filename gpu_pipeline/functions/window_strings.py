# SPDX-License-Identifier: Apache-2.0
"""The strings of windows (`curation.kernels.spans`), in chunks of CHUNK bytes: their hashes, and the least hash of a
window.

If H is the polynomial hash of all bytes before a position, the hash of the string data[i:i + size] is
H(i + size) - H(i) * BASE^size, modulo 2^64. Prefix sums of the results of `sum_chunk` give H at the chunks.
"""

import numpy as np

from curation.kernels.cache import kernel
from curation.kernels.hashing import load64, mix64
from curation.kernels.spans import BASE, roll
from gpu_pipeline.functions.items import at

CHUNK_SHIFT = 3
CHUNK = 1 << CHUNK_SHIFT  # a window of 32 bytes or more has a whole chunk of strings between its ends
WORD = 1 << 64
FORTH = np.uint64(pow(int(BASE), CHUNK, WORD))
BACK = np.uint64(pow(int(BASE), -CHUNK, WORD))


@kernel
def power(base, exponent):
    """`base` (uint64) to the power of `exponent`, 0 or more."""
    result = np.uint64(1)
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


@kernel
def sum_chunk(data, c):
    """Return the polynomial hash of chunk `c`, filled with zeros at the end of the text, divided by BASE^(CHUNK * (c +
    1))."""
    total = np.uint64(0)
    for i in range(CHUNK * c, CHUNK * c + CHUNK):
        total *= BASE
        if i < data.size:
            total += np.uint64(data[at(i)])
    return total * power(BACK, c + 1)


@kernel
def hash_chunk(data, sums, size, c, values):
    """Write the hashes of the strings that begin in chunk `c`; return the rightmost position of the least."""
    first, end = CHUNK * c, CHUNK * c + size
    far = end >> CHUNK_SHIFT
    rolled = sums[at(far)] * power(FORTH, far)
    for i in range(CHUNK * far, end):
        rolled = rolled * BASE + np.uint64(data[at(i)])
    drop = power(BASE, size)
    rolled -= sums[at(c)] * power(FORTH, c) * drop
    position, least = first, mix64(rolled)
    values[at(first)] = least
    for i in range(first + 1, min(first + CHUNK, values.size)):
        rolled = roll(rolled, data[at(i + size - 1)], data[at(i - 1)], drop)
        value = mix64(rolled)
        values[at(i)] = value
        if value <= least:
            position, least = i, value
    return position


@kernel
def better(values, left, right):
    """Return the position of the lesser of two hashes; the right position if they are equal."""
    return right if values[at(right)] <= values[at(left)] else left


@kernel
def anchor_of(values, least, step, strings, window):
    """Return the rightmost position of the least of values[window:window + strings].

    least[c] is the position for the `step` chunks from c. The chunks between the ends of the window are at least `step`
    and at most two times as many.
    """
    end = window + strings
    first, last = (window >> CHUNK_SHIFT) + 1, (end - 1) >> CHUNK_SHIFT
    position = window
    for i in range(window + 1, first << CHUNK_SHIFT):
        position = better(values, position, i)
    position = better(values, position, np.int64(least[at(first)]))
    position = better(values, position, np.int64(least[at(last - step)]))
    for i in range(last << CHUNK_SHIFT, end):
        position = better(values, position, i)
    return position


@kernel
def are_equal(data, i, j, count):
    """Whether two ranges have equal bytes; eight bytes are compared at a time."""
    end = i + count
    while i + 8 <= end and load64(data, i) == load64(data, j):
        i += 8
        j += 8
    while i < end and data[at(i)] == data[at(j)]:
        i += 1
        j += 1
    return i >= end
