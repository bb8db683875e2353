# SPDX-License-Identifier: Apache-2.0
"""The spans that `substring_dedup` cuts: from repeated bytes to whole characters, lines or sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow.compute as pc

from curation.base.arrays import sorted_unique
from curation.kernels.span_keys import span_keys
from curation.kernels.spans import spans_of_mask
from curation.stages.corpus.cutting import CONTINUES, FIRST_BITS
from curation.stages.exact.span_blocks import text_buffers
from curation.stages.exact.unit_cuts import characters_of
from curation.stages.exact.unit_keys import TextBuffers
from curation.stages.outcome import Cuts

if TYPE_CHECKING:
    from curation.stages.outcome import Corpus

CHARACTERS = "characters"
BOUNDS = {CHARACTERS: "", "lines": "line", "sentences": "sentence"}  # -> unit


class CutSpans(NamedTuple):
    """Counts of what a task cuts, for the report. `left` counts the characters that were left in removed documents."""

    spans: int = 0
    bytes: int = 0
    characters: int = 0
    emptied: int = 0  # documents with an empty text after the cuts
    left: int = 0
    documents: int = 0  # kept documents with a cut

    def plus(self, other: CutSpans) -> CutSpans:
        """Return the numbers of two tasks together."""
        return CutSpans(*(one + more for one, more in zip(self, other, strict=True)))


class DocumentCuts(NamedTuple):
    """The cuts of some documents.

    cuts     spans of the documents that stay
    dropped  rows of the documents that are removed, because too little is left
    left     number of characters that are left in each removed document
    keys     keys of the spans, by `span_keys`
    """

    cuts: Cuts
    dropped: np.ndarray
    left: np.ndarray
    keys: np.ndarray
    found: CutSpans


def cut_documents(
    documents: Corpus, mask: np.ndarray, length: int, bounds: str, join: int, min_kept: int
) -> Iterator[DocumentCuts]:  # fmt: skip
    """Yield the cuts of the documents of a block, in order. `mask` tells for each byte of the documents whether it is
    repeated.

    Texts without repeated bytes are not read."""
    offsets = np.cumsum(np.append(0, documents.byte_lengths()))
    spans = spans_of_mask(mask, offsets, length, join)
    wanted, done = sorted_unique(spans[:, 0]), 0
    for read in documents.texts(wanted):
        texts = read()
        buffers = text_buffers(texts)
        own = wanted[done : done + len(texts)]
        done += len(texts)
        low, high = np.searchsorted(spans[:, 0], [own[0], own[-1] + 1])
        text = np.searchsorted(own, spans[low:high, 0])
        shift = (offsets[own] - buffers.offsets[:-1])[text]
        start, stop = spans[low:high, 1] - shift, spans[low:high, 2] - shift
        start, stop = shrunk(buffers, text, start, stop, bounds)
        whole = start < stop
        text, start, stop = text[whole], start[whole], stop[whole]
        sizes = characters_of(buffers.data, start, stop)
        left = pc.utf8_length(texts).fill_null(0).to_numpy() - np.bincount(text, sizes, len(texts)).astype(np.int64)
        is_cut = np.zeros(len(texts), bool)
        is_cut[text] = True
        dropped = is_cut & (left < min_kept)
        stays = ~dropped[text]
        text, start, stop, sizes = text[stays], start[stays], stop[stays], sizes[stays]
        emptied = np.count_nonzero(is_cut & ~dropped & (left == 0))
        sums = len(text), (stop - start).sum(), sizes.sum(), emptied, left[dropped].sum(), (is_cut & ~dropped).sum()
        rows, first = documents.rows[own], buffers.offsets[text]
        cuts = Cuts(rows[text].astype(np.int64), start - first, stop - first)
        keys = span_keys(buffers.data, start, stop, length)
        yield DocumentCuts(cuts, rows[dropped].astype(np.int64), left[dropped], keys, CutSpans(*map(int, sums)))


def shrunk(
    buffers: TextBuffers, text: np.ndarray, start: np.ndarray, stop: np.ndarray, bounds: str
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return spans reduced to whole characters, lines or sentences. A result may be empty or have a stop before its
    start. `text` is the number of the text of each span."""
    if BOUNDS[bounds]:
        units = buffers.units(BOUNDS[bounds])
        begins, ends = np.append(units.spans[:, 0], 0), np.append(units.ends(buffers.offsets), 0)
        first = np.searchsorted(begins[:-1], start)
        last = np.searchsorted(ends[:-1], stop, side="right") - 1
        return np.where(first <= last, begins[first], 0), np.where(first <= last, ends[last], 0)
    data, end = buffers.data, buffers.offsets[1:][text]
    for _ in range(3):  # a character has at most three bytes after its first
        start = start + ((data[np.minimum(start, end - 1)] & FIRST_BITS) == CONTINUES)
        stop = stop - ((stop < end) & ((data[np.minimum(stop, end - 1)] & FIRST_BITS) == CONTINUES))
    return start, stop
