# SPDX-License-Identifier: Apache-2.0
"""Crowds of close vectors: the groups of all pairs, from a few products per vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import curation
from curation.stages.corpus import key_ranges
from curation.stages.vectors import vector_clusters, vector_groups
from tests.stages.test_semantic_dedup import DIMENSIONS, LENGTHS, by_all_pairs, run_on

WIDTHS = (0.02, 0.1, 0.2, 0.3, 0.45, 0.6)  # of crowds: from near-equal vectors to ones as far apart as the threshold


def crowded(count: int, seed: int) -> list[list[float]]:
    """Vectors in crowds of several widths around chains of centres, some of which touch, and single ones."""
    rng = np.random.default_rng(seed)
    centres = [rng.normal(size=DIMENSIONS)]
    for _ in range(7):
        step = rng.choice([0.2, 0.5, 0.8, 3.0])
        centres.append(centres[-1] + step * rng.normal(size=DIMENSIONS))
    of = rng.choice(9, count, p=[0.3, 0.2, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.1])
    width = rng.choice(WIDTHS, 9)
    vectors = [
        rng.normal(size=DIMENSIONS) if crowd == 8 else centres[crowd] + width[crowd] * rng.normal(size=DIMENSIONS)
        for crowd in of.tolist()
    ]
    return np.array(vectors).tolist()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stars in clusters of a few vectors; the number of stars of each cluster."""
    for name, value in (("LARGE_CLUSTER", 20), ("MIN_STAR", 6), ("CANDIDATES", 3), ("BLOCK", 5), ("GATHERED", 7)):
        monkeypatch.setattr(vector_groups, name, value)
    found: list[int] = []
    join = vector_groups.Stars.join

    def counting(stars: vector_groups.Stars, visitors: np.ndarray) -> None:
        found.append(len(stars.stars))
        join(stars, visitors)

    monkeypatch.setattr(vector_groups.Stars, "join", counting)
    return found


@pytest.mark.slow("crowds of close vectors join what all pairs join")
@pytest.mark.parametrize("threshold", [0.8, 0.9, 0.95, 0.99])
def test_crowds_join_what_all_pairs_join(small: list[int], threshold: float):
    for seed in range(6):
        vectors = crowded(160, seed)
        frame = pd.DataFrame({"text": "x", "embedding": vectors})
        pairs = curation.semantic_dedup(frame, threshold=threshold, details=True).pairs
        found = {int(row): (int(kept), value) for row, kept, value in pairs[["row", "kept_row", "similarity"]].values}
        assert found == by_all_pairs(vectors, threshold, LENGTHS["first"]), f"seed {seed}"
    assert sum(small) > 6 and max(small) > 1


@pytest.mark.slow("large groups of close vectors are the same as by comparing all pairs")
def test_visitors_join_groups_as_by_all_pairs(small: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    centroids = np.random.default_rng(3).integers(-127, 128, (9, DIMENSIONS)).astype(np.int8)
    clusters = vector_clusters.Clusters(centroids, np.zeros((0, DIMENSIONS), np.int8), np.zeros(0, np.int64))
    clusters.save(tmp_path / "centroids.npz")
    settings: dict[str, Any] = {"centroids": str(tmp_path / "centroids.npz"), "probe": 2, "threshold": 0.9}
    differ = 0
    for seed in range(2):
        vectors = crowded(250, seed)
        report, found = run_on(vectors, tmp_path / str(seed), **settings)
        with monkeypatch.context() as patched:
            patched.setattr(vector_groups, "LARGE_CLUSTER", 1_000)
            plain, expected = run_on(vectors, tmp_path / str(seed), "plain", **settings)
        assert found == expected and len(expected) > 100, f"seed {seed}"
        details = [each["stages"][0]["details"] for each in (report, plain)]
        assert details[0]["recall"] == details[1]["recall"]
        differ += details[0]["pairs_compared"] != details[1]["pairs_compared"]
        for module, name, value in ((key_ranges, "MIN_GROUP_ROWS", 16), (vector_clusters, "OWNER_VECTORS", 60)):
            monkeypatch.setattr(module, name, value)
        cut, again = run_on(vectors, tmp_path / str(seed), "cut", slice_bytes=40_000, workers=2, **settings)
        assert again == found and cut["stages"][0]["details"] == details[0]
    assert differ == 2


def test_near_equal_vectors_take_a_few_products_each(tmp_path: Path):
    rng = np.random.default_rng(1)
    crowd = rng.normal(size=DIMENSIONS) + 0.05 * rng.normal(size=(3_000, DIMENSIONS))
    vectors = np.concatenate([crowd, rng.normal(size=(50, DIMENSIONS))]).tolist()
    report, removed = run_on(vectors, tmp_path, clusters=1)
    assert removed.keys() == {*range(1, 3_000)} and {kept for kept, _ in removed.values()} == {0}
    details = report["stages"][0]["details"]
    assert details["vectors"] == 3_050 and details["pairs_compared"] < 50 * 3_050
