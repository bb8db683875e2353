# SPDX-License-Identifier: Apache-2.0
"""Checks of the bytes of many documents at once, for engines that cut work by bytes: UTF-8, and the quick check of
Unicode's normal forms.

`blocks` and `origin` are those of `items`. `borders` (uint32) has a bit for the first byte of each document, and for
the end of the last document. No check reads past a border.
"""

import numpy as np

from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.jsonl import sequence_length
from curation.kernels.utf8 import byte_at
from curation.kernels.words import HIGH_BITS
from gpu_pipeline.items import at, block_at
from gpu_pipeline.spans import record_at


@kernel
def is_border(borders, origin, i):
    """Whether a document starts at byte `i`, or the text ends at byte `i`."""
    j = i - origin
    return borders[at(j >> 5)] >> np.uint32(j & 31) & np.uint32(1) != np.uint32(0)


@kernel
def sequence_end(data, borders, origin, i):
    """The end of the well-formed UTF-8 sequence that the byte at `i` belongs to; `i` or less if there is none."""
    start = i
    while i - start < 3 and byte_at(data, start) & 0xC0 == 0x80 and not is_border(borders, origin, start):
        start -= 1
    limit = start + 1
    while limit < start + 4 and not is_border(borders, origin, limit):
        limit += 1
    return start + sequence_length(data, start, limit)


@kernel
def faulty_bits(data, blocks, borders, origin, start, end, i):
    """Return a bit (0 to 7) for each byte of the block at `i` that makes its document's UTF-8 malformed. The bytes that
    continue a malformed sequence may have no bit. Documents are data[start:end]."""
    block = block_at(data, blocks, i)
    if block & HIGH_BITS == np.uint64(0):
        return 0
    faults = 0
    checked = start
    for k in range(8):
        j = i + k
        if checked <= j < end and np.int64(block >> np.uint64(8 * k) & np.uint64(0x80)):
            checked = sequence_end(data, borders, origin, j)
            faults |= int(checked <= j) << k
    return faults


@kernel
def is_unnormalised(data, borders, origin, i, form_flag, pages, records, flags, combining):
    """Whether the quick check (UAX #15) fails at the character at `i`; `form_flag` is one of `rewrite.FORM_FLAGS`.
    The bytes of null rows may have any value."""
    record, _ = record_at(data, i, pages, records)
    if record < 0:
        return False
    if int(flags[at(record)]) & form_flag:
        return True
    order = int(combining[at(record)])
    if order == 0 or is_border(borders, origin, i):
        return False
    before, _ = record_at(data, utf8.start_of(data, max(i - 4, 0), i), pages, records)
    return before >= 0 and order < int(combining[at(before)])


@kernel
def unnormalised_bits(data, blocks, borders, origin, start, end, i, form_flag, pages, records, flags, combining):
    """A bit (0 to 7) for each character that starts in the block at `i` and fails the quick check."""
    block = block_at(data, blocks, i)
    if block & HIGH_BITS == np.uint64(0):
        return 0
    bits = 0
    for k in range(8):
        lead = np.int64(block >> np.uint64(8 * k) & np.uint64(0xC0)) == 0xC0
        if lead and start <= i + k < end:
            fails = is_unnormalised(data, borders, origin, i + k, form_flag, pages, records, flags, combining)
            bits |= int(fails) << k
    return bits
