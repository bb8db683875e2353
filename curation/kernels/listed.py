# SPDX-License-Identifier: Apache-2.0
"""Finds the texts that have a character of a list. Vector comparisons skip nearly all blocks of bytes, at 0.1 ns per
byte: first with the lead bytes of the listed characters, then with the ranges of their second bytes."""

import numpy as np

from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.hashing import at

BLOCK = 256
FOUR = 4  # leads compared at once
ALL = np.uint8(255)


@kernel
def _may_have_lead(data, i, stop, leads):
    """Whether one of the bytes `leads`, whose number is a multiple of four, is in data[i:stop]."""
    nearest = ALL
    for p in range(0, leads.size, FOUR):
        a, b, c, d = leads[at(p)], leads[at(p + 1)], leads[at(p + 2)], leads[at(p + 3)]
        for k in range(i, stop):  # LLVM compiles a minimum of differences to vector code, but not an "or" of tests
            byte = data[at(k)]
            nearest = min(nearest, min(min(byte ^ a, byte ^ b), min(byte ^ c, byte ^ d)))
    return nearest == 0


@kernel
def _may_have_prefix(data, i, stop, prefixes):
    """Whether one of the rows (lead, second byte, mask) fits two bytes of data[i:stop + 1]; the second is masked."""
    nearest = ALL
    for p in range(prefixes.shape[0]):
        lead, second, mask = prefixes[at(p), 0], prefixes[at(p), 1], prefixes[at(p), 2]
        for k in range(i, stop):
            nearest = min(nearest, data[at(k)] ^ lead | data[at(k + 1)] & mask ^ second)
    return nearest == 0


@kernel
def _last_up_to(values, value):
    """Return the index of the last of ascending `values` that is at most `value`, or -1. With `np.searchsorted`, each
    process would import numba.np.arraymath, and SciPy where it is installed, to load the kernel."""
    low, high = 0, values.size
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low - 1


@kernel
def _is_listed(code_point, firsts, lasts):
    k = _last_up_to(firsts, code_point)
    return k >= 0 and code_point <= lasts[k]


@kernel
def mark_texts(data, offsets, leads, prefixes, firsts, lasts, marked):
    """Set marked[k] for each text data[offsets[k]:offsets[k + 1]] with a character of the ranges firsts to lasts.

    leads, prefixes   as `curation.tokens.unicode_differences.Characters` has them
    """
    i, end = offsets[0], offsets[-1]
    while i < end:
        stop = min(i + BLOCK, end)
        pairs_end = min(stop, data.size - 1)  # the last byte leads no listed character
        if _may_have_lead(data, i, stop, leads) and _may_have_prefix(data, i, pairs_end, prefixes):
            while i < stop:
                code_point = 0
                if data[at(i)] >= np.uint8(0xC0):
                    code_point, _ = utf8.decode(data, i)
                if code_point and _is_listed(code_point, firsts, lasts):
                    text = _last_up_to(offsets, i)
                    marked[text] = True
                    i = offsets[text + 1]
                else:
                    i += 1
        else:
            i = stop
