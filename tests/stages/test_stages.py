# SPDX-License-Identifier: Apache-2.0
"""The same questions for every stage of the package: a stage that forgets an answer fails under its kind."""

import json
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import dask.config
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.delayed import delayed

import curation
from curation.base.errors import OutputError, RecipeError
from curation.models.ngrams import TINY
from curation.recipes.recipe import Recipe, convert_recipe
from curation.running.run import run
from curation.stages import STAGES, CorpusStage, RowStage, Stage
from curation.stages.own_code import convert_stage, stage_for_job, stage_from_job
from curation.stages.vectors.vector_clusters import Clusters
from tests.models.tiny_files import write_static
from tests.oracle.fasttext_reference import as_bytes, model_of
from tests.runs import records_of
from tests.stages.test_saved_index import FUZZY

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [
    "one two three four five six seven",
    "one two three four five six seven",
    "Write to a@b.co <b>now</b>.",
    "eins zwei drei",
]

# Of each kind settings with which it has something to do. DIR stands for a folder with the files below.
EXAMPLES: dict[str, dict[str, Any]] = {
    "rewrite": {"markup": "strip"},
    "redact": {},
    "measure": {"names": ["words"]},
    "filter": {"rules": [{"measure": "words", "min": 4}, {"column": "url", "not_in": ["x"]}]},
    "lines": {"rules": [{"measure": "words", "min": 4}]},
    "language": {"keep": ["en", "de"], "min_probability": 0.0},
    "classify": {"model": "DIR/quality.bin", "label": "l1"},
    "perplexity": {"model": "DIR/tiny.arpa"},
    "embed": {"model": "DIR/vectors"},
    "assign_clusters": {"vectors": "vector", "centroids": "DIR/centroids.npz"},
    "decontaminate": {"evaluation_files": ["DIR/quiz.txt"], "ngram": 2},
    "exact_dedup": {},
    "line_dedup": {},
    "substring_dedup": {"length": 32},
    "fuzzy_dedup": {"index": "DIR/old/index"},
    "ngram_dedup": {"ngram": 2},
    "semantic_dedup": {"column": "vector", "centroids": "DIR/centroids.npz"},
    "select": {"column": "score", "drop_lowest": 0.5},
    "mix": {"weights": {"in": 1.0}, "documents": 2},
}
READS = {"filter": "url", "select": "score", "semantic_dedup": "vector", "assign_clusters": "vector"}  # of the examples
# A file of each that has some.
FILES = {
    "classify": "quality.bin",
    "perplexity": "tiny.arpa",
    "assign_clusters": "centroids.npz",
    "decontaminate": "quiz.txt",
    "embed": "vectors/model.safetensors",
    "fuzzy_dedup": "old/index/index.json",
    "semantic_dedup": "centroids.npz",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples read: documents, evaluation texts and the index of an earlier run."""
    folder = tmp_path_factory.mktemp("stages")
    (folder / "in.jsonl").write_bytes(records_of(TEXTS, url="https://a.org", score=0.5, vector=[1, 2]))
    Clusters(np.array([[1, 2]], np.int8), np.zeros((0, 2), np.int8), np.zeros(0, np.int64)).save(
        folder / "centroids.npz"
    )
    (folder / "quiz.txt").write_text("eins zwei\n")
    (folder / "tiny.arpa").write_bytes(TINY)
    write_static(folder / "vectors")
    (folder / "quality.bin").write_bytes(as_bytes(model_of(words=[b"two", b"zwei"])))
    old = {"input": [{"path": str(folder / "in.jsonl")}], "stages": [FUZZY], "output": {"formats": [], "index": True}}
    run(convert_recipe(old), folder / "old", engine="cpu")
    return folder


def settings_of(kind: str, folder: Path) -> dict[str, Any]:
    assert kind in EXAMPLES, f"{kind} has no entry in EXAMPLES of {Path(__file__).name}"
    return json.loads(json.dumps({"kind": kind, **EXAMPLES[kind]}).replace("DIR", str(folder)))


def stage_of(kind: str, folder: Path) -> Stage:
    return convert_stage(settings_of(kind, folder), "$.stages[0]", ())


def recipe_of(kind: str, folder: Path, **entry: Any) -> Recipe:
    entry = {"path": str(folder / "in.jsonl"), "columns": ["url", "score", "vector"]} | entry
    return convert_recipe({"input": [entry], "stages": [settings_of(kind, folder)], "output": {"formats": []}})


def test_every_stage_of_the_package_is_in_the_table():
    paths = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "curation/stages").rglob("[!_]*.py")]
    modules = [import_module(".".join(path.parts)) for path in paths]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    kinds = {kind.__struct_config__.tag for kind in classes if issubclass(kind, RowStage | CorpusStage)}
    named = {kind for kind in kinds if ":" not in kind and kind.islower()}  # without bases, and what tasks alone use
    assert named == {*STAGES}, "curation/stages/__init__.py does not import a class"
    assert {*EXAMPLES} == {*STAGES}


@pytest.mark.parametrize("kind", STAGES)
def test_a_stage_survives_its_way_to_a_worker(kind: str, folder: Path, tmp_path: Path):
    stage = stage_of(kind, folder)
    assert isinstance(stage, RowStage | CorpusStage) and stage.kind == kind
    for each in (stage, stage.prepare(tmp_path)):
        assert stage_from_job(json.loads(json.dumps(stage_for_job(each)))) == each
    assert convert_stage(stage_for_job(stage), "$", ()) == stage


@pytest.mark.parametrize("kind", STAGES)
def test_a_stage_is_documented_and_exported(kind: str):
    assert f"| `{kind}` |" in (ROOT / "docs/pipelines.md").read_text("utf-8"), (
        f"docs/pipelines.md has no line for {kind}"
    )
    assert f"`{kind}`" in (ROOT / "README.md").read_text("utf-8"), f"README.md has no family with {kind}"
    assert {kind, STAGES[kind].__name__} <= {*curation.__all__}, "run `make functions`"
    assert callable(getattr(curation, kind))
    assert "__doc__" in vars(STAGES[kind]) and STAGES[kind].__doc__, f"{STAGES[kind].__name__} has no docstring"


@pytest.mark.parametrize("kind", STAGES)
def test_a_stage_explains_itself_and_its_counts(kind: str, folder: Path, tmp_path: Path):
    recipe = recipe_of(kind, folder)
    [stage] = recipe.stages
    assert "".join(stage.explain()).strip()
    report = run(recipe, tmp_path / "out", engine="cpu").report
    [entry] = report["stages"]
    assert "".join(entry["lines"]).strip() and entry["removes"] == stage.removes
    assert entry["reasons"] or entry["edited"] or stage.writes(), "the example gives the stage nothing to do"
    assert report["stage_files"].get(kind, {}) == stage.files()


@pytest.mark.parametrize("kind", STAGES)
def test_a_docstring_says_whether_a_lazy_frame_is_computed(kind: str, folder: Path):
    computed = []

    @delayed
    def part() -> None:
        computed.append(1)
        raise MemoryError("computed")

    with dask.config.set({"dataframe.convert-string": False}):
        columns = {"text": "a", "source": "in", "url": "u", "score": 1.0, "vector": "[1, 2]"}
        frame = dd.from_delayed([part()], meta=pd.DataFrame(columns, [0]).iloc[:0], verify_meta=False)
        stage, is_said = (
            stage_of(kind, folder),
            "On a Dask frame the call" in " ".join(getattr(curation, kind).__doc__.split()),
        )
        with pytest.raises((MemoryError, curation.StageError), match="computed") if is_said else nullcontext():
            curation.apply(frame, stage)
    assert bool(computed) == is_said


def test_the_tables_name_stages_that_read_something(folder: Path):
    stages = {kind: stage_of(kind, folder) for kind in STAGES}
    assert {kind: stage.reads() for kind, stage in stages.items() if stage.reads()} == {
        kind: (column,) for kind, column in READS.items()
    }
    inside = {kind for kind, stage in stages.items() if any(str(folder) in path for path in stage.files())}
    assert inside == {*FILES}, "FILES names a file of each stage that reads some"


@pytest.mark.parametrize("kind", READS)
def test_a_column_that_no_input_carries_ends_a_run_before_it_reads(kind: str, folder: Path, tmp_path: Path):
    path = tmp_path / "gone.jsonl"
    with pytest.raises(
        RecipeError, match=rf"reads the column '{READS[kind]}', which the input gone \({path}\) does not"
    ):
        run(recipe_of(kind, folder, path=str(path), columns=[]), tmp_path / "out", engine="cpu")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", FILES)
def test_a_changed_file_refuses_a_rerun_by_name(kind: str, folder: Path, tmp_path: Path):
    recipe = recipe_of(kind, folder)
    run(recipe, tmp_path / "out", engine="cpu")
    path = folder / FILES[kind]
    before = path.read_bytes()
    path.write_bytes(before.replace(b'"version"', b'"versiom"') if path.suffix == ".json" else before + b"\n")
    try:
        with pytest.raises(OutputError, match=rf"changed: {path} of stage {kind} \(content\)"):
            run(recipe, tmp_path / "out", engine="cpu")
    finally:
        path.write_bytes(before)
    assert run(recipe, tmp_path / "out", engine="cpu").already_complete


def test_a_column_is_written_before_it_is_read(folder: Path, tmp_path: Path):
    rule = {"kind": "filter", "rules": [{"column": "words", "min": 4}]}
    measure = {"kind": "measure", "names": ["words"]}
    content = {"input": [{"path": str(folder / "in.jsonl")}], "output": {"formats": []}}
    with pytest.raises(RecipeError, match="Put the stage measure, which writes it, before this one"):
        run(convert_recipe(content | {"stages": [rule, measure]}), tmp_path / "out", engine="cpu")
    report = run(convert_recipe(content | {"stages": [measure, rule]}), tmp_path / "out", engine="cpu").report
    assert report["documents"]["removed"] == 1
