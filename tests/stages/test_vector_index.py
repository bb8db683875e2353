# SPDX-License-Identifier: Apache-2.0
"""The saved index of `semantic_dedup`: a later run removes documents that are close to one that an earlier run kept."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest

import curation
from curation.base.engine import load_engine
from curation.base.errors import CurationError, InputError, IntegrityError, OutputError, RecipeError
from curation.models.vectors import from_column, units_of
from curation.results.finished.verify import verify
from curation.running.run import run
from curation.stages.corpus import key_ranges
from curation.stages.vectors import vector_clusters, vector_index
from curation.stages.vectors.vector_clusters import Clusters
from curation.stages.vectors.vector_index import VectorIndex
from tests.models.tiny_files import LETTERS, WORDS, write_static
from tests.runs import files_below, kept_rows, recipe_of, removed_rows, report_of
from tests.stages.test_semantic_dedup import DIMENSIONS, made_vectors

THRESHOLD = 0.9
ABSENT = -20_000
REASONS = ("semantic_duplicate", "semantic_duplicate_of_index")


def write_input(path: Path, vectors: list[Any]) -> Path:
    records = [{"id": f"{path.stem}-{k}", "text": "x", "embedding": vector} for k, vector in enumerate(vectors)]
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    return path


def finish(folder: Path, path: Path, *before: dict[str, Any], index: Path | None = None, **how: Any) -> Path:
    """A finished run with an index over one file; `before` are earlier stages."""
    options = {key: how.pop(key) for key in ("slice_bytes", "scheduler", "force", "workers") if key in how}
    is_computed = any(entry["kind"] == "embed" for entry in before)
    stage = {"kind": "semantic_dedup", "threshold": THRESHOLD} | how | ({"index": str(index)} if index else {})
    stage |= {"clusters": 1} if is_computed else {}  # more clusters need scikit-learn
    carried = {} if is_computed else {"columns": ["embedding"]}
    recipe = recipe_of({"path": str(path), **carried}, stages=[*before, stage], output={"formats": [], "index": True})
    run(recipe, folder, engine="cpu", **({"workers": 2} | options))
    return folder / "index"


def units_between(left: list[Any], right: list[Any]) -> np.ndarray:
    """The cosines of stored vectors in ten-thousandths; ABSENT where one side has none."""
    sides = []
    for vectors in (left, right):
        column = load_engine("cpu").to_arrow(pd.DataFrame({"v": vectors})).column(0)
        stored, present = from_column(column, "v")
        sides.append((stored.astype(np.int64), present))
    norms = [np.maximum(np.square(stored).sum(axis=1), 1).astype(float) for stored, _ in sides]
    units = np.floor(sides[0][0] @ sides[1][0].T / np.sqrt(np.multiply.outer(*norms)) * 10_000).astype(np.int64)
    return np.where(np.multiply.outer(sides[0][1], sides[1][1]), units, ABSENT)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files_below(folder)}


OLD, NEW = made_vectors(300), [*made_vectors(450)[280:], *made_vectors(150, 2)]


@pytest.fixture(scope="module")
def centroids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty centroids, as int8."""
    found = np.random.default_rng(3).integers(-127, 128, (30, DIMENSIONS)).astype(np.int8)
    path = tmp_path_factory.mktemp("centroids") / "centroids.npz"
    Clusters(found, np.zeros((0, DIMENSIONS), np.int8), np.zeros(0, np.int64)).save(path)
    return path


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, centroids: Path) -> Path:
    """A folder with the run `old`, whose index has 30 clusters."""
    folder = tmp_path_factory.mktemp("first")
    finish(folder / "old", write_input(folder / "old.jsonl", OLD), centroids=str(centroids))
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run over few vectors."""
    folder = tmp_path_factory.mktemp("small")
    finish(folder / "old", write_input(folder / "old.jsonl", OLD[:60]))
    return folder


@pytest.fixture
def old(small: Path, tmp_path: Path) -> Path:
    """The index of a run, which a test may damage."""
    shutil.copytree(small, tmp_path, dirs_exist_ok=True)
    return tmp_path / "old" / "index"


# What is removed


def test_documents_close_to_a_kept_one_are_removed_as_by_comparing_all(first: Path, centroids: Path, tmp_path: Path):
    path = write_input(tmp_path / "new.jsonl", NEW)
    finish(tmp_path / "new", path, index=first / "old" / "index", probe=29, centroids=str(centroids))
    kept = [int(row[1].partition("-")[2]) for row in kept_rows(first / "old")]
    units = units_between(NEW, [OLD[number] for number in kept])
    best, bound = units.argmax(axis=1), units_of(THRESHOLD)  # of equal cosines the first document
    expected = {
        f"new-{row}": (units[row, best[row]] / 10_000, f"old-{kept[best[row]]}")
        for row in np.flatnonzero(units.max(axis=1) >= bound).tolist()
    }
    rows = removed_rows(tmp_path / "new")
    assert {row[1]: (row[5], row[6]) for row in rows if row[4] == REASONS[1]} == expected and len(expected) > 60
    rest = [number for number in range(len(NEW)) if f"new-{number}" not in expected]
    finish(tmp_path / "rest", write_input(tmp_path / "new.jsonl", [NEW[number] for number in rest]), clusters=1)
    others = {f"new-{rest[int(row[1].partition('-')[2])]}" for row in removed_rows(tmp_path / "rest")}
    assert {row[1] for row in rows if row[4] == REASONS[0]} == others and len(others) > 20
    report = report_of(tmp_path / "new")["stages"][0]
    details = report["details"]["index"]
    assert details["documents"] == len(kept) and details["clusters"] == 30
    assert details["vectors"] == sum(vector is not None and any(vector) for vector in (OLD[n] for n in kept))
    assert details["pairs_close"] == np.count_nonzero(units >= bound)
    assert details["pairs_compared"] == np.count_nonzero(units > ABSENT)
    assert report["reasons"] == {REASONS[0]: len(others), REASONS[1]: len(expected)}
    assert f"{len(expected)} close to one of {len(kept)} documents of the index, recall 100.00%" in report["lines"]
    assert verify(tmp_path / "new") == [] == verify(first / "old")


def test_of_equally_close_documents_the_first_one_is_named(tmp_path: Path):
    centroids = np.array([[127, 64], [127, -64]], np.int8)
    Clusters(centroids, np.zeros((0, 2), np.int8), np.zeros(0, np.int64)).save(tmp_path / "centroids.npz")
    old = write_input(tmp_path / "old.jsonl", [[127, -1], [127, 1]])  # in the second cluster, in the first one
    index = finish(tmp_path / "old", old, threshold=1, centroids=str(tmp_path / "centroids.npz"))
    finish(tmp_path / "new", write_input(tmp_path / "new.jsonl", [[127, 0]]), index=index)
    assert [row[6] for row in removed_rows(tmp_path / "new")] == ["old-0"]


@pytest.mark.slow("the recall of an index is that of the clusters it visits")
def test_the_recall_is_that_of_the_clusters_that_are_visited(first: Path, tmp_path: Path):
    path, seen = write_input(tmp_path / "new.jsonl", NEW), []
    index = VectorIndex(str(first / "old" / "index"))
    kept = [int(row[1].partition("-")[2]) for row in kept_rows(first / "old")]
    stored, present = from_column(load_engine("cpu").to_arrow(pd.DataFrame({"v": NEW})).column(0), "v")
    units = units_between(NEW, [OLD[number] for number in kept]) >= units_of(THRESHOLD)
    home = np.full(index.documents, -1)
    for place, _, _, documents in index.between(0, index.count):
        home[documents] = index.clusters_at(place + np.arange(len(documents)))
    _, different = np.unique(stored[present], axis=0, return_index=True)
    chosen = np.flatnonzero(present)[different]  # fewer than are measured at most
    for probe in (0, 29):
        finish(tmp_path / str(probe), path, index=first / "old" / "index", probe=probe, clusters=1)
        details = report_of(tmp_path / str(probe))["stages"][0]["details"]["index"]
        nearest = index.clusters.nearest(load_engine("cpu"), stored[chosen], 1 + probe)
        visited = (nearest[:, :, None] == home).any(axis=1)
        expected = {"documents": len(chosen), "pairs": int(units[chosen].sum())}
        assert details["recall"] == expected | {"found": int((units[chosen] & visited).sum())}
        seen.append(details["recall"]["found"])
    assert seen[0] < seen[1] == details["recall"]["pairs"]


def test_the_index_has_each_kept_vector_once_in_its_cluster(first: Path):
    index = VectorIndex(str(first / "old" / "index"))
    kept = [OLD[int(row[1].partition("-")[2])] for row in kept_rows(first / "old")]
    stored, present = from_column(load_engine("cpu").to_arrow(pd.DataFrame({"v": kept})).column(0), "v")
    _, vectors, norms, documents = next(index.between(0, index.count))
    assert sorted(documents.tolist()) == np.flatnonzero(present).tolist()
    assert (vectors == stored[documents]).all()
    assert (norms == np.square(vectors.astype(np.int64)).sum(axis=1)).all()
    home = index.clusters.nearest(load_engine("cpu"), vectors, 1)[:, 0]
    assert (home == index.clusters_at(np.arange(index.count))).all()
    order = np.lexsort((documents, home))
    assert (order == np.arange(index.count)).all() and len({*home.tolist()}) > 5
    assert index.ids(documents[:3].astype(np.int64)).to_pylist() == [
        kept_rows(first / "old")[number][1] for number in documents[:3]
    ]


# The same for any division of the work, and after kills

SMALL = (
    (key_ranges, "MIN_GROUP_ROWS", 16), (key_ranges, "RANGE_KEYS", 50), (vector_clusters, "AT_ONCE", 7),
    (vector_clusters, "OWNER_VECTORS", 60), (vector_index, "AT_ONCE", 5), (vector_index, "MEMBERS_AT_ONCE", 3),
)  # fmt: skip


@pytest.mark.slow("an index of vectors has the same bytes for any slices and workers")
def test_the_same_bytes_for_any_slices_and_workers(
    first: Path, centroids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, settings = write_input(tmp_path / "new.jsonl", NEW), {"probe": 2, "centroids": str(centroids)}
    monkeypatch.setattr(vector_index, "PART_VECTORS", 64)
    old = finish(tmp_path / "old", first / "old.jsonl", centroids=str(centroids))
    assert {"vectors-00000.bin", "vectors-00001.bin"} < {*files_below(old / "semantic")}
    whole = finish(tmp_path / "whole", path, index=old, workers=1, **settings)
    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)
    assert bytes_of(finish(tmp_path / "again", first / "old.jsonl", centroids=str(centroids), slice_bytes=40_000)) == (
        bytes_of(old)
    )
    cut = finish(tmp_path / "cut", path, index=old, slice_bytes=20_000, workers=3, **settings)
    assert removed_rows(tmp_path / "cut") == removed_rows(tmp_path / "whole")
    assert {row[4] for row in removed_rows(tmp_path / "cut")} == {*REASONS}
    assert bytes_of(cut) == bytes_of(whole)
    details = [report_of(tmp_path / name)["stages"][0]["details"] for name in ("cut", "whole")]
    assert details[0] == details[1] and details[0]["index"]["recall"]["found"] > 0


@pytest.mark.slow("a run killed at any step of a vector index resumes with the same bytes")
def test_a_run_killed_at_each_step_of_the_index_ends_in_the_same_bytes(
    first: Path, centroids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(vector_index, "PART_VECTORS", 50)
    old = finish(tmp_path / "old", first / "old.jsonl", centroids=str(centroids))
    path, settings = write_input(tmp_path / "new.jsonl", NEW), {"probe": 2, "centroids": str(centroids)}
    exact = {"kind": "exact_dedup", "max_characters": 9, "compare": "exact"}
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line.replace(b'"x"', b'"x%d"' % number) for number, line in enumerate(lines)))
    whole = finish(tmp_path / "whole", path, exact, index=old, **settings)

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    steps = {
        "vectors.vector_index": (
            "_take_best",
            "match_slice_group",
            "measure_index_recall",
            "sort_by_cluster",
            "write_part",
            "write_clusters",
        ),
        "corpus.index_tasks": ("_described",),
        "corpus.saved_index": ("write_json",),
    }
    places = [f"stages.{module}.{name}" for module, names in steps.items() for name in names]
    for place in [*places, "running.phases.corpus_phase.index_digests"]:
        with monkeypatch.context() as patched:
            patched.setattr(f"curation.{place}", stop)
            with pytest.raises(KeyboardInterrupt):
                finish(tmp_path / "killed", path, exact, index=old, **settings)
        assert not (tmp_path / "killed" / "report.json").exists()
    killed = finish(tmp_path / "killed", path, exact, index=old, **settings)
    assert bytes_of(killed) == bytes_of(whole) and verify(tmp_path / "killed") == []
    assert removed_rows(tmp_path / "killed") == removed_rows(tmp_path / "whole")
    assert {"exact/index.json", "semantic/index.json", "semantic/vectors-00001.bin"} < {*files_below(killed)}


@pytest.mark.slow("files of a killed process are no part of an index of vectors")
def test_what_a_killed_process_leaves_is_no_part_of_the_index(first: Path, tmp_path: Path):
    whole = finish(tmp_path / "whole", first / "old.jsonl")
    code = f"""
import os
from pathlib import Path
from curation.stages.corpus import index_tasks
from tests.stages.test_vector_index import finish
def die(path):
    path.with_name("vectors-00000.bin.left").write_bytes(b"half")
    os._exit(9)
index_tasks._described = die
finish(Path({str(tmp_path / "killed")!r}), Path({str(first / "old.jsonl")!r}))
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, check=False
    )
    assert ended.returncode == 9 and list((tmp_path / "killed" / "_work").glob("saving-*/files/*.left"))
    assert bytes_of(finish(tmp_path / "killed", first / "old.jsonl")) == bytes_of(whole)
    assert verify(tmp_path / "killed") == []


# Small data


@pytest.mark.parametrize("vectors", [[], [None], [[1.0] * DIMENSIONS]], ids=["none", "no vector", "one"])
def test_few_documents_on_either_side(vectors: list[Any], old: Path, tmp_path: Path):
    path = write_input(tmp_path / "few.jsonl", vectors)
    if vectors == [None]:
        with pytest.raises(InputError, match="has no vector in any of 1 document"):
            finish(tmp_path / "few", path, index=old)
        return
    few = finish(tmp_path / "few", path, index=old)
    assert VectorIndex(str(few)).count == len(vectors) == len(kept_rows(tmp_path / "few"))
    finish(tmp_path / "later", tmp_path / "old.jsonl", index=few)
    assert len(kept_rows(tmp_path / "later")) == len(kept_rows(old.parent))
    finish(tmp_path / "again", path, index=few)
    assert [row[4:] for row in removed_rows(tmp_path / "again")] == [(REASONS[1], 1.0, "few-0")] * len(vectors)


def test_nothing_with_a_vector_is_left_of_the_same_documents(old: Path, tmp_path: Path):
    finish(tmp_path / "again", tmp_path / "old.jsonl", index=old, clusters=5)
    without = [f"old-{number}" for number, vector in enumerate(OLD[:60]) if vector is None or not any(vector)]
    assert [row[1] for row in kept_rows(tmp_path / "again")] == without and without
    assert report_of(tmp_path / "again")["stages"][0]["details"]["without_vector"] == len(without)


def test_frames_are_compared_with_an_index(old: Path):
    frame = pd.DataFrame({"text": ["new", "old"], "embedding": [made_vectors(9, 5)[0], OLD[0]]})
    assert curation.semantic_dedup(frame, index=old)["text"].tolist() == ["new"]
    found = curation.semantic_dedup(frame, index=old, details=True).pairs
    assert found[["row", "kept_row", "similarity"]].to_numpy().tolist() == [[1, -1, 1.0]]


# What does not fit


def test_folders_that_hold_no_such_index(old: Path, tmp_path: Path):
    plain = tmp_path / "plain.jsonl"
    plain.write_text('{"text": "a"}\n')
    recipe = recipe_of(plain, stages=[{"kind": "exact_dedup"}], output={"formats": [], "index": True})
    run(recipe, tmp_path / "exact", engine="cpu")
    message = r"has no index\.json; give index/ of a run with semantic_dedup and output: \{index: true\}"
    with pytest.raises(RecipeError, match=rf"semantic has no index\.json; did you mean {old}\?"):
        finish(tmp_path / "new", tmp_path / "old.jsonl", index=old.parent)
    for folder in (tmp_path / "exact" / "index", tmp_path / "none", tmp_path / "old.jsonl"):
        with pytest.raises(RecipeError, match=message):
            finish(tmp_path / "new", tmp_path / "old.jsonl", index=folder)
    assert not (tmp_path / "new").exists()
    with pytest.raises(RecipeError, match=message):
        curation.semantic_dedup(pd.DataFrame({"text": ["a"], "embedding": [[1.0]]}), index=tmp_path / "none")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _change(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def _other_format(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 7}))


def _other_version(path: Path) -> None:
    path.write_text(path.read_text().replace('"vectors": 1', '"vectors": 0'))


DAMAGES: dict[str, tuple[Any, str, type[CurationError], str]] = {
    "cut": (_cut, "vectors-00000.bin", IntegrityError, r"vectors-00000\.bin is .* bytes long, not .*; make the index"),
    "missing": (Path.unlink, "starts.bin", IntegrityError, r"starts\.bin is missing; make the index again"),
    "vectors": (_change, "vectors-00000.bin", IntegrityError, r"vectors-00000\.bin has changed since it was written"),
    "documents": (_change, "documents-00000.bin", IntegrityError, r"documents-00000\.bin has changed since it was"),
    "centroids": (_change, "centroids.npz", IntegrityError, r"centroids\.npz has changed since it was written"),
    "ids": (_change, "ids.arrow", IntegrityError, r"ids\.arrow has changed since it was written; make the index"),
    "description": (
        lambda path: path.write_text("{"),
        "index.json",
        IntegrityError,
        r"index\.json is damaged .*; make the index again",
    ),
    "format": (_other_format, "index.json", RecipeError, "has format 7, this version reads 1; make the index again"),
    "version": (_other_version, "index.json", RecipeError, "was made with other settings: vectors 0 there, 1 here"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_index_is_refused_before_any_input_is_read(case: str, old: Path, tmp_path: Path):
    damage, name, kind, message = DAMAGES[case]
    damage(old / "semantic" / name)
    with pytest.raises(kind, match=message):
        finish(tmp_path / "new", tmp_path / "not there.jsonl", index=old)
    assert not (tmp_path / "new").exists()
    with pytest.raises(kind, match=message):
        curation.semantic_dedup(pd.DataFrame({"text": ["a"], "embedding": [OLD[0]]}), index=old)


def test_vectors_of_other_dimensions(old: Path, tmp_path: Path):
    message = r"index: .* has vectors of 24 dimensions, but those in column 'embedding' have 2. Use vectors of one mod"
    with pytest.raises(InputError, match=message):
        finish(tmp_path / "new", write_input(tmp_path / "two.jsonl", [[1.0, 2.0]]), index=old)
    with pytest.raises(InputError, match=message):
        curation.semantic_dedup(pd.DataFrame({"text": ["a"], "embedding": [[1.0, 2.0]]}), index=old)


def test_an_index_that_changed_is_another_recipe(old: Path, tmp_path: Path):
    path = write_input(tmp_path / "new.jsonl", NEW[:20])
    finish(tmp_path / "new", path, index=old)
    finish(tmp_path / "new", path, index=old)  # already complete
    finish(tmp_path / "old", write_input(tmp_path / "old.jsonl", OLD[:50]), force=True)
    with pytest.raises(OutputError, match=r"changed: .*/index.json of stage semantic_dedup \(content\)"):
        finish(tmp_path / "new", path, index=old)


# The model


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A file of texts of letters, next to two models."""
    write_static(tmp_path / "model")
    other = np.ones((len(WORDS), 4), np.float32)
    write_static(tmp_path / "other", embeddings=other)
    rng = np.random.default_rng(4)
    lines = [orjson.dumps({"text": " ".join(rng.choice(list(LETTERS), 12))}) for _ in range(40)]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines))
    return tmp_path / "in.jsonl"


def test_vectors_of_another_model_are_refused(texts: Path, tmp_path: Path):
    embed = {"kind": "embed", "model": str(tmp_path / "model")}
    index = finish(tmp_path / "old", texts, embed, threshold=1)
    settings = json.loads((index / "semantic" / "index.json").read_text())["settings"]
    assert {*settings} == {"vectors", "model", "dimensions", "max_characters"} and settings["dimensions"] == 4
    (tmp_path / "model").rename(tmp_path / "moved")
    moved = {"kind": "embed", "model": str(tmp_path / "moved")}
    finish(tmp_path / "same", texts, moved, index=index, threshold=1)  # the folder does not matter
    assert not kept_rows(tmp_path / "same")
    other = {"kind": "embed", "model": str(tmp_path / "other")}
    for stage, message in (
        (other, r"was made with other settings: model '[0-9a-f]{64}' there, '[0-9a-f]{64}' here\. Use the same here"),
        (moved | {"max_characters": 9}, r"was made with other settings: max_characters 0 there, 9 here"),
    ):
        with pytest.raises(RecipeError, match=message):
            finish(tmp_path / "new", texts, stage, index=index)
    assert not (tmp_path / "new").exists()
    vectors = write_input(tmp_path / "vectors.jsonl", [[1.0, 2.0, 3.0, 4.0]])
    finish(tmp_path / "given", vectors, index=index)  # an input does not tell its model


def test_encoders_differ_by_windows_and_pooling(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("curation.stages.rows.embed.is_static", lambda model: False)  # which need neither
    embed = {"kind": "embed", "model": str(tmp_path / "model"), "windows": 4, "pooling": "mean"}
    index = finish(tmp_path / "old", texts, embed)
    for name, value in (("windows", 1), ("pooling", "max")):
        message = f"was made with other settings: {name} {embed[name]!r} there, {value!r} here. Use the same here"
        with pytest.raises(RecipeError, match=message):
            finish(tmp_path / "new", texts, embed | {name: value}, index=index)
