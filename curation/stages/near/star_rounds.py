# SPDX-License-Identifier: Apache-2.0
"""Components of pairs of rows, found by rounds of tasks, so that no task holds the rows of the whole corpus.

Rounds turn pairs into stars: in the end each row has one pair, with the smallest row of its component. A round has two
phases with a task per group of slices, for the rows in these slices. In *large*, each row pairs its larger neighbours
with its smallest neighbour, or with itself if no neighbour is smaller. In *small*, each row pairs its smaller
neighbours, and itself, with the smallest of them. Neither phase changes the components or adds pairs (Kiveris et al.:
Connected Components in MapReduce and Beyond, SoCC 2014: O(log^2 n) rounds). A chain of 100,000 rows took 14 to 18
rounds, by the order of its rows.

A phase *large* that finds only stars ends the rounds. A task holds the pairs of its rows: up to 49 bytes each, 74 from
2^31 rows on. All pairs of one row are in one task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from curation.stages.corpus.key_ranges import read_cell, row_type, slice_group_count, slice_group_starts, write_cells
from curation.stages.near.near_pairs import unique_pairs

if TYPE_CHECKING:
    from curation.base.contract import Engine
    from curation.stages.outcome import Corpus

ROUNDS = 32  # enough for paths of 2^32 rows; afterwards one task joins the remaining pairs
START, LARGE, SMALL = "start", "large", "small"  # phases
Task = tuple[str, Callable[["Corpus"], int], Callable[["Engine", "Corpus", int], None]]  # the fields of a `Phase`


class Rounds:
    """The rounds that find the components of one set of pairs.

    name       prefix of its phases
    pairs      function that returns the pairs of a group of slices: shape (2, n), of different rows
    is_needed  function that returns whether the rounds are used, the same before and after a kill

    `start` and `small` write two cells per group of slices: the pairs (row, smaller row) of its rows, then (row, larger
    row). `large` writes the pairs (row, smaller row) of each group of slices; then (row, smallest row) of its own group
    of slices, which is the result if all pairs are in stars; then the number of pairs outside of stars.
    """

    def __init__(
        self, name: str, pairs: Callable[[Corpus, int], np.ndarray], is_needed: Callable[[Corpus], bool]
    ) -> None:
        self.name, self.pairs, self.is_needed = name, pairs, is_needed

    def phases(self) -> Iterator[Task]:
        """Yield the phases of the rounds. A phase has no tasks if the rounds are not needed, or have ended."""
        yield self._name(START, 0), lambda corpus: slice_group_count(corpus) * self.is_needed(corpus), self._start
        for number in range(ROUNDS + 1):
            yield self._large(number)
            if number < ROUNDS:
                yield self._small(number)

    def _large(self, number: int) -> Task:
        source = self._source(number)

        def tasks(corpus: Corpus) -> int:
            return slice_group_count(corpus) if self._has_run(corpus, source) else 0

        def run(engine: Engine, corpus: Corpus, task: int) -> None:
            _write_large(corpus, corpus.scratch / source, corpus.scratch / name, task)

        name = self._name(LARGE, number)
        return name, tasks, run

    def _small(self, number: int) -> Task:
        source = self._name(LARGE, number)

        def tasks(corpus: Corpus) -> int:
            has_work = self._has_run(corpus, source) and not self._has_stars(corpus, source)
            return slice_group_count(corpus) if has_work else 0

        def run(engine: Engine, corpus: Corpus, task: int) -> None:
            _write_small(corpus, corpus.scratch / source, corpus.scratch / name, task)

        name = self._name(SMALL, number)
        return name, tasks, run

    def _start(self, engine: Engine, corpus: Corpus, task: int) -> None:
        pairs = np.sort(self.pairs(corpus, task), axis=0)[::-1]
        _write_pairs(corpus, corpus.scratch / self._name(START, 0), task, [pairs])

    def _name(self, phase: str, number: int) -> str:
        return f"{self.name}_{phase}_{number:02d}"

    def _source(self, number: int) -> str:
        """Return the name of the phase whose pairs `large` of a round reads."""
        return self._name(SMALL, number - 1) if number else self._name(START, 0)

    def _has_run(self, corpus: Corpus, phase: str) -> bool:
        return _path(corpus.scratch / phase, 0).exists()

    def _has_stars(self, corpus: Corpus, phase: str) -> bool:
        """Return whether a phase `large` has found only pairs of stars."""
        last = slice_group_count(corpus) + 1
        found = (read_cell(_path(corpus.scratch / phase, task), last) for task in range(slice_group_count(corpus)))
        return not any(np.frombuffer(count, np.int64)[0] for count in found)

    def _last(self, corpus: Corpus) -> int:
        """Return the number of the last phase `large` that has run; -1 if none has."""
        runs = (number for number in range(ROUNDS + 1) if not self._has_run(corpus, self._name(LARGE, number)))
        return next(runs, ROUNDS + 1) - 1

    def have_ended(self, corpus: Corpus) -> bool:
        """Return whether the rounds were used, and all pairs are in stars now."""
        last = self._last(corpus)
        return 0 <= last < ROUNDS or (last == ROUNDS and self._has_stars(corpus, self._name(LARGE, last)))

    def rest(self, corpus: Corpus, slice_group: int) -> np.ndarray:
        """Return the pairs of a group of slices that one task must still join, because the rounds were not used or have
        not ended."""
        last = self._last(corpus)
        if last < 0:
            return self.pairs(corpus, slice_group)
        return _joined(corpus, _read(corpus, corpus.scratch / self._source(last), slice_group))

    def stars(self, corpus: Corpus, slice_group: int) -> np.ndarray:
        """Return the joined rows of a group of slices, ascending, each with the smallest row of its component: shape
        (2, n). The smallest rows themselves are left out. The rounds must have ended."""
        path = _path(corpus.scratch / self._name(LARGE, self._last(corpus)), slice_group)
        return _as_pairs(corpus, read_cell(path, slice_group_count(corpus)))

    def members(self, corpus: Corpus, slice_group: int) -> np.ndarray:
        """Return, for the components whose smallest row is in a group of slices, the pairs of this row and each other
        row: shape (2, n), without duplicates. The rounds must have ended."""
        folder = corpus.scratch / self._source(self._last(corpus))
        return unique_pairs([_joined(corpus, _read(corpus, folder, slice_group_count(corpus) + slice_group))])


def _path(folder: Path, task: int) -> Path:
    return folder / f"{task:06d}.bin"


def _as_pairs(corpus: Corpus, data: bytes) -> np.ndarray:
    return np.frombuffer(data, row_type(corpus)).reshape(2, -1)


def _read(corpus: Corpus, folder: Path, cell: int) -> Iterator[np.ndarray]:
    """Yield the pairs of cell number `cell` from the file of each task of a phase."""
    for task in range(slice_group_count(corpus)):
        yield _as_pairs(corpus, read_cell(_path(folder, task), cell))


def _joined(corpus: Corpus, pieces: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros((2, 0), row_type(corpus)), *pieces], axis=1)


def _cells(corpus: Corpus, pairs: np.ndarray) -> Iterator[Sequence[np.ndarray]]:
    """Divide sorted pairs by the group of slices of their first row."""
    starts = slice_group_starts(corpus).astype(pairs.dtype)
    for low, high in pairwise(np.searchsorted(pairs[0], starts).tolist()):
        yield [values[low:high] for values in pairs]


def _write_pairs(corpus: Corpus, folder: Path, task: int, pieces: list[np.ndarray]) -> None:
    """Write the distinct pairs (row, smaller row) of `pieces`, then the same pairs reversed. `pieces` is emptied."""

    def cells() -> Iterator[Sequence[np.ndarray]]:
        pairs = unique_pairs(pieces)
        yield from _cells(corpus, pairs)
        yield from _cells(corpus, unique_pairs([pairs[::-1]]))

    write_cells(_path(folder, task), cells(), 2 * slice_group_count(corpus))


def _lowest(corpus: Corpus, slice_group: int, pieces: Iterable[np.ndarray]) -> tuple[int, np.ndarray]:
    """Return the first row of a group of slices, and the smallest neighbour of each of its rows. A row without a
    smaller neighbour has itself. `pieces` has the pairs (row, smaller row)."""
    first, last = slice_group_starts(corpus)[slice_group : slice_group + 2].tolist()
    lowest = np.arange(first, last, dtype=row_type(corpus))
    for row, smaller in pieces:
        np.minimum.at(lowest, row - row.dtype.type(first), smaller)
    return first, lowest


def _write_large(corpus: Corpus, source: Path, folder: Path, slice_group: int) -> None:
    slice_groups = slice_group_count(corpus)
    first, lowest = _lowest(corpus, slice_group, _read(corpus, source, slice_group))
    others = 0
    for row, smaller in _read(corpus, source, slice_group):
        others += int(np.count_nonzero(lowest[row - row.dtype.type(first)] != smaller))
    pieces = [np.zeros((2, 0), row_type(corpus))]
    for row, larger in _read(corpus, source, slice_groups + slice_group):
        smallest = lowest[row - row.dtype.type(first)]
        others += int(np.count_nonzero(smallest != row))
        pieces.append(np.stack([larger, smallest]))

    def cells() -> Iterator[Sequence[np.ndarray]]:
        yield from _cells(corpus, unique_pairs(pieces))
        place = np.flatnonzero(lowest != np.arange(first, first + len(lowest), dtype=lowest.dtype))
        yield [(place + first).astype(lowest.dtype), lowest[place]]
        yield [np.array([others])]

    write_cells(_path(folder, slice_group), cells(), slice_groups + 2)


def _write_small(corpus: Corpus, source: Path, folder: Path, slice_group: int) -> None:
    first, lowest = _lowest(corpus, slice_group, _read(corpus, source, slice_group))
    place = np.flatnonzero(lowest != np.arange(first, first + len(lowest), dtype=lowest.dtype))
    pieces = [np.stack([(place + first).astype(lowest.dtype), lowest[place]])]
    for row, smaller in _read(corpus, source, slice_group):
        smallest = lowest[row - row.dtype.type(first)]
        apart = smaller != smallest
        pieces.append(np.stack([smaller[apart], smallest[apart]]))
    _write_pairs(corpus, folder, slice_group, pieces)
