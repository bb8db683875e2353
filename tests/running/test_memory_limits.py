# SPDX-License-Identifier: Apache-2.0
"""`curate run` where memory is short: it takes less, says what to set, and ends in the same bytes."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from curation.cli import main
from curation.running import phase_loop
from curation.running import run as runner
from tests.runs import data_digests, files_below, made_texts, records_of

CHILD = """
import resource, sys
bound = int(sys.argv[1])
if bound:
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
from curation.cli import main
code = main(sys.argv[2:])
with open("/proc/self/status") as status:
    print(next(line for line in status if line.startswith("VmPeak")))
sys.exit(code)
"""
MIB = 1 << 20


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "made.jsonl"
    path.write_bytes(records_of(made_texts(2000)))
    return path


def curate_within(bound: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """`curate` in a process that may have so many bytes of addresses (0: any number)."""
    command = [sys.executable, "-c", CHILD, str(bound), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow("a run with a low memory limit uses fewer workers and gives the same bytes")
def test_a_low_limit_takes_fewer_workers_and_gives_the_same_bytes(corpus: Path, tmp_path: Path):
    command = ("run", "-i", corpus, "--engine", "cpu", "-o")
    free = curate_within(0, *command, "free", "--workers", 2)
    assert free.returncode == 0, free.stderr
    assert "2 workers" in free.stderr and "free in the machine" in free.stderr
    peak = int(re.search(r"VmPeak:\s+(\d+) kB", free.stdout)[1]) << 10
    low = curate_within(peak + 40 * MIB, *command, "low")  # enough for this corpus, not for any corpus
    assert low.returncode == 0, low.stderr
    assert "1 worker;" in low.stderr and "memory: batches of 1 MB" in low.stderr
    assert "that may be too little: raise ulimit -v to" in low.stderr
    assert data_digests(tmp_path / "free") == data_digests(tmp_path / "low")


def test_a_limit_that_is_too_low_is_refused_before_anything_is_loaded(corpus: Path, tmp_path: Path):
    refused = curate_within(300 * MIB, "run", "-i", corpus, "--engine", "cpu", "-o", "out")
    assert refused.returncode == 1
    assert re.fullmatch(
        r"curate: ulimit -v leaves \d+ MB, and the smallest run needs 566 MB; raise ulimit -v to 1.1 GB \(\d+\)\n",
        refused.stderr,
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("step", ["collect", "make_plan"])
def test_running_out_before_the_first_slice_is_the_same_message(
    corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, step: str
):
    def exhausted(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(runner, step, exhausted)
    assert main(["run", "-i", str(corpus), "--engine", "cpu", "--workers", "2", "-o", "out"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("curate: memory ran out (MemoryError): give --workers 1, or "), last


@pytest.mark.slow("a run that is out of memory ends with one message and resumes")
@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_running_out_of_memory_is_one_message_and_the_run_goes_on(
    corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, scheduler: str
):
    plain = ["run", "-i", str(corpus), "--engine", "cpu", "--workers", "2", "-o"]
    command = [*plain[:-1], "--scheduler", scheduler, "-o"]
    assert main([*plain, "whole"]) == 0
    capsys.readouterr()

    def exhausted(*_: Any) -> None:
        raise pa.lib.ArrowMemoryError("malloc of size 4096 failed")

    with monkeypatch.context() as patch:
        patch.setattr(phase_loop, "plan_removed", exhausted)
        assert main([*command, "out"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    last = err.splitlines()[-1]
    assert last.startswith("curate: memory ran out (malloc of size 4096 failed): give --workers 1, or "), last
    assert "Rerun the same command without --force to resume" in last and "Traceback" not in err
    done = set(files_below(Path("out")))
    assert any(name.startswith("_work/segment-0/") for name in done) and "report.json" not in done
    assert main([*command, "out"]) == 0
    assert data_digests(Path("out")) == data_digests(Path("whole"))
