# SPDX-License-Identifier: Apache-2.0
"""Groups of near-duplicates, made from candidate pairs. Tasks compare the pairs, join near-duplicates to groups, and
measure the similarity of each removed row to the kept row.

Rows with one key are a group. First, each row is compared with the first row of its group; these pairs form stars
(`near_pairs.py`). Other pairs are compared only if the first comparisons have not joined their rows. A pair is compared
by the task whose group of slices has the left row. This task reads the data of the right row from the files of another
group of slices. One task joins up to JOIN_PAIRS pairs; more are joined in rounds of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from curation.base.arrays import batches_of, map_file, positions_of, sorted_unique, write_file
from curation.stages.corpus.components import Components
from curation.stages.corpus.key_ranges import (
    cell_size,
    read_cell,
    row_type,
    slice_group_count,
    slice_group_starts,
    write_cells,
)
from curation.stages.corpus.similarity import Similarity
from curation.stages.near.near_pairs import OTHERS, STARS, has_others, pairs_of, unique_pairs
from curation.stages.near.star_rounds import Rounds

if TYPE_CHECKING:
    from curation.base.contract import Engine
    from curation.stages.outcome import Corpus

SIMILARITY, FIRST_CHECK, JOINED = "similarity", "first_check", "joined"  # phases
SECOND_CHECK, REPRESENTATIVES, GROUPS, VALUES = "second_check", "representatives", "groups", "values"
CANDIDATES = "rows.bin"
JOIN_PAIRS = 1 << 23  # one task joins up to this many, in 300 MB; more are joined in rounds, with the same result
MERGE_ROWS = 1 << 20  # most rows that wait to be merged
Open = Callable[[Path], Similarity]  # opens the files of a group of slices
KeptOf = Callable[[np.ndarray, np.ndarray], np.ndarray]  # rows, labels of their groups -> position of the kept row


def similarity_folder(corpus: Corpus, slice_group: int) -> Path:
    """Return the folder with the data to compare the candidates of a group of slices."""
    return corpus.scratch / SIMILARITY / f"{slice_group:06d}"


def write_candidates(folder: Path, rows: np.ndarray) -> None:
    """Write the numbers of the rows whose data are in the folder."""
    write_file(folder / CANDIDATES, rows)


def candidate_count(corpus: Corpus) -> int:
    """Return the number of rows that have a pair."""
    folders = [similarity_folder(corpus, number) for number in range(slice_group_count(corpus))]
    return sum((folder / CANDIDATES).stat().st_size for folder in folders) // np.dtype(row_type(corpus)).itemsize


def _compare(
    corpus: Corpus, open_files: Open, slice_group: int, left: np.ndarray, right: np.ndarray, threshold: float
) -> np.ndarray:
    """Return the similarity of each pair; -1 if the upper bound of the pair's similarity is below the threshold. All
    left rows are in this group of slices."""
    values = np.full(len(left), -1.0)
    order = np.argsort(right, kind="stable")
    bounds = np.searchsorted(right[order], slice_group_starts(corpus).astype(right.dtype))
    mine, rows = _open(corpus, open_files, slice_group)
    for other in np.flatnonzero(np.diff(bounds)).tolist():
        theirs, other_rows = (mine, rows) if other == slice_group else _open(corpus, open_files, other)
        chosen = np.sort(order[bounds[other] : bounds[other + 1]])
        for batch in batches_of(len(chosen)):
            pairs = chosen[batch]
            numbers = np.searchsorted(rows, left[pairs]), np.searchsorted(other_rows, right[pairs])
            possible = np.flatnonzero(mine.bound_between(theirs, *numbers) >= threshold)
            values[pairs[possible]] = mine.between(theirs, *(side[possible] for side in numbers))
    return values


def _open(corpus: Corpus, open_files: Open, slice_group: int) -> tuple[Similarity, np.ndarray]:
    folder = similarity_folder(corpus, slice_group)
    return open_files(folder), map_file(folder / CANDIDATES, row_type(corpus))


# Checks


def check_stars(corpus: Corpus, open_files: Open, slice_group: int, threshold: float) -> None:
    """Compare each row with the first row of its group (the pairs of stars), if the first row is in this group of
    slices."""
    _check(corpus, open_files, FIRST_CHECK, slice_group, pairs_of(corpus, slice_group, STARS), threshold)


def check_others(corpus: Corpus, open_files: Open, slice_group: int, threshold: float) -> None:
    """Compare the pairs outside of stars whose rows the first check has not joined, if the left row is in this group of
    slices."""
    pairs = pairs_of(corpus, slice_group, OTHERS)
    left, right = (_smallest(corpus, rows) for rows in pairs)
    _check(corpus, open_files, SECOND_CHECK, slice_group, pairs[:, left != right], threshold)


def _smallest(corpus: Corpus, rows: np.ndarray) -> np.ndarray:
    """Return for each row the smallest row of its component after the first check; the row itself if nothing joined
    it."""
    found = rows.copy()
    order = np.argsort(rows, kind="stable")
    bounds = np.searchsorted(rows[order], slice_group_starts(corpus).astype(rows.dtype))
    for slice_group in np.flatnonzero(np.diff(bounds)).tolist():
        row, smallest = _stars(corpus, slice_group)
        chosen = order[bounds[slice_group] : bounds[slice_group + 1]]
        place = np.searchsorted(row, rows[chosen])
        is_joined = np.append(row, -1)[place] == rows[chosen]
        found[chosen[is_joined]] = smallest[place[is_joined]]
    return found


def _check(corpus: Corpus, open_files: Open, phase: str, slice_group: int, pairs: np.ndarray, threshold: float) -> None:
    """Compare pairs, and write the pairs of near-duplicates and the number of comparisons."""
    values = _compare(corpus, open_files, slice_group, pairs[0], pairs[1], threshold)
    alike = pairs[:, ~(values < threshold)]  # pairs that are not measured (NaN) pass
    count = np.array([np.count_nonzero(~(values < 0))])
    write_cells(_check_path(corpus, phase, slice_group), [[alike[0]], [alike[1]], [count]], 3)


def _check_path(corpus: Corpus, phase: str, slice_group: int) -> Path:
    return corpus.scratch / phase / f"{slice_group:06d}.bin"


def other_tasks(corpus: Corpus) -> int:
    """Return the number of tasks of `check_others`: 0 if all pairs are pairs of stars."""
    return slice_group_count(corpus) if has_others(corpus) else 0


def _checks(corpus: Corpus) -> Sequence[str]:
    return (FIRST_CHECK, SECOND_CHECK) if has_others(corpus) else (FIRST_CHECK,)


def check_counts(corpus: Corpus) -> tuple[int, int]:
    """Return the number of pairs that were compared, and the number of near-duplicates among them."""
    compared = alike = 0
    for phase in _checks(corpus):
        for slice_group in range(slice_group_count(corpus)):
            path = _check_path(corpus, phase, slice_group)
            compared += int(np.frombuffer(read_cell(path, 2), np.int64)[0])
            alike += len(read_cell(path, 0)) // np.dtype(row_type(corpus)).itemsize
    return compared, alike


# Joining


def _alike(corpus: Corpus, phase: str, slice_group: int) -> np.ndarray:
    """Return the pairs of near-duplicates that the check `phase` found in a group of slices: shape (2, n)."""
    path = _check_path(corpus, phase, slice_group)
    return np.stack([np.frombuffer(read_cell(path, cell), row_type(corpus)) for cell in range(2)])


def _stars(corpus: Corpus, slice_group: int) -> np.ndarray:
    """Return the rows of a group of slices that the first check joins, ascending, each with the smallest row of its
    component: shape (2, n). The smallest rows themselves are left out."""
    if _FIRST.have_ended(corpus):
        return _FIRST.stars(corpus, slice_group)
    return np.frombuffer(read_cell(_result_path(corpus, JOINED), slice_group), row_type(corpus)).reshape(2, -1)


def _first_pairs(corpus: Corpus, slice_group: int) -> np.ndarray:
    return _alike(corpus, FIRST_CHECK, slice_group)


def _last_pairs(corpus: Corpus, slice_group: int) -> np.ndarray:
    if not has_others(corpus):
        return _first_pairs(corpus, slice_group)
    return np.concatenate([_stars(corpus, slice_group), _alike(corpus, SECOND_CHECK, slice_group)], axis=1)


def _count(corpus: Corpus, phase: str) -> int:
    """Return the number of pairs of near-duplicates that the check `phase` found in all tasks."""
    sizes = (cell_size(_check_path(corpus, phase, slice_group), 0) for slice_group in range(slice_group_count(corpus)))
    return sum(sizes) // np.dtype(row_type(corpus)).itemsize


def _is_first_large(corpus: Corpus) -> bool:
    return has_others(corpus) and _count(corpus, FIRST_CHECK) > JOIN_PAIRS


def _is_last_large(corpus: Corpus) -> bool:
    return _FIRST.have_ended(corpus) or _count(corpus, _checks(corpus)[-1]) > JOIN_PAIRS


_FIRST = Rounds(JOINED, _first_pairs, _is_first_large)
_LAST = Rounds(GROUPS, _last_pairs, _is_last_large)
join_phases, group_phases = _FIRST.phases, _LAST.phases


def join_tasks(corpus: Corpus) -> int:
    """Return the number of tasks of `write_joined`: 1; 0 if rounds have joined the near-duplicates of the first check,
    or if there is no second check."""
    return int(has_others(corpus) and not _FIRST.have_ended(corpus))


def group_tasks(corpus: Corpus) -> int:
    """Return the number of tasks that make the groups from all near-duplicates: 1; 0 if rounds have made them."""
    return int(not _LAST.have_ended(corpus))


def _components(engine: Engine, corpus: Corpus, rounds: Rounds) -> Components:
    """Return the components of the pairs that rounds have not joined; of all pairs if no rounds were used."""
    slice_groups = range(slice_group_count(corpus))
    components = Components(
        engine, _rows_in(corpus, (rounds.rest(corpus, slice_group) for slice_group in slice_groups))
    )
    for slice_group in slice_groups:
        components.join(*rounds.rest(corpus, slice_group))
    return components


def _rows_in(corpus: Corpus, arrays: Iterable[np.ndarray]) -> np.ndarray:
    """Return the distinct rows of all arrays, ascending."""
    rows, pending, count = np.zeros(0, row_type(corpus)), list[np.ndarray](), 0
    for array in arrays:
        pending.append(sorted_unique(array))
        count += len(pending[-1])
        if count > max(len(rows), MERGE_ROWS):
            rows, pending, count = sorted_unique(np.concatenate([rows, *pending])), [], 0
    return sorted_unique(np.concatenate([rows, *pending]))


def write_joined(engine: Engine, corpus: Corpus, task: int) -> None:
    """Write each row that the first check joins, with the smallest row of its component, by group of slices."""
    components = _components(engine, corpus, _FIRST)
    _write_result(corpus, JOINED, components.rows, components.labels())


def write_members(engine: Engine, corpus: Corpus) -> None:
    """Write pairs for each group of near-duplicates: its smallest row and each other row. A pair is in the cell of the
    group of slices of its smallest row."""
    components = _components(engine, corpus, _LAST)
    labels = components.labels()
    other = positions_of(labels != np.arange(len(labels), dtype=labels.dtype))
    smallest, row = components.rows[labels[other]], components.rows[other]
    order = np.argsort(smallest, kind="stable")
    _write_cells(corpus, _result_path(corpus, GROUPS), smallest[order], row[order])


def write_groups(engine: Engine, corpus: Corpus, kept_of: KeptOf) -> None:
    """Write each removed row and the row that is kept in its place, by group of slices. `kept_of` takes joined rows and
    their labels, and returns the position of the kept row of each."""
    components = _components(engine, corpus, _LAST)
    _write_result(corpus, GROUPS, components.rows, kept_of(components.rows, components.labels()))


def _write_result(corpus: Corpus, phase: str, rows: np.ndarray, kept: np.ndarray, task: int = 0) -> None:
    """Write the rows that are not kept, each with the row kept in its place, one cell per group of slices."""
    removed = positions_of(kept != np.arange(len(kept), dtype=kept.dtype))
    _write_cells(corpus, _result_path(corpus, phase, task), rows[removed], rows[kept[removed]])


def _write_cells(corpus: Corpus, path: Path, row: np.ndarray, other: np.ndarray) -> None:
    """Write the pairs of `row`, which ascends, and `other`: one cell per group of slices that `row` is in."""
    bounds = np.searchsorted(row, slice_group_starts(corpus).astype(row.dtype)).tolist()
    cells = ([row[low:high], other[low:high]] for low, high in pairwise(bounds))
    write_cells(path, cells, slice_group_count(corpus))


def _read_pairs(corpus: Corpus, path: Path, slice_group: int) -> np.ndarray:
    return np.frombuffer(read_cell(path, slice_group), row_type(corpus)).reshape(2, -1)


def _result_path(corpus: Corpus, phase: str, task: int = 0) -> Path:
    return corpus.scratch / phase / f"{phase}-{task:06d}.bin"


def choose_tasks(corpus: Corpus) -> int:
    """Return the number of tasks of `choose_kept`: 0 if one task (`write_groups`) has chosen the kept rows."""
    return slice_group_count(corpus) * _LAST.have_ended(corpus)


def choose_kept(corpus: Corpus, slice_group: int, kept_of: KeptOf) -> None:
    """Write each removed row and the row kept in its place, like `write_groups`, for the groups whose smallest row is
    in this group of slices."""
    if _LAST.have_ended(corpus):
        smallest, other = _LAST.members(corpus, slice_group)
    else:
        smallest, other = _read_pairs(corpus, _result_path(corpus, GROUPS), slice_group)
    first = smallest[np.flatnonzero(np.diff(smallest, prepend=-1))]
    rows = np.concatenate([first, other])
    order = np.argsort(rows)
    place = np.empty_like(order)  # positions of `first` and `other` among the sorted rows
    place[order] = np.arange(len(order))
    labels = np.empty_like(order)
    labels[place] = place[np.concatenate([np.arange(len(first)), np.searchsorted(first, smallest)])]
    _write_result(corpus, REPRESENTATIVES, rows[order], kept_of(rows[order], labels), slice_group)


def removed_of(corpus: Corpus, slice_group: int) -> np.ndarray:
    """Return the removed rows of a group of slices, ascending, and the rows kept in their places: shape (2, n)."""
    if _result_path(corpus, REPRESENTATIVES).exists():
        paths = (_result_path(corpus, REPRESENTATIVES, task) for task in range(slice_group_count(corpus)))
        return unique_pairs([_read_pairs(corpus, path, slice_group) for path in paths])
    if _LAST.have_ended(corpus):  # the first row of each group is kept
        return _LAST.stars(corpus, slice_group)
    return _read_pairs(corpus, _result_path(corpus, GROUPS), slice_group)


def compare_rows(corpus: Corpus, open_files: Open, row: np.ndarray, other: np.ndarray, bound: float) -> np.ndarray:
    """Return the similarity of each pair of `row` and `other`; -1 if its upper bound is below `bound`."""
    values = np.empty(len(row))
    order = np.argsort(row, kind="stable")
    bounds = np.searchsorted(row[order], slice_group_starts(corpus).astype(row.dtype)).tolist()
    for slice_group, (low, high) in enumerate(pairwise(bounds)):
        if chosen := order[low:high].tolist():
            values[chosen] = _compare(corpus, open_files, slice_group, row[chosen], other[chosen], bound)
    return values


def measure(corpus: Corpus, open_files: Open, slice_group: int) -> None:
    """Write the similarity of each removed row of a group of slices to the row kept in its place."""
    row, partner = removed_of(corpus, slice_group)
    values = _compare(corpus, open_files, slice_group, row, partner, -1.0)
    write_cells(_check_path(corpus, VALUES, slice_group), [[values]], 1)


def values_of(corpus: Corpus, slice_group: int) -> np.ndarray:
    """Return the similarity of each removed row of a group of slices to the row kept in its place, float64."""
    return np.frombuffer(read_cell(_check_path(corpus, VALUES, slice_group), 0), np.float64)
