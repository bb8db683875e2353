# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels that check the texts of a batch, with work divided by bytes, and the functions that lay out their
memory.

The module imports neither cuDF nor CuPy. The layout functions take NumPy and CuPy arrays.
"""

import numpy as np

from gpu_pipeline import kernels
from gpu_pipeline.byte_checks import faulty_bits, unnormalised_bits
from gpu_pipeline.items import at
from gpu_pipeline.measure_kernels import lowest_bit
from gpu_pipeline.spans import segment_of

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder


@cuda.jit(device=True)
def mark_documents(bits, i, offsets, valid, value, marks):
    """Write `value` to `marks` for each document that has one of the `bits` of the block at `i`; null rows are
    skipped."""
    while bits:
        row = segment_of(offsets, i + lowest_bit(np.uint32(bits)))
        if valid[at(row)]:
            marks[at(row)] = value
        after = offsets[at(row + 1)] - i
        bits = bits >> after << after if after < 8 else 0


@cuda.jit(cache=True)
def check_bytes(data, blocks, offsets, valid, origin, borders, sound):
    """One thread per eight bytes: `sound` becomes False for documents with malformed UTF-8."""
    k = cuda.grid(1)
    start, end = offsets[0], offsets[at(offsets.size - 1)]
    while k < 4 * borders.size:
        i = origin + 8 * k
        if i < end:
            faults = faulty_bits(data, blocks, borders, origin, start, end, i)
            mark_documents(faults, i, offsets, valid, False, sound)
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def find_unnormalised(
    data, blocks, offsets, valid, origin, borders, form_flag, pages, records, flags, combining, needed
):  # fmt: skip
    """One thread per eight bytes: `needed` becomes True for documents that fail the quick check of a normal form."""
    k = cuda.grid(1)
    start, end = offsets[0], offsets[at(offsets.size - 1)]
    while k < 4 * borders.size:
        i = origin + 8 * k
        if i < end:
            bits = unnormalised_bits(
                data, blocks, borders, origin, start, end, i, form_flag, pages, records, flags, combining
            )
            mark_documents(bits, i, offsets, valid, True, needed)
        k += cuda.gridsize(1)


def _signatures():
    i64, u8, u16, u32, u64, mask = (
        kind[::1] for kind in (types.int64, types.uint8, types.uint16, types.uint32, types.uint64, types.bool_)
    )
    number = types.int64
    documents = u8, u64, i64, mask, number, u32
    return {
        check_bytes: (*documents, mask),
        find_unnormalised: (*documents, number, u16, u16, u32, u8, mask),
    }


SIGNATURES = _signatures()


def sound_documents(data, blocks, offsets, valid):
    """Return whether each document is well-formed UTF-8 (bool); True for nulls."""
    sound = np.ones_like(valid)
    origin, borders = kernels.find_borders(offsets)
    kernels.launch_shared(check_bytes, 4 * borders.size, data, blocks, offsets, valid, origin, borders, sound)
    return sound


def unnormalised_documents(data, blocks, offsets, valid, form_flag: int, properties):
    """Return whether normalisation may change each document (bool).

    properties   pages, records, flags and combining of `tables.UnicodeTables`
    """
    needed = np.zeros_like(valid)
    origin, borders = kernels.find_borders(offsets)
    documents = data, blocks, offsets, valid, origin, borders
    kernels.launch_shared(find_unnormalised, 4 * borders.size, *documents, form_flag, *properties, needed)
    return needed
