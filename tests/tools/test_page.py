# SPDX-License-Identifier: Apache-2.0
"""docs/synthetic_documents.md: its tasks and commands, with a function as the model, and its messages."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import curation
from curation.cli import main
from tests.runs import records_of
from tests.tools.model import MESSAGES, PAGE, documents_in

FILES = dict(re.findall(r"^```yaml (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = [
    shlex.split(line.replace("*.jsonl", "a.jsonl")) for line in re.findall(r"^\$ curate (.*)$", PAGE, re.MULTILINE)
]
OF_THE_ENDPOINT = {  # messages, in test_connection.py
    "no key", "key with a line end inside", "key in the text of a task", "wrong key", "silent server", "redirect",
    "proxy of another kind", "no certificates", "too many requests at once",
}  # fmt: skip
RUN = {"generate": 4, "run": 1, "train": 1}


@pytest.fixture
def here(use: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "a.jsonl").write_bytes(records_of(["how tides work", "buy now", "cheap watches"]))
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)

    def model(prompt: str) -> str:
        if "Educational score" in prompt:
            return f"It explains.\nEducational score: {4 if 'tides' in prompt else 0}"
        return f"An answer to {prompt}"

    use(model)
    return tmp_path


def test_commands_run(here: Path):
    assert {name: sum(words[0] == name for words in COMMANDS) for name in RUN} == RUN
    for words in COMMANDS:
        if words[0] == "run" or (words[0] == "generate" and words[1] != "instructions.yaml"):  # which needs rapidfuzz
            assert main([*words, "--quiet"]) == 0
    assert [entry["seed_id"] for entry in documents_in(here / "pages")] == ["seed/0", "seed/1"] * 2
    assert (
        len(documents_in(here / "rewritten")) == 3 and "how tides work" in documents_in(here / "rewritten")[0]["text"]
    )
    assert curation.open_run("labels").kept()["text"].tolist() == ["how tides work"]
    assert len(list(here.glob("labels/removed/*.parquet"))) == 1


def test_messages(here: Path):
    told = dict(MESSAGES)
    changes = {
        "no seeds and no input": ["seeds=[]"], "unknown placeholder": ["prompt='about {topics}'"],
        "small budget": ["budget_tokens=100"], "folder of another task": ["prompt=x"],
        "fragment in the URL": ["endpoint='http://h/v1#x'"], "wrong host or port": ["endpoint=http://h:x/v1"],
    }  # fmt: skip
    curation.generate("pages.yaml", "pages")
    for mistake, settings in changes.items():
        with pytest.raises(curation.CurationError) as raised:
            curation.generate("pages.yaml", "pages" if settings == ["prompt=x"] else "new", settings=settings)
        assert str(raised.value).replace("`", "") == told.pop(mistake)
    assert {*told} == OF_THE_ENDPOINT


def test_every_key_of_the_report_is_on_the_page(here: Path):
    curation.generate("pages.yaml", "pages")
    report = json.loads((here / "pages" / "report.json").read_text("utf-8"))
    names = {*report["requests"], *report["tokens"], *report["items"], *report} - {"kind", "model", "task", "endpoint"}
    section = PAGE.partition("## Report")[2].partition("## Errors")[0]
    assert [name for name in names if not re.search(rf"\b{name}", section)] == []
    assert [name for name in ("missing", "similar", "surplus") if f"`{name}`" not in section] == []


def test_every_setting_is_on_the_page():
    from curation.tools.synthesis.task import KINDS

    section = PAGE.partition("## Settings")[2].partition("## Report")[0]
    names = {name for kind in KINDS.values() for name in kind.__struct_fields__}
    assert [name for name in sorted(names) if f"`{name}`" not in section] == []
