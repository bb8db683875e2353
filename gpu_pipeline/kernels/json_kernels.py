# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels that find the documents in JSON Lines, and the function that lays out their memory.

Work is divided by bytes, words of 32 bytes and lines (`gpu_pipeline.functions.json_masks`). One thread per line reads
only the bytes between the line's strings. The module imports neither cuDF nor CuPy. The layout function takes NumPy and
CuPy arrays.
"""

from typing import Any, NamedTuple

import numpy as np

from curation.kernels.jsonl import BACKSLASH, PLAIN, QUOTE, UNUSUAL, escape
from curation.kernels.utf8 import encode
from gpu_pipeline.functions.items import at
from gpu_pipeline.functions.json_masks import (
    NONE,
    backslashes_before,
    bits_before,
    escaped_bytes,
    inside_strings,
    json_bits,
    scan_line,
    split_backslashes,
    split_word,
    written_before,
)
from gpu_pipeline.functions.pretokens import ONE, count_bits, lowest_bit
from gpu_pipeline.kernels import core, token_kernels

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder

NEWLINE = 10
FAR = (1 << 63) - 1  # where the text of a line that is no document begins


@cuda.jit(cache=True)
def mark_json(data, blocks, quotes, backslashes, newlines, faults):
    """One thread per eight bytes: writes eight bits of each mask."""
    k = cuda.grid(1)
    while k < quotes.size:
        quote, backslash, newline, fault = 0, 0, 0, 0
        if 8 * k < data.size:
            quote, backslash, newline, fault = json_bits(data, blocks, 8 * k)
        quotes[at(k)], backslashes[at(k)], newlines[at(k)], faults[at(k)] = quote, backslash, newline, fault
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def find_quotes(quotes, backslashes, newlines, begins, quote_counts, line_counts):
    """One thread per word: keeps only quotes that are not escaped, marks the first bytes of escapes, counts quotes and
    lines."""
    c = cuda.grid(1)
    while c < quotes.size:
        begin, escaped = split_backslashes(backslashes, c)
        unescaped = np.uint64(quotes[at(c)]) & ~np.uint64(escaped)
        quotes[at(c)], begins[at(c)] = unescaped, begin
        quote_counts[at(c)] = count_bits(unescaped)
        line_counts[at(c)] = count_bits(np.uint64(newlines[at(c)]))
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def split_strings(
    data, quotes, backslashes, newlines, faults, begins, line_starts, quote_ranks, line_ranks, copied, escapes, counts,
    broken,
):  # fmt: skip
    """One thread per word: finds the bytes of strings to copy and the escapes to replace, how many bytes both write,
    and the lines with a string that is not plain."""
    c = cuda.grid(1)
    while c < copied.size:
        line = line_ranks[at(c)]
        before = quote_ranks[at(c)]
        if line < broken.size:
            before -= bits_before(quotes, quote_ranks, line_starts[at(line)])
        inside = np.uint64(inside_strings(quotes, newlines, before & 1 == 1, c))
        copies, replaced, written, bad = split_word(data, begins, inside, faults, c)
        copied[at(c)], escapes[at(c)], counts[at(c)] = copies, replaced, written
        bad = np.uint64(bad)
        while bad:
            k = lowest_bit(bad)
            broken[at(line + count_bits(np.uint64(newlines[at(c)]) & ((ONE << np.uint64(k)) - ONE)))] = 1
            bad &= bad - ONE
        if line < broken.size and backslashes_before(backslashes, c)[1]:
            broken[at(line)] = 1
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def scan_lines(
    data, line_starts, quotes, quote_ranks, positions, copied, escapes, ranks, broken, text_key, id_key, max_bytes,
    status, text_starts, text_ends, text_ranks, text_bytes, id_starts, id_ends, id_bytes,
):  # fmt: skip
    """One thread per line: finds the line's status, and where its text and its id are. `text_ranks` becomes the number
    of bytes that the strings before the text write."""
    line = cuda.grid(1)
    while line < status.size:
        start, end = line_starts[at(line)], line_starts[at(line + 1)]
        q = bits_before(quotes, quote_ranks, start)
        q_end = bits_before(quotes, quote_ranks, end)
        if data[at(end - 1)] == NEWLINE:
            end -= 1
        kind, text, text_end, id_start, id_end = scan_line(data, start, end, positions, q, q_end, text_key, id_key)
        if end - start > max_bytes or (kind == PLAIN and broken[at(line)]):
            kind = UNUSUAL
        text_ranks[at(line)], text_bytes[at(line)], id_bytes[at(line)] = 0, 0, 0
        text_starts[at(line)], text_ends[at(line)] = FAR, FAR
        id_starts[at(line)], id_ends[at(line)] = NONE, NONE
        if kind == PLAIN:
            rank = written_before(data, copied, escapes, ranks, text)
            text_starts[at(line)], text_ends[at(line)], text_ranks[at(line)] = text, text_end, rank
            text_bytes[at(line)] = written_before(data, copied, escapes, ranks, text_end) - rank
            id_starts[at(line)], id_ends[at(line)] = id_start, id_end
            if id_start != NONE:
                id_bytes[at(line)] = id_end - id_start
                if data[at(id_start - 1)] == QUOTE:
                    first = written_before(data, copied, escapes, ranks, id_start)
                    id_bytes[at(line)] = written_before(data, copied, escapes, ranks, id_end) - first
        status[at(line)] = kind
        line += cuda.gridsize(1)


@cuda.jit(cache=True)
def copy_texts(data, newlines, line_ranks, copied, escapes, ranks, text_starts, text_ends, shifts, out):
    """One thread per byte of a text: writes the output of this byte. `shifts` are differences between positions in the
    output of all strings and in the output of texts."""
    i = cuda.grid(1)
    while i < data.size:
        c, bit = i >> 5, np.uint32(1 << (i & 31))
        below = np.uint32(bit - np.uint32(1))
        copies, replaced = copied[at(c)], escapes[at(c)]
        if (copies | replaced) & bit:
            line = line_ranks[at(c)] + cuda.popc(np.uint32(newlines[at(c)] & below))
            if text_starts[at(line)] <= i and i < text_ends[at(line)]:
                o = ranks[at(c)] + shifts[at(line)] + cuda.popc(np.uint32(copies & below))
                if replaced & below:
                    o += escaped_bytes(data, np.uint64(replaced & below), c)
                if copies & bit:
                    out[at(o)] = data[at(i)]
                else:
                    encode(escape(data, i, data.size)[0], out, o)
        i += cuda.gridsize(1)


@cuda.jit(cache=True)
def copy_ids(data, id_starts, id_ends, offsets, out):
    """One thread per line: copies its id, which has few bytes."""
    line = cuda.grid(1)
    while line < id_starts.size:
        i = id_starts[at(line)]
        if i != NONE:
            o = offsets[at(line)]
            while i < id_ends[at(line)]:
                if data[at(i)] == BACKSLASH:
                    code_point, taken = escape(data, i, data.size)
                    o = encode(code_point, out, o)
                    i += taken
                else:
                    out[at(o)] = data[at(i)]
                    o += 1
                    i += 1
        line += cuda.gridsize(1)


def _signatures():
    i32, i64, u8, u32, u64 = (kind[::1] for kind in (types.int32, types.int64, types.uint8, types.uint32, types.uint64))
    number = types.int64
    return {
        mark_json: (u8, u64, u8, u8, u8, u8),
        find_quotes: (u32, u32, u32, u32, i64, i64),
        split_strings: (u8, *[u32] * 5, *[i64] * 3, u32, u32, i64, u8),
        scan_lines: (u8, i64, u32, i64, i32, u32, u32, i64, u8, u8, u8, number, u8, *[i64] * 7),
        copy_texts: (u8, u32, i64, u32, u32, i64, i64, i64, i64, u8),
        copy_ids: (u8, i64, i64, i64, u8),
    }


SIGNATURES = _signatures()


class BlockLines(NamedTuple):
    """The lines of a block of JSON Lines, on the device.

    starts         int64, lines + 1: first byte of each, and the end of the last
    status         uint8: BLANK, PLAIN or UNUSUAL
    texts, ids     uint8: strings of the plain lines, one after the other
    text_offsets, id_offsets   int64, lines + 1; a line that is not plain has an empty string
    id_valid       bool: whether a line is plain and has an id
    """

    starts: Any
    status: Any
    texts: Any
    text_offsets: Any
    ids: Any
    id_offsets: Any
    id_valid: Any


def _ranked_positions(mask, counts):
    """Return the number of bits before each word, and the positions of all bits."""
    ranks = core.starts_of(counts)
    positions = core.empty(ranks, np.int32, int(ranks[-1]))
    core.launch_shared(token_kernels.place_pieces, mask.size, mask, ranks, positions)
    return ranks, positions


def find_lines(data, blocks, text_key, id_key, max_bytes: int) -> BlockLines:
    """Find the documents of `data`, whole lines with 1 to 2^31 - 1 bytes in all; `blocks` is `data` as uint64."""
    size = data.size // 32 + 1
    quotes, backslashes, newlines, faults, begins = (core.empty(data, np.uint32, size) for _ in range(5))
    quote_counts, line_counts = (core.empty(data, np.int64, size) for _ in range(2))
    halves = [mask.view(np.uint8) for mask in (quotes, backslashes, newlines, faults)]
    core.launch_shared(mark_json, 4 * size, data, blocks, *halves)
    core.launch_shared(find_quotes, size, quotes, backslashes, newlines, begins, quote_counts, line_counts)
    quote_ranks, positions = _ranked_positions(quotes, quote_counts)
    line_ranks, ends = _ranked_positions(newlines, line_counts)
    lines = ends.size + int(ends.size == 0 or int(ends[-1]) != data.size - 1)
    starts = core.zeros(data, np.int64, lines + 1)
    starts[1 : ends.size + 1] = ends + 1
    starts[lines] = data.size
    copied, escapes = (core.empty(data, np.uint32, size) for _ in range(2))
    counts, broken = quote_counts, core.zeros(data, np.uint8, lines)
    core.launch_shared(
        split_strings, size, data, quotes, backslashes, newlines, faults, begins, starts, quote_ranks, line_ranks,
        copied, escapes, counts, broken,
    )  # fmt: skip
    ranks, status = core.starts_of(counts), core.empty(data, np.uint8, lines)
    text_starts, text_ends, text_ranks, text_bytes, id_starts, id_ends, id_bytes = (
        core.empty(data, np.int64, lines) for _ in range(7)
    )
    core.launch(
        scan_lines, lines, data, starts, quotes, quote_ranks, positions, copied, escapes, ranks, broken, text_key,
        id_key, max_bytes, status, text_starts, text_ends, text_ranks, text_bytes, id_starts, id_ends, id_bytes,
    )  # fmt: skip
    text_offsets, id_offsets = core.starts_of(text_bytes), core.starts_of(id_bytes)
    texts = core.empty(data, np.uint8, int(text_offsets[-1]))
    ids = core.empty(data, np.uint8, int(id_offsets[-1]))
    shifts = text_offsets[:-1] - text_ranks
    core.launch_shared(
        copy_texts, data.size, data, newlines, line_ranks, copied, escapes, ranks, text_starts, text_ends, shifts, texts
    )
    core.launch(copy_ids, lines, data, id_starts, id_ends, id_offsets, ids)
    return BlockLines(starts, status, texts, text_offsets, ids, id_offsets, id_starts != NONE)
