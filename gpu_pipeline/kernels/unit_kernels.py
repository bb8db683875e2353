# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels that find the units (`curation.kernels.units`) of a whole batch: lines by line breaks, sentences by
words.

Arguments are those of `measure_kernels`. Positions are bytes of the column, int64.
"""

import numpy as np

from gpu_pipeline.functions.items import at
from gpu_pipeline.functions.spans import BREAK, WORD, after_character, ends_sentence, is_second_of_pair, segment_of
from gpu_pipeline.kernels.measure_kernels import rank

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder

NO_LINE, BLANK, TEXT_LINE = range(3)


@cuda.jit(cache=True)
def find_lines(data, offsets, valid, origin, bits, ranks, row_ranks, item_starts, breaks, firsts, stops, kinds, rows):
    """One thread per line break, for the line that ends there, and one per document, for the text after its last line
    break. Each thread writes the line's first byte, the byte after its content, its kind and its document."""
    k = cuda.grid(1)
    while k < firsts.size:
        row = segment_of(item_starts, k)
        start, end = offsets[at(row)], offsets[at(row + 1)]
        first_break = np.int64(row_ranks[BREAK, row])
        b = first_break + k - item_starts[at(row)]
        is_rest = k + 1 == item_starts[at(row + 1)]
        limit = end if is_rest else origin + breaks[at(b)]
        line = start if b == first_break else after_character(data, origin + breaks[at(b - 1)])
        is_line = line < end if is_rest else not is_second_of_pair(data, limit, start)
        kind = NO_LINE
        if is_line and valid[at(row)]:
            has_word = rank(bits, ranks, WORD, line - origin) < rank(bits, ranks, WORD, limit - origin)
            kind = TEXT_LINE if has_word else BLANK
        firsts[at(k)], stops[at(k)] = line, limit
        kinds[at(k)], rows[at(k)] = kind, row
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def mark_sentence_starts(data, offsets, valid, origin, row_ranks, word_starts, word_ends, rows, is_start):
    """One thread per word: writes its document, and whether it begins a sentence. The first word does, and each word
    after the end of a sentence. Words of nulls do not, nor words outside the batch that share its first or last 32
    bytes."""
    k = cuda.grid(1)
    while k < is_start.size:
        i = origin + word_starts[at(k)]
        row = segment_of(offsets, i)
        starts = 0 <= row < valid.size and valid[row]
        if starts and k > row_ranks[WORD, row]:
            first, end = origin + word_starts[at(k - 1)], origin + word_ends[at(k - 1)]
            starts = ends_sentence(data, first, end, np.int64(data[at(end - 1)]))
        rows[at(k)] = row
        is_start[at(k)] = starts
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def strip_contents(origin, bits, ranks, word_starts, word_ends, firsts, stops):
    """One thread per unit: its content begins with its first word and ends with its last word. The content of a blank
    unit is empty."""
    k = cuda.grid(1)
    while k < firsts.size:
        word = rank(bits, ranks, WORD, firsts[at(k)] - origin)
        next_word = rank(bits, ranks, WORD, stops[at(k)] - origin)
        if word < next_word:
            firsts[at(k)] = origin + word_starts[at(word)]
            stops[at(k)] = origin + word_ends[at(next_word - 1)]
        else:
            firsts[at(k)] = stops[at(k)]
        k += cuda.gridsize(1)


def _signatures():
    i32, i64, u8, mask = (kind[::1] for kind in (types.int32, types.int64, types.uint8, types.bool_))
    number, bits, ranks = types.int64, types.uint32[:, ::1], types.int32[:, ::1]
    return {
        find_lines: (u8, i64, mask, number, bits, ranks, ranks, i64, i32, i64, i64, i32, i64),
        mark_sentence_starts: (u8, i64, mask, number, ranks, i32, i32, i64, mask),
        strip_contents: (number, bits, ranks, i32, i32, i64, i64),
    }


SIGNATURES = _signatures()
