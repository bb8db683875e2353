# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels that write texts with a space between adjacent words, and the functions that lay out their memory.

One mask has the characters before which a word ends; the mask `hidden` has the bytes that are not written. Most bits
depend only on a few characters around the position. A span of a script without spaces is divided into pieces of
MAX_SPAN characters, as on the CPU. A thread searches one piece after the other, with its own scratch. The module
imports neither cuDF nor CuPy. The functions take NumPy and CuPy arrays.
"""

import numpy as np

from curation.kernels.utf8 import decode
from curation.kernels.word_breaks import MAX_SPAN, SEPARATOR, class_of, cut_span, utf8_width
from gpu_pipeline.functions.items import at, bits_below, block_at
from gpu_pipeline.functions.spans import segment_of
from gpu_pipeline.functions.word_breaks import divided_bits, word_end_bits
from gpu_pipeline.kernels import core
from gpu_pipeline.kernels.document_kernels import DocumentBytes, words_for
from gpu_pipeline.kernels.text_kernels import mark_documents

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder

# Memory of a batch, in bytes per byte of text: the text, its output, masks, and 32 bytes per span, which has at least 4
# bytes with its mark.
BATCH_BYTES = 14
SPAN_THREADS = 1 << 14  # each has 3,598 bytes of scratch: 59 MB together


@cuda.jit(cache=True)
def find_unspaced(data, blocks, offsets, valid, origin, pages, classes, divided):
    """One thread per eight bytes: `divided` becomes True for documents with a character of a script without spaces,
    U+1361 or U+200B."""
    k = cuda.grid(1)
    start, end = offsets[0], offsets[at(offsets.size - 1)]
    while origin + 8 * k < end:
        i = origin + 8 * k
        bits = divided_bits(data, blocks, start, end, i, pages, classes)
        mark_documents(bits, i, offsets, valid, True, divided)
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def mark_word_ends(
    data, blocks, borders, is_table, in_pieces, pages, classes, ends, unspaced, begins, hidden, counts, span_counts
):  # fmt: skip
    """One thread per 32 bytes: writes the masks of `word_end_bits`, and counts the bits of the second and the third."""
    c = cuda.grid(1)
    while c < ends.size:
        end_bits, bits, begin_bits, hidden_bits = word_end_bits(
            data, blocks, borders, 32 * c, is_table, in_pieces, pages, classes
        )
        ends[at(c)], unspaced[at(c)], begins[at(c)], hidden[at(c)] = end_bits, bits, begin_bits, hidden_bits
        counts[at(c)], span_counts[at(c)] = cuda.popc(np.uint32(bits)), cuda.popc(np.uint32(begin_bits))
        c += cuda.gridsize(1)


@cuda.jit(device=True)
def lowest(bits):
    """Return the position of the lowest set bit: the number of zeros below it."""
    return cuda.popc(np.uint32(~bits & np.uint32(bits - np.uint32(1))))


@cuda.jit(cache=True)
def place_spans(unspaced, begins, ranks, span_ranks, firsts):
    """One thread per 32 bytes: firsts[k] becomes the index of span k's first character among the characters of scripts
    without spaces. The item after the last span becomes their total number."""
    c = cuda.grid(1)
    if c == 0:
        firsts[at(firsts.size - 1)] = ranks[at(unspaced.size)]
    while c < unspaced.size:
        bits, span = np.uint32(begins[at(c)]), span_ranks[at(c)]
        while bits:
            before = np.uint32(unspaced[at(c)] & bits_below(lowest(bits)))
            firsts[at(span)] = ranks[at(c)] + cuda.popc(before)
            bits = np.uint32(bits & np.uint32(bits - np.uint32(1)))
            span += 1
        c += cuda.gridsize(1)


@cuda.jit(device=True)
def place_of(unspaced, ranks, number):
    """Return the first byte of character `number` among the characters of scripts without spaces."""
    c = segment_of(ranks, number)
    bits = np.uint32(unspaced[at(c)])
    for _ in range(number - ranks[at(c)]):
        bits = np.uint32(bits & np.uint32(bits - np.uint32(1)))
    return 32 * c + lowest(bits)


@cuda.jit(device=True)
def skip_hidden(hidden, i):
    """Return the first byte from `i` on that is written."""
    while i >> 5 < hidden.size and hidden[at(i >> 5)] >> np.uint32(i & 31) & np.uint32(1):
        i += 1
    return i


@cuda.jit(device=True)
def set_end(ends, i):
    """Set the bit of a word end at byte `i`, atomically, since threads may set bits of the same uint32 at once."""
    cuda.atomic.or_(ends, i >> 5, np.uint32(1 << (i & 31)))


@cuda.jit(cache=True)
def cut_spans(
    data, unspaced, hidden, ranks, firsts, pieces, pages, classes, roots, edges, costs, codes, kinds, best, back, flags,
    ends,
):  # fmt: skip
    """One thread per column of scratch (`codes` to `flags` of `cut_span`); a thread takes one piece of a span after the
    other. It sets a bit of `ends` for each word that ends in the piece or right before it."""
    k, piece = cuda.grid(1), np.int64(cuda.grid(1))
    while k < codes.shape[1] and piece < pieces[at(pieces.size - 1)]:
        span = segment_of(pieces, piece)
        skipped = MAX_SPAN * (piece - pieces[at(span)])
        number = firsts[at(span)] + skipped
        count = min(firsts[at(span + 1)] - number, MAX_SPAN)
        start = i = place_of(unspaced, ranks, number)
        for j in range(count):
            code, width = decode(data, i)
            codes[j, k], kinds[j, k] = code, class_of(pages, classes, code)
            i = skip_hidden(hidden, i + width)
        if skipped:
            set_end(ends, start)
        cut_span(codes[:, k], kinds[:, k], count, roots, edges, costs, best[:, k], back[:, k], flags[:, k])
        i = start
        for j in range(count):
            if j > 0 and flags[j, k]:
                set_end(ends, i)
            i = skip_hidden(hidden, i + utf8_width(codes[j, k]))
        piece += codes.shape[1]


@cuda.jit(cache=True)
def count_word_ends(ends, hidden, counts):
    """One thread per 32 bytes: counts the word ends minus the bytes that are not written, which is the growth of the
    text."""
    c = cuda.grid(1)
    while c < ends.size:
        counts[at(c)] = np.int64(cuda.popc(ends[at(c)])) - np.int64(cuda.popc(hidden[at(c)]))
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def write_words(data, blocks, ends, hidden, ranks, out):
    """One thread per eight bytes: writes the bytes that are not in `hidden`, with a space before each bit of `ends`."""
    i = 8 * np.int64(cuda.grid(1))
    while i < data.size:
        c, shift = i >> 5, i & 31
        below = bits_below(shift)
        o = i + ranks[at(c)] + cuda.popc(np.uint32(ends[at(c)] & below)) - cuda.popc(np.uint32(hidden[at(c)] & below))
        bits, block = np.int64(ends[at(c)]) >> shift, block_at(data, blocks, i)
        hidden_bits = np.int64(hidden[at(c)]) >> shift
        for k in range(min(8, data.size - i)):
            if bits >> k & 1:
                out[at(o)] = SEPARATOR
                o += 1
            if not hidden_bits >> k & 1:
                out[at(o)] = np.uint8(block >> np.uint64(8 * k) & np.uint64(0xFF))
                o += 1
        i += 8 * cuda.gridsize(1)


def _signatures():
    i32, i64, u8, u32, u64, mask = (
        kind[::1] for kind in (types.int32, types.int64, types.uint8, types.uint32, types.uint64, types.bool_)
    )
    scratch = [kind[:, ::1] for kind in (types.int32, types.uint8, types.int32, types.int32, types.bool_)]
    return {
        find_unspaced: (u8, u64, i64, mask, types.int64, u8, u8, mask),
        mark_word_ends: (u8, u64, u32, types.bool_, types.bool_, u8, u8, u32, u32, u32, u32, i64, i64),
        place_spans: (u32, u32, i64, i64, i64),
        cut_spans: (u8, u32, u32, i64, i64, i64, u8, u8, i32, u64, u8, *scratch, u32),
        count_word_ends: (u32, u32, i64),
        write_words: (u8, u64, u32, u32, i64, u8),
    }


SIGNATURES = _signatures()


def divided_documents(data, blocks, offsets, valid, pages, classes):
    """Return whether each document has a character of a script without spaces, U+1361 or U+200B (bool); False for
    nulls.

    pages, classes   of `WordLists`
    """
    divided = np.zeros_like(valid)
    origin = int(offsets[0]) // 8 * 8
    blocks_of_text = -(-(int(offsets[-1]) - origin) // 8)
    core.launch_shared(find_unspaced, blocks_of_text, data, blocks, offsets, valid, origin, pages, classes, divided)
    return divided


def _cut_spans(data, unspaced, hidden, ranks, begins, span_ranks, lists, ends) -> None:
    """Add the ends of words within spans to the mask `ends`."""
    firsts = core.empty(ranks, np.int64, int(span_ranks[-1]) + 1)
    core.launch_shared(place_spans, begins.size, unspaced, begins, ranks, span_ranks, firsts)
    pieces = core.starts_of(-(-(firsts[1:] - firsts[:-1]) // MAX_SPAN))
    shape = MAX_SPAN + 1, min(int(pieces[-1]), SPAN_THREADS)
    scratch = (core.empty(ranks, kind, *shape) for kind in (np.int32, np.uint8, np.int32, np.int32, bool))
    core.launch(cut_spans, shape[1], data, unspaced, hidden, ranks, firsts, pieces, *lists, *scratch, ends)


def split_documents(text: DocumentBytes, is_table: bool, in_pieces: bool, lists) -> DocumentBytes:
    """Return the documents with a space between adjacent words, one after the other.

    text    documents without bytes between them, from byte 0 on
    lists   the arrays of `WordLists`
    """
    data, offsets = text.data, text.offsets
    _, borders = core.find_borders(offsets)
    ends, unspaced, begins, hidden = (core.empty(offsets, np.uint32, borders.size) for _ in range(4))
    counts, span_counts = (core.empty(offsets, np.int64, borders.size) for _ in range(2))
    masks = ends, unspaced, begins, hidden, counts, span_counts
    kinds = is_table, in_pieces, *lists[:2]
    core.launch_shared(mark_word_ends, borders.size, data, text.blocks, borders, *kinds, *masks)
    span_ranks = core.starts_of(span_counts)
    if int(span_ranks[-1]):
        _cut_spans(data, unspaced, hidden, core.starts_of(counts), begins, span_ranks, lists, ends)
    core.launch_shared(count_word_ends, ends.size, ends, hidden, counts)
    ranks = core.starts_of(counts)
    added, removed = (core.empty(offsets, np.int64, offsets.size) for _ in range(2))
    core.launch(core.rank_rows, added.size, offsets, 0, ends, ranks, added)
    core.launch(core.rank_rows, added.size, offsets, 0, hidden, np.zeros_like(ranks), removed)
    out, words = words_for(data, data.size + int(ranks[-1]))
    core.launch_shared(write_words, -(-data.size // 8), data, text.blocks, ends, hidden, ranks, out)
    return DocumentBytes(out, words[: out.size // 8], offsets + added - removed)
