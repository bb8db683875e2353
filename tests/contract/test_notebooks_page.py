# SPDX-License-Identifier: Apache-2.0
"""`docs/notebooks.md` names everything that `curation` exports, and shows the messages of mistakes."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import curation
from curation.base.errors import CurationError
from curation.results.finished.run_result import RunResult
from tests.needs import needs
from tests.runs import recipe_of, records_of

PAGE = (Path(__file__).parents[2] / "docs" / "notebooks.md").read_text("utf-8")
WORDS = curation.Rule(measure="words", min=1)
WRONG: dict[str, Callable[[], Any]] = {
    "the folder holds no run": lambda: curation.open_run("empty"),
    "the run has not finished": lambda: curation.open_run("half"),
    "the run kept no measures": lambda: curation.open_run("out")._replace(folder=Path("out")).measures(),
    "the frame has no text": lambda: curation.explain(pd.DataFrame({"id": ["a"]}), "gopher"),
    "a list, a text or a path in place of a frame": lambda: curation.measure(["a"]),
    "something else in place of a recipe": lambda: curation.run([1], "new"),
    "a frame in place of a recipe, and an input": lambda: curation.run(pd.DataFrame({"text": ["a"]}), "new", input="a"),
    "two columns of one name in a run's frame": lambda: curation.run(
        "default", "new", input=pd.DataFrame([["a", "b"]], columns=["text", "text"])
    ),
    "Python objects in a run's frame": lambda: curation.run(
        "default", "new", input=pd.DataFrame({"text": ["a"], "made": [{1: 2}]})
    ),
    "a number among the texts": lambda: curation.measure(pd.DataFrame({"text": ["a", 3]})),
    '`{"words": {"minimum": 50}}`': lambda: curation.filter(pd.DataFrame({"text": ["a"]}), {"words": {"minimum": 50}}),
    "a rule names an unknown measure": lambda: curation.filter(
        pd.DataFrame({"text": ["a"]}), {"measure": "wordz", "min": 1}
    ),
    '`{"wordz": {"min": 3}}`, a rule on a column': lambda: curation.filter(
        pd.DataFrame({"text": ["a"]}), {"wordz": {"min": 3}}
    ),
    "the measures lack one that a rule needs": lambda: curation.plot({"wordz": [1]}, [WORDS]),
    "Altair is missing": lambda: curation.plot({"words": [1]}, [WORDS]),
}


def test_the_page_names_everything_that_is_exported():
    code = " ".join(re.findall(r"`([^`\n]+)`", PAGE))
    names = {name for name in curation.__all__ if not name.startswith("__")}
    assert {name for name in names if not re.search(rf"\b{name}\b", code)} == set()
    methods = {name for name in vars(RunResult) if not name.startswith("_")} - {"already_complete", "folder"}
    assert {name for name in methods - {"nothing_kept", "count", "index"} if f".{name}" not in code} == set()


@pytest.mark.parametrize("mistake", WRONG)
def test_the_page_has_the_message_of_a_mistake(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "half" / "_work").mkdir(parents=True)
    (tmp_path / "half" / "_work" / "plan.json").write_text("{}")
    (tmp_path / "a.jsonl").write_bytes(records_of(["a"]))
    curation.run(recipe_of("a.jsonl", stages=[], output={"formats": []}), "out", engine="cpu", progress=False)
    [(kind, message)] = re.findall(rf"^\| {re.escape(mistake)} \| `(\w+)` \| `(.+)` \|$", PAGE, re.M)
    if kind == "ImportError":
        monkeypatch.setitem(sys.modules, "altair", None)
        message = message.replace("No module named 'altair'", "import of altair halted; None in sys.modules")
    else:
        needs("altair")
    with pytest.raises((CurationError, ImportError, TypeError)) as error:
        WRONG[mistake]()
    assert type(error.value).__name__ == kind and str(error.value).replace("`", "") == message
    assert not Path("new").exists()


def test_the_page_has_no_other_mistakes():
    assert re.findall(r"^\| (.+?) \| `\w*Error` \| ", PAGE, re.M) == [*WRONG]
