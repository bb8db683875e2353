# SPDX-License-Identifier: Apache-2.0
"""`output: {documents: false}`: the same tokens without `documents/`, and what then cannot be shown or checked."""

import shutil
from pathlib import Path

import orjson
import pytest

import curation
from curation.base.errors import OutputError, RecipeError
from curation.base.system.files import as_json
from curation.cli.main import main
from curation.recipes.recipe import load_recipe
from curation.results.finished.verify import verify
from curation.results.report.report import digest
from curation.running.run import run
from tests.runs import recipe_of, records_of, report_of

SPLITS = {"train": 0.5, "valid": 0.5}
TEXTS = [f"document {k} has a few words of its own, {k * k}" for k in range(60)] * 2 + [""]
STAGES = [{"kind": "filter", "rules": [{"measure": "words", "min": 3}]}, {"kind": "exact_dedup"}]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Two runs, with and without `documents/`."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "made.jsonl").write_bytes(records_of(TEXTS))
    for documents in (True, False):
        output = {"documents": documents, "splits": SPLITS, "part_documents": 25}
        recipe = recipe_of(folder / "made.jsonl", stages=STAGES, output=output)
        run(recipe, folder / str(documents), engine="cpu", workers=2)
    return {documents: folder / str(documents) for documents in (True, False)}


def test_all_other_outputs_are_the_same(runs: dict[bool, Path]):
    with_documents, without = report_of(runs[True]), report_of(runs[False])
    others = {
        name: sha for name, sha in with_documents["outputs"].items() if not name.startswith(("documents/", "README.md"))
    }
    changed = {name for name, sha in others.items() if without["outputs"][name] != sha}
    assert len(others) < len(with_documents["outputs"]) and without["outputs"].keys() - {"README.md"} == others.keys()
    assert all(name.startswith("tokens/_meta/") for name in changed)  # they have the path of the folder
    assert not (runs[False] / "documents").exists()
    for name in ("documents", "bytes", "documents_digest", "tokens"):
        assert without[name] == with_documents[name]


def test_the_report_and_verify_say_it(runs: dict[bool, Path], capsys: pytest.CaptureFixture[str]):
    line = "documents/ was not written (output: {documents: false})"
    assert line in (runs[False] / "report.html").read_text() and line not in (runs[True] / "report.html").read_text()
    for documents, folder in runs.items():
        assert verify(folder) == [] and main(["verify", str(folder)]) == 0
        said = capsys.readouterr()
        assert (line in said.out + said.err) is not documents


def test_verify_counts_documents_by_their_tokens(runs: dict[bool, Path], tmp_path: Path):
    folder = shutil.copytree(runs[False], tmp_path / "out")
    content = report_of(folder)
    content["tokens"]["empty_documents"] += 1
    (folder / "report.json").write_bytes(as_json(content | {"digest": digest(content)}, indent=True))
    assert verify(folder) == ["the report counts 60 kept documents, of which 60 have tokens and 1 have none"]


@pytest.mark.parametrize("what", ["kept", "pairs"])
def test_documents_that_are_not_there_cannot_be_shown(runs: dict[bool, Path], what: str):
    with pytest.raises(OutputError, match=r"has no documents/.*documents: false.*documents: true"):
        curation.run_documents(runs[False], what)
    assert len(curation.run_documents(runs[False], "removed")) == 61


def test_such_runs_cannot_be_compared(runs: dict[bool, Path]):
    with pytest.raises(OutputError, match=r"False has no documents/, which a comparison needs"):
        curation.compare_runs(runs[True], runs[False])


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"formats": []}, "documents is false and formats is empty"),
        ({"cleaned": "csv"}, "cleaned has the rows of documents/"),
    ],
)
def test_combinations_that_write_nothing(output: dict, message: str, tmp_path: Path):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(orjson.dumps({"output": {"documents": False, **output}}))
    with pytest.raises(RecipeError, match=message):
        load_recipe(path)


def test_parts_without_their_record_are_written_again(runs: dict[bool, Path], tmp_path: Path):
    output = {"documents": False, "splits": SPLITS, "part_documents": 25, "keep_work": True}
    recipe, out = recipe_of(runs[False].parent / "made.jsonl", stages=STAGES, output=output), tmp_path / "out"
    first = run(recipe, out, engine="cpu").report["outputs"]
    (out / "report.json").unlink()
    for name in ("000000.json", "000001.train.ids"):
        (out / "_work" / "outputs" / name).unlink()
    assert run(recipe, out, engine="cpu").report["outputs"] == first


def test_a_run_that_keeps_nothing(tmp_path: Path):
    (tmp_path / "made.jsonl").write_bytes(records_of(["one two", "three four"]))
    recipe = recipe_of(tmp_path / "made.jsonl", stages=STAGES, output={"documents": False})
    content = run(recipe, tmp_path / "out", engine="cpu").report
    assert content["documents"]["kept"] == 0 and verify(tmp_path / "out") == []
    assert not (tmp_path / "out" / "documents").exists()
