# SPDX-License-Identifier: Apache-2.0
"""The spans of texts that `line_dedup` cuts, in bytes, computed from the verdicts about keys of units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.stages.exact.unit_keys import UnitSettings, buffers_of
from curation.stages.outcome import Cuts

if TYPE_CHECKING:
    from curation.stages.outcome import Corpus

# Verdicts about a key in a block. They say which units with the key are cut: none; all but the first; all, if there
# are several; all; all, because the index of an earlier run has the key.
KEPT, FIRST_KEPT, ONE_KEPT, CUT, CUT_BY_INDEX = range(5)


class CutUnits(NamedTuple):
    """Counts of what a run cuts, for the report."""

    units: int = 0
    cut: int = 0
    by_index: int = 0
    characters: int = 0
    emptied: int = 0  # documents with an empty text after the cuts

    def plus(self, other: CutUnits) -> CutUnits:
        """Return the numbers of two tasks together."""
        return CutUnits(*(one + more for one, more in zip(self, other, strict=True)))


def units_to_cut(places: np.ndarray, verdicts: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for each unit whether it is cut, and whether it is cut because of the index. `places` (one per unit) and
    `verdicts` (one per key) are those of a block."""
    verdict = np.append(verdicts, np.uint8(KEPT))[places]
    if ONE_KEPT in verdict:
        verdict[(verdict == ONE_KEPT) & (np.bincount(places + 1)[places + 1] > 1)] = CUT
    first = np.zeros(len(verdicts) + 1, np.int32)  # first unit of each key; the last element is for units without a key
    first[places[::-1]] = np.arange(len(places) - 1, -1, -1, dtype=np.int32)
    is_first = first[places] == np.arange(len(places), dtype=np.int32)
    by_index = verdict == CUT_BY_INDEX
    cut = by_index | (verdict == CUT) | ((verdict == FIRST_KEPT) & ~is_first)
    return _windows(cut, window), _windows(by_index, window)


def _windows(first: np.ndarray, window: int) -> np.ndarray:
    """Return whether each unit is in a window that begins at a unit where `first` is true."""
    inside = first.copy()
    for step in range(1, min(window, len(first))):
        inside[step:] |= first[:-step]
    return inside


def cut_spans(
    part: Corpus, counts: np.ndarray, cut: np.ndarray, compared: UnitSettings
) -> Iterator[tuple[Cuts, int, int]]:  # fmt: skip
    """Yield the spans of a batch of texts, their characters, and the number of documents whose text becomes empty.

    part    documents
    counts  number of units of each document
    cut     whether each unit is cut

    Texts without cuts are not read. Adjacent units are one span."""
    document = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    changed = np.zeros(len(counts), bool)
    changed[document[cut]] = True
    cut, rows = cut[changed[document]], part.rows[changed]
    for read in part.texts(np.flatnonzero(changed)):
        texts = read()
        buffers = buffers_of(texts)
        units = buffers.units(compared.unit)
        flags, cut, own, rows = *np.split(cut, [len(units.spans)]), *np.split(rows, [len(texts)])
        text = units.texts()
        begins = flags & ~(np.append(False, flags[:-1]) & np.append(True, text[1:] == text[:-1]))
        ends = flags & ~(np.append(flags[1:], False) & np.append(text[1:] == text[:-1], True))
        start, stop = units.spans[begins, 0], units.ends(buffers.offsets)[ends]
        text = text[begins]
        left = np.diff(buffers.offsets) - np.bincount(text, stop - start, len(texts)).astype(np.int64)
        spans = Cuts(own[text], start - buffers.offsets[text], stop - buffers.offsets[text])
        yield spans, int(characters_of(buffers.data, start, stop).sum()), int(np.count_nonzero(left == 0))


def characters_of(data: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Return the number of characters in each of some ascending spans of `data`."""
    if not len(start):
        return np.zeros(0, np.int64)
    edges = pa.py_buffer(np.stack([start, stop], 1))
    pieces = pa.LargeStringArray.from_buffers(2 * len(start) - 1, edges, pa.py_buffer(data))
    return np.asarray(pc.utf8_length(pieces).to_numpy()[::2])
