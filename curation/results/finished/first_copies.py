# SPDX-License-Identifier: Apache-2.0
"""Finds the first copy of repeated spans of some texts, to show people why `substring_dedup` cut them.

A run stores the spans that it cuts, but not the positions of their copies. So the kept documents before the last of the
texts are read again, in order. They are compared by the anchors of the stage (`curation.kernels.spans`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from curation.base.arrays import as_large_strings, batches_by_size, text_buffers
from curation.base.contract import ID, TEXT
from curation.kernels.spans import fill_spans, new_anchors, spans_of_mask
from curation.record.tables import TablePart
from curation.results.finished.results import FinishedRun
from curation.stages.exact.span_cuts import shrunk
from curation.stages.exact.unit_keys import buffers_of

KIND = "substring_dedup"
MAX_TEXT_BYTES = 400_000  # bytes of a text that are compared
BATCH_BYTES = 4 << 20
MOST_BYTES = 1_000_000_000  # maximum bytes of kept text that are read


class FirstCopy(NamedTuple):
    """A repeated span of a text, and its first copy. `id` is the document with the first copy, and `first` is where the
    copy begins in the kept text of this document. If the first copy is in the same text, `first` is a position in this
    text. Positions are in bytes of UTF-8."""

    start: int
    stop: int
    id: str
    first: int


class _Shown(NamedTuple):
    """A text with its anchors. For each window of the text, `source` is the number of the document with the first copy
    (-1: not found). `shift` is the position of the copy minus the position of the window."""

    doc: int
    data: np.ndarray
    values: np.ndarray
    places: np.ndarray
    source: np.ndarray
    shift: np.ndarray


def first_copies(run: FinishedRun, rows: pa.Table, what: str) -> list[list[FirstCopy]]:
    """Return the repeated spans, ascending, for each row of `run_documents`. They are found in texts before a cut
    (`what` is "edited") and in documents that `substring_dedup` removed; other rows get empty lists.

    A first copy is found only if the first MOST_BYTES of `documents/` have all of it."""
    found: list[list[FirstCopy]] = [[] for _ in range(len(rows))]
    stages = {
        entry["name"]: settings
        for entry, settings in zip(run.report["stages"], run.report["recipe"]["stages"], strict=True)
        if settings["kind"] == KIND
    }
    column = {"edited": "text_before", "removed": TEXT}.get(what, "")
    if not stages or column not in rows.column_names or run.report["recipe"]["output"]["documents"] is not True:
        return found
    names = rows.column("stage").to_pylist() if what == "removed" else [next(iter(stages))] * len(rows)
    for name, settings in stages.items():
        chosen = [k for k, other in enumerate(names) if other == name]
        table = rows.take(pa.array(chosen, pa.int64()))
        texts = [(text or "").encode()[:MAX_TEXT_BYTES] for text in table.column(column).to_pylist()]
        length = settings["length"]
        shown = [_shown(*pair, length) for pair in zip(table.column("doc").to_pylist(), texts, strict=True)]
        ids = _search(run.parts("documents"), shown, length)
        for place, text, own in zip(chosen, texts, shown, strict=True):
            name_of = [*ids, rows.column(ID)[place].as_py()]
            found[place] = _spans(text, own, name_of, settings)
    return found


def _shown(doc: int, text: bytes, length: int) -> _Shown:
    data = np.frombuffer(text, np.uint8)
    values, places = new_anchors(data, np.array([0, len(data)]), length)
    windows = max(len(data) - length + 1, 0)
    return _Shown(doc, data, values, places, np.full(windows, -1), np.zeros(windows, np.int64))


def _search(files: Sequence[Path], shown: Sequence[_Shown], length: int) -> list[str]:
    """Fill in the first copies, and return the ids of their documents. In `source`, the number after the last id means
    the text itself."""
    ids: list[str] = []
    values = np.unique(np.concatenate([np.zeros(0, np.uint64), *(own.values for own in shown)]))
    for doc, id_, data, found, places in _kept_anchors(files, shown, values, length):
        number = len(ids)
        for own in shown:
            if own.doc > doc:
                at = np.flatnonzero(np.isin(own.values, found))
                for place in at.tolist():
                    for anchor in places[found == own.values[place], 2].tolist():
                        _match(own, place, data, anchor, number, length)
        if any((own.source == number).any() for own in shown):
            ids.append(id_)
    for own in shown:
        first: dict[int, list[int]] = {}
        for place, value in enumerate(own.values.tolist()):
            earlier = first.setdefault(value, [])
            for anchor in earlier:
                if _match(own, place, own.data, anchor, len(ids), length):
                    break
            else:
                earlier.append(int(own.places[place, 2]))
    return ids


def _match(own: _Shown, place: int, data: np.ndarray, anchor: int, number: int, length: int) -> bool:
    """Compare the windows of an anchor of a shown text with the text `data` of the document `number`. For windows that
    `data` contains too, record this document as the first copy, if they have none yet. Return whether all windows of
    the anchor have a first copy."""
    low, high, own_anchor = own.places[place].tolist()
    shift = anchor - own_anchor
    first, last = max(low, -shift), min(high + length, len(data) - shift)
    open_ = own.source[low : high + 1]
    if (open_ < 0).any() and last - first >= length:
        differs = np.flatnonzero(own.data[first:last] != data[first + shift : last + shift]) + first
        left, right = differs[differs < own_anchor], differs[differs >= own_anchor]
        start = int(left[-1]) + 1 if len(left) else first
        stop = int(right[0]) if len(right) else last
        windows = slice(start, max(stop - length + 1, start))
        new = own.source[windows] < 0
        own.source[windows][new] = number
        own.shift[windows][new] = shift
    return bool((open_ >= 0).all())


def _kept_anchors(
    files: Sequence[Path], shown: Sequence[_Shown], values: np.ndarray, length: int
) -> Iterator[tuple[int, str, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the kept documents before the last shown document that have an anchor with one of `values`: `doc`, id,
    bytes, and the values and places of these anchors."""
    last, size = max((own.doc for own in shown), default=0), 0
    for rows in _row_groups(files, last):
        texts = as_large_strings(rows.column(TEXT))
        data, offsets = text_buffers(texts)
        for batch in batches_by_size(offsets[1:] - offsets[0], BATCH_BYTES):
            bounds = offsets[batch.start : batch.stop + 1]
            found, places = new_anchors(data, bounds, length)
            chosen = np.flatnonzero(np.isin(found, values))
            of = np.searchsorted(bounds, places[chosen, 0], side="right") - 1
            for row in np.unique(of).tolist():
                start, stop = bounds[row : row + 2].tolist()
                at, k = chosen[of == row], batch.start + row
                doc, id_ = rows.column("doc")[k].as_py(), rows.column(ID)[k].as_py()
                yield doc, id_, data[start:stop], found[at], places[at] - start
            size += int(bounds[-1] - bounds[0])
            if size > MOST_BYTES:
                return


def _row_groups(files: Sequence[Path], last: int) -> Iterator[pa.Table]:
    """Yield `doc`, id and text of the row groups of `documents/` that begin before `last`, in ascending order."""
    groups = []
    for number, part in enumerate(map(TablePart, files)):
        groups += [((part.bounds(group) or (0, 0))[0], number, part.path, group) for group in part.groups]
    for first, _, path, group in sorted(groups):
        if first < last:
            yield TablePart(path).read(group, ["doc", ID, TEXT])


def _spans(text: bytes, own: _Shown, ids: Sequence[str], settings: dict[str, Any]) -> list[FirstCopy]:
    """Return the spans of a text that the stage cuts, divided where the first copy changes to another position."""
    length, windows = settings["length"], np.flatnonzero(own.source >= 0)
    if not len(windows):
        return []
    mask = np.zeros(len(own.data), np.uint8)
    fill_spans(mask, windows, windows + length)
    whole = text.decode(errors="ignore")  # the last character may be cut
    buffers = buffers_of(pa.array([whole], pa.large_string()))
    cut = spans_of_mask(mask[: len(buffers.data)], buffers.offsets, length, settings.get("join", 0))
    bounds = settings.get("bounds", "characters")
    starts, stops = shrunk(buffers, cut[:, 0], cut[:, 1], cut[:, 2], bounds)
    source, shift = own.source[windows], own.shift[windows]
    begins = (np.diff(windows) > 1) | (np.diff(source) != 0) | (np.diff(shift) != 0)
    firsts = np.flatnonzero(np.append(True, begins))
    lasts = np.append(firsts[1:], len(windows)) - 1
    found, done = [], 0
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        low, high = max(int(windows[first]), done), int(windows[last]) + length
        done = high
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            start, stop = max(start, low), min(stop, high)
            if start < stop:
                found.append(FirstCopy(start, stop, ids[source[first]], start + int(shift[first])))
    return found
