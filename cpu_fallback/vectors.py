# SPDX-License-Identifier: Apache-2.0
"""Vectors on NumPy arrays: exact products by BLAS, and k-means by scikit-learn."""

import warnings

import numpy as np

from curation.base.errors import InputError, installation
from curation.models.vectors import FLOAT32_DIMENSIONS, Pairs, in_order

VECTORS_AT_ONCE = 1 << 10  # rows compared with as many rows: 8 MB of products and bounds


def nearest_vectors(vectors: np.ndarray, others: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    scores = _exact_dots(vectors, others).astype(np.float32, copy=False) * weights
    nearest = np.empty((len(vectors), count), np.int32)
    rows = np.arange(len(vectors))
    for index in range(count):  # each round takes the first of the highest values
        nearest[:, index] = scores.argmax(axis=1)
        scores[rows, nearest[:, index]] = -np.inf
    return nearest


def close_vectors(left: np.ndarray, right: np.ndarray, left_bounds: np.ndarray, right_bounds: np.ndarray) -> Pairs:
    blocks: list[Pairs] = []
    columns = [slice(start, start + VECTORS_AT_ONCE) for start in range(0, len(right), VECTORS_AT_ONCE)]
    for start in range(0, len(left), VECTORS_AT_ONCE):
        rows = slice(start, start + VECTORS_AT_ONCE)
        for others in columns:
            dots = _exact_dots(left[rows], right[others])
            bounds = np.multiply.outer(left_bounds[rows], right_bounds[others])
            pairs = np.flatnonzero(dots >= bounds)
            i, j = np.divmod(pairs, dots.shape[1])
            blocks.append((i + start, j + others.start, dots.reshape(-1)[pairs].astype(np.int64)))
    return in_order(blocks)


def _exact_dots(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the dot products of all pairs: exact integers, in any order of summation."""
    dtype: type[np.floating] = np.float32 if left.shape[1] <= FLOAT32_DIMENSIONS else np.float64
    return left.astype(dtype) @ right.astype(dtype).T


def fit_centroids(vectors: np.ndarray, clusters: int, rounds: int, seed: int) -> np.ndarray:
    try:
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise InputError(
            f"scikit-learn finds the clusters, and is not installed. {installation('embeddings')}. Or give the "
            "centroids of an earlier run, or set clusters: 1"
        ) from None
    start = np.ascontiguousarray(vectors[:clusters])
    means = KMeans(clusters, init=start, n_init=1, max_iter=rounds, tol=0, random_state=seed % 2**32)
    with threadpool_limits(limits=1), warnings.catch_warnings():  # with several threads, sums differ from run to run
        warnings.simplefilter("ignore")  # there are fewer distinct vectors than clusters
        return np.asarray(means.fit(vectors).cluster_centers_, np.float32)
