# SPDX-License-Identifier: Apache-2.0
"""The distinct vectors of a corpus in files, by group of slices, in the order of their documents.

Equal vectors are found by their hashes, as `exact_dedup` finds equal texts. Each distinct vector is stored once, for
its first document. Its number, counted over all groups of slices, identifies it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from curation.base.arrays import map_file, positions_of, write_array, write_file
from curation.base.contract import ID
from curation.base.errors import InputError, counted
from curation.base.system.files import commit
from curation.base.system.sealed import read_sealed, write_sealed
from curation.models.vectors import UNITS, cosines, dots, from_column, squared_norms
from curation.stages.corpus.key_ranges import (
    read_cell,
    read_keys_of,
    reducer_count,
    row_type,
    slice_group,
    slice_group_count,
    slice_group_starts,
    write_cells,
)

if TYPE_CHECKING:
    from curation.base.contract import Engine, Frame
    from curation.stages.outcome import Corpus

COLUMNS = ("high", "low")  # keys: the hash of the vector; 0 for a document without a vector
EQUAL, VECTORS = "equal", "vectors"  # phases
TYPES = {"vectors": np.int8, "norms": np.int64, "hashes": np.uint64, "nearest": np.int32, "cosines": np.float64}


# Equal vectors


def vectors_of(engine: Engine, frame: Frame, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of a frame, as `from_column` does. If the frame has ids, an InputError names the document."""
    values = engine.to_arrow(frame[[column]]).column(0)
    try:
        return from_column(values, column)
    except InputError:
        if ID in frame.columns:
            from_column(values, column, engine.to_arrow(frame[[ID]]).column(0).to_pylist())
        raise


def write_equal(engine: Engine, corpus: Corpus, task: int) -> None:
    """Write the rows whose vector an earlier row has, each with the first row with this vector, by group of slices of
    the later row."""
    kind = row_type(corpus)
    rows, firsts = [np.zeros(0, kind)], [np.zeros(0, kind)]
    for _, keys, found in read_keys_of(corpus, task, 1, len(COLUMNS)):
        leaders = engine.group_leaders(keys)
        later = positions_of(leaders != np.arange(len(leaders), dtype=leaders.dtype))
        rows.append(found[later])
        firsts.append(found[leaders[later]])
    row, first = np.concatenate(rows), np.concatenate(firsts)
    order = np.argsort(row)
    row, first = row[order], first[order]
    bounds = np.searchsorted(row, slice_group_starts(corpus).astype(row.dtype)).tolist()
    cells = ([row[low:high], first[low:high]] for low, high in pairwise(bounds))
    write_cells(corpus.scratch / EQUAL / f"{task:06d}.bin", cells, len(bounds) - 1)


def equal_of(corpus: Corpus, number: int) -> np.ndarray:
    """Return the rows of a group of slices whose vector an earlier row has, ascending, each with the first row with
    this vector: shape (2, n)."""
    paths = [corpus.scratch / EQUAL / f"{task:06d}.bin" for task in range(reducer_count(corpus))]
    pieces = [np.frombuffer(read_cell(path, number), row_type(corpus)).reshape(2, -1) for path in paths]
    pairs = np.concatenate(pieces, axis=1)
    return np.asarray(pairs[:, np.argsort(pairs[0])])


# Files


def save(path: Path, values: np.ndarray) -> None:
    """Write the bytes of an array to a file, whole or not at all."""
    with commit(path) as temporary:
        write_file(temporary, values)


def vector_path(corpus: Corpus, number: int, name: str) -> Path:
    """Return the file of a group of slices with a value per vector."""
    return corpus.scratch / VECTORS / f"{number:06d}.{name}"


def write_vectors(corpus: Corpus, part: Corpus, number: int, column: str) -> None:
    """Write the distinct vectors of the group of slices `part`, their rows, norms and hashes, and how many documents
    have a vector. `part` lacks documents that match an index, so it may have no vectors."""
    hashes = part.column(COLUMNS[0])
    present = hashes != 0
    later = equal_of(corpus, number)[0]
    positions = np.flatnonzero(present & ~np.isin(part.rows, later, assume_unique=True))
    dimensions = 0
    norms = [np.zeros(0, np.int64)]
    with commit(vector_path(corpus, number, "vectors")) as path, open(path, "wb") as file:
        for read in part.texts(positions, column):
            vectors, _ = from_column(read(), column)
            check_dimensions(column, dimensions, vectors.shape[1])
            dimensions = vectors.shape[1]
            write_array(file, vectors)
            norms.append(squared_norms(vectors))
    save(vector_path(corpus, number, "norms"), np.concatenate(norms))
    save(vector_path(corpus, number, "hashes"), hashes[positions])
    save(vector_path(corpus, number, "rows"), part.rows[positions].astype(row_type(corpus)))
    facts = {"dimensions": dimensions, "vectors": len(positions), "documents": len(part.rows)}
    facts |= {"matched": len(slice_group(corpus, number).rows) - len(part.rows)}
    write_sealed(vector_path(corpus, number, "json"), facts | {"present": int(np.count_nonzero(present))})


def check_dimensions(column: str, known: int, dimensions: int) -> None:
    """Raise InputError if vectors have another number of dimensions than earlier vectors (`known`; 0: no earlier
    vectors)."""
    if known and dimensions != known:
        raise InputError(
            f"column {column!r} has vectors of {known:,} and of {dimensions:,} dimensions. Use vectors of one model"
        )


class VectorStore:
    """All distinct vectors of a corpus by number, through memory maps.

    count       number of vectors
    dimensions  number of dimensions of a vector; 0 without vectors
    starts      first number of each group of slices, then `count`
    """

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.facts = [read_sealed(vector_path(corpus, number, "json")) for number in range(slice_group_count(corpus))]
        self.starts = np.cumsum([0, *(fact["vectors"] for fact in self.facts)], dtype=np.int64)
        self.count = int(self.starts[-1])
        self.dimensions = max((fact["dimensions"] for fact in self.facts), default=0)
        self._maps: dict[tuple[int, str], np.ndarray] = {}

    def check(self, column: str) -> None:
        """Raise InputError if the groups of slices have vectors of different dimensions, or no vectors at all."""
        known = 0
        for fact in self.facts:
            if fact["vectors"]:
                check_dimensions(column, known, fact["dimensions"])
                known = fact["dimensions"]
        documents = sum(fact["documents"] for fact in self.facts)
        if documents and not self.count and not any(fact["matched"] for fact in self.facts):
            raise InputError(
                f"column {column!r} has no vector in any of {counted(documents, 'document')}. Name the column of the "
                "vectors"
            )

    @cached_property
    def present(self) -> int:
        """The number of documents with a vector."""
        return sum(fact["present"] for fact in self.facts)

    def slice_group(self, number: int, name: str) -> np.ndarray:
        """Return a value per vector of a group of slices: `vectors`, `rows`, `norms`, `hashes`, `nearest` or
        `cosines`."""
        if (number, name) not in self._maps:
            kind = row_type(self.corpus) if name == "rows" else TYPES[name]
            values = map_file(vector_path(self.corpus, number, name), kind)
            if name in ("vectors", "nearest") and self.facts[number]["vectors"]:
                values = values.reshape(self.facts[number]["vectors"], -1)
            self._maps[number, name] = values
        return self._maps[number, name]

    def at(self, numbers: np.ndarray, name: str) -> np.ndarray:
        """Return the value `name` of each vector; `numbers` are vector numbers (int64) in any order."""
        slice_group = np.searchsorted(self.starts, numbers, side="right") - 1
        out: np.ndarray | None = None
        for number in np.unique(slice_group).tolist():
            chosen = np.flatnonzero(slice_group == number)
            values = self.slice_group(number, name)[numbers[chosen] - self.starts[number]]
            if out is None:
                out = np.empty((len(numbers), *values.shape[1:]), values.dtype)
            out[chosen] = values
        if out is None:
            width = (self.dimensions,) if name == "vectors" else ()
            return np.zeros((0, *width), TYPES.get(name, np.int64))
        return out

    def numbers_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the numbers of the vectors that are stored for these rows."""
        slice_group = np.searchsorted(slice_group_starts(self.corpus), rows, side="right") - 1
        out = np.empty(len(rows), np.int64)
        for number in np.unique(slice_group).tolist():
            chosen = np.flatnonzero(slice_group == number)
            stored = self.slice_group(number, "rows")
            out[chosen] = np.searchsorted(stored, rows[chosen].astype(stored.dtype)) + self.starts[number]
        return out

    def lowest(self, count: int, hashes_of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the numbers of the `count` vectors with the lowest hashes, lowest first. `hashes_of` makes these
        hashes from the stored hashes. Vectors with equal hashes keep their order."""
        hashes, numbers = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
        for number in range(len(self.facts)):
            found = hashes_of(self.slice_group(number, "hashes"))
            chosen = np.argsort(found, kind="stable")[:count]
            hashes.append(found[chosen])
            numbers.append(chosen + self.starts[number])
        order = np.lexsort((np.concatenate(numbers), np.concatenate(hashes)))[:count]
        return np.asarray(np.concatenate(numbers)[order])

    def close(self, engine: Engine, left: np.ndarray, right: np.ndarray, units: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs of positions in `left` and `right` (vector numbers) whose cosine is at least `units`."""
        sides = [(self.at(side, "vectors"), self.at(side, "norms")) for side in (left, right)]
        i, j, _ = close_pairs(engine, sides[0], sides[1], units)
        return i, j

    def cosines(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the dot products and squared norms of pairs of vectors, given by their numbers."""
        sides: Sequence[np.ndarray] = [self.at(side, "vectors") for side in (left, right)]
        return dots(*sides), self.at(left, "norms"), self.at(right, "norms")


def close_pairs(
    engine: Engine, left: tuple[np.ndarray, np.ndarray], right: tuple[np.ndarray, np.ndarray], units: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the pairs of positions whose cosine is at least `units`, and the cosines in UNITS. `left` and `right` are
    vectors and their squared norms."""
    norms = left[1], right[1]
    roots = [np.sqrt(side.astype(np.float64)) for side in norms]
    # These bounds are lower than needed, by more than the rounding of float32. The exact cosine then decides.
    low = (roots[0] * (units / UNITS * (1 - 1e-5))).astype(np.float32)
    i, j, dot = engine.close_vectors(left[0], right[0], low, roots[1].astype(np.float32))
    cosine = cosines(dot, norms[0][i], norms[1][j])
    close = cosine >= units
    return i[close], j[close], cosine[close]
