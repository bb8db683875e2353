# SPDX-License-Identifier: Apache-2.0
"""Kept documents that a run edited, with the text before: `run_documents(folder, "edited")` and `curate show`."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation.base.errors import OutputError
from curation.base.system.files import as_json
from curation.cli.main import main
from curation.results.finished import edited
from curation.results.report.report import digest
from curation.running.run import run
from tests.runs import recipe_of, records_of

STAGES: list[Any] = [
    {"kind": "filter", "rules": [{"measure": "words", "min": 2, "reason": "short"}]},
    {"kind": "rewrite", "unicode": "nfc"},
    {"kind": "exact_dedup"},
]
COUNT = 60


def text_of(name: str, number: int) -> str:
    """Every third text is edited, every fifth removed."""
    if number % 5 == 0:
        return f"{name}{number}"
    return f"text {name} {number} of a " + ("cafe\u0301" if number % 3 == 0 else "café")


EDITED = [number for number in range(COUNT) if number % 3 == 0 and number % 5]


def write_inputs(folder: Path) -> list[Any]:
    """JSON Lines with blank and broken lines, two files of Parquet with small row groups, and CSV."""
    lines = [orjson.dumps({"text": text_of("a", k), "id": f"a{k}"}) for k in range(COUNT)]
    lines[10:10] = [b"", b"{broken", b"  "]
    (folder / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (folder / "b").mkdir()
    texts = [text_of("b", k) for k in range(COUNT)]
    for number, part in enumerate((texts[:25], [None, *texts[25:]])):
        pq.write_table(pa.table({"text": part}), folder / "b" / f"{number}.parquet", row_group_size=7)
    (folder / "c.csv").write_text("text\n" + "".join(f"{text_of('c', k)}\n" for k in range(COUNT)), "utf-8")
    return [
        {"path": str(folder / "a.jsonl"), "copies": 2}, {"path": str(folder / "b")}, {"path": str(folder / "c.csv")},
    ]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("edited")
    recipe = recipe_of(*write_inputs(folder), stages=STAGES, output={"formats": []})
    report = run(recipe, folder / "out", engine="cpu", slice_bytes=500).report
    assert report["documents"]["edited"] == 3 * len(EDITED) and len(report["files"]) == 4
    return folder / "out"


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """The run with its inputs in a folder of its own; all of them have the times that the report names."""
    folder = Path(shutil.copytree(finished.parent, tmp_path / "copied"))
    content = json.loads((folder / "out" / "report.json").read_bytes())
    for file in content["files"]:
        file["path"] = file["path"].replace(str(finished.parent), str(folder))
    rewrite_report(folder / "out", content)
    return folder / "out"


def rewrite_report(folder: Path, content: dict[str, Any]) -> None:
    (folder / "report.json").write_bytes(as_json(content | {"digest": digest(content)}, indent=True))


def expected() -> list[tuple[str, str, str]]:
    """Source, text and text before of all documents that are kept and edited."""
    pairs = [(name, text_of(name, number)) for name in "abc" for number in EDITED]
    return [(name, text.replace("e\u0301", "é"), text) for name, text in pairs]


def shown(capsys: pytest.CaptureFixture[str], *words: Any) -> str:
    assert main(["show", *map(str, words), "--what", "edited"]) == 0
    return capsys.readouterr().out


def test_an_input_that_is_read_in_part_moves_no_position(tmp_path: Path):
    entries = write_inputs(tmp_path)
    entries[0]["sample"] = entries[1]["sample"] = 0.6
    run(recipe_of(*entries, stages=STAGES, output={"formats": []}), tmp_path / "out", engine="cpu")
    kept = {row["doc"]: (row["source"], row["text"]) for row in curation.run_documents(tmp_path / "out").to_pylist()}
    wanted = [pair for pair in expected() if pair[:2] in kept.values()]
    rows = curation.run_documents(tmp_path / "out", "edited").to_pylist()
    assert [(row["source"], row["text"], row["text_before"]) for row in rows] == wanted
    assert len(EDITED) < len(wanted) < 3 * len(EDITED)


@pytest.mark.parametrize("batch_bytes", [200, edited.BATCH_BYTES])
def test_edited_documents_have_the_text_of_the_input(finished: Path, monkeypatch: pytest.MonkeyPatch, batch_bytes: int):
    monkeypatch.setattr(edited, "BATCH_BYTES", batch_bytes)
    table = curation.run_documents(finished, "edited")
    assert table.column_names == ["doc", "id", "source", "text", "text_before"]
    rows = table.to_pylist()
    assert [(row["source"], row["text"], row["text_before"]) for row in rows] == expected()
    kept = {row["doc"]: row for row in curation.run_documents(finished).to_pylist()}
    assert all(kept[row["doc"]]["id"] == row["id"] and kept[row["doc"]]["text"] == row["text"] for row in rows)
    frame = curation.open_run(finished).edited(where={"matches": r"^text b", "min_count": 1})
    assert frame["text"].tolist() == [text for name, text, _ in expected() if name == "b"]


def test_a_sample_depends_on_the_seed_alone(finished: Path):
    first, again, other = (
        curation.run_documents(finished, "edited", sample=5, seed=seed).column("doc").to_pylist() for seed in (1, 1, 2)
    )
    assert first == again == sorted(first) and len({*first}) == 5 and other != first


def test_a_sample_reads_a_bounded_part_of_the_inputs(finished: Path, monkeypatch: pytest.MonkeyPatch):
    read: list[int] = []
    monkeypatch.setattr(edited, "BATCH_BYTES", 200)
    rows = edited._Kept.rows
    monkeypatch.setattr(edited._Kept, "rows", lambda *args: read.append(1) or rows(*args))

    def batches(sample: int | None, least: int, most: int) -> tuple[int, int]:
        monkeypatch.setattr(edited, "LEAST_BYTES", least)
        monkeypatch.setattr(edited, "MOST_BYTES", most)
        read.clear()
        found = len(curation.run_documents(finished, "edited", sample=sample))
        return found, len(read)

    every = batches(None, 1, 1)
    assert every[0] == 3 * len(EDITED)
    enough, bounded = batches(2, 1, 1 << 40), batches(1000, 1, 3000)
    assert enough[0] == 2 and 1 <= enough[1] < every[1] / 2
    assert 0 < bounded[0] < every[0] and 1 < bounded[1] < every[1]
    assert batches(1000, 1, 1 << 40) == every


def test_before_and_after_are_side_by_side(finished: Path, capsys: pytest.CaptureFixture[str]):
    out = shown(capsys, finished, "--where", "{matches: 'text a 3 ', min_count: 1}").splitlines()
    assert out[0] == "--- a3 (a)" and out[1].split() == ["before", "|", "after"]
    assert [line.split() for line in out[2:4]] == [
        ["text", "a", "3", "of", "a", "|", "text", "a", "3", "of", "a"], ["[[cafe\u0301]]", "|", "[[café]]"],
    ]  # fmt: skip
    assert out[-1] == "1 document, seed 0; at most 1 GB of the inputs' text was read"
    none = shown(capsys, finished, "--where", "words: {min: 50}")
    assert none == f"no edited document of {finished} fits; at most 1 GB of the inputs' text was read\n"
    line = shown(capsys, finished, "--sample", "1", "--log", "json").splitlines()[0]
    document = json.loads(line)
    assert document["text"] == document["text_before"].replace("e\u0301", "é") != document["text_before"]
    assert (document["text_start"], document["text_characters"]) == (0, len(document["text"]))


def test_a_late_edit_is_shown_with_the_words_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = " ".join(f"word{number}" for number in range(5_000))
    (tmp_path / "a.jsonl").write_bytes(records_of([f"{text} cafe\u0301 end", "one  two", "漢" * 5_000 + "A B"]))
    stages = [{"kind": "rewrite", "unicode": "nfc", "whitespace": "collapse", "lowercase": True}]
    run(recipe_of(tmp_path / "a.jsonl", stages=stages, output={"formats": []}), tmp_path / "out", engine="cpu")
    out = shown(capsys, tmp_path / "out")
    assert "[[cafe\u0301]]" in out and "[[café]]" in out and "word4999" in out and "word12 " not in out
    assert (
        "characters)\nbefore" in out
        and "with · for a space)\nbefore" in out
        and "(the words are equal: other white space" in out
    )
    assert any(line.startswith("[[··]] ") for line in out.splitlines())
    lines = shown(capsys, tmp_path / "out", "--log", "json", "--characters", "40").splitlines()
    late, spaces, unspaced = map(json.loads, lines[:3])
    assert late["text"].endswith("café end") and late["text"].startswith("word4999")
    assert (spaces["text"], spaces["text_before"]) == ("one two", "one  two")
    assert unspaced["text"] == "漢" * 10 + "a b" and unspaced["text_start"] == 4_990


def test_inputs_that_are_not_those_of_the_run_are_refused(copied: Path, capsys: pytest.CaptureFixture[str]):
    path = copied.parent / "a.jsonl"
    status, content = path.stat(), path.read_bytes()
    times = (status.st_atime_ns, status.st_mtime_ns)

    def message() -> str:
        assert main(["show", str(copied), "--what", "edited"]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        return err

    path.write_bytes(content + b"\n")
    assert f"has changed since the run: it has {len(content) + 1:,} bytes, the run read {len(content):,}" in message()
    path.write_bytes(content)
    os.utime(path, ns=(0, 0))
    assert "has changed since the run: its modification time differs" in message()
    path.write_bytes(content.replace(b'"a7"', b'"x7"'))
    os.utime(path, ns=times)
    assert "input a has other records than the run read" in message()
    path.write_bytes(content.replace(b'{"text":"text a 59', b' "text":"text a 59'))
    os.utime(path, ns=times)
    assert "input a has other records than the run read" in message()
    path.unlink()
    assert f"{path}, an input of {copied}, does not exist" in message()
    report = json.loads((copied / "report.json").read_bytes())
    for other in ("hf:ORG/NAME", "https://example.com/a.jsonl"):
        report["files"][0]["path"] = other
        rewrite_report(copied, report)
        assert f"{other}, an input of {copied}, is not a local file" in message()


def test_runs_without_edits_or_documents_are_refused(finished: Path, tmp_path: Path):
    source = finished.parent / "c.csv"
    run(recipe_of(source, stages=STAGES[:1], output={"formats": []}), tmp_path / "plain", engine="cpu")
    with pytest.raises(OutputError, match="plain has no edited documents: no stage of its run changed a text"):
        curation.run_documents(tmp_path / "plain", "edited")
    output = {"formats": ["token_shards"], "documents": False}
    run(recipe_of(source, stages=STAGES[:1], output=output), tmp_path / "tokens", engine="cpu")
    with pytest.raises(OutputError, match=r"has no documents/, which a look at edited documents needs"):
        curation.run_documents(tmp_path / "tokens", "edited")
    with pytest.raises(OutputError, match="stage has no meaning with edited documents"):
        curation.run_documents(finished, "edited", stage="rewrite")


def test_no_code_that_a_recipe_names_is_imported(copied: Path, monkeypatch: pytest.MonkeyPatch):
    (copied.parent / "hostile.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(copied.parent)
    content = json.loads((copied / "report.json").read_bytes())
    content["recipe"]["stages"][1] = {"kind": "hostile:Stage", "name": "rewrite"}
    rewrite_report(copied, content)
    assert len(curation.run_documents(copied, "edited")) == 3 * len(EDITED)
