# SPDX-License-Identifier: Apache-2.0
"""`curate align` writes the pairs of `curation.align`, with vectors of a model or of a column, in three formats."""

from __future__ import annotations

from pathlib import Path

import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from tests.cli.test_cli import curate
from tests.models.tiny_files import write_static

LEFT = ["a b c", "!", "good text", "d e f", "bad bad ."]
RIGHT = ["text good", "c b a", "?", ". bad bad", "h i j"]


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[pd.DataFrame]:
    """Two inputs with texts and vectors, of which the left one has two files."""
    monkeypatch.chdir(tmp_path)
    write_static(tmp_path / "model")
    frames = []
    for name, texts in (("left", LEFT), ("right", RIGHT)):
        frame = curation.embed(pd.DataFrame({"id": [f"{name}{i}" for i in range(5)], "text": texts}), "model")
        rows = [
            {"id": row.id, "text": row.text, "v": None if row.embedding is pd.NA else list(map(int, row.embedding))}
            for row in frame.itertuples()
        ]
        lines = [orjson.dumps(row) + b"\n" for row in rows]
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jsonl").write_bytes(b"".join(lines[:2]))
        (tmp_path / name / "2.jsonl").write_bytes(b"".join(lines[2:]))
        frames.append(frame)
    return frames


EXPECTED = [(0, 1, 1.0), (2, 0, 1.0), (4, 3, 1.0)]


def read_pairs(path: Path) -> pd.DataFrame:
    if path.suffix == ".jsonl":
        return pd.DataFrame([orjson.loads(line) for line in path.read_bytes().splitlines()])
    return (pa.ipc.open_file(path).read_all() if path.suffix == ".arrow" else pq.read_table(path)).to_pandas()


@pytest.mark.parametrize("vectors", [("--model", "model"), ("--column", "v")])
@pytest.mark.parametrize("suffix", ["jsonl", "arrow", "parquet"])
def test_pairs_have_positions_ids_texts_and_cosines(
    sides: list[pd.DataFrame], capsys: pytest.CaptureFixture[str], vectors: tuple[str, str], suffix: str
):
    path = Path(f"pairs.{suffix}")
    options = [*vectors, "--threshold", 0.99, "--engine", "cpu", "-o", path]
    code, out, err = curate(capsys, "align", "left", "right", *options)
    assert (code, out.endswith("3 pairs of 5 left and 5 right documents\n")) == (0, True), (out, err)
    found = read_pairs(path)
    assert list(found.columns) == ["left", "left_id", "left_text", "right", "right_id", "right_text", "cosine"]
    assert list(found[["left", "right", "cosine"]].itertuples(index=False, name=None)) == EXPECTED
    assert list(found["left_id"]) == ["left0", "left2", "left4"]
    assert list(found["right_text"]) == [RIGHT[right] for _, right, _ in EXPECTED]
    again = curation.align(*sides, threshold=0.99)
    assert list(again.itertuples(index=False, name=None)) == EXPECTED


def test_force_replaces_the_pairs_and_no_pair_is_an_empty_file(
    sides: list[pd.DataFrame], capsys: pytest.CaptureFixture[str]
):
    options = ["align", "left/1.jsonl", "right/2.jsonl", "--column", "v", "--threshold", "1", "-o", "pairs.jsonl"]
    assert curate(capsys, *options)[0] == 0 and Path("pairs.jsonl").read_bytes() == b""
    assert curate(capsys, *options)[0] == 2
    assert curate(capsys, *options, "--force")[0] == 0
