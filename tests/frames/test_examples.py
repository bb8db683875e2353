# SPDX-License-Identifier: Apache-2.0
"""The examples in the docstrings of everything that `curation` exports."""

import doctest
import inspect
import shutil
from pathlib import Path

import pytest

import curation
from curation.tools.synthesis import asking
from tests.menus import FEW, write_ablation
from tests.models.tiny_files import write_static
from tests.runs import records_of
from tests.tools.model import Models

RECIPE = """\
name: example
input: [{path: data/a.jsonl}]
stages:
  - {kind: filter, rules: [{measure: words, min: 2, reason: short}]}
  - {kind: exact_dedup}
output: {formats: []}
"""
PAGES = """\
kind: template
endpoint: http://localhost:8000/v1
model: qwen3-8b
seeds: [whales, tides]
prompt: Write a page about {text}.
"""
TEXTS = ("one", "one two three", "one two three", "four five six")
FUNCTIONS = [name for name in curation.__all__ if inspect.isfunction(getattr(curation, name))]
NEEDS = {
    "plot": ("altair", "Chart"),
    "train_classifier": ("fasttext", "train_supervised"),
    "pagerank": ("networkx", "pagerank"),
    "communities": ("networkx", "pagerank"),
}
CLASSES = ["Measure", "RunResult"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    (folder / "data").mkdir()
    (folder / "data" / "a.jsonl").write_bytes(records_of(TEXTS))
    (folder / "data" / "b.jsonl").write_bytes(records_of(("Seven Eight", "nine")))
    write_static(folder / "vectors")
    write_ablation(folder, FEW, FEW)
    lines = (folder / "crawl.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "clean.jsonl").write_bytes(b"".join(lines[::2]))  # without menus
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "pages.yaml").write_text(PAGES)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(asking, "Endpoint", Models(lambda prompt: f"{prompt} Then they ..."))
        curation.generate("pages.yaml", "pages")
        recipe = curation.load_recipe("recipe.yaml")
        curation.run(recipe, "out", engine="cpu", progress=False)
        stricter = curation.load_recipe("recipe.yaml", settings=["stages.filter.rules=[{words: {max: 1}}]"])
        curation.run(stricter, "stricter", engine="cpu", progress=False)
        edits = curation.convert_recipe(
            {"input": [{"path": "data/b.jsonl"}], "stages": [{"kind": "rewrite", "lowercase": True}],
             "output": {"formats": []}}
        )  # fmt: skip
        curation.run(edits, "edits", engine="cpu", progress=False)
    return folder


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_examples_run(name: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if name in NEEDS and not hasattr(pytest.importorskip(NEEDS[name][0]), NEEDS[name][1]):
        pytest.skip(f"the package {NEEDS[name][0]} that is installed has no {NEEDS[name][1]}: run `make test-models`")
    shutil.copytree(made, tmp_path / "made")
    monkeypatch.chdir(tmp_path / "made")
    found = doctest.DocTestFinder(recurse=name in CLASSES).find(getattr(curation, name), name, globs={})
    examples = [example for test in found for example in test.examples]
    assert len(examples) > 1 and not any(doctest.SKIP in example.options for example in examples)
    assert sum(doctest.DocTestRunner().run(test).failed for test in found) == 0
