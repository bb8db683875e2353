# SPDX-License-Identifier: Apache-2.0
"""`curation.neighbours`, `curation.align` and `curation.clusters`: rows with close vectors, by exact cosines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curation.base.arrays import seeded_hashes
from curation.base.contract import Engine, Frame
from curation.base.engine import engine_of, engine_of_all
from curation.base.errors import InputError, OutputError, RecipeError, as_share
from curation.base.system.files import local_output
from curation.frames.tables import in_memory, result_like
from curation.models.cluster_words import ClusterWords
from curation.models.vectors import UNITS, cosines, dots, from_column, squared_norms, units_of, vector_hashes
from curation.reading.documents import is_text
from curation.recipes.keywords import check_types
from curation.stages.vectors.vector_clusters import PER_CLUSTER, Clusters, fit_clusters, sample_size

AT_ONCE = 1 << 12  # vectors of each side in memory as floats
MAX_NEIGHBOURS = 1_000


def neighbours(frame: Frame, column: str = "embedding", *, k: int = 10) -> Frame:
    """Return the `k` nearest other rows of each row by the cosine of their vectors, as a frame.

    frame    DataFrame of pandas or cuDF, table of polars, DuckDB or pyarrow, or a Series of vectors; a Dask frame is
             to be computed first
    column   column of the vectors: lists of numbers, or JSON arrays of numbers in strings
    k        number of neighbours, at most 1,000; fewer if the frame has fewer rows with a vector

    The result has a row per pair: `row` and `neighbour`, the positions in the frame; `rank` from 1; `cosine`, rounded
    down to four digits. If vectors are equally near, the earlier row comes first. A row without a vector is in no pair.
    All pairs are compared by integer products, so both engines return the same result.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"embedding": [[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], None]})
        >>> curation.neighbours(frame, k=1)[["row", "neighbour", "cosine"]].values.tolist()
        [[0.0, 2.0, 0.9939], [1.0, 2.0, 0.1095], [2.0, 0.0, 0.9939]]

    Raises RecipeError for a wrong `k`, InputError for a column that is missing or has no vectors.
    """
    check_types("neighbours", {"column": (column, str), "k": (k, int)})
    if not 1 <= k <= MAX_NEIGHBOURS:
        raise RecipeError(f"k must be from 1 to {MAX_NEIGHBOURS:,}, not {k}")
    given, frame = frame, in_memory(frame, column)
    engine = engine_of(frame)
    vectors, rows = frame_vectors(engine, frame, column)
    norms = squared_norms(vectors)
    weights = (1 / np.sqrt(norms.astype(np.float64))).astype(np.float32)
    count = min(k, len(vectors) - 1)
    found = [_nearest(engine, vectors, weights, block, count) for block in _blocks(len(vectors))] if count > 0 else []
    other = np.concatenate([np.zeros((0, max(count, 0)), np.int64), *found]).reshape(-1)
    own = np.repeat(np.arange(len(vectors)), max(count, 0))
    cosine = np.empty(len(own))
    for block in _blocks(len(own)):
        left, right = own[block], other[block]
        cosine[block] = cosines(dots(vectors[left], vectors[right]), norms[left], norms[right]) / UNITS
    rank = np.tile(np.arange(1, max(count, 0) + 1), len(vectors))
    pairs = pa.table({"row": rows[own], "neighbour": rows[other], "rank": rank, "cosine": cosine})
    return result_like(given, engine, pairs)


def align(left: Frame, right: Frame, *, column: str = "embedding", threshold: float = 0.8) -> Frame:
    """Return pairs of close rows of two frames, such as parallel sentences. Each row is in at most one pair; the
    closest pairs come first.

    left, right   frames as in `curation.neighbours`, with vectors of one model that knows both languages
    column        column of the vectors in both: lists of numbers, or JSON arrays of numbers in strings
    threshold     lowest cosine of a pair, in (0, 1]

    Pairs are chosen greedily: the closest of the remaining pairs is next. Of equally close pairs, the one with the
    first left row is next, then the one with the first right row. The result has `left` and `right`, the positions in
    the frames, and `cosine`, rounded down to four digits.

        >>> import curation, pandas
        >>> english = pandas.DataFrame({"embedding": [[1.0, 0.0], [0.0, 1.0]]})
        >>> german = pandas.DataFrame({"embedding": [[0.1, 1.0], [1.0, 0.2], [1.0, 0.3]]})
        >>> curation.align(english, german)[["left", "right", "cosine"]].values.tolist()
        [[1.0, 0.0, 0.9948], [0.0, 1.0, 0.9811]]

    Raises RecipeError for a threshold outside (0, 1]; ArgumentError for one frame of pandas and one of cuDF; InputError
    for a column that is missing or has no vectors, and for vectors of different dimensions.
    """
    check_types("align", {"column": (column, str), "threshold": (threshold, float)})
    if not 0 < threshold <= 1:
        raise RecipeError(f"threshold must be above 0 and at most 1, not {threshold}{as_share(threshold)}")
    given, left, right = left, in_memory(left, column), in_memory(right, column)
    engine, units = engine_of_all(left, right), units_of(threshold)
    (lefts, left_rows), (rights, right_rows) = (frame_vectors(engine, side, column) for side in (left, right))
    if lefts.shape[1] != rights.shape[1]:
        raise InputError(
            f"column {column!r} has {lefts.shape[1]:,} dimensions on the left and {rights.shape[1]:,} on the right. "
            "Use vectors of one model"
        )
    parts = [_close(engine, lefts, rights, block, units) for block in _blocks(len(lefts))]
    pairs = np.concatenate([np.zeros((3, 0), np.int64), *parts], axis=1)
    pairs = pairs[:, np.lexsort((pairs[1], pairs[0], -pairs[2]))]
    chosen = _greedy(pairs, len(lefts), len(rights))
    first, second, cosine = pairs[:, chosen]
    found = pa.table({"left": left_rows[first], "right": right_rows[second], "cosine": cosine / UNITS})
    return result_like(given, engine, found)


def clusters(
    frame: Frame, column: str = "embedding", *, clusters: int | str = "auto", central: int = 3, seed: int = 1,
    centroids: str | os.PathLike[str] = "", save: str | os.PathLike[str] = "", words: int = 0,
    text_column: str = "text",
) -> Frame:  # fmt: skip
    """Return the clusters of the vectors of a frame with their central rows, largest cluster first, as a frame.

    frame      as in `curation.neighbours`
    column     column of the vectors: lists of numbers, or JSON arrays of numbers in strings
    clusters   number of clusters; auto: one per 1,000 different vectors. More than one needs scikit-learn or cuML
    central    rows per cluster: those with the highest cosine to its centroid, of equal ones the first
    seed       seed of the sample to which k-means is fitted
    centroids  file `centroids/stage-N.npz` of a run with `semantic_dedup`, in place of fitting; `clusters` is ignored
    save       write the centroids to this `.npz` file, for `assign_clusters` and `centroids`; "": do not
    words      typical words per cluster, in the column `words`, with commas between them; 0 (default): none
    text_column  column of the texts, for `words`

    The result has a row per central row: `cluster`, the number of the centroid; `rows`, the size of the cluster; `rank`
    from 1; `row`, the position in the frame; `cosine` to the centroid, rounded down to four digits. Rows without a
    vector are in no cluster, and empty clusters are left out. Typical words are those that a cluster uses more than the
    other clusters, by more than 1.96 standard deviations of log-odds with a Dirichlet prior (Monroe, Colaresi and
    Quinn, 2008). Words are separated by white space, in lower case, without marks around them. A single cluster has no
    typical words.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"embedding": [[1.0, 0.0], [1.0, 0.2], [1.0, 0.5], None]})
        >>> curation.clusters(frame, central=1).values.tolist()
        [[0.0, 3.0, 1.0, 1.0, 0.9992]]

    Raises RecipeError for a wrong number; InputError for a column that is missing or has no vectors, for more clusters
    than different vectors, and for centroids that do not fit; OutputError for a wrong name of the file.
    """
    check_types(
        "clusters",
        {"column": (column, str), "central": (central, int), "seed": (seed, int), "words": (words, int)}
        | ({} if isinstance(clusters, str) else {"clusters": (clusters, int)}),
    )
    if clusters != "auto" and (isinstance(clusters, str) or clusters < 1):
        raise RecipeError(f"clusters must be auto or a number of at least 1, not {clusters!r}")
    for name, number, least in (("central", central, 1), ("words", words, 0)):
        if number < least:
            raise RecipeError(f"{name} must be at least {least}, not {number}")
    target = npz_file(save) if save else None
    given, frame = frame, in_memory(frame, column)
    engine = engine_of(frame)
    texts = _texts(engine, frame, text_column) if words else []
    vectors, rows = frame_vectors(engine, frame, column)
    found = _clusters_of(engine, vectors, 0 if isinstance(clusters, str) else clusters, seed, os.fspath(centroids))
    if target:
        found.save(target)
    nearest = [found.nearest(engine, vectors[block], 1)[:, 0] for block in _blocks(len(vectors))]
    home = np.concatenate([np.zeros(0, np.int32), *nearest])
    norms, own = squared_norms(vectors), squared_norms(found.centroids)
    cosine = np.concatenate(
        [np.zeros(0, np.int64)]
        + [cosines(dots(vectors[b], found.centroids[home[b]]), norms[b], own[home[b]]) for b in _blocks(len(vectors))]
    )
    sizes = np.bincount(home, minlength=len(found.centroids))
    order = np.lexsort((np.arange(len(home)), -cosine, home, -sizes[home]))
    starts = np.flatnonzero(np.diff(home[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order)))) + 1
    order, rank = order[rank <= central], rank[rank <= central]
    columns: dict[str, Any] = {"cluster": home[order].astype(np.int64), "rows": sizes[home[order]], "rank": rank}
    columns |= {"row": rows[order], "cosine": cosine[order] / UNITS}
    if words:
        counted = ClusterWords()
        for cluster, row in zip(home.tolist(), rows.tolist(), strict=True):
            counted.add(cluster, texts[row] or "")
        typical = counted.typical(words)
        columns["words"] = pa.array(
            [", ".join(typical[cluster]) for cluster in home[order].tolist()], pa.large_string()
        )
    return result_like(given, engine, pa.table(columns))


def _texts(engine: Engine, frame: Any, column: str) -> list[str | None]:
    """Return the texts of a frame. Raises InputError if the frame has no column of texts."""
    if not hasattr(frame, "columns") or column not in frame.columns:
        names = list(getattr(frame, "columns", []))
        raise InputError(f"column {column!r} not found in the frame; it has {names}. Set text_column, or words=0")
    texts = engine.to_arrow(frame[[column]]).column(0)
    if not is_text(texts.type) and not pa.types.is_null(texts.type):
        raise InputError(f"column {column!r} holds {texts.type}, but words are counted in strings. Set text_column")
    return list(texts.to_pylist())


def npz_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a `.npz` file that a function may write. Raises OutputError for a name with another ending."""
    target = local_output(path)
    if target.suffix != ".npz":
        raise OutputError(f"save is {target}, expected a name that ends in .npz")
    return target


def _clusters_of(engine: Engine, vectors: np.ndarray, count: int, seed: int, centroids: str) -> Clusters:
    """Return the clusters of the file `centroids`, or fit `count` clusters (0: a number that depends on the
    vectors)."""
    if centroids:
        found = Clusters.given(Path(centroids))
        if len(vectors) and found.centroids.shape[1] != vectors.shape[1]:
            raise InputError(
                f"centroids: {centroids} has {found.centroids.shape[1]:,} dimensions, but the vectors have "
                f"{vectors.shape[1]:,}. Use vectors and centroids of one model"
            )
        return found
    hashes = vector_hashes(vectors)
    _, first = np.unique(hashes, axis=0, return_index=True)
    if count > len(first) and len(first):
        raise InputError(f"clusters: {count:,} are more than the {len(first):,} different vectors. Set clusters: auto")
    count = count or max(-(-len(first) // PER_CLUSTER), 1)
    first.sort()  # vectors with equal hashes in the sample keep their order
    chosen = np.argsort(seeded_hashes(hashes[first, 0], seed), kind="stable")[: sample_size(count)]
    if not len(first):
        return Clusters(vectors, vectors, np.zeros(0, np.int64))
    return fit_clusters(engine, vectors[first[chosen]], count, seed)


def frame_vectors(engine: Engine, frame: Any, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of a frame (int8), and the positions of the rows that have one."""
    if not hasattr(frame, "columns") or column not in frame.columns:
        names = list(getattr(frame, "columns", []))
        raise InputError(f"column {column!r} not found in the frame; it has {names}. Name the column of the vectors")
    vectors, present = from_column(engine.to_arrow(frame[[column]]).column(0), column)
    rows = np.flatnonzero(present)
    if len(present) and not len(rows):
        raise InputError(f"column {column!r} has no vector in any of {len(present):,} rows. Name the column of vectors")
    return vectors[rows], rows


def _blocks(count: int) -> Iterator[slice]:
    for start in range(0, count, AT_ONCE):
        yield slice(start, min(start + AT_ONCE, count))


def _nearest(engine: Engine, vectors: np.ndarray, weights: np.ndarray, block: slice, count: int) -> np.ndarray:
    """Return the nearest other vectors of each vector in a block, nearest first: int64, shape (n, count)."""
    mine, own = vectors[block], np.arange(block.start, block.stop)
    best = np.zeros((len(mine), 0), np.int64)
    scores = np.zeros((len(mine), 0), np.float32)
    for others in _blocks(len(vectors)):
        wanted = min(count + 1, others.stop - others.start)  # one of them may be the vector itself
        found = engine.nearest_vectors(mine, vectors[others], weights[others], wanted) + np.int64(others.start)
        score = np.empty(found.shape, np.float32)
        for index in range(wanted):
            score[:, index] = dots(mine, vectors[found[:, index]]).astype(np.float32) * weights[found[:, index]]
        score[found == own[:, None]] = -np.inf
        best, scores = np.concatenate([best, found], axis=1), np.concatenate([scores, score], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :count]  # earlier vectors come first among equal ones
        best, scores = np.take_along_axis(best, order, axis=1), np.take_along_axis(scores, order, axis=1)
    return best


def _close(engine: Engine, lefts: np.ndarray, rights: np.ndarray, block: slice, units: int) -> np.ndarray:
    """Return the close pairs of a left vector in `block` and any right vector. The array of shape (3, n) has the left
    index, the right index and the cosine."""
    mine = lefts[block]
    norms, found = squared_norms(mine), [np.zeros((3, 0), np.int64)]
    low = (np.sqrt(norms.astype(np.float64)) * (units / UNITS * (1 - 1e-5))).astype(np.float32)
    for others in _blocks(len(rights)):
        theirs = squared_norms(rights[others])
        i, j, dot = engine.close_vectors(
            mine, rights[others], low, np.sqrt(theirs.astype(np.float64)).astype(np.float32)
        )
        cosine = cosines(dot, norms[i], theirs[j])
        pairs = np.stack([i + block.start, j + others.start, cosine])
        found.append(pairs[:, cosine >= units])
    return np.concatenate(found, axis=1)


def _greedy(pairs: np.ndarray, lefts: int, rights: int) -> np.ndarray:
    """Return the positions of the chosen pairs. A pair is chosen if no earlier chosen pair has one of its rows."""
    free_left, free_right = bytearray(b"\1") * lefts, bytearray(b"\1") * rights
    chosen = []
    for index, (left, right) in enumerate(zip(pairs[0].tolist(), pairs[1].tolist(), strict=True)):
        if free_left[left] and free_right[right]:
            free_left[left] = free_right[right] = 0
            chosen.append(index)
    return np.array(chosen, np.int64)
