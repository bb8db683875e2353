# SPDX-License-Identifier: Apache-2.0
"""Measures of a batch of documents: words by length and case, words with a letter or number, occurrences of stop words,
and repeated strings of characters. A batch without these measures skips this module."""

import cupy as cp
import numpy as np

from curation.base.measures import LONG_WORD_CHARACTERS, SHORT_WORD_CHARACTERS, Measure
from gpu_pipeline.batches import WordSpans, count_per_row, launch_warps, pieces_of
from gpu_pipeline.functions.spans import LEAD, VISIBLE, WORD
from gpu_pipeline.functions.word_cases import CASE_MASKS
from gpu_pipeline.kernels import core
from gpu_pipeline.kernels import long_repetition_kernels as repetition
from gpu_pipeline.kernels import word_kind_kernels as parts
from gpu_pipeline.kernels.measure_kernels import BYTE_PIECE, WORD_PIECE
from gpu_pipeline.kernels.repetition_kernels import EMPTY

MOST_STRINGS = 1 << 28  # most strings of a document; the CPU engine takes documents with more


def _sum_by_row(spans: WordSpans, counted: cp.ndarray) -> cp.ndarray:
    """Return how many words of each document are marked in `counted` (bool)."""
    before = core.starts_of(counted.astype(np.int32))[spans.row_ranks[WORD]]
    return cp.where(spans.valid, before[1:] - before[:-1], 0)


def count_lengths(spans: WordSpans, word_end: cp.ndarray, out: cp.ndarray) -> None:
    """Write the measures of word lengths. `word_end`: int32, visible characters before the end of each word."""
    if not word_end.size:
        return
    lengths = word_end.copy()
    lengths[1:] -= word_end[:-1]
    ranks = spans.row_ranks[:, :-1]
    begun = cp.flatnonzero(spans.valid & (ranks[WORD] < spans.row_ranks[WORD, 1:]))  # documents with words
    firsts = ranks[WORD][begun]
    lengths[firsts] = word_end[firsts] - ranks[VISIBLE][begun]
    lengths = cp.maximum(lengths, 0)  # those of nulls are not written
    out[Measure.short_words] = _sum_by_row(spans, lengths <= SHORT_WORD_CHARACTERS)
    out[Measure.long_words] = _sum_by_row(spans, lengths >= LONG_WORD_CHARACTERS)
    rows = cp.searchsorted(spans.row_ranks[WORD], cp.arange(lengths.size, dtype=np.int32), side="right")
    order = cp.argsort(rows.astype(np.int64) << 32 | lengths)
    counts = count_per_row(spans, WORD)[begun]
    low, high = (lengths[order[firsts + half]] for half in ((counts - 1) // 2, counts // 2))
    out[Measure.median_word_characters, begun] = (low + high) // 2


def count_cases(spans: WordSpans, properties: tuple, out: cp.ndarray) -> None:
    """Write the measures of words by case. `properties`: pages, records, flags and lower of the Unicode tables."""
    size = spans.bits.shape[1]
    case_bits = core.empty(out, np.uint32, CASE_MASKS, size)
    counts, ranks = (core.empty(out, np.int32, CASE_MASKS, size + more) for more in (0, 1))
    arguments = spans.data, spans.blocks, spans.origin, *properties, case_bits.view(np.uint8)
    core.launch_shared(parts.mark_word_cases, 4 * size, *arguments)
    core.launch_shared(parts.count_case_bits, size, case_bits, counts)
    ranks[:, 0] = 0
    for mask in range(CASE_MASKS):
        ranks[mask, 1:] = core.prefix_sums(counts[mask], np.int32)
    pieces, rows = pieces_of(count_per_row(spans, WORD), WORD_PIECE)
    words = spans.row_ranks, pieces, rows, spans.word_starts, spans.word_ends
    launch_warps(parts.count_word_cases, rows, case_bits, ranks, *words, out)


def count_non_symbol_words(spans: WordSpans, classes: tuple, out: cp.ndarray) -> None:
    """Write the measures of words with a letter or number. `classes`: pages, records and lanes of characters."""
    size = spans.bits.shape[1]
    alphanumerics, counts = core.empty(out, np.uint32, size), core.empty(out, np.int32, size)
    arguments = spans.data, spans.blocks, spans.origin, *classes, alphanumerics, counts
    core.launch_shared(parts.mark_alphanumerics, size, *arguments)
    ranks = core.empty(out, np.int32, size + 1)
    ranks[0] = 0
    ranks[1:] = core.prefix_sums(counts, np.int32)
    pieces, rows = pieces_of(count_per_row(spans, WORD), WORD_PIECE)
    words = spans.row_ranks, pieces, rows, spans.word_starts, spans.word_ends
    launch_warps(
        parts.count_non_symbol_words, rows, alphanumerics, ranks, spans.bits, spans.ranks, *words, out,
    )  # fmt: skip


def count_stop_words(spans: WordSpans, out: cp.ndarray) -> None:
    """Write `stop_word_count`: how many words are stop words, by warps over pieces of texts."""
    pieces, rows = pieces_of(count_per_row(spans, WORD), WORD_PIECE)
    words = spans.row_ranks, pieces, rows, spans.word_starts, spans.word_ends
    launch_warps(parts.count_stop_words, rows, spans.data, spans.blocks, spans.origin, *words, out)


def _claim(counts: cp.ndarray, rows: cp.ndarray, hashes: cp.ndarray, out: cp.ndarray) -> tuple[cp.ndarray, cp.ndarray]:
    """Return whether each string stands for the equal strings of its document, and how many others it stands for."""
    starts, chunks = core.starts_of(counts), core.starts_of(counts // 32 + 2)
    pieces, docs = pieces_of(counts, repetition.PIECE)
    slots = core.starts_of(core.table_slots(counts))
    table = cp.full(int(slots[-1]), EMPTY, np.uint32)
    group, followers = core.empty(out, np.int32, hashes.size), cp.zeros(hashes.size, np.int32)
    active, repeated = cp.full(int(chunks[-1]), EMPTY, np.uint32), cp.zeros(int(chunks[-1]), np.uint32)
    any_repeats, of_strings = cp.zeros(1, np.int32), 2  # any size that is counted and is no measure of words alone
    launch_warps(
        repetition.claim_ngrams, docs, starts[:-1], counts, starts, chunks, pieces, docs, rows, slots, table,
        of_strings, hashes, active, group, followers, repeated, any_repeats, out,
    )  # fmt: skip
    return group < 0, followers


def count_repeated(spans: WordSpans, size: int, name: str, out: cp.ndarray) -> cp.ndarray:
    """Write the measure `name` of strings of `size` characters that repeat; return the documents with too many."""
    strings = cp.maximum(count_per_row(spans, LEAD) - (size - 1), 0)
    too_long = cp.flatnonzero(strings > MOST_STRINGS)
    strings[too_long] = 0
    starts = core.starts_of(strings)
    hashes = core.empty(out, np.uint64, int(starts[-1]))
    if not hashes.size:
        return too_long
    pieces, rows = pieces_of(cp.where(strings > 0, spans.offsets[1:] - spans.offsets[:-1], 0), BYTE_PIECE)
    ranks = spans.bits, spans.ranks, spans.row_ranks
    arguments = spans.data, spans.offsets, spans.origin, *ranks, pieces, rows, starts, size, hashes
    launch_warps(parts.hash_strings, rows, *arguments)
    listed = cp.flatnonzero(strings > 0)
    first, followers = _claim(strings[listed], listed, hashes, out)
    different = core.starts_of(first.astype(np.int64))[starts]
    repeated = cp.flatnonzero(first & (followers > 0))
    counts = followers[repeated].astype(np.int64) + 1
    owners = cp.searchsorted(starts, repeated, side="right") - 1
    order = cp.argsort((owners + 1 << 32) - counts)  # the most frequent strings of each document first
    counts, owners = counts[order], owners[order]
    begins = cp.searchsorted(owners, cp.arange(starts.size))
    chosen = _root(different[1:] - different[:-1])
    sums = core.starts_of(cp.where(cp.arange(counts.size) - begins[owners] < chosen[owners], counts, 0))[begins]
    out[Measure[name]] = sums[1:] - sums[:-1]
    return too_long


def _root(values: cp.ndarray) -> cp.ndarray:
    """Return the square roots of integers, rounded down. The device's own roots may be inexact."""
    root = (values.astype(np.float64) ** 0.5).astype(np.int64)
    root -= root * root > values
    return root + ((root + 1) * (root + 1) <= values)
