# SPDX-License-Identifier: Apache-2.0
"""Paths become files with names, files become slices; whatever cannot be read is said before a run."""

import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.base.errors import InputError
from curation.reading.extract_settings import Extract
from curation.reading.formats import FORMATS
from curation.reading.formats.tabular import row_groups
from curation.reading.inputs import FilesInput, HubInput, Input, input_names, list_inputs
from curation.reading.paths import find_files
from curation.reading.slices import cut_slices
from curation.reading.source_files import ReadOptions, SourceFile
from curation.reading.split_settings import Split

LINE = b'{"text": "a"}\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the test, with some files."""
    monkeypatch.chdir(tmp_path)
    for name in (
        "b.jsonl", "a.jsonl.gz", "c.ndjson", "d.json", "e.jsonl.zst", "README.rtf", "notes.log", ".hidden.jsonl",
        "_temporary.jsonl", "sub/x.jsonl", "sub/deep/y.jsonl", "sub/.git/z.jsonl", "sub/_old/z.jsonl", "UPPER.JSONL.GZ",
    ):  # fmt: skip
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(LINE)
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "data" / "f.parquet")
    return tmp_path


def found(*paths: str, **options: Any) -> list[str]:
    files = find_files([Input(path=path, **options) for path in paths])
    return [os.path.relpath(file.path) for file in files]


def test_a_file(folder: Path):
    (file,) = find_files([Input(path="data/b.jsonl")])
    assert (file.source, file.format, file.compression, file.bytes) == ("b", "jsonl", "", len(LINE))
    assert file.path == str(folder / "data" / "b.jsonl")
    assert file.modified_ns == (folder / "data" / "b.jsonl").stat().st_mtime_ns
    (file,) = find_files([Input(path="data/a.jsonl.gz", name="news", text_column="body", id_column="key")])
    assert (file.source, file.compression, file.text_column, file.id_column) == ("news", "gzip", "body", "key")


def test_a_folder_gives_known_files_sorted_and_nothing_hidden(folder: Path):
    names = ("UPPER.JSONL.GZ", "a.jsonl.gz", "b.jsonl", "c.ndjson", "d.json", "e.jsonl.zst", "f.parquet")
    expected = [f"data/{name}" for name in (*names, "sub/x.jsonl", "sub/deep/y.jsonl")]
    assert found("data") == found("data/") == found("./data") == expected
    assert found(str(folder / "data")) == expected


NOT_READ = {  # inputs -> what one line says of files that are found and not read
    ("data",): (
        "4 files (28 bytes) in data not read, by names without a known format: 2 .log, 1 .rtf, 1 LICENSE. To read "
        f"them, make them an input with format: {', '.join(FORMATS)}. 4 files (56 bytes) not read, whose names or "
        "folders begin with _ or .: data/.hidden.jsonl, data/_temporary.jsonl, data/sub/_old/z.jsonl, .... To read "
        "such files, make them an input, as in path: data/.*.jsonl"
    ),
    ("data/sub/**/*.jsonl", "data/*.json"): "2 files (28 bytes) not read, whose names or folders begin with _ or .: "
    "data/sub/_old/z.jsonl, data/sub/deep/_y.jsonl. To read such files, make them an input, as in path: data/sub/_old",
    ("data/sub/_old", "data/_*.jsonl"): "",
    ("data/*.jsonl",): "2 files (28 bytes) not read, whose names or folders begin with _ or .: data/.hidden.jsonl, "
    "data/_temporary.jsonl. To read such files, make them an input, as in path: data/.*.jsonl",
}  # fmt: skip


def test_one_line_counts_the_files_that_are_not_read(folder: Path, caplog: pytest.LogCaptureFixture):
    """Not those of other programs and of runs, and of no format that is read."""
    for name in ("_SUCCESS", "._x.crc", "deep/_y.jsonl", ".cache/x.jsonl", "_temporary/0/x.jsonl", "_old/.git/x.json",
                 "_r/_work/plan.json", ".ipynb_checkpoints/x.csv", "LICENSE", "../more.log",
                 "../run/_x.jsonl"):  # fmt: skip
        (folder / "data" / "sub" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "data" / "sub" / name).write_bytes(LINE if name[-1] == "l" and "log" not in name else b"")
    for paths, told in NOT_READ.items():
        caplog.clear()
        find_files([Input(path=path) for path in paths], leave_out=folder / "data" / "run")
        assert [record.getMessage() for record in caplog.records] == ([told] if told else [])


def test_a_folder_with_hidden_files_alone_is_not_called_empty(folder: Path):
    (folder / "h").mkdir()
    (folder / "h" / "_a.jsonl").write_bytes(LINE)
    with pytest.raises(
        InputError, match=r"holds no input file; .*\. 1 file \(14 bytes\) not read, whose .* path: h/_\*.jsonl$"
    ):
        find_files([Input(path="h")])


def test_hidden_files_of_a_store_are_counted_without_their_folders(caplog: pytest.LogCaptureFixture):
    store = fsspec.filesystem("memory")
    for name in ("a.jsonl", "_b.jsonl", ".c.crc", "x/_d.jsonl", "_delta/e.jsonl"):
        store.pipe(f"/hidden/{name}", LINE)
    assert len(find_files([Input(path="memory://hidden/**")])) == 1
    store.rm("/hidden", recursive=True)
    assert [record.getMessage() for record in caplog.records] == [
        "2 files (28 bytes) not read, whose names or folders begin with _ or .: memory://hidden/_b.jsonl, "
        "memory://hidden/x/_d.jsonl. To read such files, make them an input, as in path: memory://hidden/_*.jsonl"
    ]


def test_a_glob(folder: Path):
    assert found("data/*.jsonl") == ["data/b.jsonl"]
    assert found("data/_*.jsonl") == ["data/_temporary.jsonl"]
    assert found("data/sub/**/*.jsonl") == ["data/sub/deep/y.jsonl", "data/sub/x.jsonl"]
    assert found("data/sub/_old/*.jsonl") == ["data/sub/_old/z.jsonl"]
    assert found("data/[bc].*json*") == ["data/b.jsonl", "data/c.ndjson"]
    assert found("data/.*.jsonl") == ["data/.hidden.jsonl"]


def test_an_existing_file_wins_over_its_reading_as_a_glob(folder: Path):
    for name in ("[x].jsonl", "x.jsonl"):
        (folder / name).write_bytes(LINE)
    assert found("[x].jsonl") == ["[x].jsonl"]


def test_formats_by_suffix_or_as_asked_for(folder: Path):
    formats = {os.path.basename(file.path): file.format for file in find_files([Input(path="data")])}
    assert formats.pop("f.parquet") == "parquet" and set(formats.values()) == {"jsonl"}
    (file,) = find_files([Input(path="data/notes.log", format="jsonl")])
    assert file.format == "jsonl"


def test_an_input_made_in_python():
    assert Input(path=Path("data") / "b.jsonl") == Input(path="data/b.jsonl") == Input("data/b.jsonl")
    for wrong in ({"path": 5}, {"path": b"x"}, {"path": "x", "columns": "url"}):
        with pytest.raises(
            ValueError, match=r"^(path must be a string|columns must be a list or a mapping), not (5|b'x'|'url')$"
        ):
            Input(**wrong)


def test_the_kind_of_an_input_is_told_by_its_path():
    files, hub = Input(path="a", encoding="latin-1"), Input(path="hf:o/n", split="test", columns=["url"])
    assert (type(files), type(hub)) == (FilesInput, HubInput)
    assert list_inputs(
        [{"path": "a", "encoding": "latin-1"}, {"path": "hf:o/n", "split": "test", "columns": ["url"]}]
    ) == [
        files,
        hub,
    ]
    for entry in (files, hub):
        assert list_inputs(msgspec.to_builtins(entry)) == list_inputs(entry) == [entry]
    assert not {*msgspec.to_builtins(files)} & {"split", "config"}
    assert not {*msgspec.to_builtins(hub)} & {"base", "format"}


def test_settings_of_the_other_kind_may_have_their_defaults():
    assert Input(path="a", split="train", max_bytes=0, kind="files") == FilesInput(path="a")
    assert Input(path="hf:o/n", base="", format="auto") == HubInput(path="hf:o/n")
    with pytest.raises(ValueError, match="split is for data sets of Hugging Face; write path: 'hf:b', or") as error:
        list_inputs(["a", {"path": "b", "split": "\n"}])
    assert str(error.value).endswith('or split: {at: "\\n"} to split documents at a pattern - at `$[1]`')
    assert Input(path=Path("hf:o/n")) == HubInput(path="hf:o/n")
    with pytest.raises(ValueError, match="kind must be files or hub, not 'x'; leave it out"):
        Input(path="a", kind="x")
    with pytest.raises(TypeError, match="nothing"):
        Input(path="a", nothing=1)


def test_a_file_has_the_reading_settings_of_its_input(folder: Path):
    settings = {
        "text_column": "t", "id_column": "i", "columns": ["c"], "max_document_bytes": 7, "sample": 0.5,
        "keep_blank": True, "separator": "x", "encoding": "latin-1", "delimiter": ";", "quote": "'",
        "escape": "\\", "header": False, "split": Split(sentences=2), "extract": Extract(lists="drop"),
    }  # fmt: skip
    shared = {*FilesInput.__struct_fields__} & {*SourceFile.__struct_fields__} - {"path", "format"}
    assert settings.keys() == shared
    for field, value in settings.items():
        form = {"separator": "text", "extract": "html"}.get(field, "csv")
        (file,) = find_files([Input(path="data/notes.log", format=form, **{field: value})])
        assert getattr(file, field) == value
    settings = {field: settings[field] for field in ReadOptions.__struct_fields__}
    (file,) = find_files([Input(path="hf:o/n", **settings)])
    assert {field: getattr(file, field) for field in settings} == settings and file.format == "huggingface"


WRONG_PATHS = {
    "data/none.jsonl": r"input data/none.jsonl does not exist \(working directory: /",
    "data/*.csv": r"no file matches data/\*.csv",
    "data/su?": r"no file matches",
    "empty": r"folder empty holds no input file; expected names ending in \.jsonl, ",
    "data/notes.log": r"notes.log does not tell its format; expected .*\.jsonl\.xz\. Set format: to one of jsonl, p",
    "data/*": r"the name of data/README.rtf does not tell its format",
    "packed.parquet.gz": r"Parquet has internal compression; decompress the file first",
    "-": r"input - is no regular file: inputs are read several times, and by several workers",
    "pipe.jsonl": r"input pipe\.jsonl is no regular file: .* Write it to a file first",
    "run": r"run is the output folder of a run; to read its documents: run/documents",
}


@pytest.mark.parametrize("path", WRONG_PATHS)
def test_wrong_paths(folder: Path, path: str):
    (folder / "empty").mkdir()
    (folder / "packed.parquet.gz").write_bytes(b"")
    os.mkfifo(folder / "pipe.jsonl")
    made_run(folder / "run", "_work/plan.json", b"{}")
    with pytest.raises(InputError, match=WRONG_PATHS[path]):
        found(path)


def test_paths_in_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(folder))
    (folder / "list").write_text("~/data/b.jsonl\n")
    assert found("~/data/b.jsonl") == found("~/data/b.json*") == found("@~/list") == ["data/b.jsonl"]
    assert len(found("~/data")) == 9


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("b.jsonl", {"encoding": "latin-1"}, r"b\.jsonl is read as jsonl, but encoding is for csv, tsv, text, html"),
        ("f.parquet", {"encoding": "utf-16"}, "is read as parquet, but encoding is for"),
        ("b.jsonl", {"separator": "x"}, "is read as jsonl, but separator is for text. Leave separator out"),
        ("g.csv", {"separator": "x"}, "is read as csv, but separator is for text"),
        ("b.jsonl", {"delimiter": ";"}, "b.jsonl is read as jsonl, but delimiter is for csv, tsv. Leave delimiter out"),
        ("f.parquet", {"quote": "'"}, "is read as parquet, but quote is for csv, tsv"),
    ],
)
def test_settings_that_nothing_reads(folder: Path, name: str, settings: dict[str, str], told: str):
    (folder / "data" / "g.csv").write_bytes(b"")
    with pytest.raises(InputError, match=told):
        find_files([Input(path=f"data/{name}", **settings)])


def test_settings_that_are_read(folder: Path):
    (folder / "data" / "g.csv").write_bytes(b"")
    find_files([Input(path="data/notes.log", format="text", encoding="latin-1", separator="x")])
    find_files([Input(path="data/g.csv", encoding="latin-1"), Input(path="data/b.jsonl", encoding="UTF8")])


@pytest.mark.parametrize(
    ("pattern", "closed"),
    [
        ("data/**/*.jsonl", "data/sub/deep"),
        ("data/*/*/*.jsonl", "data/sub/deep"),
        ("data/sub/deep/*.jsonl", "data/sub/deep"),
        ("**/*.jsonl", "data/sub/deep"),
        ("**", "data"),
        ("*/*.jsonl", "data"),
        ("data/[s]ub/deep/y*", "data/sub/deep"),
        ("data/.*/*.jsonl", "data/.cache"),
    ],
)
@pytest.mark.parametrize("call", ["scandir", "stat"])
def test_a_glob_that_meets_a_folder_that_is_closed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, closed: str, call: str
):
    """One that may not be listed, and one that may not be entered. A test may run as root, whom no mode stops."""
    (folder / "data" / ".cache").mkdir(exist_ok=True)
    assert find_files([Input(path="data/**/*.jsonl")])
    real = getattr(os, call)
    inside = (f"{closed}/.",) if call == "stat" else (closed, f"./{closed}")

    def refuse(path: Any = ".", **options: Any) -> Any:
        name = str(path).rstrip("/") if call == "scandir" else str(path)
        if name in inside:
            raise PermissionError(13, "Permission denied", path)
        return real(path, **options)

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(InputError, match=f"folder {re.escape(closed)} cannot be listed: permission denied"):
        find_files([Input(path=pattern)])


def test_a_file_in_a_folder_that_is_closed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.stat

    def stat(path: Any, **options: Any) -> Any:
        if str(path).startswith("data/sub/"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(InputError, match=r"cannot open data/sub/x\.jsonl: permission denied"):
        find_files([Input(path="data/sub/x.jsonl")])


def test_a_glob_needs_no_list_of_what_it_does_not_enter(folder: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.scandir

    def scandir(path: str) -> Any:
        assert "sub" not in str(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert found("data/b.*") == found("./data/b.js[o]nl") == ["data/b.jsonl"]
    assert found("data/*.ndjson") == ["data/c.ndjson"]


def test_a_name_on_the_way_may_be_closed_where_a_glob_has_none(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """`data/*/x.jsonl` asks for one name in each folder, and lists none of them."""
    real = os.scandir

    def scandir(path: str) -> Any:
        if str(path).rstrip("/").endswith("sub"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert found("data/*/x.jsonl") == ["data/sub/x.jsonl"]


def test_a_folder_that_cannot_be_listed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.scandir

    def scandir(path: str) -> Any:  # a test may run as root, whom no mode stops
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(InputError, match="folder data/sub/deep cannot be listed: permission denied"):
        found("data")


def test_a_name_that_is_not_utf8(folder: Path):
    path = os.fsdecode(os.fsencode(str(folder)) + b"/\xff.jsonl")
    try:
        Path(path).write_bytes(LINE)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    with pytest.raises(InputError, match="not valid UTF-8; rename"):
        found(str(folder))


def test_one_file_twice(folder: Path):
    (folder / "link.jsonl").symlink_to("data/b.jsonl")
    with pytest.raises(InputError, match=r"link\.jsonl and .*b\.jsonl are the same file"):
        found("data/b.jsonl", "link.jsonl")
    with pytest.raises(InputError, match=r"data/b\.jsonl is given twice; a file can be read once"):
        find_files([Input(path="data/b.jsonl", name="one"), Input(path="data/b.jsonl", name="one")])
    (folder / "data" / "again.jsonl").symlink_to("b.jsonl")
    with pytest.raises(InputError, match=r"are the same file; .*\. Leave one out: give a glob"):
        found("data")


def test_links_to_folders_are_followed_once(folder: Path):
    (folder / "more").mkdir()
    (folder / "more" / "m.jsonl").write_bytes(LINE)
    (folder / "data" / "more").symlink_to("../more")
    (folder / "data" / "same").symlink_to("more")
    (folder / "more" / "around").symlink_to("../data")
    (folder / "data" / "sub" / "up").symlink_to("..")
    files = found("data")
    assert [path for path in files if path.startswith(("data/more", "data/s"))] == [
        "data/more/m.jsonl", "data/sub/x.jsonl", "data/sub/deep/y.jsonl",
    ]  # fmt: skip
    assert len(files) == len(set(files)) == 10 and found("data") == files


def test_a_link_to_nothing(folder: Path):
    (folder / "data" / "gone.jsonl").symlink_to("nowhere")
    with pytest.raises(InputError, match=r"data/gone\.jsonl is a broken link: nowhere does not exist"):
        found("data")


def made_run(folder: Path, name: str, content: bytes) -> Path:
    for file in ("documents/part-00000.parquet", "rejected.jsonl", name):
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@pytest.mark.parametrize("name", ["_work/plan.json", "report.json"])
def test_folders_of_runs_are_no_inputs(folder: Path, name: str):
    run = made_run(folder / "data" / "out", name, b'{"recipe": {}, "documents_digest": ""}')
    files = found("data")
    assert len(files) == 9 and not any("out/" in path for path in files)
    assert [os.path.basename(path) for path in found("data/out/documents")] == ["part-00000.parquet"]
    (run / name).unlink()
    for content in (b'{"recipe": {}}', b"[]", b"{", b"\xff", b'"\xff"', b"[" * 100_000, b"9" * 5000):
        (run / "report.json").write_bytes(content)
        assert [path for path in found("data") if "out/" in path][-1] == "data/out/documents/part-00000.parquet"


def test_the_output_of_the_run_itself_is_left_out(folder: Path):
    (folder / "out").mkdir()
    for name in ("out/a.jsonl", "outer.jsonl"):
        (folder / name).write_bytes(LINE)

    def left(path: str, leave_out: str | Path = "out") -> list[str]:
        return [os.path.relpath(file.path) for file in find_files([Input(path=path)], leave_out)]

    assert "out/a.jsonl" in found(".") and "out/a.jsonl" in found("**/*.jsonl")
    (folder / "to_out").symlink_to("out")
    for path in (".", "**/*.jsonl", str(folder), "*/*.jsonl"):
        for leave_out in ("out", "out/", folder / "out"):
            files = left(path, leave_out)
            assert "data/b.jsonl" in files and not any(file.startswith(("out/", "to_out/")) for file in files)
    assert "outer.jsonl" in left(".")
    # What is named in it is taken: whether a run may write there is for others to say.
    assert left("out") == left("out/*.jsonl") == left("out/a.jsonl") == ["out/a.jsonl"]
    assert left("data/*.ndjson", ".") == ["data/c.ndjson"]


def test_outputs_that_are_passed_over_are_named_where_there_is_nothing_else(folder: Path):
    made_run(folder / "runs" / "a", "_work/plan.json", b"{}")
    passed = r"Output folders of runs are skipped; path: {}/documents reads one"
    with pytest.raises(InputError, match=r"folder runs holds no input file; .*" + passed.format("runs/a")):
        found("runs")
    (folder / "new" / "out").mkdir(parents=True)
    (folder / "new" / "out" / "a.jsonl").write_bytes(LINE)
    for path, message in (("new", "holds no input file"), ("new/*/*.jsonl", "no file matches")):
        with pytest.raises(InputError, match=message + ".*" + passed.format(str(folder / "new" / "out"))):
            find_files([Input(path=path)], "new/out")
    (folder / "empty").mkdir()
    for path in ("empty", "empty/*"):
        with pytest.raises(InputError) as error:
            find_files([Input(path=path)], "new/out")
        assert "skipped" not in str(error.value)


DEFAULT_NAMES = {
    "data/news.jsonl": "news",
    "data/news.2024.jsonl.gz": "news",
    "data/news/*.jsonl": "news",
    "data/news/": "news",
    "data/**/*.jsonl": "data",
    "/data/my news (1).jsonl": "my-news-1",
    "*.jsonl": "input",
    "../*.jsonl": "input",
    "новости.jsonl": "input",
    "2024.jsonl": "input-2024",
    "data/1e5/*": "input-1e5",
    "nan.jsonl": "input-nan",
    "_x_.jsonl": "x",
    ".": "input",
}


@pytest.mark.parametrize("path", DEFAULT_NAMES)
def test_names_made_from_paths(path: str):
    (name,) = input_names([Input(path=path)])
    assert name == DEFAULT_NAMES[path]
    assert Input(path=path, name=name).name == name  # and may be given


@pytest.mark.parametrize(
    ("inputs", "names"),
    [
        (["a/x.jsonl", "b/x.jsonl", "c/x.jsonl"], ["x", "x-2", "x-3"]),
        (["a/x.jsonl", ("b/x.jsonl", "y")], ["x", "y"]),
        (["a/x.jsonl", ("y.jsonl", "x"), "b/x.jsonl"], ["x-2", "x", "x-3"]),
        (["a/x.jsonl", "b/x.jsonl", ("z.jsonl", "x-2"), "x-3.jsonl"], ["x", "x-3", "x-2", "x-3-2"]),
        (["новости.jsonl", "книги.jsonl", "*.jsonl"], ["input", "input-2", "input-3"]),
        (["a/1e.jsonl", "b/1e.jsonl"], ["input-1e", "input-1e-2"]),  # 1e-2 is a number
        (["a/5.jsonl", "b/5.jsonl"], ["input-5", "input-5-2"]),
    ],
)
def test_names_that_clash_are_numbered(inputs: list[Any], names: list[str]):
    pairs = [entry if isinstance(entry, tuple) else (entry, "") for entry in inputs]
    assert input_names([Input(path=path, name=name) for path, name in pairs]) == names
    for path, name in zip(inputs, names, strict=True):
        Input(path=str(path), name=name)  # each may be given


def test_two_inputs_of_one_given_name():
    with pytest.raises(InputError, match="two inputs are named 'x'; names must be unique"):
        input_names([Input(path="a/x.jsonl", name="x"), Input(path="b/y.jsonl", name="x")])


WRONG_INPUTS = {
    "path is empty": {"path": ""},
    "format must be one of auto, jsonl, parquet": {"format": "xml"},
    "name 'a b' must be": {"name": "a b"},
    "name '../x' must be": {"name": "../x"},
    "name '-x' must be": {"name": "-x"},
    "name '5' looks like a number": {"name": "5"},
    "name '1e5' looks like a number": {"name": "1e5"},
    "name 'inf' looks like a number": {"name": "inf"},
    "text_column and id_column are both 'id'": {"text_column": "id"},
    "columns may not name 'source': the outputs have their own column of that name. Leave": {"columns": ["source"]},
    r"or give it another name: columns: \{input_bytes: size\}": {"columns": {"bytes": "size"}},
    "columns may not name 'a' twice": {"columns": ["a", "a"]},
    "columns has an empty name. Write names of fields, or a mapping": {"columns": {"a": ""}},
    "max_documents must be 0 .no limit. or more, not -1": {"max_documents": -1},
    "min_documents 6 is above max_documents 5": {"min_documents": 6, "max_documents": 5},
    "skip must be 0 or more records, not -1": {"skip": -1},
    "limit must be at least 1, not 0. To read all, leave it out": {"limit": 0},
    "columns may not name 'separator' with split": {"columns": ["separator"], "split": Split(sentences=2)},
    "delimiter must be one character other than a line end, not ';;'; .* means the one of": {"delimiter": ";;"},
    r"not '.*'; .* Write a tab as .\\t": {"delimiter": "\\t"},
    "delimiter must be one character other than a line end": {"delimiter": "\n"},
    """quote must be one character .*, not 'none'; "" means fields without quotes""": {"quote": "none"},
    "quote and delimiter are both ';'; expected two characters": {"delimiter": ";", "quote": ";"},
    "quote and delimiter are both ','; expected two": {"quote": ","},
    "delimiter is for files, hf:a/b is a data set": {"path": "hf:a/b", "delimiter": ";"},
    "encoding 'klingon' is unknown to Python; write one such as latin-1": {"encoding": "klingon"},
    "encoding 'undefined' is unknown": {"encoding": "undefined"},
    r"encoding 'a\\x00b' is unknown": {"encoding": "a\0b"},
    "blend_weight must be above 0, not 0.0": {"blend_weight": 0.0},
    "blend_weight must be above 0, not -1": {"blend_weight": -1.0},
    "blend_weight must be above 0, not nan": {"blend_weight": float("nan")},
}


@pytest.mark.parametrize("message", WRONG_INPUTS)
def test_wrong_inputs(message: str):
    values = {"path": "a.jsonl"} | WRONG_INPUTS[message]
    for make in (lambda: Input(**values), lambda: list_inputs(values)):
        with pytest.raises(ValueError, match=message):
            make()


def test_slices_cover_every_file_once(folder: Path):
    (folder / "big.jsonl").write_bytes(LINE * 100)
    (folder / "empty.jsonl").write_bytes(b"")
    files = find_files([Input(path=name) for name in ("big.jsonl", "empty.jsonl", "data/a.jsonl.gz", "data/f.parquet")])
    for slice_bytes, min_bytes in ((1, None), (100, None), (333, None), (10_000, None), (333, 1), (10_000, 100)):
        slices = [*cut_slices(files, slice_bytes, min_bytes=min_bytes, workers=2)]
        assert [piece.index for piece in slices] == list(range(len(slices)))
        parts = [part for piece in slices for part in piece.ranges]
        spans = [(part.start, part.stop) for part in parts if part.file is files[0]]
        assert spans[0][0] == 0 and spans[-1][1] == 1400
        assert all(before[1] == after[0] for before, after in pairwise(spans))
        assert [(part.start, part.stop) for part in parts[len(spans) :]] == [(0, 0), (0, len(LINE)), (0, 1)]


def test_slices_get_smaller_towards_the_end(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(LINE * 1000)
        pq.write_table(pa.table({"text": ["word " * 100] * 1000}), tmp_path / f"{name}.parquet", row_group_size=1)
    group = row_groups(find_files([Input(path=str(tmp_path / "a.parquet"))])[0])[0]
    for format_, line, row in (("jsonl", len(LINE), len(LINE)), ("parquet", group, 1)):
        files = find_files([Input(path=str(tmp_path / f"{name}.{format_}")) for name in ("a", "b")])
        slices = [*cut_slices(files, 250 * line, min_bytes=20 * line, workers=2)]
        lines = [(part.stop - part.start) / row for piece in slices for part in piece.ranges]
        assert sum(lines) == pytest.approx(2000)
        assert lines[:5] == [250] * 5 and 20 <= lines[-2] <= 21
        assert all(after <= before for before, after in pairwise(lines))
