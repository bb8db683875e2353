# SPDX-License-Identifier: Apache-2.0
"""`run` and `estimate` take names, paths, dictionaries and frames, and a frame gives the bytes of its file."""

import importlib
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import curation
from curation.record.folder import FRAMES
from tests.runs import digests

FRAME = pd.DataFrame({"body": ["one two", "one two", "three ö"], "n": [1, 2, 3]})
RECIPE: dict[str, Any] = {"stages": ["exact_dedup"], "output": {"formats": []}}


def run(recipe: Any, folder: Path, **options: Any) -> Any:
    return curation.run(recipe, folder, engine="cpu", progress=False, **options)


def texts(recipe: Any, folder: Path, **options: Any) -> list[str]:
    return list(run(recipe, folder, **options).kept()["text"])


@pytest.mark.slow("a run over a frame of any library keeps the documents of a run over its file")
def test_every_kind_of_frame_gives_the_same_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    FRAME.to_json("body.jsonl", orient="records", lines=True)
    expected = texts(RECIPE, tmp_path / "file", input={"path": "body.jsonl", "text_column": "body"})
    kinds = {
        "pandas": FRAME,
        "categories": FRAME.astype("category"),
        "pyarrow": pa.table(FRAME),
        "series": FRAME["body"],
    }
    if importlib.util.find_spec("polars"):
        kinds["polars"] = importlib.import_module("polars").from_pandas(FRAME)
    kinds["dask"] = importlib.import_module("dask.dataframe").from_pandas(FRAME, npartitions=2)
    for name, frame in kinds.items():
        given = frame if name == "series" else {"path": frame, "text_column": "body"}
        assert texts({**RECIPE, "input": given}, tmp_path / name) == expected == ["one two", "three ö"], name
        assert curation.verify(tmp_path / name) == []
    (tmp_path / "recipe.yaml").write_text("stages: [exact_dedup]\noutput: {formats: []}\n")
    assert texts("recipe.yaml", tmp_path / "path", input=FRAME["body"]) == expected
    assert curation.estimate(RECIPE, input=FRAME["body"]).documents == 3


@pytest.mark.slow("a frame is written once to the folder of a run, and another one is refused")
def test_a_frame_is_written_once_and_another_one_is_refused(tmp_path: Path):
    out, frame = tmp_path / "out", FRAME.rename(columns={"body": "text"})
    assert not run(RECIPE, out, input=frame).already_complete
    [path], first = [*(out / FRAMES).iterdir()], digests(out)
    assert re.fullmatch(r"frame\.[0-9a-f]{64}\.parquet", path.name) and str(path) in (out / "report.json").read_text()
    assert run(RECIPE, out, input=frame.copy()).already_complete
    with pytest.raises(curation.OutputError, match=r"changed: input\[0\].path, file .*parquet \(new\)"):
        run(RECIPE, out, input=frame.iloc[:2])
    assert digests(out) == first
    path.unlink()  # a file that is missing is written again, and is the same
    assert run(RECIPE, out, input=frame).already_complete and digests(out) == first
    assert run({**RECIPE, "input": [{"path": str(path)}]}, out).already_complete and path.exists()
    run(RECIPE, out, input=frame.iloc[:2], force=True)
    assert len([*(out / FRAMES).iterdir()]) == 1 and not path.exists()


@pytest.mark.slow("a run over a frame that stopped resumes with the same frame alone")
def test_a_run_that_stopped_resumes_with_the_same_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole, out, frame = tmp_path / "whole", tmp_path / "out", FRAME["body"]
    running = importlib.import_module("curation.running.run")
    run(RECIPE, whole, input=frame)

    def stop(context: Any, phases: Any = running.run_phases) -> None:
        phases(context)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(running, "run_phases", stop)
        with pytest.raises(KeyboardInterrupt):
            run(RECIPE, out, input=frame)
    [path] = (out / FRAMES).iterdir()
    inode = path.stat().st_ino
    with pytest.raises(curation.OutputError, match="belongs to another recipe or input"):
        run(RECIPE, out, input=frame.iloc[:1])
    assert not run(RECIPE, out, input=frame).already_complete and path.stat().st_ino == inode
    assert curation.open_run(out).kept().equals(curation.open_run(whole).kept())
