# SPDX-License-Identifier: Apache-2.0
"""Runs and saved indexes of version 0.3.0.dev0, as `tests/data/version_0_3.tar.gz` has them: eight records, one of them
no document, in `/data`."""

import math
import os
import tarfile
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation.base.errors import OutputError
from curation.cli.main import main
from curation.results.report.report import digest
from tests.runs import removed_rows

RUNS = Path(__file__).parents[1] / "data" / "version_0_3.tar.gz"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runs and their inputs, in the working directory."""
    with tarfile.open(RUNS) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(recipe: str | curation.Recipe, output: str) -> curation.RunResult:
    recipe = curation.load_recipe(recipe) if isinstance(recipe, str) else recipe
    return curation.run(recipe, output, engine="cpu", progress=False, workers=1)


def as_if_begun_here(folder: Path) -> None:
    """Let the report name the inputs where they are now: the identity of a run has their paths and times."""
    path = folder / "finished" / "report.json"
    report = orjson.loads(path.read_bytes())
    for file in report["files"]:
        file["path"] = str(folder / Path(file["path"]).name)
        file["modified_ns"] = os.stat(file["path"]).st_mtime_ns
    path.write_bytes(orjson.dumps(report | {"digest": digest(report)}))


def test_a_finished_run_is_read(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["verify", "finished"]) == 0
    assert main(["verify", "vectors"]) == 0
    found = curation.open_run("finished")
    assert found.kept()["id"].tolist() == ["d0", "d3", "d5", "d6"]
    assert found.pairs()[["id", "kept_text"]].values.tolist() == [
        ["d1", "The quick brown fox jumps over the lazy dog near the river bank."],
        ["d2", "The quick brown fox jumps over the lazy dog near the river bank."],
    ]
    assert found.measures()["words"].tolist() == [13, 13, 12, 13, 2, 11, 8]
    capsys.readouterr()
    assert main(["show", "finished", "--what", "removed"]) == 0
    assert "seen_ngrams" not in (shown := capsys.readouterr().out) and "near_duplicate" in shown


def test_its_documents_have_the_types_of_this_version(folder: Path):
    """The files have large strings, and NaN where a removed document broke no bound."""
    new = run("recipe.yaml", "new")
    for what, name in (("kept", "documents"), ("removed", "removed")):
        stored = pq.read_table(f"finished/{name}")
        assert pa.large_string() in stored.schema.types
        found, expected = (curation.run_documents(path, what) for path in ("finished", new.folder))
        assert expected.schema == pq.read_table(f"new/{name}").schema
        added = {pa.field("duplicate_of_doc", pa.int64())} if what == "removed" else set()
        assert {*expected.schema} - {*found.schema} == added and {*found.schema} <= {*expected.schema}
        same = [column for column in found.column_names if column != "file"]  # the input was in another folder
        assert found.select(same).to_pydict() == expected.select(same).to_pydict()
    assert math.isnan(stored.column("bound")[0].as_py()) and found.column("bound")[0].as_py() is None


def test_a_new_run_gives_the_same_and_is_compared(folder: Path):
    new = run("recipe.yaml", "new")
    old = curation.open_run("finished")
    assert removed_rows(new.folder) == removed_rows(old.folder)
    compared = curation.compare_runs("finished", "new")
    assert [(each.path, each.a, each.b) for each in compared.settings] == [("input.docs.keep_blank", True, False)]
    assert all(a == b for a, b in compared.counts.values())
    assert compared.kept_by_a == compared.kept_by_b == compared.ambiguous_a == 0
    same = [
        name
        for name in old.report["outputs"]
        if name.startswith(("index/", "tokens/", "token_shards/")) and name.endswith((".bin", ".idx"))
    ]
    assert len(same) > 15 and {name: old.report["outputs"][name] for name in same} == {
        name: new.report["outputs"][name] for name in same
    }


def test_the_same_command_is_refused_where_stages_give_other_results(folder: Path):
    as_if_begun_here(folder)
    with pytest.raises(
        OutputError,
        match=r"changed: input\[0\]\.keep_blank, stage_revisions\.filter, .*stage_revisions\.rewrite\. Give a new",
    ):
        run("recipe.yaml", "finished")


@pytest.mark.parametrize(
    ("setting", "changed"),
    [
        ("stages.exact_dedup.compare=lowercase", r"stages\[2\]\.compare"),
        ("stages.filter.rules.0.min=4", r"stages\[1\]\.rules\[0\]\.min"),
        ("stages.filter.rules.0.measure=bytes", r"stages\[1\]\.rules\[0\]\.measure"),
        ("input.docs.max_document_bytes=99", r"input\[0\]\.max_document_bytes"),
    ],
)
def test_a_changed_recipe_is_refused(folder: Path, setting: str, changed: str):
    as_if_begun_here(folder)
    recipe = curation.load_recipe("recipe.yaml", settings=[setting])
    with pytest.raises(OutputError, match=rf"changed: input\[0\]\.keep_blank, {changed}[.,]"):
        run(recipe, "finished")


def test_an_unfinished_run_is_refused(folder: Path):
    with pytest.raises(OutputError) as error:
        run("recipe.yaml", "unfinished")
    assert str(error.value) == (
        f"{folder}/unfinished was started by version 0.3.0.dev0, this is {curation.__version__}. "
        "Give a new --output, or --force"
    )


@pytest.mark.parametrize(
    ("index", "stage", "removed"),
    [
        ("finished/index", {"kind": "exact_dedup"}, ["d0", "d1", "d3", "d5", "d6"]),
        ("finished/index", {"kind": "fuzzy_dedup", "ngram": 2, "threshold": 0.5, "bands": 4, "rows": 2},
         ["d0", "d1", "d2", "d3", "d5", "d6"]),
        ("vectors/index", {"kind": "semantic_dedup", "clusters": 1}, ["v0", "v1", "v2", "v3"]),
    ],
)  # fmt: skip
def test_a_saved_index_is_read(folder: Path, index: str, stage: dict[str, object], removed: list[str]):
    vectors = index.startswith("vectors")
    entry = {"path": "vectors.jsonl", "columns": ["embedding"]} if vectors else {"path": "docs.jsonl"}
    recipe = curation.convert_recipe(
        {"input": [entry], "stages": [{**stage, "index": index}], "output": {"formats": []}}
    )
    assert sorted(row[1] for row in removed_rows(run(recipe, "new").folder)) == removed
