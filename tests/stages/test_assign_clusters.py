# SPDX-License-Identifier: Apache-2.0
"""`assign_clusters` writes the nearest centroid of each vector, and `mix` draws exact numbers of each cluster."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

import curation
from curation.base.errors import RecipeError
from curation.recipes.recipe import convert_recipe
from curation.results.finished.verify import verify
from curation.running.run import run
from curation.stages.vectors import assign_clusters
from curation.stages.vectors.vector_clusters import Clusters
from curation.tokens.quotas import apportion
from tests.models.tiny_files import LETTERS, write_static
from tests.runs import files_below, recipe_of

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 4


def save(path: Path, centroids: np.ndarray) -> str:
    Clusters(centroids, np.zeros((0, centroids.shape[1]), np.int8), np.zeros(0, np.int64)).save(path)
    return str(path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[int]], np.ndarray]:
    """Documents with vectors, the third of which are null, and centroids, two of which are one direction."""
    folder, rng = tmp_path_factory.mktemp("assigned"), np.random.default_rng(5)
    vectors = rng.integers(-127, 128, (300, WIDTH))
    vectors[::3] = 0
    centroids = rng.integers(-127, 128, (6, WIDTH)).astype(np.int8)
    centroids[5] = centroids[2] // 2 * 2
    centroids[2] = centroids[5] // 2
    records = [
        orjson.dumps({"id": str(number), "text": f"text {number}", "v": vector if any(vector) else None})
        for number, vector in enumerate(vectors.tolist())
    ]
    (folder / "in.jsonl").write_bytes(b"\n".join(records))
    save(folder / "c.npz", centroids)
    return folder, vectors.tolist(), centroids


def expected_of(vectors: list[list[int]], centroids: np.ndarray) -> list[int | None]:
    """The nearest centroid of each vector by exact fractions; of equally near ones the first."""
    wide = centroids.astype(np.int64)
    found: list[int | None] = []
    for vector in vectors:
        products = (wide @ vector).tolist()
        signed = [(p * abs(p)) / n for p, n in zip(products, (wide**2).sum(axis=1).tolist(), strict=True)]
        found.append(int(np.argmax(signed)) if any(vector) else None)
    return found


def recipe(folder: Path, *stages: dict[str, Any]) -> Any:
    entry = {"path": str(folder / "in.jsonl"), "columns": ["v"]}
    assign = {"kind": "assign_clusters", "centroids": str(folder / "c.npz"), "vectors": "v"}
    return recipe_of(entry, stages=[assign | stages[0], *stages[1:]], output={"formats": []})


def test_the_cluster_is_that_of_the_nearest_centroid(made: tuple[Path, list[list[int]], np.ndarray], tmp_path: Path):
    folder, vectors, centroids = made
    report = run(recipe(folder, {}), tmp_path / "out", engine="cpu").report
    found = pq.read_table(tmp_path / "out" / "documents").column("cluster").to_pylist()
    assert found == expected_of(vectors, centroids) and 5 not in found and {*found} == {None, 0, 1, 2, 3, 4}
    assert report["stages"][0]["lines"] == ["cluster: cluster of 200 documents; 100 documents without a vector"]
    frame = pd.DataFrame({"text": "x", "v": [vector if any(vector) else None for vector in vectors]})
    on_frame = curation.assign_clusters(frame, folder / "c.npz", vectors="v")["cluster"].tolist()
    assert [None if pd.isna(value) else value for value in on_frame] == found


@pytest.mark.parametrize("text", [{}, {"text": ["x", "y"]}, {"text": [1, 2]}])
def test_a_frame_needs_no_text(tmp_path: Path, text: dict[str, Any]):
    path = save(tmp_path / "c.npz", np.array([[127, 0], [0, 127]], np.int8))
    frame = pd.DataFrame({"embedding": [[0.1, 1.0], [1.0, 0.0]]} | text)
    assert curation.assign_clusters(frame, path)["cluster"].tolist() == [1, 0]


def test_documents_are_the_same_bytes_for_any_slices(
    made: tuple[Path, list[list[int]], np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mixed = {"kind": "mix", "by": "topic", "weights": {"x": 1, "z": 2}}
    chain = recipe(made[0], {"column": "topic", "names": ["x", "y", "x", "z", "x", "y"]}, mixed)
    run(chain, tmp_path / "one", engine="cpu", workers=1)
    monkeypatch.setattr(assign_clusters, "AT_ONCE", 7)
    run(chain, tmp_path / "many", engine="cpu", workers=2, slice_bytes=8000)
    assert files_below(tmp_path / "one" / "documents") == files_below(tmp_path / "many" / "documents") != []


@pytest.mark.parametrize(
    ("names", "weights"),
    [((), {"0": 0.5, "3": 0.3, "1": 0.2}), (("law", "art", "law", "sport", "art", "art"), {"law": 0.7, "sport": 0.3})],
    ids=["numbers", "names"],
)
def test_a_mix_draws_exact_numbers_of_each_cluster(
    made: tuple[Path, list[list[int]], np.ndarray],
    tmp_path: Path,
    names: tuple[str, ...],
    weights: dict[str, float],
):
    folder, vectors, centroids = made
    mixed = {"kind": "mix", "by": "cluster", "weights": weights, "documents": 301}
    report = run(recipe(folder, {"names": names}, mixed), tmp_path / "out", engine="cpu").report
    assert verify(tmp_path / "out") == []
    labels = [None if k is None else names[k] if names else str(k) for k in expected_of(vectors, centroids)]
    sizes = Counter(labels)
    quotas = apportion([*weights.values()], [sizes[name] for name in weights], 301)
    drawn = Counter(map(str, pq.read_table(tmp_path / "out" / "documents").column("cluster").to_pylist()))
    assert drawn == dict(zip(weights, quotas, strict=True)) and sum(quotas) == 301
    assert report["stages"][1]["reasons"]["no_weight"] == sum(n for name, n in sizes.items() if name not in weights)
    frame = pd.DataFrame({"text": [f"text {k}" for k in range(300)], "v": [v if any(v) else None for v in vectors]})
    frame = curation.assign_clusters(frame, folder / "c.npz", vectors="v", names=names)
    found = curation.mix(frame, weights, by="cluster", documents=301)
    assert Counter(str(value).removesuffix(".0") for value in found["cluster"]) == drawn


def examples() -> list[list[dict[str, Any]]]:
    """The stages of the examples in the section on clusters."""
    page = (ROOT / "docs" / "vectors.md").read_text("utf-8")
    section = page.partition("\n## Clusters\n")[2].partition("\n## ")[0]
    return [yaml.safe_load(block.partition("```")[0])["stages"] for block in section.split("```yaml\n")[1:]]


def test_the_example_of_the_page_mixes_by_clusters_of_an_earlier_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fitted(sample: np.ndarray, clusters: int, rounds: int, seed: int) -> np.ndarray:
        return sample[:clusters]  # scikit-learn may be absent

    monkeypatch.setattr("cpu_fallback.fit_centroids", fitted)
    monkeypatch.setattr("curation.stages.vectors.semantic_dedup.KMEANS", ("numpy",))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    write_static(tmp_path / "models" / "all-MiniLM-L6-v2")
    rng = np.random.default_rng(4)
    texts = [" ".join(rng.choice(list(LETTERS), 12)) for _ in range(200)]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(orjson.dumps({"text": text}) for text in texts))
    first, second = examples()
    run(recipe_of(tmp_path / "in.jsonl", stages=first, output={"formats": []}), tmp_path / "out", engine="cpu")
    again = recipe_of(tmp_path / "in.jsonl", stages=second, output={"formats": []})
    report = run(again, tmp_path / "mixed", engine="cpu").report
    drawn = Counter(pq.read_table(tmp_path / "mixed" / "documents").column("topic").to_pylist())
    total = report["stages"][-1]["details"]
    assert drawn == {group["name"]: group["drawn_documents"] for group in total["groups"]}
    (mixed,) = [stage for stage in second if stage["kind"] == "mix"]
    assert sum(drawn.values()) == mixed["documents"] and {*drawn} == {*mixed["weights"]}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no centroids": ({"centroids": ""}, "centroids is empty; give a file of centroids"),
    "no file": ({"centroids": "none.npz"}, "none.npz"),
    "another file": ({"centroids": "in.jsonl"}, "in.jsonl is not a file of centroids"),
    "names": ({"names": ["a"]}, "names has 1 name for 6 clusters of"),
    "empty name": ({"names": ["a", ""]}, "names has an empty name at position 1"),
    "same column": ({"column": "v"}, "vectors and column are both 'v'"),
    "text": ({"vectors": "text"}, "vectors must name a column of vectors, not 'text'"),
    "reserved": ({"column": "doc"}, "column must be letters, digits and '_'"),
    "dimensions": ({"centroids": "wide.npz"}, "has 3 dimensions, but the vectors in column 'v' have 4"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_settings_end_in_one_message(
    made: tuple[Path, list[list[int]], np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
):
    monkeypatch.chdir(made[0])
    save(made[0] / "wide.npz", np.ones((1, 3), np.int8))
    settings, message = BAD[case]
    with pytest.raises(curation.CurationError) as caught:
        run(recipe(made[0], settings), tmp_path / "out", engine="cpu", progress=False)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "weights", "message"),
    [
        (["x", "y", "x", "zebra", "x", "y"], {"x": 1, "zebrra": 1}, "no cluster has that name; did you mean zebra?"),
        ([], {"0": 1, "6": 1}, "weights has '6', but no cluster has that name; expected one of 0, 1, 2, 3, 4, 5"),
    ],
)
def test_weights_of_clusters_that_do_not_exist(
    made: tuple[Path, list[list[int]], np.ndarray], tmp_path: Path, names: list[str], weights: Any, message: str
):
    chain = recipe(made[0], {"names": names}, {"kind": "mix", "by": "cluster", "weights": weights})
    for call in (curation.estimate, run):
        with pytest.raises(RecipeError, match=re.escape(message)):
            call(chain, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_document_with_a_wrong_vector_is_named(made: tuple[Path, list[list[int]], np.ndarray], tmp_path: Path):
    (tmp_path / "in.jsonl").write_bytes(b'{"id": "x", "text": "a", "v": [1, NaN]}'.replace(b"NaN", b'"b"'))
    stage = {"kind": "assign_clusters", "centroids": str(made[0] / "c.npz"), "vectors": "v"}
    entry = {"path": str(tmp_path / "in.jsonl"), "columns": ["v"]}
    with pytest.raises(curation.CurationError, match="document 'x'"):
        run(convert_recipe({"input": [entry], "stages": [stage], "output": {"formats": []}}), tmp_path / "o")


def test_saved_centroids_give_the_clusters_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cpu_fallback.fit_centroids", lambda sample, clusters, rounds, seed: sample[:clusters])
    vectors = np.random.default_rng(2).integers(-127, 128, (50, 3)).tolist()
    frame = pd.DataFrame({"text": "x", "embedding": vectors})
    table = curation.clusters(frame, clusters=4, central=1, save=tmp_path / "topics.npz")
    found = Counter(curation.assign_clusters(frame, tmp_path / "topics.npz")["cluster"])
    assert found == dict(zip(table["cluster"], table["rows"], strict=True))
    with pytest.raises(curation.OutputError, match=r"expected a name that ends in \.npz"):
        curation.clusters(frame, clusters=4, save=tmp_path / "topics.npy")
