# SPDX-License-Identifier: Apache-2.0
"""Links and paths of the pages exist, and the README's Python runs."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.corpus import real_documents
from tests.runs import records_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("**/*.md")),
]
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]*)\)")
QUOTED = re.compile(r"`([^`\s]+)`")
TREES = (".ci/", "benchmarks/", "cpu_fallback/", "curation/", "docs/", "gpu_pipeline/", "notebooks/", "tests/")


def prose_of(page: Path) -> str:
    return FENCE.sub("", page.read_text("utf-8"))


@cache
def anchors_of(page: Path) -> set[str]:
    """The fragments that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Relative links to a file or heading that is not there."""
    found = []
    for link in LINK.findall(prose_of(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            found.append(link)
    return found


def missing_paths(page: Path) -> list[str]:
    """Paths in backticks that begin with a folder of the repository and match no file; `<name>` matches any name."""
    paths = [path for path in QUOTED.findall(prose_of(page)) if path.startswith(TREES)]
    return [path for path in paths if not any(ROOT.glob(re.sub(r"<\w+>", "*", path).rstrip("/")))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_exist(page: Path):
    assert not broken_links(page) and not missing_paths(page)


@pytest.mark.parametrize(
    ("text", "links", "paths"),
    [
        ("[a](gone.md) [b](#none) [c](#real)\n# Real", ["gone.md", "#none"], []),
        (
            "`curation/gone.py` `curation/*.py` `docs/<kind>.md` `docs/<kind>.py`",
            [],
            ["curation/gone.py", "docs/<kind>.py"],
        ),
    ],
)
def test_what_is_gone_is_found(tmp_path: Path, text: str, links: list[str], paths: list[str]):
    page = tmp_path / "page.md"
    page.write_text(text)
    assert (broken_links(page), missing_paths(page)) == (links, paths)


def test_published_features_name_tests_that_exist():
    rows = re.findall(r"^\| .+ \| `(\w+/\w+\.py)::(\w+)` \|$", (ROOT / "docs/published_pipelines.md").read_text(), re.M)
    missing = [name for file, name in rows if f"\ndef {name}(" not in (ROOT / "tests" / file).read_text("utf-8")]
    assert missing == [] and len(rows) > 50


def test_each_promise_of_security_names_tests_that_exist():
    promises = (ROOT / "SECURITY.md").read_text("utf-8").partition("## Limits")[0]
    rows = [line.strip("|").split("|") for line in promises.splitlines() if line.startswith("| ")][1:]
    named = {row[0].strip(): re.findall(r"`(tests/[^`]+)`", row[-1]) for row in rows}
    files = [(promise, ROOT / file) for promise, tests in named.items() for file in tests]
    missing = [
        (promise, file) for promise, file in files if not file.is_file() or "\ndef test_" not in file.read_text()
    ]
    assert missing == [] and len(rows) >= 8 and all(map(len, named.values()))


def test_decisions_are_listed():
    folder = ROOT / "docs/decisions"
    listed = set(LINK.findall((folder / "README.md").read_text("utf-8")))
    assert listed == {path.name for path in folder.glob("[0-9]*.md")}


def test_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Block by block in one namespace, with a corpus where `curate demo` leaves its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/corpus.jsonl").write_bytes(records_of(real_documents(60)))
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert "'read': 60" in capsys.readouterr().out
