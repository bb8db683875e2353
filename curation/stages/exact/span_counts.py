# SPDX-License-Identifier: Apache-2.0
"""Counts of the spans that `substring_dedup` cuts: numbers by length, and the most frequent spans.

Spans with equal keys (`curation.kernels.span_keys`) count as copies of one span, because a few more bytes around a
repeated footer may repeat in some copies. A task per group of slices writes an entry per key, sorted into key ranges.
Each task of the next phase keeps the SHOWN most frequent keys of its ranges. Memory depends on the spans of a group of
slices, or of a range.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curation.base.system.sealed import read_sealed, write_sealed
from curation.stages.base import Phase
from curation.stages.corpus.key_ranges import (
    division_of,
    range_of,
    read_cell,
    reducer_count,
    slice_group_count,
    write_cells,
)

if TYPE_CHECKING:
    from curation.base.contract import Engine
    from curation.stages.outcome import Corpus, Cuts

FREQUENT = "frequent"  # phase
SHOWN = 50
SHOWN_CHARACTERS = 200  # of the text of a span
# A key, the number of its spans, and of the shortest span its bytes, its row, and its first byte in the row
ENTRY = np.dtype([("key", "u8"), ("count", "i8"), ("size", "i8"), ("row", "i8"), ("start", "i8")])


def count_by_length(cuts: Cuts, length: int) -> list[list[int]]:
    """Return the number of spans and their bytes for ranges of lengths: below `length`, from `length` to below its
    double, and so on."""
    sizes = cuts.stop - cuts.start
    places = np.searchsorted(length << np.arange(40), sizes, side="right")
    counts = np.bincount(places)
    return [[int(count), int(sum_)] for count, sum_ in zip(counts, np.bincount(places, sizes), strict=True)]


def add_lengths(left: list[list[int]], right: list[list[int]]) -> list[list[int]]:
    """Return the sums of two results of `count_by_length`."""
    more, less = (left, right) if len(left) > len(right) else (right, left)
    return [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(more, less, strict=False)] + more[len(less) :]


def length_names(length: int, count: int) -> list[str]:
    """Return the names of the first `count` entries of `count_by_length`."""
    return [
        f"{length << (place - 1):,} to {(length << place) - 1:,}" if place else f"below {length:,}"
        for place in range(count)
    ]


def write_entries(corpus: Corpus, path: Path, cuts: Cuts, keys: np.ndarray) -> None:
    """Write an entry per distinct key of these spans, which are in a group of slices: one cell per key range."""
    entries = np.empty(len(keys), ENTRY)
    entries["key"], entries["count"] = keys, 1
    entries["size"], entries["row"], entries["start"] = cuts.stop - cuts.start, cuts.row, cuts.start
    entries, ranges = _joined(entries), division_of(corpus).ranges
    numbers = range_of(entries["key"], ranges)
    entries = entries[np.argsort(numbers, kind="stable")]
    bounds = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=ranges))]).tolist()
    write_cells(path, ([entries[low:high]] for low, high in pairwise(bounds)), ranges)


def frequent_phase(folder: str) -> Phase:
    """Return the phase that finds the most frequent spans; `folder` has a file of `write_entries` per group of
    slices."""
    return Phase(FREQUENT, reducer_count, partial(_find_frequent, folder=folder), durable=True)


def entries_path(corpus: Corpus, folder: str, group: int) -> Path:
    """Return the file of the entries of a group of slices."""
    return corpus.scratch / folder / f"{group:06d}.bin"


def frequent_spans(corpus: Corpus) -> list[dict[str, Any]]:
    """Return the most frequent spans, most frequent first. An entry has `count`, the `bytes` of the shortest copy, and
    `text`, the first SHOWN_CHARACTERS of this copy."""
    found = [read_sealed(_frequent_path(corpus, reducer)) for reducer in range(reducer_count(corpus))]
    entries = _most_frequent(np.array([tuple(entry) for part in found for entry in part], ENTRY))
    rows, starts, texts = entries["row"], entries["start"], [""] * len(entries)
    wanted = np.unique(rows)
    owner, done = corpus.of(wanted), 0
    for read in owner.texts(np.arange(len(wanted))):
        for text in read():
            for place in np.flatnonzero(rows == wanted[done]).tolist():
                size = min(int(entries["size"][place]), 4 * SHOWN_CHARACTERS)
                piece = memoryview(text.as_buffer())[starts[place] : starts[place] + size]
                texts[place] = bytes(piece).decode(errors="ignore")[:SHOWN_CHARACTERS]
            done += 1
    sizes = zip(entries["count"].tolist(), entries["size"].tolist(), texts, strict=True)
    return [{"count": count, "bytes": size, "text": text} for count, size, text in sizes]


def _find_frequent(engine: Engine, corpus: Corpus, reducer: int, folder: str) -> None:
    """Write the most frequent entries in the key ranges of a task."""
    best = np.zeros(0, ENTRY)
    for number in division_of(corpus).cells(reducer, 1):
        cells = [read_cell(entries_path(corpus, folder, group), number) for group in range(slice_group_count(corpus))]
        found = _joined(np.frombuffer(b"".join(cells), ENTRY))
        best = _most_frequent(np.concatenate([best, found]))
    write_sealed(_frequent_path(corpus, reducer), best.tolist())


def _joined(entries: np.ndarray) -> np.ndarray:
    """Return an entry per key: the sum of its counts, and its shortest span; of equally short spans the first."""
    entries = entries[np.lexsort([entries[name] for name in ("start", "row", "size", "key")])]
    first = np.flatnonzero(np.append(True, entries["key"][1:] != entries["key"][:-1])[: len(entries)])
    found = entries[first]
    if len(first):
        found["count"] = np.add.reduceat(entries["count"], first)
    return found


def _most_frequent(entries: np.ndarray) -> np.ndarray:
    order = np.lexsort((entries["key"], -entries["size"], -entries["count"]))
    return entries[order[:SHOWN]]


def _frequent_path(corpus: Corpus, reducer: int) -> Path:
    return corpus.scratch / FREQUENT / f"{reducer:06d}.json"
