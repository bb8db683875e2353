# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels that write the rewritten documents of a batch, and the functions that call them. The kernels of
`rewrite_masks.py` run before them.

The module imports neither cuDF nor CuPy. The functions take NumPy and CuPy arrays.
"""

import numpy as np

from curation.kernels import utf8
from curation.kernels.rewrite import FOLD, LOWERCASE, WHITESPACE
from gpu_pipeline.functions.flat_rewrite import CAPITAL_SIGMA, changed_ascii, first_character, new_bytes, without_bytes
from gpu_pipeline.functions.items import at, block_at
from gpu_pipeline.kernels import core
from gpu_pipeline.kernels.document_kernels import DocumentBytes, words_for
from gpu_pipeline.kernels.rewrite_masks import (
    CHANGED,
    CHUNK,
    KEPT,
    SIGMAS,
    below,
    count_of,
    grown_bits,
    lowest,
    mark_documents,
    word_of,
)  # fmt: skip

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder

LANES = 32  # threads of a warp
WARPS = core.THREADS // LANES
SLOT = 52  # words of eight bytes that a warp writes: 256 bytes and half as many more, and two partial ones
SLOTS = WARPS * SLOT
ALL_BITS = 0xFFFFFFFF
BATCH_BYTES = 2  # bytes of masks, numbers and positions per byte of text, besides the output


# Output


@cuda.jit(device=True)
def place_of(planes, lowercase, starts, i):
    """Return where the output of byte `i` (from `origin`) begins."""
    c = i >> 5
    mask = below(i & 31)
    position = starts[at(c >> 3)] + count_of(word_of(planes, KEPT, c) & mask)
    position += count_of(grown_bits(planes, lowercase, c) & mask)
    word = c & -CHUNK
    while word < c:
        position += count_of(word_of(planes, KEPT, word)) + count_of(grown_bits(planes, lowercase, word))
        word += 1
    return position


@cuda.jit(cache=True)
def place_documents(offsets, origin, lowercase, starts, planes, ends):
    """One thread per border: writes where the output of the next document begins."""
    row = cuda.grid(1)
    if row < offsets.size:
        ends[row] = place_of(planes, lowercase, starts, offsets[row] - origin)


@cuda.jit(device=True)
def words_until(size, lane):
    """Return the sum of the sizes of all words up to the lane's word, this word included. Four lanes share a word."""
    total = np.int32(size)
    distance = 4
    while distance < LANES:
        before = np.int32(cuda.shfl_sync(ALL_BITS, total, (lane - distance) & LANES - 1))
        total = np.int32(total + before) if lane >= distance else total
        distance <<= 1
    return total


@cuda.jit(device=True)
def put_bytes(shared, base, o, value, count):
    """Write `count` bytes at byte `o` of the warp's words. Other lanes may write to the same words."""
    if count > 0:
        shift = np.uint64(8 * (o & 7))
        if count < 8:
            value &= (np.uint64(1) << np.uint64(8 * count)) - np.uint64(1)
        cuda.atomic.or_(shared, base + (o >> 3), value << shift)
        if (o & 7) + count > 8:
            cuda.atomic.or_(shared, base + (o >> 3) + 1, value >> (np.uint64(64) - shift))


@cuda.jit(device=True)
def put_block(
    data, block, start, origin, i, kept, changed, grown, planes, whitespace, lowercase, fold, pages, records, flags,
    lower, shared, base, o,
):  # fmt: skip
    """Write the output of the block at `i` to byte `o`. If a character begins in one block and ends in the next,
    each block writes one of its bytes per bit that the block has of the character. A character that grows has its
    last byte in the block where it starts."""
    block = np.uint64(changed_ascii(block, whitespace, lowercase))
    bits, inside = changed & kept, np.int64(0xFF)  # of the bytes from `i`
    while bits:
        j = first_character(data, i + lowest(bits), start)
        code_point, width = utf8.decode(data, j)
        shift, position = j - i, j - origin
        char_bits = kept & (below(width) << shift if shift >= 0 else below(width) >> -shift)
        count = count_of(char_bits)
        is_final = False
        if lowercase and code_point == CAPITAL_SIGMA:
            is_final = word_of(planes, SIGMAS, position >> 5) >> (position & 31) & 1 != 0
        record = utf8.record_of(pages, records, code_point)
        value = np.uint64(new_bytes(code_point, record, is_final, whitespace, lowercase, fold, flags, lower))
        if shift < 0:
            size = 1 + np.int64(value > np.uint64(0xFF)) + np.int64(value > np.uint64(0xFFFF))
            size += np.int64(value > np.uint64(0xFFFFFF))
            value >>= np.uint64(8 * (size - count))
        first = max(shift, 0)
        mask = (np.uint64(1) << np.uint64(8 * count)) - np.uint64(1)
        block = block & ~(mask << np.uint64(8 * first)) | (value & mask) << np.uint64(8 * first)
        bits &= ~char_bits
        if grown >> first & 1 and shift >= 0:
            cut = first + count
            size = count_of(kept & below(cut))
            put_bytes(shared, base, o, np.uint64(without_bytes(block, below(cut) & ~kept)), size)
            put_bytes(shared, base, o + size, value >> np.uint64(8 * count), 1)
            o += size + 1
            i += cut
            kept, bits, grown, inside = kept >> cut, bits >> cut, grown >> cut, inside >> cut
            block = block >> np.uint64(8 * cut - 8) >> np.uint64(8)
    if kept != inside:
        block = np.uint64(without_bytes(block, inside ^ kept))
    put_bytes(shared, base, o, block, count_of(kept))


@cuda.jit(cache=True)
def write_text(
    data, blocks, start, end, origin, whitespace, lowercase, fold, pages, records, flags, lower, starts, planes,
    out_words, out,
):  # fmt: skip
    """One warp per chunk, eight bytes for each lane: writes the output, which is collected in shared memory."""
    shared = cuda.shared.array(SLOTS, types.uint64)
    lane, chunk = np.int64(cuda.threadIdx.x % LANES), np.int64(cuda.grid(1) // LANES)
    base = np.int64(cuda.threadIdx.x // LANES) * SLOT
    k = lane
    while k < SLOT:
        shared[at(base + k)] = np.uint64(0)
        k += LANES
    while chunk * LANES < 4 * planes.shape[1]:
        b = chunk * LANES + lane
        c, shift = b >> 2, 8 * (b & 3)
        word, grown = word_of(planes, KEPT, c), grown_bits(planes, lowercase, c)
        kept, changed = word >> shift & 0xFF, word_of(planes, CHANGED, c) >> shift & 0xFF
        count = count_of(kept) + count_of(grown >> shift & 0xFF)
        if LANES == 1:
            low = first = np.int64(place_of(planes, lowercase, starts, 8 * b))
            high = low + count
        else:
            low = starts[at(b >> 5)]
            until = np.int32(words_until(count_of(word) + count_of(grown), lane))
            high = low + np.int64(cuda.shfl_sync(ALL_BITS, until, LANES - 1))
            first = low + np.int64(until) - count_of(word >> shift) - count_of(grown >> shift)
        word_base = base - (low >> 3)
        cuda.syncwarp()
        i = origin + 8 * b
        if count:
            put_block(
                data, np.uint64(block_at(data, blocks, i)), start, origin, i, kept, changed, grown >> shift & 0xFF,
                planes, whitespace, lowercase, fold, pages, records, flags, lower, shared, word_base, first,
            )  # fmt: skip
        cuda.syncwarp()
        head = min(low + 7 & ~7, high)
        tail = max(high & ~7, head)
        k = lane
        while k < 16:  # bytes of the first and the last word, if they are partial
            o = low + k if k < 8 else tail + k - 8
            if o < (head if k < 8 else high):
                out[at(o)] = np.uint8(shared[at(word_base + (o >> 3))] >> np.uint64(8 * (o & 7)) & np.uint64(0xFF))
            k += LANES
        cuda.syncwarp()
        k = (low >> 3) + lane
        while 8 * k < high:
            if head <= 8 * k < tail:
                out_words[at(k)] = shared[at(word_base + k)]
            shared[at(word_base + k)] = np.uint64(0)
            k += LANES
        chunk += cuda.gridsize(1) // LANES


def _signatures():
    i32, i64, u8, u16, u32, u64 = (
        kind[::1] for kind in (types.int32, types.int64, types.uint8, types.uint16, types.uint32, types.uint64)
    )
    number, planes = types.int64, types.uint32[:, ::1]
    return {
        place_documents: (i64, number, number, i64, planes, i64),
        write_text: (u8, u64, *[number] * 6, u16, u16, u32, i32, i64, planes, u64, u8),
    }


SIGNATURES = _signatures()


def rewrite_documents(text: DocumentBytes, steps: np.ndarray, properties) -> DocumentBytes:
    """Return the rewritten documents, one after the other.

    steps        of `rewrite.plan_steps`
    properties   pages, records, flags and lower of `tables.UnicodeTables`
    """
    origin, planes, starts = mark_documents(text, steps, properties)
    whitespace, lowercase, fold = (int(steps[k]) for k in (WHITESPACE, LOWERCASE, FOLD))
    ends = core.empty(text.offsets, np.int64, text.offsets.size)
    core.launch(place_documents, ends.size, text.offsets, origin, lowercase, starts, planes, ends)
    out, words = words_for(text.data, int(starts[-1]))
    source = text.data, text.blocks, int(text.offsets[0]), int(text.offsets[-1]), origin
    arguments = whitespace, lowercase, fold, *properties, starts, planes, words, out
    core.launch_shared(write_text, 4 * planes.shape[1], *source, *arguments)
    return DocumentBytes(out, words[: out.size // 8], ends)
