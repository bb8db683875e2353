# SPDX-License-Identifier: Apache-2.0
"""Data sets for Hugging Face `datasets` that are damaged, or that would run code: each ends in one message."""

import gzip
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.base.errors import InputError
from curation.reading.hub import HubSource
from curation.reading.inputs import Input
from tests.needs import needs

datasets = needs("datasets")

ROWS = b"".join(json.dumps({"id": n, "text": f"text {n}"}).encode() + b"\n" for n in range(300))


class Evil:
    """Loading its pickle, or the template of a reference, creates the file `ran` in the working directory."""

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return (open, ("ran", "w"))


EVIL = pickle.dumps(Evil())
TEMPLATE = "{{ cycler.__init__.__globals__.os.system('touch ran') }}"
REFERENCES = json.dumps(
    {"version": 1, "templates": {"u": "x"}, "refs": {"a.jsonl": '{"text": "x"}'},
     "gen": [{"key": TEMPLATE, "url": "x", "dimensions": {"i": {"stop": 1}}}]}
).encode()  # fmt: skip


def parquet() -> bytes:
    table = pa.table({"id": list(range(3000)), "text": [f"text {n} " * 20 for n in range(3000)]})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=500)
    return sink.getvalue()


def tar(**members: bytes) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return sink.getvalue()


def zipped(**members: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return sink.getvalue()


def card(yaml: str) -> bytes:
    return f"---\n{yaml}\n---\n".encode()


WHOLE, GZIP = parquet(), gzip.compress(ROWS)
NO_COLUMN = r"has no column text or .*it has \['__key__', '__url__', 'pickle', 'pyd', 'txt'\]"
# Files of a folder -> what the message says.
DAMAGED: dict[str, tuple[dict[str, bytes], str]] = {
    "YAML": ({"a.jsonl": ROWS, "README.md": card("configs: [")}, "README.md or .huggingface.yaml has invalid YAML"),
    "tag": ({"a.jsonl": ROWS, "README.md": card("x: !!python/name:os.system")}, "has invalid YAML .*Correct it"),
    "configs": (
        {"a.jsonl": ROWS, "README.md": card("configs: 1")},
        "Expected configs to be a list.*Check its README.md",
    ),
    "absent": (
        {"a.jsonl": ROWS, "README.md": card("configs:\n- config_name: default\n  data_files: b.jsonl")},
        "has no file that datasets can read, such as .*correct data_files in its README.md",
    ),
    "infos": (
        {"a.jsonl": ROWS, "dataset_infos.json": b"[]"},
        "AttributeError: 'list' .* Check its README.md, its files",
    ),
    "delimiter": ({"a.csv": b"id;text\n1;x\n"}, "Name the files without hf:, and set delimiter: "),
    "no byte": ({"a.parquet": WHOLE, "b.parquet": b""}, r"Parquet file size is 0 bytes \(file b.parquet\). Repair the"),
    "no footer": ({"a.parquet": WHOLE[:-2000]}, r"Parquet magic bytes not found.*\(file a.parquet\)"),
    "cut": ({"a.parquet": WHOLE, "b.parquet": WHOLE[: len(WHOLE) // 2]}, r"Parquet magic bytes.*\(file b.parquet\)"),
    "flipped": ({"a.parquet": WHOLE[:9000] + bytes(3000) + WHOLE[12000:]}, r"cannot be read: .*\(file a.parquet\)"),
    "cut gzip": ({"a.jsonl.gz": GZIP[: len(GZIP) // 2]}, r"EOFError: .*\(file a.jsonl.gz\). Repair the file, or leave"),
    "flipped gzip": ({"a.jsonl.gz": GZIP[:300] + bytes(9) + GZIP[309:]}, r"Error: .*\(file a.jsonl.gz\). Repair the"),
    "no gzip": ({"a.jsonl.gz": ROWS}, r"BadGzipFile: .*\(file a.jsonl.gz\)"),
    "no xz": ({"a.jsonl.xz": ROWS}, r"LZMAError: .*\(file a.jsonl.xz\)"),
    "no zip": ({"a.zip": b"PK"}, "BadZipFile: .*Check its README.md, its files and data_files, or leave out hf:"),
    "columns": (
        {"a.jsonl": ROWS, "b.jsonl": b'{"other": 1}\n'},
        r"b.jsonl has none of the columns text, .*it has \['other'\]. Set text_column",
    ),
    "tables": ({"a.csv": b"text,a\nx,1\n", "b.csv": b"other,a\ny,2\n"}, r"b.csv has none of the columns text"),
    "encoding": ({"a.txt": b"\xe9t\xe9\n"}, r"UnicodeDecodeError: .*\(file a.txt\)"),
    "nothing": ({}, "has no file that datasets can read, such as .jsonl"),
}
# Content of which a library could run code.
CODE: dict[str, tuple[dict[str, bytes], str]] = {
    "pickle": ({"a.pkl": EVIL}, "has no file that datasets can read"),
    "zipped": ({"a.zip": zipped(**{"a.pkl": EVIL})}, "has no file that datasets can read"),
    "named": (
        {"a.pkl": EVIL, "README.md": card(
            "configs:\n- {config_name: default, data_files: a.pkl, builder_name: pandas}\n"
            "dataset_info: {builder_name: pandas}"
        )},
        "has no file that datasets can read",
    ),
    "members": ({"a.tar": tar(**{"1.pickle": EVIL, "1.pyd": EVIL, "1.txt": b"text"})}, NO_COLUMN),
    "objects": ({"a.tar": tar(**{"1.npy": b"\x93NUMPY\x01\x00\x06\x00{'descr': '|O', 'fortran_order': False, "
                                         b"'shape': (1,)}\n" + EVIL, "1.txt": b"text"})}, r"cannot be read: .*a.tar"),
    "script": ({"script.py": b"open('ran', 'w')", "a.jsonl": ROWS}, "Scripts are not run. Use a copy in Parquet, or"),
    "reference": ({"a.jsonl": ROWS, "README.md": card(
        "configs:\n- {config_name: default, data_files: 'simplecache::reference://a.jsonl::file://references.json'}"
    )}, "reference:// is refused: fsspec runs templates"),
}  # fmt: skip


def read(folder: Path, files: Mapping[str, bytes], **settings: Any) -> int:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return sum(len(table) for table, _ in HubSource(Input(f"hf:{folder}", **settings)))


@pytest.mark.parametrize("cases", [DAMAGED, CODE], ids=["damaged", "code"])
def test_each_folder_that_cannot_be_read_is_one_message(
    cases: dict[str, tuple[dict[str, bytes], str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("references.json").write_bytes(REFERENCES)
    for name, (files, told) in cases.items():
        folder = tmp_path / name
        folder = folder.with_name("script") if name == "script" else folder  # the script has the name of the folder
        with pytest.raises(InputError, match=told) as raised:
            read(folder, files)
        assert str(raised.value).startswith(f"hf:{folder}[train]") and "\n" not in str(raised.value), name
        assert not Path("ran").exists(), name
    assert capfd.readouterr().err == ""


def test_files_that_are_sound_are_read(tmp_path: Path):
    assert read(tmp_path / "a", {"a.jsonl": ROWS, "b.jsonl": b"", "c.jsonl": ROWS}) == 600
    with pytest.raises(InputError, match="data_files matches no file that datasets can read"):
        read(tmp_path / "b", {"a.jsonl": ROWS, "a.pkl": EVIL}, data_files="a.pkl")
    with pytest.raises(InputError, match="revision is for data sets of the hub, not for a folder"):
        read(tmp_path / "c", {"a.jsonl": ROWS}, revision="v1")
    with pytest.raises(InputError, match="reference:// is refused"):
        read(tmp_path / "d", {"a.jsonl": ROWS}, data_files="reference://a.jsonl::file:///x.json")


def test_names_of_readers_are_refused_and_other_names_are_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    opened: list[str] = []

    def load(name: str, *_: Any, **__: Any) -> None:
        opened.append(name)
        raise datasets.exceptions.DatasetNotFoundError("was not found")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets, "load_dataset_builder", load)
    Path("x.pkl").write_bytes(EVIL)
    for name in datasets.packaged_modules._PACKAGED_DATASETS_MODULES:
        with pytest.raises(
            InputError, match=rf"{name} is a reader of .*a folder as hf:\./{name}, and files without hf:"
        ):
            HubSource(Input(f"hf:{name}", data_files="x.pkl"))
    for name in ("hf://datasets/pandas", "//datasets/pandas", "hf:pandas", "./pandas", "pandas/", "/abs/pandas", "a b"):
        with pytest.raises(InputError, match="was not found: no folder has this name"):
            HubSource(Input(f"hf:{name}"))
    with pytest.raises(InputError, match=r"is a file\. Expected hf:ORG/NAME, or hf:FOLDER; name files without hf:"):
        HubSource(Input("hf:x.pkl"))
    assert opened == []
    Path("pandas").mkdir()
    names = ["imdb", "squad", "o/n", "Pandas", "o/pandas", "pandas", "./pandas", f"{tmp_path}/pandas"]
    for name in names:
        with pytest.raises(InputError, match=r"was not found|has no file"):
            HubSource(Input(f"hf:{name}"))
    assert opened == [*names[:5], *[f"{tmp_path}/pandas"] * 3] and not Path("ran").exists()


@pytest.mark.parametrize("version", ["3.6.0", "4.8.5", "5.0.1", "5.1.0", "10.0.0"])
def test_versions_with_scripts_and_those_that_lose_documents_are_refused(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "a.jsonl").write_bytes(ROWS)
    monkeypatch.setattr(datasets, "__version__", version)
    if version == "3.6.0":
        with pytest.raises(InputError, match=r"datasets 3\.6\.0 can run scripts of a data set; .*gpu-pipeline\[hub\]'"):
            HubSource(Input(f"hf:{tmp_path}"))
        return
    _, place = next(iter(HubSource(Input(f"hf:{tmp_path}"))))
    if version in ("4.8.5", "5.0.1"):
        with pytest.raises(InputError, match=rf"datasets {version} cannot go on after the documents that have arrived"):
            HubSource(Input(f"hf:{tmp_path}"), place)
    else:
        assert sum(len(table) for table, _ in HubSource(Input(f"hf:{tmp_path}"), place)) == 100
