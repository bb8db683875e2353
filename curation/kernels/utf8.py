# SPDX-License-Identifier: Apache-2.0
"""Decodes and encodes UTF-8. The bytes are valid UTF-8, as in every Arrow string column, so nothing is checked.

Every loaded byte is converted by `int()`: in plain Python, NumPy's uint8 arithmetic would wrap.
"""

import numpy as np

from curation.kernels.cache import kernel


@kernel
def byte_at(data, i):
    """data[i] as a signed integer. The index is cast to unsigned: a signed one costs a test for negatives."""
    return int(data[np.uint64(i)])


@kernel
def decode(data, i):
    """Return the code point that starts at byte `i`, and its width in bytes."""
    lead = byte_at(data, i)
    if lead < 0x80:
        return lead, 1
    second = byte_at(data, i + 1) & 0x3F
    if lead < 0xE0:
        return (lead & 0x1F) << 6 | second, 2
    third = byte_at(data, i + 2) & 0x3F
    if lead < 0xF0:
        return (lead & 0x0F) << 12 | second << 6 | third, 3
    return (lead & 0x07) << 18 | second << 12 | third << 6 | byte_at(data, i + 3) & 0x3F, 4


@kernel
def lead_width(lead):
    """Width in bytes of the character that starts with this byte."""
    return 1 + int(lead >= 0xC0) + int(lead >= 0xE0) + int(lead >= 0xF0)


@kernel
def encode(code_point, out, o):
    """Write a code point to `out` at byte `o`; return the position after it."""
    if code_point < 0x80:
        out[o] = code_point
        return o + 1
    if code_point < 0x800:
        out[o] = 0xC0 | code_point >> 6
        out[o + 1] = 0x80 | code_point & 0x3F
        return o + 2
    if code_point < 0x10000:
        out[o] = 0xE0 | code_point >> 12
        out[o + 1] = 0x80 | code_point >> 6 & 0x3F
        out[o + 2] = 0x80 | code_point & 0x3F
        return o + 3
    out[o] = 0xF0 | code_point >> 18
    out[o + 1] = 0x80 | code_point >> 12 & 0x3F
    out[o + 2] = 0x80 | code_point >> 6 & 0x3F
    out[o + 3] = 0x80 | code_point & 0x3F
    return o + 4


@kernel
def start_of(data, first, end):
    """Start of the code point that ends before byte `end`; not before `first`."""
    i = end - 1
    while i > first and (byte_at(data, i) & 0xC0) == 0x80:
        i -= 1
    return i


@kernel
def record_of(pages, records, code_point):
    """Record number of a code point in `tables.UnicodeTables`."""
    page = int(pages[np.uint64(code_point >> 8)])
    return int(records[np.uint64(page << 8 | code_point & 0xFF)])


@kernel
def prefix_end(data, start, end, max_characters):
    """End of the first `max_characters` code points of data[start:end]; 0 means all."""
    if max_characters == 0 or end - start <= max_characters:
        return end
    i = start
    for _ in range(max_characters):
        if i >= end:
            break
        i += decode(data, i)[1]
    return i
