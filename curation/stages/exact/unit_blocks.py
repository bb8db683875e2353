# SPDX-License-Identifier: Apache-2.0
"""Files of unit keys, and the verdicts about them.

A task reads the texts of a group of slices in order and writes a *block* whenever it has BLOCK_UNITS units. A block has
each of its keys once, so memory depends neither on the texts of a slice nor on how often a unit occurs. Keys of a block
are in the order of ranges, which ascend: range k of n has the keys from k * 2^64 / n on. A file of a block has the
cells

    0 to n - 1   keys of the range (uint64); with `counted` also how many documents of the block have each (uint16)
    n            place of the key of each unit among all keys of the block (int32); -1 for a unit without a key
    n + 1        number of units of each document (int32)

A reducer reads its ranges of all blocks, and writes a verdict (uint8) per key. The files take at most 8 + 4 + 1 bytes
per unit, 2 more with `counted`, and 4 per document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from curation.base.arrays import batches_of, sorted_unique
from curation.base.contract import Engine
from curation.base.system.sealed import read_sealed, write_sealed
from curation.stages.base import Phase
from curation.stages.corpus.key_ranges import (
    RUNS,
    division_of,
    division_phase,
    once,
    read_cell,
    slice_group,
    slice_group_count,
    text_starts,
    write_cells,
)
from curation.stages.corpus.similarity import for_texts
from curation.stages.exact.unit_keys import UnitSettings, unit_keys

if TYPE_CHECKING:
    from curation.stages.outcome import Corpus

LISTED = "listed"  # phase
BLOCK_UNITS = 1 << 20  # 60 MB while a block is written
UNIT_BYTES = 64  # of text, assumed for the division into tasks and ranges
MAX_DOCUMENTS = (1 << 16) - 1  # larger counts are stored as this


class UnitBlock(NamedTuple):
    """A block: its file, its group of slices, and its first and last document (exclusive), counted within this
    group."""

    path: Path
    group: int
    first: int
    last: int


class Keys(NamedTuple):
    """The keys of one range in all blocks, one block after the other.

    keys       uint64
    documents  how many documents of the block have the key, uint16; None if blocks do not count
    starts     first key of each block, then the number of keys; int64
    """

    keys: np.ndarray
    documents: np.ndarray | None
    starts: np.ndarray


def block_phases(compared: UnitSettings, counted: bool) -> tuple[Phase, ...]:
    """Return the phases that write the blocks. `counted`: blocks also have the number of documents with each key."""

    def write(engine: Engine, corpus: Corpus, task: int) -> None:
        _write_blocks(engine, corpus, task, compared, counted)

    return (
        division_phase(1, lambda corpus: text_starts(corpus, UNIT_BYTES)),
        Phase(RUNS, slice_group_count, write, durable=True),
        Phase(LISTED, once, _list_blocks, durable=True),
    )


def _write_blocks(engine: Engine, corpus: Corpus, group: int, compared: UnitSettings, counted: bool) -> None:
    """Write one block per batch of units, divided by ranges of keys."""
    part = slice_group(corpus, group)
    ends: list[int] = []
    for number, (keys, counts) in enumerate(_read_units(engine, part, compared)):
        cells = _cells_of(engine, keys, counts, division_of(corpus).ranges, counted, corpus.threads)
        write_cells(_block_path(corpus, group, number), cells, division_of(corpus).ranges + 2)
        ends.append((ends[-1] if ends else 0) + len(counts))
    write_sealed(_list_path(corpus, group), ends)


def _read_units(engine: Engine, part: Corpus, compared: UnitSettings) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the keys of the units of some documents, and the number of units of each document, in order. A batch has
    BLOCK_UNITS units or more."""
    keys: list[np.ndarray] = []
    counts: list[np.ndarray] = []
    batches = for_texts(part, np.arange(len(part.rows)), lambda texts: unit_keys(engine, texts, compared))
    for found, number in batches:
        keys.append(found)
        counts.append(number)
        if sum(map(len, keys)) >= BLOCK_UNITS:
            yield np.concatenate(keys), np.concatenate(counts)
            keys, counts = [], []
    if counts:
        yield np.concatenate(keys), np.concatenate(counts)


def _cells_of(
    engine: Engine, keys: np.ndarray, counts: np.ndarray, ranges: int, counted: bool, threads: int
) -> Iterator[list[np.ndarray]]:
    """Yield the arrays of each cell of a block's file."""
    chosen = np.flatnonzero(keys).astype(np.int32)
    own = keys[chosen]
    leaders = engine.group_leaders(own[:, None], workers=threads)
    is_first = leaders == np.arange(len(leaders), dtype=leaders.dtype)
    different = own[is_first]
    range_of = _range_of(different, ranges)
    order = np.argsort(range_of, kind="stable")
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    places = np.full(len(keys), -1, np.int32)
    rank = np.cumsum(is_first, dtype=np.int32) - np.int32(1)
    places[chosen] = place[rank[leaders]]
    different = different[order]
    documents = _count_documents(places, counts, len(order)) if counted else None
    bounds = np.concatenate([[0], np.cumsum(np.bincount(range_of, minlength=ranges))]).tolist()
    for low, high in pairwise(bounds):
        yield [different[low:high], *([] if documents is None else [documents[low:high]])]
    yield [places]
    yield [counts]


def _range_of(keys: np.ndarray, ranges: int) -> np.ndarray:
    numbers = np.empty(len(keys), np.uint16)
    for batch in batches_of(len(keys)):
        numbers[batch] = (keys[batch] >> np.uint64(32)) * np.uint64(ranges) >> np.uint64(32)
    return numbers


def _count_documents(places: np.ndarray, counts: np.ndarray, keys: int) -> np.ndarray:
    """Return how many documents have each key, uint16. `places` has the key of each unit."""
    document = np.repeat(np.arange(len(counts)), counts)
    pairs = sorted_unique((places.astype(np.int64) * len(counts) + document)[places >= 0])
    return np.minimum(np.bincount(pairs // len(counts), minlength=keys), MAX_DOCUMENTS).astype(np.uint16)


def _list_blocks(engine: Engine, corpus: Corpus, task: int) -> None:
    """Write the list of the blocks of all groups of slices to one file, for tasks that need all blocks."""
    groups = range(slice_group_count(corpus))
    write_sealed(_all_path(corpus), [read_sealed(_list_path(corpus, group)) for group in groups])


def all_blocks(corpus: Corpus) -> list[UnitBlock]:
    """Return the blocks of all groups of slices, in order."""
    return [
        UnitBlock(_block_path(corpus, group, number), group, *bounds)
        for group, ends in enumerate(read_sealed(_all_path(corpus)))
        for number, bounds in enumerate(pairwise([0, *ends]))
    ]


def read_range(blocks: Sequence[UnitBlock], number: int, counted: bool) -> Keys:
    """Return the keys of one range from all blocks, one block after the other. `counted`: the files have numbers of
    documents."""
    pieces = [read_cell(block.path, number) for block in blocks]
    sizes = [len(piece) // (10 if counted else 8) for piece in pieces]
    keys = [np.frombuffer(piece, np.uint64, size) for piece, size in zip(pieces, sizes, strict=True)]
    documents = [
        np.frombuffer(piece, np.uint16, size, 8 * size) for piece, size in zip(pieces, sizes, strict=True) if counted
    ]
    starts = np.cumsum([0, *sizes])
    return Keys(
        np.concatenate([np.zeros(0, np.uint64), *keys]),
        np.concatenate([np.zeros(0, np.uint16), *documents]) if counted else None,
        starts,
    )


def read_units(block: UnitBlock, ranges: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the place of the key of each unit of a block, and the number of units of each of its documents; int32."""
    places, counts = (np.frombuffer(read_cell(block.path, ranges + cell), np.int32) for cell in (0, 1))
    return places, counts


def _all_path(corpus: Corpus) -> Path:
    return corpus.scratch / LISTED / "runs.json"


def _list_path(corpus: Corpus, group: int) -> Path:
    return corpus.scratch / RUNS / f"{group:06d}.json"


def _block_path(corpus: Corpus, group: int, number: int) -> Path:
    return corpus.scratch / RUNS / f"{group:06d}-{number:06d}.bin"
