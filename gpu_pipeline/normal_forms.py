# SPDX-License-Identifier: Apache-2.0
"""The documents that a Unicode normal form changes. The device finds and joins their spans, the host normalises these,
and the device puts them into the documents. `curation.kernels.normalization` says what a span is.
"""

from typing import NamedTuple

import cupy as cp
import numpy as np

from curation.kernels.normalization import SEPARATOR, NormalSpans, normalize_spans
from curation.kernels.rewrite import FORM_FLAGS
from gpu_pipeline.columns import TextColumn, documents_of, in_batches, pieces_of
from gpu_pipeline.kernels import core, text_kernels
from gpu_pipeline.kernels.document_kernels import DocumentBytes, copied_documents
from gpu_pipeline.kernels.text_kernels import UnstableRuns
from gpu_pipeline.memory.buffers import download, upload

RUN_BYTES = 16  # of device memory for the places of a run
SPAN_BYTES = 360  # for the places of a span, the three parts of a document that are copied for it, and their pieces


class Spans(NamedTuple):
    """The spans of some documents, three int64 arrays: the document of each, its first byte, and the byte after its
    last one."""

    rows: cp.ndarray
    starts: cp.ndarray
    stops: cp.ndarray


def _copied(
    text: DocumentBytes, sources: cp.ndarray, sizes: cp.ndarray, form: cp.ndarray, normal: DocumentBytes
) -> DocumentBytes:
    """Return parts of texts, back to back. Part k has sizes[k] bytes: of `text` from byte sources[k] on, or of the item
    form[k] of `normal` if that is not negative."""
    starts = core.starts_of(sizes)
    return copied_documents(text._replace(offsets=sources), form, normal, starts, *pieces_of(starts, sizes > 0))


def _placed(text: DocumentBytes, runs: UnstableRuns, first_run: int, end_run: int, block: int, end_block: int) -> Spans:
    """Return the spans of the runs from `first_run` to `end_run` - 1; these are in the blocks of eight bytes from
    `block` to `end_block` - 1."""
    edges = cp.empty((end_run - first_run, 2), np.uint64)
    place = runs.origin, block, end_block, runs.edges, runs.ranks, 2 * first_run
    core.launch_shared(core.place_items, end_block - block, *place, edges.ravel())
    ends = edges.view(np.int64)[runs.failing[first_run:end_run] != 0]
    starts, stops = ends[:, 0].copy(), ends[:, 1] + 1
    rows = cp.searchsorted(text.offsets, starts, side="right") - 1
    core.launch_shared(text_kernels.begin_spans, starts.size, text.data, text.offsets[rows], starts)
    return Spans(rows, starts, stops)


def _joined(text: DocumentBytes, spans: Spans) -> np.ndarray:
    """Return the spans on the host, each followed by a separator."""
    separator = documents_of(cp.full(1, SEPARATOR, np.uint8), cp.zeros(1, np.int64))
    shape = spans.rows.size, 2
    sources, sizes, form = cp.zeros(shape, np.int64), cp.ones(shape, np.int64), cp.zeros(shape, np.int64)
    sources[:, 0], sizes[:, 0], form[:, 0] = spans.starts, spans.stops - spans.starts, -1
    return download(_copied(text, sources.ravel(), sizes.ravel(), form.ravel(), separator).data)


def _replaced(text: DocumentBytes, spans: Spans, normal: NormalSpans) -> tuple[cp.ndarray, DocumentBytes]:
    """Return the rows that have changed spans, and these documents with the normalised spans."""
    changed = cp.flatnonzero(cp.asarray(normal.changed))
    rows, starts, stops = (each[changed] for each in spans)
    is_first, is_last = cp.ones(rows.size, bool), cp.ones(rows.size, bool)
    is_first[1:] = rows[1:] != rows[:-1]
    is_last[:-1] = is_first[1:]
    gaps = cp.empty_like(stops)
    gaps[1:] = stops[:-1]
    gaps[is_first] = text.offsets[rows[is_first]]
    # Three parts for each span: the text before it, the span, and after the last span the rest of the document
    shape = rows.size, 3
    sources, sizes, form = cp.zeros(shape, np.int64), cp.zeros(shape, np.int64), cp.full(shape, -1, np.int64)
    sources[:, 0], sources[:, 2] = gaps, stops
    sizes[:, 0], sizes[:, 1] = starts - gaps, cp.asarray(np.diff(normal.offsets) - 1)[changed]
    sizes[:, 2] = cp.where(is_last, text.offsets[rows + 1] - stops, 0)
    form[:, 1] = changed
    items = documents_of(upload(normal.data), cp.asarray(normal.offsets))
    parts = _copied(text, sources.ravel(), sizes.ravel(), form.ravel(), items)
    firsts = cp.flatnonzero(is_first)
    starts_of_rows = cp.concatenate([parts.offsets[3 * firsts], parts.offsets[-1:]])
    return rows[firsts], parts._replace(offsets=starts_of_rows)


def normalised_documents(
    column: TextColumn, form: str, properties: tuple[cp.ndarray, ...]
) -> tuple[cp.ndarray, DocumentBytes]:
    """Return the rows that the form "nfc" or "nfkc" changes (int64, ascending), and their documents in this form. The
    form "keep" changes none.

    properties   pages, records, flags and combining of `tables.UnicodeTables`
    """
    text = documents_of(column.data, column.offsets)
    outputs = [(cp.zeros(0, np.int64), documents_of(cp.zeros(0, np.uint8), cp.zeros(1, np.int64)))]
    runs = None
    if form != "keep":
        runs = text_kernels.find_runs(*text, column.valid, FORM_FLAGS[form], properties)
    if runs is None:
        return outputs[0]
    offsets, first_runs = cp.asnumpy(column.offsets), cp.asnumpy(runs.row_ranks)

    def run(first: int, last: int) -> None:
        blocks = offsets[first] // 8, -(-offsets[last] // 8)
        spans = _placed(text, runs, *map(int, (*first_runs[[first, last]], *blocks)))
        if spans.rows.size:
            normal = normalize_spans(_joined(text, spans), spans.rows.size, form)
            if normal.changed.any():
                outputs.append(_replaced(text, spans, normal))

    first_spans = core.starts_of(runs.failing.astype(np.int64))[runs.row_ranks]
    copied = core.starts_of(cp.where(first_spans[1:] > first_spans[:-1], column.lengths, 0))
    in_batches(cp.asnumpy(RUN_BYTES * runs.row_ranks + SPAN_BYTES * first_spans + copied), column.bytes, run)
    if len(outputs) <= 2:
        return outputs[-1]
    sizes = [documents.offsets[1:] - documents.offsets[:-1] for _, documents in outputs]
    data = cp.concatenate([documents.data for _, documents in outputs])
    return cp.concatenate([rows for rows, _ in outputs]), documents_of(data, core.starts_of(cp.concatenate(sizes)))
