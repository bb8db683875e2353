# SPDX-License-Identifier: Apache-2.0
"""A CUDA kernel that counts words of lists in texts, such as stop words, and the function that calls it.

The module imports neither cuDF nor CuPy. The function takes NumPy and CuPy arrays.
"""

from typing import Any, NamedTuple

import numpy as np

from curation.kernels.hashing import combine64, eight_bytes
from curation.kernels.lists import find
from curation.kernels.stop_words import HANGUL_BYTES, key_of, longest_ending, may_have
from curation.kernels.utf8 import byte_at
from curation.kernels.words import low_bytes
from gpu_pipeline.functions.items import at
from gpu_pipeline.kernels import core

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder

ROW_BYTES = 64  # per document: counts, places of its words and pieces
WORD_BYTES = 8  # place of a word


@cuda.jit(device=True)
def hash_in_blocks(data, blocks, i, end):
    """Return the hash that `curation.kernels.stop_words.hash_listed` returns for data[i:end]."""
    state = np.uint64(end - i)
    while end - i > 8:
        state = np.uint64(combine64(state, np.uint64(eight_bytes(data, blocks, i, end))))
        i += 8
    return np.uint64(combine64(state, np.uint64(eight_bytes(data, blocks, i, end) & low_bytes(end - i))))


@cuda.jit(device=True)
def note_word(word, number, row, keys, starts, shift, filters, ranks, seen, different, occurrences):
    """Count a word by its hash, if list `number` has it."""
    if not may_have(word, number, filters):
        return
    k = find(np.uint64(key_of(word, number)), keys, starts, np.uint64(shift))
    if k < 0:
        return
    cuda.atomic.add(occurrences, row, 1)
    rank = np.int64(ranks[at(k)])
    bit = np.uint32(1) << np.uint32(rank & 31)
    if cuda.atomic.or_(seen, (row, rank >> 5), bit) & bit == np.uint32(0):
        cuda.atomic.add(different, row, 1)


@cuda.jit(device=True)
def note_ending(
    data, start, end, number, row, keys, starts, shift, filters, ranks, endings, seen, different, occurrences
):  # fmt: skip
    """Count the longest ending of a Korean word, if list `number` has it."""
    if endings.size > 0 and end - start > HANGUL_BYTES and 0xEA <= byte_at(data, end - HANGUL_BYTES) <= 0xED:
        word = np.uint64(longest_ending(data, start, end, number, filters, endings))
        note_word(word, number, row, keys, starts, shift, filters, ranks, seen, different, occurrences)


@cuda.jit(cache=True)
def count_in_lists(
    data, blocks, origin, stops, words, word_starts, counts, pieces, rows, numbers, filters, keys, starts, shift,
    endings, ranks, seen, different, occurrences,
):  # fmt: skip
    """One block per piece of a document: counts its words that are in the document's list. `words` has the first byte
    of each word. `seen` has a bit per document and word of a list."""
    piece = cuda.blockIdx.x
    while piece < rows.size:
        row = rows[piece]
        number = np.int64(numbers[row])
        k = (piece - pieces[row]) * core.PIECE + cuda.threadIdx.x
        last = min((piece - pieces[row] + 1) * core.PIECE, counts[row])
        while k < last:
            i = np.int64(words[word_starts[row] + k])
            end = core.end_of_item(stops, origin, i, data.size)
            word = hash_in_blocks(data, blocks, i, end)
            note_word(word, number, row, keys, starts, shift, filters, ranks, seen, different, occurrences)
            note_ending(
                data, i, end, number, row, keys, starts, shift, filters, ranks, endings, seen, different, occurrences
            )
            k += cuda.blockDim.x
        piece += cuda.gridDim.x


def _signatures():
    i64, i32, u8, u32, u64 = (kind[::1] for kind in (types.int64, types.int32, types.uint8, types.uint32, types.uint64))
    tables = types.uint64[:, ::1], u64, u32, types.int64, u64, i32
    return {
        count_in_lists: (
            u8, u64, types.int64, u32, u64, *[i64] * 4, i32, *tables, types.uint32[:, ::1], i32, i32,
        ),
    }  # fmt: skip


SIGNATURES = _signatures()


class ListedWords(NamedTuple):
    """The arrays of `curation.kernels.stop_words.StopWords` on the device."""

    filters: Any
    keys: Any
    starts: Any
    shift: int
    endings: Any
    ranks: Any
    longest: int  # number of words of the longest list


def row_bytes(listed: ListedWords) -> int:
    """Return the memory that a document takes, besides that of its words."""
    return ROW_BYTES + 4 * -(-listed.longest // 32)


def count_batch(data, items, batch: tuple[int, int, int, int], word_starts, counts, pieces, numbers, listed):
    """Return the number of different listed words and of all listed words of each document of a batch, int32: a
    document has fewer than 2^31 words.

    items        the words of all documents (`core.find_items`)
    batch        first byte, end of bytes, first word, end of words
    word_starts  int64: first word of each document, from the first of the batch
    counts       int64: words of each document; 0 if it has no list
    pieces       first piece of each document, document of each piece
    numbers      int32: the list of each document
    """
    first_byte, end_byte, first_word, end_word = batch
    block, end_block = first_byte // 8, -(-end_byte // 8)
    words = core.empty(items.ranks, np.uint64, end_word - first_word)
    core.launch_shared(
        core.place_items, end_block - block, items.origin, block, end_block, items.starts, items.ranks, first_word,
        words,
    )  # fmt: skip
    seen = core.zeros(items.ranks, np.uint32, counts.size, -(-listed.longest // 32))
    different, occurrences = (core.zeros(items.ranks, np.int32, counts.size) for _ in range(2))
    core.launch_blocks(
        count_in_lists, pieces[1].size, data, items.blocks, items.origin, items.stops, words, word_starts, counts,
        *pieces, numbers, *listed[:-1], seen, different, occurrences,
    )  # fmt: skip
    return different, occurrences
