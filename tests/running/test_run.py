# SPDX-License-Identifier: Apache-2.0
"""Whole runs through `curation.running.run.run`: nothing disappears, and how the work is divided does not show."""

import gzip
import os
import resource
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.base.errors import EngineError, InputError, IntegrityError, OutputError, RecipeError
from curation.base.system import files
from curation.recipes.recipe import as_builtins, load_recipe
from curation.record import folder as run_folder
from curation.results.finished.run_result import RunResult
from curation.results.finished.verify import verify
from curation.results.report.text import print_funnel
from curation.running.phases import write_phase
from curation.running.run import run
from curation.tokens.indexed import IndexedReader
from curation.tokens.tokenization import load_tokenizer
from tests.runs import (
    data_digests,
    digests,
    files_below,
    kept_rows,
    made_texts,
    recipe_of,
    records_of,
    rejected_rows,
    removed_rows,
    report_of,
)

EOD = 50256


def cpu(recipe: Any, folder: Path, **options: Any) -> RunResult:
    return run(recipe, folder, engine="cpu", **options)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "made.jsonl"
    path.write_bytes(records_of(made_texts(300)))
    return path


def test_documents_that_are_lost_while_they_are_written_fail_the_run(corpus, tmp_path, monkeypatch):
    whole = write_phase._kept_documents

    def lossy(*arguments: Any) -> Iterator[pa.Table]:
        tables = list(whole(*arguments))
        return iter([*tables[:-1], tables[-1].slice(1)])

    monkeypatch.setattr(write_phase, "_kept_documents", lossy)
    with pytest.raises(IntegrityError, match="the ledger does not add up"):
        cpu(recipe_of(corpus), tmp_path / "out")
    assert not (tmp_path / "out" / "report.json").exists()


def expected_of(texts: list[str], source: str) -> tuple[list[Any], list[Any]]:
    """What `STAGES` keep and remove, in plain Python."""
    kept, removed, first = [], [], {}
    for doc, raw in enumerate(texts):
        text = unicodedata.normalize("NFC", raw)
        row = (doc, f"{source}/{doc}", source)
        if len(text.split()) < 5:
            removed.append((*row, "filter", "short", float(len(text.split())), None))
        elif text in first:
            removed.append((*row, "exact_dedup", "exact_duplicate", 1.0, f"{source}/{first[text]}"))
        else:
            first[text] = doc
            kept.append((*row, text))
    return kept, removed


def decoded(prefix: Path, with_eod: bool = True) -> list[str]:
    tokenizer = load_tokenizer("gpt2")
    found = []
    for ids in IndexedReader(prefix):
        assert not with_eod or ids[-1] == EOD
        found.append(tokenizer.decode(ids[:-1] if with_eod else ids))
    return found


# What comes out


def test_kept_and_removed_are_what_plain_python_says(tmp_path: Path, corpus: Path):
    texts = made_texts(300)
    cpu(recipe_of(corpus), tmp_path / "out")
    kept, removed = expected_of(texts, "made")
    assert len(kept) > 200 and len({row[3] for row in removed}) == 2
    assert kept_rows(tmp_path / "out") == kept
    assert removed_rows(tmp_path / "out") == removed
    assert rejected_rows(tmp_path / "out") == []
    assert decoded(tmp_path / "out" / "tokens" / "made_00000_text_document") == [text for *_, text in kept]


def test_the_report_counts_everything(tmp_path: Path, corpus: Path):
    texts = made_texts(300)
    recipe = recipe_of(corpus, name="counted")
    finished = cpu(recipe, tmp_path / "out")
    report = report_of(tmp_path / "out")
    assert finished == RunResult(report, False, tmp_path / "out")
    kept, removed = expected_of(texts, "made")
    reasons = [reason for *_, reason, _, _ in removed]
    assert report["engine"] == "cpu" and report["engine_reason"] == "asked for"
    assert report["recipe"] == as_builtins(recipe)
    assert report["documents"] == {
        "read": 300,
        "copies": 0,
        "kept": len(kept),
        "removed": len(removed),
        "rejected": 0,
        "edited": sum(unicodedata.normalize("NFC", text) != text for text in texts),
        "repaired": 0,
    }
    assert report["bytes"] == {
        "read": sum(len(text.encode()) for text in texts),
        "kept": sum(len(text.encode()) for *_, text in kept),
    }
    rewrite, words, dedup = report["stages"]
    assert [stage["name"] for stage in report["stages"]] == ["rewrite", "filter", "exact_dedup"]
    assert (rewrite["documents_in"], rewrite["documents_out"], rewrite["reasons"]) == (300, 300, {})
    assert rewrite["bytes_out"] == words["bytes_in"] < rewrite["bytes_in"] == report["bytes"]["read"]
    assert words["reasons"] == {"short": reasons.count("short")}
    assert dedup["reasons"] == {"exact_duplicate": reasons.count("exact_duplicate")}
    assert (dedup["documents_out"], dedup["bytes_out"]) == (len(kept), report["bytes"]["kept"])
    tokens = report["tokens"]
    reader = IndexedReader(tmp_path / "out" / "tokens" / "made_00000_text_document")
    assert (tokens["count"], tokens["documents"], tokens["empty_documents"]) == (len(reader.tokens), len(kept), 0)
    assert (tokens["vocabulary"], tokens["dtype"], tokens["tokenizer"]["eod"]) == (50257, "uint16", EOD)
    assert tokens["special_token_texts"] == sum(text.count("<|endoftext|>") for *_, text in kept) > 0
    assert tokens["per_byte"] == round(tokens["count"] / report["bytes"]["kept"], 6)
    assert sorted([*report["outputs"], "report.html", "report.json"]) == files_below(tmp_path / "out")
    assert report["seconds"] > 0 and report["peak_memory_bytes"] > 10_000_000
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "<h1>Report of recipe counted</h1>" in page and "exact_duplicate" in page and "300" in page


@pytest.mark.slow("the default recipe gives real documents the same bytes for any slices")
def test_real_documents_with_the_default_recipe(tmp_path: Path, real_file: Path):
    path = real_file
    recipe = msgspec.structs.replace(load_recipe("default"), input=recipe_of(path).input)
    found = []
    for slice_bytes in (1 << 30, 100_000):
        finished = cpu(recipe, tmp_path / str(slice_bytes), slice_bytes=slice_bytes)
        assert verify(tmp_path / str(slice_bytes)) == []
        found.append(digests(tmp_path / str(slice_bytes)))
    assert found[0] == found[1]
    documents = finished.report["documents"]
    assert documents["read"] == path.read_bytes().count(b"\n") == documents["kept"] + documents["removed"]
    assert 0.5 < documents["kept"] / documents["read"] < 1
    kept = kept_rows(tmp_path / "100000")
    assert decoded(tmp_path / "100000" / "tokens" / "corpus_00000_text_document") == [text for *_, text in kept]


# How the work is divided does not show


@pytest.mark.parametrize(
    "stages",
    [
        "usual",
        *(
            pytest.param(
                each,
                marks=pytest.mark.slow(
                    "a run of two segments or none does not depend on slices, workers or compression"
                ),
            )
            for each in ("two segments", "none")
        ),
    ],
)
def test_one_result_for_all_slices_workers_and_compressions(tmp_path: Path, corpus: Path, stages: str):
    dedup_first = [{"kind": "exact_dedup"}, {"kind": "rewrite", "whitespace": "collapse"}, {"kind": "exact_dedup"}]
    chain = {"usual": None, "two segments": dedup_first, "none": []}[stages]
    packed = tmp_path / "gz" / "made.jsonl.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(corpus.read_bytes()))
    table = tmp_path / "parquet" / "made.parquet"
    table.parent.mkdir()
    pq.write_table(pa.table({"text": made_texts(300)}), table, row_group_size=17)
    output = {"part_documents": 40, "max_file_bytes": 9000, "part_bytes": 20_000}
    runs = [
        (corpus, {"workers": 1, "slice_bytes": 1 << 30}),
        (corpus, {"workers": 2, "slice_bytes": 9777}),
        (corpus, {"workers": 1, "slice_bytes": 25_000}),
        (packed, {"workers": 2}),
        (table, {"workers": 2, "slice_bytes": 9000}),
    ]
    found = []
    for number, (path, options) in enumerate(runs):
        folder = tmp_path / str(number)
        cpu(recipe_of(path, stages=chain, output=output), folder, **options)
        assert verify(folder) == []
        found.append(data_digests(folder))
    assert sum(name.startswith("documents/") for name in found[0]) > 4
    assert sum(name.endswith(".bin") for name in found[0]) > 2
    assert [other == found[0] for other in found] == [True] * 5
    assert digests(tmp_path / "0") == digests(tmp_path / "1") == digests(tmp_path / "2")


@pytest.mark.slow("row groups of Parquet files do not depend on the slices")
def test_row_groups_do_not_show_the_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: Path):
    for name, value in (("ROW_GROUP_DOCUMENTS", 7), ("ROW_GROUP_BYTES", 1200)):
        monkeypatch.setattr(f"curation.record.documents.{name}", value)
    monkeypatch.setattr("curation.record.removed.MAX_REMOVED_ROWS", 5)
    for slice_bytes in (6000, 10**6):
        cpu(recipe_of(corpus), tmp_path / str(slice_bytes), slice_bytes=slice_bytes)
    assert digests(tmp_path / "6000") == digests(tmp_path / "1000000")
    metadata = pq.ParquetFile(tmp_path / "6000" / "documents" / "part-00000.parquet").metadata
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    assert max(sizes) == 7 and len(set(sizes)) > 2
    assert len(list((tmp_path / "6000" / "removed").iterdir())) > 5
    assert removed_rows(tmp_path / "6000") == expected_of(made_texts(300), "made")[1]


@pytest.mark.slow("a run on processes has the bytes of a run on threads")
def test_processes_give_the_same(tmp_path: Path, corpus: Path):
    cpu(recipe_of(corpus), tmp_path / "threads", slice_bytes=30_000)
    cpu(recipe_of(corpus), tmp_path / "processes", slice_bytes=20_000, scheduler="processes", workers=2)
    assert digests(tmp_path / "threads") == digests(tmp_path / "processes")


@pytest.mark.slow("a run has more slices than files may be open")
def test_more_slices_than_files_may_be_open(tmp_path: Path):
    texts = [f"document {number % 150} has some words" for number in range(300)]
    path = tmp_path / "many.jsonl"
    path.write_bytes(records_of(texts))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, before[1]))
    try:
        cpu(recipe_of(path), tmp_path / "out", slice_bytes=60)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(kept_rows(tmp_path / "out")) == 150
    assert [row[-1] for row in removed_rows(tmp_path / "out")] == [f"many/{doc}" for doc in range(150)]


# Chains


def test_no_stages(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]):
    report = cpu(recipe_of(corpus, stages=[]), tmp_path / "out", slice_bytes=10_000).report
    texts = made_texts(300)
    assert [text for *_, text in kept_rows(tmp_path / "out")] == texts
    assert removed_rows(tmp_path / "out") == [] and report["stages"] == []
    empty = sum(not text for text in texts)
    assert report["tokens"]["empty_documents"] == empty > 0
    print_funnel(report)
    assert f"per document; {empty} documents without tokens\n" in capsys.readouterr().out
    assert decoded(tmp_path / "out" / "tokens" / "made_00000_text_document") == [text for text in texts if text]


def test_a_filter_after_a_deduplication(tmp_path: Path, corpus: Path):
    stages = [
        {"kind": "exact_dedup"},
        {"kind": "filter", "rules": [{"measure": "words", "min": 30}]},
        {"kind": "rewrite", "lowercase": True},
        {"kind": "exact_dedup", "max_characters": 9},
    ]
    report = cpu(recipe_of(corpus, stages=stages), tmp_path / "out", slice_bytes=10_000).report
    kept, removed, first, starts = [], [], {}, {}
    for doc, text in enumerate(made_texts(300)):
        if text in first:
            removed.append((doc, "exact_dedup_1", f"made/{first[text]}"))
            continue
        first[text] = doc
        if len(text.split()) < 30:
            removed.append((doc, "filter", None))
        elif text.lower()[:9] in starts:
            removed.append((doc, "exact_dedup_2", f"made/{starts[text.lower()[:9]]}"))
        else:
            starts[text.lower()[:9]] = doc
            kept.append((doc, text.lower()))
    assert [(doc, text) for doc, _, _, text in kept_rows(tmp_path / "out")] == kept
    assert [(doc, stage, of) for doc, _, _, stage, _, _, of in removed_rows(tmp_path / "out")] == removed
    assert [stage["name"] for stage in report["stages"]] == ["exact_dedup_1", "filter", "rewrite", "exact_dedup_2"]
    assert verify(tmp_path / "out") == []


def fail(*_: Any) -> None:
    raise OSError(28, "interrupted here")


def interrupt_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curation.running.phase_loop.write_output_parts", fail)


@pytest.mark.parametrize("stages", [None, [], [{"kind": "exact_dedup"}, {"kind": "filter", "rules": "nemo"}]])
@pytest.mark.parametrize("data", [b"", b"\n\n", b'{"text": "short"}\n', b"rubbish\n"])
def test_runs_that_keep_little_or_nothing(tmp_path: Path, stages: list[Any] | None, data: bytes):
    path = tmp_path / "little.jsonl"
    path.write_bytes(data)
    report = cpu(recipe_of(path, stages=stages), tmp_path / "out", slice_bytes=5).report
    documents = report["documents"]
    assert documents["read"] == bool(data.strip())
    assert documents["rejected"] == (data == b"rubbish\n")
    kept = kept_rows(tmp_path / "out")
    assert len(kept) == documents["kept"] == (b"short" in data and stages == [])
    assert sorted(path.name for path in (tmp_path / "out" / "documents").iterdir()) == ["part-00000.parquet"]
    assert verify(tmp_path / "out") == []


def test_shuffled_tokens_are_the_same_documents_in_another_order(tmp_path: Path, corpus: Path):
    output = {"shuffle": True, "part_documents": 50}
    for name, seed, slice_bytes in (("one", 1, 20_000), ("again", 1, 10**6), ("two", 2, 10**6)):
        cpu(recipe_of(corpus, seed=seed, output=output), tmp_path / name, slice_bytes=slice_bytes)
    assert digests(tmp_path / "one") == digests(tmp_path / "again")
    orders = [decoded(tmp_path / name / "tokens" / "made_00000_text_document") for name in ("one", "two")]
    texts = [text for *_, text in kept_rows(tmp_path / "one")]
    assert orders[0] != texts != orders[1] != orders[0]
    assert sorted(orders[0]) == sorted(texts) == sorted(orders[1])


# Inputs


def test_several_inputs_keep_their_order_and_names(tmp_path: Path):
    for name, texts in (("b", made_texts(50, 1)), ("a", made_texts(70, 2))):
        (tmp_path / f"{name}.jsonl").write_bytes(records_of(texts))
    (tmp_path / "b2.jsonl").write_bytes(b"")
    inputs = [
        {"path": str(tmp_path / "b*.jsonl"), "name": "second.letter", "blend_weight": 2.0},
        {"path": str(tmp_path / "a.jsonl"), "blend_weight": 1.0},
    ]
    recipe = recipe_of(*inputs, stages=[], output={"part_documents": 20})
    report = cpu(recipe, tmp_path / "out", slice_bytes=3000).report
    kept = kept_rows(tmp_path / "out")
    assert [row[0] for row in kept] == list(range(120))
    assert [row[3] for row in kept] == made_texts(50, 1) + made_texts(70, 2)
    assert {row[2] for row in kept[:50]} == {"second.letter"} and {row[2] for row in kept[50:]} == {"a"}
    assert kept[49][1] == "second.letter/49" and kept[50][1] == "a/50"
    sizes = [
        pq.ParquetFile(path).metadata.num_rows for path in sorted((tmp_path / "out" / "documents").glob("*.parquet"))
    ]
    assert sizes == [20, 20, 10, 20, 20, 20, 10]  # a part has documents of one input
    pairs = {Path(name).name: name for name in report["outputs"] if name.endswith(".bin")}
    assert sorted(pairs) == ["a_00000_text_document.bin", "second.letter_00000_text_document.bin"]
    for name, texts in (("second.letter", made_texts(50, 1)), ("a", made_texts(70, 2))):
        prefix = tmp_path / "out" / "tokens" / f"{name}_00000_text_document"
        assert decoded(prefix) == [text for text in texts if text]
    assert verify(tmp_path / "out") == []


def test_ids_of_the_records_are_kept(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    lines = [
        '{"id": "ключ/漢🙂", "text": "one"}', '{"id": 17, "text": "two"}', '{"id": null, "text": "three"}',
        '{"text": "four"}', '{"id": "", "text": "five"}', '{"id": "same", "text": "six"}',
        '{"id": "same", "text": "one"}',
    ]  # fmt: skip
    path.write_text("\n".join(lines), "utf-8")
    cpu(recipe_of(path, stages=[{"kind": "exact_dedup"}]), tmp_path / "out", slice_bytes=30)
    assert [row[1] for row in kept_rows(tmp_path / "out")] == ["ключ/漢🙂", "17", "a/2", "a/3", "", "same"]
    assert [(row[1], row[-1]) for row in removed_rows(tmp_path / "out")] == [("same", "ключ/漢🙂")]


def test_every_kind_of_bad_line_is_accounted_for(tmp_path: Path):
    bad = [
        b"not json", b"{", b"[]", b"null", b"7", b'"text"', b'{"id": 1}', b'{"text": null}', b'{"text": 5}',
        b'{"text": ["a"]}', b'{"text": "a", "id": true}', b'{"text": "a", "id": 1.5}', b'{"text": "\xff"}',
        b'{"text": "\\ud800"}', b'{"text": "a\x00"}', b'{"text": "a"}{"text": "b"}', b'{"text": "a", "n": NaN}',
    ]  # fmt: skip
    lines, expected_bad = [], []
    for number, line in enumerate(bad):
        lines += [b'{"text": "good %d"}' % number, b"", line, b"  \r"]
        expected_bad.append((4 * number + 3, 2 * number + 1))
    (tmp_path / "bad.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines))
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"text": "before"}\n' * 5)[:-4])
    columns = {"text": pa.array(["table", None]), "id": pa.array(["t", "u"])}
    pq.write_table(pa.table(columns), tmp_path / "table.parquet")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    recipe = recipe_of({"path": str(tmp_path), "name": "all"}, stages=[])
    for slice_bytes in (20, 100, 10**6):
        folder = tmp_path / "_out" / str(slice_bytes)  # the folder's own files are hidden from the input
        report = cpu(recipe, folder, slice_bytes=slice_bytes).report
        texts = [f"good {number}" for number in range(len(bad))] + ["before"] * 5 + ["table"]
        assert [text for *_, text in kept_rows(folder)] == texts
        found = rejected_rows(folder)
        assert [(row["line"], row["doc"]) for row in found[: len(bad)]] == expected_bad
        content = (tmp_path / "bad.jsonl").read_bytes()
        assert [content[row["offset"] :].split(b"\n")[0] for row in found[: len(bad)]] == bad
        cut, null = found[len(bad) :]
        assert Path(cut["file"]).name == "cut.jsonl.gz" and "damaged or cut off" in cut["error"] and cut["line"] == 6
        assert (Path(null["file"]).name, null["line"], null["error"]) == ("table.parquet", 2, "text is null")
        assert {row["source"] for row in found} == {"all"}
        documents = report["documents"]
        assert (documents["read"], documents["rejected"]) == (2 * len(bad) + 8, len(bad) + 2)
        docs = sorted([row[0] for row in kept_rows(folder)] + [row["doc"] for row in found])
        assert docs == list(range(documents["read"]))  # every position once
        assert verify(folder) == []
    assert digests(tmp_path / "_out" / "20") == digests(tmp_path / "_out" / "100")


@pytest.mark.parametrize(
    ("data", "message"),
    [(b'{"body": "x"}\n' * 3, "no field 'text'"), (None, "does not exist")],
)
def test_wrong_inputs_leave_nothing_behind(tmp_path: Path, data: bytes | None, message: str):
    path = tmp_path / "a.jsonl"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        cpu(recipe_of({"path": str(path), "text_column": "text"}), tmp_path / "out")
    path.write_bytes(records_of(["now it is right"]))
    assert cpu(recipe_of(path, stages=[]), tmp_path / "out").report["documents"]["kept"] == 1


# The folder


def test_a_finished_run_is_complete(tmp_path: Path, corpus: Path):
    first = cpu(recipe_of(corpus), tmp_path / "out")
    before = {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in files_below(tmp_path / "out")}
    (tmp_path / "out" / "_work").mkdir()  # killed while it was being removed
    again = cpu(recipe_of(corpus), tmp_path / "out", workers=1, slice_bytes=100)
    assert again == RunResult(first.report, True, tmp_path / "out")
    assert {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in files_below(tmp_path / "out")} == before
    assert not (tmp_path / "out" / "_work").exists()


def test_work_is_kept_if_asked_for(tmp_path: Path, corpus: Path):
    recipe = recipe_of(corpus, output={"keep_work": True})
    for already in (False, True):
        assert cpu(recipe, tmp_path / "out").already_complete == already
        assert (tmp_path / "out" / "_work" / "plan.json").exists()
    assert verify(tmp_path / "out") == []


def test_a_changed_recipe_or_input_is_refused(tmp_path: Path, corpus: Path):
    folder = tmp_path / "out"
    cpu(recipe_of(corpus), folder)
    with pytest.raises(OutputError, match=r"changed: seed, tokenizer\.append_eod\. .*--force"):
        cpu(recipe_of(corpus, seed=1, tokenizer={"append_eod": False}), folder)
    with pytest.raises(OutputError, match=r"changed: stages\. "):
        cpu(recipe_of(corpus, stages=[]), folder)
    os.utime(corpus, ns=(1, 1))
    with pytest.raises(OutputError, match=r"changed: file .*made\.jsonl \(modified time\)\. "):
        cpu(recipe_of(corpus), folder)
    assert cpu(recipe_of(corpus, stages=[]), folder, force=True).report["documents"]["kept"] == 300
    assert verify(folder) == []


def test_an_unfinished_run_refuses_another_recipe_too(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch):
    interrupt_outputs(monkeypatch)
    with pytest.raises(OSError, match="interrupted here"):
        cpu(recipe_of(corpus), tmp_path / "out")
    with pytest.raises(OutputError, match=r"changed: seed"):
        cpu(recipe_of(corpus, seed=1), tmp_path / "out")


def test_a_run_goes_on_with_other_workers_and_slices(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch):
    cpu(recipe_of(corpus), tmp_path / "whole")
    interrupt_outputs(monkeypatch)
    with pytest.raises(OSError, match="interrupted here"):
        cpu(recipe_of(corpus), tmp_path / "out", slice_bytes=8000, workers=2)
    monkeypatch.undo()
    stale = tmp_path / "out" / "_work" / "segment-0" / "000000.arrow.host-9-9.tmp"
    stale.write_bytes(b"half")
    (tmp_path / "out" / "documents").mkdir(exist_ok=True)
    (tmp_path / "out" / "documents" / "part-00000.parquet.host-9-9.tmp").write_bytes(b"half")
    monkeypatch.setattr("curation.running.phase_loop.run_slice", fail)  # all slices are done
    cpu(recipe_of(corpus), tmp_path / "out", slice_bytes=50_000, workers=1)
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


def test_a_folder_of_something_else_is_refused(tmp_path: Path, corpus: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    for force in (False, True):
        with pytest.raises(OutputError, match=r"is not empty \(it has thesis\.txt\); give a new --output$"):
            cpu(recipe_of(corpus), tmp_path / "out", force=force)
    assert (tmp_path / "out" / "thesis.txt").read_text() == "years of work"


@pytest.mark.slow("--force that is killed leaves no folder that looks finished")
def test_force_that_is_killed_leaves_no_run_that_looks_whole(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
):
    corpus.write_bytes(records_of(made_texts(20)))
    recipe = recipe_of(corpus, output={"keep_work": True})
    for kill_after in range(1, 6):
        cpu(recipe, tmp_path / "out")
        removals = iter(range(kill_after))

        def remove(path: Path, removals: Iterator[int] = removals) -> None:
            if next(removals, None) is None:
                raise KeyboardInterrupt
            files.remove(path)

        monkeypatch.setattr(run_folder, "remove", remove)
        with pytest.raises(KeyboardInterrupt):
            cpu(recipe, tmp_path / "out", force=True)
        monkeypatch.undo()
        assert not (tmp_path / "out" / "report.json").exists()
        if kill_after > 1:
            with pytest.raises(OutputError, match=r"is not empty .* --force"):
                cpu(recipe, tmp_path / "out")
            cpu(recipe, tmp_path / "out", force=True)
        else:  # only the report is gone: the run goes on from its done-records
            assert not cpu(recipe, tmp_path / "out").already_complete
        assert verify(tmp_path / "out") == []


HOLD = "import sys, time, pathlib\nfrom curation.record.folder import locked\nwith locked(pathlib.Path(sys.argv[1])):\n"


def test_a_second_run_in_one_folder_is_refused(tmp_path: Path, corpus: Path):
    code = HOLD + "    print('held', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, tmp_path / "out"], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(OutputError, match="another run is writing to"):
            cpu(recipe_of(corpus), tmp_path / "out")
        holder.kill()  # no lock is left behind
    assert not cpu(recipe_of(corpus), tmp_path / "out").already_complete


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": -1}, "workers must be 0"),
        ({"workers": 10**400}, "workers must be 0"),
        ({"slice_bytes": -1}, "slice_bytes must be 0"),
        ({"scheduler": "thread"}, "scheduler must be auto, threads, processes or an address"),
        ({"engine": "tpu"}, "engine must be one of auto, cpu, gpu"),
    ],
)
def test_wrong_options(tmp_path: Path, corpus: Path, options: dict[str, Any], message: str):
    with pytest.raises(EngineError, match=message):
        run(recipe_of(corpus), tmp_path / "out", **{"engine": "cpu", **options})


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("default", "nothing to read: .* in Python input=PATH or FRAME"),
        ({"stages": []}, "nothing to read"),
        (None, "expected a recipe, got NoneType"),
        (load_recipe("default"), "nothing to read: give --input PATH, or input: in the recipe"),
    ],
    ids=["name", "dictionary", "nothing", "no input"],
)
def test_what_cannot_be_run(tmp_path: Path, recipe: Any, message: str):
    with pytest.raises(RecipeError, match=message):
        cpu(recipe, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_that_cannot_be_loaded_stops_the_run_first(tmp_path: Path, corpus: Path):
    with pytest.raises((RecipeError, ValueError), match="no-such-tokenizer"):
        cpu(recipe_of(corpus, tokenizer={"name": "./no-such-tokenizer.json"}), tmp_path / "out")
    assert files_below(tmp_path / "out") == []


def test_what_a_link_points_to_stays(tmp_path: Path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "folder").mkdir()
    for link in ("link", "folder/link"):
        (tmp_path / link).symlink_to(tmp_path / "kept")
    for gone in ("link", "folder", "never there"):
        files.remove(tmp_path / gone)
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]
