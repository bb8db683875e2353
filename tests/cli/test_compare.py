# SPDX-License-Identifier: Apache-2.0
"""`curate compare` and `curation.compare_runs`."""

import json
import re
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import curation
from curation.base.errors import OutputError
from curation.cli.main import main
from curation.results.finished import results
from curation.results.finished.comparison import EQUAL
from curation.results.finished.comparison_page import comparison_page
from curation.results.finished.results import open_finished
from curation.running.run import run
from tests.runs import made_texts, recipe_of, records_of, removed_rows


def stages(low: int, high: int) -> list[Any]:
    rules = [{"measure": "words", "min": low, "max": high, "reason": "length\x1b"}]
    return [{"kind": "filter", "name": "rules", "rules": rules}, {"kind": "exact_dedup"}]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("compare")
    texts = ["one two three \x1b[2J", "w " * 50, *made_texts(100)]
    (folder / "in.jsonl").write_bytes(records_of(texts))
    (folder / "more.jsonl").write_bytes(records_of(["only the second run reads this one"]))
    first, second = {"path": str(folder / "in.jsonl")}, {"path": str(folder / "more.jsonl")}
    run(recipe_of(first, stages=stages(2, 45)), folder / "a", engine="cpu")
    run(recipe_of(first, second, stages=stages(10, 55), output={"removed": "ids"}), folder / "b", engine="cpu")
    return folder / "a", folder / "b"


def test_documents_that_changed_side_are_counted_with_examples(runs: tuple[Path, Path]):
    found = curation.compare_runs(*runs)
    gone = [{row[1] for row in removed_rows(folder)} for folder in runs]
    lost, gained = gone[1] - gone[0] - {"more/102"}, gone[0] - gone[1]
    assert (found.kept_by_a, found.kept_by_b) == (len(lost), len(gained))
    assert "in/0" in lost and "in/1" in gained and lost and gained
    examples = found.examples.to_pylist()
    assert {row["id"] for row in examples if row["kept_by"] == "A"} <= lost
    assert {row["id"] for row in examples if row["kept_by"] == "B"} <= gained
    assert len(examples) == min(len(lost), 5) + min(len(gained), 5)
    for row in examples:  # B stored no bounds
        assert row["stage"] == "rules" and row["text"] and row["bound"] == (None if row["kept_by"] == "A" else 45)
    assert (found.only_a, found.only_b) == (0, 1)


def test_settings_and_counts_that_differ(runs: tuple[Path, Path]):
    found = curation.compare_runs(*runs)
    changed = {setting.path: (setting.a, setting.b) for setting in found.settings}
    assert changed["stages.rules.length\x1b.min"] == (2, 10) and changed["stages.rules.length\x1b.max"] == (45, 55)
    assert changed["output.removed"] == ("text", "ids")
    assert changed.keys() == {"stages.rules.length\x1b.min", "stages.rules.length\x1b.max", "output.removed", "input"}
    assert len(found.facts) == 1 and found.facts[0].endswith("more.jsonl (new)")
    reports = [json.loads((folder / "report.json").read_bytes()) for folder in runs]
    assert found.counts["kept"] == tuple(report["documents"]["kept"] for report in reports)
    assert found.counts["tokens"] == tuple(report["tokens"]["count"] for report in reports)
    rules, copies = found.removals
    assert (rules.stage, rules.documents_a) == ("rules", reports[0]["stages"][0]["reasons"]["length\x1b"])
    assert rules.bytes_a == reports[0]["stages"][0]["bytes_in"] - reports[0]["stages"][0]["bytes_out"]
    assert (copies.reason, copies.bytes_b) == ("exact_duplicate", -1)


def test_the_command_prints_all_of_it_without_control_characters(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
):
    assert main(["compare", *map(str, runs)]) == 0
    out = capsys.readouterr().out
    for part in (
        "stages.rules.length\\x1b.min",
        "kept by A and removed by B",
        "1 document only in B",
        "length\\x1b, value",
    ):
        assert part in out
    assert "\x1b" not in out
    assert main(["compare", *map(str, runs), "--log", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["command"] == "compare" and result["only_b"] == 1 and len(result["removals"]) == 2
    assert {setting["path"] for setting in result["settings"]} >= {"output.removed"}


def test_folders_that_cannot_be_compared(runs: tuple[Path, Path], tmp_path: Path):
    with pytest.raises(OutputError, match="are the same folder; give two runs"):
        curation.compare_runs(runs[0], runs[0])
    with pytest.raises(OutputError, match="does not exist"):
        curation.compare_runs(runs[0], tmp_path / "none")
    with pytest.raises(OutputError, match="these folders in it do"):
        curation.compare_runs(runs[0].parent, runs[1])


def test_documents_of_an_equal_id_are_paired_in_their_order_or_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    texts = [
        ("x", "one two three"),
        ("y", "one"),
        ("x", "one"),
        ("x", "one two three four"),
        ("z", "one two"),
        ("z", "a"),
    ]
    for name, rows, low in (("a", texts, 1), ("b", texts, 2), ("c", texts[:3], 2)):
        path = tmp_path / name / "in.jsonl"
        path.parent.mkdir()
        path.write_text("".join(json.dumps({"id": id_, "text": text}) + "\n" for id_, text in rows))
        rules = [{"measure": "words", "min": low}]
        recipe = recipe_of({"path": str(path), "id_column": "id"}, stages=[{"kind": "filter", "rules": rules}])
        run(recipe, tmp_path / name / "out", engine="cpu")
    a, b, c = (tmp_path / name / "out" for name in "abc")
    found = curation.compare_runs(a, b)
    assert (found.kept_by_a, found.kept_by_b, found.ambiguous_a, found.ambiguous_b) == (3, 0, 0, 0)
    assert sorted((row["id"], row["text"]) for row in found.examples.to_pylist()) == [
        ("x", "one"), ("y", "one"), ("z", "a"),
    ]  # fmt: skip
    found = curation.compare_runs(a, c)  # three documents x in A, two in C
    assert (found.kept_by_a, found.only_a, found.only_b, found.ambiguous_a, found.ambiguous_b) == (1, 2, 0, 3, 2)
    assert main(["compare", str(a), str(c)]) == 0
    assert "not compared: 3 of A and 2 of B, whose id the runs have in different numbers" in capsys.readouterr().out


def test_a_page_has_all_of_it_escaped_with_the_part_that_broke_the_rule(runs: tuple[Path, Path], tmp_path: Path):
    page = tmp_path / "new" / "compared.html"
    with patch.object(results, "read_report", wraps=results.read_report) as read:
        assert main(["compare", *map(str, runs), "--html", str(page)]) == 0
    assert read.call_count == 2
    assert main(["compare", *map(str, runs), "--html", str(page)]) == 0  # a page is replaced, no other file
    text, found = page.read_text(), curation.compare_runs(*runs, examples=30)
    assert "\x1b" not in text and "length\\x1b" in text and "script" not in text
    assert text.count('<div class="sample">') == len(found.examples) > 10
    assert f"{found.counts['kept'][1]:,}</b>documents kept by B" in text
    assert "length\\x1b.max" in text and "1 document only in B" in text
    assert text.index("rules: length") < text.index("exact_dedup: exact_duplicate")  # by the difference
    same = runs[0].parent / "again"
    shutil.copytree(runs[0], same)
    assert f"<p>{EQUAL.capitalize()}.</p>" in comparison_page(
        curation.compare_runs(runs[0], same), *map(open_finished, (runs[0], same))
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("page.parquet", "compare --html: expected a name that ends in .html, not page.parquet"),
        (".", "compare --html: expected a name that ends in .html, not ."),
        ("{runs[0]}/report.html", r"compare --html: \S+/report.html exists already and is no comparison"),
        ("s3://bucket/page.html", r"the output is a URL \(s3://\), expected a local path"),
    ],
)
def test_a_page_that_cannot_be_written(
    name: str, message: str, runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
):
    assert main(["compare", *map(str, runs), "--html", name.format(runs=runs)]) in (1, 2)
    assert re.search(message, capsys.readouterr().err)


def test_runs_without_a_common_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "a.jsonl").write_bytes(records_of(made_texts(20)))
    own = (records_of([text], id=f"own {number}") for number, text in enumerate(made_texts(20)))
    (tmp_path / "b.jsonl").write_bytes(b"".join(own))
    folders = []
    for number, (file, settings) in enumerate([("a", {}), ("a", {"name": "own"}), ("b", {"name": "own"})]):
        given = {"path": str(tmp_path / f"{file}.jsonl"), **settings}
        folders.append(tmp_path / str(number))
        curation.run(
            {"stages": ["exact_dedup"], "output": {"formats": []}, "input": [given]},
            folders[-1],
            engine="cpu",
            progress=False,
        )
    sources = "matched by source and id, and the sources differ: a and own. Give the inputs the same name"
    found = curation.compare_runs(*folders[:2])
    assert found.only_a == found.only_b > 0 and found.unmatched.endswith(sources) and sources in repr(found)
    assert curation.compare_runs(*folders[1:]).unmatched.endswith("and the ids differ")
    capsys.readouterr()
    assert main(["compare", *map(str, folders[:2])]) == 0
    printed = capsys.readouterr().out
    assert sources in printed and "no such id" not in printed
    assert sources in comparison_page(found, *map(open_finished, folders[:2]))
