# SPDX-License-Identifier: Apache-2.0
"""`curation.neighbours`, `align` and `clusters` give what sorting all pairs gives, whatever the size of blocks."""

from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import curation
from curation.base.errors import CurationError
from curation.frames import close_vectors
from curation.stages.vectors.vector_clusters import Clusters


def integers(count: int, seed: int) -> np.ndarray:
    """Vectors with ties, the first number of each 127, so that they are stored unchanged."""
    vectors = np.random.default_rng(seed).integers(-60, 61, (count, 5))
    vectors[:, 0] = 127
    vectors[count // 2 :: 3] = vectors[0]
    return vectors


@pytest.mark.parametrize("block", [4, 1 << 12])
def test_neighbours_are_the_nearest_of_all_pairs(block: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(close_vectors, "AT_ONCE", block)
    vectors = integers(23, 1)
    given: list[Any] = vectors.tolist()
    given.insert(3, None)
    found = curation.neighbours(pd.DataFrame({"v": given}), "v", k=6)
    rows = [row for row in range(24) if row != 3]
    unit = vectors / np.linalg.norm(vectors, axis=1)[:, None]
    expected = []
    for place, row in enumerate(rows):
        cosines = np.round(unit @ unit[place], 12)
        order = [other for other in np.argsort(-cosines, kind="stable").tolist() if other != place][:6]
        expected += [(row, rows[other], rank) for rank, other in enumerate(order, 1)]
    assert list(found[["row", "neighbour", "rank"]].itertuples(index=False, name=None)) == expected
    assert found["cosine"].between(0, 1).all()


def test_tables_and_columns_of_vectors_are_frames_too():
    vectors = [[1.0, 0.0], [0.0, 1.0], [0.9, 0.1]]
    table, frame = pa.table({"v": vectors}), pd.DataFrame({"v": vectors})
    expected = curation.neighbours(frame, "v", k=1).to_dict("list")
    found = curation.neighbours(table, "v", k=1)
    assert isinstance(found, pa.Table) and found.to_pydict() == expected
    assert isinstance(curation.align(table["v"], frame["v"]), pa.Table)
    assert curation.neighbours(frame["v"], k=1).to_dict("list") == expected
    assert curation.clusters(table, "v", clusters=1).to_pydict() == curation.clusters(frame["v"]).to_dict("list")
    with pytest.raises(TypeError, match=r"expected a frame in memory, got a Dask frame\. Call compute"):
        curation.clusters(dd.from_pandas(frame, npartitions=1), "v")


@pytest.mark.parametrize("block", [4, 1 << 12])
def test_aligned_rows_are_the_closest_free_pairs(block: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(close_vectors, "AT_ONCE", block)
    left, right = integers(19, 2), integers(14, 3)
    found = curation.align(
        pd.DataFrame({"v": left.tolist()}), pd.DataFrame({"v": right.tolist()}), column="v", threshold=0.85
    )
    norms = np.sqrt(np.multiply.outer((left**2).sum(axis=1), (right**2).sum(axis=1)))
    cosines = np.floor(left @ right.T / norms * 10_000) / 10_000
    expected = []
    while cosines.max() >= 0.85:
        pair = np.unravel_index(cosines.argmax(), cosines.shape)
        expected.append((int(pair[0]), int(pair[1]), float(cosines[pair])))
        cosines[pair[0]] = cosines[:, pair[1]] = -1
    assert list(found.itertuples(index=False, name=None)) == expected and len(expected) > 5


@pytest.mark.parametrize("block", [4, 1 << 12])
def test_central_rows_are_the_nearest_to_the_centroids(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(close_vectors, "AT_ONCE", block)
    vectors, centroids = integers(31, 4), integers(5, 5)
    given: list[Any] = vectors.tolist()
    given.insert(2, None)
    path = tmp_path / "centroids.npz"
    Clusters(centroids.astype(np.int8), np.zeros((0, 5), np.int8), np.zeros(0, np.int64)).save(path)
    found = curation.clusters(pd.DataFrame({"v": given}), "v", central=4, centroids=path)
    rows = [row for row in range(32) if row != 2]
    norms = np.sqrt(np.multiply.outer((vectors**2).sum(axis=1), (centroids**2).sum(axis=1)))
    units = np.floor(vectors @ centroids.T / norms * 10_000).astype(int)
    home = np.round(vectors @ centroids.T / norms, 12).argmax(axis=1)
    expected = []
    for cluster in sorted(set(home.tolist()), key=lambda each: (-np.count_nonzero(home == each), each)):
        members = np.flatnonzero(home == cluster).tolist()
        members.sort(key=lambda member: (-units[member, cluster], member))
        expected += [
            (cluster, len(members), rank, rows[member], units[member, cluster] / 10_000)
            for rank, member in enumerate(members[:4], 1)
        ]
    assert list(found.itertuples(index=False, name=None)) == expected and len(expected) > 8


def test_clusters_are_fitted_without_regard_to_the_order_of_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cpu_fallback.fit_centroids", lambda sample, clusters, rounds, seed: sample[:clusters])
    frame = pd.DataFrame({"embedding": integers(40, 6).tolist(), "name": range(40)})
    shuffled = frame.sample(frac=1, random_state=1).reset_index(drop=True)
    tables = []
    for each in (frame, shuffled):
        found = curation.clusters(each, clusters=6, central=1)
        tables.append(sorted(zip(found["rows"], found["cosine"], strict=True)))
    assert tables[0] == tables[1] and 1 < len(tables[0]) <= 6
    assert sum(rows for rows, _ in tables[0]) == 40


def test_clusters_have_typical_words(tmp_path: Path):
    centroids = np.array([[1, 0], [0, 1], [-1, -1]], np.int8)
    Clusters(centroids, np.zeros((0, 2), np.int8), np.zeros(0, np.int64)).save(tmp_path / "c.npz")
    rows = [("the court and the judge", [9, 1]), ("the goal, the match", [1, 9]), (None, [9, 1]), ("the court", None)]
    frame = pd.DataFrame(rows * 20, columns=["body", "embedding"])
    found = curation.clusters(frame, centroids=tmp_path / "c.npz", central=2, words=2, text_column="body")
    assert found["words"].tolist() == ["and, court"] * 2 + ["goal, match"] * 2
    assert [*found.columns][:-1] == [*curation.clusters(frame, centroids=tmp_path / "c.npz").columns]


def test_small_frames():
    frame = pd.DataFrame({"embedding": [[1.0, 2.0]]})
    assert len(curation.neighbours(frame)) == len(curation.neighbours(frame[:0])) == 0
    assert len(curation.clusters(frame)) == 1 and len(curation.clusters(frame[:0])) == 0
    assert len(curation.align(frame, frame)) == 1 and len(curation.align(frame[:0], frame[:0])) == 0


ONE = pd.DataFrame({"embedding": [[1.0, 2.0]]})
BAD = {
    "k": (lambda: curation.neighbours(ONE, k=0), "k must be from 1 to 1,000, not 0"),
    "column": (lambda: curation.neighbours(ONE, "v"), "column 'v' not found in the frame; it has ['embedding']"),
    "none": (lambda: curation.neighbours(pd.DataFrame({"embedding": [None]})), "has no vector in any of 1 rows"),
    "threshold": (lambda: curation.align(ONE, ONE, threshold=0), "threshold must be above 0 and at most 1, not 0"),
    "clusters": (lambda: curation.clusters(ONE, clusters=0), "clusters must be auto or a number of at least 1, not 0"),
    "central": (lambda: curation.clusters(ONE, central=0), "central must be at least 1, not 0"),
    "words": (lambda: curation.clusters(ONE, words=-1), "words must be at least 0, not -1"),
    "string": (
        lambda: curation.align(ONE, ONE, threshold="0.8"),
        "align: Expected `float`, got `str` - at `$.threshold`",
    ),
    "half": (lambda: curation.neighbours(ONE, k=1.5), "neighbours: Expected `int`, got `float` - at `$.k`"),
    "null": (lambda: curation.clusters(ONE, clusters=None), "clusters: Expected `int`, got `null` - at `$.clusters`"),
    "no texts": (lambda: curation.clusters(ONE, words=3), "column 'text' not found in the frame; it has ['embedding']"),
    "numbers": (
        lambda: curation.clusters(ONE.assign(body=1), words=3, text_column="body"),
        "column 'body' holds int64, but words are counted in strings. Set text_column",
    ),
    "save": (lambda: curation.clusters(ONE, clusters=2, save="x"), "save is x, expected a name that ends in .npz"),
    "many": (lambda: curation.clusters(ONE, clusters=2), "clusters: 2 are more than the 1 different vectors"),
    "no file": (
        lambda: curation.clusters(ONE, centroids="no.npz"),
        "no.npz does not exist. Give centroids/stage-N.npz",
    ),
    "dimensions": (
        lambda: curation.align(ONE, pd.DataFrame({"embedding": [[1.0]]})),
        "column 'embedding' has 2 dimensions on the left and 1 on the right",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_calls_end_in_one_message(case: str):
    call, message = BAD[case]
    with pytest.raises(CurationError) as error:
        call()
    assert message in str(error.value)
