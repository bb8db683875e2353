# SPDX-License-Identifier: Apache-2.0
"""Products of vectors are exact integers on both engines; of equal ones the first counts."""

from types import ModuleType

import numpy as np
import pytest


@pytest.mark.parametrize("dimensions", [1, 1_024, 1_025])
def test_close_vectors_have_exact_products(engine: ModuleType, dimensions: int):
    rng = np.random.default_rng(dimensions)
    left = rng.integers(-128, 128, (5, dimensions)).astype(np.int8)
    right = np.concatenate([left[:2], np.full((1, dimensions), -128), rng.integers(-127, 128, (4, dimensions))])
    right = right.astype(np.int8)
    left[4] = -128
    exact = left.astype(np.int64) @ right.astype(np.int64).T
    for bound in (-1e9, 0.0, 3.0):
        i, j, dot = engine.close_vectors(left, right, np.full(5, bound, np.float32), np.full(7, 2, np.float32))
        expected = [(a, b, exact[a, b]) for a in range(5) for b in range(7) if exact[a, b] >= 2 * bound]
        assert list(zip(i.tolist(), j.tolist(), dot.tolist(), strict=True)) == expected
        assert i.dtype == j.dtype == dot.dtype == np.int64
    assert len(engine.close_vectors(left[:0], right, np.zeros(0, np.float32), np.zeros(7, np.float32))[0]) == 0


def test_nearest_vectors_are_in_order_and_of_equal_ones_the_first(engine: ModuleType):
    others = np.array([[10, 0], [0, 10], [10, 0], [7, 7], [-10, 0]], np.int8)
    weights = (1 / np.linalg.norm(others, axis=1)).astype(np.float32)
    vectors = np.array([[5, 1], [0, -3], [7, 7]], np.int8)
    found = engine.nearest_vectors(vectors, others, weights, 5)
    assert found.dtype == np.int32
    assert found.tolist() == [[0, 2, 3, 1, 4], [0, 2, 4, 3, 1], [3, 0, 1, 2, 4]]
