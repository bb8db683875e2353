# SPDX-License-Identifier: Apache-2.0
"""Measures of a batch of documents: launches of `measure_kernels`, and sums of documents by differences of ranks."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from curation.kernels.measures import NUM_STOP_WORDS
from curation.kernels.spans import ADDRESS, BREAK, LEAD, LETTER, MASKS, RANKED, VISIBLE, WORD
from curation.kernels.tables import UnicodeTables
from curation.measures import NUM_MEASURES, OF_CLASSES, OF_MARKS, Measure
from gpu_pipeline import kernels
from gpu_pipeline import measure_kernels as parts
from gpu_pipeline.buffers import eight_byte_blocks

OF_SYMBOLS = ("hash_signs", "ellipsis_characters", "ellipses", "symbols", "symbol_characters")
# A batch takes about this much memory: masks, ranks and words of six bytes, and the measures of a document.
BATCH_BYTES, ROW_BYTES = 8, 8 * NUM_MEASURES


class Spans(NamedTuple):
    """The words and lines of a batch, as arguments of kernels (`measure_kernels` says what each is)."""

    data: cp.ndarray
    blocks: cp.ndarray
    offsets: cp.ndarray
    valid: cp.ndarray
    origin: int
    bits: cp.ndarray
    ranks: cp.ndarray
    row_ranks: cp.ndarray
    word_starts: cp.ndarray
    word_ends: cp.ndarray


def counts_repetitions(name: str) -> bool:
    """Whether a measure counts words, lines, paragraphs or n-grams that occur before."""
    return name == "distinct_words" or "gram_" in name or name.startswith("duplicate_")


def pieces_of(counts: cp.ndarray, size: int) -> tuple[cp.ndarray, cp.ndarray]:
    """(first piece of each document, document of each piece) for pieces of up to `size` items."""
    pieces = kernels.starts_of(-(-counts // size))
    return pieces, cp.searchsorted(pieces, cp.arange(int(pieces[-1])), side="right") - 1


def launch_warps(kernel: Any, pieces: cp.ndarray, *arguments: Any) -> None:
    """Run a kernel with one warp per piece."""
    kernels.launch(kernel, pieces.size * parts.LANES, *arguments)


def _find_spans(data, offsets, valid, properties, lanes, marks: bool) -> Spans:
    start, end = int(offsets[0]), int(offsets[-1])
    origin, size = start // 32 * 32, end // 32 - start // 32 + 1
    blocks = eight_byte_blocks(data)
    bits, counts = kernels.empty(offsets, np.uint32, (MASKS, size)), kernels.empty(offsets, np.int32, (RANKED, size))
    ranks = kernels.empty(offsets, np.int32, (RANKED, size + 1))
    row_ranks = kernels.empty(offsets, np.int32, (RANKED, offsets.size))
    stops = cp.zeros(size, np.uint32)
    kernels.launch_shared(
        parts.mark_text, 4 * size, data, blocks, origin, marks, *properties, lanes, bits.view(np.uint8)
    )
    kernels.launch(kernels.mark_rows, offsets.size, offsets, origin, stops)
    kernels.launch_shared(parts.mark_words, size, stops, bits, counts)
    ranks[:, 0] = 0
    for mask in range(RANKED):
        ranks[mask, 1:] = counts[mask].cumsum(dtype=np.int32)
    kernels.launch(parts.rank_documents, offsets.size, offsets, origin, bits, ranks, row_ranks)
    words = int(ranks[WORD, -1])
    word_starts, word_ends = (kernels.empty(offsets, np.int32, words) for _ in range(2))
    kernels.launch_shared(parts.place_words, 4 * size, bits, ranks, word_starts, word_ends)
    return Spans(data, blocks, offsets, valid, origin, bits, ranks, row_ranks, word_starts, word_ends)


def _url_starts(spans: Spans, classes: tuple) -> cp.ndarray:
    """Where the first URL of each word starts; empty if no word has one."""
    if not spans.bits[ADDRESS].any():
        return cp.zeros(0, np.int32)
    starts = cp.full(spans.word_starts.size, parts.NO_URL, np.int32)
    arguments = spans.data, spans.offsets, spans.valid, spans.origin, spans.bits, spans.ranks, *classes, starts
    kernels.launch_shared(parts.place_urls, spans.bits.shape[1], *arguments)
    return starts


def _measure_long(spans: Spans, long_words: cp.ndarray, word_hash: cp.ndarray, out: cp.ndarray) -> None:
    words = long_words[:, 0]
    pieces, piece_words = pieces_of(
        (spans.word_ends[words] - spans.word_starts[words]).astype(np.int64), parts.LONG_PIECE
    )
    others = kernels.empty(pieces, np.int64, (2, piece_words.size))
    listed = long_words, pieces, piece_words, spans.word_starts, spans.word_ends
    kernels.launch(
        parts.measure_pieces, piece_words.size, spans.data, spans.blocks, spans.origin, *listed, word_hash, others
    )
    kernels.launch(
        parts.finish_pieces, piece_words.size, spans.data, spans.origin, spans.row_ranks, *listed, others, out
    )


def _measure_words(spans: Spans, classes: tuple, marks: bool, out: cp.ndarray) -> tuple[cp.ndarray, cp.ndarray]:
    """(hash of each word, visible characters before its end)."""
    words = spans.word_starts.size
    word_hash, word_end = kernels.empty(out, np.uint64, words), kernels.empty(out, np.int32, words)
    url_starts = _url_starts(spans, classes) if marks else cp.zeros(0, np.int32)
    longest = int(spans.offsets[-1] - spans.offsets[0]) // parts.LONG_WORD + 1
    long_words, num_long = kernels.empty(out, np.int32, (longest, 2)), cp.zeros(1, np.int32)
    counts = cp.where(spans.valid, spans.row_ranks[WORD, 1:] - spans.row_ranks[WORD, :-1], 0).astype(np.int64)
    pieces, rows = pieces_of(counts, parts.WORD_PIECE)
    launch_warps(
        parts.measure_words, rows, spans.data, spans.blocks, *spans[4:8], pieces, rows, *spans[8:], url_starts,
        word_hash, word_end, long_words, num_long, out,
    )  # fmt: skip
    if int(num_long[0]):
        _measure_long(spans, long_words[: int(num_long[0])], word_hash, out)
    return word_hash, word_end


def _count_classes(spans: Spans, classes: tuple, byte_lanes: cp.ndarray, out: cp.ndarray) -> None:
    starts, ends = spans.offsets[:-1], spans.offsets[1:]
    lengths = cp.where(spans.valid & (starts < ends), ends - starts // 8 * 8, 0)
    pieces, rows = pieces_of(lengths, parts.BYTE_PIECE)
    arguments = spans.data, spans.blocks, spans.offsets, pieces, rows, *classes, byte_lanes, out
    launch_warps(parts.count_classes, rows, *arguments)


def _measure_lines(spans: Spans, out: cp.ndarray) -> None:
    breaks = kernels.empty(out, np.int32, int(spans.ranks[BREAK, -1]))
    kernels.launch_shared(parts.place_breaks, spans.bits.shape[1], spans.bits, spans.ranks, breaks)
    arguments = spans.data, spans.offsets, spans.valid, *spans[4:8], breaks, *spans[8:], out
    kernels.launch(parts.measure_lines, breaks.size + out.shape[1], *arguments)


def _sum_ranks(spans: Spans, out: cp.ndarray) -> None:
    """Measures that are differences of ranks, and sums of others."""
    sums = cp.where(spans.valid, spans.row_ranks[:, 1:] - spans.row_ranks[:, :-1], 0)
    out[Measure.bytes] = cp.where(spans.valid, spans.offsets[1:] - spans.offsets[:-1], 0)
    out[Measure.characters], out[Measure.words] = sums[LEAD], sums[WORD]
    out[Measure.word_characters], out[Measure.space_characters] = sums[VISIBLE], sums[LEAD] - sums[VISIBLE]
    out[Measure.alphabetic_characters], out[Measure.line_characters] = sums[LETTER], sums[LEAD] - sums[BREAK]
    out[Measure.ellipses] += out[Measure.ellipsis_characters]
    out[Measure.symbols] = out[Measure.hash_signs] + out[Measure.ellipses]
    out[Measure.symbol_characters] = out[Measure.hash_signs] + out[Measure.ellipsis_characters]
    out[Measure.stop_words] = sum(out[Measure.stop_words] >> k & 1 for k in range(NUM_STOP_WORDS))
    out[Measure.num_2grams] = cp.maximum(sums[WORD] - 1, 0)
    out[Measure.num_3grams] = cp.maximum(sums[WORD] - 2, 0)


def measure_batch(
    data: cp.ndarray, offsets: cp.ndarray, valid: cp.ndarray, unicode: UnicodeTables, lanes: tuple, names: Sequence[str]
) -> cp.ndarray:
    """All measures (int32, (measures, rows)), those of `names` filled in.

    unicode, lanes   the tables of `tables` and `words.character_lanes`, on the device
    """
    out = cp.zeros((NUM_MEASURES, valid.size), np.int32)
    marks = any(name in OF_MARKS for name in names)
    classes = *unicode[:2], lanes[0]
    spans = _find_spans(data, offsets, valid, unicode[:3], lanes[0], marks)
    _measure_words(spans, classes, marks, out)
    if any(name in OF_CLASSES or name in OF_SYMBOLS for name in names):
        _count_classes(spans, classes, lanes[1], out)
    if any("line" in name or "paragraph" in name for name in names):
        _measure_lines(spans, out)
    _sum_ranks(spans, out)
    return out
