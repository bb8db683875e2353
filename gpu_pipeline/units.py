# SPDX-License-Identifier: Apache-2.0
"""Units of texts (`curation.kernels.units`) as rows of a frame, and texts without some of their units.

Batches have the masks and ranks of `measures`. Lines are found by line breaks, sentences by words. The kernels that
copy documents also copy units and texts.
"""

from typing import TYPE_CHECKING, NamedTuple

import cudf
import cupy as cp
import numpy as np

from curation.base.contract import TEXT, UnitFrame
from curation.kernels.units import LINE, SENTENCE, find_units
from gpu_pipeline import columns, measures
from gpu_pipeline.columns import (
    TextColumn,
    device_tables,
    documents_of,
    in_batches,
    load_column,
    pieces_of,
)
from gpu_pipeline.functions.spans import BREAK, WORD
from gpu_pipeline.kernels import core, unit_kernels
from gpu_pipeline.kernels import measure_kernels as parts
from gpu_pipeline.kernels.document_kernels import DocumentBytes, copied_documents
from gpu_pipeline.memory.buffers import download, series_of, string_array
from gpu_pipeline.memory.device import on_device

if TYPE_CHECKING:
    from gpu_pipeline.measures import WordSpans


class UnitSpans(NamedTuple):
    """The units of a column; each array is int64, with one item per unit. `curation.kernels.units` describes the first
    three.

    rows           document
    firsts, stops  content
    ends           the byte after the unit
    inner          content without white space at its ends: firsts and stops
    """

    starts: cp.ndarray
    firsts: cp.ndarray
    stops: cp.ndarray
    ends: cp.ndarray
    rows: cp.ndarray
    inner: tuple[cp.ndarray, cp.ndarray]


def _find_lines(spans: "WordSpans") -> tuple[cp.ndarray, ...]:
    """Return four arrays of lines: first byte, byte after the content, kind, and document."""
    breaks = core.empty(spans.offsets, np.int32, int(spans.ranks[BREAK, -1]))
    core.launch_shared(parts.place_breaks, spans.bits.shape[1], spans.bits, spans.ranks, breaks)
    before = spans.row_ranks[BREAK].astype(np.int64)
    item_starts = before - before[0] + cp.arange(before.size)
    items = int(item_starts[-1])
    firsts, stops, rows = (core.empty(spans.offsets, np.int64, items) for _ in range(3))
    kinds = core.empty(spans.offsets, np.int32, items)
    core.launch(
        unit_kernels.find_lines, items, spans.data, *spans[2:8], item_starts, breaks, firsts, stops, kinds, rows
    )
    lines = cp.flatnonzero(kinds != unit_kernels.NO_LINE)
    return firsts[lines], stops[lines], kinds[lines], rows[lines]


def _join_lines(firsts: cp.ndarray, stops: cp.ndarray, kinds: cp.ndarray, rows: cp.ndarray) -> tuple[cp.ndarray, ...]:
    """Return three arrays of paragraphs: first byte, byte after the content, and document."""
    is_text = kinds == unit_kernels.TEXT_LINE
    follows = is_text[1:] & is_text[:-1] & (rows[1:] == rows[:-1])  # a line that continues the paragraph before it
    is_first, is_last = is_text.copy(), is_text.copy()
    is_first[1:] &= ~follows
    is_last[:-1] &= ~follows
    first = cp.flatnonzero(is_first)
    return firsts[first], stops[cp.flatnonzero(is_last)], rows[first]


def _find_sentences(spans: "WordSpans") -> tuple[cp.ndarray, ...]:
    """Return three arrays of sentences: first byte, byte after the content, and document."""
    words = spans.word_starts.size
    rows, is_start = core.empty(spans.offsets, np.int64, words), core.empty(spans.offsets, bool, words)
    word_spans = spans.word_starts, spans.word_ends
    core.launch(
        unit_kernels.mark_sentence_starts, words, spans.data, spans.offsets, spans.valid, spans.origin,
        spans.row_ranks, *word_spans, rows, is_start,
    )  # fmt: skip
    first = cp.flatnonzero(is_start)
    last_words = spans.row_ranks[WORD].astype(np.int64)[rows[first] + 1] - 1  # of the documents
    last = last_words.copy()
    last[:-1] = cp.minimum(last[:-1], first[1:] - 1)
    return spans.origin + spans.word_starts[first], spans.origin + spans.word_ends[last], rows[first]


def _find(column: TextColumn, first: int, last: int, unit: str, strip: bool) -> tuple[cp.ndarray, ...]:
    """Return firsts, stops, rows, inner firsts and inner stops of the units of the documents `first` to `last` - 1."""
    unicode, lanes = device_tables()
    documents = column.data, column.offsets[first : last + 1], column.valid[first:last]
    spans = measures.find_spans(*documents, unicode[:3], lanes[0], False)
    if unit == SENTENCE:
        firsts, stops, rows = _find_sentences(spans)
    else:
        firsts, stops, kinds, rows = _find_lines(spans)
        if unit != LINE:
            firsts, stops, rows = _join_lines(firsts, stops, kinds, rows)
    firsts, stops = firsts.astype(np.int64), stops.astype(np.int64)
    inner = firsts.copy(), stops.copy()
    if strip:
        word_spans = spans.word_starts, spans.word_ends
        core.launch(
            unit_kernels.strip_contents, firsts.size, spans.origin, spans.bits, spans.ranks, *word_spans, *inner
        )
    return firsts, stops, rows + first, *inner


def _find_on_host(text: "cudf.Series", column: TextColumn, unit: str, strip: bool) -> tuple[cp.ndarray, ...]:
    """Return the result of `_find` for a whole column, if one of its documents is too long for a batch."""
    from curation.kernels.units import stripped

    array = string_array(text)
    data, offsets = np.frombuffer(array.buffers()[2], np.uint8), np.frombuffer(array.buffers()[1], np.int64)
    units = find_units(data, offsets, array.is_valid().to_numpy(zero_copy_only=False), unit)
    moved = int(column.offsets[0]) - int(offsets[0])
    inner = stripped(data, units.spans) if strip else units.spans
    bytes_of = [values + moved for values in (*units.spans[:, 1:].T, *inner[:, 1:].T)]
    arrays = bytes_of[0], bytes_of[1], units.texts(), bytes_of[2], bytes_of[3]
    return tuple(cp.asarray(np.ascontiguousarray(values)) for values in arrays)


def _unit_spans(text: "cudf.Series", column: TextColumn, unit: str, strip: bool) -> UnitSpans:
    batches: list[tuple[cp.ndarray, ...]] = []
    if len(column.long):
        batches.append(_find_on_host(text, column, unit, strip))
    else:
        scratch = cp.asnumpy(column.offsets) * measures.BATCH_BYTES

        def run(first: int, last: int) -> None:
            batches.append(_find(column, first, last, unit, strip))

        in_batches(scratch, column.bytes, run, measures.BATCH_BYTES << 30)
    firsts, stops, rows, *inner = (cp.concatenate(each) for each in zip(*batches, strict=True))
    # A unit begins where the one before it ends; the first of a document begins with the document.
    starts, ends = firsts.copy(), column.offsets[rows + 1]
    is_first, is_last = cp.ones(rows.size, bool), cp.ones(rows.size, bool)
    is_first[1:], is_last[:-1] = rows[1:] != rows[:-1], rows[1:] != rows[:-1]
    starts[is_first] = column.offsets[rows[is_first]]
    inside = cp.flatnonzero(~is_last)
    ends[inside] = starts[inside + 1]
    return UnitSpans(starts, firsts, stops, ends, rows, (inner[0], inner[1]))


def _copied(column: TextColumn, begins: cp.ndarray, sizes: cp.ndarray) -> DocumentBytes:
    """Return parts of the text, one after the other."""
    source = documents_of(column.data, begins)
    starts = core.starts_of(sizes)
    from_text = cp.full(begins.size, -1, np.int64)
    pieces = pieces_of(starts, cp.ones(begins.size, bool))
    return copied_documents(source, from_text, documents_of(column.data[:0], starts[:1]), starts, *pieces)


@on_device()
def split_units(text: "cudf.Series", unit: str, strip: bool) -> UnitFrame:
    if len(text) == 0:
        rows = series_of(cp.zeros(0, np.uint8), cp.zeros(1, np.int64), cudf.RangeIndex(0))
        return UnitFrame(cudf.DataFrame({TEXT: rows}), np.zeros(0, np.int64), None)
    column = load_column(text, columns.LONG_MEASURED_BYTES)
    unit_spans = _unit_spans(text, column, unit, strip)
    firsts, stops = unit_spans.inner
    contents = _copied(column, firsts, stops - firsts)
    rows = series_of(contents.data, contents.offsets, cudf.RangeIndex(firsts.size))
    counts = cp.bincount(unit_spans.rows, minlength=len(text))
    return UnitFrame(cudf.DataFrame({TEXT: rows}), download(counts), unit_spans)


@on_device()
def join_units(text: "cudf.Series", units: UnitFrame, kept: np.ndarray) -> tuple["cudf.Series", np.ndarray]:
    edited = cp.zeros(len(text), bool)
    if len(kept) == 0:
        return text, download(edited)
    column, unit_spans = load_column(text, columns.LONG_MEASURED_BYTES), units.spans
    is_kept, (inner_firsts, inner_stops) = cp.asarray(kept), unit_spans.inner
    is_changed = ~is_kept | (inner_firsts != unit_spans.firsts) | (inner_stops != unit_spans.stops)
    edited[unit_spans.rows[is_changed]] = True
    mine = cp.flatnonzero(edited[unit_spans.rows])  # the units of edited documents
    if mine.size == 0:
        return text, download(edited)
    begins, sizes = (core.empty(column.offsets, np.int64, 3 * mine.size) for _ in range(2))
    spans = (unit_spans.starts, unit_spans.firsts), (inner_firsts, inner_stops), (unit_spans.stops, unit_spans.ends)
    for number, (low, high) in enumerate(spans):  # of a kept unit: the bytes before, in and after its content
        begins[number::3] = low[mine]
        sizes[number::3] = cp.where(is_kept[mine], high[mine] - low[mine], 0)
    form = _copied(column, begins, sizes)
    changed = cp.flatnonzero(edited)
    per_document = cp.bincount(unit_spans.rows[mine], minlength=len(text))[changed]
    form = form._replace(offsets=form.offsets[3 * core.starts_of(per_document)])
    form_row = cp.full(len(text), -1, np.int64)
    form_row[changed] = cp.arange(changed.size)
    lengths = column.lengths.copy()
    lengths[changed] = form.offsets[1:] - form.offsets[:-1]
    starts = core.starts_of(lengths)
    whole = documents_of(column.data, column.offsets)
    out = copied_documents(whole, form_row, form, starts, *pieces_of(starts, column.valid))
    return series_of(out.data, starts, text.index, column.nulls, text.name), download(edited)
