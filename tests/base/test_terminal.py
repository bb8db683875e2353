# SPDX-License-Identifier: Apache-2.0
"""Lines for people on a terminal, and that no text can control it."""

import io
import subprocess
import sys
import unicodedata
import warnings
from pathlib import Path

import pytest

from curation.base.system.cluster import process_pool
from curation.base.system.terminal import UNSAFE, fitted, printable, printable_line
from curation.cli import main
from curation.cli.console import Console
from curation.cli.main import _show_warning
from tests.runs import records_of

ROOT = Path(__file__).resolve().parents[2]
LONG = "documents that were removed for a reason and its https://example.org/" + "a" * 40
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\x85"
HIDDEN = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # all bidi controls
HIDDEN += "\u2028\u2029\ufeff\u2060\u2061\u2064\u180e\ufff9\ufffb\U000e0001\U000e0041\U000e007f"
WRITTEN = "می\u200cخواهم क्\u200dष 👩\u200d💻 ភាសា\u200bខ្មែរ e\u0301\ufe0f\xad"  # joiners and marks of languages
# What Python and libraries print: a traceback, one of a thread, a warning, a log message, and text.
OTHERS = """
import logging, sys, threading, warnings
from curation.base.system.terminal import protect_streams

name = sys.argv[1]
protect_streams()

def fail():
    raise ValueError(name)

thread = threading.Thread(target=fail)
thread.start()
thread.join()
logging.getLogger("library").warning("%s", name)
warnings.warn(name)
print(name.replace("\\x1b", ""))
fail()
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [10, 40, 80])
def test_lines_break_between_words_on_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = fitted(LONG, Terminal()).splitlines()
    assert " ".join(map(str.strip, lines)) == LONG and len(lines) > 1
    assert all(len(line) <= columns or " " not in line.strip() for line in lines)


def test_pipes_tables_and_commands_keep_their_lines(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert fitted(LONG, io.StringIO()) == LONG
    for line in ("      curate show DIR --reason too_few_words", "name      12,345   99.00%"):
        assert fitted(line, Terminal()) == line


def test_escapes_of_characters():
    assert printable("a\x1b[1m\tb\n\x9b\udc80é") == "a\\x1b[1m\tb\n\\x9b\\udc80é"
    assert printable_line("a\tb\nc") == "a\\tb\\nc"
    assert printable("\u202eabc\u2028\ufeff\U000e0041") == "\\u202eabc\\u2028\\ufeff\\U000e0041"
    assert all(UNSAFE.fullmatch(character) for character in HIDDEN) and printable_line(WRITTEN) == WRITTEN
    every = map(chr, range(sys.maxunicode + 1))
    named = {c for c in every if unicodedata.bidirectional(c) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI",
             "FSI", "PDI", "B"} and c != "\n"}  # fmt: skip
    assert all(map(UNSAFE.fullmatch, named))


def assert_safe(shown: str) -> None:
    assert shown and UNSAFE.findall(shown) == []


def test_no_control_or_hidden_character_reaches_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    hostile = ESCAPES + HIDDEN
    (tmp_path / f"a{hostile}.jsonl").write_bytes(
        records_of([*(f"{hostile} some {WRITTEN} words of a text {number}" for number in range(3)), "short"])
        + b"no record\n" * 9
    )
    text = "".join(f"\\U{ord(character):08x}" for character in hostile)
    stages = f'[{{kind: filter, name: "s{text}", rules: [{{measure: words, min: 2, reason: "r{text}"}}]}}]'
    (tmp_path / "evil.yaml").write_text(f'name: "n{text}"\nstages: {stages}\n')
    of_file = ["evil.yaml", "-i", f"a{hostile}.jsonl"]
    commands = (
        ["run", *of_file, "-o", "out", "--engine", "cpu"],
        ["run", *of_file, "-o", "out", "--engine", "cpu"],
        ["run", "evil.yaml", "-i", f"missing{hostile}.jsonl", "-o", "out"],
        ["run", "evil.yaml", "--workers", hostile],
        ["run", *of_file, f"unexpected {hostile}"],
        ["run", *of_file, "--set", f"{hostile}=1"],
        [f"run{hostile}"],
        ["run", *of_file, "-o", "json", "--engine", "cpu", "--log", "json"],
        ["plan", *of_file],
        ["plan", *of_file, "--full"],
        ["init", f"a{hostile}.jsonl", "--output", "made.yaml"],
        ["show", "out"],
        ["show", "out", "--what", "kept"],
        ["show", "out", "--what", "rejected"],
        ["compare", "out", "json"],
        ["verify", "out"],
        ["recipes", "show", "made.yaml"],
        ["recipes", "show", f"x{hostile}"],
    )
    monkeypatch.chdir(tmp_path)
    for command in commands:
        main(command)
        shown = "".join(capfd.readouterr())
        assert_safe(shown)
        assert "Traceback" not in shown, command
        assert command[-1] != "kept" or WRITTEN in shown


def test_errors_and_warnings_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A name with a line end must not look like a second message."""
    assert main(["verify", str(tmp_path / "a\nwarning: b")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    _show_warning(Console(), UserWarning("of a library\nin lines \x1b[2J"), UserWarning, "lib.py", 3)
    assert capsys.readouterr().err == "warning: lib.py:3: UserWarning: of a library\\nin lines \\x1b[2J\n"


def test_what_python_and_libraries_print_is_escaped():
    hostile = f"{ESCAPES}{HIDDEN}"
    command = [sys.executable, "-c", OTHERS, hostile]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and ended.stderr.count("\\u202e") >= 4
    assert_safe(ended.stdout)
    assert_safe(ended.stderr)


@pytest.mark.slow("what worker processes print is escaped")
def test_what_worker_processes_print_is_escaped(capfd: pytest.CaptureFixture[str]):
    with process_pool(1) as pool:
        pool.submit(warnings.warn, f"{ESCAPES}{HIDDEN}").result()
    shown = capfd.readouterr().err
    assert_safe(shown)
    assert "\\x1b" in shown and "\\u202e" in shown
