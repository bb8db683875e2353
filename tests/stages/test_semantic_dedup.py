# SPDX-License-Identifier: Apache-2.0
"""`semantic_dedup` keeps what comparing all vectors keeps, however the work is divided and often it is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pytest

import curation
from curation.base.engine import load_engine
from curation.base.errors import CurationError, InputError, RecipeError
from curation.models.vectors import from_column, units_of
from curation.running.run import run
from curation.stages import SemanticDedup
from curation.stages.corpus import key_ranges
from curation.stages.vectors import vector_clusters
from curation.stages.vectors.vector_clusters import Clusters
from tests.needs import needs
from tests.runs import recipe_of, removed_rows

DIMENSIONS = 24


def made_vectors(count: int, seed: int = 1) -> list[list[float] | None]:
    """Vectors in clouds, with near and equal copies, chains, and documents without a vector."""
    rng = np.random.default_rng(seed)
    clouds = rng.normal(size=(8, DIMENSIONS))
    vectors: list[Any] = []
    for number in range(count):
        kind = rng.random()
        if number % 29 == 7:
            vectors.append(None if number % 2 else [0.0] * DIMENSIONS)
        elif kind < 0.1 and number > 10:
            vectors.append(vectors[int(rng.integers(number))])
        elif kind < 0.4 and number > 10:
            base = vectors[int(rng.integers(number))] or clouds[0]
            vectors.append((np.array(base) + 0.2 * np.linalg.norm(base) * rng.normal(size=DIMENSIONS) / 5).tolist())
        else:
            vectors.append((clouds[int(rng.integers(8))] + 0.7 * rng.normal(size=DIMENSIONS)).tolist())
    return vectors


def by_all_pairs(vectors: list[Any], threshold: float, keep: Any) -> dict[int, tuple[int, float]]:
    """Removed position -> (kept position, cosine), by comparing all pairs of stored vectors. `keep` ranks positions."""
    stored, present = from_column(
        curation.base.engine.load_engine("cpu").to_arrow(pd.DataFrame({"v": vectors})).column(0), "v"
    )
    wide = stored.astype(np.int64)
    dots = wide @ wide.T
    norms = np.maximum(np.diag(dots), 1).astype(float)
    units = np.floor(dots / np.sqrt(np.multiply.outer(norms, norms)) * 10_000)
    close = (units >= units_of(threshold)) & np.multiply.outer(present, present)
    label = np.arange(len(vectors))
    while True:
        lower = np.where(close, label[None, :], len(vectors)).min(axis=1)
        lower = np.minimum(lower, label)
        if (lower == label).all():
            break
        label = lower
    removed = {}
    for leader in np.unique(label):
        members = np.flatnonzero(label == leader)
        kept = min(members.tolist(), key=keep)
        removed |= {row: (kept, float(units[row, kept]) / 10_000) for row in members.tolist() if row != kept}
    return removed


def lines_of(vectors: list[Any]) -> bytes:
    return b"\n".join(
        orjson.dumps({"id": str(number), "text": "x" * (1 + number * 7 % 23), "embedding": vector})
        for number, vector in enumerate(vectors)
    )


def run_on(vectors: list[Any], folder: Path, out: str = "out", **how: Any) -> tuple[dict[str, Any], dict[int, Any]]:
    """The report of a run, and removed position -> (kept position, cosine)."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {key: how.pop(key) for key in list(how) if key in SemanticDedup.__struct_fields__}
    path = folder / "in.jsonl"
    if not path.exists():
        path.write_bytes(lines_of(vectors))
    stages = [{"kind": "semantic_dedup", **settings}]
    given = {"path": str(path), "columns": ["embedding"]}
    result = run(recipe_of(given, stages=stages, output={"formats": []}), folder / out, **how)
    removed = {int(row[1]): (int(row[6]), row[5]) for row in removed_rows(folder / out)}
    return dict(result.report), removed


@pytest.fixture(scope="module")
def vectors() -> list[Any]:
    return made_vectors(400)


@pytest.fixture(scope="module")
def centroids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty centroids, as int8."""
    rng = np.random.default_rng(1)
    found = np.clip(np.rint(rng.normal(size=(40, DIMENSIONS)) * 40), -127, 127).astype(np.int8)
    path = tmp_path_factory.mktemp("centroids") / "centroids.npz"
    Clusters(found, np.zeros((0, DIMENSIONS), np.int8), np.zeros(0, np.int64)).save(path)
    return path


LENGTHS = {"first": lambda row: row, "longest": lambda row: (-(1 + row * 7 % 23), row)}


@pytest.mark.parametrize("keep", LENGTHS)
@pytest.mark.parametrize("threshold", [0.95, 0.9, 1.0])
def test_one_cluster_removes_what_all_pairs_remove(vectors: list[Any], keep: str, threshold: float):
    frame = pd.DataFrame(
        {"text": ["x" * (1 + number * 7 % 23) for number in range(len(vectors))], "embedding": vectors}
    )
    found = curation.semantic_dedup(frame, threshold=threshold, keep=keep, details=True)
    pairs = found.pairs[["row", "kept_row", "similarity"]].to_numpy().tolist()
    expected = by_all_pairs(vectors, threshold, LENGTHS[keep])
    assert {int(row): (int(kept), value) for row, kept, value in pairs} == expected and expected


def test_results_do_not_depend_on_slices_tasks_and_blocks(
    vectors: list[Any], centroids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = {"centroids": str(centroids), "probe": 2, "threshold": 0.9, "keep": "nearest"}
    report, expected = run_on(vectors, tmp_path / "one", **settings)
    details = report["stages"][0]["details"]
    for module, name, value in (
        (key_ranges, "MIN_GROUP_ROWS", 16), (key_ranges, "RANGE_KEYS", 50), (vector_clusters, "AT_ONCE", 7),
        (vector_clusters, "MERGE_PAIRS", 3), (vector_clusters, "OWNER_VECTORS", 60),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    other, removed = run_on(vectors, tmp_path / "one", "many", slice_bytes=10_000, workers=2, **settings)
    assert removed == expected and len(removed) > 50
    assert other["stages"][0]["details"] == details
    assert details["recall"]["pairs"] > 50 and details["clusters"] == 40
    assert other["outputs"] == report["outputs"]


@pytest.mark.slow("semantic deduplication with more probes finds all pairs")
def test_more_clusters_are_probed_until_all_pairs_are_found(centroids: Path, tmp_path: Path):
    rng = np.random.default_rng(5)
    base = rng.normal(size=(150, DIMENSIONS))
    vectors = np.concatenate([base, base + 0.4 * rng.normal(size=base.shape)]).tolist()
    found = []
    for probe in (0, 2, 39):
        report, removed = run_on(vectors, tmp_path, str(probe), centroids=str(centroids), probe=probe, threshold=0.9)
        recall = report["stages"][0]["details"]["recall"]
        found.append((recall["found"], recall["pairs"], removed))
    assert found[0][0] < found[1][0] <= found[2][0] == found[2][1]
    assert found[2][2] == by_all_pairs(vectors, 0.9, LENGTHS["first"])


@pytest.mark.slow("a killed semantic deduplication resumes and saves its centroids")
def test_a_killed_run_continues_and_saves_its_centroids(
    vectors: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    report, expected = run_on(vectors, tmp_path, "whole")
    for phase in ("write_centroids", "assign", "compare", "measure_recall"):
        name = f"curation.stages.vectors.vector_clusters.{phase}"

        def stop(*arguments: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(name, stop)
            with pytest.raises(KeyboardInterrupt):
                run_on(vectors, tmp_path, "killed")
    again, removed = run_on(vectors, tmp_path, "killed")
    assert removed == expected and again["outputs"] == report["outputs"]
    path = tmp_path / "whole" / "centroids" / "stage-1.npz"
    assert "centroids/stage-1.npz" in report["outputs"] and curation.verify(tmp_path / "whole") == []
    assert len(Clusters.load(path).centroids) == 1
    same = run_on(vectors, tmp_path, "given", centroids=str(path))[1]
    assert same == expected


def test_two_levels_of_clusters_find_close_vectors(vectors: list[Any], monkeypatch: pytest.MonkeyPatch):
    engine = load_engine("cpu")
    stored, present = from_column(pa.array(vectors), "v")
    stored = stored[present]
    tops, starts = stored[:3], np.array([0, 5, 9, 12])
    two = Clusters(stored[20:32], tops, starts)
    one = Clusters(stored[20:32], tops[:0], starts[:0])
    monkeypatch.setattr(vector_clusters, "TOPS_PROBED", 3)  # all of them
    assert (two.nearest(engine, stored, 4) == one.nearest(engine, stored, 4)).all()
    assert (two.nearest(engine, stored, 13)[:, 12] == -1).all()
    monkeypatch.setattr(vector_clusters, "TOPS_PROBED", 1)
    home = engine.nearest_vectors(stored, tops, vector_clusters._weights(tops), 1)[:, 0]
    found = two.nearest(engine, stored, 1)[:, 0]
    assert ((found >= starts[home]) & (found < starts[home + 1])).all()


def test_many_clusters_are_fitted_in_two_levels_and_find_the_close_pairs(
    vectors: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sizes = []

    class FirstVectors:
        """Centroids without scikit-learn: of the vectors to which k-means would be fitted, the first ones."""

        def __getattr__(self, name: str) -> Any:
            return getattr(load_engine("cpu"), name)

        def fit_centroids(self, sample: np.ndarray, clusters: int, rounds: int, seed: int) -> np.ndarray:
            assert len(sample) > clusters and np.allclose(np.square(sample).sum(axis=1), 1, atol=1e-5)
            sizes.append((len(sample), clusters))
            return sample[:clusters]

    write = vector_clusters.write_centroids
    monkeypatch.setattr(
        "curation.stages.vectors.vector_clusters.write_centroids", lambda engine, *rest: write(FirstVectors(), *rest)
    )
    monkeypatch.setattr(vector_clusters, "TWO_LEVELS", 20)
    report, removed = run_on(vectors, tmp_path, clusters=50, probe=15, threshold=0.9)
    found = Clusters.load(tmp_path / "out" / "centroids" / "stage-1.npz")
    assert sizes[0][1] == len(found.tops) == 8 and len(sizes) > 1  # the root of 50, rounded up
    assert found.starts[0] == 0 and found.starts[-1] == len(found.centroids) and (np.diff(found.starts) > 0).all()
    assert 42 <= len(found.centroids) <= 58  # each first-level cluster has its share, rounded
    home = load_engine("cpu").nearest_vectors(found.centroids, found.tops, vector_clusters._weights(found.tops), 1)
    assert home[:, 0].tolist() == np.repeat(np.arange(8), np.diff(found.starts)).tolist()
    details = report["stages"][0]["details"]
    assert details["recall"]["found"] >= 0.95 * details["recall"]["pairs"] > 50
    assert details["pairs_compared"] < 0.9 * details["vectors"] ** 2 / 2
    assert len(removed) >= 0.95 * len(by_all_pairs(vectors, 0.9, LENGTHS["first"]))


def test_keep_nearest_and_farthest_and_inputs():
    frame = pd.DataFrame(
        {"text": list("abcd"), "source": list("xyxy"), "embedding": [[10, 3], [10, 1], [10, 0], [-1, 20]]}
    )
    kept = {
        str(keep): "".join(curation.semantic_dedup(frame, keep=keep)["text"])
        for keep in ("first", "nearest", "farthest", ["y", "x"])
    }
    assert kept == {"first": "ad", "nearest": "ad", "farthest": "cd", "['y', 'x']": "bd"}


def test_clusters_are_fitted_with_scikit_learn():
    needs("sklearn")
    vectors = made_vectors(600, 3)
    frame = pd.DataFrame({"text": "x", "embedding": vectors})
    found = curation.semantic_dedup(frame, clusters=12, details=True)
    again = curation.semantic_dedup(frame, clusters=12, details=True)
    expected = by_all_pairs(vectors, 0.95, LENGTHS["first"])
    assert found.pairs.equals(again.pairs)
    assert len(found.pairs) > 0.97 * len(expected)


BAD_SETTINGS = {
    "threshold 0": ({"threshold": 0}, "threshold must be above 0 and at most 1, not 0"),
    "threshold 95": ({"threshold": 95}, "threshold must be above 0 and at most 1, not 95"),
    "clusters": ({"clusters": 0}, "clusters must be auto or a number from 1 to 16,777,216, not 0"),
    "clusters text": ({"clusters": "many"}, "clusters must be auto or a number from 1 to 16,777,216, not 'many'"),
    "probe": ({"probe": -1}, "probe must be from 0 to 1,000, not -1"),
    "keep": ({"keep": "last"}, "keep must be one of first, longest, nearest, farthest or a list of input names"),
    "both": ({"clusters": 2, "centroids": "c.npz"}, "give clusters or centroids"),
    "column": ({"column": "text"}, "column must name a column of vectors, not 'text'"),
    "seed": ({"seed": -1}, "seed must be from 0 to below 2^64, not -1"),
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_wrong_settings_end_in_one_message(case: str):
    settings, message = BAD_SETTINGS[case]
    with pytest.raises(CurationError) as error:
        curation.semantic_dedup(pd.DataFrame({"text": ["a"], "embedding": [[1.0]]}), **settings)
    assert isinstance(error.value, RecipeError) and message in str(error.value)


BAD_VECTORS: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "none": ([None, None], {}, "column 'embedding' has no vector in any of 2 documents"),
    "numbers": ([1.0, 2.0], {}, "column 'embedding' holds double, but vectors are lists of numbers"),
    "dimensions": ([[1.0, 2.0], [1.0]], {}, "different dimensions: 1 in document '1' and 2 in document '0'"),
    "nan": ([[1.0], [float("nan")]], {}, "the vector of document '1' holds a null"),
    "clusters": ([[1.0], [-1.0]], {"clusters": 3}, "clusters: 3 are more than the 2 different vectors in column"),
}


@pytest.mark.parametrize("case", BAD_VECTORS)
def test_wrong_vectors_end_in_one_message(case: str):
    vectors, settings, message = BAD_VECTORS[case]
    frame = pd.DataFrame({"id": ["0", "1"], "text": ["a", "b"], "embedding": vectors})
    with pytest.raises(InputError) as error:
        curation.semantic_dedup(frame, **settings)
    assert message in str(error.value)


def test_dimensions_that_differ_between_partitions_are_named(monkeypatch: pytest.MonkeyPatch):
    import dask.dataframe as dd

    frame = pd.DataFrame({"text": ["a", "b"], "embedding": [[1.0, 2.0], [1.0, 2.0, 3.0]]})
    for rows in (1, key_ranges.MIN_GROUP_ROWS):
        monkeypatch.setattr(key_ranges, "MIN_GROUP_ROWS", rows)
        with pytest.raises(InputError, match=r"column 'embedding' has vectors of 2 and of 3 dimensions"):
            curation.semantic_dedup(dd.from_pandas(frame, npartitions=2, sort=False))


def test_centroids_that_do_not_fit(centroids: Path, tmp_path: Path):
    frame = pd.DataFrame({"text": ["a"], "embedding": [[1.0, 2.0]]})
    with pytest.raises(InputError, match=r"has 24 dimensions, but the vectors in column 'embedding' have 2"):
        curation.semantic_dedup(frame, centroids=centroids)
    (tmp_path / "no.npz").write_bytes(b"no")
    np.savez(tmp_path / "zeros.npz", centroids=np.zeros((2, 2), np.int8), tops=np.zeros((0, 2), np.int8), starts=[])
    whole = {"centroids": np.ones((3, 2), np.int8), "tops": np.ones((2, 2), np.int8), "starts": np.array([0, 3, 3])}
    np.savez(tmp_path / "ends.npz", **whole)
    data = (tmp_path / "ends.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[: len(data) // 2])
    for name, message in (
        ("no.npz", "is not a file of centroids, or is damaged. Give"),
        ("cut.npz", "is not a file of centroids, or is damaged. Give"),
        ("none.npz", "does not exist. Give centroids/stage-N.npz"),
        ("zeros.npz", "does not hold int8 centroids"),
        ("ends.npz", "does not hold int8 centroids"),
    ):
        with pytest.raises(InputError, match=message):
            curation.semantic_dedup(frame, centroids=tmp_path / name)


def test_documents_without_a_vector_and_empty_frames_are_kept():
    frame = pd.DataFrame({"text": ["", "", "a"], "embedding": [None, [0.0, 0.0], [1.0, 0.0]]})
    assert len(curation.semantic_dedup(frame)) == 3
    assert len(curation.semantic_dedup(frame[:0])) == 0


def test_equal_vectors_take_no_comparison():
    frame = pd.DataFrame({"text": "x", "embedding": [[3.0, 1.0]] * 5_000})
    kept = curation.semantic_dedup(frame, details=True)
    assert len(kept.kept) == 1 and (kept.pairs["kept_row"] == 0).all() and (kept.pairs["similarity"] == 1).all()


@pytest.mark.parametrize("dimensions", [1, 1_023, 1_025, 3_000])
def test_products_are_exact_integers(dimensions: int):
    engine = load_engine("cpu")
    left = np.full((2, dimensions), 127, np.int8)
    left[1] = np.random.default_rng(1).integers(-127, 128, dimensions)
    found = engine.close_vectors(left, left, np.full(2, -1e9, np.float32), np.ones(2, np.float32))
    expected = left.astype(np.int64) @ left.astype(np.int64).T
    assert found[2].tolist() == expected.reshape(-1).tolist()
