# SPDX-License-Identifier: Apache-2.0
"""Files of records of windows (`curation.kernels.spans`), and the verdicts about them.

Three levels follow each other: anchors, nodes, windows. At each level, a task per group of slices writes records by key
range. Then each task of the next phase (a reducer) writes a verdict about each record of its key ranges. The places
with the verdict CLOSER are divided at the next level. A reducer reads the records with equal hashes in the order of the
corpus, so the first of equal records is the earliest place.

A task reads the texts of a group of slices in order. The task begins a new *block* of documents at BLOCK_RECORDS
anchors or BLOCK_BYTES of text, so that memory is bounded. A block has one file of anchors, and files of nodes and of
windows of at most about BLOCK_RECORDS. A file has each record once, and the cells

    0 to n - 1   records of the range (uint64): 24 bytes of an anchor or a node, 16 of a window
    n            PLACE of each record, in their order: positions in the text of the block
    n + 1        spans of windows that are repeated within the group of slices, and have no record: uint32 (start, stop)

A reducer holds at most PASS_RECORDS records. It reads a range with more records in several passes, each over a part of
the values of the first hash. If too many records share one value, each pass reads a part of the values of the second
hash. Then each first record in a part is also compared at the next level, which takes time but does not change results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import batches_by_size, sorted_unique, write_array
from curation.base.contract import Engine
from curation.base.errors import StageError
from curation.base.system.files import commit
from curation.base.system.sealed import read_sealed, write_sealed
from curation.kernels.spans import CLOSER, REPEATED, fill_spans, new_memory
from curation.stages.base import Phase
from curation.stages.corpus.key_ranges import (
    cell_bounds,
    cell_size,
    division_of,
    division_phase,
    once,
    range_of,
    read_bytes,
    read_cell,
    reducer_count,
    slice_group,
    slice_group_count,
    text_starts,
    write_cells,
)
from curation.stages.exact.span_bytes import verified
from curation.stages.exact.unit_keys import TextBuffers, buffers_of

if TYPE_CHECKING:
    from curation.stages.outcome import Corpus

BLOCK_RECORDS, BLOCK_BYTES = 1 << 21, 1 << 27
PASS_RECORDS = 1 << 22  # records of one pass: 250 MB with their tables
PIECE_BYTES = PIECE_WINDOWS = 1 << 20  # of text, or windows, whose records are made at once: at most 75 MB
PIECE_BATCH = 1 << 25  # bytes of an engine's batches per piece that it takes at once: 8 pieces for the GPU engine
RANGES_PER_KEYS = 8  # a range of `divide` has 2^19 keys, a range of records 2^22
MAX_TEXT_BYTES = (1 << 32) - 1  # of a document: positions have 32 bits
PLACE = np.dtype([("low", np.uint32), ("more", np.uint16), ("back", np.uint16)])  # more: high - low, back: anchor - low


class Level(NamedTuple):
    """A level: its name, how many numbers a record has, and the engine's function that makes its records from places of
    the level before; "" for the first level."""

    name: str
    width: int
    records: str


LEVELS = (Level("anchors", 3, ""), Level("nodes", 3, "node_records"), Level("windows", 2, "window_records"))


class SpanBlock(NamedTuple):
    """A block: its group of slices; its number, and its first and last document (exclusive), counted within this group;
    the bytes of their texts; and its files of a level, numbered over all blocks."""

    group: int
    number: int
    first: int
    last: int
    bytes: int
    files: Sequence[tuple[int, Path]]


class SpanRecords(NamedTuple):
    """Records, their places, and spans without a record (int64 of shape (n, 2))."""

    records: np.ndarray
    places: np.ndarray
    spans: np.ndarray


class Known(Protocol):
    """Windows that count as repeated wherever they are in this corpus, since an index has them
    (`span_index.SpanIndex`)."""

    def known_spans(
        self, data: np.ndarray, offsets: np.ndarray, records: np.ndarray, places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the known spans of the texts data[offsets[k]:offsets[k + 1]], int64 (start, stop), and for each place
        whether all its windows are known."""
        ...


def span_phases(
    length: int,
    verify: bool,
    open_index: Callable[[], Known] | None = None,
    compare: Callable[..., None] | None = None,
) -> tuple[Phase, ...]:
    """Return the phases that find the repeated windows, including those of an index. `verify`: compare bytes where
    hashes are equal. `compare` is called as a task with `level`, `length` and `verify`; by default it writes the
    verdicts about the records of the task."""
    record_bytes = RANGES_PER_KEYS * -(-length // 4)  # about an anchor per length / 4 bytes
    phases = [division_phase(1, lambda corpus: text_starts(corpus, record_bytes))]
    for number, level in enumerate(LEVELS):
        write = (
            partial(_write_closer, level=number, length=length, verify=verify)
            if number
            else partial(_write_anchors, length=length, verify=verify, open_index=open_index)
        )
        task = partial(compare or _compare, level=level, length=length, verify=verify)
        phases += [
            Phase(level.name, slice_group_count, write, durable=True),
            Phase(f"{level.name}_listed", once, partial(_list_blocks, level=level), durable=True),
            Phase(f"{level.name}_compared", reducer_count, task, durable=True),
        ]
    return tuple(phases)


def text_buffers(texts: pa.LargeStringArray) -> TextBuffers:
    """Return the arrays of texts. A null is an empty text."""
    return buffers_of(pc.fill_null(texts, "") if texts.null_count else texts)


# Records of a group of slices


def _write_anchors(
    engine: Engine, corpus: Corpus, group: int, length: int, verify: bool, open_index: Callable[[], Known] | None
) -> None:
    """Write the blocks of a group of slices and their anchors; with `verify` also their texts."""
    listed, known, part = [], open_index() if open_index else None, slice_group(corpus, group)
    memory = new_memory(0) if verify else new_memory()
    for number, (first, last, size, batch) in enumerate(_read_blocks(engine, part, length, memory, known)):
        _write_file(engine, corpus, LEVELS[0], (group, number, 0), batch, length, verify)
        if verify:
            write_texts(text_path(corpus, group, number), part.of(part.rows[first:last]))
        listed.append([first, last, size, 1, len(batch.records)])
    write_sealed(_list_path(corpus, LEVELS[0], group), listed)


def pieces_at_once(engine: Engine) -> int:
    """Return how many pieces the engine takes at once: 1 for the CPU engine."""
    return max(engine.batch_bytes(1) // PIECE_BATCH, 1)


def _read_blocks(
    engine: Engine, part: Corpus, length: int, memory: np.ndarray, known: Known | None
) -> Iterator[tuple[int, int, int, SpanRecords]]:
    """Yield for each block its first document and the one after its last, its bytes, and its anchors."""
    found: list[SpanRecords] = []
    first, last, size = 0, 0, 0
    for read in part.texts(np.arange(len(part.rows))):
        buffers = text_buffers(read())
        for texts in batches_by_size(buffers.offsets[1:] - buffers.offsets[0], pieces_at_once(engine) * PIECE_BYTES):
            offsets = buffers.offsets[texts.start : texts.stop + 1]
            records, places, spans = engine.anchor_records(buffers.data, offsets, length, memory)
            if known:
                more, is_known = known.known_spans(buffers.data, offsets, records, places)
                records, places, spans = records[~is_known], places[~is_known], np.concatenate([spans, more])
            shift = size - int(offsets[0])
            found.append(SpanRecords(records, _stored(places + shift), spans + shift))
            last, size = last + len(offsets) - 1, size + int(offsets[-1] - offsets[0])
            if size > MAX_TEXT_BYTES:
                raise StageError(
                    f"a document has more than {MAX_TEXT_BYTES:,} bytes. Set max_document_bytes of the input: records "
                    "with more are rejected"
                )
            if size >= BLOCK_BYTES or sum(len(batch.records) for batch in found) >= BLOCK_RECORDS:
                yield first, last, size, _joined(found)
                found, first, size = [], last, 0
    if last > first:
        yield first, last, size, _joined(found)


def _write_closer(engine: Engine, corpus: Corpus, group: int, level: int, length: int, verify: bool) -> None:
    """Write the records of this level for the places of a group of slices that have the verdict CLOSER."""
    part, listed = slice_group(corpus, group), []
    for block in blocks_of(corpus, LEVELS[level - 1], group):
        found: list[SpanRecords] = []
        files = records = waiting = 0
        for batch in _closer(engine, corpus, part, block, level, length):
            found.append(batch)
            waiting += len(batch.records)
            if waiting >= BLOCK_RECORDS:
                _write_file(engine, corpus, LEVELS[level], (group, block.number, files), _joined(found), length, verify)
                found, files, records, waiting = [], files + 1, records + waiting, 0
        if waiting:
            _write_file(engine, corpus, LEVELS[level], (group, block.number, files), _joined(found), length, verify)
            files += 1
            records += waiting
        listed.append([block.first, block.last, block.bytes, files, records])
    write_sealed(_list_path(corpus, LEVELS[level], group), listed)


def _closer(
    engine: Engine, corpus: Corpus, part: Corpus, block: SpanBlock, level: int, length: int
) -> Iterator[SpanRecords]:  # fmt: skip
    """Yield the records of `level` for the places in a block that have the verdict CLOSER at the level before."""
    make = getattr(engine, LEVELS[level].records)
    documents = part.of(part.rows[block.first : block.last])
    offsets = np.cumsum(np.append(0, documents.byte_lengths()))
    for places, verdicts, _ in read_places(corpus, LEVELS[level - 1], block):
        chosen = places[verdicts == CLOSER]
        chosen = chosen[np.argsort(chosen["low"])]
        document = np.searchsorted(offsets, chosen["low"], side="right") - 1
        wanted, done = sorted_unique(document), 0
        for read in documents.texts(wanted):
            buffers = text_buffers(read())
            own = wanted[done : done + len(buffers.offsets) - 1]
            done += len(own)
            starts, shifts = buffers.offsets[:-1], offsets[own] - buffers.offsets[:-1]
            low, high = np.searchsorted(document, [own[0], own[-1] + 1]).tolist()
            ends = np.cumsum(chosen["more"][low:high] + 1, dtype=np.int64)
            for piece in batches_by_size(ends, pieces_at_once(engine) * PIECE_WINDOWS):
                of_piece = slice(low + piece.start, low + piece.stop)
                shift = shifts[np.searchsorted(own, document[of_piece])]
                records, found = make(buffers.data, _positions(chosen[of_piece]) - shift[:, None], length)
                shift = shifts[np.searchsorted(starts, found[:, 0], side="right") - 1]
                yield SpanRecords(records, _stored(found + shift[:, None]), np.zeros((0, 2), np.int64))


def _are_repeated(engine: Engine, records: np.ndarray) -> np.ndarray:
    """Return whether an earlier record is equal to each record (bool)."""
    return engine.judge_records(records, False) == REPEATED


def _joined(batches: Sequence[SpanRecords]) -> SpanRecords:
    return SpanRecords(*map(np.concatenate, zip(*batches, strict=True)))


def _stored(places: np.ndarray) -> np.ndarray:
    """Return places (int64 of shape (n, 3), positions in a block) as PLACE."""
    out = np.empty(len(places), PLACE)
    out["low"], out["more"], out["back"] = places[:, 0], places[:, 1] - places[:, 0], places[:, 2] - places[:, 0]
    return out


def _positions(places: np.ndarray) -> np.ndarray:
    """Return places as int64 of shape (n, 3)."""
    low = places["low"].astype(np.int64)
    return np.stack([low, low + places["more"], low + places["back"]], 1)


def _spans(places: np.ndarray, length: int) -> np.ndarray:
    """Return for each place the bytes from its first window to its last: int64 (start, stop)."""
    low = places["low"].astype(np.int64)
    return np.stack([low, low + places["more"] + length], 1)


# Verdicts


def _compare(engine: Engine, corpus: Corpus, reducer: int, level: Level, length: int, verify: bool) -> None:
    """Write the verdicts about the records of the task `reducer`: one cell per file."""
    files = LevelFiles.of(corpus, level, length, verify)
    found = [range_verdicts(engine, files, number) for number in division_of(corpus).cells(reducer, 1)]
    write_verdicts(corpus, level, reducer, found, len(files.paths))


class LevelFiles(NamedTuple):
    """The files of a level, in order.

    paths   their paths
    starts  for each file, the first byte of its block in the text of all blocks
    texts   for each file, the file with the text of its block; empty: records are not verified
    """

    level: Level
    length: int
    ranges: int
    paths: list[Path]
    starts: list[int]
    texts: list[Path]

    @staticmethod
    def of(corpus: Corpus, level: Level, length: int, verify: bool) -> LevelFiles:
        """Return all files of a level for the blocks of a corpus; also the files of texts if bytes are verified."""
        files, before = LevelFiles(level, length, division_of(corpus).ranges, [], [], []), 0
        for block in blocks_of(corpus, level):
            for _, path in block.files:
                files.paths.append(path)
                files.starts.append(before)
                files.texts.extend([text_path(corpus, block.group, block.number)] * verify)
            before += block.bytes
        return files

    def records(self, file: int, number: int) -> np.ndarray:
        """Read the records of one range of hashes from a file. `places` returns their places in the same order."""
        return np.frombuffer(read_cell(self.paths[file], number), np.uint64).reshape(-1, self.level.width)

    def places(self, file: int, number: int) -> np.ndarray:
        """Return the places of the records that `records` returns, int64 of shape (n, 3)."""
        path = self.paths[file]
        first, low, places = (cell_bounds(path, cell)[0] for cell in (0, number, self.ranges))
        size = cell_size(path, number) // (8 * self.level.width)
        start = places + (low - first) // (8 * self.level.width) * PLACE.itemsize
        return _positions(np.frombuffer(read_bytes(path, start, size * PLACE.itemsize), PLACE))


def write_verdicts(
    corpus: Corpus, level: Level, reducer: int, found: Sequence[Sequence[np.ndarray]], files: int
) -> None:
    """Write the verdicts of the task `reducer`, one cell per file. `found` has, for each range, an array per file."""
    write_cells(_verdicts_path(corpus, level, reducer), zip(*found, strict=True), files)


def range_verdicts(engine: Engine, files: LevelFiles, number: int, is_whole: bool = True) -> list[np.ndarray]:
    """Return the verdicts (uint8) about the records of a range in each file. If `is_whole`, a record that differs from
    all records with the same first hash may be KEPT."""
    width, numbers = files.level.width, range(len(files.paths))
    ends = np.cumsum([0, *(cell_size(path, number) // (8 * width) for path in files.paths)])
    verdicts = np.empty(ends[-1], np.uint8)
    parts = int(-(-ends[-1] // PASS_RECORDS))

    def read() -> Iterator[tuple[np.ndarray, int]]:
        for file, start in zip(numbers, ends[:-1].tolist(), strict=True):
            yield files.records(file, number), start

    def judge(rows: np.ndarray, records: np.ndarray, is_whole: bool) -> np.ndarray:
        if files.texts:
            records = verified(engine, files, number, ends, rows, records)
        verdicts[rows] = judged = engine.judge_records(records, is_whole)
        return judged

    if parts <= 1:
        judge(np.arange(ends[-1]), np.concatenate([np.zeros((0, width), np.uint64), *(r for r, _ in read())]), is_whole)
        parts = 0
    sizes = np.zeros(parts, np.int64)
    for records, _ in read() if parts else ():
        sizes += np.bincount(_part(records, 0, parts), minlength=parts)
    for part, size in enumerate(sizes.tolist()):
        pieces = -(-size // PASS_RECORDS)
        for piece in range(pieces):
            rows, found, waiting = [np.zeros(0, np.int64)], [np.zeros((0, width), np.uint64)], 0
            for records, start in chain(read(), [(found[0], -1)]):
                own = np.flatnonzero((_part(records, 0, parts) == part) & (_part(records, 1, pieces) == piece))
                rows.append(own + start)
                found.append(records[own])
                waiting += len(own)
                if start < 0 or waiting > PASS_RECORDS:  # more records remain only if they share both hashes
                    here, those = np.concatenate(rows), np.concatenate(found)
                    first = judge(here, those, is_whole and pieces == 1) != REPEATED
                    rows, found, waiting = [here[first]], [those[first]], 0
    return [verdicts[low:high] for low, high in pairwise(ends.tolist())]


def _part(records: np.ndarray, column: int, parts: int) -> np.ndarray:
    return ((records[:, column] >> np.uint64(7)) % np.uint64(parts)).astype(np.int64)


# Files


def _write_file(
    engine: Engine,
    corpus: Corpus,
    level: Level,
    place: tuple[int, int, int],
    batch: SpanRecords,
    length: int,
    verify: bool,
) -> None:
    """Write a file of a block: `place` has the group of slices, the number of the block and the number of the file. Of
    equal nodes or windows, the first becomes a record and the others become spans, unless bytes are compared."""
    ranges = division_of(corpus).ranges
    numbers = range_of(batch.records[:, 0], ranges)
    order, spans = np.argsort(numbers, kind="stable"), batch.spans
    if level.records and not verify:
        repeated = _are_repeated(engine, batch.records)
        spans = _spans(batch.places[repeated], length)
        order, numbers = order[~repeated[order]], numbers[~repeated]
    bounds = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=ranges))]).tolist()
    records = batch.records[order]
    cells = [[records[low:high]] for low, high in pairwise(bounds)]
    cells += [[batch.places[order]], [spans.astype(np.uint32)]]
    write_cells(_file_path(corpus, level, *place), cells, len(cells))


def count_records(corpus: Corpus, level: Level) -> int:
    """Return the number of records of a level that were made."""
    return sum(records for listed in read_sealed(_all_path(corpus, level)) for *_, records in listed)


def _list_blocks(engine: Engine, corpus: Corpus, task: int, level: Level) -> None:
    """Write the list of the blocks of all groups of slices to one file, for tasks that need all blocks."""
    groups = range(slice_group_count(corpus))
    write_sealed(_all_path(corpus, level), [read_sealed(_list_path(corpus, level, group)) for group in groups])


def blocks_of(corpus: Corpus, level: Level, group: int | None = None) -> list[SpanBlock]:
    """Return the blocks of a group of slices, or of all groups of slices, in order, with their files of a level."""
    blocks, total = [], 0
    for own, listed in enumerate(read_sealed(_all_path(corpus, level))):
        for number, (first, last, size, files, _) in enumerate(listed):
            if group in (None, own):
                paths = [(total + k, _file_path(corpus, level, own, number, k)) for k in range(files)]
                blocks.append(SpanBlock(own, number, first, last, size, paths))
            total += files
    return blocks


def read_places(corpus: Corpus, level: Level, block: SpanBlock) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield for each file of a block, in order: its places, the verdicts about their records, and its spans without
    records."""
    division = division_of(corpus)
    reducers = [_verdicts_path(corpus, level, reducer) for reducer in range(division.reducers)]
    for number, path in block.files:
        places = np.frombuffer(read_cell(path, division.ranges), PLACE)
        verdicts = np.frombuffer(b"".join(read_cell(reducer, number) for reducer in reducers), np.uint8)
        yield places, verdicts, np.frombuffer(read_cell(path, division.ranges + 1), np.uint32).reshape(-1, 2)


def repeated_mask(corpus: Corpus, blocks: Sequence[SpanBlock], size: int, length: int) -> np.ndarray:
    """Return for each byte of a block whether it is in a repeated window: uint8, 0 or 1.

    blocks  the block, once per level, with its files of this level
    size    number of bytes of the block
    """
    mask = np.zeros(size, np.uint8)
    for level, block in zip(LEVELS, blocks, strict=True):
        for places, verdicts, spans in read_places(corpus, level, block):
            fill_spans(mask, *spans.astype(np.int64).T)
            fill_spans(mask, *_spans(places[verdicts == REPEATED], length).T)
    return mask


def _file_path(corpus: Corpus, level: Level, group: int, block: int, number: int) -> Path:
    return corpus.scratch / level.name / f"{group:06d}-{block:06d}-{number:06d}.bin"


def text_path(corpus: Corpus, group: int, block: int) -> Path:
    """Return the path of the text of a block, which is stored to compare bytes."""
    return corpus.scratch / LEVELS[0].name / f"{group:06d}-{block:06d}.txt"


def write_texts(path: Path, documents: Corpus) -> None:
    """Write texts one after the other, without separators; records have their positions."""
    with commit(path) as temporary, open(temporary, "wb") as file:
        for read in documents.texts(np.arange(len(documents.rows))):
            buffers = text_buffers(read())
            write_array(file, buffers.data[buffers.offsets[0] : buffers.offsets[-1]])


def _list_path(corpus: Corpus, level: Level, group: int) -> Path:
    return corpus.scratch / level.name / f"{group:06d}.json"


def _all_path(corpus: Corpus, level: Level) -> Path:
    return corpus.scratch / f"{level.name}_listed" / "runs.json"


def _verdicts_path(corpus: Corpus, level: Level, reducer: int) -> Path:
    return corpus.scratch / f"{level.name}_compared" / f"{reducer:06d}.bin"
