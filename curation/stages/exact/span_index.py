# SPDX-License-Identifier: Apache-2.0
"""The saved index of `substring_dedup`, in the folder `spans` of a run's `index`: texts, and hashes of places in them.

    index.json, ids.arrow   as in `saved_index.py`
    texts.bin, offsets.bin  the texts that reached the stage (UTF-8), and where each begins and the last ends (int64)
    LEVEL-hashes.bin        per level of `span_blocks.py`: the first hash of each different record (uint64), ascending
    LEVEL-places.bin        the position of its anchor in `texts.bin` (uint64), ascending among equal hashes

A window of a new text is looked for at each place of an anchor with the same hash, and bytes are compared. If more than
FEW places share the hash of an anchor, the nodes of the anchor are looked up instead, and likewise windows instead of
nodes. The index has nodes and windows only for such hashes. So a footer in a million documents does not cost a million
comparisons. The first occurrence of a window is the first record with its bytes at each level that has it, so the index
misses no window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from curation.base.arrays import map_file, sorted_unique, write_array
from curation.base.contract import Engine
from curation.base.engine import load_engine
from curation.base.errors import IntegrityError, RecipeError
from curation.base.system.damage import damaged
from curation.kernels.hashing import GOLDEN
from curation.kernels.span_matches import matching_spans
from curation.kernels.spans import KEPT, REPEATED, fill_spans, spans_of_mask
from curation.stages.base import Phase
from curation.stages.corpus.index_tasks import JOINED, index_files
from curation.stages.corpus.key_ranges import (
    cell_bounds,
    division_of,
    slice_group,
    slice_group_count,
    write_cells,
)
from curation.stages.corpus.saved_index import DESCRIPTION, SavedIndex, missing_index
from curation.stages.exact import span_blocks
from curation.stages.exact.span_blocks import (
    LEVELS,
    Level,
    LevelFiles,
    range_verdicts,
    span_phases,
    text_buffers,
    write_verdicts,
)
from curation.stages.outcome import Corpus

FOLDER = "spans"
TEXTS, OFFSETS = "texts.bin", "offsets.bin"
FEW = 64  # most places in the index with which an anchor of the same hash is compared
RECORD_BYTES, DOCUMENT_BYTES = 16, 8
SETTINGS = {"hash": "murmur3_x64_128", "unit": "byte"}  # settings of the index, besides the length
ENTRY = np.dtype([("hash", np.uint64), ("place", np.uint64)])


def hashes_file(level: Level) -> str:
    """Return the name of the file with the sorted hashes of a level."""
    return f"{level.name}-hashes.bin"


def places_file(level: Level) -> str:
    """Return the name of the file with a place per hash of a level, in the order of the hashes."""
    return f"{level.name}-places.bin"


def _mixed(hashes: np.ndarray) -> np.ndarray:
    """Return each hash, mixed as in `key_ranges.range_of`, so that mixed hashes ascend with their ranges. The mixing is
    a bijection."""
    mixed: np.ndarray = (hashes ^ hashes >> np.uint64(32)) * GOLDEN
    return mixed


# Looking up


class SpanMatches(NamedTuple):
    """Spans of texts that an index has.

    number    of the place that was looked up
    start     first byte of the span in the texts that were looked up
    stop      byte after the span
    document  number of the document of the index that has it
    offset    first byte of the span in this document
    """

    number: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    document: np.ndarray
    offset: np.ndarray


class SpanIndex:
    """An index on disk, read through memory maps. Raises RecipeError if the index is missing, IntegrityError if it is
    damaged."""

    def __init__(self, folder: str) -> None:
        path = Path(folder) / FOLDER
        if not (path / DESCRIPTION).is_file():
            raise RecipeError(missing_index(folder, "substring_dedup", FOLDER))
        self.saved = SavedIndex(path)
        if not isinstance(length := self.saved.settings.get("length"), int) or length < 1:
            raise damaged(path / DESCRIPTION, f"the length of its windows is {length!r}, expected at least 1")
        self.length = length  # bytes
        self.texts, self.offsets = map_file(path / TEXTS, np.uint8), map_file(path / OFFSETS, np.int64)
        tables = [tuple(map_file(path / name(level), np.uint64) for name in (hashes_file, places_file))
                  for level in LEVELS]  # fmt: skip
        sizes = [len(self.offsets) == self.saved.documents + 1, self.offsets[-1:].sum() == len(self.texts)]
        if not all([*sizes, *(len(hashes) == len(places) for hashes, places in tables)]):
            raise IntegrityError(f"{path} is damaged: numbers of records in its files differ; make the index again")
        self.tables = tables

    def find(self, data: np.ndarray, hashes: np.ndarray, places: np.ndarray) -> SpanMatches:
        """Return the spans of `data` that are in windows of `places` and in the index.

        hashes  hash of the anchor of each place, as in records
        places  int64 (low, high, anchor), ascending
        """
        found, number = [SpanMatches(*np.zeros((5, 0), np.int64))], np.arange(len(places))
        for depth, (known, positions) in enumerate(self.tables):
            first, count = _equal(known, _mixed(hashes))
            is_last = depth + 1 == len(LEVELS)
            few = count <= (len(known) if is_last else FEW)
            chosen = np.flatnonzero(few & (count > 0))
            spans = matching_spans(
                data, places[chosen], self.length, first[chosen], count[chosen], positions, self.texts
            )
            found.append(self._within_documents(spans, places[chosen], number[chosen]))
            many = np.flatnonzero(~few)
            if is_last or not len(many):
                break
            make = getattr(load_engine("cpu"), LEVELS[depth + 1].records)  # the host compares with the index
            records, closer = make(data, places[many], self.length)
            number = number[many][np.searchsorted(places[many, 0], closer[:, 0], side="right") - 1]
            hashes, places = records[:, 0], closer
        return SpanMatches(*map(np.concatenate, zip(*found, strict=True)))

    def _within_documents(self, spans: np.ndarray, places: np.ndarray, number: np.ndarray) -> SpanMatches:
        """Return the spans without the bytes that are in another document of the index than the span's anchor."""
        own, start, stop, shift = spans.T
        document = np.searchsorted(self.offsets, places[own, 2] + shift, side="right") - 1
        document = np.minimum(document, self.saved.documents - 1)
        first, last = self.offsets[document], self.offsets[document + 1]
        start, stop = np.maximum(start, first - shift), np.minimum(stop, last - shift)
        whole = stop - start >= self.length
        found = SpanMatches(number[own], start, stop, document, start + shift - first)
        return SpanMatches(*(values[whole] for values in found))

    def extend(self, data: np.ndarray, offsets: np.ndarray, found: SpanMatches) -> SpanMatches:
        """Return spans extended as far as the texts data[offsets[k]:offsets[k + 1]] and the documents of the index are
        equal, each span once. `found.number` is the number k of the text."""
        first, last = offsets[found.number], offsets[found.number + 1]
        places = np.stack([first, last - self.length, found.start], 1)
        position = (self.offsets[found.document] + found.offset).astype(np.uint64)
        own, one = np.arange(len(places)), np.ones(len(places), np.int64)
        spans = matching_spans(data, places, self.length, own, one, position, self.texts)
        long = self._within_documents(spans, places, found.number)
        return SpanMatches(*np.unique(np.stack(long, 1), axis=0).T)

    def known_spans(
        self, data: np.ndarray, offsets: np.ndarray, records: np.ndarray, places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the spans of the texts data[offsets[k]:offsets[k + 1]] that the index has, int64 (start, stop), and
        for each place whether the index has all its windows."""
        found, base = self.find(data, records[:, 0], places), int(offsets[0])
        whole = np.zeros(len(places), bool)
        low, high = places[found.number, 0], places[found.number, 1]
        whole[found.number[(found.start <= low) & (found.stop >= high + self.length)]] = True
        mask = np.zeros(int(offsets[-1]) - base, np.uint8)
        fill_spans(mask, found.start - base, found.stop - base)
        return spans_of_mask(mask, offsets - base, self.length, 0)[:, 1:] + base, whole


def _equal(known: np.ndarray, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first position of each hash among the ascending hashes, and how often it occurs. Hashes are looked up
    in ascending order, so that adjacent ones are read from the same memory pages."""
    order = np.argsort(hashes)
    first, last = np.empty((2, len(hashes)), np.int64)
    first[order] = np.searchsorted(known, hashes[order], side="left")
    last[order] = np.searchsorted(known, hashes[order], side="right")
    return first, last - first


# Writing


def span_index_phases(length: int, verify: bool) -> Sequence[Phase]:
    """Return the phases of `span_phases`, and one that joins their files into an index."""
    join = Phase(JOINED, lambda corpus: len(LEVELS) + 1, _join, durable=True)
    return (*span_phases(length, verify, compare=_compare_and_sort), join)


def _compare_and_sort(
    engine: Engine, corpus: Corpus, reducer: int, level: Level, length: int, verify: bool
) -> None:  # fmt: skip
    """Write the verdicts about the records of the task `reducer`, one cell per file, and the distinct records by
    hash."""
    files, numbers = LevelFiles.of(corpus, level, length, verify), division_of(corpus).cells(reducer, 1)
    found = [range_verdicts(engine, files, number, is_whole=False) for number in numbers]
    for number, verdicts in zip(numbers, found, strict=True):
        _keep_few(files, number, verdicts)

    def cells() -> Iterator[Iterator[np.ndarray]]:
        for number, verdicts in zip(numbers, found, strict=True):
            yield _ascending(partial(_entries, files, number, verdicts))

    write_cells(_sorted_path(corpus, level, reducer), cells(), len(numbers))
    write_verdicts(corpus, level, reducer, found, len(files.paths))


def _keep_few(files: LevelFiles, number: int, verdicts: Sequence[np.ndarray]) -> None:
    """Change verdicts to KEPT for the distinct records of a range whose first hash at most FEW of them share.
    `verdicts` has an array per file; all except the first of equal records are REPEATED."""

    def hashes() -> Iterator[np.ndarray]:
        for file, own in enumerate(verdicts):
            yield files.records(file, number)[:, 0][own != REPEATED]

    known, counts, waiting = np.zeros(0, np.uint64), np.zeros(0, np.int64), list[np.ndarray]()
    for found in chain(hashes(), [None]):
        waiting += [] if found is None else [found]
        if found is None or sum(map(len, waiting)) > span_blocks.PASS_RECORDS:
            values, sizes = np.unique(np.concatenate([known[:0], *waiting]), return_counts=True)
            joined, place = np.unique(np.concatenate([known, values]), return_inverse=True)
            total = np.zeros(len(joined), np.int64)
            np.add.at(total, place, np.concatenate([counts, sizes]))
            known, counts, waiting = joined, total, []
    for found, own in zip(hashes(), verdicts, strict=True):
        own[np.flatnonzero(own != REPEATED)[counts[np.searchsorted(known, found)] <= FEW]] = KEPT


def _entries(files: LevelFiles, number: int, verdicts: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the entries of the distinct records of a range, file by file."""
    for file, own in enumerate(verdicts):
        entries = np.empty(len(own), ENTRY)
        entries["hash"] = _mixed(files.records(file, number)[:, 0])
        entries["place"] = files.places(file, number)[:, 2] + files.starts[file]
        yield entries[own != REPEATED]


def _ascending(read: Callable[[], Iterator[np.ndarray]]) -> Iterator[np.ndarray]:
    """Yield the entries that `read` yields, ascending by hash; entries of equal hash keep their order. About
    PASS_RECORDS entries are in memory, at most twice as many."""
    total, limit = sum(map(len, read())), span_blocks.PASS_RECORDS
    if total <= limit:
        yield _sorted(np.concatenate([np.zeros(0, ENTRY), *read()]))
        return
    step = total // min(total, 1 << 16)
    sample = np.sort(np.concatenate([entries["hash"][::step] for entries in read()]))
    cuts = sample[:: max(len(sample) * limit // total // 2, 1)]
    cuts = sorted_unique(np.concatenate([cuts, cuts + np.uint64(1)]))  # a frequent hash gets a range of its own
    for low, high in pairwise([0, *cuts[cuts > 0].tolist(), 1 << 64]):
        parts = (
            entries[(entries["hash"] >= np.uint64(low)) & (entries["hash"] <= np.uint64(high - 1))]
            for entries in read()
        )
        if high == low + 1:
            yield from parts
        else:
            yield _sorted(np.concatenate([*parts]))


def _sorted(entries: np.ndarray) -> np.ndarray:
    return entries[np.argsort(entries["hash"], kind="stable")]


def _join(engine: Engine, corpus: Corpus, task: int) -> None:
    """Write the files of the index for one level, or its texts: one task for each."""
    if task == len(LEVELS):
        _write_texts(corpus)
        return
    level, division = LEVELS[task], division_of(corpus)
    with index_files(corpus, [hashes_file(level), places_file(level)]) as paths, ExitStack() as stack:
        files = [stack.enter_context(open(path, "wb")) for path in paths]
        for reducer in range(division.reducers):
            for cell in range(len(division.cells(reducer, 1))):
                entries = _map_cell(_sorted_path(corpus, level, reducer), cell)
                for start in range(0, len(entries), span_blocks.PASS_RECORDS):
                    for file, name in zip(files, ENTRY.names or (), strict=True):
                        write_array(file, entries[name][start : start + span_blocks.PASS_RECORDS])


def _map_cell(path: Path, cell: int) -> np.ndarray:
    """Return the entries of one range (a cell of a file) through a memory map."""
    low, high = cell_bounds(path, cell)
    return map_file(path, np.uint8)[low:high].view(ENTRY)


def _write_texts(corpus: Corpus) -> None:
    """Write the texts of all documents, and where they begin."""
    with index_files(corpus, [TEXTS, OFFSETS]) as paths, ExitStack() as stack:
        texts, offsets = (stack.enter_context(open(path, "wb")) for path in paths)
        write_array(offsets, np.zeros(1, np.int64))
        size = 0
        for group in range(slice_group_count(corpus)):
            part = slice_group(corpus, group)
            for read in part.texts(np.arange(len(part.rows))):
                buffers = text_buffers(read())
                ends = buffers.offsets[1:] - buffers.offsets[0]
                write_array(texts, buffers.data[buffers.offsets[0] : buffers.offsets[-1]])
                write_array(offsets, ends + size)
                size += int(ends[-1]) if len(ends) else 0


def _sorted_path(corpus: Corpus, level: Level, reducer: int) -> Path:
    return corpus.scratch / f"{level.name}_compared" / f"{reducer:06d}-sorted.bin"
