# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels that copy and compare whole documents, and the functions that call them.

The module imports neither cuDF nor CuPy. The functions take NumPy and CuPy arrays.
"""

from typing import Any, NamedTuple

import numpy as np

from gpu_pipeline.functions.items import at
from gpu_pipeline.functions.spans import aligned_block, join_blocks
from gpu_pipeline.kernels import core

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder

LANES = 32  # threads of a warp
SECTOR = 32  # bytes that memory moves at once
PIECE = 4096  # bytes of a document that a warp copies or compares
ALL_BITS = 0xFFFFFFFF


@cuda.jit(device=True)
def lane_bytes(data, blocks, i, end, lane):
    """Return the eight bytes of a text from `i` on. In each lane, `i` is eight more than in the lane before. Each lane
    loads one aligned block and gets the next block from its neighbour. The text ends at `end`; bytes outside it are
    unspecified."""
    block = i >> 3
    whole = block >= lane and 8 * (block - lane + LANES + 1) <= end  # those of all lanes
    low = high = np.uint64(0)
    if whole:
        low = np.uint64(blocks[at(block)])
    elif block >= 0 and 8 * block < end:
        low = np.uint64(aligned_block(data, blocks, block))
    if i & 7 == 0:
        return low
    if LANES > 1:
        high = np.uint64(cuda.shfl_sync(ALL_BITS, np.int64(low), (lane + 1) % LANES))
    if lane == LANES - 1:
        high = np.uint64(0)
        if whole:
            high = np.uint64(blocks[at(block + 1)])
        elif block + 1 >= 0 and 8 * (block + 1) < end:
            high = np.uint64(aligned_block(data, blocks, block + 1))
    return np.uint64(join_blocks(low, high, np.uint64(8 * (i & 7))))


@cuda.jit(cache=True)
def copy_pieces(
    data, blocks, offsets, form_row, form_data, form_blocks, form_offsets, starts, pieces, rows, out, out_words
):  # fmt: skip
    """One warp per piece of a document, eight bytes per lane: copies the document from the column, or its normalised
    form. Document k is written to out[starts[k]:starts[k + 1]]."""
    lane, piece = np.int64(cuda.grid(1) % LANES), np.int64(cuda.grid(1) // LANES)
    while piece < rows.size:
        row = rows[at(piece)]
        start, end = starts[at(row)], starts[at(row + 1)]
        normalised = form_row[at(row)]
        shift = (form_offsets[at(normalised)] if normalised >= 0 else offsets[at(row)]) - start
        first = (start & -SECTOR) + (piece - pieces[at(row)]) * PIECE
        stop = min(first + PIECE, end)
        while first < stop:  # all lanes
            i = first + 8 * lane
            if normalised >= 0:
                value = lane_bytes(form_data, form_blocks, i + shift, end + shift, lane)
            else:
                value = lane_bytes(data, blocks, i + shift, end + shift, lane)
            if start <= i and i + 8 <= stop:
                out_words[at(i >> 3)] = value
            else:
                for o in range(max(i, start), min(i + 8, stop)):
                    out[at(o)] = np.uint8(value >> np.uint64(8 * (o - i)) & np.uint64(0xFF))
            first += 8 * LANES
        piece += cuda.gridsize(1) // LANES


@cuda.jit(cache=True)
def compare_pieces(data, blocks, offsets, other, other_blocks, starts, pieces, rows, edited):
    """One warp per piece of a document, eight bytes per lane: notes whether document k differs from
    other[starts[k]:starts[k + 1]], which has the same length."""
    lane, piece = np.int64(cuda.grid(1) % LANES), np.int64(cuda.grid(1) // LANES)
    while piece < rows.size:
        row = rows[at(piece)]
        start, end = starts[at(row)], starts[at(row + 1)]
        shift = offsets[at(row)] - start
        first = (start & -SECTOR) + (piece - pieces[at(row)]) * PIECE
        stop = min(first + PIECE, end)
        differ = cuda.ballot_sync(ALL_BITS, edited[at(row)]) != 0
        while first < stop and not differ:  # all lanes
            i = first + 8 * lane
            value = lane_bytes(data, blocks, i + shift, end + shift, lane)
            low, high = max(i, start), min(i + 8, stop)
            if low < high:
                value ^= np.uint64(aligned_block(other, other_blocks, i >> 3))
                value >>= np.uint64(8 * (low - i))
                differ = value << np.uint64(8 * (8 - high + low)) != np.uint64(0)
            differ = cuda.ballot_sync(ALL_BITS, differ) != 0
            first += 8 * LANES
        if lane == 0 and differ:
            edited[at(row)] = True
        piece += cuda.gridsize(1) // LANES


def _signatures():
    i64, u8, u64, mask = (kind[::1] for kind in (types.int64, types.uint8, types.uint64, types.bool_))
    return {
        copy_pieces: (u8, u64, i64, i64, u8, u64, i64, i64, i64, i64, u8, u64),
        compare_pieces: (u8, u64, i64, u8, u64, i64, i64, i64, mask),
    }


SIGNATURES = _signatures()


class DocumentBytes(NamedTuple):
    """The texts of a batch: one after the other, well-formed UTF-8, without bytes under nulls."""

    data: Any  # uint8
    blocks: Any  # `data` as uint64
    offsets: Any  # int64, of the batch's documents


def words_for(like, size: int):
    """Allocate `size` bytes, not initialised; return them as bytes and, the same memory, as uint64."""
    words = core.empty(like, np.uint64, -(-size // 8))
    return words.view(np.uint8)[:size], words


def copied_documents(text: DocumentBytes, form_row, form: DocumentBytes, starts, pieces, rows) -> DocumentBytes:
    """Return the documents of a batch, back to back. A document comes from `form` if its `form_row` is not negative,
    otherwise from `text`.

    starts         int64: where each document begins, and where the last one ends; nulls are empty
    pieces, rows   first piece of each document, document of each piece
    """
    out, words = words_for(text.data, int(starts[-1]))
    core.launch(copy_pieces, LANES * rows.size, *text, form_row, *form, starts, pieces, rows, out, words)
    return DocumentBytes(out, words[: out.size // 8], starts)


def mark_edited(text: DocumentBytes, other: DocumentBytes, pieces, rows, edited) -> None:
    """Set `edited` for each document that differs from its counterpart in `other`. Only documents of the same size have
    pieces, so only these are compared."""
    core.launch(compare_pieces, LANES * rows.size, *text, *other, pieces, rows, edited)
