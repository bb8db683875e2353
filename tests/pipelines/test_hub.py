# SPDX-License-Identifier: Apache-2.0
"""Data sets that Hugging Face `datasets` streams, from local Parquet and JSON folders; what the hub would answer is
put in place of it, and connections are broken between batches."""

import errno
import gzip
import html
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pac
import pyarrow.json as paj
import pyarrow.parquet as pq
import pytest

from curation.base.errors import InputError, OutputError, RecipeError
from curation.reading import hub
from curation.reading.documents import REJECTED
from curation.reading.inputs import Input
from curation.recipes.recipe import convert_recipe
from curation.results.finished.verify import verify
from curation.results.report.html import as_html
from curation.results.report.page.rendering import MAX_CHARACTERS
from curation.results.report.text import print_funnel
from curation.running.planning import stream_inputs
from curation.running.run import run
from tests.needs import needs
from tests.reading.test_formats import read as read_files
from tests.runs import data_digests, kept_rows, rejected_rows, report_of

datasets = needs("datasets")

ROWS = 1500  # of each of three files: some batches of BATCH_ROWS each


def text_of(number: int) -> str:
    return f"text number {number} " + "word " * (number % 7)


TEXTS = [text_of(number) for number in range(3 * ROWS)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_inputs, "FIRST_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", "/dev/null/cache")  # which is not needed


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A data set of three files with `content` in place of `text`, and one null."""
    format_ = getattr(request, "param", "parquet")
    path = tmp_path / "set"
    path.mkdir()
    for k in range(3):
        numbers = range(k * ROWS, (k + 1) * ROWS)
        rows = [{"id": n, "content": text_of(n) if n != 7 else None, "url": f"u{n}"} for n in numbers]
        if format_ == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path / f"p{k}.parquet", row_group_size=400)
        else:
            (path / f"p{k}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


both = pytest.mark.parametrize("folder", ["parquet", "jsonl"], indirect=True)  # `datasets` reads them differently


def recipe_of(*inputs: dict[str, Any], **rest: Any) -> Any:
    return convert_recipe({"input": list(inputs), "stages": [], "output": {"formats": []}, **rest})


def go(out: Path, *inputs: dict[str, Any], **rest: Any) -> dict[str, Any]:
    report = run(recipe_of(*inputs, **rest), out, engine="cpu").report
    assert verify(out) == []
    return report


def kept(out: Path) -> list[tuple[str, str]]:
    return [(id_, text) for _, id_, _, text in kept_rows(out)]


def numbered(numbers: Iterator[int] | range) -> list[tuple[str, str]]:
    return [(str(n), text_of(n)) for n in numbers if n != 7]


class Breaks:
    """Lets `datasets` give `after` batches, then raises, once for each entry of `after`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *after: int, error: Exception | None = None) -> None:
        self.left, self.error, self.batches = list(after), error or ConnectionError("peer went away"), 0
        original = datasets.IterableDataset.iter

        def broken(dataset: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            for given, batch in enumerate(original(dataset, *args, **kwargs)):
                if self.left and given == self.left[0]:
                    self.left.pop(0)
                    raise self.error
                self.batches += 1
                yield batch

        monkeypatch.setattr(datasets.IterableDataset, "iter", broken)


@both
def test_a_data_set_is_read_whole_and_its_text_column_is_found(folder: Path, tmp_path: Path):
    report = go(tmp_path / "out", {"path": f"hf:{folder}", "name": "set", "columns": ["url"]})
    assert kept(tmp_path / "out") == numbered(range(3 * ROWS))
    assert report["documents"]["read"] == 3 * ROWS
    (rejected,) = rejected_rows(tmp_path / "out")
    assert (rejected["doc"], rejected["file"]) == (7, f"hf:{folder}[train]")
    assert rejected["error"] in ("text is null", "p0.jsonl, line 8: field 'content' is null, expected a string")
    again = run(recipe_of({"path": f"hf:{folder}", "name": "set", "columns": ["url"]}), tmp_path / "out", engine="cpu")
    assert again.already_complete


@pytest.mark.parametrize("format_", ["jsonl", "csv", "parquet"])
def test_raw_documents_of_a_data_set(folder: Path, tmp_path: Path, format_: str):
    columns = {"url": "url"} if format_ == "csv" else ["url"]
    entry = {"path": f"hf:{folder}", "name": "set", "columns": columns, "sample": 0.5, "max_documents": 100}
    go(tmp_path / "out", entry, output={"formats": [], "raw": format_, "part_documents": 40})
    readers = {"jsonl": paj.read_json, "csv": pac.read_csv, "parquet": pq.read_table}
    paths = sorted((tmp_path / "out" / "raw").iterdir())
    rows = [row for path in paths for row in readers[format_](path).to_pylist()]
    assert [path.name for path in paths] == [f"part-0000{k}.{format_}" for k in range(3)]
    assert [(str(row["id"]), row["text"]) for row in rows] == kept(tmp_path / "out")
    assert len(rows) + len(rejected_rows(tmp_path / "out")) == 100
    assert all(row["url"] == f"u{row['id']}" for row in rows)


@pytest.mark.parametrize("limit", [1, 200, 201, 1000, 2000])
def test_a_budget_of_documents(folder: Path, tmp_path: Path, limit: int):
    go(tmp_path / "out", {"path": f"hf:{folder}", "name": "set", "max_documents": limit})
    assert kept(tmp_path / "out") == numbered(range(limit))


@both
def test_skip_and_limit(folder: Path, tmp_path: Path):
    entry = {"path": f"hf:{folder}", "name": "set", "skip": 150, "limit": 100}
    go(tmp_path / "out", entry)
    assert kept(tmp_path / "out") == numbered(range(150, 250))
    with pytest.raises(InputError, match=r"skip 9,999,999 leaves nothing of it. Lower skip"):
        go(tmp_path / "far", entry | {"skip": 9_999_999})
    with pytest.raises(InputError, match="gave 100 documents, min_documents asks for 101"):
        go(tmp_path / "few", entry | {"min_documents": 101})


def test_a_budget_of_bytes_ends_with_the_document_that_reaches_it(folder: Path, tmp_path: Path):
    report = go(tmp_path / "out", {"path": f"hf:{folder}", "name": "set", "max_bytes": 20_000, "min_bytes": 20_000})
    size, expected = 0, []
    for number in range(3 * ROWS):
        expected.append(number)
        size += len(text_of(number)) if number != 7 else 0
        if size >= 20_000:
            break
    assert kept(tmp_path / "out") == numbered(iter(expected)) and report["bytes"]["read"] == size


def test_a_budget_of_all_inputs_together(folder: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    pq.write_table(pa.table({"text": [f"other {n}" for n in range(500)]}), other / "o.parquet")
    inputs = [
        {"path": f"hf:{folder}", "name": "set", "max_documents": 300},
        {"path": f"hf:{other}", "name": "other"},
        {"path": f"hf:{other}", "name": "third", "revision": "main"},
    ]
    report = go(tmp_path / "out", *inputs, budget={"max_documents": 450})
    assert [entry["documents_read"] for entry in report["sources"]] == [300, 150, 0] and report["warnings"] == []
    size = sum(len(text_of(number)) for number in range(300) if number != 7)
    report = go(tmp_path / "bytes", *inputs, budget={"max_bytes": size + len("other 0")})
    assert [entry["documents_read"] for entry in report["sources"]] == [300, 1, 0] and report["warnings"] == []


def test_the_text_column_is_found_per_data_set(folder: Path, tmp_path: Path):
    inputs = [{"path": f"hf:{folder}", "name": "content", "max_documents": 5}]
    for name in ("text", "description"):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"label": [1, 2], name: [f"{name} {k}" for k in "ab"]}), tmp_path / name / "p.parquet")
        inputs.append({"path": f"hf:{tmp_path / name}", "name": name})
    go(tmp_path / "out", *inputs)
    assert [text for _, text in kept(tmp_path / "out")] == [
        *map(text_of, range(5)), "text a", "text b", "description a", "description b",
    ]  # fmt: skip


def test_a_budget_that_is_never_reached_is_said(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    size = sum(len(text_of(number)) for number in range(3 * ROWS) if number != 7)
    taken = f"ended after {3 * ROWS:,} documents and {size:,} bytes of text, before the budget"
    entry = {"path": f"hf:{folder}", "name": "set"}
    for number, (limits, budget, told) in enumerate(
        (
            ({"max_documents": 9999}, {}, [f"input 'set' {taken} (max_documents 9,999) was reached"]),
            ({"max_bytes": size + 1}, {}, [f"input 'set' {taken} (max_bytes {size + 1:,}) was reached"]),
            ({}, {"max_bytes": 10**9}, [f"all data sets {taken} (max_bytes 1,000,000,000) was reached"]),
            ({"max_documents": 9999, "max_bytes": size}, {}, []),
            ({"max_documents": 9999}, {"max_documents": 3 * ROWS}, []),
        )
    ):
        report = go(tmp_path / str(number), entry | limits, budget=budget)
        assert report["warnings"] == told
        print_funnel(report)
        shown, page = capsys.readouterr().out, html.unescape(as_html(report))
        assert all(f"warning: {line}" in shown and line[:MAX_CHARACTERS] in page for line in told)


def test_below_the_minimum_is_an_error(folder: Path, tmp_path: Path):
    with pytest.raises(InputError, match=r"gave [\d,]+ bytes of text, min_bytes asks for 1,000,000,000"):
        go(tmp_path / "out", {"path": f"hf:{folder}", "min_bytes": 1_000_000_000})
    with pytest.raises(InputError, match="and the budget ends there"):
        go(tmp_path / "two", {"path": f"hf:{folder}", "max_bytes": 10, "min_bytes": 1_000_000_000})
    with pytest.raises(InputError, match=r"the input gave .* min_bytes asks for 1,000,000,000"):
        go(tmp_path / "three", {"path": f"hf:{folder}"}, budget={"min_bytes": 1_000_000_000})


@both
def test_a_sample_does_not_depend_on_where_it_is_taken(folder: Path, tmp_path: Path):
    """The same documents from the stream, within a budget, and from the files themselves."""
    go(tmp_path / "stream", {"path": f"hf:{folder}", "name": "set", "sample": 0.3})
    go(tmp_path / "files", {"path": str(folder), "name": "set", "sample": 0.3})
    found = kept(tmp_path / "stream")
    assert found == kept(tmp_path / "files") and 0.25 < len(found) / (3 * ROWS) < 0.35
    report = go(tmp_path / "some", {"path": f"hf:{folder}", "name": "set", "sample": 0.3, "max_documents": 100})
    assert report["documents"]["read"] == 100 and found[:99] == kept(tmp_path / "some")[:99]


# Connections that break


@both
def test_a_broken_connection_is_taken_up_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    go(tmp_path / "whole", {"path": f"hf:{folder}", "name": "set"})
    breaks = Breaks(monkeypatch, 3, 0, 1, 1, 5, 0, 2, 1, 4, 0)
    go(tmp_path / "broken", {"path": f"hf:{folder}", "name": "set"})
    assert breaks.left == [] and breaks.batches <= -(-3 * ROWS // hub.BATCH_ROWS) + 1  # none is read twice
    assert data_digests(tmp_path / "broken") == data_digests(tmp_path / "whole")


def test_what_came_is_kept_for_the_next_try(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    entry = {"path": f"hf:{folder}", "name": "set", "max_documents": 4000}
    go(tmp_path / "whole", entry)
    with monkeypatch.context() as broken:
        Breaks(broken, 4, *[0] * stream_inputs.MAX_TRIES)
        with pytest.raises(
            InputError, match=r"broke after 800 documents, 4 times .* are kept\. Rerun the same command"
        ):
            go(tmp_path / "out", entry)
    assert not (tmp_path / "out" / "report.json").exists()
    breaks = Breaks(monkeypatch)
    go(tmp_path / "out", entry)
    assert breaks.batches == (4000 - 800) // hub.BATCH_ROWS
    assert data_digests(tmp_path / "out") == data_digests(tmp_path / "whole")
    assert not (tmp_path / "out" / "_work").exists()


@both
def test_a_killed_run_goes_on_with_its_files(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream_inputs, "MAX_FILE_ROWS", 500)
    entry = {"path": f"hf:{folder}", "name": "set"}
    go(tmp_path / "whole", entry)
    with monkeypatch.context() as killed:
        Breaks(killed, 11, error=KeyboardInterrupt())  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt):
            go(tmp_path / "out", entry)
    breaks = Breaks(monkeypatch)
    go(tmp_path / "out", entry)
    assert breaks.batches < -(-3 * ROWS // hub.BATCH_ROWS)
    assert data_digests(tmp_path / "out") == data_digests(tmp_path / "whole")


def test_another_input_begins_anew(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as broken:
        Breaks(broken, 4, *[0] * stream_inputs.MAX_TRIES)
        with pytest.raises(InputError):
            go(tmp_path / "out", {"path": f"hf:{folder}", "name": "set"})
    go(tmp_path / "out", {"path": f"hf:{folder}", "name": "set", "text_column": "url", "max_documents": 10})
    assert [text for _, text in kept(tmp_path / "out")] == [f"u{n}" for n in range(10)]


def test_a_folder_that_changed_between_two_tries_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    entry = {"path": f"hf:{folder}", "name": "set"}
    with monkeypatch.context() as broken:
        Breaks(broken, 4, *[0] * stream_inputs.MAX_TRIES)
        with pytest.raises(InputError, match="the connection broke after 800 documents"):
            go(tmp_path / "out", entry)
    last = sorted(folder.iterdir())[-1]
    os.utime(last, (1, 1))
    with pytest.raises(InputError, match=r"has changed since its first documents were read. Use a new --output, or"):
        go(tmp_path / "out", entry)
    run(recipe_of(entry), tmp_path / "out", engine="cpu", force=True)
    assert kept(tmp_path / "out") == numbered(range(3 * ROWS))


def test_memory_holds_one_piece(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream_inputs, "MAX_FILE_ROWS", 400)
    recipe = recipe_of({"path": f"hf:{folder}", "name": "set"}, output={"formats": [], "keep_work": True})
    run(recipe, tmp_path / "out", engine="cpu")
    pieces = sorted((tmp_path / "out" / "_work" / "collected" / "set").glob("*.arrow"))
    rows = [len(pa.ipc.open_file(path).read_all()) for path in pieces]
    assert sum(rows) == 3 * ROWS and max(rows) <= 400 + hub.BATCH_ROWS


# What the hub answers


class AnswerError(Exception):
    """An HTTP error as huggingface_hub has them."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status} Client Error")
        self.response = type("Response", (), {"status_code": status})()


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def not_found(text: str) -> Exception:
    return datasets.exceptions.DatasetNotFoundError(text)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (not_found("Dataset 'o/n' doesn't exist on the Hub or cannot be accessed."), "was not found (404). Check the"),
        (caused(not_found("Dataset doesn't exist"), AnswerError(404)), "was not found (404)"),
        (
            caused(not_found("Dataset doesn't exist"), AnswerError(401)),
            "denies access (401). Check the name; if it is right, accept the terms",
        ),
        (caused(OSError("no"), AnswerError(403)), "denies access (403)"),
        (not_found("Dataset 'o/n' is a gated dataset on the Hub."), "denies access (gated)"),
        (ConnectionError("Couldn't reach 'o/n' on the Hub"), "the hub cannot be reached (Couldn't reach 'o/n'"),
        (datasets.exceptions.DatasetsError("broken"), "cannot be read: DatasetsError: broken"),
        (
            ValueError("BuilderConfig '20231101.xx' not found. Available: ['20231101.en', '20231101.de']"),
            "did you mean",
        ),
        (ValueError("Bad split: trian. Available splits: ['train', 'test']"), "has no split 'train'"),
        (ValueError("Config name is missing.\nPlease pick one among the available configs: ['a', 'b']"), "of 'a', 'b'"),
        (RuntimeError("Dataset scripts are no longer supported, but found o.py"), "Scripts are not run. Use a copy in"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full (ENOSPC)"),
        (caused(RuntimeError("no"), PermissionError(errno.EACCES, "no", "/x")), "/x: permission denied (EACCES)"),
        (OSError(errno.ENETUNREACH, "no network"), "the hub cannot be reached ([Errno 101] no network)"),
        (OSError("Corrupt snappy compressed data."), "cannot be read: OSError: Corrupt snappy compressed"),
        (not_found("Revision '' doesn't exist for dataset"), "has no revision '' (404). Correct revision"),
        (not_found(f"Revision '{'a' * 40}' doesn't exist"), "no longer has the commit aaaa"),
        (ImportError("No module named 'h5py'"), "needs another package (No module named 'h5py')"),
        (TypeError("x" * 5000), "x" * 300 + ".... Check its README.md"),
    ],
)
def test_each_answer_of_the_hub_is_one_message(
    error: Exception, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def answer(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(datasets, "load_dataset_builder", answer)
    with pytest.raises(InputError, match=re.escape(told)) as raised:
        go(tmp_path / "out", {"path": "hf:o/n", "config": "20231101.xx"})
    assert str(raised.value).startswith("hf:o/n:20231101.xx[train]") and "\n" not in str(raised.value)


def test_wrong_splits_configurations_and_folders_of_the_library_itself(folder: Path, tmp_path: Path):
    with pytest.raises(InputError, match=r"has no split 'trian'; did you mean train\?"):
        go(tmp_path / "a", {"path": f"hf:{folder}", "split": "trian"})
    with pytest.raises(InputError, match="has no configuration 'defualt'; did you mean default"):
        go(tmp_path / "b", {"path": f"hf:{folder}", "config": "defualt"})
    with pytest.raises(InputError, match="was not found"):
        go(tmp_path / "c", {"path": f"hf:{tmp_path}/nothing"})


def test_a_data_set_whose_column_gets_another_name(folder: Path, tmp_path: Path):
    for name, columns in (("a", ["url"]), ("b", {"address": "url"})):
        go(tmp_path / name, {"path": f"hf:{folder}", "columns": columns})
    urls = pq.read_table(tmp_path / "a" / "documents")["url"]
    assert urls == pq.read_table(tmp_path / "b" / "documents")["address"] and urls.null_count < len(urls)


def test_a_data_set_without_the_columns(folder: Path, tmp_path: Path):
    plain = tmp_path / "plain"
    plain.mkdir()
    pq.write_table(pa.table({"n": [1], "label": ["x"]}), plain / "p.parquet")
    with pytest.raises(InputError, match=r"has no column text or content.*it has \['n', 'label'\]. Set text_column"):
        go(tmp_path / "a", {"path": f"hf:{plain}"})
    with pytest.raises(InputError, match=r"column 'n' of hf:.* is int64, expected strings. Set text_column"):
        go(tmp_path / "b", {"path": f"hf:{plain}", "text_column": "n"})
    with pytest.raises(InputError, match=r"has no column nothing; .* Set columns"):
        go(tmp_path / "c", {"path": f"hf:{folder}", "columns": ["nothing"]})


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(InputError, match=r"hf:o/n\[train\] needs Hugging Face datasets .*; .*gpu-pipeline\[hub\]'"):
        go(tmp_path / "out", {"path": "hf:o/n"})


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"path": "hf:"}, "must name a data set"),
        (
            {"path": "hf:o/n", "format": "jsonl"},
            "format is for files, hf:o/n is a data set of Hugging Face; leave format",
        ),
        ({"path": "hf:o/n", "separator": "x"}, "separator is for files, hf:o/n is a data set"),
        (
            {"path": "hf:o/n", "kind": "files"},
            "hf:o/n is a data set of Hugging Face; leave kind out, or write kind: hub",
        ),
        ({"path": "a.jsonl", "kind": "hub"}, "a.jsonl must name a data set, for example hf:ORG/NAME - at `$.input[0]`"),
        ({"path": "a.jsonl", "kind": {}}, "Expected `str`, got `dict` - at `$.input[0].kind`"),
        ({"path": "a.jsonl", "kind": "file"}, "Invalid value 'file' - at `$.input[0].kind`"),
        ({"path": "a.jsonl", "config": "x"}, "config is for data sets of Hugging Face; write path: 'hf:a.jsonl'"),
        ({"path": "hf:o/n", "split": {"at": "x"}}, "split of hf:o/n is a part of the data set, such as train"),
        ({"path": "a.jsonl", "split": "test"}, "split is for data sets of Hugging Face"),
        ({"path": "hf:o/n", "max_bytes": -1}, "max_bytes must be 0"),
        ({"path": "a", "sample": 0}, "sample must be above 0"),
        ({"path": "a", "sample": 1.5}, "sample must be above 0 and at most 1"),
        ({"path": "a", "copies": 0}, "copies must be at least 1"),
    ],
)
def test_wrong_inputs_are_refused_when_read(entry: dict[str, Any], told: str):
    with pytest.raises(RecipeError, match=re.escape(told)):
        recipe_of(entry)


def test_names_are_made_of_the_data_set():
    assert Input(path="hf:wikimedia/wikipedia").path == "hf:wikimedia/wikipedia"
    from curation.reading.inputs import input_names

    assert input_names([Input(path="hf:wikimedia/wikipedia"), Input(path="hf:fancyzhx/ag_news")]) == [
        "wikipedia",
        "ag_news",
    ]


def test_another_recipe_over_a_plan_is_still_refused(folder: Path, tmp_path: Path):
    go(tmp_path / "out", {"path": f"hf:{folder}", "name": "set"})
    with pytest.raises(OutputError, match="changed: input"):
        go(tmp_path / "out", {"path": f"hf:{folder}", "name": "set", "max_documents": 5})
    assert report_of(tmp_path / "out")["documents"]["read"] == 3 * ROWS


# Files of a folder -> what both paths read: (id, text, n) of each document, and errors.
FILES: dict[str, tuple[dict[str, bytes], list[tuple[str | None, ...]], list[str]]] = {
    "zeros": (
        {"a.csv": b"id,n,text\n007,01234,NA\n008,1.0,null\n"}, [("007", "01234", "NA"), ("008", "1.0", "null")], [],
    ),
    "dates": (
        {"a.jsonl": b'{"id": "1", "n": "2024-01-02T03:04:05Z", "text": "2024-01-01"}\n'},
        [("1", "2024-01-02T03:04:05Z", "2024-01-01")], [],
    ),
    "integers": (
        {"a.jsonl": b'{"id": 12345678901234567890123, "n": 18446744073709551616, "text": "a"}\n'},
        [("12345678901234567890123", "18446744073709551616", "a")], [],
    ),
    "mixed": (
        {"a.jsonl": b'{"id": 1, "n": [1, "a"], "text": "a"}\n{"id": "b", "n": {"k": null}, "text": "b"}\n'},
        [("1", '[1,"a"]', "a"), ("b", '{"k":null}', "b")], [],
    ),
    "marks": (
        {"a.jsonl": b'\xef\xbb\xbf{"id": 1, "n": 2, "text": "a"}\n', "b.jsonl": b'{"id": 2, "n": 2, "text": "b"}\n'},
        [("1", "2", "a"), ("2", "2", "b")], [],
    ),
    "table mark": ({"a.csv": b'\xef\xbb\xbf"id",n,text\r\n1,2,"a\r\nb"\r\n'}, [("1", "2", "a\r\nb")], []),
    "separator": ({"a.csv": b"sep=;\r\nid;n;text\r\n1;2;a\r\n"}, [("1", "2", "a")], []),
    "UTF-16": ({"a.csv": "\ufeffid,n,text\n1,2,é\n".encode("utf-16-le")}, [("1", "2", "é")], []),
    "tabs": ({"a.tsv": b"id\tn\ttext\n1\t2\ta, b\n"}, [("1", "2", "a, b")], []),
    "compressed": ({"a.csv.gz": gzip.compress(b"id,n,text\n01,2,a\n")}, [("01", "2", "a")], []),
    "empty": ({"a.csv": b"id,n,text\n1,2,a\n", "b.csv": b""}, [("1", "2", "a")], []),
    "bad": (
        {"a.jsonl": b'{"id": 1, "n": 2, "text": "a"}\n\n{"text": \n{"id": 3, "n": 4, "text": "c"}\n'},
        [("1", "2", "a"), ("3", "4", "c")], ["line 3: not valid JSON: unexpected end of data: line 1 column 10"],
    ),
    "bad rows": (
        {"a.csv": b'id,n,text\n1,2\n"2",3,"b "c" d"\n4,5,d\n'}, [("4", "5", "d")],
        ["line 2: expected 3 columns, got 2", "line 3: a quoted field that begins in this row does not end where"],
    ),
}  # fmt: skip


def read_set(folder: Path) -> tuple[list[tuple[str | None, ...]], list[str]]:
    tables = [table for table, _ in hub.HubSource(Input(f"hf:{folder}", columns=["n"]))]
    rows = [row for table in tables for row in table.to_pylist()]
    kept_ = [(row["id"], row["n"], row["text"]) for row in rows if row["text"] is not None]
    return kept_, [row[REJECTED] for row in rows if row["text"] is None]


def test_lines_and_tables_of_a_data_set_are_read_as_files(tmp_path: Path):
    for name, (files, expected, errors) in FILES.items():
        folder = tmp_path / name
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
        documents, rejected = read_set(folder)
        assert documents == expected, name
        assert [error.split(", ", 1)[1][: len(told)] for error, told in zip(rejected, errors, strict=True)] == errors
        found = read_files(str(folder), columns=["n"])
        assert list(zip(found["id"], found["n"], found["text"], strict=True)) == expected, name
        lines = [f"line {entry.line + 1}: {entry.error}" for entry in found["rejected"]]
        assert [line[: len(told)] for line, told in zip(lines, errors, strict=True)] == errors, name


def test_types_that_a_card_declares_and_arrays_are_the_librarys(tmp_path: Path):
    (tmp_path / "card").mkdir()
    (tmp_path / "card" / "a.csv").write_text("id,n,text\n007,1.50,a\n")
    (tmp_path / "card" / "README.md").write_text(
        "---\ndataset_info:\n  features:\n  - {name: id, dtype: int64}\n  - {name: n, dtype: float64}\n"
        "  - {name: text, dtype: string}\n---\n"
    )
    tables = [table for table, _ in hub.HubSource(Input(f"hf:{tmp_path / 'card'}", columns=["n"]))]
    assert tables[0].to_pylist() == [{"id": "7", "text": "a", "n": "1.5"}]
    (tmp_path / "array").mkdir()
    (tmp_path / "array" / "a.json").write_text(
        '[\n{"id": "x", "n": 1, "text": "a"},\n{"id": "y", "n": 2, "text": "b"}\n]\n'
    )
    assert read_set(tmp_path / "array") == ([("x", "1", "a"), ("y", "2", "b")], [])
