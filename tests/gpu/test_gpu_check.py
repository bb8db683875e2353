# SPDX-License-Identifier: Apache-2.0
"""The check of a GPU machine: parts that fail or are killed cost no other part, and all that needs no device runs."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import gpu_check
from tests.needs import needs

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gpu_checks.md"
COMMANDS = re.findall(r"^    (python -m benchmarks\.gpu_check OUT\b[^#\n]*)", PAGE.read_text("utf-8"), re.MULTILINE)

# A program with parts of its own in place of those for a device.
BROKEN = """
import os, subprocess, sys, time
from benchmarks import gpu_check

def sound(place):
    yield {"seven": 3 + 4}

def on_device(place):
    yield {}

def fails(place):
    yield {"before": True}
    raise gpu_check.CheckError("other rows")

def crashes(place):
    print("double free or corruption")
    os.abort()

def endless(place, name):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield {"child": child.pid}
    time.sleep(60)

Part = gpu_check.Part
gpu_check.parts = lambda dry: [
    Part(fails, 60), Part(crashes, 60), Part(endless, 3, ("one",)), Part(sound, 60),
    Part(on_device, 60, device=True),
]
if __name__ == "__main__":
    sys.exit(gpu_check.main())
"""


@pytest.fixture
def broken(tmp_path: Path) -> list[str]:
    (tmp_path / "broken.py").write_text(BROKEN)
    return [sys.executable, str(tmp_path / "broken.py"), str(tmp_path / "out"), "--dry"]


def started(command: list[str], work: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(work)}
    work.mkdir()
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def results_of(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "results.jsonl").read_bytes().splitlines()]


def is_running(process: int) -> bool:
    """Whether a process is there and no zombie."""
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_part_that_fails_gives_one_error_and_the_next_one_runs(broken, tmp_path):
    program = started(broken, tmp_path / "work")
    printed, _ = program.communicate(timeout=60)
    found = results_of(tmp_path / "out")
    assert [json.loads(line) for line in printed.splitlines()] == found
    assert [(line["part"], line.get("error", line.get("skipped"))) for line in found] == [
        ("fails", None), ("fails", "exit code 1"), ("crashes", "exit code -6"), ("endless one", None),
        ("endless one", "over its limit of 3 s"), ("sound", None), ("on_device", "needs a device"), ("end", None),
    ]  # fmt: skip
    assert found[1]["log"][-1].endswith("CheckError: other rows")
    assert "double free or corruption" in found[2]["log"]
    assert found[5]["seven"] == 7
    assert found[-1]["failed"] == ["fails", "crashes", "endless one"] and program.returncode == 3
    assert not is_running(found[3]["child"])
    assert list((tmp_path / "work").iterdir()) == []


def test_no_part_starts_without_time(broken, tmp_path):
    program = started([*broken, "--limit", str(gpu_check.SPARE_SECONDS + 1)], tmp_path / "work")
    program.communicate(timeout=60)
    assert {line.get("skipped") for line in results_of(tmp_path / "out")[:-1]} == {"no time left", "needs a device"}


def test_a_stopped_program_keeps_its_results_and_ends_its_parts(broken, tmp_path):
    program = started([*broken, "--parts", "endless"], tmp_path / "work")
    child = json.loads(program.stdout.readline())["child"]
    program.send_signal(signal.SIGTERM)
    program.communicate(timeout=60)
    assert [line["part"] for line in results_of(tmp_path / "out")] == ["endless one"]
    deadline = time.monotonic() + 30
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(child) and list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dry", "--parts", "speeds"], "--parts: speeds is unknown; expected facts, host_memory,"),
        ([], "--english: expected a file of JSON Lines"),
        (["--english", "missing.jsonl"], "--english: expected a file of JSON Lines"),
    ],
)
def test_wrong_arguments(tmp_path, capsys, arguments, message):
    with pytest.raises(SystemExit):
        gpu_check.main([str(tmp_path / "out"), *arguments])
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_other_files_than_the_cpu_engine_are_named():
    gpu_check.check_same({"a": "1"}, {"a": "1"})
    with pytest.raises(gpu_check.CheckError, match="files: a, b"):
        gpu_check.check_same({"a": "1", "b": "1"}, {"a": "2"})


@pytest.mark.parametrize("run", [gpu_check.whole_run, gpu_check.cluster_run], ids=lambda run: run.__name__)
def test_a_run_with_other_files_fails(tmp_path, monkeypatch, run):
    """The CPU engine runs once."""
    engines = []

    def digests(place, recipe, texts, *arguments):
        engines.append(arguments[1])
        return {"tokens/a.bin": arguments[1]}

    monkeypatch.setattr(gpu_check, "digests_after", digests)
    place = gpu_check.Place(tmp_path, tmp_path, False, tmp_path)
    arguments = ("default", "english", "1") if run is gpu_check.whole_run else ("processes",)
    for _ in range(2):
        found = run(place, *arguments)
        assert next(found)["files"] == 1
        with pytest.raises(gpu_check.CheckError, match="tokens/a"):
            next(found)
    assert engines == ["cpu", "gpu", "gpu"]


def test_all_parts_have_names_of_their_own():
    """The crashes of the default recipe were seen in fresh processes, on two inputs."""
    names = [part.name for part in gpu_check.parts(dry=False)]
    assert len({*names}) == len(names)
    assert [name for name in names if name.startswith("whole_run default")] == [
        f"whole_run default {texts} {attempt}" for texts in ("english", "languages") for attempt in (1, 2, 3)
    ]


def ran_dry(command: str, out: Path) -> tuple[list[dict], str]:
    """Run a command of the page as a dry run, which may take longer on a busy machine."""
    words = [str(out) if word == "OUT" else word for word in shlex.split(command)[1:]]
    command = [sys.executable, *words, "--dry", "--limit", "3600"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return results_of(out), done.stderr


def test_page_faults(tmp_path):
    """New memory is page by page where NumPy takes no huge pages, and reused memory has no faults."""
    found, _ = ran_dry("python -m benchmarks.gpu_check OUT --parts host_memory", tmp_path)
    faults = {(line["part"], line["what"]): line["page_faults"] for line in found[:-1]}
    pages = gpu_check.DRY_MEMORY_BYTES // os.sysconf("SC_PAGE_SIZE")
    assert faults["host_memory 0", "blocks into a new array"] >= pages
    assert faults["host_memory 0", "blocks into the same array"] < 100


def test_the_page_names_parts():
    chosen = [name for command in COMMANDS for name in command.partition("--parts ")[2].split()]
    assert {*chosen} == {"whole_run", "self_check"} <= {part.run.__name__ for part in gpu_check.parts(dry=True)}


@pytest.mark.slow("every part of the GPU check that needs no device runs, by the command of its page")
def test_the_command_of_the_page(tmp_path):
    needs("distributed")
    found, printed = ran_dry(COMMANDS[0], tmp_path)
    assert [line for line in found if "error" in line] == [], printed
    assert found[-1]["failed"] == []
    possible = {part.run.__name__ for part in gpu_check.parts(dry=True) if not part.device}
    assert {line["part"].split()[0] for line in found[:-1] if "skipped" not in line} == possible
