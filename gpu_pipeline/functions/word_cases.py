# SPDX-License-Identifier: Apache-2.0
"""Finds the case of each character in a block of eight bytes, for the masks of `word_kind_kernels`."""

import numpy as np

from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.tables import CASED
from curation.kernels.tables import UPPER as UPPER_FLAG
from curation.kernels.utf8 import byte_at
from curation.kernels.words import HIGH_BITS, mark_capitals, mark_letters
from gpu_pipeline.functions.items import at
from gpu_pipeline.functions.spans import bits_of, record_at

UPPER, TITLE, LOWER, BREAK = range(4)
CASE_MASKS = 4


@kernel
def _case_of(data, i, pages, records, flags, lower):
    """Return the number of the mask for the character that starts at `i`; -1 if it is not cased."""
    record, _ = record_at(data, i, pages, records)
    if record < 0 or flags[at(record)] & np.uint32(CASED) == np.uint32(0):
        return -1
    if flags[at(record)] & np.uint32(UPPER_FLAG) != np.uint32(0):
        return UPPER
    return TITLE if lower[at(record)] != 0 else LOWER  # a titlecase letter has a lower case


@kernel
def _is_cased_before(data, i, pages, records, flags, lower):
    if i == 0:
        return False
    byte = byte_at(data, i - 1)
    if byte < 0x80:
        return 97 <= byte | 32 <= 122
    return _case_of(data, utf8.start_of(data, max(i - 4, 0), i), pages, records, flags, lower) >= 0


@kernel
def case_bits_of(data, block, i, pages, records, flags, lower):
    """Return four masks of the block at `i`: UPPER, TITLE, LOWER and BREAK."""
    if block & HIGH_BITS == np.uint64(0):
        letters = bits_of(mark_letters(block))
        uppers = bits_of(mark_capitals(block))
        if letters == 0:
            return 0, 0, 0, 0
        lowers = letters & ~uppers
        follows = letters << 1
        if letters & 1 and _is_cased_before(data, i, pages, records, flags, lower):
            follows |= 1
        return uppers, 0, lowers, uppers & follows | lowers & ~follows
    is_cased = _is_cased_before(data, i, pages, records, flags, lower)
    uppers = titles = lowers = breaks = 0
    for k in range(min(8, data.size - i)):
        if byte_at(data, i + k) & 0xC0 != 0x80:
            case = _case_of(data, i + k, pages, records, flags, lower)
            uppers |= int(case == UPPER) << k
            titles |= int(case == TITLE) << k
            lowers |= int(case == LOWER) << k
            breaks |= int(case >= 0 and is_cased != (case == LOWER)) << k
            is_cased = case >= 0
    return uppers, titles, lowers, breaks
