# SPDX-License-Identifier: Apache-2.0
"""The map of clusters in the report: its documents, its words, and hostile texts."""

from __future__ import annotations

import html
import json
import tracemalloc
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from curation.base.engine import load_engine
from curation.results.finished.verify import verify
from curation.results.report import clusters as report_clusters
from curation.results.report.clusters import cluster_map
from curation.results.report.html import as_html
from curation.running.run import run
from curation.stages.base import Clustered
from curation.stages.vectors.vector_clusters import Clusters
from tests.models.tiny_files import LETTERS, WORDS, write_static
from tests.results.pages import without_scripts
from tests.results.test_report_html import ATTRIBUTES, CHROMIUM, HOSTILE, TAGS, Reader, check_widths, made_hostile
from tests.runs import recipe_of, report_of

COUNT = 240
TABLE = np.random.default_rng(3).standard_normal((len(WORDS), 4)).astype(np.float32) / 5
for letter in LETTERS:  # two directions
    TABLE[WORDS.index(letter)] += [1, -1, 1, 1] if letter in LETTERS[:5] else [-1, -1, 1, 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of two halves of the letters, some without a vector, and a centroid for each half."""
    folder, rng = tmp_path_factory.mktemp("map"), np.random.default_rng(5)
    write_static(folder / "model", embeddings=TABLE)
    halves = [LETTERS[:5], LETTERS[5:]]
    texts = [" ".join(rng.choice(list(halves[number % 2]), 30)) for number in range(COUNT)]
    texts[::40] = ["?"] * len(texts[::40])
    records = [orjson.dumps({"text": text} | ({} if k % 3 else {"id": f"own{k}"})) for k, text in enumerate(texts)]
    (folder / "in.jsonl").write_bytes(b"\n".join(records))
    means = np.stack([TABLE[[WORDS.index(letter) for letter in half]].mean(axis=0) for half in halves])
    centroids = np.rint(127 * means / np.abs(means).max(axis=1, keepdims=True)).astype(np.int8)
    Clusters(centroids, np.zeros((0, 4), np.int8), np.zeros(0, np.int64)).save(folder / "c.npz")
    return folder


def reported(folder: Path, out: Path, samples: int = 5, **how: Any) -> dict[str, Any]:
    stages = [
        {"kind": "embed", "model": str(folder / "model")},
        {"kind": "semantic_dedup", "threshold": 1.0, "centroids": str(folder / "c.npz")},
        {"kind": "assign_clusters", "centroids": str(folder / "c.npz"), "names": ["early", "late"]},
    ][: how.pop("stages", 3)]
    recipe = recipe_of(folder / "in.jsonl", stages=stages, report={"samples": samples}, output={"formats": []})
    run(recipe, out, engine="cpu", progress=False, **how)
    assert verify(out) == []
    return report_of(out)


@pytest.fixture(scope="module")
def report(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return reported(folder, tmp_path_factory.mktemp("out") / "out")


def test_the_map_has_the_kept_documents_with_a_vector(report: dict[str, Any]):
    (found,) = report["texts"]["clusters"]
    assert found["stage"] == "assign_clusters"
    names = [entry["name"] for entry in found["clusters"]]
    assert sorted(names) == ["early", "late"] and found["count"] == 2
    ids = [point[3] for point in found["points"]]
    assert len(ids) == len({*ids}) > 150 and "own0" not in ids and {"own3", "in/1"} & {*ids}
    for x, y, place, _, text in found["points"]:
        assert -1 <= x <= 1 and -1 <= y <= 1
        assert {*text.split()} <= {*(LETTERS[5:] if names[place] == "late" else LETTERS[:5])}
    assert Counter(point[2] for point in found["points"]) == {
        place: entry["documents"] for place, entry in enumerate(found["clusters"])
    }
    typical = {entry["name"]: {*entry["words"]} for entry in found["clusters"]}
    assert typical == {"early": {*LETTERS[:5]}, "late": {*LETTERS[5:]}}


def test_the_map_of_a_stage_that_finds_clusters_has_numbers_and_any_slices(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(report_clusters, "SHOWN_CLUSTERS", 1)
    whole = reported(folder, tmp_path / "whole", stages=2, workers=1)["texts"]["clusters"]
    sliced = reported(folder, tmp_path / "sliced", stages=2, workers=2, slice_bytes=8_000)["texts"]["clusters"]
    assert sliced == whole and whole[0]["stage"] == "semantic_dedup"
    assert whole[0]["clusters"][0]["name"] in "01" and {point[2] for point in whole[0]["points"]} == {0, -1}


def test_the_map_holds_the_starts_of_long_texts_alone(folder: Path, monkeypatch: pytest.MonkeyPatch):
    rows = pa.table({"row": [0, 1, 2], "id": ["a", "b", "c"], "text": ["x " * 5_000_000] * 3, "v": [[1, 2, 3, 4]] * 3})
    monkeypatch.setattr(report_clusters, "open_partition", lambda path: rows)
    partitions: Any = SimpleNamespace(locate=lambda rows: (rows * 0, rows), path=str)
    clustered = Clustered("v", (), str(folder / "c.npz"))
    tracemalloc.start()
    try:
        found = cluster_map(load_engine("cpu"), clustered, folder / "c.npz", partitions, np.arange(3), lambda *key: "")
        assert found and len(found["points"]) == 3 and tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_no_samples_and_few_vectors_give_no_map(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert reported(folder, tmp_path / "none", samples=0)["texts"]["clusters"] == []
    monkeypatch.setattr("curation.results.report.samples.POINTS", 2)
    assert reported(folder, tmp_path / "few")["texts"]["clusters"] == []


def test_the_page_draws_a_mark_per_document_with_its_text(report: dict[str, Any]):
    page = as_html(report)
    (found,) = report["texts"]["clusters"]
    assert page.count("</title></polygon>") == len(found["points"]) and '<a href="#clusters">' in page
    _, _, place, id_, text = found["points"][0]
    assert f"<title>{id_}; cluster {found['clusters'][place]['name']}: {text}</title></polygon>" in page
    for entry in found["clusters"]:
        assert f"<td>{', '.join(entry['words'])}</td>" in page
    without = json.loads(json.dumps(report))
    without["texts"].pop("clusters")  # as in reports of earlier versions
    assert 'id="clusters"' not in as_html(without)


def test_hostile_texts_and_names_are_inert(report: dict[str, Any]):
    page = without_scripts(as_html(made_hostile(report)))
    found = Reader(page)
    assert found.tags <= TAGS and found.attributes <= ATTRIBUTES and found.open == []
    assert (
        "<script" not in page
        and "\x1b" not in page
        and html.escape(HOSTILE[:9]) in page.partition('class="chart map"')[2]
    )


@pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed: apt-get install chromium")
def test_the_page_fits_the_width_of_screens(report: dict[str, Any], tmp_path: Path):
    check_widths(as_html(made_hostile(report)), tmp_path)
