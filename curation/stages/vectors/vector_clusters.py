# SPDX-License-Identifier: Apache-2.0
"""Clusters of vectors: their centroids, the nearest clusters of each vector, and the close pairs in and near each
cluster.

Centroids are fitted once, on a sample chosen by hashes of vectors, and stored as int8. All later steps compute with
integers, so their results depend only on vectors and centroids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from curation.base.arrays import given_arrays, seeded_hashes, sorted_unique
from curation.base.contract import position_type
from curation.base.errors import InputError, counted
from curation.base.system.files import commit
from curation.base.system.sealed import read_sealed, write_sealed
from curation.base.system.steps import each
from curation.models.vectors import dots, quantised, squared_norms, unit_vectors
from curation.stages.corpus.components import Components
from curation.stages.corpus.key_ranges import read_cell, row_type, slice_group_count, write_cells
from curation.stages.vectors.vector_groups import Stars
from curation.stages.vectors.vector_store import VectorStore, save, vector_path

if TYPE_CHECKING:
    from curation.base.contract import Engine
    from curation.stages.outcome import Corpus

REMEDY = "Give centroids/stage-N.npz of an earlier run"
CENTROIDS, ASSIGNED, COMPARED, RECALL = "centroids", "assigned", "compared", "recall"  # phases
PER_CLUSTER = 1_000  # vectors per cluster, with `clusters: auto`
SAMPLE_PER_CLUSTER, MAX_SAMPLE = 32, 1 << 19  # vectors to which k-means is fitted
ROUNDS = 10  # of k-means
TWO_LEVELS = 2_048  # more clusters are found in two levels
TOPS_PROBED = 4  # clusters of the first level that are searched for a vector
RECALL_DOCUMENTS = 500  # documents compared with all vectors to measure the recall
AT_ONCE = 1 << 12  # vectors in memory on each side of a comparison
OWNER_VECTORS = 1 << 15  # vectors per task of the phase COMPARED, if clusters have equal sizes
MAX_TASKS = 1 << 12
MERGE_PAIRS = 1 << 20  # at most this many pairs wait to be joined


class Clusters(NamedTuple):
    """The centroids of a corpus.

    centroids  int8, shape (clusters, dimensions)
    tops       int8, shape (first-level clusters, dimensions); empty with one level
    starts     int64: first centroid of each first-level cluster, then the number of centroids
    """

    centroids: np.ndarray
    tops: np.ndarray
    starts: np.ndarray

    def nearest(self, engine: Engine, vectors: np.ndarray, count: int) -> np.ndarray:
        """Return the `count` nearest clusters of each vector, int32, nearest first; -1 where there are fewer."""
        out = np.full((len(vectors), count), -1, np.int32)
        if len(self.tops):
            found = self._nearest_in_tops(engine, vectors, count)
        else:
            weights = _weights(self.centroids)
            found = engine.nearest_vectors(vectors, self.centroids, weights, min(count, len(self.centroids)))
        out[:, : found.shape[1]] = found
        return out

    def _nearest_in_tops(self, engine: Engine, vectors: np.ndarray, count: int) -> np.ndarray:
        """Return the nearest clusters among those of the nearest first-level clusters."""
        tops = engine.nearest_vectors(vectors, self.tops, _weights(self.tops), min(TOPS_PROBED, len(self.tops)))
        weights = _weights(self.centroids)
        last = len(self.centroids)  # means: no cluster
        found = np.full((len(vectors), tops.shape[1] * count), last, np.int64)
        for index in range(tops.shape[1]):
            for top in np.unique(tops[:, index]).tolist():
                low, high = self.starts[top : top + 2].tolist()
                chosen = np.flatnonzero(tops[:, index] == top)
                near = engine.nearest_vectors(
                    vectors[chosen], self.centroids[low:high], weights[low:high], min(count, high - low)
                )
                found[chosen[:, None], index * count + np.arange(near.shape[1])] = near + low
        found.sort(axis=1)
        scores = np.full(found.shape, -np.inf, np.float32)
        for index in range(found.shape[1]):
            rows = np.flatnonzero(found[:, index] < last)
            clusters = found[rows, index]
            scores[rows, index] = dots(vectors[rows], self.centroids[clusters]).astype(np.float32) * weights[clusters]
        best = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        chosen = np.take_along_axis(found, best, axis=1)
        return np.where(chosen == last, -1, chosen).astype(np.int32)

    def save(self, path: Path) -> None:
        """Write the centroids to a `.npz` file."""
        with commit(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **self._asdict())

    @classmethod
    def load(cls, path: Path) -> Clusters:
        """Read what `save` wrote."""
        return cls(*given_arrays(path, cls._fields, "centroids", REMEDY))

    @classmethod
    def given(cls, path: Path) -> Clusters:
        """Read the centroids of an earlier run. Raises InputError for a file without centroids."""
        clusters = cls.load(path)
        centroids, tops, starts = clusters
        fits = centroids.ndim == 2 and len(centroids) > 0 and bool(centroids.dtype == tops.dtype == np.int8)
        fits = fits and tops.ndim == 2 and bool(centroids.any(axis=1).all() and tops.any(axis=1).all())
        if fits and len(tops):
            fits = starts.shape == (len(tops) + 1,) and starts.dtype == np.int64 and tops.shape[1] == centroids.shape[1]
            ends = fits and starts[0] == 0 and starts[-1] == len(centroids)
            fits = bool(ends and (np.diff(starts) > 0).all())
        if not fits:
            raise InputError(f"centroids: {path} does not hold int8 centroids. {REMEDY}")
        return clusters


def _weights(centroids: np.ndarray) -> np.ndarray:
    """Return a factor per centroid. By cosine, the nearest centroid has the highest dot product times its factor."""
    return (1 / np.sqrt(squared_norms(centroids).astype(np.float64))).astype(np.float32)


# Centroids


def centroids_path(corpus: Corpus) -> Path:
    """Return the path of the centroids, which one task computes and all others read."""
    return corpus.scratch / CENTROIDS / "centroids.npz"


def write_centroids(engine: Engine, corpus: Corpus, column: str, clusters: int, seed: int, given: str) -> None:
    """Fit centroids, or read them from the file `given`, and choose the vectors on which the recall is measured.

    clusters  number of clusters; 0: one per PER_CLUSTER vectors
    given     file of centroids; "": fit them
    """
    store = VectorStore(corpus)
    store.check(column)
    if clusters > store.count and not given and store.count:
        raise InputError(
            f"clusters: {clusters:,} are more than the {counted(store.count, 'different vector')} in column "
            f"{column!r}. Set clusters: auto"
        )
    if given:
        found = Clusters.given(Path(given))
        if store.count and found.centroids.shape[1] != store.dimensions:
            raise InputError(
                f"centroids: {given} has {found.centroids.shape[1]:,} dimensions, but the vectors in column {column!r} "
                f"have {store.dimensions:,}. Use vectors and centroids of one model"
            )
    else:
        found = _fitted(engine, store, clusters or max(-(-store.count // PER_CLUSTER), 1), seed)
    found.save(centroids_path(corpus))
    save(_sample_path(corpus), store.lowest(RECALL_DOCUMENTS, lambda hashes: seeded_hashes(hashes, seed)))
    count = len(found.centroids)
    wanted = max(-(-store.count // OWNER_VECTORS), 2 * corpus.workers)
    write_sealed(_tasks_path(corpus), min(wanted, count, MAX_TASKS) if store.count else 0)


def _fitted(engine: Engine, store: VectorStore, clusters: int, seed: int) -> Clusters:
    none = np.zeros((0, store.dimensions), np.int8), np.zeros(0, np.int64)
    if not store.count:
        return Clusters(none[0], *none)
    sample = store.at(store.lowest(sample_size(clusters), lambda hashes: seeded_hashes(hashes, seed)), "vectors")
    return fit_clusters(engine, sample, clusters, seed)


def sample_size(clusters: int) -> int:
    """Return the number of vectors to which this number of clusters is fitted."""
    return min(max(SAMPLE_PER_CLUSTER * clusters, PER_CLUSTER), max(MAX_SAMPLE, clusters))


def fit_clusters(engine: Engine, sample: np.ndarray, clusters: int, seed: int) -> Clusters:
    """Return at most `clusters` clusters, fitted to a sample of distinct vectors (int8)."""
    none = np.zeros((0, sample.shape[1]), np.int8), np.zeros(0, np.int64)
    if clusters <= TWO_LEVELS:
        return Clusters(_centres(engine, sample, clusters, seed), *none)
    count = int(np.ceil(np.sqrt(clusters)))
    tops = _centres(engine, sample[: SAMPLE_PER_CLUSTER * count], count, seed)
    home = np.concatenate([engine.nearest_vectors(batch, tops, _weights(tops), 1)[:, 0] for batch in _batches(sample)])
    tops = tops[np.unique(home)]
    found = []
    for top in each(np.unique(home).tolist(), "clusters", "cluster"):
        members = sample[home == top]
        share = max(round(clusters * len(members) / len(sample)), 1)
        found.append(_centres(engine, members, min(share, len(members)), seed))
    return Clusters(np.concatenate(found), tops, np.cumsum([0, *map(len, found)], dtype=np.int64))


def _batches(vectors: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(vectors), AT_ONCE):
        yield vectors[start : start + AT_ONCE]


def _centres(engine: Engine, sample: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """Return at most `clusters` distinct centres of a sample, int8."""
    if clusters == 1:
        centres = sample.sum(axis=0, dtype=np.int64)[None]
    elif clusters >= len(sample):
        return sample
    else:
        centres = engine.fit_centroids(unit_vectors(sample), clusters, ROUNDS, seed)
    vectors, has_direction = quantised(centres)
    vectors = vectors[has_direction] if has_direction.any() else sample[:1]
    _, first = np.unique(vectors, axis=0, return_index=True)
    return np.asarray(vectors[np.sort(first)])


def _sample_path(corpus: Corpus) -> Path:
    return corpus.scratch / CENTROIDS / "sample.bin"


def _tasks_path(corpus: Corpus) -> Path:
    return corpus.scratch / CENTROIDS / "tasks.json"


def compare_tasks(corpus: Corpus) -> int:
    """Return the number of tasks that compare vectors. Each task has consecutive clusters."""
    return int(read_sealed(_tasks_path(corpus)))


# Nearest clusters


def assign(engine: Engine, corpus: Corpus, number: int, probe: int) -> None:
    """Write the nearest clusters of each vector of a group of slices, the cosine to the nearest centroid, and the
    vectors by cluster."""
    store, clusters = VectorStore(corpus), Clusters.load(centroids_path(corpus)) if compare_tasks(corpus) else None
    nearest, near = [np.zeros((0, 1 + probe), np.int32)], [np.zeros(0)]
    if clusters is not None and store.facts[number]["vectors"]:
        norms, centroid_norms = store.slice_group(number, "norms"), squared_norms(clusters.centroids)
        done = 0
        for batch in each(_batches(store.slice_group(number, "vectors")), "nearest clusters", "batch"):
            found = clusters.nearest(engine, batch, 1 + probe)
            home = found[:, 0]
            dot = dots(batch, clusters.centroids[home]).astype(np.float64)
            square = norms[done : done + len(batch)].astype(np.float64) * centroid_norms[home].astype(np.float64)
            nearest.append(found)
            near.append(dot / np.sqrt(square))
            done += len(batch)
    found = np.concatenate(nearest)
    save(vector_path(corpus, number, "nearest"), found)
    save(vector_path(corpus, number, "cosines"), np.concatenate(near))
    cells = _by_task(corpus, found, clusters) if clusters is not None else []
    write_cells(_assigned_path(corpus, number), cells, len(cells))


def _by_task(corpus: Corpus, nearest: np.ndarray, clusters: Clusters) -> list[Sequence[np.ndarray]]:
    """Return two cells per task: the members of its clusters, then the visitors. Visitors are vectors with the cluster
    among their other nearest clusters. A cell has clusters (int32) and positions of vectors (uint32)."""
    tasks, count = compare_tasks(corpus), len(clusters.centroids)
    firsts = -(-np.arange(tasks + 1) * count // tasks)
    kinds = []
    for columns in (nearest[:, :1], nearest[:, 1:]):
        cluster = columns.reshape(-1)
        position = np.repeat(np.arange(len(nearest), dtype=np.uint32), columns.shape[1])
        chosen = np.flatnonzero(cluster >= 0)
        order = chosen[np.argsort(cluster[chosen], kind="stable")]
        kinds.append((cluster[order], position[order], np.searchsorted(cluster[order], firsts).tolist()))
    return [
        [cluster[bounds[task] : bounds[task + 1]], position[bounds[task] : bounds[task + 1]]]
        for task in range(tasks)
        for cluster, position, bounds in kinds
    ]


def _assigned_path(corpus: Corpus, number: int) -> Path:
    return corpus.scratch / ASSIGNED / f"{number:06d}.bin"


def _read_kind(store: VectorStore, task: int, kind: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the clusters, ascending, and the vector numbers of the members (kind 0) or visitors (kind 1) of a task."""
    clusters, numbers = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for number, start in enumerate(store.starts[:-1].tolist()):
        data = read_cell(_assigned_path(store.corpus, number), 2 * task + kind)
        count = len(data) // 8
        clusters.append(np.frombuffer(data, np.int32, count))
        numbers.append(np.frombuffer(data, np.uint32, count, 4 * count).astype(np.int64) + start)
    cluster, numbered = np.concatenate(clusters), np.concatenate(numbers)
    order = np.argsort(cluster, kind="stable")
    return cluster[order], numbered[order]


# Pairs


class _Forest:
    """The groups of joined rows. They are stored as pairs: the first row of a group, and another row of the group."""

    def __init__(self, engine: Engine, kind: str) -> None:
        self.engine = engine
        self.joined = np.zeros((2, 0), kind)
        self.pieces: list[np.ndarray] = []

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        self.pieces.append(np.stack([left, right]))
        if sum(piece.shape[1] for piece in self.pieces) > max(MERGE_PAIRS, self.joined.shape[1]):
            self.pairs()

    def pairs(self) -> np.ndarray:
        """Replace the added pairs by the fewest that join the same rows, and return these: shape (2, n)."""
        pairs = np.concatenate([self.joined, *self.pieces], axis=1)
        components = Components(self.engine, sorted_unique(pairs))
        components.join(*pairs)
        rows, labels = components.rows, components.labels()
        later = np.flatnonzero(labels != np.arange(len(labels), dtype=labels.dtype))
        self.joined, self.pieces = np.stack([rows[labels[later]], rows[later]]), []
        return self.joined


def compared_path(corpus: Corpus, task: int) -> Path:
    """Return the file with the pairs of a task: left rows, right rows, and the numbers of compared and of close
    pairs."""
    return corpus.scratch / COMPARED / f"{task:06d}.bin"


def compare(engine: Engine, corpus: Corpus, task: int, units: int) -> None:
    """Compare the vectors of each cluster of a task with each other and with the visitors: vectors for which the
    cluster is among the next nearest. Vectors in large groups are compared by `Stars`."""
    store = VectorStore(corpus)
    members, visitors = _read_kind(store, task, 0), _read_kind(store, task, 1)
    forest, counts = _Forest(engine, position_type(int(corpus.storage.starts[-1]))), np.zeros(2, np.int64)
    for cluster in each(np.unique(members[0]).tolist(), "close vectors", "cluster"):
        mine, theirs = (
            numbers[slice(*np.searchsorted(clusters, [cluster, cluster + 1]))]
            for clusters, numbers in (members, visitors)
        )
        stars = Stars(engine, store, mine, units)
        stars.join(theirs)
        near, far, compared = stars.found()
        counts += np.array([compared, len(near)])
        forest.add(store.at(near, "rows"), store.at(far, "rows"))
        mine = stars.rest
        counts[0] += len(mine) * (len(mine) - 1) // 2 + len(mine) * len(theirs)
        for start in range(0, len(mine), AT_ONCE):
            left = mine[start : start + AT_ONCE]
            for first, others in ((start, mine[start:]), (-1, theirs)):
                for low in range(0, len(others), AT_ONCE):
                    i, j = store.close(engine, left, others[low : low + AT_ONCE], units)
                    if first >= 0 and low == 0:  # a block is compared with itself
                        i, j = i[i < j], j[i < j]
                    near, far = left[i], others[low : low + AT_ONCE][j]
                    counts[1] += len(i) - (_found_before(store, near, far, cluster) if first < 0 else 0)
                    forest.add(store.at(near, "rows"), store.at(far, "rows"))
    write_cells(compared_path(corpus, task), [*([rows] for rows in forest.pairs()), [counts]], 3)


def _found_before(store: VectorStore, member: np.ndarray, visitor: np.ndarray, cluster: int) -> int:
    """Return how many of these pairs an earlier cluster has, too. That is so if the member also visits the visitor's
    nearest cluster, and this cluster has a lower number."""
    home = store.at(visitor, "nearest")[:, :1] if len(visitor) else np.zeros((0, 1), np.int32)
    visits = (store.at(member, "nearest")[:, 1:] == home).any(axis=1) if len(member) else np.zeros(0, bool)
    return int(np.count_nonzero(visits & (home[:, 0] < cluster)))


def pairs_of(corpus: Corpus) -> Iterator[np.ndarray]:
    """Yield the pairs of rows that each task has joined: shape (2, n)."""
    for task in range(compare_tasks(corpus)):
        cells = [read_cell(compared_path(corpus, task), cell) for cell in range(2)]
        yield np.stack([np.frombuffer(cell, row_type(corpus)) for cell in cells])


def pair_counts(corpus: Corpus) -> tuple[int, int]:
    """Return the number of pairs that were compared, and the number of close pairs among them."""
    counts = np.zeros(2, np.int64)
    for task in range(compare_tasks(corpus)):
        counts += np.frombuffer(read_cell(compared_path(corpus, task), 2), np.int64)
    return int(counts[0]), int(counts[1])


# Recall


def measure_recall(engine: Engine, corpus: Corpus, number: int, units: int) -> None:
    """Compare the sample with all vectors of a group of slices. Write the number of close pairs, and how many of them
    `compare` finds."""
    store = VectorStore(corpus)
    sample = np.fromfile(_sample_path(corpus), np.int64)
    counts = np.zeros(2, np.int64)
    numbers = np.arange(store.starts[number], store.starts[number + 1])
    for start in range(0, len(numbers), AT_ONCE):
        block = numbers[start : start + AT_ONCE]
        i, j = store.close(engine, sample, block, units)
        left, right = sample[i], block[j]
        other = left != right
        left, right = left[other], right[other]
        if len(left):
            near = [store.at(side, "nearest") for side in (left, right)]
            meets = (near[0] == near[1][:, :1]).any(axis=1) | (near[1] == near[0][:, :1]).any(axis=1)
            counts += np.array([len(left), np.count_nonzero(meets)])
    save(corpus.scratch / RECALL / f"{number:06d}.bin", counts)


def recall_of(corpus: Corpus) -> dict[str, int]:
    """Return the size of the sample, its close pairs, and how many of them are found."""
    pairs = np.zeros(2, np.int64)
    for number in range(slice_group_count(corpus)):
        pairs += np.fromfile(corpus.scratch / RECALL / f"{number:06d}.bin", np.int64)
    documents = _sample_path(corpus).stat().st_size // 8
    return {"documents": documents, "pairs": int(pairs[0]), "found": int(pairs[1])}


def cluster_sizes(store: VectorStore, clusters: int) -> np.ndarray:
    """Return the number of vectors whose nearest cluster is each cluster, from the files of all groups of slices."""
    sizes = np.zeros(clusters, np.int64)
    for number, fact in enumerate(store.facts):
        if fact["vectors"]:
            sizes += np.bincount(store.slice_group(number, "nearest")[:, 0], minlength=clusters)
    return sizes
