# SPDX-License-Identifier: Apache-2.0
"""The saved index of `semantic_dedup`, in the folder `semantic` of a run's `index`: vectors of kept documents.

    index.json, ids.arrow   as in `saved_index.py`; the settings name the model of the vectors, if a stage made them
    centroids.npz           centroids of the run, int8
    starts.bin              first place of each cluster, then the number of vectors (int64)
    vectors-00000.bin ...   vectors by cluster, then by document, as int8: PART_VECTORS in each file
    norms-00000.bin ...     their squared norms (int64); the scale of a unit vector is the inverse of the root
    documents-00000.bin ... their documents (int32, from 2^31 documents on int64)

A *place* is the position of a vector among all vectors of the index. The files depend only on the documents and the
centroids. Tasks write them and read them through memory maps. A new vector is compared with the vectors in its nearest
clusters of the index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Any

import numpy as np

from curation.base.arrays import load_arrays, map_file, seeded_hashes, write_array, write_file
from curation.base.contract import position_type
from curation.base.errors import InputError, IntegrityError, RecipeError
from curation.base.system.files import commit, known_sha256, temporary_folder
from curation.base.system.sealed import read_sealed, write_sealed
from curation.base.system.steps import each
from curation.models.vectors import UNITS, from_column, squared_norms
from curation.stages.corpus.index_tasks import index_files
from curation.stages.corpus.key_ranges import slice_group, slice_group_count, slice_group_starts
from curation.stages.corpus.saved_index import DESCRIPTION, IndexMatches, SavedIndex, missing_index
from curation.stages.vectors.vector_clusters import AT_ONCE, RECALL_DOCUMENTS, Clusters, centroids_path
from curation.stages.vectors.vector_store import COLUMNS, check_dimensions, close_pairs, save

if TYPE_CHECKING:
    from curation.base.contract import Engine
    from curation.stages.outcome import Corpus

FOLDER = "semantic"
VERSION = 1  # version of the form of vectors as integers
CENTROIDS, STARTS = "centroids.npz", "starts.bin"
SORTED, PARTS = "sorted", "parts"  # phases that write the index
INDEX, INDEX_RECALL = "index", "index_recall"  # phases that compare with the index
PART_VECTORS = 1 << 17
MEMBERS_AT_ONCE = 1 << 10  # vectors of the index compared at once with AT_ONCE new vectors


def _part_files(part: int) -> tuple[str, str, str]:
    return f"vectors-{part:05d}.bin", f"norms-{part:05d}.bin", f"documents-{part:05d}.bin"


# Writing


def _sorted_path(corpus: Corpus, number: int, name: str) -> Path:
    return corpus.scratch / SORTED / f"{number:06d}.{name}"


def sort_by_cluster(engine: Engine, corpus: Corpus, number: int, column: str) -> None:
    """Write the vectors of a group of slices, their order by cluster, their documents, and the size of each cluster."""
    part, clusters = slice_group(corpus, number), Clusters.load(centroids_path(corpus))
    positions = np.flatnonzero(part.column(COLUMNS[0]) != 0)
    homes, dimensions = [np.zeros(0, np.int32)], 0
    with commit(_sorted_path(corpus, number, "vectors")) as path, open(path, "wb") as file:
        for read in part.texts(positions, column):
            vectors, _ = from_column(read(), column)
            dimensions = vectors.shape[1]
            write_array(file, vectors)
            for start in range(0, len(vectors), AT_ONCE):
                homes.append(clusters.nearest(engine, vectors[start : start + AT_ONCE], 1)[:, 0])
    home = np.concatenate(homes)
    first = int(np.searchsorted(corpus.rows, slice_group_starts(corpus)[number].astype(corpus.rows.dtype)))
    save(_sorted_path(corpus, number, "order"), np.argsort(home, kind="stable").astype(np.uint32))
    save(_sorted_path(corpus, number, "documents"), (positions + first).astype(position_type(len(corpus.rows))))
    save(_sorted_path(corpus, number, "counts"), np.bincount(home, minlength=len(clusters.centroids)))
    write_sealed(_sorted_path(corpus, number, "json"), {"dimensions": dimensions, "vectors": len(positions)})


def _counts(corpus: Corpus) -> np.ndarray:
    """Return the number of vectors of each group of slices in each cluster, int64: shape (groups of slices,
    clusters)."""
    return np.stack(
        [np.fromfile(_sorted_path(corpus, number, "counts"), np.int64) for number in range(slice_group_count(corpus))]
    )


def part_count(corpus: Corpus) -> int:
    """Return the number of parts of the new index."""
    facts = (read_sealed(_sorted_path(corpus, number, "json")) for number in range(slice_group_count(corpus)))
    return -(-sum(fact["vectors"] for fact in facts) // PART_VECTORS)


def write_part(engine: Engine, corpus: Corpus, number: int) -> None:
    """Write a part of the index: vectors, their norms and their documents."""
    counts = _counts(corpus)
    starts = _starts(counts)
    low, high = number * PART_VECTORS, min((number + 1) * PART_VECTORS, int(starts[-1]))
    first, last = (int(np.searchsorted(starts, place, side="right")) - 1 for place in (low, high - 1))
    facts = [read_sealed(_sorted_path(corpus, group, "json")) for group in range(len(counts))]
    vectors = np.empty((high - low, max(fact["dimensions"] for fact in facts)), np.int8)
    kind = position_type(len(corpus.rows))
    documents = np.empty(high - low, kind)
    before = np.cumsum(counts, axis=0) - counts  # vectors of the same cluster in earlier groups of slices
    for group, fact in enumerate(facts):
        if not fact["vectors"]:
            continue
        own = _starts(counts[group : group + 1])
        chosen = np.arange(own[first], own[last + 1])
        cluster = np.repeat(np.arange(first, last + 1), counts[group, first : last + 1])
        place = chosen - own[cluster] + starts[cluster] + before[group, cluster] - low
        inside = (place >= 0) & (place < high - low)
        chosen = map_file(_sorted_path(corpus, group, "order"), np.uint32)[chosen[inside]]
        stored = map_file(_sorted_path(corpus, group, "vectors"), np.int8).reshape(fact["vectors"], -1)
        vectors[place[inside]] = stored[chosen]
        documents[place[inside]] = map_file(_sorted_path(corpus, group, "documents"), kind)[chosen]
    with index_files(corpus, _part_files(number)) as paths:
        for path, values in zip(paths, (vectors, squared_norms(vectors), documents), strict=True):
            write_file(path, values)


def _starts(counts: np.ndarray) -> np.ndarray:
    """Return the first place of each cluster, then the number of vectors."""
    return np.append(0, np.cumsum(counts.sum(axis=0))).astype(np.int64)


def write_clusters(corpus: Corpus) -> None:
    """Write the centroids and the places of their clusters."""
    with index_files(corpus, [CENTROIDS, STARTS]) as (centroids, starts):
        copyfile(centroids_path(corpus), centroids)
        write_file(starts, _starts(_counts(corpus)))


# Reading


class VectorIndex(SavedIndex):
    """The index of vectors in the folder `index` of a run. Raises RecipeError if the index is missing or has another
    format, IntegrityError if it is damaged."""

    def __init__(self, folder: str) -> None:
        path = Path(folder) / FOLDER
        if not (path / DESCRIPTION).is_file():
            raise RecipeError(missing_index(folder, "semantic_dedup", FOLDER))
        super().__init__(path)
        self._maps: dict[int, tuple[np.ndarray, ...]] = {}

    def check_content(self) -> None:
        """Raise IntegrityError if a file does not have the bytes that were written. A file is read only once, until it
        changes."""
        for name, entry in self.content["files"].items():
            if known_sha256(self.folder / name) != entry["sha256"]:
                raise IntegrityError(f"{self.folder / name} has changed since it was written; make the index again")

    def check_origin(self, origin: Mapping[str, Any]) -> None:
        """Raise RecipeError if the vectors of the index are from another model than vectors with this origin. Vectors
        of an input have no origin, so their model is not checked."""
        made = self.content["settings"]
        known = {**made, **origin} if "model" in made and origin else made
        self.check(known | {"vectors": VERSION})

    @cached_property
    def clusters(self) -> Clusters:
        """The centroids that divide the vectors of the index into clusters."""
        return Clusters.load(self.folder / CENTROIDS)

    @cached_property
    def starts_of_clusters(self) -> np.ndarray:
        """The first place of each cluster, then the number of vectors."""
        return map_file(self.folder / STARTS, np.int64)

    @property
    def count(self) -> int:
        """The number of vectors."""
        return int(self.starts_of_clusters[-1])

    @property
    def dimensions(self) -> int:
        """The number of dimensions of a vector; 0 without vectors."""
        return self.clusters.centroids.shape[1] if self.count else 0

    @property
    def parts(self) -> int:
        """The number of parts, which have at most PART_VECTORS vectors each."""
        return -(-self.count // PART_VECTORS)

    def clusters_at(self, places: np.ndarray) -> np.ndarray:
        """Return the cluster of the vector at each place."""
        return np.searchsorted(self.starts_of_clusters, places, side="right") - 1

    def between(self, low: int, high: int) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield blocks of the vectors at the places from `low` to below `high`. A block is its first place, the
        vectors, their norms and their documents."""
        while low < high:
            part, first = divmod(low, PART_VECTORS)
            count = min(MEMBERS_AT_ONCE, high - low, PART_VECTORS - first)
            vectors, norms, documents = (values[first : first + count] for values in self._part(part))
            yield low, vectors, norms, documents
            low += count

    def _part(self, number: int) -> tuple[np.ndarray, ...]:
        if number not in self._maps:
            vectors, norms, documents = (self.folder / name for name in _part_files(number))
            self._maps[number] = (
                map_file(vectors, np.int8).reshape(-1, self.dimensions),
                map_file(norms, np.int64),
                map_file(documents, position_type(self.documents)),
            )
        return self._maps[number]


# Comparing


def matches_path(corpus: Corpus, number: int) -> Path:
    """Return the file with the matches of a group of slices."""
    return corpus.scratch / INDEX / f"{number:06d}.npz"


def _sample_path(corpus: Corpus, number: int) -> Path:
    return corpus.scratch / INDEX / f"{number:06d}.sample.npz"


def match_slice_group(
    engine: Engine, corpus: Corpus, number: int, index: VectorIndex, column: str, probe: int, units: int, seed: int
) -> None:
    """Write the documents of a group of slices that are close to a document of the index. Also write a sample of
    vectors, to measure the recall.

    Each distinct vector is compared with the vectors in its nearest cluster of the index, and in the `probe` next
    clusters. All documents with this vector match the closest document of the index; of equally close documents the
    first."""
    part = slice_group(corpus, number)
    keys = np.stack([part.column(name) for name in COLUMNS], axis=1)
    present = np.flatnonzero(keys[:, 0])
    keys, first, own = np.unique(keys[present], axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)  # vectors in the order of their first documents
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    keys, own = keys[order], rank[own.reshape(-1)]
    with temporary_folder(corpus.scratch / INDEX / f"{number:06d}") as work:
        vectors = _read_vectors(part, present[first[order]], index, column, work / "vectors")
        nearest = np.full((len(vectors), 1 + probe), -1, np.int32)
        for start in range(0, len(vectors) if index.count else 0, AT_ONCE):
            batch = slice(start, start + AT_ONCE)
            nearest[batch] = index.clusters.nearest(engine, vectors[batch], 1 + probe)
        copies = np.bincount(own, minlength=len(keys))
        best, document, pairs = _closest(engine, vectors, nearest, copies, index, units)
        chosen = _lowest(keys, seed)
        with commit(_sample_path(corpus, number)) as path, open(path, "wb") as file:
            np.savez(file, keys=keys[chosen], vectors=vectors[chosen], nearest=nearest[chosen])
    matched = np.flatnonzero(best[own] >= 0)
    rows, found = part.rows[present[matched]], own[matched]
    details = {"documents": index.documents, "compared": int(pairs[0]), "close": int(pairs[1])}
    IndexMatches(rows, document[found], best[found] / UNITS, details).save(matches_path(corpus, number))


def _blocks(vectors: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(vectors), AT_ONCE):
        yield vectors[start : start + AT_ONCE]


def _read_vectors(part: Corpus, positions: np.ndarray, index: VectorIndex, column: str, path: Path) -> np.ndarray:
    """Write the vectors at `positions`, which are ascending, to a file, and return them through a memory map."""
    dimensions = 0
    with open(path, "wb") as file:
        for read in part.texts(positions, column):
            vectors, _ = from_column(read(), column)
            check_dimensions(column, dimensions, vectors.shape[1])
            dimensions = vectors.shape[1]
            if index.count and dimensions != index.dimensions:
                raise InputError(
                    f"index: {index.folder} has vectors of {index.dimensions:,} dimensions, but those in column "
                    f"{column!r} have {dimensions:,}. Use vectors of one model"
                )
            write_array(file, vectors)
    return map_file(path, np.int8).reshape(len(positions), dimensions)


def _closest(
    engine: Engine, vectors: np.ndarray, nearest: np.ndarray, copies: np.ndarray, index: VectorIndex, units: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each vector the cosine to the closest vector in its clusters of the index (in UNITS; -1 if no vector
    is close) and the document of that vector. Also return the numbers of compared and of close pairs of documents."""
    best, document = np.full(len(vectors), -1, np.int64), np.zeros(len(vectors), np.int64)
    pairs, norms = np.zeros(2, np.int64), squared_norms(vectors)
    visits = nearest.reshape(-1)
    order = np.argsort(visits, kind="stable")
    order = order[np.searchsorted(visits[order], 0) :]  # -1: no such cluster
    bounds = np.append(np.flatnonzero(np.diff(visits[order], prepend=-1)), len(order))
    for low, high in each([*pairwise(bounds.tolist())], "comparing with the index", "cluster"):
        cluster, visitors = visits[order[low]], order[low:high] // nearest.shape[1]
        span = index.starts_of_clusters[cluster : cluster + 2].tolist()
        pairs[0] += copies[visitors].sum() * (span[1] - span[0])
        for block in _blocks(visitors):
            mine = vectors[block], norms[block]
            for _, others, other_norms, documents in index.between(*span):
                i, j, cosine = close_pairs(engine, mine, (others, other_norms), units)
                pairs[1] += copies[block[i]].sum()
                _take_best(best, document, block[i], cosine, documents[j].astype(np.int64))
    return best, document, pairs


def _take_best(
    best: np.ndarray, document: np.ndarray, vector: np.ndarray, cosine: np.ndarray, other: np.ndarray
) -> None:
    """Update the closest document of each vector; of equally close documents the first counts."""
    order = np.lexsort((other, -cosine, vector))
    chosen = order[np.flatnonzero(np.diff(vector[order], prepend=-1))]
    vector, cosine, other = vector[chosen], cosine[chosen], other[chosen]
    better = (cosine > best[vector]) | ((cosine == best[vector]) & (other < document[vector]))
    best[vector[better]], document[vector[better]] = cosine[better], other[better]


# Recall


def _lowest(keys: np.ndarray, seed: int) -> np.ndarray:
    """Return the positions of the vectors that measure the recall: those whose keys have the lowest seeded hashes."""
    return np.lexsort((keys[:, 1], keys[:, 0], seeded_hashes(keys[:, 0], seed)))[:RECALL_DOCUMENTS]


def measure_index_recall(
    engine: Engine, corpus: Corpus, number: int, index: VectorIndex, units: int, seed: int
) -> None:
    """Compare a sample of the new vectors with all vectors in a part of the index. Write the number of close pairs, and
    how many of them are in clusters with which the new vector is compared."""
    vectors, nearest = _sample(corpus, seed)
    counts, norms = np.zeros(2, np.int64), squared_norms(vectors)
    low, high = number * PART_VECTORS, min((number + 1) * PART_VECTORS, index.count)
    for place, others, other_norms, _ in index.between(low, high if len(vectors) else low):
        i, j, _ = close_pairs(engine, (vectors, norms), (others, other_norms), units)
        met = (nearest[i] == index.clusters_at(place + j)[:, None]).any(axis=1)
        counts += np.array([len(i), np.count_nonzero(met)])
    save(corpus.scratch / INDEX_RECALL / f"{number:06d}.bin", counts)


def _sample(corpus: Corpus, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a sample of distinct vectors of all groups of slices, and their nearest clusters of the index."""
    pieces = []
    for number in range(slice_group_count(corpus)):
        stored = load_arrays(_sample_path(corpus, number))
        if len(stored["keys"]):
            pieces.append([stored[name] for name in ("keys", "vectors", "nearest")])
    if not pieces:
        return np.zeros((0, 0), np.int8), np.zeros((0, 0), np.int32)
    keys, vectors, nearest = (np.concatenate(values) for values in zip(*pieces, strict=True))
    keys, first = np.unique(keys, axis=0, return_index=True)
    chosen = first[_lowest(keys, seed)]
    return vectors[chosen], nearest[chosen]


def index_details(corpus: Corpus, index: VectorIndex, matches: list[IndexMatches], seed: int) -> dict[str, Any]:
    """Return the counts of the comparison with the index, for the report."""
    pairs = np.zeros(2, np.int64)
    for number in range(index.parts):
        pairs += np.fromfile(corpus.scratch / INDEX_RECALL / f"{number:06d}.bin", np.int64)
    return {
        "documents": index.documents,
        "vectors": index.count,
        "clusters": len(index.clusters.centroids),
        "pairs_compared": sum(entry.details["compared"] for entry in matches),
        "pairs_close": sum(entry.details["close"] for entry in matches),
        "recall": {"documents": len(_sample(corpus, seed)[0]), "pairs": int(pairs[0]), "found": int(pairs[1])},
    }
