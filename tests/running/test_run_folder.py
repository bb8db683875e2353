# SPDX-License-Identifier: Apache-2.0
"""The output folder: what is refused, and that nothing is deleted before the new run is known to be possible."""

import errno
import fcntl
import os
import re
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from curation.base.errors import CurationError, InputError, OutputError
from curation.base.system.progress import Progress
from curation.cli import main
from curation.record.folder import locked
from curation.results.finished.verify import verify
from curation.running.run import run
from tests.runs import data_digests, digests, made_texts, recipe_of, records_of, report_of


class Said(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "made.jsonl"
    path.write_bytes(records_of(made_texts(60)))
    return path


def write_tokenizer(path: Path, words: list[str]) -> None:
    """One token per word, numbered in this order."""
    vocabulary = {"<unk>": 0, "</s>": 1} | {word: number for number, word in enumerate(words, 2)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    tokenizer.save(str(path))


def words_of(texts: list[str]) -> list[str]:
    return sorted({word for text in texts for word in text.split()})


# --force


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokenizer": {"name": "./gpt22.json"}},
        {"output": {"pad_id": 60_000, "formats": ["blocks"], "blocks": {"length": 8}}},
        {"text_column": "txt"},
    ],
)
def test_force_deletes_nothing_before_the_new_run_is_possible(tmp_path: Path, corpus: Path, wrong: dict[str, Any]):
    run(recipe_of(corpus), tmp_path / "out", engine="cpu")
    before = digests(tmp_path / "out")
    rest = {key: value for key, value in wrong.items() if key != "text_column"}
    entry = {"path": str(corpus), "text_column": wrong.get("text_column", "")}
    with pytest.raises(CurationError):
        run(recipe_of(entry, **rest), tmp_path / "out", engine="cpu", force=True)
    assert digests(tmp_path / "out") == before and verify(tmp_path / "out") == []


def test_force_without_the_memory_for_a_run_deletes_nothing(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
):
    run(recipe_of(corpus), tmp_path / "out", engine="cpu")
    before = digests(tmp_path / "out")

    def refuse(*_: Any, **__: Any) -> None:
        raise MemoryError("too little")

    monkeypatch.setattr("curation.running.planning.arguments.choose", refuse)
    with pytest.raises(MemoryError):
        run(recipe_of(corpus), tmp_path / "out", engine="cpu", force=True)
    assert digests(tmp_path / "out") == before


def test_what_is_not_a_runs_own_is_seen_before_anything_is_deleted(tmp_path: Path, corpus: Path):
    run(recipe_of(corpus), tmp_path / "out", engine="cpu")
    before = digests(tmp_path / "out")
    (tmp_path / "out" / "notes.tmp").touch()
    with pytest.raises(OutputError, match=r"is not empty \(it has notes\.tmp\); give a new --output$"):
        run(recipe_of(corpus), tmp_path / "out", engine="cpu", force=True)
    (tmp_path / "out" / "notes.tmp").unlink()
    assert digests(tmp_path / "out") == before


def test_a_readme_of_a_person_is_never_replaced(tmp_path: Path, corpus: Path):
    readme = tmp_path / "out" / "README.md"
    readme.parent.mkdir()
    readme.write_text("---\nmine: true\n---\n")
    for force in (False, True):
        with pytest.raises(OutputError, match=r"is not empty \(it has README\.md\); give a new --output$"):
            run(recipe_of(corpus), tmp_path / "out", engine="cpu", force=force)
    assert readme.read_text() == "---\nmine: true\n---\n"
    readme.unlink()
    run(recipe_of(corpus), tmp_path / "out", engine="cpu")
    run(recipe_of(corpus, name="another"), tmp_path / "out", engine="cpu", force=True)
    assert "# `another`\n" in readme.read_text() and verify(tmp_path / "out") == []


def test_force_deletes_what_a_killed_run_has_left_half_written(tmp_path: Path, corpus: Path):
    run(recipe_of(corpus), tmp_path / "out", engine="cpu")
    (tmp_path / "out" / "report.json").unlink()
    for name in ("rejected.jsonl.a-b-47-11.tmp", "report.html.host-1-2.tmp", "sample_dataset.pt.host-1-1.tmp"):
        (tmp_path / "out" / name).touch()
    assert run(recipe_of(corpus), tmp_path / "out", engine="cpu", force=True).report["documents"]["read"] == 60
    assert verify(tmp_path / "out") == []


@pytest.mark.parametrize("force", [False, True])
def test_an_input_where_the_run_writes_is_refused(tmp_path: Path, corpus: Path, force: bool):
    folder = tmp_path / "out"
    run(recipe_of(corpus), folder, engine="cpu")
    before = digests(folder)
    (tmp_path / "link").symlink_to(folder / "documents")
    for path in (
        folder / "documents",
        folder / "documents" / "*.parquet",
        folder / "rejected.jsonl",
        tmp_path / "link",
        f"file://{folder}/documents/part-00000.parquet",
        f"hf:{folder}/documents",
    ):
        with pytest.raises(InputError, match=r"lies in the output folder .*out; give another --output"):
            run(recipe_of(path), folder, engine="cpu", force=force)
    assert digests(folder) == before
    assert not run(recipe_of(folder / "documents"), tmp_path / "next", engine="cpu").already_complete


# What makes a run this run


def test_a_tokenizer_that_changes_is_another_run(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "tok.json"
    words = words_of(made_texts(60))
    write_tokenizer(path, words)
    recipe = recipe_of(corpus, stages=[], tokenizer={"name": str(path)}, output={"part_documents": 20})
    run(recipe, tmp_path / "whole", engine="cpu")
    assert report_of(tmp_path / "whole")["tokenizer"].keys() == {"sha256", "eod", "bos", "revision"}

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "interrupted here")

    with monkeypatch.context() as patch:
        patch.setattr("curation.running.phase_loop.plan_tokens", fail)
        with pytest.raises(OSError, match="interrupted here"):
            run(recipe, tmp_path / "out", engine="cpu")
    kept = path.read_bytes()
    write_tokenizer(path, words[::-1])
    for folder in ("out", "whole"):
        with pytest.raises(
            OutputError, match=r"changed: tokenizer\.eod, tokenizer\.sha256\. Give a new --output, or --force"
        ):
            run(recipe, tmp_path / folder, engine="cpu")
    path.write_bytes(kept)
    run(recipe, tmp_path / "out", engine="cpu")
    assert data_digests(tmp_path / "out") == data_digests(tmp_path / "whole")
    assert run(recipe, tmp_path / "whole", engine="cpu").already_complete


def test_a_run_without_tokens_needs_no_tokenizer(tmp_path: Path, corpus: Path):
    recipe = recipe_of(corpus, tokenizer={"name": "./none.json"}, output={"formats": []})
    assert run(recipe, tmp_path / "out", engine="cpu").report["tokenizer"] == {}


def test_what_has_changed_of_each_file_is_said(tmp_path: Path):
    paths = [tmp_path / "in" / f"{name}.jsonl" for name in "abcd"]
    paths[0].parent.mkdir()
    for path in paths[:3]:
        path.write_bytes(records_of(["one"]))
    recipe = recipe_of(tmp_path / "in")
    run(recipe, tmp_path / "out", engine="cpu")
    os.utime(paths[0], ns=(0, 0))
    paths[1].write_bytes(records_of(["one two"]))
    os.utime(paths[1], ns=(1, 1))
    paths[2].rename(paths[3])
    told = zip(paths, ("(modified time)", "(size, modified time)", "(gone)", "(new)"), strict=True)
    changed = ", ".join(f"file {path} {what}" for path, what in told)
    with pytest.raises(OutputError, match=re.escape(f"changed: {changed}. Give a new")):
        run(recipe, tmp_path / "out", engine="cpu")


# What is left of a finished run


def test_a_run_whose_outputs_are_gone_is_not_complete(tmp_path: Path, corpus: Path):
    recipe, out = recipe_of(corpus, output={"part_documents": 5}), tmp_path / "out"
    before = set(run(recipe, out, engine="cpu").report["outputs"])
    (out / "rejected.jsonl").unlink()
    with pytest.raises(
        OutputError, match=rf"missing from .*: rejected\.jsonl \(1 of {len(before)} outputs\)\. .* or --force"
    ):
        run(recipe, out, engine="cpu")
    for path in (out / "documents").iterdir():
        path.unlink()
    named = ", ".join(f"documents/part-0000{number}.parquet" for number in range(5))
    with pytest.raises(OutputError, match=rf"out: {named}, \.\.\. \("):
        run(recipe, out, engine="cpu")
    assert set(run(recipe, out, engine="cpu", force=True).report["outputs"]) == before


@pytest.mark.parametrize("output", [{}, {"splits": {"train": 0.5, "valid": 0.5}}])
def test_a_moved_run_gets_the_paths_of_today(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    output: dict[str, Any],
):  # fmt: skip
    recipe, out, moved = recipe_of(corpus, output=output), tmp_path / "out", tmp_path / "away" / "moved"
    run(recipe, tmp_path / "away" / "moved", engine="cpu")
    expected = digests(moved)
    moved.rename(out)
    assert main(["verify", str(out)]) == 0 and f"with --output {out}" in capsys.readouterr().out
    said = Said()

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "interrupted here")

    with monkeypatch.context() as patch:
        patch.setattr("curation.results.finished.moved_paths.write_report", fail)
        with pytest.raises(OSError, match="interrupted here"):
            run(recipe, out, engine="cpu")
    finished = run(recipe, out, engine="cpu", progress=said)
    assert finished.already_complete and finished.report == report_of(out)
    [line] = said.lines
    assert line == f"the folder has moved: rewrote tokens/_meta/ with paths in {out}"
    assert verify(out) == [] and digests(out) == expected
    assert main(["verify", str(out)]) == 0 and "has moved" not in capsys.readouterr().out
    meta = out / "tokens" / "_meta"
    names = {"blend.txt", "nemo.yaml", "README.txt", *(["per_split.json"] if output else [])}
    assert {path.name for path in meta.iterdir()} == names | {"manifest.json"}
    for name in names:
        text = (meta / name).read_text()
        assert f"{out}/" in text and str(moved) not in text
    run(recipe, out, engine="cpu", progress=said)
    assert len(said.lines) == 1


@pytest.mark.parametrize("output", [{}, {"splits": {"train": 0.5, "valid": 0.5}}])
def test_another_manifest_matters_where_a_run_has_moved(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str], output: dict[str, Any]
):
    recipe, out, moved = recipe_of(corpus, output=output), tmp_path / "away" / "out", tmp_path / "out"
    run(recipe, out, engine="cpu")
    path = Path("tokens", "_meta", "manifest.json")
    whole = (out / path).read_bytes()
    before = digests(out)
    for changed in (whole.replace(b'"source": ', b'"note": "mine", "source": ', 1), b"[]", b"{"):
        (out / path).write_bytes(changed)
        as_changed = digests(out)
        said = Said()
        assert run(recipe, out, engine="cpu", progress=said).already_complete and said.lines == []
        assert main(["verify", str(out)]) == 1
        out.rename(moved)
        with pytest.raises(OutputError, match=r"manifest\.json, the source of its new paths, has changed"):
            run(recipe, moved, engine="cpu")
        assert main(["verify", str(moved)]) == 1
        assert capsys.readouterr().out.count("problem: tokens/_meta/manifest.json has changed") == 2
        moved.rename(out)
        assert digests(out) == as_changed
    (out / path).write_bytes(whole)
    assert digests(out) == before and verify(out) == []


# What a folder is


@pytest.mark.parametrize("below", ["index/x", "tokens/x/y", "_work/x"])
def test_an_output_among_those_of_another_run_is_refused(tmp_path: Path, corpus: Path, below: str):
    other = tmp_path / "other"
    run(recipe_of(corpus), other, engine="cpu")
    before = digests(other)
    with pytest.raises(OutputError, match=rf"x\S* lies in \w+/ of the run in {other}; give another --output"):
        run(recipe_of(corpus), other / below, engine="cpu")
    assert digests(other) == before
    run(recipe_of(corpus), other / "mine" / below, engine="cpu")
    run(recipe_of(corpus), tmp_path / below, engine="cpu")


def test_an_output_that_is_a_file(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").touch()
    for output in (tmp_path / "file", tmp_path / "file" / "out"):
        assert main(["run", "-i", str(corpus), "-o", str(output), "--engine", "cpu"]) == 2
        assert "is a file; give another --output, which must be a folder" in capsys.readouterr().err


def test_a_file_system_without_locks(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch):
    opened = len(os.listdir("/proc/self/fd"))

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    said = Said()
    with locked(tmp_path / "out", said):
        assert len(os.listdir("/proc/self/fd")) == opened + 1
    assert len(os.listdir("/proc/self/fd")) == opened
    [line] = said.lines
    assert "has no locks (Function not implemented): do not start a second run there" in line
    run(recipe_of(corpus), tmp_path / "out", engine="cpu", progress=said)
    assert verify(tmp_path / "out") == [] and line in said.lines


# An output inside an input


def test_an_output_below_its_input_is_not_read(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    recipe = recipe_of({"path": ".", "name": "all"})

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "interrupted here")

    with monkeypatch.context() as patch:
        patch.setattr("curation.running.run.write_report", fail)  # all other files are there
        with pytest.raises(OSError, match="interrupted here"):
            run(recipe, "killed", engine="cpu")
    for folder in ("killed", "out"):
        report = run(recipe, folder, engine="cpu").report
        assert [Path(file["path"]).name for file in report["files"]] == ["made.jsonl"]
        assert run(recipe, folder, engine="cpu").already_complete
        assert run(recipe, folder, engine="cpu", force=True).report["documents"]["read"] == 60
    assert digests(tmp_path / "killed") == digests(tmp_path / "out")
