# SPDX-License-Identifier: Apache-2.0
"""Measures a batch of documents: launches the kernels of `measure_kernels`, and subtracts ranks to get sums per
document."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from curation.base.measures import (
    NUM_MEASURES,
    OF_CLASSES,
    OF_MARKS,
    OF_NON_SYMBOLS,
    OF_WORD_CASES,
    OF_WORD_LENGTHS,
    REPEATED_SIZES,
    Measure,
    MeasureParts,
    wanted,
)
from curation.kernels.tables import UnicodeTables
from gpu_pipeline import word_kinds as kinds
from gpu_pipeline.batches import WordSpans, count_per_row, launch_warps, pieces_of
from gpu_pipeline.functions.listed_words import NUM_STOP_WORDS
from gpu_pipeline.functions.spans import ADDRESS, BREAK, LEAD, LETTER, MASKS, RANKED, VISIBLE, WORD
from gpu_pipeline.kernels import core
from gpu_pipeline.kernels import long_repetition_kernels as long_repetition
from gpu_pipeline.kernels import measure_kernels as parts
from gpu_pipeline.kernels import repetition_kernels as repetition
from gpu_pipeline.kernels import word_kernels as team
from gpu_pipeline.memory.buffers import eight_byte_blocks

OF_TOPS = tuple(f"top_{n}gram_characters" for n in (2, 3, 4))  # int64: they may exceed the bytes of the text
LARGEST = 2**31 - 1  # of int32, which is half as many bytes to copy to the host as int64
OF_SYMBOLS = ("hash_signs", "ellipsis_characters", "ellipses", "symbols", "symbol_characters")
# A batch takes about this much memory: masks, ranks and words of six bytes, and the measures of a document.
BATCH_BYTES, ROW_BYTES = 10, 16 * NUM_MEASURES
LENGTHS_BYTES, STRINGS_BYTES = 8, 40  # more for sorted lengths of words, and for a table of strings
LARGEST = (1 << 31) - 1


def find_spans(data, offsets, valid, properties, lanes, marks: bool) -> WordSpans:
    """Find characters, words and lines of a batch: their masks, their ranks, and where words start and end."""
    origin, stops = core.find_borders(offsets)
    size = stops.size
    blocks = eight_byte_blocks(data)
    bits, counts = core.empty(offsets, np.uint32, MASKS, size), core.empty(offsets, np.int32, RANKED, size)
    ranks = core.empty(offsets, np.int32, RANKED, size + 1)
    row_ranks = core.empty(offsets, np.int32, RANKED, offsets.size)
    core.launch_shared(parts.mark_text, 4 * size, data, blocks, origin, marks, *properties, lanes, bits.view(np.uint8))
    core.launch_shared(parts.mark_words, size, stops, bits, counts)
    ranks[:, 0] = 0
    for mask in range(RANKED):
        ranks[mask, 1:] = core.prefix_sums(counts[mask], np.int32)
    core.launch(parts.rank_documents, offsets.size, offsets, origin, bits, ranks, row_ranks)
    words = int(ranks[WORD, -1])
    word_starts, word_ends = (core.empty(offsets, np.int32, words) for _ in range(2))
    core.launch_shared(parts.place_words, size, bits, ranks, word_starts, word_ends)
    return WordSpans(data, blocks, offsets, valid, origin, bits, ranks, row_ranks, word_starts, word_ends)


def _count_urls(spans: WordSpans, classes: tuple, out: cp.ndarray) -> None:
    if spans.bits[ADDRESS].any():
        starts = cp.full(spans.word_starts.size, parts.NO_URL, np.int32)
        arguments = spans.data, spans.offsets, spans.valid, spans.origin, spans.bits, spans.ranks, spans.word_ends
        core.launch_shared(parts.count_urls, spans.bits.shape[1], *arguments, *classes, starts, out)


def _measure_long(spans: WordSpans, long_words: cp.ndarray, word_hash: cp.ndarray, out: cp.ndarray) -> None:
    words = long_words[:, 0]
    pieces, piece_words = pieces_of(
        (spans.word_ends[words] - spans.word_starts[words]).astype(np.int64), parts.LONG_PIECE
    )
    others = core.empty(pieces, np.int64, 2, piece_words.size)
    listed = long_words, pieces, piece_words, spans.word_starts, spans.word_ends
    core.launch(
        parts.measure_pieces, piece_words.size, spans.data, spans.blocks, spans.origin, *listed, word_hash, others
    )
    core.launch(parts.finish_pieces, piece_words.size, spans.data, spans.origin, spans.row_ranks, *listed, others, out)


def _measure_words(spans: WordSpans, out: cp.ndarray) -> tuple[cp.ndarray, cp.ndarray]:
    """Return the hash of each word, and the number of visible characters before its end."""
    words = spans.word_starts.size
    word_hash, word_end = core.empty(out, np.uint64, words), core.empty(out, np.int32, words)
    longest = int(spans.offsets[-1] - spans.offsets[0]) // parts.LONG_WORD + 1
    long_words, num_long = core.empty(out, np.int32, longest, 2), cp.zeros(1, np.int32)
    counts = count_per_row(spans, WORD)
    pieces, rows = pieces_of(counts, parts.WORD_PIECE)
    launch_warps(
        parts.measure_words, rows, spans.data, spans.blocks, *spans[4:8], pieces, rows, *spans[8:], word_hash,
        word_end, long_words, num_long, out,
    )  # fmt: skip
    if int(num_long[0]):
        _measure_long(spans, long_words[: int(num_long[0])], word_hash, out)
    return word_hash, word_end


def _count_classes(spans: WordSpans, classes: tuple, byte_lanes: cp.ndarray, out: cp.ndarray) -> None:
    starts, ends = spans.offsets[:-1], spans.offsets[1:]
    lengths = cp.where(spans.valid & (starts < ends), ends - starts // 8 * 8, 0)
    pieces, rows = pieces_of(lengths, parts.BYTE_PIECE)
    arguments = spans.data, spans.blocks, spans.offsets, pieces, rows, *classes, byte_lanes, out
    launch_warps(parts.count_classes, rows, *arguments)


def _measure_lines(
    spans: WordSpans, hashed: bool, longest: bool, out: cp.ndarray
) -> tuple[cp.ndarray, cp.ndarray, cp.ndarray, cp.ndarray]:
    """Return the first item of each document; and for each item its hash, its mark and its prose, described in
    `measure_kernels.measure_lines`. The last three are empty if not `hashed`."""
    breaks = core.empty(out, np.int32, int(spans.ranks[BREAK, -1]))
    core.launch_shared(parts.place_breaks, spans.bits.shape[1], spans.bits, spans.ranks, breaks)
    before = spans.row_ranks[BREAK].astype(np.int64)
    item_starts = before - before[0] + cp.arange(before.size)
    items, size = int(item_starts[-1]), int(spans.offsets[-1] - spans.offsets[0])
    line_hash = core.empty(out, np.uint64, items * hashed)
    line_mark, line_prose = (core.empty(out, np.int32, items * hashed) for _ in range(2))
    long_lines = core.empty(out, np.int32, size // parts.LONG_PIECE + 1, 3)
    num_long = cp.zeros(1, np.int32)
    core.launch(
        parts.measure_lines, items, *spans[:8], item_starts, breaks, *spans[8:], hashed, longest, line_hash, line_mark,
        line_prose, long_lines, num_long, out,
    )  # fmt: skip
    long_lines = long_lines[: int(num_long[0])]
    if long_lines.size:
        pieces, rows = pieces_of((long_lines[:, 2] - long_lines[:, 1]).astype(np.int64), parts.LONG_PIECE)
        arguments = spans.data, spans.blocks, spans.origin, long_lines, pieces, rows, line_hash
        core.launch(parts.hash_pieces, rows.size, *arguments)
    return item_starts, line_hash, line_mark, line_prose


# Repetition


def _in_classes(counts: cp.ndarray, limits: Sequence[int]) -> list[cp.ndarray]:
    """Divide documents with items into classes by their number of items. A class ends at each of `limits`; the last
    class has the documents above all limits."""
    bounds = [0, *limits, LARGEST]
    return [cp.flatnonzero((counts > low) & (counts <= high)) for low, high in itertools.pairwise(bounds)]


def _table(counts: cp.ndarray) -> tuple[cp.ndarray, cp.ndarray]:
    """Allocate an empty hash table for each document, by its number of items in `counts`. Return the start of each
    table, and one array with all tables."""
    starts = core.starts_of(core.table_slots(counts))
    return starts, cp.full(int(starts[-1]), repetition.EMPTY, np.uint32)


def _count_items(
    item_starts: cp.ndarray, hashes: cp.ndarray, lengths: cp.ndarray, measure: Measure, out: cp.ndarray
) -> None:
    counts = item_starts[1:] - item_starts[:-1]
    small, long = _in_classes(counts, (repetition.SMALL_SLOTS // 2,))
    items = item_starts, hashes, lengths
    launch_teams(repetition.repeat_items_small, repetition.SMALL_THREADS, small, *items, int(measure), out)
    if long.size:
        pieces, docs = pieces_of(counts[long], long_repetition.PIECE)
        arguments = item_starts, pieces, docs, long, *_table(counts[long]), hashes, lengths, int(measure), out
        launch_warps(long_repetition.repeat_long_items, docs, *arguments)


def _without_fenced(item_starts: cp.ndarray, line_prose: cp.ndarray) -> cp.ndarray:
    """Return `line_prose` with -1 at fences and lines of fenced code."""
    fences, edges = cp.flatnonzero(line_prose < -1), cp.zeros(line_prose.size, np.int32)
    starts = cp.searchsorted(fences, item_starts)
    core.launch(parts.pair_fences, starts.size - 1, starts, fences, line_prose, edges)
    return cp.where(core.prefix_sums(edges, np.int32) > 0, np.int32(-1), cp.maximum(line_prose, np.int32(-1)))


def _count_lines(
    item_starts: cp.ndarray, line_hash: cp.ndarray, line_mark: cp.ndarray, line_prose: cp.ndarray, out: cp.ndarray
) -> None:
    """Write the measures of lines and paragraphs that repeat, and of lines of prose."""
    _count_items(item_starts, line_hash, line_mark >> 1, Measure.duplicate_lines, out)
    line_prose = _without_fenced(item_starts, line_prose)
    is_prose = (line_prose >= 0).astype(np.int32)
    for measure, counts in ((Measure.prose_lines, is_prose), (Measure.prose_line_characters, line_prose * is_prose)):
        sums = core.starts_of(counts)
        out[measure] = sums[item_starts[1:]] - sums[item_starts[:-1]]
    _count_items(item_starts, line_hash, line_prose, Measure.duplicate_prose_lines, out)
    is_line, is_first = line_mark >= 0, (line_mark >= 0) & (line_mark & 1 == 1)
    starts, paragraphs = cp.flatnonzero(is_first), core.prefix_sums(is_first, np.int32)
    hashes, lengths = cp.zeros(starts.size, np.uint64), cp.zeros(starts.size, np.int32)
    lines = core.prefix_sums(is_line, np.int32)
    core.launch(parts.add_lines, line_mark.size, line_hash, line_mark, lines, paragraphs, starts, hashes, lengths)
    before = cp.searchsorted(starts, item_starts)
    _count_items(before, hashes, lengths, Measure.duplicate_paragraphs, out)


def _count_words(
    spans: WordSpans, plan: MeasureParts, word_hash: cp.ndarray, word_end: cp.ndarray, out: cp.ndarray
) -> tuple[cp.ndarray, cp.ndarray]:
    """Write the measures of words and n-grams that repeat. Return the characters of the top 2- to 4-grams, and the
    documents that the device could not measure."""
    counts = count_per_row(spans, WORD)
    top_characters = cp.zeros((3, counts.size), np.int64)
    words = word_hash.size
    arguments = spans.row_ranks, plan.max_ngram, plan.coverage, plan.first_duplicates, word_hash, word_end
    small, medium, large, long = _in_classes(counts, (team.SMALL_WORDS, team.MEDIUM_WORDS, team.LARGE_WORDS))
    launch_teams(team.repeat_words_small, team.SMALL_THREADS, small, *arguments, top_characters, out)
    launch_teams(team.repeat_words_medium, team.MEDIUM_THREADS, medium, *arguments, top_characters, out)
    if large.size:
        word_group, group, firsts, active = (core.empty(out, np.int32, words) for _ in range(4))
        scratch = word_group, group, core.empty(out, np.uint32, words), firsts, active
        launch_teams(team.repeat_words_large, team.LARGE_THREADS, large, *arguments, *scratch, top_characters, out)
        del word_group, group, firsts, active, scratch
    if long.size == 0:
        return top_characters, long
    return top_characters, _count_long(spans, plan, counts, long, word_hash, word_end, top_characters, out)


class _Long(NamedTuple):
    """The long documents of a batch, as the first arguments of kernels; `long_repetition_kernels` says what each is."""

    firsts: cp.ndarray
    counts: cp.ndarray
    starts: cp.ndarray
    chunks: cp.ndarray
    pieces: cp.ndarray
    docs: cp.ndarray


def _visit(n: int, repeated: cp.ndarray, seen: cp.ndarray, visited: cp.ndarray) -> None:
    """Mark the n-grams that the greedy walk visits, if `seen` marks exactly those that equal an earlier visited
    n-gram."""
    functions = cp.empty(seen.size, np.uint64)
    core.launch(long_repetition.leave_chunks, seen.size, n, seen, functions)
    entries = core.entries_of(n, functions)
    core.launch(long_repetition.visit_chunks, seen.size, n, repeated, seen, entries, visited)


def _walk(
    n: int, long: _Long, repeated: cp.ndarray, group: cp.ndarray, lowest: cp.ndarray
) -> tuple[cp.ndarray, cp.ndarray, cp.ndarray]:
    """Return the n-grams that the greedy walk visits, the n-grams seen before, and the documents for which WALK_ROUNDS
    rounds were too few. See `repetition_kernels.add_duplicates`."""
    seen, visited = (cp.zeros(repeated.size, np.uint32) for _ in range(2))
    changed = cp.zeros(long.counts.size, bool)
    layout = long[1:]
    launch_warps(long_repetition.note_visits, long.docs, *layout, repeated, group, lowest)
    launch_warps(long_repetition.note_seen, long.docs, *layout, repeated, visited, group, lowest, seen, changed)
    changed[:] = True
    for _ in range(repetition.WALK_ROUNDS):
        _visit(n, repeated, seen, visited)
        lowest.fill(repetition.NOT_VISITED)
        changed[:] = False
        launch_warps(long_repetition.note_visits, long.docs, *layout, visited, group, lowest)
        launch_warps(long_repetition.note_seen, long.docs, *layout, repeated, visited, group, lowest, seen, changed)
        if not changed.any():
            break
    return visited, seen, changed


def _count_long(
    spans: WordSpans, plan: MeasureParts, counts: cp.ndarray, rows: cp.ndarray, word_hash: cp.ndarray,
    word_end: cp.ndarray, top_characters: cp.ndarray, out: cp.ndarray,
) -> cp.ndarray:  # fmt: skip
    """Write the measures of `_count_words` for documents that are too long for a block; return those whose greedy walk
    did not settle."""
    counts, firsts = counts[rows], spans.row_ranks[WORD][rows].astype(np.int64)
    starts, chunks = core.starts_of(counts), core.starts_of(counts // 32 + 2)
    long = _Long(firsts, counts, starts, chunks, *pieces_of(counts, long_repetition.PIECE))
    words, size = int(starts[-1]), int(chunks[-1])
    table, hashes = _table(counts), core.empty(out, np.uint64, words)
    group, lowest = (core.empty(out, np.int32, words) for _ in range(2))
    tops = cp.full((rows.size, 3), repetition.ONE_FIRST, np.int64)
    active, unsettled = cp.zeros(0, np.uint32), cp.zeros(rows.size, bool)
    texts = *long[:2], *long[3:], rows, spans.row_ranks
    for n in range(1, max(plan.max_ngram, 1) + 1):
        repeated, any_repeats = cp.zeros(size, np.uint32), cp.zeros(1, np.int32)
        lowest.fill(0)
        keys = word_hash if n == 1 else hashes
        arguments: tuple[Any, ...] = rows, *table, n, keys, active, group, lowest, repeated, any_repeats, out
        launch_warps(long_repetition.claim_ngrams, long.docs, *long, *arguments)
        if not int(any_repeats[0]):
            break
        if 2 <= n <= 4:
            launch_warps(long_repetition.find_tops, long.docs, *long[1:], n, repeated, group, lowest, tops)
        if n > 4 and plan.coverage:
            launch_warps(long_repetition.add_covered, long.docs, *texts, n, word_end, repeated, out)
        if n >= plan.first_duplicates:
            lowest.fill(repetition.NOT_VISITED)
            visited, seen, changed = _walk(n, long, repeated, group, lowest)
            unsettled |= changed
            launch_warps(long_repetition.add_duplicates, long.docs, *texts, n, word_end, visited, seen, out)
        following = cp.zeros(size, np.uint32)
        arguments = *table, n, word_hash, active, repeated, group, hashes, following
        launch_warps(long_repetition.prepare_ngrams, long.docs, *long, *arguments)
        active = following
    arguments = plan.max_ngram, word_end, tops, top_characters, out
    core.launch(long_repetition.write_long_tops, rows.size, firsts, counts, rows, spans.row_ranks, *arguments)
    return rows[unsettled]


def launch_teams(kernel: Any, threads: int, rows: cp.ndarray, *arguments: Any) -> None:
    """Run a kernel with one block of `threads` threads per listed row."""
    if rows.size:
        core.launch_teams(kernel, rows.size, threads, rows, *arguments)


def _sum_ranks(spans: WordSpans, out: cp.ndarray) -> None:
    """Write the measures that are differences of ranks, and those that are sums of other measures."""
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
    out[Measure.num_5characters] = cp.maximum(sums[LEAD] - 4, 0)
    out[Measure.num_10characters] = cp.maximum(sums[LEAD] - 9, 0)


def batch_bytes(names: Sequence[str]) -> int:
    """Return the memory that a batch takes per byte of text."""
    lengths = LENGTHS_BYTES * any(name in OF_WORD_LENGTHS for name in names)
    return BATCH_BYTES + max(lengths, STRINGS_BYTES * any(name in REPEATED_SIZES for name in names))


def measure_batch(
    data: cp.ndarray, offsets: cp.ndarray, valid: cp.ndarray, unicode: UnicodeTables, lanes: tuple, names: Sequence[str]
) -> tuple[cp.ndarray, cp.ndarray]:
    """Return the measures `names` (int32, or int64 if one of OF_TOPS needs it; (names, rows)), and the documents that
    the device could not measure.

    unicode, lanes   the tables of `tables` and `words.character_lanes`, on the device
    """
    out = cp.zeros((NUM_MEASURES, valid.size), np.int32)
    marks, plan = any(name in OF_MARKS for name in names), wanted(tuple(names))
    classes = *unicode[:2], lanes[0]
    spans = find_spans(data, offsets, valid, unicode[:3], lanes[0], marks)
    word_hash, word_end = _measure_words(spans, out)
    if marks:
        _count_urls(spans, classes, out)
    if any(name in OF_WORD_LENGTHS for name in names):
        kinds.count_lengths(spans, word_end, out)
    if any(name in OF_WORD_CASES for name in names):
        kinds.count_cases(spans, unicode[:4], out)
    if any(name in OF_NON_SYMBOLS for name in names):
        kinds.count_non_symbol_words(spans, classes, out)
    if "stop_word_count" in names:
        kinds.count_stop_words(spans, out)
    top_characters, unsettled = None, cp.zeros(0, np.int64)
    if plan.distinct or plan.max_ngram:
        top_characters, unsettled = _count_words(spans, plan, word_hash, word_end, out)
    if any(name in OF_CLASSES or name in OF_SYMBOLS for name in names):
        _count_classes(spans, classes, lanes[1], out)
    if any("line" in name or "paragraph" in name for name in names):
        lines = _measure_lines(spans, plan.lines, "max_line_characters" in names, out)
        if plan.lines:
            _count_lines(*lines, out)
    _sum_ranks(spans, out)
    for name in REPEATED_SIZES:
        if name in names:
            too_long = kinds.count_repeated(spans, REPEATED_SIZES[name], name, out)
            unsettled = cp.concatenate((unsettled, too_long))
    result = out[cp.asarray([int(Measure[name]) for name in names])]
    tops = [name for name in names if name in OF_TOPS]
    if top_characters is not None and tops:
        if valid.size and int(top_characters.max()) > LARGEST:
            result = result.astype(np.int64)
        for name in tops:
            result[names.index(name)] = top_characters[OF_TOPS.index(name)]
    return result, unsettled
