# SPDX-License-Identifier: Apache-2.0
"""Checks of the bytes of many documents at once, for engines that cut work by bytes: UTF-8, and the characters
that Unicode's normal forms may change.

`blocks` and `origin` are those of `items`. `borders` (uint32) has a bit for the first byte of each document, and for
the end of the last document. No check reads past a border.
"""

import numpy as np

from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.jsonl import sequence_length
from curation.kernels.normalization import is_stable
from curation.kernels.utf8 import byte_at
from curation.kernels.words import HIGH_BITS
from gpu_pipeline.functions.items import at, block_at
from gpu_pipeline.functions.spans import record_at

RUN_START, RUN_END, FAILS = 1, 2, 4  # bits of `instability`


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
def is_unstable_at(data, i, form_flag, pages, records, flags, combining):
    """Whether a character that is not stable (`curation.kernels.normalization`) starts at `i`. The bytes of null rows
    may have any value."""
    record, _ = record_at(data, i, pages, records)
    return record >= 0 and not is_stable(record, form_flag, flags, combining)


@kernel
def instability(data, borders, origin, i, form_flag, pages, records, flags, combining):
    """Return what the character at `i`, which is not stable, is: the sum of some of RUN_START, RUN_END and FAILS.
    `form_flag` is one of `rewrite.FORM_FLAGS`.

    RUN_START   it is the first one of a run of characters that are not stable
    RUN_END     it is the last one
    FAILS       the quick check (UAX #15) fails at it
    """
    code_point, width = utf8.decode(data, i)
    record = utf8.record_of(pages, records, code_point)
    found = FAILS if int(flags[at(record)]) & form_flag else 0
    is_first = is_border(borders, origin, i)
    if not is_first:
        before = utf8.record_of(pages, records, utf8.decode(data, utf8.start_of(data, max(i - 4, 0), i))[0])
        is_first = is_stable(before, form_flag, flags, combining)
        if 0 < int(combining[at(record)]) < int(combining[at(before)]):
            found |= FAILS
    is_last = is_border(borders, origin, i + width)
    if not is_last:
        after = utf8.record_of(pages, records, utf8.decode(data, i + width)[0])
        is_last = is_stable(after, form_flag, flags, combining)
    return found | (RUN_START if is_first else 0) | (RUN_END if is_last else 0)
