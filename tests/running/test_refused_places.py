# SPDX-License-Identifier: Apache-2.0
"""Places that cannot be written or read as files: one message before anything is done, and nothing left behind."""

import errno
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import curation
from curation.base.arrays import save_array, write_array
from curation.base.errors import InputError, OutputError
from curation.cli import main
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.running.run import run
from curation.tokens.repack import repack
from tests.runs import recipe_of

URLS = ("gs://bucket/run1", "https://host/out", "hf://datasets/x", "s3:/bucket/run1")


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "some words of a text"}\n' * 50)
    return path


@pytest.mark.parametrize("url", URLS)
def test_outputs_that_are_urls_are_refused(url: str, texts: Path, tmp_path: Path):
    writers: list[Callable[[], object]] = [
        lambda: run(recipe_of(texts), url, engine="cpu"),
        lambda: curation.train_tokenizer(texts, f"{url}/tokenizer.json"),
        lambda: repack(["a_00000_text_document"], url, 1000),
    ]
    for write in writers:
        with pytest.raises(OutputError, match=r"the output is a URL \(\w+://\), expected a local path"):
            write()
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_the_path_of_a_file_url_is_named(texts: Path):
    with pytest.raises(OutputError, match=r"is a URL \(file://\), expected a local path\. Give /data/out$"):
        run(recipe_of(texts), "file:///data/out", engine="cpu")


@pytest.mark.skipif(find_spec("s3fs") is not None, reason="s3fs is installed")
def test_an_output_in_s3_needs_the_extra(texts: Path, tmp_path: Path):
    with pytest.raises(
        OutputError, match=r"^s3://bucket/run1 needs another package: .* .*gpu-pipeline\[s3\]'.*in a clone$"
    ):
        run(recipe_of(texts), "s3://bucket/run1", engine="cpu")
    assert os.listdir(tmp_path) == ["a.jsonl"]


COMMANDS = (
    ("run", "-i", "a.jsonl"),
    ("measure", "-i", "a.jsonl"),
    ("tokenize", "a.jsonl"),
    ("train-tokenizer", "-i", "a.jsonl"),
    ("merge", "a"),
    ("split", "a", "--max-bytes", "5"),
    ("demo",),
)


@pytest.mark.parametrize("command", COMMANDS, ids=[command[0] for command in COMMANDS])
def test_every_command_refuses_urls(
    command: tuple[str, ...], texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main([*command, "--output", "gs://bucket/a.json"]) == 2
    assert capsys.readouterr().err.startswith("curate: the output is a URL (gs://)")
    assert os.listdir(tmp_path) == ["a.jsonl"]


WRITERS = (
    "init a.jsonl --force -o x.yaml",
    "import-config a.jsonl --force -o x.yaml",
    "align a.jsonl a.jsonl --force -o x.jsonl",
    "check-overlap --train a.jsonl --test a.jsonl --force -o x.json",
    "train tokenizer a.jsonl --force -o x.json",
    "train tokenizer a.jsonl --force -o x.model",
    "train classifier --label a a.jsonl --label b a.jsonl --force -o x.bin",
    "train lm a.jsonl --force -o x.arpa",
    "compare a b --html x.html",
)


def identity_of(path: Path) -> tuple[int, int, int, int]:
    """Which entry of a folder this is. Reading a link changes the time of access alone."""
    status = os.lstat(path)
    return status.st_dev, status.st_ino, status.st_mode, status.st_mtime_ns


@pytest.mark.parametrize("command", WRITERS)
def test_no_command_replaces_anything_but_a_file(
    command: str, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Nor does a command without `--force` replace a link whose file is missing."""
    mine, taken = tmp_path / "mine.txt", tmp_path / command.split()[-1]
    mine.write_text("years of work")
    makers: tuple[tuple[str, Callable[[], object]], ...] = (
        ("a link", lambda: taken.symlink_to(mine)),
        ("a link", lambda: taken.symlink_to("nothing")),
        ("a pipe or a device", lambda: os.mkfifo(taken)),
    )
    for kind, make in makers:
        make()
        before = identity_of(taken)
        for words in dict.fromkeys((command, command.replace("--force ", ""))):
            assert main([*words.split(), "--quiet"] if "compare" not in words else words.split()) in (1, 2)
            [line] = capsys.readouterr().err.splitlines()
            assert taken.name in line and (kind in line or ("exists already" in line and "--force" not in words)), line
        assert identity_of(taken) == before and mine.read_text() == "years of work"
        assert sorted(os.listdir(tmp_path)) == sorted(["a.jsonl", "mine.txt", taken.name])
        taken.unlink()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("mine.txt", path)], ids=["pipe", "link"])
def test_a_demo_writes_through_no_link(make: Callable[[str], object], texts: Path, capsys: pytest.CaptureFixture[str]):
    os.mkdir("demo")
    make("demo/corpus.jsonl.unfinished")
    assert main(["demo", "--quiet"]) == 2
    assert "demo is not empty and has no corpus.jsonl of a demo" in capsys.readouterr().err
    assert os.listdir("demo") == ["corpus.jsonl.unfinished"]


def test_names_that_are_too_long_are_refused_before_the_run(texts: Path, tmp_path: Path):
    name = "n" * 240
    with pytest.raises(OutputError, match=r"cannot be written to .*/tokens: its .* \d+ bytes, .* allows 255\. Shorten"):
        run(recipe_of({"path": str(texts), "name": name}), tmp_path / "out", engine="cpu")
    deep = tmp_path / "/".join(["d" * 200] * 20)
    with pytest.raises(OutputError, match=r"cannot be written to .* the file system allows 4095"):
        run(recipe_of(texts), deep, engine="cpu")
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_pipes_and_devices_are_not_read(texts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    folder = tmp_path / "in"
    folder.mkdir()
    os.mkfifo(folder / "b.jsonl")
    os.mkfifo(folder / "c.txt")
    os.link(texts, folder / "a.jsonl")
    (folder / "d.jsonl").symlink_to("/dev/zero")
    for path in (folder, folder / "*"):
        with caplog.at_level(logging.WARNING):
            [found] = find_files([Input(path=str(path))])
        assert found.path == str(folder / "a.jsonl")
        assert [record.message for record in caplog.records] == [
            f"{folder / name} is skipped: it is no regular file" for name in ("b.jsonl", "c.txt", "d.jsonl")
        ]
        caplog.clear()
    for name in ("b.jsonl", "d.jsonl"):
        with pytest.raises(InputError, match=rf"{name} is no regular file"):
            find_files([Input(path=str(folder / name))])
    with pytest.raises(InputError, match=r"list of inputs .*b\.jsonl is no regular file"):
        find_files([Input(path=f"@{folder / 'b.jsonl'}")])


def test_a_model_that_is_a_pipe_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "model.bin")
    with pytest.raises(InputError, match=r"model\.bin: it is not a regular file"):
        curation.Language(keep=["en"], model=str(tmp_path / "model.bin"))


ARRAYS = (
    np.arange(5),
    np.zeros((2, 3), np.uint32),
    np.zeros(0, np.int64),
    np.zeros((0, 4)),
    np.arange(9)[::2],
    np.ones((2, 3)).T,
)


def test_arrays_are_written_as_numpy_does(tmp_path: Path):
    for number, values in enumerate(ARRAYS):
        with open(tmp_path / "a", "wb") as file:
            write_array(file, values)
        assert (tmp_path / "a").read_bytes() == values.tobytes()
        save_array(tmp_path / f"{number}.npy", values)
        found = np.load(tmp_path / f"{number}.npy")
        assert found.dtype == values.dtype and found.shape == values.shape and (found == values).all()


def test_a_full_disk_is_named(tmp_path: Path):
    """NumPy's own error has no number: "5 requested and 0 written"."""
    for write in (write_array, lambda file, values: save_array(Path(file.name), values)):
        with pytest.raises(OSError, match="No space left") as caught, open("/dev/full", "wb") as file:
            write(file, np.arange(100_000))
        assert caught.value.errno == errno.ENOSPC


@pytest.mark.slow("a run on a full disk resumes when there is space")
def test_a_run_on_a_full_disk_can_go_on(texts: Path, tmp_path: Path):
    """Where no file may be larger than some bytes, as with `ulimit -f`."""
    texts.write_bytes(b'{"text": "some words of a text that is no longer than others"}\n' * 20_000)
    command = [sys.executable, "-m", "curation", "tokenize", texts.name, "-o", "out"]
    limits = (500_000, 500_000)
    full = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits),
    )  # fmt: skip
    assert full.returncode == 1 and "Traceback" not in full.stderr
    assert "out: the file would be larger than allowed (EFBIG)" in full.stderr.splitlines()[-1]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
