# SPDX-License-Identifier: Apache-2.0
"""The lists of `docs/rule_lists.md`: the page's recipe, commands and Python run with lists as people have them."""

import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from curation.cli import main
from tests.runs import kept_rows, removed_rows

PAGE = Path(__file__).parents[2] / "docs" / "rule_lists.md"
SECTION = re.search(r"^## Lists in files\n(.*?)^## ", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
PAGES = {
    "https://good.org/news": "one two",
    "https://www.bad.com/x": "one",
    "https://good.org/free-money": "one",
    "https://good.org/free": "one",
    "https://good.org/bad-pa.rt": "one",
    "https://good.org/text": "buy, cheap PILLS now",
}


def block_of(language: str) -> str:
    assert SECTION
    found = re.search(rf"^```{language}[^\n]*\n(.*?)^```$", SECTION[1], re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [{"id": url, "url": url, "text": text} for url, text in PAGES.items()]
    Path("pages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    content = b"bad.com\nshop.net/adult\ncom\n"
    with tarfile.open("blacklists.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("adult/domains")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    Path("words.txt").write_text("free\nmoney\n")
    Path("parts.txt").write_text("badpart\n")
    Path("phrases.txt").write_text("cheap pills\n")
    Path("domains.txt").write_text("bad.com\n")
    Path("lists.yaml").write_text(block_of("yaml"))
    return tmp_path


def test_the_lists_of_the_page(here: Path, capsys: pytest.CaptureFixture[str]):
    doubts = [
        "entries of adult/domains in blacklists.tar.gz as domain: 1 line without an entry: line 2: 'shop.net/adult'",
        "entries of adult/domains in blacklists.tar.gz as domain: 1 entry of one label, which lists all hosts below it",
    ]
    for command in block_of("console").splitlines():
        assert main(command.removeprefix("$ curate ").split()) == 0
        said = capsys.readouterr()
        assert command.endswith("show out") or all(line in " ".join((said.out + said.err).split()) for line in doubts)
    assert [row[1] for row in kept_rows(here / "out")] == ["https://good.org/news", "https://good.org/free"]
    assert {reason: value for _, _, _, _, reason, value, _ in removed_rows(here / "out")} == {
        "adult": 2.0, "url_listed": 2.0, "parts": 1.0, "text_listed": 1.0,
    }  # fmt: skip
    report = json.loads((here / "out" / "report.json").read_text())
    assert [line for line in report["warnings"] if any(doubt in line for doubt in doubts)]
    exec(block_of("python"), {})
    assert capsys.readouterr().out == "['two']\n"
    Path("words.txt").write_text("free\n")
    assert main(["run", "lists.yaml", "--output", "out"]) != 0
    assert "words.txt of stage filter (content)" in capsys.readouterr().err
