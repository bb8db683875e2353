# SPDX-License-Identifier: Apache-2.0
"""What the end of a run says: names as they are, and warnings where little came out."""

import functools
from pathlib import Path
from typing import Any

import pytest

from curation.packing import tokenization
from curation.packing.tokenization import Tokenizer
from curation.running.report import print_funnel
from curation.running.runner import run
from tests.run.runs import recipe_of, records_of, report_of
from tests.run.test_folder import Said

WORDS = "one two three four five six"


def warnings_of(folder: Path, data: bytes, **rest: Any) -> list[str]:
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(data)
    recipe = recipe_of(folder / "a.jsonl", **{"output": {"formats": []}, **rest})
    return run(recipe, folder / "out", engine="cpu").report["warnings"]


@pytest.mark.parametrize("reason", ["too_long[words]", "long [/x]", "[bold]", "back\\"])
def test_names_and_reasons_are_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str], reason: str):
    (tmp_path / "a.jsonl").write_bytes(records_of([WORDS, "one"]))
    rules = [{"measure": "words", "max": 3, "reason": reason}]
    stages = [{"kind": "filter", "name": f"short {reason}", "rules": rules}]
    finished = run(recipe_of(tmp_path / "a.jsonl", stages=stages), tmp_path / "out", engine="cpu")
    print_funnel(finished.report)
    lines = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert f"short {reason}" in lines
    print_funnel(finished.report)
    assert f" {reason} " in capsys.readouterr().out


def test_a_run_that_keeps_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    none = [{"kind": "filter", "rules": [{"measure": "words", "min": 100}]}]
    assert warnings_of(tmp_path / "empty", b"") == ["nothing is kept: the input has no documents"]
    removed = warnings_of(tmp_path / "removed", records_of([WORDS]), stages=none)
    assert removed == ["nothing is kept: every document was removed"]
    assert warnings_of(tmp_path / "rejected", b"no\n") == [
        "1 of 1 records (100%) were rejected; rejected.jsonl says why",
        "nothing is kept: every record was rejected",
    ]
    print_funnel(report_of(tmp_path / "rejected" / "out"))
    assert "warning: nothing is kept: every record was rejected" in capsys.readouterr().out


def test_many_rejected_records_are_a_warning(tmp_path: Path):
    [warning] = warnings_of(tmp_path / "many", records_of([WORDS] * 8) + b"no\n" * 2, stages=[])
    assert warning.startswith("2 of 10 records (20%) were rejected")
    assert warnings_of(tmp_path / "few", records_of([WORDS] * 9) + b"no\n", stages=[]) == []


def test_a_slow_tokenizer_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    slow = functools.cached_property(lambda _: "gigatoken differs")
    slow.__set_name__(Tokenizer, "note")
    monkeypatch.setattr(Tokenizer, "note", slow)
    # A note stays with its tokenizer: none that another test has loaded, and none that is left to the next.
    monkeypatch.setattr(tokenization, "_load", functools.cache(tokenization._load.__wrapped__))
    (tmp_path / "a.jsonl").write_bytes(records_of([WORDS]))
    said = Said()
    report = run(recipe_of(tmp_path / "a.jsonl"), tmp_path / "out", engine="cpu", progress=said).report
    expected = "tokenizer gpt2 goes at a tenth of its speed: gigatoken differs"
    assert report["warnings"] == [expected] and said.lines.count(expected) == 1
