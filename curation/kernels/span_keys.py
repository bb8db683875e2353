# SPDX-License-Identifier: Apache-2.0
"""Computes keys of spans of text. If two spans differ only by a few bytes at their ends, their keys are usually equal.
Both engines run this module on the host."""

import numpy as np

from curation.kernels.cache import kernel
from curation.kernels.hashing import at, mix64, murmur3_x64_128
from curation.kernels.spans import BASE


def span_keys(data: np.ndarray, starts: np.ndarray, stops: np.ndarray, length: int) -> np.ndarray:
    """Return a hash (uint64) for each span data[start:stop]: of the `length` consecutive bytes in it whose rolling hash
    is least, or of all bytes of a shorter span."""
    keys = np.empty(len(starts), np.uint64)
    hash_least_windows(data, starts, stops, length, keys)
    return keys


@kernel
def hash_least_windows(data, starts, stops, length, keys):
    """Write the hashes of `span_keys`. Of equal least hashes the first one counts; their bytes are usually equal,
    too."""
    drop = np.uint64(1)
    for _ in range(length):
        drop *= BASE
    for number in range(len(starts)):
        start, stop = starts[number], stops[number]
        rolled = np.uint64(0)
        for i in range(start, min(start + length, stop)):
            rolled = rolled * BASE + np.uint64(data[at(i)])
        least, position = mix64(rolled), start
        for i in range(start + length, stop):
            rolled = rolled * BASE + (np.uint64(data[at(i)]) - drop * np.uint64(data[at(i - length)]))
            value = mix64(rolled)
            if value < least:
                least, position = value, i - length + 1
        keys[number], _ = murmur3_x64_128(data, position, min(position + length, stop))
