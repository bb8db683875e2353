# SPDX-License-Identifier: Apache-2.0
"""Vectors on the device: exact products by cuBLAS, and k-means by cuML."""

import cupy as cp
import numpy as np

from curation.base.errors import InputError, installation
from curation.models.vectors import FLOAT32_DIMENSIONS, Pairs, in_order
from gpu_pipeline.memory.device import BATCH_SHARE, on_device

VECTORS_AT_ONCE = 1 << 13  # compared with as many: 0.6 GB on the device
PRODUCT_BYTES = 640 << 20
TOLERANCE = float(np.finfo(np.float32).tiny)  # ends when no centre moves; cuVS refuses 0


@on_device(lambda *_, **__: PRODUCT_BYTES // BATCH_SHARE)
def nearest_vectors(vectors: np.ndarray, others: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    nearest = np.empty((len(vectors), count), np.int32)
    for start in range(0, len(vectors), VECTORS_AT_ONCE):
        rows = slice(start, start + VECTORS_AT_ONCE)
        scores = _exact_dots(vectors[rows], others).astype(cp.float32, copy=False) * cp.asarray(weights)
        all_rows = cp.arange(len(scores))
        for rank in range(count):
            best = scores.argmax(axis=1)  # the first of equal values, as in NumPy
            nearest[rows, rank] = cp.asnumpy(best)
            scores[all_rows, best] = -cp.inf
    return nearest


@on_device(lambda *_, **__: PRODUCT_BYTES // BATCH_SHARE)
def close_vectors(left: np.ndarray, right: np.ndarray, left_bounds: np.ndarray, right_bounds: np.ndarray) -> Pairs:
    blocks: list[Pairs] = []
    columns = [slice(start, start + VECTORS_AT_ONCE) for start in range(0, len(right), VECTORS_AT_ONCE)]
    for start in range(0, len(left), VECTORS_AT_ONCE):
        rows = slice(start, start + VECTORS_AT_ONCE)
        for others in columns:
            dots = _exact_dots(left[rows], right[others])
            bounds = cp.asarray(left_bounds[rows])[:, None] * cp.asarray(right_bounds[others])
            pairs = cp.flatnonzero(dots >= bounds)
            i, j = pairs // dots.shape[1] + start, pairs % dots.shape[1] + others.start
            blocks.append((cp.asnumpy(i), cp.asnumpy(j), cp.asnumpy(dots.reshape(-1)[pairs].astype(cp.int64))))
    return in_order(blocks)


def _exact_dots(left: np.ndarray, right: np.ndarray) -> cp.ndarray:
    """Return the dot products of all pairs: exact integers, in any order of summation. TF32 holds 8-bit integers
    exactly and adds in float32."""
    dtype = cp.float32 if left.shape[1] <= FLOAT32_DIMENSIONS else cp.float64
    return cp.asarray(left).astype(dtype) @ cp.asarray(right).astype(dtype).T


@on_device(lambda vectors, *_, **__: 4 * vectors.nbytes // BATCH_SHARE)
def fit_centroids(vectors: np.ndarray, clusters: int, rounds: int, seed: int) -> np.ndarray:
    try:
        from cuml.cluster import KMeans
    except ImportError:
        raise InputError(
            f"cuML finds the clusters on the GPU, and is not installed. {installation('cu13')}; cu12 for CUDA 12. Or "
            "give the centroids of an earlier run, or set clusters: 1"
        ) from None
    sample = cp.asarray(vectors)
    means = KMeans(
        n_clusters=clusters, init=sample[:clusters], n_init=1, max_iter=rounds, tol=TOLERANCE,
        random_state=seed % 2**31, output_type="cupy",
    )  # fmt: skip
    return cp.asnumpy(means.fit(sample).cluster_centers_).astype(np.float32)
