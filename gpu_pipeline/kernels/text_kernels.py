# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels that check the texts of a batch, with work divided by bytes, and the functions that lay out their
memory.

The module imports neither cuDF nor CuPy. The layout functions take NumPy and CuPy arrays.
"""

from typing import Any, NamedTuple

import numpy as np

from curation.kernels import utf8
from curation.kernels.normalization import span_start
from curation.kernels.utf8 import byte_at
from curation.kernels.words import HIGH_BITS
from gpu_pipeline.functions.byte_checks import FAILS, RUN_END, RUN_START, faulty_bits, instability, is_unstable_at
from gpu_pipeline.functions.items import at, bits_below, block_at
from gpu_pipeline.functions.spans import segment_of
from gpu_pipeline.kernels import core, model_kernels
from gpu_pipeline.kernels.measure_kernels import lowest_bit

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


@cuda.jit(device=True)
def set_bit(mask, j):
    """Set bit `j` of a mask that other threads write, too."""
    cuda.atomic.or_(mask, j >> 5, np.uint32(1) << np.uint32(j & 31))


@cuda.jit(cache=True)
def mark_runs_of_unstable(
    data, blocks, offsets, valid, origin, borders, form_flag, pages, records, flags, combining, fails, edges
):  # fmt: skip
    """One thread per eight bytes: `edges` gets a bit for the first and the last byte of each run of characters that are
    not stable; `fails` has a bit for the first byte of each character that fails the quick check."""
    k = cuda.grid(1)
    start, end = offsets[0], offsets[at(offsets.size - 1)]
    properties = pages, records, flags, combining
    while k < 4 * borders.size:
        i, bits = origin + 8 * k, 0
        block = block_at(data, blocks, i) if i < end else np.uint64(0)
        for b in range(8 if block & HIGH_BITS != np.uint64(0) else 0):
            j = i + b
            lead = np.int64(block >> np.uint64(8 * b) & np.uint64(0xC0)) == 0xC0
            if not (lead and start <= j < end and is_unstable_at(data, j, form_flag, *properties)):
                continue
            if valid[at(segment_of(offsets, j))]:
                found = instability(data, borders, origin, j, form_flag, *properties)
                bits |= int(found & FAILS != 0) << b
                if found & RUN_START:
                    set_bit(edges, j - origin)
                if found & RUN_END:
                    set_bit(edges, j - origin + utf8.lead_width(byte_at(data, j)) - 1)
        fails[at(k)] = bits
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def note_failing_runs(fails, edges, ranks, failing):
    """One thread per 32 bytes: sets `failing` for each run that has a bit of `fails`."""
    c = cuda.grid(1)
    while c < fails.size:
        bits = fails[at(c)]
        while bits:
            before = ranks[at(c)] + cuda.popc(np.uint32(edges[at(c)] & bits_below(lowest_bit(bits))))
            failing[at(before >> 1)] = 1
            bits = np.uint32(bits & np.uint32(bits - np.uint32(1)))
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def begin_spans(data, document_starts, starts):
    """One thread per span: replaces the start of its run by the start of the span."""
    k = cuda.grid(1)
    while k < starts.size:
        starts[at(k)] = span_start(data, starts[at(k)], document_starts[at(k)])
        k += cuda.gridsize(1)


def _signatures():
    i64, u8, u16, u32, u64, mask = (
        kind[::1] for kind in (types.int64, types.uint8, types.uint16, types.uint32, types.uint64, types.bool_)
    )
    number = types.int64
    documents = u8, u64, i64, mask, number, u32
    return {
        check_bytes: (*documents, mask),
        mark_runs_of_unstable: (*documents, number, u16, u16, u32, u8, u8, u32),
        note_failing_runs: (u32, u32, i64, u8),
        begin_spans: (u8, i64, i64),
    }


SIGNATURES = _signatures()


def sound_documents(data, blocks, offsets, valid):
    """Return whether each document is well-formed UTF-8 (bool); True for nulls."""
    sound = np.ones_like(valid)
    origin, borders = core.find_borders(offsets)
    core.launch_shared(check_bytes, 4 * borders.size, data, blocks, offsets, valid, origin, borders, sound)
    return sound


class UnstableRuns(NamedTuple):
    """The runs of characters that are not stable (`curation.kernels.normalization`), null rows left out.

    origin      the byte of the first bits of `edges`
    edges       uint32: a bit for the first and the last byte of each run
    ranks       int64: bits of `edges` before each 32 bytes
    row_ranks   int64, rows + 1: runs before each document
    failing     uint8: 1 for each run in which a character fails the quick check
    """

    origin: int
    edges: Any
    ranks: Any
    row_ranks: Any
    failing: Any


def find_runs(data, blocks, offsets, valid, form_flag: int, properties) -> UnstableRuns | None:
    """Return the runs of characters that are not stable, or None if none fails the quick check.

    properties   pages, records, flags and combining of `tables.UnicodeTables`
    """
    origin, borders = core.find_borders(offsets)
    fails, edges = core.empty(offsets, np.uint32, borders.size), core.zeros(offsets, np.uint32, borders.size)
    documents = data, blocks, offsets, valid, origin, borders
    masks = fails.view(np.uint8), edges
    core.launch_shared(mark_runs_of_unstable, 4 * borders.size, *documents, form_flag, *properties, *masks)
    if not fails.any():
        return None
    counts, row_ranks = (core.empty(offsets, np.int64, size) for size in (edges.size, offsets.size))
    core.launch_shared(model_kernels.count_bits, edges.size, edges, counts)
    ranks = core.starts_of(counts)
    core.launch(core.rank_rows, offsets.size, offsets, origin, edges, ranks, row_ranks)
    failing = core.zeros(offsets, np.uint8, int(ranks[-1]) >> 1)
    core.launch_shared(note_failing_runs, fails.size, fails, edges, ranks, failing)
    return UnstableRuns(origin, edges, ranks, row_ranks >> 1, failing)
