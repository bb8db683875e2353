# SPDX-License-Identifier: Apache-2.0
"""Groups of near-duplicates from pairs: their comparison by bundle, their joining, and the similarity to the kept row.

Stars are compared first. Other pairs are compared if the stars have not joined them. All comparisons are tasks of the
bundle of the left row, and read the data of the right row from the files of its bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from curation.arrays import batches_of, map_file, positions_of, write_array
from curation.contract import position_type
from curation.stages.components import Components
from curation.stages.key_ranges import bundle_count, bundle_starts, read_cell, row_type, write_cells
from curation.stages.near_pairs import OTHERS, STARS, has_others, pairs_of
from curation.stages.similarity import Similarity
from curation.system.files import commit

if TYPE_CHECKING:
    from curation.contract import Engine
    from curation.stages.outcome import Corpus

SIMILARITY, FIRST_CHECK, JOINED = "similarity", "first_check", "joined"  # phases
SECOND_CHECK, GROUPS, VALUES = "second_check", "groups", "values"
CANDIDATES, LABELS = "rows.bin", "labels.bin"
Open = Callable[[Path], Similarity]  # opens the files of a bundle


def similarity_folder(corpus: Corpus, bundle: int) -> Path:
    """Return the folder with the data by which the candidates of a bundle are compared."""
    return corpus.scratch / SIMILARITY / f"{bundle:06d}"


def write_candidates(folder: Path, rows: np.ndarray) -> None:
    """Write the rows whose data are in the folder."""
    with open(folder / CANDIDATES, "wb") as file:
        write_array(file, rows)


def candidate_count(corpus: Corpus) -> int:
    """Return the number of rows that have a pair."""
    folders = [similarity_folder(corpus, number) for number in range(bundle_count(corpus))]
    return sum((folder / CANDIDATES).stat().st_size for folder in folders) // np.dtype(row_type(corpus)).itemsize


def _compare(
    corpus: Corpus, open_files: Open, bundle: int, left: np.ndarray, right: np.ndarray, threshold: float
) -> np.ndarray:
    """Return the similarity of each pair, -1 if its bound is below the threshold. Left rows are in the bundle."""
    values = np.full(len(left), -1.0)
    order = np.argsort(right, kind="stable")
    bounds = np.searchsorted(right[order], bundle_starts(corpus).astype(right.dtype))
    mine, rows = _open(corpus, open_files, bundle)
    for other in np.flatnonzero(np.diff(bounds)).tolist():
        theirs, other_rows = (mine, rows) if other == bundle else _open(corpus, open_files, other)
        chosen = np.sort(order[bounds[other] : bounds[other + 1]])
        for batch in batches_of(len(chosen)):
            pairs = chosen[batch]
            numbers = np.searchsorted(rows, left[pairs]), np.searchsorted(other_rows, right[pairs])
            possible = np.flatnonzero(mine.bound_between(theirs, *numbers) >= threshold)
            values[pairs[possible]] = mine.between(theirs, *(side[possible] for side in numbers))
    return values


def _open(corpus: Corpus, open_files: Open, bundle: int) -> tuple[Similarity, np.ndarray]:
    folder = similarity_folder(corpus, bundle)
    return open_files(folder), map_file(folder / CANDIDATES, row_type(corpus))


# Checks


def check_stars(corpus: Corpus, open_files: Open, bundle: int, threshold: float) -> None:
    """Compare the stars of a bundle."""
    _check(corpus, open_files, FIRST_CHECK, bundle, pairs_of(corpus, bundle, STARS), threshold)


def check_others(corpus: Corpus, open_files: Open, bundle: int, threshold: float) -> None:
    """Compare the other pairs of a bundle that the stars have not joined."""
    pairs = pairs_of(corpus, bundle, OTHERS)
    _check(corpus, open_files, SECOND_CHECK, bundle, pairs[:, ~_joined(pairs, *_read_joined(corpus))], threshold)


def _joined(pairs: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return whether the rows of each pair have one label."""
    if not len(rows):
        return np.zeros(pairs.shape[1], bool)
    place = np.minimum(np.searchsorted(rows, pairs), len(rows) - 1)
    same = labels[place[0]] == labels[place[1]]
    return np.asarray(same & (rows[place] == pairs).all(axis=0))


def _check(corpus: Corpus, open_files: Open, phase: str, bundle: int, pairs: np.ndarray, threshold: float) -> None:
    """Compare pairs, and write the near-duplicates and the number of comparisons."""
    values = _compare(corpus, open_files, bundle, pairs[0], pairs[1], threshold)
    alike = pairs[:, ~(values < threshold)]  # not measured (NaN) passes
    count = np.array([np.count_nonzero(~(values < 0))])
    write_cells(_check_path(corpus, phase, bundle), [[alike[0]], [alike[1]], [count]], 3)


def _check_path(corpus: Corpus, phase: str, bundle: int) -> Path:
    return corpus.scratch / phase / f"{bundle:06d}.bin"


def other_tasks(corpus: Corpus) -> int:
    """Return the number of bundles, or 0 if there are only stars."""
    return bundle_count(corpus) if has_others(corpus) else 0


def join_tasks(corpus: Corpus) -> int:
    """Return 1, or 0 if there are only stars."""
    return int(has_others(corpus))


def _checks(corpus: Corpus) -> Sequence[str]:
    return (FIRST_CHECK, SECOND_CHECK) if has_others(corpus) else (FIRST_CHECK,)


def check_counts(corpus: Corpus) -> tuple[int, int]:
    """Return the number of pairs that were compared, and of near-duplicates among them."""
    compared = alike = 0
    for phase in _checks(corpus):
        for bundle in range(bundle_count(corpus)):
            path = _check_path(corpus, phase, bundle)
            compared += int(np.frombuffer(read_cell(path, 2), np.int64)[0])
            alike += len(read_cell(path, 0)) // np.dtype(row_type(corpus)).itemsize
    return compared, alike


# Joining


def _alike(corpus: Corpus, phase: str) -> Iterator[np.ndarray]:
    """Yield the near-duplicates that a check found, by bundle: shape (2, n)."""
    for bundle in range(bundle_count(corpus)):
        path = _check_path(corpus, phase, bundle)
        yield np.stack([np.frombuffer(read_cell(path, cell), row_type(corpus)) for cell in range(2)])


def _rows_in(corpus: Corpus, arrays: Iterable[np.ndarray]) -> np.ndarray:
    """Return the rows in any of the arrays, ascending. Takes one byte per row of the storage."""
    present = np.zeros(int(corpus.storage.starts[-1]), bool)
    for rows in arrays:
        present[rows] = True
    return positions_of(present).astype(row_type(corpus), copy=False)


def _components(engine: Engine, corpus: Corpus) -> Components:
    """Return the components of the near-duplicates that all checks found."""
    last = _checks(corpus)[-1]
    joined = _read_joined(corpus) if last == SECOND_CHECK else None
    known = [joined[0]] if joined else []
    components = Components(engine, _rows_in(corpus, chain(known, _alike(corpus, last))))
    if joined:
        components.restore(*joined)
    for pairs in _alike(corpus, last):
        components.join(*pairs)
    return components


def _read_joined(corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that stars join, ascending, and the label of each: a position in these rows."""
    rows = map_file(corpus.scratch / JOINED / CANDIDATES, row_type(corpus))
    return rows, map_file(corpus.scratch / JOINED / LABELS, position_type(len(rows)))


def write_joined(engine: Engine, corpus: Corpus, task: int) -> None:
    """Write the rows that stars join, and the label of each."""
    components = Components(engine, _rows_in(corpus, _alike(corpus, FIRST_CHECK)))
    for pairs in _alike(corpus, FIRST_CHECK):
        components.join(*pairs)
    labels = components.labels()
    for name, values in ((CANDIDATES, components.rows), (LABELS, labels)):
        with commit(corpus.scratch / JOINED / name) as path, open(path, "wb") as file:
            write_array(file, values)


def write_groups(engine: Engine, corpus: Corpus, kept_of: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
    """Write each removed row and the row that is kept in its place, by bundle. `kept_of` takes joined rows and their
    labels, and returns the position of the kept row of each."""
    components = _components(engine, corpus)
    rows = components.rows
    kept = kept_of(rows, components.labels())
    removed = positions_of(kept != np.arange(len(kept), dtype=kept.dtype))
    row, partner = rows[removed], rows[kept[removed]]
    bounds = np.searchsorted(row, bundle_starts(corpus).astype(row.dtype)).tolist()
    cells = ([row[low:high], partner[low:high]] for low, high in pairwise(bounds))
    write_cells(_groups_path(corpus), cells, bundle_count(corpus))


def _groups_path(corpus: Corpus) -> Path:
    return corpus.scratch / GROUPS / "groups.bin"


def removed_of(corpus: Corpus, bundle: int) -> np.ndarray:
    """Return the removed rows of a bundle, ascending, and the rows kept in their places: shape (2, n)."""
    return np.frombuffer(read_cell(_groups_path(corpus), bundle), row_type(corpus)).reshape(2, -1)


def measure(corpus: Corpus, open_files: Open, bundle: int) -> None:
    """Write the similarity of each removed row of a bundle to the kept one."""
    row, partner = removed_of(corpus, bundle)
    values = _compare(corpus, open_files, bundle, row, partner, -1.0)
    write_cells(_check_path(corpus, VALUES, bundle), [[values]], 1)


def values_of(corpus: Corpus, bundle: int) -> np.ndarray:
    """Return the similarity of each removed row of a bundle to the kept one, float64."""
    return np.frombuffer(read_cell(_check_path(corpus, VALUES, bundle), 0), np.float64)


__all__ = [
    "FIRST_CHECK",
    "GROUPS",
    "JOINED",
    "SECOND_CHECK",
    "SIMILARITY",
    "VALUES",
    "candidate_count",
    "check_counts",
    "check_others",
    "check_stars",
    "join_tasks",
    "measure",
    "other_tasks",
    "removed_of",
    "similarity_folder",
    "values_of",
    "write_candidates",
    "write_groups",
    "write_joined",
]
