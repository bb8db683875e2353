# SPDX-License-Identifier: Apache-2.0
"""An input that changes while a run reads it ends the run with one message; a text file may grow behind its end."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation.base.errors import InputError, IntegrityError
from curation.running import run as runner
from curation.running.planning.plan import make_plan
from curation.running.run import run
from tests.runs import data_digests, recipe_of

LINES = b"".join(b'{"text": "document %06d, of some forty bytes of text"}\n' % k for k in range(3000))
OTHER = LINES.replace(b"document", b"DOCUMENT")
CSV = b"text\n" + b"".join(b"document %06d\n" % k for k in range(3000))


def parquet(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    texts = [json.loads(line)["text"] for line in data.splitlines()]
    pq.write_table(pa.table({"text": texts}), sink, row_group_size=500, compression="none", use_dictionary=False)
    return sink.getvalue().to_pybytes()


def arrow(data: bytes) -> bytes:
    table = pa.table({"text": [json.loads(line)["text"] for line in data.splitlines()]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table, max_chunksize=500)
    return sink.getvalue().to_pybytes()


def packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def followed_by(change: Callable[[], object]) -> Callable[..., object]:
    """`make_plan`, and then a change."""

    def then_change(*arguments: object) -> object:
        found = make_plan(*arguments)
        change()
        return found

    return then_change


def run_and_change(
    path: Path, content: bytes, change: Callable[[], object], monkeypatch: pytest.MonkeyPatch, slice_bytes: int = 20_000
) -> Path:
    """A run of a file that changes right after it was planned; gives its folder."""
    path.write_bytes(content)
    monkeypatch.setattr(runner, "make_plan", followed_by(change))
    folder = path.parent / "out"
    run(recipe_of(path), folder, engine="cpu", workers=1, slice_bytes=slice_bytes)
    return folder


def overwrite(path: Path, data: bytes, keep_times: bool = False) -> None:
    before = path.stat()
    with open(path, "r+b") as file:
        file.write(data)
        file.truncate()
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {
    "cut": (
        "a.jsonl",
        LINES,
        LINES[: len(LINES) // 20],
        r"has .* bytes, planned were|ends after .* bytes, planned were",
    ),
    "cut at a slice": ("a.jsonl", LINES, LINES[:40_000], r"ends after|has .* bytes, planned were"),
    "empty": ("a.jsonl", LINES, b"", r"ends after 0 bytes, planned were"),
    "other bytes": ("a.jsonl", LINES, OTHER, "its modification time differs"),
    "other and more bytes": ("a.jsonl", LINES, OTHER + OTHER, r"its bytes between 0 and 20,000 differ"),
    "small": ("a.jsonl", LINES[:550], LINES[:110], r"ends after 110 bytes, planned were 550"),
    "gzip": ("a.jsonl.gz", packed(LINES), packed(LINES + LINES), r"has .* bytes, planned were"),
    "gzip cut": ("a.jsonl.gz", packed(LINES), packed(LINES)[:2000], r"has 2,000 bytes, planned were"),
    "parquet": ("a.parquet", parquet(LINES), parquet(OTHER), "its modification time differs"),
    "parquet cut": ("a.parquet", parquet(LINES), parquet(LINES)[:9000], r"not a readable Parquet|has 9,000 bytes"),
    "arrow": ("a.arrow", arrow(LINES), arrow(OTHER), "its modification time differs"),
    "csv": ("a.csv", CSV, CSV[:3000], "ends after 3,000 bytes, planned were"),
    "text": ("a.txt", LINES, OTHER, "its modification time differs"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_file_ends_the_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file, before, after, message = CHANGES[name]
    path = tmp_path / file
    with pytest.raises(InputError, match=rf"{file}.*({message})"):
        run_and_change(path, before, lambda: overwrite(path, after), monkeypatch)
    assert not (tmp_path / "out/report.json").exists()


def test_edges_show_a_change_that_restores_size_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.jsonl"
    with pytest.raises(InputError, match=r"a\.jsonl has changed .*its bytes between"):
        run_and_change(path, LINES, lambda: overwrite(path, OTHER, keep_times=True), monkeypatch)


@pytest.mark.parametrize(
    ("file", "content", "slice_bytes"),
    [
        ("a.jsonl", LINES[:-30], 20_000),
        ("a.jsonl", LINES[:-30], 1 << 20),
        ("a.csv", CSV[:-3], 20_000),
        ("a.txt", LINES[:-30], 20_000),
    ],
)
def test_what_is_new_behind_the_planned_end_is_not_read(
    file: str, content: bytes, slice_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The file ends inside a record when the run is planned, and is completed while it runs."""
    for name in ("grown", "planned"):
        (tmp_path / name).mkdir()
    grown, as_planned = tmp_path / "grown" / file, tmp_path / "planned" / file

    def grow() -> None:
        with open(grown, "ab") as added:
            added.write(LINES)

    found = run_and_change(grown, content, grow, monkeypatch, slice_bytes)
    wanted = run_and_change(as_planned, content, lambda: None, monkeypatch, slice_bytes)
    assert data_digests(found) == data_digests(wanted)


@pytest.mark.slow("a Parquet file that is cut while it is read does not end the process")
def test_parquet_that_is_cut_while_it_is_read_does_not_end_the_process(tmp_path: Path):
    """As a mapped file it would: SIGBUS."""
    path = tmp_path / "a.parquet"
    texts = pa.table({"text": ["some text " * 50] * 40_000})
    pq.write_table(texts, path, row_group_size=2000, use_dictionary=False, compression="none")
    script = (
        "import os, sys\n"
        "from curation.reading.formats import tabular\n"
        "from curation.reading.inputs import Input\n"
        "from curation.reading.paths import find_files\n"
        "from curation.reading import probe, read_documents\n"
        "from curation.reading.slices import plan_slices\n"
        "[piece] = plan_slices([probe(file) for file in find_files([Input(path=sys.argv[1])])], 1 << 30)\n"
        "for documents in read_documents(piece, 1 << 16):\n"
        "    os.truncate(sys.argv[1], 50_000)\n"
        "    for entry in documents.rejected:\n"
        "        print(entry.error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "damaged or cut off" in done.stdout


def test_a_tokenizer_that_changes_during_a_run_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    texts, tokenizer = tmp_path / "a.jsonl", tmp_path / "tokenizer.json"
    texts.write_bytes(LINES)
    for vocabulary in (300, 310):
        curation.train_tokenizer(texts, tmp_path / f"{vocabulary}.json", vocabulary=vocabulary, force=True)
    shutil.copy(tmp_path / "300.json", tokenizer)
    change = partial(shutil.copy, tmp_path / "310.json", tokenizer)
    monkeypatch.setattr(runner, "make_plan", followed_by(change))
    with pytest.raises(IntegrityError, match=r"a file of tokenizer .*tokenizer\.json changed during the run"):
        run(recipe_of(texts, tokenizer={"name": str(tokenizer)}), tmp_path / "out", engine="cpu")


def test_an_index_that_changes_during_a_run_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    texts, index = tmp_path / "a.jsonl", tmp_path / "old/index"
    texts.write_bytes(LINES)
    fuzzy = {"kind": "fuzzy_dedup"}
    run(recipe_of(texts, stages=[fuzzy], output={"formats": [], "index": True}), index.parent, engine="cpu")

    def change() -> None:
        content = (index / "index.json").read_bytes()
        (index / "index.json").write_bytes(content.replace(b'"version": "', b'"version": "0'))

    monkeypatch.setattr(runner, "make_plan", followed_by(change))
    recipe = recipe_of(texts, stages=[fuzzy | {"index": str(index)}], output={"formats": []})
    with pytest.raises(IntegrityError, match=r"changed during the run: .*old/index/index\.json of stage fuzzy_dedup"):
        run(recipe, tmp_path / "out", engine="cpu")
