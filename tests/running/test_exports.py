# SPDX-License-Identifier: Apache-2.0
"""Tasks write `raw/` and `cleaned/`: the files are those of a slow cut of all documents, for any slices, workers and
kills."""

import csv
import gzip
import io
import json
import os
import re
import subprocess
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.base.arrays import cut_counts, cut_spans
from curation.base.engine import load_engine
from curation.base.errors import InputError, IntegrityError, RecipeError
from curation.recipes.exports import is_one_file
from curation.recipes.recipe import Recipe
from curation.record import documents as documents_schema
from curation.record.stored_plan import digest_of, load_plan
from curation.results.finished.verify import verify
from curation.running import phase_loop
from curation.running.phases import exports
from curation.running.phases.exports import RawFiles, write_raw
from curation.running.run import run
from tests.needs import needs
from tests.runs import digests, made_texts, recipe_of, records_of

TEXTS = {"lines": made_texts(90), "stream": [*made_texts(60, 5), "a" * 900, "", 'a "b",\r\n\x00'], "empty": []}
DOCUMENTS, BYTES = 23, 2500


def cut(texts: Sequence[str]) -> list[list[str]]:
    """The texts of each file, by the rule of the documentation."""
    files: list[list[str]] = []
    taken = 0
    for text in texts:
        size = len(text.encode())
        if not files or len(files[-1]) == DOCUMENTS or taken + size > BYTES:
            files.append([])
            taken = 0
        files[-1].append(text)
        taken += size
    return files


def read_file(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        return list(pq.read_table(path).column("text").to_pylist())
    if path.suffix == ".csv":
        return [row["text"] for row in csv.DictReader(io.StringIO(path.read_bytes().decode(), newline=""))]
    return [json.loads(line)["text"] for line in decompressed(path).splitlines()]


def decompressed(path: Path) -> bytes:
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    with pa.input_stream(str(path), compression="zstd" if path.suffix == ".zst" else None) as stream:
        return bytes(stream.read())


def files_in(folder: Path) -> list[list[str]]:
    return [read_file(path) for path in sorted(folder.iterdir())]


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Recipe]:
    """Lines with rejected records between them, a compressed stream, and an input without documents."""
    lines = records_of(TEXTS["lines"]).splitlines(keepends=True)
    inputs = {
        "lines.jsonl": b"".join(line + b"no record\n" * (number % 9 == 0) for number, line in enumerate(lines)),
        "stream.jsonl.gz": b"".join(  # several members, one of them empty
            gzip.compress(records_of(part), mtime=0) for part in (TEXTS["stream"][:30], [], TEXTS["stream"][30:])
        ),
        "empty.jsonl": b"",
    }
    for name, data in inputs.items():
        (tmp_path / name).write_bytes(data)

    def made(raw: str, **more: Any) -> Recipe:
        output = {"raw": raw, "formats": [], "part_documents": DOCUMENTS, "part_bytes": BYTES}
        return recipe_of(*(tmp_path / name for name in inputs), stages=[], output=output | more)

    return made


def run_in(folder: Path, recipe: Recipe, slice_bytes: int = 2000, **more: Any) -> Path:
    run(recipe, folder, engine="cpu", progress=False, slice_bytes=slice_bytes, **{"workers": 1} | more)
    return folder


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often the tasks of `raw/` began to read each slice."""
    count, real = Counter[int](), exports.read_sampled

    def counted(engine: Any, input_slice: Any, *rest: Any) -> Any:
        count[input_slice.index] += 1
        return real(engine, input_slice, *rest)

    monkeypatch.setattr(exports, "read_sampled", counted)
    return count


@pytest.mark.parametrize("raw", ["csv", "parquet", "all.jsonl", "all.jsonl.gz", "jsonl.zst"])
def test_raw_files_do_not_show_slices_and_tasks(
    raw: str, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: Counter[int]
):
    monkeypatch.setattr(documents_schema, "ROW_GROUP_DOCUMENTS", 7)
    texts = [text for name in TEXTS for text in TEXTS[name]]
    found = []
    for slice_bytes, many_slices in ((6000, 10**6), (6000, 1), (0, 10**6)):
        monkeypatch.setattr(exports, "MANY_SLICES", many_slices)
        reads.clear()
        folder = tmp_path / f"{slice_bytes}-{many_slices}"
        found.append(digests(run_in(folder, recipe(raw), slice_bytes)))
        assert max(reads.values()) <= 2  # by the task of its files, and by that of a file that ends in it
    assert files_in(tmp_path / "6000-1" / "raw") == ([texts] if is_one_file(raw) else cut(texts))
    assert found == [found[0]] * len(found)


def test_no_document_gives_one_file_with_the_columns(tmp_path: Path):
    (tmp_path / "none.jsonl").write_bytes(b"no record\n")
    output = {"raw": "csv", "cleaned": "csv", "formats": []}
    folder = run_in(tmp_path / "out", recipe_of(tmp_path / "none.jsonl", stages=[], output=output))
    expected = b'"doc","id","source","text"\n'
    assert [path.read_bytes() for name in ("raw", "cleaned") for path in (folder / name).iterdir()] == [expected] * 2


@pytest.mark.parametrize("copies", [1, 2])
def test_cleaned_files_cross_parts_and_copies(copies: int, recipe: Callable[..., Recipe], tmp_path: Path):
    """Parts end with their input, files of `cleaned/` do not."""
    inputs = [{"path": str(tmp_path / name), "copies": copies} for name in ("lines.jsonl", "stream.jsonl.gz")]
    output = {"cleaned": "jsonl", "formats": [], "part_documents": DOCUMENTS, "part_bytes": BYTES}
    recipe("")
    folder = run_in(tmp_path / "out", recipe_of(*inputs, stages=[], output=output))
    texts = [text for name in ("lines", "stream") for _ in range(copies) for text in TEXTS[name]]
    assert files_in(folder / "cleaned") == cut(texts)
    assert len(list((folder / "documents").iterdir())) != len(cut(texts))


MAGIC = {"gz": b"\x1f\x8b\x08", "zst": b"\x28\xb5\x2f\xfd"}


def members_of(data: bytes, end: str) -> Iterator[bytes]:
    """The content of each gzip member, or of each zstd frame."""
    while data:
        assert data.startswith(MAGIC[end])
        if end == "gz":
            assert data[3:8] == bytes(5)  # no name, no time
            decoder = zlib.decompressobj(31)
            yield decoder.decompress(data)
            data = decoder.unused_data
        else:
            size = next((size for size in range(4, len(data)) if data[size:].startswith(MAGIC[end])), len(data))
            yield pa.CompressedInputStream(pa.BufferReader(data[:size]), "zstd").read()
            data = data[size:]


@pytest.mark.parametrize("end", MAGIC)
def test_members_are_cut_by_the_lines_alone(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whatever the slices, workers, row groups and files of `documents/`, the members end with the same documents."""
    monkeypatch.setattr(exports, "MEMBER_BYTES", 700)
    (tmp_path / "in.jsonl").write_bytes(records_of(TEXTS["lines"] + TEXTS["stream"]))
    found = set()
    for number, (slice_bytes, workers, documents) in enumerate(((0, 1, 1000), (900, 2, 1000), (900, 1, 7))):
        monkeypatch.setattr(documents_schema, "ROW_GROUP_DOCUMENTS", (1000, 1000, 3)[number])
        output = {"raw": f"all.jsonl.{end}", "cleaned": f"all.jsonl.{end}", "formats": [], "part_documents": documents}
        folder = tmp_path / str(number)
        run_in(folder, recipe_of(tmp_path / "in.jsonl", stages=[], output=output), slice_bytes, workers=workers)
        found |= {(folder / name / f"all.jsonl.{end}").read_bytes() for name in ("raw", "cleaned")}
    [data] = found
    members = [member.splitlines(keepends=True) for member in members_of(data, end)]
    assert len(members) > 20
    sizes = [[*map(len, lines)] for lines in members]
    assert all(sum(lines) >= 700 for lines in sizes[:-1]) and all(sum(lines[:-1]) < 700 for lines in sizes)
    texts = [json.loads(line)["text"] for lines in members for line in lines]
    assert texts == TEXTS["lines"] + TEXTS["stream"]


@pytest.mark.parametrize("end", MAGIC)
def test_compressed_lines_are_those_without_compression(
    end: str, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Every reader takes all members; a run reads them as an input."""
    monkeypatch.setattr(exports, "MEMBER_BYTES", 3000)
    plain = run_in(tmp_path / "plain", recipe("", cleaned="all.jsonl")) / "cleaned" / "all.jsonl"
    path = run_in(tmp_path / "out", recipe("", cleaned=f"all.jsonl.{end}")) / "cleaned" / f"all.jsonl.{end}"
    lines = plain.read_bytes()
    assert len([*members_of(path.read_bytes(), end)]) > 3
    assert decompressed(path) == lines
    command = {"gz": "gzip", "zst": "zstd"}[end]
    if which(command):
        assert subprocess.run([command, "-dc", path], check=True, capture_output=True).stdout == lines
    if end == "gz" or find_spec("zstandard"):
        assert pd.read_json(path, lines=True).to_dict("records") == [json.loads(line) for line in lines.splitlines()]
    assert pyarrow.json.read_json(path).column("text").to_pylist() == read_file(plain)
    again = recipe_of({"path": str(path), "name": "again"}, stages=[], output={"formats": [], "cleaned": "jsonl"})
    read_back = files_in(run_in(tmp_path / "again", again) / "cleaned")
    assert [text for texts in read_back for text in texts] == read_file(plain)
    assert verify(tmp_path / "out") == []


@pytest.mark.parametrize("end", MAGIC)
def test_duckdb_and_polars_read_compressed_lines(end: str, recipe: Callable[..., Recipe], tmp_path: Path):
    duckdb, polars = needs("duckdb"), needs("polars")
    path = run_in(tmp_path / "out", recipe("", cleaned=f"all.jsonl.{end}")) / "cleaned" / f"all.jsonl.{end}"
    texts = read_file(path)
    assert polars.scan_ndjson(path).collect()["text"].to_list() == texts
    assert duckdb.sql(f"SELECT count(*) FROM '{path}'").fetchall() == [(len(texts),)]


@pytest.mark.parametrize("end", MAGIC)
def test_datasets_streams_compressed_lines(end: str, recipe: Callable[..., Recipe], tmp_path: Path):
    datasets = needs("datasets")
    if end == "zst":
        needs("zstandard")
    folder = run_in(tmp_path / "out", recipe("", cleaned=f"jsonl.{end}"))
    files = sorted(str(path) for path in (folder / "cleaned").iterdir())
    assert len(files) > 3 and f"cleaned/*.jsonl.{end}" in (folder / "README.md").read_text("utf-8")
    found = datasets.load_dataset("json", data_files=files, split="train", streaming=True)
    assert [row["text"] for row in found] == [text for name in files for text in read_file(Path(name))]


@pytest.mark.parametrize("end", MAGIC)
def test_no_document_gives_one_empty_member(end: str, tmp_path: Path):
    (tmp_path / "none.jsonl").write_bytes(b"no record\n")
    output = {"cleaned": f"none.jsonl.{end}", "formats": []}
    folder = run_in(tmp_path / "out", recipe_of(tmp_path / "none.jsonl", stages=[], output=output))
    assert [*members_of((folder / "cleaned" / f"none.jsonl.{end}").read_bytes(), end)] == [b""]


@pytest.mark.parametrize("field", ["raw", "cleaned"])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        *(
            (value, "FIELD is compressed as jsonl.gz or jsonl.zst, or in a file whose name ends with one of them, such")
            for value in ("x.csv.gz", "parquet.zst", "x.jsonl.gzip", "x.jsonl.bz2", "jsonl.gz.gz", "gz")
        ),
        ("x.json", "no FIELD format 'json'; did you mean jsonl?"),
        ("../x.jsonl.gz", "FIELD must be a format or the name of a file in FIELD/, such as documents.jsonl.gz"),
        (".jsonl.zst", "FIELD must be a format or the name of a file in FIELD/, such as documents.jsonl.zst"),
    ],
)
def test_another_end_is_one_message(field: str, value: str, message: str):
    with pytest.raises(RecipeError, match=re.escape(message.replace("FIELD", field))):
        recipe_of(Path("in.jsonl"), output={field: value})


class Stopped(BaseException):
    """What no code of the project catches."""


@pytest.mark.slow("a run stopped at any raw file resumes and repeats no task")
def test_a_run_stopped_at_any_raw_file_ends_in_the_same_bytes_and_repeats_no_task(
    recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: Counter[int]
):
    expected = digests(run_in(tmp_path / "whole", recipe("jsonl.gz")))
    names, real = sorted(path.name for path in (tmp_path / "whole" / "raw").iterdir()), os.replace
    repeated = 0
    for name in (names[0], names[-2]):

        def stop(source: str, target: str, name: str = name) -> None:
            real(source, target)
            if os.path.basename(target) == name:
                raise Stopped

        folder = tmp_path / name
        monkeypatch.setattr(os, "replace", stop)
        with pytest.raises(Stopped):
            run_in(folder, recipe("jsonl.gz"))
        monkeypatch.setattr(os, "replace", real)
        done, work = {}, folder / "_work" / "finish"
        for record in map(json.loads, (path.read_bytes() for path in work.rglob("*.json"))):
            for step in record.get("steps", []):
                done |= step.get("digests", {})
        times = {path: (folder / path).stat().st_mtime_ns for path in done if path.startswith("raw/")}
        assert digests(run_in(folder, recipe("jsonl.gz"), slice_bytes=0, workers=2)) == expected
        assert {path: (folder / path).stat().st_mtime_ns for path in times} == times
        repeated += len(times)
    assert repeated


def change_before_the_end(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    real = phase_loop._plan_removed
    monkeypatch.setattr(phase_loop, "_plan_removed", lambda *given: (change(), real(*given))[1])


@pytest.mark.parametrize("place", [0, -1], ids=["first slice", "last slice"])
def test_an_input_that_changes_before_raw_is_written(
    place: int, recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = [tmp_path / "lines.jsonl", tmp_path / "stream.jsonl.gz"][place]
    made = recipe("jsonl")
    change_before_the_end(monkeypatch, lambda: path.write_bytes(path.read_bytes()[:-20].replace(b"the", b"THE", 1)))
    with pytest.raises(InputError, match=rf"{path.name}.* changed|{path.name}: .*(ended|truncated|shorter|ends)"):
        run_in(tmp_path / "out", made)


@pytest.fixture
def write(recipe: Callable[..., Recipe], tmp_path: Path) -> Callable[[int], object]:
    """Writes so many documents, from the first slice on, as one file of `raw/`."""
    folder = run_in(tmp_path / "out", recipe("jsonl", keep_work=True))
    plan = load_plan(digest_of(folder / "_work" / "plan.json"))
    offsets, engine = np.zeros(len(plan.slices), np.int64), load_engine("cpu")

    def call(documents: int) -> object:
        stop = 1 if documents < 5 else plan.slices.tasks
        return write_raw(plan, tmp_path, RawFiles(0, stop, 0, 0, [documents]), engine, 300, offsets)

    return call


def test_fewer_documents_than_before_are_an_error(write: Callable[[int], object]):
    with pytest.raises(IntegrityError, match=r"^raw/: 847 documents fewer than the first time that the inputs were"):
        write(1000)


def test_a_change_behind_the_rows_of_a_task_is_an_error(write: Callable[[int], object], tmp_path: Path):
    assert write(2)
    data = (tmp_path / "lines.jsonl").read_bytes()
    (tmp_path / "lines.jsonl").write_bytes(data[:2000] + b"X" + data[2001:])
    with pytest.raises(InputError, match=r"lines\.jsonl"):
        write(2)


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=8), st.integers(1, 20), st.integers(1, 9))
def test_counts_are_those_of_all_items_at_once(runs: list[list[int]], size: int, items: int):
    sizes = np.array([value for run in runs for value in run], np.int64)
    expected = [count for *_, count in cut_spans([(np.arange(len(sizes)), sizes)], size, items)]
    loaded: list[int] = []

    def pieces(number: int) -> Iterator[tuple[np.ndarray, int, int]]:
        """In two pieces, each a part of a longer array."""
        loaded.append(number)
        values = np.array([4, *runs[number], 5], np.int64)
        middle = 1 + len(runs[number]) // 2
        yield np.cumsum(values), 1, middle
        yield np.cumsum(values), middle, len(values) - 1

    given = ((len(run), sum(run), lambda number=number: pieces(number)) for number, run in enumerate(runs))
    assert list(cut_counts(given, size, items)) == expected
    assert len(loaded) <= len(expected)  # only runs in which a batch ends
