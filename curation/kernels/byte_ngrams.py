# SPDX-License-Identifier: Apache-2.0
"""Interpolated modified Kneser-Ney models of bytes (Chen and Goodman 1998), from sorted keys; on the host only.

The key (uint64) of a byte has the byte in its lowest 8 bits, and the 7 bytes before it above them, the latest in the
highest bits. Before a text stand 7 bytes 0xFF, which UTF-8 never has. A shorter context is a prefix of a longer one, so
in sorted keys the n-grams of a context of any length follow one another.

Arrays of the n-grams of one order:
contexts  uint64: the keys of the different contexts without the lowest byte, ascending; shorter ones end with zeros
starts    int64, contexts + 1: the first n-gram of each context
symbols   uint8: the last byte of each n-gram
counts    uint32: for the highest order the occurrences of each n-gram; for the others the number of different bytes
          before it (the continuation count of Kneser and Ney 1995)
"""

import math

import numpy as np

from curation.kernels.cache import kernel

ORDER = 8
BYTE = np.uint64(0xFF)
CONTEXT = np.uint64(0xFFFFFFFFFFFFFF00)  # a mask, and the context before a text
FRACTION = 20  # logarithms are integers in units of 2^-20 bits


@kernel
def write_keys(data, offsets, keys):
    """Write the key of each byte of the texts data[offsets[k]:offsets[k + 1]], one after the other."""
    place = 0
    for row in range(offsets.size - 1):
        context = CONTEXT
        for i in range(offsets[row], offsets[row + 1]):
            byte = np.uint64(data[i])
            keys[place] = context | byte
            place += 1
            context = (context >> np.uint64(8) | byte << np.uint64(56)) & CONTEXT


@kernel
def count_keys(keys, contexts, starts, symbols, counts):
    """Count the n-grams of the highest order in sorted keys. Return the number of contexts and of n-grams."""
    number = found = 0
    for i in range(keys.size):
        if i and keys[i] == keys[i - 1]:
            counts[found - 1] += np.uint32(1)
            continue
        context = keys[i] & CONTEXT
        if not number or context != contexts[number - 1]:
            contexts[number], starts[number] = context, found
            number += 1
        symbols[found], counts[found] = keys[i] & BYTE, 1
        found += 1
    starts[number] = found
    return number, found


@kernel
def count_shorter(contexts, starts, symbols, mask, short_contexts, short_starts, short_symbols, short_counts):
    """Count the n-grams without their first byte. `mask` keeps the bytes of the shorter contexts. Return the number of
    contexts and of n-grams."""
    of_symbol = np.zeros(256, np.uint32)
    different = np.empty(256, np.uint8)
    number = found = row = 0
    while row < contexts.size:
        context = contexts[row] & mask
        count = 0
        while row < contexts.size and contexts[row] & mask == context:
            for i in range(starts[row], starts[row + 1]):
                symbol = symbols[i]
                if not of_symbol[symbol]:
                    different[count] = symbol
                    count += 1
                of_symbol[symbol] += np.uint32(1)
            row += 1
        short_contexts[number], short_starts[number] = context, found
        number += 1
        for k in range(count):
            short_symbols[found], short_counts[found] = different[k], of_symbol[different[k]]
            of_symbol[different[k]] = np.uint32(0)
            found += 1
    short_starts[number] = found
    return number, found


@kernel
def interpolate(contexts, starts, symbols, counts, discounts, mask, keys, probabilities):
    """Extend the contexts of probabilities by one byte.

    discounts      float64[4]: what is subtracted from counts of 0 (nothing), 1, 2, and 3 or more
    mask           keeps the bytes of the contexts of this order
    keys           uint64, sorted: the keys of the bytes to predict
    probabilities  float64, one per key: with contexts one byte shorter before the call, of this order after it. They
                   stay as they are where the model does not have the context
    """
    of_symbol = np.zeros(256, np.uint32)
    row = i = 0
    while i < keys.size:
        context = keys[i] & mask
        while row < contexts.size and contexts[row] < context:
            row += 1
        if row == contexts.size:
            return
        known = contexts[row] == context
        total, spared = np.int64(0), 0.0
        if known:
            for k in range(starts[row], starts[row + 1]):
                count = np.int64(counts[k])
                of_symbol[symbols[k]] = counts[k]
                total += count
                spared += discounts[min(count, 3)]
        while i < keys.size and keys[i] & mask == context:
            if known:
                count = np.int64(of_symbol[keys[i] & BYTE])
                probabilities[i] = (count - discounts[min(count, 3)] + spared * probabilities[i]) / total
            i += 1
        if known:
            for k in range(starts[row], starts[row + 1]):
                of_symbol[symbols[k]] = np.uint32(0)


@kernel
def _negative_log2(probability):
    """Return -log2 of a probability in units of 2^-20 bits, rounded up. Only integers are computed, so all machines
    return the same number: the digits of the fraction are those of repeated squares."""
    mantissa, exponent = math.frexp(probability)
    square = np.uint64(mantissa * 4294967296.0)  # at least 2^31, below 2^32
    fraction = np.int64(0)
    for _ in range(FRACTION):
        square = square * square >> np.uint64(31)
        fraction <<= 1
        if square >> np.uint64(32):
            square >>= np.uint64(1)
            fraction |= 1
    return (np.int64(1 - exponent) << FRACTION) - fraction


@kernel
def add_bits(probabilities, rows, bits):
    """Add the bits of each byte to the number (int64) of its text: `rows` has the text of each byte."""
    for i in range(probabilities.size):
        bits[rows[i]] += _negative_log2(probabilities[i])
