# SPDX-License-Identifier: Apache-2.0
"""Candidates for near-duplicates: pairs of rows that share band keys. No text is read to choose the pairs.

The rows with one key are a group. Each row is paired with the first row of its group; these pairs form a *star*. In a
group of at most SMALL rows, all other rows are also paired with each other. A larger group is divided by the key of the
next band, at most ROUNDS times, and its parts are groups again. A large group in which all bands are equal keeps only
the pairs with its first row. So a row has at most SMALL + ROUNDS pairs per band, however many rows share its key.

Rows, pairs and large groups depend only on keys, not on the division into tasks or on results of comparisons.

A file of pairs has a cell per kind and group of slices. A row is in the cell of its group of slices, and a pair in the
cell of its left row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from curation.base.arrays import positions_of, sorted_unique
from curation.stages.corpus.key_ranges import (
    division_of,
    read_cell,
    read_keys_of,
    reducer_count,
    row_type,
    slice_group_count,
    slice_group_starts,
    write_cells,
)

if TYPE_CHECKING:
    from curation.base.contract import Engine
    from curation.stages.outcome import Corpus

SMALL = 16
ROUNDS = 4
MERGE_PAIRS = 1 << 20  # pairs that are kept unsorted at most
PAIRS, LARGE_GROUPS, SPLITS = "pairs", "large_groups", "splits"  # phases
STARS, OTHERS, ROWS, LARGE_GROUP = range(4)  # kinds of cells
KINDS = 4


class LargeGroup(NamedTuple):
    """Rows of large groups, in ascending order within a group. A row may be in a group of each band."""

    row: np.ndarray
    first: np.ndarray  # first row of the group
    band: np.ndarray  # int32

    def select(self, chosen: slice) -> LargeGroup:
        """Return the rows of a slice."""
        return LargeGroup(*(values[chosen] for values in self))


class _PairSet:
    """Pairs of rows, each once."""

    def __init__(self, kind: str) -> None:
        self.pieces = [np.zeros((2, 0), kind)]
        self.pending = 0

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        self.pieces.append(np.stack([left, right]))
        self.pending += len(left)
        if self.pending > max(self.pieces[0].shape[1], MERGE_PAIRS):
            self.sorted()

    def sorted(self) -> np.ndarray:
        """Return the pairs by left and right row: shape (2, n)."""
        self.pieces, self.pending = [unique_pairs(self.pieces)], 0
        return self.pieces[0]


class _Found:
    """The pairs and large groups of one task."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        kind = row_type(corpus)
        self.stars, self.others = _PairSet(kind), _PairSet(kind)
        self.large_groups: list[LargeGroup] = []  # each with ascending rows

    def add(self, rows: np.ndarray, leaders: np.ndarray) -> tuple[np.ndarray, int]:
        """Add the pairs of groups. Return the positions of the rows in groups of more than SMALL, and the number of
        rows without a group.

        `rows` is ascending; `leaders` has the position of the first row in the group of each."""
        follows = positions_of(leaders != np.arange(len(leaders), dtype=leaders.dtype))
        self.stars.add(rows[leaders[follows]], rows[follows])
        member = np.zeros(len(leaders), bool)
        member[follows] = True
        member[leaders[follows]] = True
        position = positions_of(member)
        del member, follows
        position = position[np.argsort(leaders[position], kind="stable")]
        leader = leaders[position]
        starts = np.flatnonzero(np.r_[True, leader[1:] != leader[:-1]]) if len(leader) else np.zeros(0, np.int64)
        sizes = np.diff(np.r_[starts, len(leader)])
        is_large = np.repeat(sizes > SMALL, sizes)
        large = np.sort(position[is_large])
        position, sizes = position[~is_large], sizes[sizes <= SMALL]
        self._add_others(rows[position], sizes)
        return large, len(leaders) - len(leader)

    def _add_others(self, number: np.ndarray, sizes: np.ndarray) -> None:
        """Add the pairs of groups of these sizes, one after the other in `number`, except those with the first row."""
        starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
        place = np.arange(len(number)) - starts
        for first in range(1, SMALL - 1):
            later = np.flatnonzero(place > first)
            if len(later) == 0:
                return
            self.others.add(number[starts[later] + first], number[later])

    def write(self, path: Path, rounds: np.ndarray) -> None:
        """Write the pairs, rows and large groups by slice group. The last cell has the number of other pairs and of
        rows in large groups, then `rounds`; int64."""
        stars, others = self.stars.sorted(), self.others.sorted()
        rows = sorted_unique(stars)  # every row with another pair has a star
        starts = slice_group_starts(self.corpus).astype(rows.dtype)
        large_rows = sum(len(large_group.row) for large_group in self.large_groups)

        def cells() -> Iterator[Sequence[np.ndarray]]:
            kinds: list[Sequence[np.ndarray]] = [[*stars], [*others], [rows]]
            for arrays in kinds:
                for low, high in pairwise(np.searchsorted(arrays[0], starts).tolist()):
                    yield [values[low:high] for values in arrays]
            bounds = [np.searchsorted(large_group.row, starts).tolist() for large_group in self.large_groups]
            for number in range(len(starts) - 1):
                pieces = [
                    large_group.select(slice(places[number], places[number + 1]))
                    for large_group, places in zip(self.large_groups, bounds, strict=True)
                ]
                yield [values for field in zip(*pieces, strict=True) for values in field]
            yield [np.array([others.shape[1], large_rows]), rounds]

        write_cells(path, cells(), KINDS * (len(starts) - 1) + 1)


def unique_pairs(pieces: list[np.ndarray]) -> np.ndarray:
    """Return pairs by left and right row, each once: shape (2, n). `pieces` may be emptied, to save memory."""
    if pieces[0].dtype == np.int32:  # both rows fit one integer
        codes = np.empty(sum(piece.shape[1] for piece in pieces), np.int64)
        done = 0
        for left, right in pieces:
            code = codes[done : done + len(left)]
            np.left_shift(left, 32, out=code, dtype=np.int64)
            code |= right
            done += len(left)
        pieces.clear()
        codes.sort()
        changed = np.ones(len(codes), bool)
        np.not_equal(codes[1:], codes[:-1], out=changed[1:])
        codes = codes[changed]
        pairs = np.empty((2, len(codes)), np.int32)
        pairs[1] = codes & 0xFFFF_FFFF
        codes >>= 32
        pairs[0] = codes
        return pairs
    pairs = np.concatenate(pieces, axis=1)
    pairs = pairs[:, np.lexsort((pairs[1], pairs[0]))]
    changed = (pairs[:, 1:] != pairs[:, :-1]).any(axis=0)
    return np.asarray(pairs[:, np.r_[True, changed]] if pairs.shape[1] else pairs)


def _path(corpus: Corpus, phase: str, number: int) -> Path:
    return corpus.scratch / phase / f"{number:06d}.bin"


def write_pairs(engine: Engine, corpus: Corpus, reducer: int, bands: int) -> None:
    """Write the pairs and large groups of a reducer's keys."""
    found = _Found(corpus)
    for band, keys, rows in read_keys_of(corpus, reducer, bands, 1):
        leaders = engine.group_leaders(keys)
        large, _ = found.add(rows, leaders)
        found.large_groups.append(LargeGroup(rows[large], rows[leaders[large]], np.full(len(large), band, np.int32)))
    found.write(_path(corpus, PAIRS, reducer), np.zeros(ROUNDS + 1, np.int64))


# Large groups


def large_group_tasks(corpus: Corpus) -> int:
    """Return the number of slice groups, or 0 if there is no larger group."""
    return slice_group_count(corpus) if _has_large_groups(corpus) else 0


def split_tasks(corpus: Corpus) -> int:
    """Return the number of reducers, or 0 if there is no larger group."""
    return reducer_count(corpus) if _has_large_groups(corpus) else 0


def _has_large_groups(corpus: Corpus) -> bool:
    return any(_counts(corpus, PAIRS, reducer)[1] for reducer in range(reducer_count(corpus)))


def _counts(corpus: Corpus, phase: str, number: int) -> np.ndarray:
    return np.frombuffer(read_cell(_path(corpus, phase, number), KINDS * slice_group_count(corpus)), np.int64)


def _read(corpus: Corpus, phase: str, number: int, kind: int, slice_group: int) -> bytes:
    return read_cell(_path(corpus, phase, number), kind * slice_group_count(corpus) + slice_group)


def _read_large_group(corpus: Corpus, reducer: int, slice_group: int) -> LargeGroup:
    data = _read(corpus, PAIRS, reducer, LARGE_GROUP, slice_group)
    kind = np.dtype(row_type(corpus))
    count = len(data) // (2 * kind.itemsize + 4)
    return LargeGroup(
        np.frombuffer(data, kind, count),
        np.frombuffer(data, kind, count, count * kind.itemsize),
        np.frombuffer(data, np.int32, count, 2 * count * kind.itemsize),
    )


def _rounds(bands: int) -> int:
    return min(ROUNDS, bands - 1)


def write_large_group_keys(corpus: Corpus, number: int, columns: Sequence[str]) -> None:
    """Write the keys of the next bands of the rows of large groups of a slice group, one cell per reducer."""

    def cells() -> Iterator[Sequence[np.ndarray]]:
        for reducer in range(reducer_count(corpus)):
            large_group = _read_large_group(corpus, reducer, number)
            keys = np.zeros((len(large_group.row), _rounds(len(columns))), np.uint64)
            for band in np.unique(large_group.band).tolist():
                chosen = np.flatnonzero(large_group.band == band)
                chosen = chosen[np.argsort(large_group.row[chosen])]
                rows = corpus.of(large_group.row[chosen])
                for step in range(keys.shape[1]):
                    keys[chosen, step] = rows.column(columns[(band + step + 1) % len(columns)])
            yield [keys]

    write_cells(_path(corpus, LARGE_GROUPS, number), cells(), reducer_count(corpus))


def split_large_groups(engine: Engine, corpus: Corpus, reducer: int, bands: int) -> None:
    """Write the pairs of the groups into which the next bands divide the large groups of a reducer.

    The counts are the rows that each round divides, then the rows that are in no small group in the end: these have
    only stars."""
    division = division_of(corpus)
    found, counts = _Found(corpus), np.zeros(ROUNDS + 1, np.int64)
    for band in sorted({cell // division.ranges for cell in division.cells(reducer, bands)}):
        slice_groups = range(slice_group_count(corpus))
        large_groups = [_read_large_group(corpus, reducer, number) for number in slice_groups]
        chosen = [np.flatnonzero(large_group.band == band).astype(np.int32) for large_group in large_groups]
        rows = np.concatenate([large_group.row[each] for large_group, each in zip(large_groups, chosen, strict=True)])
        group = np.concatenate(
            [large_group.first[each] for large_group, each in zip(large_groups, chosen, strict=True)]
        )
        del large_groups
        places = np.arange(len(rows), dtype=row_type(corpus))  # in the band of the rows that are still in a large group
        for step in range(_rounds(bands)):
            counts[step] += len(rows)
            keys = np.empty((len(rows), 2), np.uint64)
            keys[:, 0] = group
            keys[:, 1] = _read_step(corpus, reducer, chosen, step, _rounds(bands))[places]
            leaders = engine.group_leaders(keys)
            del keys
            large, alone = found.add(rows, leaders)
            counts[ROUNDS] += alone
            rows, group, places = rows[large], leaders[large], places[large]
        counts[ROUNDS] += len(rows)
    found.write(_path(corpus, SPLITS, reducer), counts)


def _read_step(corpus: Corpus, reducer: int, chosen: Sequence[np.ndarray], step: int, rounds: int) -> np.ndarray:
    """Return the keys that divide large groups in a round; `chosen` are the places in the large group of a reducer, by
    slice group."""
    keys = np.empty(sum(map(len, chosen)), np.uint64)
    done = 0
    for number, places in enumerate(chosen):
        stored = np.frombuffer(read_cell(_path(corpus, LARGE_GROUPS, number), reducer), np.uint64).reshape(-1, rounds)
        keys[done : done + len(places)] = stored[places, step]
        done += len(places)
    return keys


# Reading


def _files(corpus: Corpus) -> list[tuple[str, int]]:
    reducers = division_of(corpus).reducers
    return [(PAIRS, reducer) for reducer in range(reducers)] + [
        (SPLITS, reducer) for reducer in range(split_tasks(corpus))
    ]


def candidate_rows(corpus: Corpus, slice_group: int) -> np.ndarray:
    """Return the rows of a slice group that have a pair, ascending."""
    pieces = [_read(corpus, phase, number, ROWS, slice_group) for phase, number in _files(corpus)]
    return sorted_unique(np.frombuffer(b"".join(pieces), row_type(corpus)))


def pairs_of(corpus: Corpus, slice_group: int, kind: int) -> np.ndarray:
    """Return the pairs of a kind whose left row is in a slice group, by left and right row, each once: shape (2, n)."""
    pairs = _PairSet(row_type(corpus))
    for phase, number in _files(corpus):
        pairs.add(*np.frombuffer(_read(corpus, phase, number, kind, slice_group), row_type(corpus)).reshape(2, -1))
    return pairs.sorted()


def has_others(corpus: Corpus) -> bool:
    """Return whether there are pairs besides stars."""
    return any(_counts(corpus, *file)[0] for file in _files(corpus))


def large_group_counts(corpus: Corpus) -> np.ndarray:
    """Return the rows that each round divided, and the rows left in large groups; int64."""
    counts = np.zeros(ROUNDS + 1, np.int64)
    for reducer in range(split_tasks(corpus)):
        counts += _counts(corpus, SPLITS, reducer)[2:]
    return counts
