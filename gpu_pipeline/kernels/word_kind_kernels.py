# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels that count words by case, words with a letter or number, occurrences of stop words, and that hash
strings of characters.

Masks of cases (uint32, (CASE_MASKS, size)) have bits for the first bytes of characters: UPPER of upper-case, TITLE of
titlecase, LOWER of lower-case letters. BREAK marks characters whose case, after the character before them, does not fit
a word in title case. `case_ranks` has the number of bits before each 32 bytes. Other arrays are those of
`measure_kernels`.
"""

import numpy as np

from curation.kernels.measures import M
from curation.kernels.strings import hash_string
from gpu_pipeline.functions.items import at, block_at
from gpu_pipeline.functions.listed_words import FUNCTION_WORD, listed_bits
from gpu_pipeline.functions.spans import LEAD, VISIBLE, WORD, alphanumeric_bits, span_state
from gpu_pipeline.functions.word_cases import BREAK, CASE_MASKS, LOWER, TITLE, UPPER, case_bits_of
from gpu_pipeline.kernels.measure_kernels import BYTE_PIECE, LANES, SHORT_WORD, WORD_PIECE, rank, row_rank, warp_sum

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder


@cuda.jit(cache=True)
def mark_word_cases(data, blocks, origin, pages, records, flags, lower, bytes_of_bits):
    """One thread per eight bytes: writes eight bits of each mask of cases."""
    k = cuda.grid(1)
    while k < bytes_of_bits.shape[1]:
        i = origin + 8 * k
        uppers = titles = lowers = breaks = 0
        if i < data.size:
            block = np.uint64(block_at(data, blocks, i))
            uppers, titles, lowers, breaks = case_bits_of(data, block, i, pages, records, flags, lower)
        bytes_of_bits[UPPER, at(k)] = uppers
        bytes_of_bits[TITLE, at(k)] = titles
        bytes_of_bits[LOWER, at(k)] = lowers
        bytes_of_bits[BREAK, at(k)] = breaks
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def count_case_bits(case_bits, counts):
    """One thread per 32 bytes: counts the bits of each mask of cases."""
    c = cuda.grid(1)
    while c < counts.shape[1]:
        for mask in range(CASE_MASKS):
            counts[mask, at(c)] = cuda.popc(case_bits[mask, at(c)])
        c += cuda.gridsize(1)


@cuda.jit(device=True)
def has_bit_between(case_bits, case_ranks, mask, start, stop):
    """Whether a mask has a bit for one of the bytes start to stop - 1."""
    before = row_rank(case_bits[mask], case_ranks[mask], start)
    return row_rank(case_bits[mask], case_ranks[mask], stop) != before


@cuda.jit(cache=True)
def count_word_cases(case_bits, case_ranks, row_ranks, pieces, rows, word_starts, word_ends, out):
    """One warp per piece of a document, one thread per word: counts words in upper case and in title case."""
    lane, piece = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    while piece < rows.size:
        row = rows[piece]
        k = row_ranks[WORD, row] + (piece - pieces[row]) * WORD_PIECE
        end = min(k + WORD_PIECE, row_ranks[WORD, row + 1])
        k += lane
        uppercase = capitalised = np.int32(0)
        while k < end:
            start, stop = word_starts[at(k)], word_ends[at(k)]
            has_upper = has_bit_between(case_bits, case_ranks, UPPER, start, stop)
            has_title = has_bit_between(case_bits, case_ranks, TITLE, start, stop)
            if has_upper or has_title:
                has_lower = has_bit_between(case_bits, case_ranks, LOWER, start, stop)
                uppercase += np.int32(not has_title and not has_lower)
                # The character before a word may belong to another document, so the word's first character is tested
                # separately.
                breaks = has_bit_between(case_bits, case_ranks, LOWER, start, start + 1)
                breaks |= has_bit_between(case_bits, case_ranks, BREAK, start + 1, stop)
                capitalised += np.int32(not breaks)
            k += LANES
        uppercase, capitalised = np.int32(warp_sum(uppercase)), np.int32(warp_sum(capitalised))
        if lane == 0:
            cuda.atomic.add(out, (M.uppercase_words, row), uppercase)
            cuda.atomic.add(out, (M.capitalised_words, row), capitalised)
        piece += cuda.gridsize(1) // LANES


@cuda.jit(cache=True)
def mark_alphanumerics(data, blocks, origin, pages, records, lanes, alphanumerics, counts):
    """One thread per 32 bytes: sets a bit for the first byte of each letter and number, and counts these bits."""
    c = cuda.grid(1)
    while c < alphanumerics.size:
        bits = np.uint32(0)
        for k in range(4):
            i = origin + 32 * c + 8 * k
            if i < data.size:
                block = np.uint64(block_at(data, blocks, i))
                block_bits = alphanumeric_bits(data, block, i, pages, records, lanes)
                bits |= np.uint32(block_bits) << np.uint32(8 * k)
        alphanumerics[at(c)], counts[at(c)] = bits, cuda.popc(bits)
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def count_non_symbol_words(
    alphanumerics, number_ranks, bits, ranks, row_ranks, pieces, rows, word_starts, word_ends, out
):
    """One warp per piece of a document, one thread per word: counts words with a letter or number, and their
    characters. `number_ranks` has the bits of `alphanumerics` before each 32 bytes."""
    lane, piece = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    visible_bits, visible_ranks = bits[VISIBLE], ranks[VISIBLE]
    while piece < rows.size:
        row = rows[piece]
        k = row_ranks[WORD, row] + (piece - pieces[row]) * WORD_PIECE
        end = min(k + WORD_PIECE, row_ranks[WORD, row + 1])
        k += lane
        words = characters = np.int32(0)
        while k < end:
            start, stop = word_starts[at(k)], word_ends[at(k)]
            before = row_rank(alphanumerics, number_ranks, start)
            if row_rank(alphanumerics, number_ranks, stop) != before:
                words += np.int32(1)
                characters += row_rank(visible_bits, visible_ranks, stop)
                characters -= row_rank(visible_bits, visible_ranks, start)
            k += LANES
        words, characters = np.int32(warp_sum(words)), np.int32(warp_sum(characters))
        if lane == 0:
            cuda.atomic.add(out, (M.non_symbol_words, row), words)
            cuda.atomic.add(out, (M.non_symbol_word_characters, row), characters)
        piece += cuda.gridsize(1) // LANES


@cuda.jit(cache=True)
def count_stop_words(data, blocks, origin, row_ranks, pieces, rows, word_starts, word_ends, out):
    """One warp per piece of a document, one thread per word: counts occurrences of stop words."""
    lane, piece = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    while piece < rows.size:
        row = rows[piece]
        k = row_ranks[WORD, row] + (piece - pieces[row]) * WORD_PIECE
        end = min(k + WORD_PIECE, row_ranks[WORD, row + 1])
        k += lane
        count = np.int32(0)
        while k < end:
            num_bytes = np.int64(word_ends[at(k)] - word_starts[at(k)])
            if num_bytes <= SHORT_WORD:
                start = origin + word_starts[at(k)]
                _, rest, _ = span_state(data, blocks, start, start + num_bytes)
                key = np.uint64(np.uint64(rest) | np.uint64(num_bytes) << np.uint64(56))
                count += np.int32(listed_bits(key) & (FUNCTION_WORD - 1) != 0)
            k += LANES
        count = np.int32(warp_sum(count))
        if lane == 0:
            cuda.atomic.add(out, (M.stop_word_count, row), count)
        piece += cuda.gridsize(1) // LANES


@cuda.jit(cache=True)
def hash_strings(data, offsets, origin, bits, ranks, row_ranks, pieces, rows, string_starts, size, hashes):
    """One warp per piece of a document, one thread per byte: writes the hash of the string of `size` characters that
    starts at the byte. Document k has the strings from string_starts[k]."""
    lane, piece = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    while piece < rows.size:
        row = rows[piece]
        first = offsets[row] + (piece - pieces[row]) * BYTE_PIECE
        end = min(first + BYTE_PIECE, offsets[row + 1])
        strings = string_starts[row + 1] - string_starts[row]
        i = first + lane
        while i < end:
            if int(data[at(i)]) & 0xC0 != 0x80:
                number = np.int64(rank(bits, ranks, LEAD, i - origin)) - row_ranks[LEAD, row]
                if number < strings:
                    hashes[at(string_starts[row] + number)] = hash_string(data, i, size)
            i += LANES
        piece += cuda.gridsize(1) // LANES


def _signatures():
    i32, i64, u8, u16, u32, u64 = (
        kind[::1] for kind in (types.int32, types.int64, types.uint8, types.uint16, types.uint32, types.uint64)
    )
    number, bits, ranks, bytes_of_bits = types.int64, types.uint32[:, ::1], types.int32[:, ::1], types.uint8[:, ::1]
    words = ranks, i64, i64, i32, i32, ranks
    return {
        mark_word_cases: (u8, u64, number, u16, u16, u32, i32, bytes_of_bits),
        count_case_bits: (bits, ranks),
        count_word_cases: (bits, ranks, *words),
        mark_alphanumerics: (u8, u64, number, u16, u16, u64, u32, i32),
        count_non_symbol_words: (u32, i32, bits, ranks, *words),
        count_stop_words: (u8, u64, number, *words),
        hash_strings: (u8, i64, number, bits, ranks, ranks, i64, i64, i64, number, u64),
    }


SIGNATURES = _signatures()
