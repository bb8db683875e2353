# SPDX-License-Identifier: Apache-2.0
"""A command that is killed before or after any rename or deletion and started again ends in the same files."""

import multiprocessing
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from curation.cli.main import main
from curation.frames import frames
from tests.runs import digests
from tests.tools.endpoint import serving

# Each process is a copy of one that has libraries loaded.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.running.kernels_loaded", __name__])
STEPS = ("replace", "rename", "mkdir", "unlink", "rmdir")
EACH, SPREAD = 1, 9  # every moment, or every ninth: a training has many
COMMANDS = {
    "merge PAIR -o m/s": EACH,
    "split PAIR -o m/s --max-bytes 4000": EACH,
    "train tokenizer d.jsonl -o m/t.json --vocabulary 400": EACH,
    "train tokenizer d.jsonl -o m/t.model --vocabulary 400": EACH,
    "train lm d.jsonl -o m/lm.arpa --order 2": SPREAD,
    "train classifier --label a d.jsonl --label b e.jsonl -o m/c.bin --epochs 1": EACH,
    "check-overlap --train d.jsonl --test e.jsonl -o m/o.json": EACH,
    "init d.jsonl -o m/r.yaml": EACH,
    "import-config other.yaml -o m/r.yaml": EACH,
    "compare o copy --html m/c.html": EACH,
    "align d.jsonl e.jsonl --model model -o m/p.parquet --engine cpu": EACH,
    "generate task.yaml --set endpoint=ENDPOINT -o m/g": EACH,
    "run s.yaml -o m/o --reuse old --engine cpu": SPREAD,
    "measure d.jsonl -o m/o --engine cpu": SPREAD,
    "tokenize d.jsonl -o m/o --tokenizer gpt2 --engine cpu": SPREAD,
}
TIME = re.compile(rb'"time":[0-9.]+')  # of an answer of an endpoint


class Steps:
    """Counts moments before and after steps in the folder `m`, and dies at one of them."""

    def __init__(self, moment: int) -> None:
        self.moment, self.count = moment, 0
        for name in STEPS:
            setattr(os, name, partial(self.take, getattr(os, name)))

    def take(self, step: Callable[..., Any], path: Any, *rest: Any, **options: Any) -> Any:
        self.pass_moment(path)
        result = step(path, *rest, **options)
        self.pass_moment(path)
        return result

    def pass_moment(self, path: Any) -> None:
        if not isinstance(path, int) and "m" in os.fspath(path).split("/"):
            self.count += 1
            if self.count == self.moment:
                os.kill(os.getpid(), signal.SIGKILL)


def run_command(folder: Path, words: list[str], moment: int) -> None:
    """Run a command in this process, and write its output and the number of moments to files."""
    os.chdir(folder)
    os.environ["NO_PROXY"] = "127.0.0.1"
    frames._folder.cache_clear()  # of the process that this one is a copy of
    with open("log", "w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    steps = Steps(moment)
    code = main(words)
    Path("count").write_text(str(steps.count))
    sys.exit(code)


def run_until(folder: Path, words: list[str], moment: int) -> tuple[int, str]:
    """Return the exit code of a command that dies at a moment (0: at none), and its output."""
    (folder / "m").mkdir(exist_ok=True)
    process = PROCESSES.Process(target=run_command, args=(folder, words, moment))
    process.start()
    process.join()
    return process.exitcode, (folder / "log").read_text()


@pytest.mark.slow("each command that writes files, killed at each rename and deletion, and started again")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_killed_command_starts_again(command_files: Path, command: str) -> None:
    (pair,) = (command_files / "o" / "tokens").glob("*.bin")
    with serving(lambda request, number: f"about {request['messages'][-1]['content']}") as local:
        walk(command_files, command, command.replace("PAIR", str(pair.with_suffix(""))).replace("ENDPOINT", local.url))


def walk(command_files: Path, command: str, line: str) -> None:
    words = line.split()
    clear(command_files)
    code, log = run_until(command_files, words, 0)
    assert code in (0, 3), log
    expected, moments = content(command_files / "m"), int((command_files / "count").read_text())
    for moment in range(1, moments + 1, COMMANDS[command]):
        clear(command_files)
        killed = run_until(command_files, words, moment)[0]
        if killed == code and moment > moments // 2:
            break  # the first run wrote notes of its progress more often, which it does by time
        assert killed == -signal.SIGKILL
        again, log = run_until(command_files, words, 0)
        assert again == code or (again == 2 and "exists already" in log), (moment, log)
        assert content(command_files / "m") == expected, (moment, log)


def content(folder: Path) -> dict[str, Any]:
    if (folder / "o" / "report.json").is_file():
        return digests(folder / "o")
    return {str(path): TIME.sub(b"", path.read_bytes()) if path.is_file() else b"" for path in folder.rglob("*")}


def clear(command_files: Path) -> None:
    shutil.rmtree(command_files / "m", ignore_errors=True)
