# SPDX-License-Identifier: Apache-2.0
"""Groups of documents with rules of their own, in `report.json` and `report.html`."""

import copy
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from curation.record.report_schema import wrong_in_report
from curation.results.report.html import MAX_BYTES, as_html
from curation.running.run import run
from tests.results.pages import without_scripts
from tests.runs import made_texts, recipe_of, report_of

LANGUAGES = [f"l{number}" for number in range(12)]
RULES = [
    {"per": "language", "rules": {
        **{name: {"words": {"min": 10 + number, "max": 50}} for number, name in enumerate(LANGUAGES)}, "other": "keep",
    }},
]  # fmt: skip
HOSTILE = "</style><script>alert(1)</script>\x1b[2J" + "W" * 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in `out`, of documents in `a.jsonl`: many in l0, fewer in each next one."""
    folder = tmp_path_factory.mktemp("groups")
    chosen = [name for number, name in enumerate(LANGUAGES) for _ in range(26 - 2 * number)] + [None] * 3
    rows = [{"text": text, "language": name} for text, name in zip(made_texts(len(chosen)), chosen, strict=True)]
    rows = [rows[5 * k % len(rows)] for k in range(len(rows))]
    (folder / "a.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    assert len(rows) % 5
    run(recipe(folder), folder / "out", engine="cpu", progress=False)
    return folder


def recipe(folder: Path) -> Any:
    stages = [{"kind": "filter", "rules": RULES}, {"kind": "exact_dedup"}]
    return recipe_of({"path": str(folder / "a.jsonl"), "columns": ["language"]}, stages=stages)


def test_groups_do_not_depend_on_slices(folder: Path, tmp_path: Path):
    run(recipe(folder), tmp_path / "out", engine="cpu", slice_bytes=8_000, workers=2, progress=False)
    sliced, whole = report_of(tmp_path / "out"), report_of(folder / "out")
    assert sliced["stages"][0]["groups"] == whole["stages"][0]["groups"] and sliced["measured"] == whole["measured"]
    assert "groups" not in whole["stages"][1]


def test_the_report_has_all_groups_and_values_of_the_largest(folder: Path):
    stage = report_of(folder / "out")["stages"][0]
    (column,) = stage["groups"]
    assert column["column"] == "language"
    assert [(entry["group"], entry["documents"]) for entry in column["groups"]] == [
        *((name, 26 - 2 * number) for number, name in enumerate(LANGUAGES)), ("other", 3),
    ]  # fmt: skip
    assert sum(entry["reasons"].get("words", 0) for entry in column["groups"]) == stage["reasons"]["words"] > 20
    for number, entry in enumerate(column["groups"][:8]):
        (rule,) = entry["rules"]
        assert (rule["min"], rule["max"]) == (10 + number, 50) and sum(rule["counts"]) == entry["documents"]
        assert rule["below"] + rule["above"] == entry["reasons"].get("words", 0)
    assert not any("rules" in entry for entry in column["groups"][8:])


def test_the_schema_knows_groups(folder: Path):
    content = report_of(folder / "out")
    assert wrong_in_report(content) == ""
    content["stages"][0]["groups"][0]["groups"][0]["documents"] = -1
    assert "`int` >= 0 - at `$.stages[0].groups[0].groups[0].documents`" in wrong_in_report(content)


def test_the_page_shows_each_group_with_its_bounds(folder: Path):
    report = report_of(folder / "out")
    page = as_html(report)
    (column,) = report["stages"][0]["groups"]
    for entry in column["groups"][:8]:
        removed = sum(entry["reasons"].values())
        share = re.escape(f"{entry['group']}: {entry['documents']} documents, {removed} removed (")
        assert re.search(rf"<summary>{share}[\d.]+%\)</summary>", page), entry["group"]
        assert f"words ≥ {entry['rules'][0]['min']:g} and ≤ 50" in page
    assert page.count('<polygon class="kept" points=') >= 8
    rest = [entry["documents"] for entry in column["groups"][8:]]
    assert f"and 5 groups more: {sum(rest)} documents, " in page


def test_hostile_groups_are_inert_and_the_page_stays_small(folder: Path):
    many = copy.deepcopy(report_of(folder / "out"))
    stage = many["stages"][0]
    entry = stage["groups"][0]["groups"][0]
    entry |= {"group": HOSTILE, "reasons": {f"{number}{HOSTILE}": number for number in range(300)}}
    entry["rules"] = [entry["rules"][0] | {"reason": HOSTILE, "measure": HOSTILE}] * 500
    stage["groups"] = [{"column": HOSTILE, "groups": [entry] * 300}] * 3
    without = len(as_html(many | {"stages": [stage | {"groups": []}] * 30}))
    page = as_html(many | {"stages": [stage] * 30})
    assert "<script" not in without_scripts(page) and "\x1b" not in page
    assert len(page.encode()) < MAX_BYTES and len(page.encode()) - without < 450_000
