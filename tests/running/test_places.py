# SPDX-License-Identifier: Apache-2.0
"""`file` and `line` in `removed/` are those of the input, whatever the slices."""

import gzip
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.running.run import run
from tests.runs import recipe_of, table_rows

ALL = [{"kind": "exact_dedup"}, {"kind": "filter", "rules": [{"measure": "words", "min": 1000}]}]


def line_of(text: str) -> bytes:
    return orjson.dumps({"text": text}) + b"\n"


def removed_places(paths: list[Path], out: Path, slice_bytes: int) -> list[tuple[str, str, int]]:
    run(recipe_of(*paths, stages=ALL), out, engine="cpu", slice_bytes=slice_bytes, progress=False)
    return [(text, Path(file).name, line) for text, file, line in table_rows(out / "removed", "text", "file", "line")]


@pytest.mark.parametrize("slice_bytes", [120, 1_000_000])
def test_lines_of_text_count_blank_lines_and_records_of_tables_do_not(tmp_path: Path, slice_bytes: int):
    expected: list[tuple[str, str, int]] = []
    lines = [
        b"\n",
        *(line_of(f"a {k}") if k % 5 else b" \n" * (k % 3) for k in range(60)),
        b"no record\n",
        line_of("z"),
    ]
    content = b"".join(lines)
    for name, data in (("a.jsonl", content), ("b.jsonl.gz", gzip.compress(content))):
        (tmp_path / name).write_bytes(data)
        expected += [
            (orjson.loads(line)["text"], name, number)
            for number, line in enumerate(content.split(b"\n"), 1)
            if line.startswith(b"{")
        ]
    texts = [f"p {k}" for k in range(40)]
    pq.write_table(pa.table({"text": [*texts, None, "last"]}), tmp_path / "c.parquet", row_group_size=7)
    expected += [(text, "c.parquet", number) for number, text in enumerate([*texts, None, "last"], 1) if text]
    (tmp_path / "d.csv").write_text('text\n"two\nlines"\none\n')
    expected += [("two\nlines", "d.csv", 1), ("one", "d.csv", 2)]
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl.gz", "c.parquet", "d.csv")]
    found = removed_places(paths, tmp_path / "out", slice_bytes)
    assert [entry for entry in found if entry[1] != "b.jsonl.gz"] == [e for e in expected if e[1] != "b.jsonl.gz"]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("slice_bytes", [50, 1_000_000])
def test_small_files_that_share_a_slice_keep_their_lines(tmp_path: Path, slice_bytes: int):
    folder = tmp_path / "many"
    folder.mkdir()
    expected = []
    for number in range(12):
        lines = [b"\n"] * (number % 3) + [line_of(f"{number} {k}") + b"\n" * (k % 2) for k in range(4)]
        content = b"".join(lines) if number % 4 else b"\n\n"
        (folder / f"{number:02d}.jsonl").write_bytes(content)
        expected += [
            (orjson.loads(line)["text"], f"{number:02d}.jsonl", place)
            for place, line in enumerate(content.split(b"\n"), 1)
            if line
        ]
    assert removed_places([folder], tmp_path / "out", slice_bytes) == expected


def test_duplicates_have_the_place_of_the_removed_copy(tmp_path: Path):
    (tmp_path / "a.jsonl").write_bytes(line_of("same") + b"\n" + line_of("same"))
    stages = [{"kind": "exact_dedup"}]
    run(recipe_of(tmp_path / "a.jsonl", stages=stages, output={"removed": "ids"}), tmp_path / "out", progress=False)
    assert table_rows(tmp_path / "out/removed", "doc", "line") == [(1, 3)]
