# SPDX-License-Identifier: Apache-2.0
"""Processes that share only a folder finish one run: the same bytes for any number of them, with kills, pauses and late
comers."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml

from curation import __version__
from curation.base.errors import EngineError, InputError, IntegrityError, OutOfMemoryError, OutputError
from curation.base.system.files import remove
from curation.base.system.leases import GIVEN_BACK, Leases
from curation.base.system.progress import Progress, ShownPhase
from curation.base.system.sealed import sealed, unsealed
from curation.record import jobs
from curation.record.stored_plan import Stored
from curation.results.finished.verify import verify
from curation.results.report.report import write_report
from curation.running import phase_loop
from curation.running.array_tasks import parse_array_task
from curation.running.phases import map_phase
from curation.running.phases.write_phase import OutputJob, OutputPart, write_output_parts
from curation.running.run import RunResult, run
from curation.running.tasks import boards as pieces
from curation.running.tasks.boards import decode_phase, published
from curation.running.tasks.deletion import delete_share
from tests.runs import STAGES, data_digests, digests, made_texts, recipe_of, records_of

CHAIN = [*STAGES, {"kind": "fuzzy_dedup"}]
OUTPUT = {
    "part_documents": 30,
    "raw": "csv",
    "cleaned": "jsonl",
    "formats": ["megatron", "blocks"],
    "blocks": {"length": 64},
}


class Place:
    """Made text, and runs over it in slices of some lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "made.jsonl").write_bytes(records_of(made_texts(80)) + b"not json\n")

    def run(self, name: str, **options: Any) -> RunResult:
        recipe = recipe_of(self.folder / "made.jsonl", stages=CHAIN, output=OUTPUT)
        options = {"slice_bytes": 3000, "progress": False, "workers": 1} | options
        return run(recipe, self.folder / name, engine="cpu", **options)

    def begin(self, pool: ThreadPoolExecutor, name: str, task: str) -> "Future[RunResult]":
        """Starts a task of an array in a thread."""
        return pool.submit(partial(self.run, name, array_task=task, lease_seconds=30))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def expected(place: Place) -> dict[str, str]:
    place.run("whole")
    return digests(place.folder / "whole")


class Pause:
    """Stops the first thread that is about to rename a file of this name, as a signal stops a process: its leases are
    not renewed, and are expired at once."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name, self.reached, self.resumed = name, threading.Event(), threading.Event()
        self.made: list[Leases] = []
        self.waker, self.expires = "", True
        begin = Leases.__enter__

        def entered(leases: Leases) -> Leases:
            self.made.append(leases)
            return begin(leases)

        monkeypatch.setattr(Leases, "__enter__", entered)
        for function in ("replace", "rename"):
            monkeypatch.setattr(os, function, partial(self._move, getattr(os, function)))

    def _move(self, move: Callable[..., None], source: Any, target: Any) -> None:
        if not self.reached.is_set() and re.fullmatch(self.name, "/".join(Path(target).parts[-2:])):
            self.stop()
        elif self.waker and re.fullmatch(self.waker, "/".join(Path(target).parts[-2:])):
            self.resumed.set()
        move(source, target)

    def stop(self) -> None:
        (leases,) = self.made
        with leases._lock:  # the thread that renews waits
            for lease in leases._held if self.expires else ():
                os.utime(lease.path, (0, 0))
            self.reached.set()
            assert self.resumed.wait(30)

    def wake_before(self, name: str) -> None:
        """Lets the stopped thread go on when another one is about to rename a file of this name."""
        self.waker = name


@pytest.mark.parametrize("count", [1, 5])
def test_any_number_of_array_tasks_writes_the_same_bytes(count: int, place: Place, expected: dict[str, str]):
    name = f"tasks-{count}"
    with ThreadPoolExecutor(count) as pool:
        tasks = [place.begin(pool, name, f"{number}/{count}") for number in range(1, count + 1)]
        finished = [task.result() for task in tasks]
    assert [result.already_complete for result in finished].count(False) == 1
    assert digests(place.folder / name) == expected and verify(place.folder / name) == []
    assert place.run(name, array_task="7/9").already_complete  # comes after the end


@pytest.mark.slow("a paused array process that wakes up after the end changes nothing")
@pytest.mark.parametrize(
    "name",
    [
        "segment-0/000001.arrow",
        "similarity/000000",
        "_work/decision-3.json",
        "tokens/.*.idx",
        "[^/]*/blocks",
        "write_report",
    ],
)
def test_a_paused_process_that_wakes_up_after_the_end_changes_nothing(
    name: str, place: Place, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    """Another one has taken over what it held, its part as the driver too, and has finished the run."""
    pause, folder = Pause(name, monkeypatch), f"paused-{name.replace('/', '-')}"

    def write(folder: Path, content: dict[str, Any]) -> None:
        if name == "write_report" and not pause.reached.is_set():
            pause.stop()
        write_report(folder, content)

    monkeypatch.setattr("curation.running.run.write_report", write)
    with ThreadPoolExecutor(2) as pool:
        paused = place.begin(pool, folder, "1/2")
        assert pause.reached.wait(120), f"no file {name}"
        other = place.begin(pool, folder, "2/2")
        assert not other.result(120).already_complete
        report = (place.folder / folder / "report.json").read_bytes()
        pause.resumed.set()
        paused.result(120)
        assert (place.folder / folder / "report.json").read_bytes() == report
    assert digests(place.folder / folder) == expected
    assert verify(place.folder / folder) == []


@pytest.mark.parametrize(
    "later",
    [
        "segment-0/000001.json",
        *(
            pytest.param(
                later, marks=pytest.mark.slow("a paused array process that wakes up in the middle changes nothing")
            )
            for later in ("_work/decision-3.json", "documents/part-00000.parquet")
        ),
    ],
)
def test_a_paused_process_that_wakes_up_in_the_middle_changes_nothing(
    later: str, place: Place, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    pause, folder = Pause("segment-0/000000.arrow", monkeypatch), f"woken-{later.replace('/', '-')}"
    with ThreadPoolExecutor(2) as pool:
        paused = place.begin(pool, folder, "1/2")
        assert pause.reached.wait(120)
        pause.wake_before(later)
        other = place.begin(pool, folder, "2/2")
        assert [paused.result(120).already_complete, other.result(120).already_complete] == [True, False]
    assert digests(place.folder / folder) == expected and verify(place.folder / folder) == []


# Kills the process that is about to rename a file of the name in KILL.
KILLED = """
import os, re, signal, sys
from pathlib import Path
from curation.cli.main import main

move = os.replace

def replace(source, target):
    if re.fullmatch(os.environ["KILL"], "-".join(Path(target).parts[-2:])):
        os.kill(os.getpid(), signal.SIGKILL)
    move(source, target)

os.replace = replace
sys.exit(main())
"""


@pytest.mark.slow("another array process takes the place of a driver that is killed")
def test_a_killed_driver_is_replaced(place: Place, expected: dict[str, str]):
    recipe, out = place.folder / "recipe.yaml", place.folder / "killed"
    made = {
        "input": [{"path": str(place.folder / "made.jsonl"), "keep_blank": True}],
        "stages": CHAIN,
        "output": OUTPUT,
    }
    recipe.write_text(yaml.safe_dump(made))
    command = [sys.executable, "-c", KILLED, "run", str(recipe), "-o", str(out), "--engine", "cpu", "--workers", "1"]
    options = ["--lease-seconds", "0.5", "--log", "text", "--array-task"]

    def begin(task: str, kill: str) -> subprocess.Popen[str]:
        environment = os.environ | {"KILL": kill}
        return subprocess.Popen([*command, *options, task], stderr=subprocess.PIPE, env=environment, text=True)

    killed = begin("1/2", "_work-decision-2.json")
    while killed.poll() is None and not (out / "_work/array/driver.0").exists():
        time.sleep(0.02)
    other = begin("2/2", "never")
    errors = [process.communicate(timeout=60)[1] for process in (killed, other)]
    assert (killed.returncode, other.returncode) == (-signal.SIGKILL, 0), errors
    assert data_digests(out) == data_digests(place.folder / "whole") and verify(out) == []


def test_the_error_of_one_ends_all_and_the_next_attempt_resumes(
    place: Place, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    real = map_phase.run_slice

    @wraps(real)
    def fail(plan: Any, job: Any, number: int, urls: Any = ()) -> Any:
        if number == 2:
            raise InputError("made.jsonl cannot be read")
        return real(plan, job, number, urls)

    with monkeypatch.context() as patch:
        for module in (map_phase, phase_loop):
            patch.setattr(module, "run_slice", fail)
        with ThreadPoolExecutor(3) as pool:
            tasks = [place.begin(pool, "failed", f"{number}/3") for number in (1, 2, 3)]
            assert {str(task.exception(30)) for task in tasks} == {"made.jsonl cannot be read"}
            assert {type(task.exception()) for task in tasks} == {InputError}
    with ThreadPoolExecutor(2) as pool:
        for task in [place.begin(pool, "failed", f"{number}/2") for number in (1, 2)]:
            task.result(120)
    assert digests(place.folder / "failed") == expected


@pytest.mark.parametrize(
    ("text", "seconds", "message"),
    [
        (
            "0/3",
            60,
            "array task 0/3: the number must be 1 to 3. For a Slurm array write --array=1-4 in place of --array=0-3",
        ),
        ("4/3", 60, "array task 4/3: the number must be 1 to 3. For a Slurm array write --array=1-3"),
        ("0/0", 60, "array task 0/0: the count must be 1 or more"),
        ("x", 60, "an array task is NUMBER/COUNT, such as 3/100, not 'x'"),
        ("1/3/5", 60, "an array task is NUMBER/COUNT, such as 3/100, not '1/3/5'"),
        ("-1/3", 60, "an array task is NUMBER/COUNT, such as 3/100, not '-1/3'"),
        ("1/3", 0, "lease_seconds must be 0.1 to 86,400, not 0"),
        ("1/3", float("nan"), "lease_seconds must be 0.1 to 86,400, not nan"),
    ],
)
def test_wrong_array_tasks(text: str, seconds: float, message: str):
    with pytest.raises(EngineError, match=f"^{re.escape(message)}$"):
        parse_array_task(text, seconds)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheduler": "processes"}, "an array task runs its tasks on threads, not on scheduler 'processes'"),
        ({"scheduler": "tcp://host:8786"}, "an array task runs its tasks on threads, not on scheduler 'tcp://host"),
        ({"force": True}, "an array task cannot have force"),
    ],
)
def test_options_that_array_tasks_cannot_have(options: dict[str, Any], message: str, place: Place):
    with pytest.raises(EngineError, match=message):
        place.run("refused", array_task="1/2", **options)
    assert not (place.folder / "refused").exists()


def test_the_advice_of_an_array_leaves_out_force(place: Place):
    place.run("foreign", array_task="1/1")
    with pytest.raises(OutputError, match=r"belongs to another recipe or input; .*\. Give a new --output$"):
        run(recipe_of(place.folder / "made.jsonl"), place.folder / "foreign", array_task="1/1", engine="cpu")


def test_the_parent_of_the_folder_must_exist(place: Place):
    """Otherwise a machine without the shared file system would do the whole run on its own disk."""
    with pytest.raises(OutputError, match=r"/mount does not exist on .*: mount its file system on every machine"):
        place.run("mount/out", array_task="1/2")
    assert not (place.folder / "mount").exists()
    (place.folder / "mount").mkdir()
    assert not place.run("mount/out", array_task="2/2").already_complete


def test_the_time_of_leases_is_for_arrays_alone(place: Place):
    with pytest.raises(EngineError, match="lease_seconds is for the processes of an array"):
        place.run("refused", lease_seconds=30)
    assert not (place.folder / "refused").exists()


class Labels(Progress):
    """Notes the phases that it shows, and the lines."""

    every = 0.05

    def __init__(self) -> None:
        self.labels, self.lines = list[str](), list[str]()

    def began(self, phase: ShownPhase) -> None:
        self.labels.append(phase.label)

    def log(self, line: str) -> None:
        self.lines.append(line)


def test_each_process_names_the_phases_as_the_driver_does(place: Place, monkeypatch: pytest.MonkeyPatch):
    driver, helper = Labels(), Labels()
    pause = Pause("segment-0/000001.json", monkeypatch)
    pause.expires = False
    options = {"lease_seconds": 30}
    with ThreadPoolExecutor(2) as pool:
        paused = pool.submit(partial(place.run, "labels", array_task="1/2", progress=driver, **options))
        assert pause.reached.wait(120)
        other = pool.submit(partial(place.run, "labels", array_task="2/2", progress=helper, **options))
        while not helper.labels and not other.done():
            time.sleep(0.01)
        pause.resumed.set()
        assert [paused.result(120).already_complete, other.result(120).already_complete] == [False, True]
    assert "tasks" not in helper.labels and {*helper.labels} & {*driver.labels}  # each may run all tasks of a phase
    assert any(line.startswith("engine cpu (asked for); 2 workers of 2 array tasks;") for line in driver.lines)
    assert any(line.startswith("memory of each array task: ") for line in driver.lines)


def test_another_recipe_or_version_in_the_folder_of_an_array(place: Place, monkeypatch: pytest.MonkeyPatch):
    pause = Pause("segment-0/000001.json", monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        paused = place.begin(pool, "other", "1/2")
        assert pause.reached.wait(120)
        other = recipe_of(place.folder / "made.jsonl", stages=STAGES)
        with pytest.raises(OutputError, match=r"other .*stages"):
            run(other, place.folder / "other", engine="cpu", array_task="2/2", progress=False)
        with pytest.raises(OutputError, match="another run is writing to"):
            place.run("other")
        with monkeypatch.context() as patch:
            patch.setattr("curation.record.stored_plan.__version__", "9.9")
            with pytest.raises(OutputError, match=rf"was started by version {re.escape(__version__)}, this is 9.9"):
                place.run("other", array_task="2/2")
        pause.resumed.set()
        assert not paused.result(120).already_complete


def test_array_tasks_on_another_engine_are_refused(place: Place, monkeypatch: pytest.MonkeyPatch):
    real = decode_phase
    monkeypatch.setattr(
        "curation.running.array_tasks.decode_phase", lambda data: msgspec.structs.replace(real(data), engine="gpu")
    )
    pause = Pause("segment-0/000001.json", monkeypatch)
    pause.expires = False
    with ThreadPoolExecutor(1) as pool:
        paused = place.begin(pool, "engines", "1/2")
        assert pause.reached.wait(120)
        with pytest.raises(EngineError, match=r"2/2 runs on the engine cpu, and the run on gpu\. Give --engine gpu"):
            place.run("engines", array_task="2/2")
        pause.resumed.set()
        paused.result(120)


def test_urls_with_secrets_are_not_published(tmp_path: Path):
    stored = Stored(tmp_path / "job.json", "0" * 64)
    function = partial(jobs.run_stored, map_phase.run_slice, map_phase.SliceJob, stored, stored)
    phase = published(function, {0: (0,), 1: (1, ("https://host/a?key=hidden",)), 5: (5,)}, 3, "cpu")
    assert b"hidden" not in phase.encoded()
    assert decode_phase(phase.encoded()) == phase and phase.urls and phase.numbers == [(0, 2), (5, 6)]


def test_arguments_of_tasks_are_published(tmp_path: Path):
    stored = Stored(tmp_path / "job.json", "0" * 64)
    function = partial(jobs.run_stored, write_output_parts, OutputJob, stored, stored)
    part = OutputPart(1, "a", 2, 3, 4)
    items = {2: (2, "pair", ("a", [part, None], tmp_path / "a")), 7: (7, "form", 1.5)}
    phase = decode_phase(published(function, items, 0, "cpu").encoded())
    plan: Any = None
    assert [phase.items(plan, tmp_path)(number) for number in items] == [*items.values()]
    assert phase.function().args == function.args and type(phase.items(plan, tmp_path)(2)[2][1][0]) is OutputPart
    for work in (tmp_path / "b", tmp_path / "a"):
        with pytest.raises(IntegrityError, match=r"a phase in .* names .*/a, which is not below it"):
            phase.items(plan, work)(2)
    with pytest.raises(TypeError, match="a task cannot have an argument of type set"):
        published(function, {0: (0, {1})}, 0, "cpu")


def test_only_functions_of_this_package_are_published_and_called(tmp_path: Path):
    stored = Stored(tmp_path / "job.json", "0" * 64)
    with pytest.raises(TypeError, match="is not a function or a class of this package"):
        published(partial(jobs.run_stored, os.remove, map_phase.SliceJob, stored, stored), {0: (0,)}, 0, "cpu")
    assert pieces._named("os:remove") is None and pieces._named("curation.missing:remove") is None
    with pytest.raises(TypeError, match=r"curation\.base\.system\.files:remove is not among the functions of tasks"):
        published(partial(remove), {0: tmp_path}, 0, "cpu")
    phase = published(partial(delete_share, 3), {0: (0, tmp_path, 0, 1)}, 0, "cpu")
    forged = sealed(unsealed(phase.encoded()).replace(pieces.TASKS[1].encode(), b"os:remove"))
    with pytest.raises(ValueError, match=r"it names \['os:remove'\], which is no function of tasks"):
        decode_phase(forged)


DEAD = "array task 2/3, process 7 on node7"


def test_a_process_that_waits_for_a_silent_one_says_so_once(tmp_path: Path):
    lines: list[str] = []
    with Leases(tmp_path, "mine", 60) as leases:
        dead = Leases(tmp_path, DEAD, 60)  # renews nothing
        held = [dead.take(tmp_path, f"{number:06d}") for number in range(3)]
        board = pieces.Board(leases, tmp_path, np.arange(4), 0.0, lambda: False, say=lines.append)

        def list_after(seconds: float) -> None:
            for number, lease in enumerate(held):
                assert lease
                os.utime(lease.path, (leases.now() - seconds + number,) * 2)
            board._list()

        list_after(30)
        assert lines == []  # a task is free
        assert leases.take(tmp_path, "000003")
        list_after(19)
        assert lines == []  # a renewal may be late
        list_after(30)
        list_after(40)
        assert lines == [
            f"waiting for 3 tasks of {DEAD}: no sign of it for 30 s. After 60 s another process takes over"
        ]
        lease = board.next() if list_after(70) is None else None
        assert lease and (lease.name, lease.generation) == ("000000", 1)


class Noting(Progress):
    """Notes the lines. Lets the lease of a driver expire some time after its line."""

    def __init__(self, driver: Path) -> None:
        self.driver, self.lines = driver, list[str]()

    def log(self, line: str) -> None:
        self.lines.append(line)
        if line.startswith("waiting for"):
            threading.Timer(0.5, os.utime, (self.driver, (0, 0))).start()


def test_a_process_that_waits_for_a_silent_driver_says_so_once(place: Place):
    folder = place.folder / "silent" / "_work" / "array"
    folder.mkdir(parents=True)
    lease = Leases(folder, DEAD, 60).take(folder, "driver")
    assert lease
    os.utime(lease.path, (time.time() - 25,) * 2)
    progress = Noting(lease.path)
    assert not place.run("silent", array_task="1/2", progress=progress).already_complete
    [line] = [line for line in progress.lines if line.startswith("waiting")]
    found = re.fullmatch(r"waiting for the part of the driver of (.*): no sign of it for \d\d s\. After 60 s .*", line)
    assert found and found[1] == DEAD


def test_a_task_that_ends_every_process_ends_the_run(tmp_path: Path):
    with Leases(tmp_path, "dead", 60) as leases:
        board = pieces.Board(leases, tmp_path, np.arange(2), 0.0, lambda: False)
        for generation in range(4):
            assert leases.take(tmp_path, "000001", generation)
            os.utime(tmp_path / f"000001.{generation}", (2, 2) if generation else (GIVEN_BACK,) * 2)
        lease = board.next()
        assert lease and (lease.name, lease.generation) == ("000001", 4)
        os.utime(lease.path, (2, 2))
        with pytest.raises(OutOfMemoryError, match="4 processes died on the same task, most often because memory"):
            pieces.Board(leases, tmp_path, np.arange(2), 0.0, lambda: False).next()
