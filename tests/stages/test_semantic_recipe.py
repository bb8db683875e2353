# SPDX-License-Identifier: Apache-2.0
"""`embed` and `semantic_dedup` in one recipe: texts in, one document of each group with close vectors out."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest
import yaml

import curation
from curation.cli.main import main
from curation.models.vectors import units_of
from curation.running.run import run
from curation.stages.corpus import key_ranges
from curation.stages.vectors import semantic_dedup, vector_clusters
from curation.stages.vectors.vector_clusters import Clusters
from tests.models.tiny_files import LETTERS, write_static
from tests.runs import files_below, recipe_of, removed_rows

ROOT = Path(__file__).resolve().parents[2]
THRESHOLD = 0.97
WORDLESS = {0: "", 7: "?", 15: ""}  # documents without a word of the model


def made_texts(count: int) -> list[str]:
    """Texts of letters, some of which repeat an earlier one in another order, with a letter more or unchanged."""
    rng = np.random.default_rng(4)
    texts: list[str] = []
    for number in range(count):
        words = rng.choice(list(LETTERS), 12).tolist()
        if number > 20 and number % 3 == 0:
            words = texts[int(rng.integers(number))].split()
            rng.shuffle(words)
            words += [LETTERS[number % 10]] * (number % 2)
        texts.append(WORDLESS.get(number, " ".join(words)))
    return texts


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, texts, and centroids, so that no package has to find them."""
    folder = tmp_path_factory.mktemp("corpus")
    write_static(folder / "model")
    lines = [orjson.dumps({"id": str(number), "text": text}) for number, text in enumerate(made_texts(300))]
    (folder / "in.jsonl").write_bytes(b"\n".join(lines))
    centroids = np.random.default_rng(1).integers(-127, 128, (12, 4)).astype(np.int8)
    Clusters(centroids, np.zeros((0, 4), np.int8), np.zeros(0, np.int64)).save(folder / "centroids.npz")
    return folder


def run_both(corpus: Path, out: Path, **how: Any) -> dict[str, Any]:
    """The report of a run of both stages."""
    stages = [
        {"kind": "embed", "model": str(corpus / "model")},
        {"kind": "semantic_dedup", "threshold": THRESHOLD, "centroids": str(corpus / "centroids.npz"), "probe": 11},
    ]
    recipe = recipe_of(corpus / "in.jsonl", stages=stages, output={"formats": []})
    return dict(run(recipe, out, engine="cpu", **how).report)


def by_all_pairs(corpus: Path) -> set[int]:
    """The documents that have a close one before them, also over a chain, by comparing all pairs of stored vectors."""
    found = curation.embed(pd.DataFrame({"text": made_texts(300)}), corpus / "model")["embedding"]
    vectors = np.array([[0] * 4 if value is None or value is pd.NA else list(value) for value in found], np.int64)
    norms = np.maximum(np.square(vectors).sum(axis=1), 1).astype(float)
    close = np.floor(vectors @ vectors.T / np.sqrt(np.outer(norms, norms)) * 10_000) >= units_of(THRESHOLD)
    label = np.arange(len(vectors))
    while ((lower := np.minimum(np.where(close, label, len(label)).min(axis=1), label)) != label).any():
        label = lower
    return set(np.flatnonzero(label != np.arange(len(label))).tolist())


def test_one_recipe_embeds_texts_and_keeps_one_of_each_group(corpus: Path, tmp_path: Path):
    report = run_both(corpus, tmp_path / "out")
    removed = removed_rows(tmp_path / "out")
    expected = by_all_pairs(corpus)
    assert {row[0] for row in removed} == expected and len(expected) > 80
    assert {row[4] for row in removed} == {"semantic_duplicate"} and not {*WORDLESS} & expected
    assert report["stages"][1]["details"]["without_vector"] == len(WORDLESS)
    assert report["stages"][1]["details"]["recall"]["pairs"] > 80


def test_both_stages_keep_the_same_documents_for_any_slices_and_workers(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    one = run_both(corpus, tmp_path / "one", workers=1)
    for module, name, value in (
        (key_ranges, "MIN_GROUP_ROWS", 16), (key_ranges, "RANGE_KEYS", 50), (vector_clusters, "AT_ONCE", 7),
        (vector_clusters, "OWNER_VECTORS", 60),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    many = run_both(corpus, tmp_path / "many", workers=2, slice_bytes=2_000)
    assert many["outputs"] == one["outputs"] and removed_rows(tmp_path / "many") == removed_rows(tmp_path / "one")
    assert many["stages"][1]["details"] == one["stages"][1]["details"]
    assert files_below(tmp_path / "many" / "documents") == files_below(tmp_path / "one" / "documents")


def stages_of(page: str) -> list[dict[str, Any]]:
    """The stages of the example with all usual settings of `semantic_dedup` in a page."""
    blocks = (ROOT / page).read_text("utf-8").split("```yaml\n")[1:]
    (found,) = [block for block in (each.partition("```")[0] for each in blocks) if "semantic_dedup, column" in block]
    return list(yaml.safe_load(found)["stages"])


def test_the_example_of_the_page_runs(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stages = stages_of("docs/vectors.md")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(semantic_dedup, "KMEANS", ("numpy",))  # so few vectors need no k-means
    (tmp_path / "models").mkdir()
    (tmp_path / stages[1]["model"]).symlink_to(corpus / "model")
    report = run(recipe_of(corpus / "in.jsonl", stages=stages, output={"formats": []}), tmp_path / "out").report
    assert [stage["kind"] for stage in report["stages"]] == ["exact_dedup", "embed", "semantic_dedup"]
    assert all(stage["documents_out"] < stage["documents_in"] for stage in (report["stages"][0], report["stages"][2]))


@pytest.mark.parametrize(("settings", "is_refused"), [({}, True), ({"clusters": 3}, True), ({"clusters": 1}, False)])
def test_missing_packages_are_found_before_vectors_are_computed(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], is_refused: bool
):
    monkeypatch.setattr(semantic_dedup, "KMEANS", ("no_such_package",))
    stages = [{"kind": "embed", "model": str(corpus / "model")}, {"kind": "semantic_dedup", **settings}]
    recipe = recipe_of(corpus / "in.jsonl", stages=stages, output={"formats": []})
    for call in (curation.estimate, curation.run):
        message = "semantic_dedup: scikit-learn, or cuML on the GPU, finds the clusters, and none is installed"
        with pytest.raises(curation.InputError, match=message) if is_refused else nullcontext():
            call(recipe, tmp_path / "out")
    assert (tmp_path / "out").exists() != is_refused


def test_pairs_are_shown_with_the_cosine(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    report = run_both(corpus, tmp_path / "out")
    pairs = curation.run_documents(tmp_path / "out", "pairs")
    assert pairs.column("jaccard").null_count == len(pairs) > 50
    assert main(["show", str(tmp_path / "out"), "--what", "pairs", "--sample", "500"]) == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("--- ")]
    assert headings == [
        f"--- {row['id']} (in); semantic_dedup: semantic_duplicate, cosine {row['value']:.6g}; "
        f"kept: {row['duplicate_of']}; {row['file']}, line {row['line']:,}"
        for row in pairs.to_pylist()
    ]
    shown = [pair for group in report["texts"]["pairs"] for pair in group["pairs"]]
    assert shown and all(pair["cosine"] == pair["value"] and pair["jaccard"] is None for pair in shown)
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"by semantic_dedup · cosine {shown[0]['cosine']:.3f}" in page and "Jaccard" not in page
