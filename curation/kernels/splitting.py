# SPDX-License-Identifier: Apache-2.0
"""Kernels that split texts into parts: they find separators and copy spans of bytes."""

import numpy as np

from curation.kernels.cache import kernel
from curation.kernels.hashing import at
from curation.kernels.utf8 import byte_at

MARK = 0xFE  # a byte of at least this value, which UTF-8 does not have, marks the start or the end of a separator


@kernel
def is_at(data, i, needle):
    """Whether the bytes at `i` begin with `needle`."""
    for k in range(len(needle)):
        if data[at(i + k)] != needle[at(k)]:
            return False
    return True


@kernel
def count_literal(data, start, stop, needle):
    """Return the number of separators, which equal `needle` and do not overlap."""
    count = 0
    i = start
    last = stop - len(needle)
    while i <= last:
        if data[at(i)] == needle[0] and is_at(data, i, needle):
            count += 1
            i += len(needle)
        else:
            i += 1
    return count


@kernel
def find_literal(data, offsets, needle, starts, stops, counts):
    """Write start and stop of each part between equal separators, and the number of parts of each text."""
    k = 0
    for row in range(len(counts)):
        before = k
        i = offsets[row]
        end = offsets[row + 1]
        last = end - len(needle)
        starts[at(k)] = i
        while i <= last:
            if data[at(i)] == needle[0] and is_at(data, i, needle):
                stops[at(k)] = i
                k += 1
                i += len(needle)
                starts[at(k)] = i
            else:
                i += 1
        stops[at(k)] = end
        k += 1
        counts[row] = k - before


@kernel
def find_marked(marked, offsets, first, starts, stops, counts):
    """Write the results of `find_literal` for texts with a mark before and after each separator. `first` is the
    position of the first text in the data without marks. Return the row of the first empty separator; -1 if no
    separator is empty."""
    k = 0
    position = first
    for row in range(len(counts)):
        before = k
        inside = False
        starts[at(k)] = position
        for i in range(offsets[row], offsets[row + 1]):
            if marked[at(i)] < MARK:
                position += 1
            elif inside:
                if position == stops[at(k - 1)]:
                    return row
                starts[at(k)] = position
                inside = False
            else:
                stops[at(k)] = position
                k += 1
                inside = True
        stops[at(k)] = position
        k += 1
        counts[row] = k - before
    return -1


@kernel
def group_units(offsets, spans, units, size, starts, stops, counts):
    """Write parts of `size` units, each from the first unit's content to the end of the last unit's content. The first
    part of a text begins at the start of the text, and the last part ends at its end. A text without units is one
    part."""
    k = 0
    unit = 0
    for row in range(len(counts)):
        before = k
        starts[at(k)] = offsets[row]
        for number in range(units[row]):
            if number and number % size == 0:
                stops[at(k)] = spans[at(unit - 1), 2]
                k += 1
                starts[at(k)] = spans[at(unit), 1]
            unit += 1
        stops[at(k)] = offsets[row + 1]
        k += 1
        counts[row] = k - before


@kernel
def group_tokens(data, offsets, sizes, tokens, size, starts, stops, counts):
    """Write parts of `size` tokens; `sizes` has the bytes of each token. A part never ends inside a character. Return
    the row of the first text whose size differs from that of its tokens, -1 if there is none."""
    k = 0
    token = 0
    for row in range(len(counts)):
        before = k
        position = offsets[row]
        end = offsets[row + 1]
        starts[at(k)] = position
        for number in range(tokens[row]):
            cut = position
            while cut < end and (byte_at(data, cut) & 0xC0) == 0x80:
                cut += 1
            if number and number % size == 0 and starts[at(k)] < cut < end:
                stops[at(k)] = cut
                k += 1
                starts[at(k)] = cut
            position += sizes[at(token)]
            token += 1
        if position != end:
            return row
        stops[at(k)] = end
        k += 1
        counts[row] = k - before
    return -1


@kernel
def copy_spans(data, starts, stops, out):
    """Write the bytes of all spans one after the other."""
    k = 0
    for row in range(len(starts)):
        for i in range(starts[row], stops[row]):
            out[np.uint64(k)] = data[at(i)]
            k += 1
