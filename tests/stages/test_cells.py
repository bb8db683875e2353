# SPDX-License-Identifier: Apache-2.0
"""Stages of the cells of a notebook: the identity of a run has their source, and only own processes get their code."""

import linecache
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

import curation
from curation.base.errors import RecipeError
from curation.stages import cells
from curation.stages.own_code import convert_stage, files_of

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text("utf-8")
FRAME = pd.DataFrame({"text": ["one", "two words"] * 40})
CELL = """
import curation
MARK = ["!"]
def marked(texts): return [text + MARK[0] for text in texts]
@curation.stage
def loud(texts, *, times: int = 1) -> str:
    return marked(texts.to_pylist())
"""
Cell = Callable[[str], Any]


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """A function that runs a cell in a new `__main__`, and returns what this has of the name `loud`."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)

    def run(text: str) -> Any:
        name = f"<cell {len(linecache.cache)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        exec(compile(text, name, "exec"), vars(main))
        return main.__dict__.get("loud")

    return run


def test_the_identity_follows_the_source_and_what_it_uses(cell: Cell):
    digests = [files_of(cell(CELL)())]
    assert [*digests[0]] == ["cell loud", "function marked", "global MARK"]
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests[0].values())
    cell("OTHER = 1")
    assert files_of(cell("")()) == files_of(cell(CELL)()) == digests[0]
    for change in ('MARK = ["?"]', "def marked(texts): return texts"):
        digests.append(files_of(cell(change)()))
    digests.append(files_of(cell(CELL.replace("times", "often"))()))
    assert all(digests.count(each) == 1 for each in digests) and len(digests) == 4


def test_a_run_has_no_code_in_its_folder(cell: Cell, tmp_path: Path):
    recipe = {"stages": [cell(CELL)()], "output": {"formats": [], "keep_work": True}}
    run = curation.run(recipe, tmp_path / "out", input=FRAME, engine="cpu", progress=False)
    assert run.kept()["text"].tolist() == ["one!", "two words!"] * 40
    assert [*run.report["stage_files"]["__main__:loud"]] == ["cell loud", "function marked", "global MARK"]
    files = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert not [path for path, data in files.items() if b"to_pylist" in data or b"cloudpickle" in data]
    cell('MARK = ["?"]')
    with pytest.raises(curation.OutputError, match=r"changed: global MARK of stage __main__:loud \(content\)"):
        curation.run({**recipe, "stages": [cell("")()]}, tmp_path / "out", input=FRAME, progress=False)


def test_a_cell_that_is_mended_runs_into_the_same_folder(cell: Cell, tmp_path: Path):
    """A run whose first task failed has nothing to lose; one with a finished task is refused."""
    recipe: dict[str, Any] = {"output": {"formats": []}}
    wrong = CELL.replace("marked(texts.to_pylist())", "marked(texts.to_list_of_python())")

    def run(*stages: Any) -> list[str]:
        given = recipe | {"stages": [*stages]}
        finished = curation.run(given, tmp_path / "out", input=FRAME, engine="cpu", progress=False)
        return [*finished.report["recipe"]["stages"][0]]

    with pytest.raises(curation.StageError, match="to_list_of_python"):
        run(cell(wrong)())
    person = tmp_path / "out" / "_work" / "notes.txt"
    person.write_text("of a person")
    with pytest.raises(curation.OutputError, match=r"changed: stages\[0\], cell loud .* \(gone\)"):
        run("exact_dedup")
    assert person.read_text() == "of a person"
    person.unlink()
    run(cell(CELL)())
    with pytest.raises(curation.OutputError, match=r"changed: stages\[0\].times"):
        run(cell("")(times=2))


def test_finished_tasks_of_another_recipe_are_kept(cell: Cell, tmp_path: Path):
    recipe = {"stages": ["exact_dedup", cell(CELL.replace("texts.to_pylist()", "1"))()], "output": {"formats": []}}
    with pytest.raises(curation.StageError):
        curation.run(recipe, tmp_path / "out", input=FRAME, engine="cpu", progress=False)
    before = {path for path in (tmp_path / "out").rglob("*") if path.suffix != ".running"}
    with pytest.raises(curation.OutputError, match="changed: cell loud of stage"):
        curation.run(recipe | {"stages": ["exact_dedup", cell(CELL)()]}, tmp_path / "out", input=FRAME, engine="cpu")
    assert before == {path for path in (tmp_path / "out").rglob("*") if path.suffix != ".running"}


def test_a_value_that_a_stage_changes_is_named(cell: Cell, tmp_path: Path):
    stage = cell(CELL.replace("return [text", "MARK.append('?'); return [text"))
    told = r"changed during the run: global MARK of stage __main__:loud \(content\)\. .* make the value inside"
    with pytest.raises(curation.IntegrityError, match=told):
        curation.run(
            {"stages": [stage()], "output": {"formats": []}}, tmp_path / "out", input=[FRAME, FRAME[:50]], engine="cpu",
            progress=False, workers=1, slice_bytes=100,
        )  # fmt: skip


def refused(cell: Cell) -> dict[str, Callable[[], Any]]:
    """What the page says -> the call that ends so."""
    stage = cell(CELL)()
    recipe = {"stages": [stage], "output": {"formats": []}}
    old = cell(CELL.replace("MARK[0]", "'?'")) and stage
    locked = cell("import threading\nlock = threading.Lock()\n" + CELL.replace("MARK[0]", "str(lock)"))
    options: dict[str, Any] = {"input": FRAME, "progress": False}
    return {
        "a run on a cluster": lambda: curation.run(recipe, "out", scheduler="tcp://127.0.0.1:9", **options),
        "a run in an array": lambda: curation.run(recipe, "out", array_task="1/2", **options),
        "the cell has run again since": lambda: curation.run({**recipe, "stages": [old]}, "out", **options),
        "another process": lambda: convert_stage({"kind": "__main__:loud"}, "$", ()),
        "a function that cannot be sent": lambda: cells.sender([locked()])(),
    }


def test_refusals_are_those_of_the_page(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for mistake, call in refused(cell).items():
        [message] = re.findall(rf"^\| {mistake} \| `(.+)` \|$", PAGE, re.MULTILINE)
        with pytest.raises(RecipeError) as error:
            call()
        assert str(error.value) == message.replace("CURE", cells.CURE), mistake
    assert f"CURE is: `{cells.CURE}`" in PAGE


@pytest.mark.slow("a stage of a notebook's cell runs in threads and in processes of this notebook")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::DeprecationWarning")
def test_a_notebook_runs_its_stages_in_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    nbformat, nbclient = (pytest.importorskip(name) for name in ("nbformat", "nbclient"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    runs = """
import pandas as pd
frame = pd.DataFrame({"text": [f"text {number}" for number in range(500)]})
recipe = {"stages": [loud()], "output": {"formats": []}}
found = [
    curation.run(recipe, way, input=frame, scheduler=way, workers=2, slice_bytes=2000, progress=False)
    for way in ("threads", "processes")
]
assert found[0].kept().equals(found[1].kept()) and found[1].kept()["text"][7] == "text 7!"
assert found[0].report["stage_files"] == found[1].report["stage_files"]
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in (CELL, runs)])
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
