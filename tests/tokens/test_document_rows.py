# SPDX-License-Identifier: Apache-2.0
"""The rows of `documents/` that a shuffled run stores for its pairs: every document of a pair has the tokens of the
text that its row names."""

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from curation import cli
from curation.base.errors import IntegrityError
from curation.recipes.recipe import Recipe, convert_recipe
from curation.results.finished.verify import verify
from curation.running.run import run
from curation.tokens.document_rows import PLACE
from curation.tokens.indexed import IndexedReader
from curation.tokens.tokenization import load_tokenizer
from tests.tokens.samples import check_rows, make_texts, train_tokenizer, write_jsonl

SPLITS = {"train": 0.6, "valid": 0.4}
TEXTS = {"news": make_texts(230), "web": make_texts(120, seed=1)}


@pytest.fixture
def recipe(tmp_path: Path) -> Any:
    """Two inputs, one of them written twice, with documents that have no tokens."""
    tokenizer = train_tokenizer(tmp_path / "tok.json", TEXTS["news"])
    for name, texts in TEXTS.items():
        write_jsonl(tmp_path / f"{name}.jsonl", ["" if number % 7 == 2 else text for number, text in enumerate(texts)])

    def made(**output: Any) -> Recipe:
        inputs = [{"path": str(tmp_path / f"{name}.jsonl"), "keep_blank": True} for name in TEXTS]
        inputs[1]["copies"] = 2
        return convert_recipe(
            {
                "input": inputs, "stages": [], "tokenizer": {"name": str(tokenizer), "append_eod": False},
                "output": {"shuffle": True, "part_documents": 40, "max_file_bytes": 4000, **output},
            }
        )  # fmt: skip

    return made


def rows_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "tokens" / "_meta").glob("*.rows"))}


@pytest.mark.parametrize("splits", [{}, SPLITS], ids=["whole", "split"])
def test_each_document_of_a_pair_has_the_tokens_of_its_row(recipe: Any, tmp_path: Path, splits: dict[str, float]):
    chosen = recipe(splits=splits)
    report = run(chosen, tmp_path / "a", engine="cpu", workers=1, progress=False).report
    check_rows(tmp_path / "a", load_tokenizer(chosen.tokenizer), splits)
    rows = rows_in(tmp_path / "a")
    assert len(rows) == len([*(tmp_path / "a" / "tokens").glob("*.idx")]) > 2 * max(len(splits), 1)
    assert {f"tokens/_meta/{name}" for name in rows} <= report["outputs"].keys()
    assert verify(tmp_path / "a") == []
    run(chosen, tmp_path / "b", engine="cpu", workers=2, slice_bytes=2000, progress=False)
    assert rows_in(tmp_path / "b") == rows
    path = tmp_path / "a" / "tokens" / "_meta" / next(iter(rows))
    path.write_bytes(rows[path.name][:-1] + b"\x01")
    changed = f"tokens/_meta/{path.name} has changed: its SHA-256 is not the one in report.json"
    assert verify(tmp_path / "a") == [changed]


def test_a_run_killed_among_the_rows_goes_on(recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    chosen = recipe(splits=SPLITS)
    run(chosen, tmp_path / "whole", engine="cpu", workers=1, progress=False)
    replace, count = os.replace, itertools.count()

    def stopped(source: Any, target: Any) -> None:
        if str(target).endswith(".rows") and next(count) == 3:
            raise OSError("no space left")
        replace(source, target)

    monkeypatch.setattr(os, "replace", stopped)
    with pytest.raises(OSError, match="no space left"):
        run(chosen, tmp_path / "out", engine="cpu", workers=1, progress=False)
    monkeypatch.undo()
    assert len(rows_in(tmp_path / "out")) == 3
    run(chosen, tmp_path / "out", engine="cpu", workers=1, progress=False)
    assert rows_in(tmp_path / "out") == rows_in(tmp_path / "whole")
    assert verify(tmp_path / "out") == []


@pytest.mark.parametrize("output", [{"shuffle": False}, {"documents": False}], ids=["in order", "without documents"])
def test_other_runs_have_no_rows(recipe: Any, tmp_path: Path, output: Any, capsys: pytest.CaptureFixture[str]):
    run(recipe(**output), tmp_path / "out", engine="cpu", workers=1, progress=False)
    assert rows_in(tmp_path / "out") == {}
    prefix = tmp_path / "out" / "tokens" / "news_00000_text_document"
    assert cli.main(["inspect", str(prefix), "--source-of", "0"]) == 2
    message = capsys.readouterr().err
    assert f"{prefix.parent}/_meta/{prefix.name}.rows does not exist: only a run with output.shuffle" in message


def test_inspect_shows_the_source_of_a_document(recipe: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run(recipe(), tmp_path / "out", engine="cpu", workers=1, progress=False)
    prefix = tmp_path / "out" / "tokens" / "news_00001_text_document"
    last = len(IndexedReader(prefix)) - 1
    path = prefix.parent / "_meta" / f"{prefix.name}.rows"
    part, row = np.fromfile(path, PLACE)[last].tolist()
    document_file = tmp_path / "out" / "documents" / f"part-{part:05d}.parquet"
    found = pq.read_table(document_file).slice(row, 1).to_pylist()[0]
    capsys.readouterr()
    assert cli.main(["inspect", f"{prefix}.idx", "--source-of", str(last)]) == 0
    assert capsys.readouterr().out == f"--- {found['id']} ({document_file}, row {row})\n{found['text']}\n"
    for number in (-1, last + 1):
        assert cli.main(["inspect", str(prefix), f"--source-of={number}"]) == 2
        assert f"{prefix} has no document {number}. Give a number from 0 to {last}\n" in capsys.readouterr().err
    assert cli.main(["inspect", str(document_file), "--source-of", "0"]) == 2
    assert f"{document_file}.idx does not exist" in capsys.readouterr().err
    for place, fault in (
        ((part, 40), f"it names row 40 of {document_file.name}, which has 40 rows"),
        ((900, 0), "it names part-00900.parquet in documents/, which is missing"),
    ):
        path.write_bytes(np.array([place] * (last + 1), PLACE).tobytes())
        assert cli.main(["inspect", str(prefix), "--source-of", "0"]) == 1
        assert f"{path} is damaged: {fault}" in capsys.readouterr().err
    path.write_bytes(b"short")
    assert cli.main(["inspect", str(prefix), "--source-of", "0"]) == 1
    assert f"{path} is damaged: it has 5 bytes, expected 12 for each of {last + 1} documents" in capsys.readouterr().err


def test_documents_of_another_process_are_noticed(recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    chosen, replace = recipe(splits=SPLITS), os.replace

    def tampering(source: Any, target: Any) -> None:
        if "documents/part-00000.parquet" in str(target):
            pq.write_table(pq.read_table(source).slice(1), source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", tampering)
    with pytest.raises(IntegrityError, match=r"part-00000.parquet has .* documents of the split"):
        run(chosen, tmp_path / "out", engine="cpu", workers=1, progress=False)
