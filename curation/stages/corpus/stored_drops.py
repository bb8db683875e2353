# SPDX-License-Identifier: Apache-2.0
"""Removed rows in files: the process that decides needs no memory for these rows, however many there are.

A file is written under another name and then renamed: a process that has lost its lease may write a file again while
another process memory-maps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from curation.base.arrays import batches_of, map_file, write_array
from curation.base.system.files import commit, commit_all
from curation.stages.corpus.key_ranges import row_type
from curation.stages.outcome import Drops

if TYPE_CHECKING:
    from curation.stages.corpus.saved_index import IndexMatches
    from curation.stages.outcome import Corpus

DECISION = "decision"  # folder


Pieces = Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]  # rows of the corpus, partners, values


def stored_drops(corpus: Corpus, reason: str, pieces: Pieces) -> Drops:
    """Write the removed rows, partners and values of all pieces to files, and return them as drops. Partners are the
    kept rows."""
    write_drops(corpus, reason, pieces)
    return read_drops(corpus, reason)


def matched_drops(corpus: Corpus, reason: str, folder: str | Path, matches: Iterable[IndexMatches]) -> Drops:
    """Return the drops of documents that match a document of the saved index in `folder`."""
    write_drops(corpus, reason, ((entry.position, entry.number, entry.value) for entry in matches), "int64")
    return read_drops(corpus, reason, "int64")._replace(index_folder=str(folder))


def write_drops(corpus: Corpus, reason: str, pieces: Pieces, partner_type: str = "") -> None:
    """Write the rows, partners and values of all pieces to files."""
    files = _files(corpus, reason, partner_type)
    with commit_all(*files) as temporary, ExitStack() as stack:
        opened = [stack.enter_context(open(path, "wb")) for path in temporary]
        for piece in pieces:
            for file, array, kind in zip(opened, piece, files.values(), strict=True):
                write_array(file, array.astype(kind, copy=False))


def read_drops(corpus: Corpus, reason: str, partner_type: str = "") -> Drops:
    """Return the drops that `write_drops` wrote to files, as memory maps."""
    row, partner, value = (map_file(path, kind) for path, kind in _files(corpus, reason, partner_type).items())
    return Drops(row, reason, value, partner)


def _files(corpus: Corpus, reason: str, partner_type: str) -> dict[Path, str]:
    """Return the files of rows, partners and values, with their types."""
    kinds = {"row": row_type(corpus), "partner": partner_type or row_type(corpus), "value": "float64"}
    return {corpus.scratch / DECISION / f"{reason}.{name}": kind for name, kind in kinds.items()}


def count_below(drops: Drops, bound: float) -> int:
    """Return the number of rows with a value below a bound."""
    value = np.asarray(drops.value)
    return sum(int(np.count_nonzero(value[batch] < bound)) for batch in batches_of(len(value)))


def sorted_file(path: Path, pieces: Sequence[np.ndarray]) -> np.ndarray:
    """Return all values of some arrays of integers in ascending order, in a new file."""
    kind = np.result_type(*pieces)
    with commit(path) as temporary:
        with open(temporary, "wb") as file:
            for piece in pieces:
                for batch in batches_of(len(piece)):
                    write_array(file, piece[batch].astype(kind, copy=False))
        if any(map(len, pieces)):
            np.memmap(temporary, kind, "r+").sort()
    return map_file(path, kind)


def distinct_file(path: Path, pieces: Sequence[np.ndarray]) -> np.ndarray:
    """Return the distinct values of some arrays of integers, ascending, in a new file."""
    values = sorted_file(path.with_suffix(".sorted"), pieces)
    with commit(path) as temporary, open(temporary, "wb") as file:
        for different, _ in runs_of(values):
            write_array(file, different.astype(values.dtype))
    return map_file(path, values.dtype)


def runs_of(values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the distinct values of an ascending array and how often each occurs, in batches."""
    open_run = np.zeros((2, 0), np.int64)  # the last value and its count so far: it may occur in the next batch, too
    for batch in batches_of(len(values)):
        part = values[batch]
        starts = np.flatnonzero(np.r_[True, part[1:] != part[:-1]])
        runs = np.stack([part[starts].astype(np.int64), np.diff(np.r_[starts, len(part)])])
        if open_run.size and open_run[0, 0] == runs[0, 0]:
            runs[1, 0] += open_run[1, 0]
        else:
            runs = np.concatenate([open_run, runs], axis=1)
        yield runs[0, :-1], runs[1, :-1]
        open_run = runs[:, -1:]
    yield open_run[0], open_run[1]
