# SPDX-License-Identifier: Apache-2.0
"""Principal components against NumPy's singular values, and their exact sums."""

import numpy as np
import pytest

from curation.models.vectors import quantised, unit_vectors
from curation.stages.vectors import principal_components
from curation.stages.vectors.principal_components import PrincipalComponents

RNG = np.random.default_rng(1)
VECTORS, _ = quantised(RNG.standard_normal((300, 12)) * np.linspace(3, 0.1, 12) @ np.linalg.qr(RNG.random((12, 12)))[0])


def test_components_are_those_of_singular_values():
    unit = unit_vectors(VECTORS).astype(np.float64)
    left, values, right = np.linalg.svd(unit - unit.mean(axis=0), full_matrices=False)
    signs = np.sign([axis[np.abs(axis).argmax()] for axis in right])
    found = PrincipalComponents.fitted(VECTORS, 5)
    np.testing.assert_allclose(found.components, (right * signs[:, None])[:5], atol=5e-4)
    np.testing.assert_allclose(found.projected(VECTORS), (left * values * signs)[:, :5], atol=5e-4)
    np.testing.assert_allclose(found.shares, (values**2 / (values**2).sum())[:5], atol=1e-5)


def test_sums_are_exact_in_any_order(monkeypatch: pytest.MonkeyPatch):
    """Also for the most vectors that are summed, with the largest products."""
    expected = PrincipalComponents.fitted(VECTORS, 4)
    monkeypatch.setattr(principal_components, "ROWS_AT_ONCE", 7)
    found = PrincipalComponents.fitted(RNG.permutation(VECTORS), 4)
    assert [each.tobytes() for each in found] == [each.tobytes() for each in expected]
    assert found.projected(VECTORS).tobytes() == expected.projected(VECTORS).tobytes()
    monkeypatch.undo()
    largest = np.repeat(np.array([[127, 0], [-127, 0]], np.int8), principal_components.MAX_SAMPLE // 2, axis=0)
    found = PrincipalComponents.fitted(largest, 1)
    assert [each.tolist() for each in found] == [[[1.0, 0.0]], [0.0, 0.0], [1.0]]


def test_the_sample_is_chosen_by_a_hash(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(principal_components, "MAX_SAMPLE", 40)
    found = [PrincipalComponents.fitted(vectors, 2) for vectors in (VECTORS, VECTORS[::-1], VECTORS[:40])]
    assert found[0].components.tobytes() == found[1].components.tobytes() != found[2].components.tobytes()


@pytest.mark.parametrize("count", [1, 3, 5])
def test_components_without_variance_are_zero(count: int):
    line, _ = quantised(np.outer(np.ones(count), [1.0, -2.0, 2.0]))
    found = PrincipalComponents.fitted(line, 4)
    assert not found.projected(line).any() and not found.shares.any() and found.components.shape == (4, 3)
    found = PrincipalComponents.fitted(VECTORS[:3], 4)  # of three vectors, on a plane
    assert not found.projected(VECTORS)[:, 2:].any() and found.shares[1] > 0.01
