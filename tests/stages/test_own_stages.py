# SPDX-License-Identifier: Apache-2.0
"""Stages of somebody's own: `docs/extending.md` and `corpus_stages.md`, block by block, and all that
can be wrong with one."""

import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation.base.errors import OutputError, RecipeError, StageError
from curation.cli import main
from curation.recipes.recipe import Recipe, convert_recipe
from curation.record.context import RunContext
from curation.running.run import run
from curation.stages.invoke import apply_stage
from tests.runs import digests, made_texts, recipe_of, records_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = "\n".join((DOCS / name).read_text("utf-8") for name in ("extending.md", "corpus_stages.md"))
BLOCK = re.compile(r"^```(\w+) ?([\w./]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE)
URLS = ["https://a.org/1", "https://spam.example/2", None, "https://b.org/3", "no url"]
KIND = "mypackage.stages:BlockUrls"
LINES = "mypackage.lines:CutSeenLines"


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the files of the page, its package installed beside it, and nothing of the package imported."""
    for _, name, content in BLOCKS:
        if name:
            path = tmp_path / ("site" if name.startswith("mypackage/") else "work") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, "utf-8")
    (tmp_path / "site" / "mypackage" / "__init__.py").touch()
    work = tmp_path / "work"
    (work / "blocked.txt").write_text("spam.example\nother.example\n")
    records = [{"text": f"document {k}", "url": url} for k, url in enumerate(URLS)]
    (work / "pages.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    monkeypatch.chdir(work)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    path = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), *([path] if path else [])]))
    yield work
    for name in [name for name in sys.modules if name.split(".")[0] == "mypackage"]:
        del sys.modules[name]


def kept_in(folder: Path) -> list[dict[str, Any]]:
    return pq.read_table(folder / "documents").to_pylist()


def test_the_page_works_as_it_says(workplace: Path, capsys: pytest.CaptureFixture[str]):
    [console] = [content for language, _, content in BLOCKS if language == "console"]
    for line in console.splitlines():
        command = line.removeprefix("$ curate ").split()
        assert main(command) == 0, capsys.readouterr().err
        assert "mypackage" in capsys.readouterr().out or command[0] != "plan"
    kept = kept_in(workplace / "out")
    assert [row["url"] for row in kept] == [url for url in URLS if url != "https://spam.example/2"]
    assert [row["domain"] for row in kept] == ["a.org", "", "b.org", ""]
    [removed] = pq.read_table(workplace / "out" / "removed").to_pylist()
    assert (removed["stage"], removed["reason"], removed["value"]) == ("block_urls", "blocked_domain", 1.0)
    [program] = [content for language, name, content in BLOCKS if language == "python" and not name]
    found: dict[str, Any] = {}
    exec(program, found)
    assert found["kept"]["domain"].tolist() == [row["domain"] for row in kept]
    assert (
        found["same"].stages[0]
        == curation.convert_recipe(
            {"stages": [{"kind": KIND, "name": "block_urls", "domains": "blocked.txt"}]}, allow_code=["mypackage"]
        ).stages[0]
    )


def test_every_block_of_the_page_is_run(workplace: Path):
    named = {name for _, name, _ in BLOCKS if name}
    assert named == {"mypackage/checks.py", "mypackage/stages.py", "mypackage/lines.py", "checks.yaml", "recipe.yaml"}
    assert PAGE.count("\n```") == 2 * len(BLOCKS)


@pytest.mark.parametrize(
    "scheduler",
    ["threads", pytest.param("processes", marks=pytest.mark.slow("custom stages also run in processes"))],
)
def test_both_stages_on_threads_and_processes(workplace: Path, scheduler: str):
    recipe = load("recipe.yaml", ["mypackage"])
    run(recipe, "out", engine="cpu", scheduler=scheduler, workers=2, slice_bytes=80)
    assert len(kept_in(workplace / "out")) == 4
    run(lines_recipe(workplace), "lines", engine="cpu", scheduler=scheduler, workers=2, slice_bytes=500)
    assert [row["text"] for row in kept_in(workplace / "lines")] == expected_without_lines()


@pytest.mark.parametrize(
    "scheduler",
    ["threads", pytest.param("processes", marks=pytest.mark.slow("custom functions also run in processes"))],
)
def test_functions_of_the_page_are_stages(workplace: Path, scheduler: str):
    texts = ["a\tlong text", "abc", "five5", "\t.", "äöüäöü"]
    records = [{"text": text, "url": url} for text, url in zip(texts, URLS, strict=True)]
    (workplace / "pages.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(RecipeError, match="is imported only if you allow it: --allow-code mypackage"):
        load("checks.yaml", [])
    recipe = load("checks.yaml", ["mypackage"])
    report = run(recipe, "out", engine="cpu", scheduler=scheduler, workers=2, slice_bytes=80).report
    found = [(row["text"], row["url_length"]) for row in kept_in(workplace / "out")]
    assert found == [("a long text", 15), ("five5", None), ("äöüäöü", 6)]
    assert [row["reason"] for row in pq.read_table("out/removed").to_pylist()] == ["long_enough"] * 2
    assert [stage["edited"] for stage in report["stages"]] == [2, 0, 0]
    path = workplace.parent / "site" / "mypackage" / "checks.py"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert report["stage_files"]["long_enough"] == {"module mypackage.checks": digest}
    frame = pd.DataFrame({"text": texts, "url": URLS})
    for stage in recipe.stages:
        assert pickle.loads(pickle.dumps(stage)) == stage
        frame = curation.apply(frame, stage)
    assert frame["text"].tolist() == [text for text, _ in found]
    assert type(recipe.stages[1]).function(pa.array(["abc"]), min_characters=3).to_pylist() == [True]
    path.write_text(path.read_text() + "\n# another line\n")
    with pytest.raises(OutputError, match=r"changed: .*module mypackage.checks of stage long_enough \(content\)"):
        run(load("checks.yaml", ["mypackage"]), "out", engine="cpu")


def load(name: str, allow_code: list[str]) -> Recipe:
    return curation.load_recipe(name, allow_code=allow_code)


# Spans


def line_texts() -> list[str]:
    """Texts of which later ones share lines with earlier ones, some of several bytes per character."""
    shared = ["A line that comes again and again.", "Eine Zeile mit Umlauten: äöü äöü äöü", "漢字" * 10, "short"]
    return ["\n".join([f"The first line of text number {k}.", *shared[: k % 5], made]) for k, made in enumerate(
        made_texts(40)
    )]  # fmt: skip


def expected_without_lines() -> list[str]:
    """`CutSeenLines` over the texts, in plain Python."""
    seen: dict[bytes, int] = {}
    found = []
    for number, text in enumerate(line_texts()):
        lines = text.encode().splitlines(keepends=True)
        old = [seen.setdefault(line.strip(), number) != number and len(line) >= 20 for line in lines]
        found.append(b"".join(line for line, gone in zip(lines, old, strict=True) if not gone).decode())
    return found


def lines_recipe(workplace: Path, *after: dict[str, Any]) -> Recipe:
    (workplace / "lines.jsonl").write_bytes(records_of(line_texts()))
    content = {"input": [{"path": "lines.jsonl"}], "stages": [{"kind": LINES}, *after], "output": {"formats": []}}
    return convert_recipe(content, allow_code=["mypackage"])


def test_spans_are_cut_and_counted(workplace: Path):
    report = run(lines_recipe(workplace), "out", engine="cpu", slice_bytes=700).report
    texts = [row["text"] for row in kept_in(workplace / "out")]
    assert texts == expected_without_lines()
    [stage] = report["stages"]
    edited = sum(one != other for one, other in zip(line_texts(), texts, strict=True))
    assert stage["edited"] == report["documents"]["edited"] == edited > 10
    assert stage["bytes_in"] == sum(len(text.encode()) for text in line_texts())
    assert stage["bytes_out"] == report["bytes"]["kept"] == sum(len(text.encode()) for text in texts)
    assert curation.verify("out") == []


@pytest.mark.slow("stages after a custom cut see the shorter texts")
def test_later_stages_see_the_texts_without_the_spans(workplace: Path):
    bound = {"kind": "filter", "rules": [{"measure": "lines", "min": 3}]}
    stages = [{"kind": "exact_dedup"}, bound, {"kind": "exact_dedup"}]
    run(lines_recipe(workplace, *stages), "out", engine="cpu", slice_bytes=700)
    expected = list(dict.fromkeys(expected_without_lines()))
    assert [row["text"] for row in kept_in(workplace / "out")] == [t for t in expected if len(t.splitlines()) >= 3]


def test_a_finished_phase_is_not_run_again(workplace: Path, monkeypatch: pytest.MonkeyPatch):
    recipe = lines_recipe(workplace)
    kind = type(recipe.stages[0])
    run(recipe, "whole", engine="cpu")
    calls: list[str] = []
    find, decide = kind.find_lines, kind.decide  # type: ignore[attr-defined]

    def count(stage: Any, *arguments: Any) -> None:
        calls.append("find")
        find(stage, *arguments)

    def stop(stage: Any, *arguments: Any) -> Any:
        calls.append("decide")
        if calls.count("decide") == 1:
            raise KeyboardInterrupt
        return decide(stage, *arguments)

    monkeypatch.setattr(kind, "find_lines", count)
    monkeypatch.setattr(kind, "decide", stop)
    with pytest.raises(KeyboardInterrupt):
        run(recipe, "out", engine="cpu")
    run(recipe, "out", engine="cpu")
    assert calls == ["find", "decide", "decide"]
    assert digests(workplace / "out") == digests(workplace / "whole")


# Code that is imported only where it may be


def recipe_with(kind: str, **settings: Any) -> dict[str, Any]:
    stage = {"kind": kind, "domains": "blocked.txt"} | settings
    return {"input": [{"path": "pages.jsonl", "columns": ["url"]}], "stages": [stage], "output": {"formats": []}}


NOT_LOADED = {
    "not allowed": (KIND, [], "is imported only if you allow it: --allow-code mypackage, or allow_code="),
    "another module": (KIND, ["mypackage_two"], "imported only if you allow it"),
    "part of a name": (KIND, ["mypack"], "imported only if you allow it"),
    "a path": (KIND, ["./mypackage"], "allow_code takes the names of modules, such as mypackage, not './mypackage'"),
    "not installed": ("nopackage.stages:A", ["nopackage"], "no module named 'nopackage' is installed here"),
    "no module": ("mypackage.none:A", ["mypackage"], "importing mypackage.none fails with ModuleNotFoundError"),
    "no class": ("mypackage.stages:Nothing", ["mypackage"], "mypackage.stages has no class Nothing that is a RowStage"),
    "no stage": ("mypackage.stages:Path", ["mypackage"], "has no class Path that is a RowStage or a CorpusStage"),
    "another tag": ("mypackage.tagged:Other", ["mypackage"], "write class Other(..., tag='mypackage.tagged:Other')"),
    "a function": (
        "mypackage.tagged:plain",
        ["mypackage"],
        "RowStage or a CorpusStage; write @curation.stage before def",
    ),
    "elsewhere": ("mypackage.tagged:long_enough", ["mypackage"], "write kind: mypackage.checks:long_enough"),
    "a broken function": (
        "mypackage.wrong:f",
        ["mypackage"],
        "fails with RecipeError: f: the first parameter is missing",
    ),
    "broken module": ("mypackage.broken:A", ["mypackage"], "importing mypackage.broken fails with ZeroDivisionError"),
    "this package": (
        "curation.stages.exact.decontaminate:LookUp",
        ["curation"],
        "Invalid value 'curation.stages.exact.decontam",
    ),
    "no module named": (":A", ["mypackage"], "imported only if you allow it"),
}


@pytest.mark.parametrize("case", NOT_LOADED)
def test_code_that_is_not_loaded(case: str, workplace: Path):
    package = workplace.parent / "site" / "mypackage"
    (package / "tagged.py").write_text(
        "import curation\nfrom mypackage.checks import long_enough\n"
        "class Other(curation.RowStage, tag='other'): pass\ndef plain(texts): return texts\n"
    )
    (package / "wrong.py").write_text("import curation\n@curation.stage\ndef f(): pass\n")
    (package / "broken.py").write_text("1 / 0\n")
    kind, allowed, told = NOT_LOADED[case]
    with pytest.raises(RecipeError) as error:
        convert_recipe(recipe_with(kind), allow_code=allowed)
    assert told in str(error.value) and "\n" not in str(error.value)
    if case in ("not allowed", "another module", "part of a name", "a path"):
        assert not [name for name in sys.modules if name.startswith("mypackage")]


def test_the_working_directory_is_no_place_for_code(workplace: Path):
    (workplace / "here.py").write_text("open('imported', 'w').close()\n")
    (workplace / "r.yaml").write_text("stages: [{kind: 'here:Stage'}]\n")
    command = [sys.executable, "-m", "curation", "plan", "r.yaml", "--input", "pages.jsonl", "--allow-code", "here"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 2 and "no module named 'here' is installed here" in finished.stderr
    assert not (workplace / "imported").exists()


def test_no_code_is_read_from_the_folder_of_a_run(workplace: Path):
    assert main(["run", "recipe.yaml", "-o", "out", "--allow-code", "mypackage"]) == 0
    for name in [name for name in sys.modules if name.startswith("mypackage")]:
        del sys.modules[name]
    script = "import sys; from curation.cli import main; code = main(['verify', 'out']); print(sorted(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "mypackage" not in finished.stdout and "all unchanged" in finished.stdout
    assert main(["run", "recipe.yaml", "-o", "out"]) == 2  # a rerun needs the permission again


def test_changed_code_is_another_run(workplace: Path):
    run(load("recipe.yaml", ["mypackage"]), "out", engine="cpu")
    path = workplace.parent / "site" / "mypackage" / "stages.py"
    content = json.loads((workplace / "out" / "report.json").read_bytes())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert content["stage_files"]["block_urls"]["module mypackage.stages"] == digest
    path.write_text(path.read_text() + "\n# another line\n")
    with pytest.raises(OutputError, match=r"changed: module mypackage.stages of stage block_urls \(content\)"):
        run(load("recipe.yaml", ["mypackage"]), "out", engine="cpu")
    (workplace / "blocked.txt").write_text("a.org\n")
    with pytest.raises(OutputError, match=r"changed: blocked.txt of stage block_urls \(content\), module"):
        run(load("recipe.yaml", ["mypackage"]), "out", engine="cpu")


WRONG_SETTINGS = {
    "unknown key": ({"colum": "url"}, "Object contains unknown field `colum` - at `$.stages[0]`"),
    "wrong type": ({"column": 3}, "Expected `str`, got `int` - at `$.stages[0].column`"),
    "missing file": ({"domains": "gone.txt"}, "cannot open gone.txt: no such file or folder"),
    "column": ({"column": "link"}, "reads the column 'link', which the input pages (pages.jsonl) does not carry"),
    "misspelt column": ({"column": "urls"}, "does not carry; did you mean url?"),
}


@pytest.mark.parametrize("case", WRONG_SETTINGS)
def test_wrong_settings_end_in_one_message(case: str, workplace: Path):
    settings, told = WRONG_SETTINGS[case]
    with pytest.raises(ValueError) as error:  # noqa: PT011  RecipeError, InputError
        run(convert_recipe(recipe_with(KIND, **settings), allow_code=["mypackage"]), "out", engine="cpu")
    assert told in str(error.value) and "\n" not in str(error.value)
    assert not (workplace / "out").exists()


# What a stage may not return


class Wrong(curation.RowStage, frozen=True, kw_only=True, tag="tests.stages.test_own_stages:Wrong"):
    """Returns what a test tells it to."""

    case: str

    def writes(self) -> dict[str, str]:
        return {"extra": "int64"} if "column" in self.case else {}

    def apply(self, engine: Any, frame: Any) -> Any:
        return RETURNED[self.case](len(frame))


RETURNED = {
    "nothing": lambda rows: None,
    "a frame": lambda rows: pd.DataFrame({"text": ["a"] * rows}),
    "no column": lambda rows: curation.Outcome(),
    "a short column": lambda rows: curation.Outcome(columns={"extra": np.zeros(rows - 1)}),
    "a column of text": lambda rows: curation.Outcome(columns={"extra": pa.array(["x"] * rows)}),
    "an extra": lambda rows: curation.Outcome(columns={"more": np.zeros(rows)}),
    "a short verdict": lambda rows: curation.Outcome(curation.Verdict.dropping(np.zeros(1, bool), "no")),
    "text alone": lambda rows: curation.Outcome(text=pa.array(["x"] * rows)),
    "short text": lambda rows: curation.Outcome(text=pa.array(["x"]), edited=np.ones(rows, bool)),
}
TOLD = {
    "nothing": "must return an Outcome, not NoneType",
    "a frame": "must return an Outcome, not DataFrame",
    "no column": r"returned the columns \[\], but writes\(\) has \['extra'\]",
    "a short column": "returned 2 values in extra for 3 rows",
    "a column of text": "column extra cannot be int64",
    "an extra": r"returned the columns \['more'\], but writes\(\) has \[\]",
    "a short verdict": "returned 1 values in verdict for 3 rows",
    "text alone": "must return text and edited together",
    "short text": "returned 1 values in text for 3 rows",
}


@pytest.mark.parametrize("case", RETURNED)
def test_an_outcome_that_is_not_what_was_announced(case: str, tmp_path: Path):
    engine = curation.base.engine.load_engine("cpu")
    frame = engine.from_arrow(pa.table({"text": pa.array(["a", "b", "c"], pa.large_string())}))
    with pytest.raises(StageError, match=f"the stage tests.stages.test_own_stages:Wrong .*{TOLD[case]}"):
        apply_stage(engine, frame, Wrong(case=case))
    (tmp_path / "in.jsonl").write_bytes(records_of(["a", "b", "c"]))
    recipe = Recipe(input=[curation.Input(path=str(tmp_path / "in.jsonl"))], stages=[Wrong(case=case)])
    with pytest.raises(StageError, match=TOLD[case]):
        run(recipe, tmp_path / "out", engine="cpu")


# What stages are in tasks


class Strict(curation.Filter, frozen=True, kw_only=True):
    """A filter with another `apply`, under the kind of its parent."""

    def apply(self, engine: Any, frame: Any) -> Any:
        return curation.Outcome(curation.Verdict.dropping(np.ones(len(frame), bool), "strict"))


class Untagged(curation.RowStage, frozen=True, kw_only=True):
    """A stage without a kind of its own."""


class Limited(curation.RowStage, frozen=True, kw_only=True, tag="tests.stages.test_own_stages:Limited"):
    """Removes texts longer than `limit`, None for no limit."""

    limit: float | None = 20

    def apply(self, engine: Any, frame: Any) -> Any:
        lengths = engine.byte_lengths(frame["text"])
        return curation.Outcome(curation.Verdict.dropping(lengths > (self.limit or 10**9), "long"))


class Prepared(curation.RowStage, frozen=True, kw_only=True, tag="tests.stages.test_own_stages:Prepared"):
    """Removes texts with a word that it has written to a file."""

    word: str
    table: str = ""

    def prepare(self, folder: Path) -> Any:
        path = folder / "table.json"
        path.write_text(json.dumps(self.word))
        return msgspec.structs.replace(self, table=str(path))

    def apply(self, engine: Any, frame: Any) -> Any:
        word = json.loads(Path(self.table).read_text())
        texts = engine.to_arrow(frame[["text"]]).column(0).to_pylist()
        return curation.Outcome(curation.Verdict.dropping(np.array([word in text for text in texts], bool), "word"))


class Phases(curation.CorpusStage, frozen=True, kw_only=True, tag="tests.stages.test_own_stages:Phases"):
    """Has the phases that a test names."""

    names: list[str]

    def keys(self, engine: Any, frame: Any) -> Any:
        return {}

    def phases(self) -> Any:
        return [curation.Phase(name, lambda corpus: 1, self.leave) for name in self.names]

    def leave(self, engine: Any, corpus: Any, task: int) -> None:
        inner = next(path for path in sorted(corpus.scratch.iterdir()) if not any(path.iterdir())) / "inner"
        inner.mkdir()
        (inner / "file").touch()

    def decide(self, engine: Any, corpus: Any) -> Any:
        return curation.Decision(details={"phases": len(list(corpus.scratch.glob("*/inner/file")))})


def made_recipe(tmp_path: Path, *stages: Any) -> Recipe:
    (tmp_path / "in.jsonl").write_bytes(records_of(made_texts(30)))
    output = curation.Output(formats=())
    source = curation.Input(path=str(tmp_path / "in.jsonl"), keep_blank=True)
    return Recipe(input=[source], stages=list(stages), output=output)


@pytest.mark.parametrize("stage", [Strict(rules="nemo"), Untagged()], ids=["of the parent's kind", "without one"])
def test_a_class_that_a_task_would_not_find_is_refused(stage: Any, tmp_path: Path):
    with pytest.raises(RecipeError, match=rf"write tag='tests.stages.test_own_stages:{type(stage).__name__}'"):
        run(made_recipe(tmp_path, stage), tmp_path / "out", engine="cpu")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow("settings of custom stages reach their tasks unchanged")
def test_settings_reach_tasks_as_they_are(tmp_path: Path):
    limits = [10**6, None, 150.5, 20]
    stages = [Limited(limit=limit, name=f"limit_{number}") for number, limit in enumerate(limits)]
    report = run(
        made_recipe(tmp_path, *stages), tmp_path / "out", engine="cpu", scheduler="processes", workers=1
    ).report
    frame = pd.DataFrame({"text": made_texts(30)})
    for stage, counted in zip(stages, report["stages"], strict=True):
        frame = curation.apply(frame, stage)
        assert counted["documents_out"] == len(frame)
    assert [row["text"] for row in kept_in(tmp_path / "out")] == frame["text"].tolist()
    assert 0 < len(frame) < report["stages"][2]["documents_out"] < 30


@pytest.mark.parametrize("limit", [float("inf"), float("nan")])
def test_settings_that_json_cannot_hold_are_refused(limit: float, tmp_path: Path):
    with pytest.raises(RecipeError, match="its settings change when they are sent to a task"):
        run(made_recipe(tmp_path, Limited(limit=limit)), tmp_path / "out", engine="cpu")


def test_what_stages_prepare_is_kept_apart(tmp_path: Path):
    stages = [Prepared(word=word, name=f"no_{word}") for word in ("the", "of")]
    run(made_recipe(tmp_path, *stages), tmp_path / "out", engine="cpu")
    assert [row["text"] for row in kept_in(tmp_path / "out")] == [
        text for text in made_texts(30) if "the" not in text and "of" not in text
    ]


@pytest.mark.parametrize("names", [["a", "a"], ["../x"], [""], ["a b"]], ids=str)
def test_phases_need_names_of_their_own(names: list[str], tmp_path: Path):
    with pytest.raises(StageError, match="phases must have different names"):
        run(made_recipe(tmp_path, Phases(names=names)), tmp_path / "out", engine="cpu")


def test_phases_may_leave_folders(tmp_path: Path):
    report = run(made_recipe(tmp_path, Phases(names=["a", "b"])), tmp_path / "out", engine="cpu").report
    assert report["stages"][0]["details"] == {"phases": 2}


def test_a_kill_while_what_phases_left_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recipe = made_recipe(tmp_path, curation.FuzzyDedup())
    run(recipe, tmp_path / "whole", engine="cpu")

    def stop(context: RunContext, stage: int, folder: Path) -> None:
        assert folder.name == "stage-0"
        (folder / "groups" / "groups-000000.bin").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("curation.running.phases.corpus_phase.delete_scratch", stop)
        with pytest.raises(KeyboardInterrupt):
            run(recipe, tmp_path / "out", engine="cpu")
    run(recipe, tmp_path / "out", engine="cpu")
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


@pytest.mark.parametrize(
    ("kind", "told"), [("[a]", "Expected `str`, got `array`"), ("{a: 1}", "got `object`"), ("3", "got `int`")]
)
def test_kinds_that_are_none(kind: str, told: str):
    with pytest.raises(RecipeError, match=rf"{told} - at `\$.stages\[0\].kind`"):
        curation.parse_recipe(f"stages: [{{kind: {kind}}}]")


def test_what_is_no_stage_is_no_part_of_a_recipe():
    with pytest.raises(ValueError, match=r"stages takes stages, such as curation.ExactDedup\(\), not 'exact_dedup'"):
        Recipe(stages=["exact_dedup"])


def test_a_class_of_a_notebook_is_for_frames_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Wrong, "__module__", "__main__")
    recipe = recipe_of(tmp_path / "in.jsonl", stages=[Wrong(case="nothing")])
    with pytest.raises(RecipeError, match="which names another class"):
        run(recipe, tmp_path / "out", engine="cpu")
