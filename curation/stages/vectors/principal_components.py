# SPDX-License-Identifier: Apache-2.0
"""The principal components of vectors, and projections of vectors on them. The order of rows does not change the
numbers.

Vectors are scaled to length 1 and rounded to 2^-15; the mean and the components are rounded to 2^-20. All sums of
products of these numbers are exact in float64, so neither the order of rows nor the threads of a matrix product change
the sums. Only the eigenvectors of the covariances are inexact: the last of their 53 bits may differ between machines.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from curation.base.arrays import given_arrays, seeded_hashes
from curation.base.errors import InputError
from curation.base.system.files import commit
from curation.models.vectors import ROWS_AT_ONCE, squared_norms, vector_hashes

MAX_SAMPLE = 1 << 16  # vectors from which covariances are computed; sums of this many products up to 2^30 fit int64
UNIT, FINE = 1 << 15, 1 << 20  # steps per 1, in vectors and in components
NO_VARIANCE = 1e-12  # a smaller share of the variance is a rounding error
REMEDY = "Give a file that curation.pca saved"


class PrincipalComponents(NamedTuple):
    """Directions of the most variance, in falling order. A direction without variance has only zeros.

    components  float32, shape (components, dimensions); the first number of largest size in each component is positive
    mean        float32, shape (dimensions,)
    shares      float64, shape (components,): share of the variance along each component
    """

    components: np.ndarray
    mean: np.ndarray
    shares: np.ndarray

    @classmethod
    def fitted(cls, vectors: np.ndarray, count: int) -> PrincipalComponents:
        """Return the first `count` components of vectors (int8, none all zeros). Of more than MAX_SAMPLE vectors, a
        sample by hashes is used. Without vectors the components have no dimensions."""
        if len(vectors) > MAX_SAMPLE:
            vectors = vectors[np.argsort(seeded_hashes(vector_hashes(vectors)[:, 0], 0), kind="stable")[:MAX_SAMPLE]]
        number, dimensions = vectors.shape
        if not number:
            return cls(np.zeros((count, 0), np.float32), np.zeros(0, np.float32), np.zeros(count))
        sums, products = np.zeros(dimensions, np.int64), np.zeros((dimensions, dimensions))
        for start in range(0, number, ROWS_AT_ONCE):
            steps = _steps(vectors[start : start + ROWS_AT_ONCE])
            sums += steps.sum(axis=0).astype(np.int64)
            products += steps.T @ steps
        covariances = number * products.astype(np.int64) - np.outer(sums, sums)
        variances, axes = np.linalg.eigh(covariances / (number * UNIT) ** 2)
        whole, width = max(float(variances.sum()), 0.0), min(count, dimensions)
        shares, components = np.zeros(count), np.zeros((count, dimensions))
        if whole:
            shares[:width] = variances[::-1][:width] / whole
        shares[shares <= NO_VARIANCE] = 0
        components[:width] = np.rint(axes.T[::-1][:width] * FINE)
        components[shares == 0] = 0
        largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
        components *= np.where(largest < 0, -1 / FINE, 1 / FINE)
        mean = np.rint(sums / (number * UNIT) * FINE) / FINE
        return cls(components.astype(np.float32), mean.astype(np.float32), shares)

    def projected(self, vectors: np.ndarray) -> np.ndarray:
        """Return the projections of vectors (int8, shape (n, dimensions)) on the components: float32 of shape (n,
        components)."""
        out = np.empty((len(vectors), len(self.components)), np.float32)
        mean, axes = self.mean.astype(np.float64), self.components.T.astype(np.float64)
        for start in range(0, len(vectors), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            out[rows] = (_steps(vectors[rows]) / UNIT - mean) @ axes
        return out

    def save(self, path: Path) -> None:
        """Write the components to a `.npz` file."""
        with commit(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **self._asdict())

    @classmethod
    def given(cls, path: Path) -> PrincipalComponents:
        """Read what `save` wrote. Raises InputError for a file without components."""
        found = cls(*given_arrays(path, cls._fields, "model", REMEDY))
        shape = found.components.shape
        fits = len(shape) == 2 and min(shape) > 0 and (found.mean.shape, found.shares.shape) == (shape[1:], shape[:1])
        fits = fits and [each.dtype for each in found] == [np.float32, np.float32, np.float64]
        if not fits or not all(np.isfinite(each).all() for each in found):
            raise InputError(f"model: {path} does not hold finite components with a mean. {REMEDY}")
        return found


def _steps(vectors: np.ndarray) -> np.ndarray:
    """Return vectors (int8, none all zeros) scaled to length UNIT and rounded, as integers in float64."""
    norms = np.sqrt(squared_norms(vectors).astype(np.float64))
    return np.rint(vectors * np.float64(UNIT) / norms[:, None])
