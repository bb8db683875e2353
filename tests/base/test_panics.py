# SPDX-License-Identifier: Apache-2.0
"""Panics of libraries in Rust end in one message; nothing of them is printed, and no message of others is lost."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from curation.base.errors import InputError, TokenizerError
from curation.base.system.panics import PanicError, without_panics
from curation.cli import main
from curation.models.encoders import read_tokenizer
from curation.tokens.tokenization import TokenizerSpec, load_tokenizer
from tests.runs import records_of

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_PARTS = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
MODEL = {"type": "BPE", "vocab": {letter: number for number, letter in enumerate("abcdefghij")}, "merges": []}
STRIP = {"type": "Strip", "content": "a", "start": 9999, "stop": 9999}
HOSTILE: dict[str, dict[str, Any]] = {  # part of a tokenizer.json -> what makes the library panic
    "no table": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AA=="}},
    "a wrong table": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAAEBAABhYmM="}},
    "a chunk of 0": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "a prefix": {"model": {**MODEL, "merges": ["a b"], "continuing_subword_prefix": "####"}},
    "half a character": {"model": {**MODEL, "vocab": {"é": 0, "a": 1, "aé": 2}, "merges": [["a", "é"]],
                                   "continuing_subword_prefix": "x"}},
    "much backtracking": {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated",
                                            "invert": False}},
}  # fmt: skip


def write(path: Path, changed: dict[str, Any]) -> Path:
    whole = {"version": "1.0", "added_tokens": [], "model": MODEL, **dict.fromkeys(WITHOUT_PARTS)}
    path.write_text(json.dumps(whole | changed))
    return path


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_tokenizer_is_one_message(case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    path = write(tmp_path / "tokenizer.json", HOSTILE[case])
    (tmp_path / "a.jsonl").write_bytes(records_of(["some words"]))
    command = ["tokenize", str(tmp_path / "a.jsonl"), "--tokenizer", str(path), "-o", str(tmp_path / "out")]
    assert main(command) == 2
    out, err = capfd.readouterr()
    assert not out and err.startswith("curate: ") and err.count("\n") == 1 and str(path) in err, err
    if case not in ("a chunk of 0", "much backtracking"):  # which encode the letter that is tried
        with pytest.raises(InputError, match="cannot be read as a tokenizer"):
            read_tokenizer(tmp_path)
    assert capfd.readouterr() == ("", "")


def test_a_decoder_that_panics_is_one_message(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    path = write(tmp_path / "tokenizer.json", {"decoder": STRIP})
    with pytest.raises(TokenizerError, match=r"tokenizer .* cannot decode ids: index out of bounds"):
        load_tokenizer(TokenizerSpec(name=str(path), append_eod=False)).decode([0, 1])
    assert capfd.readouterr() == ("", "")


class PanicException(BaseException):
    """As those of pyo3, whose libraries have a class each."""


def test_what_others_write_meanwhile_is_printed(capfd: pytest.CaptureFixture[str]):
    panic = "\nthread '<unnamed>' (7) panicked at src/lib.rs:1:2:\nhostile\x1b[2J\nstack backtrace:\n   0: a\n"
    inside, written = threading.Barrier(2), threading.Barrier(2)

    def other() -> None:
        with without_panics():
            inside.wait(60)
            os.write(2, b"of another thread\x1b[2J\n")
            written.wait(60)

    @without_panics()
    def panicking() -> None:
        inside.wait(60)
        written.wait(60)
        os.write(2, panic.encode())
        raise PanicException("hostile\nmore")

    thread = threading.Thread(target=other)
    thread.start()
    with pytest.raises(PanicError, match=r"^hostile$"):
        panicking()
    thread.join(60)
    assert capfd.readouterr().err == "of another thread\\x1b[2J\n"
    with pytest.raises(KeyError), without_panics():
        raise KeyError
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "later\n"


def test_commands_print_at_once():
    program = """
import os, sys
from curation.base.system.panics import without_panics
from curation.base.system.terminal import print_error, protect_streams

protect_streams()
with without_panics():
    os.write(2, b"native\\n")
    print_error("Python")
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stderr == "Python\nnative\n"
