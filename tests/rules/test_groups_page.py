# SPDX-License-Identifier: Apache-2.0
"""The rules per language of `docs/rules_per_language.md`: the page's recipe, commands and Python run with documents."""

import json
import re
from pathlib import Path

import pytest

from curation.cli import main
from tests.runs import kept_rows, removed_rows

PAGE = Path(__file__).parents[2] / "docs" / "rules_per_language.md"
SECTION = re.search(r"^# Rules per language\n(.*?)^## ", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
ENGLISH = "the and " + " ".join(f"word{number}" for number in range(60))
DOCUMENTS = [
    ("deu_Latn", " ".join(map(str, range(40)))),
    ("nld_Latn", "\n".join(map(str, range(60)))),
    ("eng_Latn", ENGLISH),
    ("x", ENGLISH),
]


def blocks(language: str) -> list[str]:
    assert SECTION
    return re.findall(rf"^```{language}[^\n]*\n(.*?)^```$", SECTION[1], re.DOTALL | re.MULTILINE)


def test_the_rules_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    rows = [{"id": language, "language": language, "text": text} for language, text in DOCUMENTS]
    Path("languages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("languages.yaml").write_text(blocks("yaml")[0])
    for command in blocks("console")[0].splitlines():
        assert main(command.removeprefix("$ curate ").split()) == 0
    assert [row[1] for row in kept_rows(tmp_path / "by_language")] == ["eng_Latn"]
    assert [(row[1], row[4]) for row in removed_rows(tmp_path / "by_language")] == [
        ("deu_Latn", "words"), ("nld_Latn", "newlines_per_words"), ("x", "other_language"),
    ]  # fmt: skip
    capsys.readouterr()
    for block in blocks("python"):
        exec(block, {})
    assert capsys.readouterr().out == "['not too short']\n"
