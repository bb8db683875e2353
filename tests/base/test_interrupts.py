# SPDX-License-Identifier: Apache-2.0
"""Signals, lost streams and killed parents: one message, no temporary files, nothing that goes on, the same bytes."""

import fcntl
import os
import pickle
import pty
import random
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from curation.base.system import interrupts
from curation.base.system.files import TEMPORARY
from curation.recipes.recipe import load_recipe
from curation.running.run import run
from tests.runs import data_digests, files_below, made_texts, records_of

ROOT = Path(__file__).resolve().parents[2]
# Sends a signal to itself when the run has said so many lines.
SIGNALLED = """
import os, sys
from curation.__main__ import command
from curation.base.system.progress import ProgressLines

number, wanted = int(sys.argv.pop(1)), sys.argv.pop(1)

def log(self, line, log=ProgressLines.log):
    log(self, line)
    if wanted in line:
        os.kill(os.getpid(), number)

ProgressLines.log = log
sys.exit(command())
"""


STAGES = [{"kind": "filter", "name": "größe", "rules": [{"measure": "words", "min": 5}]}, {"kind": "exact_dedup"}]


def write_corpus(folder: Path) -> Path:
    path = folder / "made.jsonl"
    path.write_bytes(records_of(made_texts(400)))
    (folder / "short.yaml").write_text(yaml.safe_dump({"stages": STAGES}, allow_unicode=True), "utf-8")
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digests of a run that nothing disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    corpus = write_corpus(folder)
    run(load_recipe(folder / "short.yaml", input=str(corpus)), folder / "out", engine="cpu")
    return data_digests(folder / "out")


def default_signals() -> None:
    """Gives signals their default actions. The parent of the tests may ignore them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("number", "wanted"),
    [
        pytest.param(
            signal.SIGINT, "done in", marks=pytest.mark.slow("a run that a hang-up or an interrupt ends can be resumed")
        ),
        (signal.SIGTERM, " task"),
        pytest.param(
            signal.SIGHUP, " task", marks=pytest.mark.slow("a run that a hang-up or an interrupt ends can be resumed")
        ),
    ],
    ids=["INT", "TERM", "HUP"],
)
def test_a_signal_ends_a_run_that_can_go_on(
    number: signal.Signals,
    wanted: str,
    corpus: Path,
    whole: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    command = ["run", "short.yaml", "--input", corpus.name, "--output", "out", "--engine", "cpu"]
    stopped = subprocess.run(
        [sys.executable, "-c", SIGNALLED, str(int(number)), wanted, *command],
        cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=default_signals,
    )  # fmt: skip
    assert stopped.returncode == 128 + number
    assert stopped.stderr.endswith("curate: interrupted; rerun the same command to resume\n")
    assert not [path for path in files_below(tmp_path / "out") if path.endswith(TEMPORARY)]
    recipe = load_recipe(tmp_path / "short.yaml", input=corpus.name)
    monkeypatch.chdir(tmp_path)
    run(recipe, "out", engine="cpu")
    assert data_digests(tmp_path / "out") == whole


DROPPED = """
import os, signal, sys
from curation.base.system import interrupts
from curation.cli import runs
from curation.__main__ import command

def load():
    {begin}
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        pass

runs.prepare_memory = load
sys.exit(command())
"""


def test_the_line_of_the_end_is_printed_once(monkeypatch: pytest.MonkeyPatch):
    """The command and a second signal may end the process at the same time."""
    printed: list[str] = []
    for name in ("_stopping", "_ended", "_last_line"):
        monkeypatch.setattr(interrupts, name, getattr(interrupts, name))  # put back at the end
    monkeypatch.setattr(interrupts, "_print", printed.append)
    monkeypatch.setattr(interrupts, "_at_end", [])
    monkeypatch.setattr(interrupts.os, "_exit", lambda code: None)
    for _ in range(2):
        interrupts.announce(interrupts._stopping, lambda code: f"ended with {code}")
        interrupts.end(143)
        interrupts.end(143)
    assert printed == ["ended with 143"] * 2 and not interrupts.take_last_line()


FORKED = """
import os, signal
from curation.base.system import interrupts

interrupts.install()
interrupts.begin_writing()
child = os.fork()
if not child:
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(7)
status = os.waitpid(child, 0)[1]
assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM, status
"""


def test_a_signal_of_a_forked_child_is_none_of_its_parent(tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


TWICE = """
import os, signal, sys, threading, time
from curation.__main__ import command
from curation.base.system.progress import ProgressLines

def log(self, line, log=ProgressLines.log):
    log(self, line)
    if " task" in line:
        threading.Timer(0.05, os.killpg, (0, signal.SIGTERM)).start()
        threading.Timer(0.10, os.killpg, (0, signal.SIGTERM)).start()
        time.sleep(0.03)

ProgressLines.log = log
if __name__ == "__main__":
    sys.exit(command())
"""


@pytest.mark.slow("a job that a batch system ends twice leaves no temporary files")
@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_a_group_that_is_ended_twice_leaves_no_temporary_files(
    scheduler: str, corpus: Path, whole: dict[str, str], tmp_path: Path
):
    """As `timeout` and batch systems do it."""
    script = tmp_path / "twice.py"
    script.write_text(TWICE)
    corpus.write_bytes(corpus.read_bytes() * 30)
    command = ["run", "short.yaml", "-i", corpus.name, "-o", "out", "--engine", "cpu", "--scheduler", scheduler]
    stopped = subprocess.run(
        [sys.executable, str(script), *command], cwd=tmp_path, capture_output=True, text=True, check=False,
        preexec_fn=default_signals, start_new_session=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert stopped.returncode == 143, stopped.stderr
    assert "Traceback" not in stopped.stderr and stopped.stderr.count("curate: interrupted") == 1
    assert not [path for path in files_below(tmp_path / "out") if path.endswith(TEMPORARY)]


# A run that is stuck, as in a compiler or on a slow disk: no safe point comes for a minute.
STUCK = """
import os, pathlib, sys, time
from importlib import import_module

def stuck(*arguments, **settings):
    pathlib.Path(os.environ["MARK"]).touch()
    time.sleep(60)

module, name = os.environ["PLACE"].split(":")
setattr(import_module(module), name, stuck)

if __name__ == "__main__":
    from curation.__main__ import command
    sys.exit(command())
"""
PLACES = {
    "while kernels compile": ("curation.running.phases.map_phase:apply_stage", "threads"),
    "while workers compile": ("curation.running.phases.map_phase:apply_stage", "processes"),
    "while a file is read": ("curation.reading.lines:read_after", "threads"),
    "in a corpus stage": ("curation.running.phases.corpus_phase:decide", "threads"),
    "while documents are written": ("curation.running.phases.write_phase:_digest_documents", "threads"),
}
ANSWER, RESUME = (
    "curate: stopping; press again to stop at once",
    "curate: interrupted; rerun the same command to resume",
)


class Stuck:
    """A process that is stuck at a place, on a terminal of its own."""

    def __init__(self, folder: Path, place: str, scheduler: str) -> None:
        (folder / "stuck.py").write_text(STUCK)
        mark = folder / "mark"
        leader, follower = pty.openpty()
        path = str(folder / "made.jsonl")
        command = [sys.executable, "stuck.py", "run", "short.yaml", "-i", path, "-o", "out", "--engine", "cpu"]
        self.process = subprocess.Popen(
            [*command, "--scheduler", scheduler], cwd=folder, stdin=follower, stdout=follower, stderr=follower,
            preexec_fn=own_terminal, start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PLACE": place, "MARK": str(mark), "TERM": "xterm"},
        )  # fmt: skip
        os.close(follower)
        self.terminal, self.shown = leader, ""
        self._read_until(mark.exists, 60)
        self.pressed = 0.0

    def press(self) -> float:
        """Types Ctrl-C; gives the seconds until the answer or the end."""
        self.pressed, before = time.monotonic(), self.shown.count("curate: ")
        os.write(self.terminal, b"\x03")
        self._read_until(lambda: self.shown.count("curate: ") > before, 10)
        return time.monotonic() - self.pressed

    def end(self) -> float:
        """Waits; gives the seconds since the last Ctrl-C."""
        self._read_until(lambda: self.process.poll() is not None, 20)
        return time.monotonic() - self.pressed

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)

    def _read_until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.shown
            if select.select([self.terminal], [], [], 0.01)[0]:
                with suppress(OSError):  # nothing has the terminal open
                    self.shown += os.read(self.terminal, 4096).decode(errors="replace")


def own_terminal() -> None:
    default_signals()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=pytest.mark.slow("Ctrl-C ends a run that is stuck at any place"))
        if place != "in a corpus stage"
        else place
        for place in PLACES
    ],
)
def test_ctrl_c_is_answered_at_once_and_ends_a_stuck_run(
    place: str, corpus: Path, whole: dict[str, str], tmp_path: Path
):
    stuck = Stuck(tmp_path, *PLACES[place])
    try:
        assert stuck.press() < 0.5 and ANSWER in stuck.shown
        assert stuck.end() < 5
    finally:
        stuck.close()
    assert stuck.process.returncode == 130 and stuck.shown.rstrip().endswith(RESUME), stuck.shown
    assert stuck.shown.count("curate: ") == 2 and "Traceback" not in stuck.shown
    assert not [path for path in files_below(tmp_path / "out") if path.endswith(TEMPORARY)]
    recipe = load_recipe(tmp_path / "short.yaml", input=str(corpus))
    run(recipe, tmp_path / "out", engine="cpu", progress=False)
    assert data_digests(tmp_path / "out") == whole


@pytest.mark.slow("a second Ctrl-C ends a stuck run at once")
def test_a_second_ctrl_c_ends_a_stuck_run_at_once(corpus: Path, tmp_path: Path):
    stuck = Stuck(tmp_path, *PLACES["in a corpus stage"])
    try:
        assert stuck.press() < 0.5 and ANSWER in stuck.shown
        stuck.press()
        assert stuck.end() < 1
    finally:
        stuck.close()
    assert stuck.process.returncode == 130 and stuck.shown.rstrip().endswith(RESUME)


READY = """
import os, sys
from curation.base.system import interrupts

if __name__ == "__main__":
    interrupts.install()
    os.write(1, b"ready\\n")
    from curation.__main__ import command
    sys.exit(command())
"""


@pytest.mark.slow("a signal during the start ends a run and its workers")
@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_a_signal_at_any_moment_of_the_start_ends_a_run(scheduler: str, corpus: Path, tmp_path: Path):
    """An exception inside an import would leave its lock held: the run, or a worker of it, would wait for ever."""
    (tmp_path / "ready.py").write_text(READY)
    command = [sys.executable, "ready.py", "run", "-i", corpus.name, "-o", "out", "--scheduler", scheduler]
    chance = random.Random()
    for number in range(3):
        moment = (number + chance.random()) * 0.45  # seconds
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=default_signals, env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        with process:
            assert process.stdout and process.stdout.readline() == "ready\n"
            time.sleep(moment)
            os.killpg(process.pid, signal.SIGINT)
            _, shown = process.communicate(timeout=10)
        if (tmp_path / "out" / "report.json").exists():  # the run was quicker; Python answers while it ends
            assert process.returncode in (130, 0, -signal.SIGINT), (moment, shown)
            break
        assert process.returncode == 130, (moment, shown)
        # Before the command line is parsed, the message cannot say how to resume.
        assert "Traceback" not in shown and "curate: interrupted" in shown, (moment, shown)


def test_the_last_line_of_a_slow_machine_lacks_the_advice(monkeypatch: pytest.MonkeyPatch):
    shown: list[str] = []
    monkeypatch.setattr(interrupts, "ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(interrupts, "_at_end", [])  # after which no process can start
    monkeypatch.setattr(interrupts, "_print", shown.append)
    monkeypatch.setattr(os, "_exit", lambda code: None)
    for ended in (lambda code: time.sleep(0.5) or "late", lambda code: f"ended by {code}", lambda code: ""):
        interrupts.announce(str, ended)
        interrupts.end(130)
    assert shown == ["curate: interrupted", "ended by 130", ""]


def test_python_gets_an_interrupt_while_tasks_run(corpus: Path, tmp_path: Path):
    """The library leaves Ctrl-C to Python; a stopped session stops its tasks between two batches."""
    stop, seen = interrupts.Stop(), []

    def task() -> None:
        seen.append("began")
        stop.set()
        interrupts.check()

    with pytest.raises(KeyboardInterrupt):
        interrupts.run_task(stop, task)
    with pytest.raises(KeyboardInterrupt):
        interrupts.run_task(stop, task)
    interrupts.check()  # only the tasks of that session are stopped
    assert seen == ["began"] and not pickle.loads(pickle.dumps(stop)).is_set()
    error = pickle.loads(pickle.dumps(interrupts.Interrupted(15)))
    assert (error.exit_code, str(error)) == (143, "SIGTERM")


@pytest.mark.slow("a signal counts even if other code drops its exception")
@pytest.mark.parametrize("begin", ["pass", "interrupts.begin_writing()"])
def test_a_signal_is_not_lost_where_other_code_drops_its_exception(begin: str, corpus: Path, tmp_path: Path):
    stopped = subprocess.run(
        [sys.executable, "-c", DROPPED.format(begin=begin), "run", "-i", corpus.name, "-o", "out", "--engine", "cpu"],
        cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=default_signals,
    )  # fmt: skip
    assert stopped.returncode == 130 and "curate: interrupted" in stopped.stderr
    assert not (tmp_path / "out" / "documents").exists()


def test_an_ignored_signal_stays_ignored(tmp_path: Path):
    """As `nohup` has it."""
    script = "import os; from curation.base.system import interrupts; interrupts.install(); os.kill(os.getpid(), 1)"
    ignoring = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); {script}; print('went on')"
    done = subprocess.run([sys.executable, "-c", ignoring], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "went on\n")


WORKER = """
import os, sys, time
from functools import partial
from pathlib import Path
from curation.base.system.cluster import process_pool

def work(folder, number):
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(60)

if __name__ == "__main__":
    with process_pool(2) as pool:
        list(pool.map(partial(work, sys.argv[1]), range(2)))
"""


# Two signals come when a process is started and does not have its arguments yet.
STARTING = """
import os, signal, time
from multiprocessing import util
from curation.base.system import interrupts
from curation.base.system.cluster import process_pool

def spawn(path, arguments, passed, spawn=util.spawnv_passfds):
    process = spawn(path, arguments, passed)
    if "spawn_main" in str(arguments):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
    return process

if __name__ == "__main__":
    util.spawnv_passfds = spawn
    interrupts.install()
    interrupts.begin_writing()
    try:
        with process_pool(2) as pool:
            list(pool.map(str, range(2)))
    except BaseException:
        time.sleep(60)  # the second signal ends the process, sooner or later than this thread
"""


def test_workers_that_start_end_with_their_parent_in_silence(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(STARTING)
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, preexec_fn=default_signals,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ended.returncode == 130 and "curate: interrupted" in ended.stderr
    assert "Traceback" not in ended.stderr


def is_alive(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


def test_worker_processes_end_with_a_killed_parent(tmp_path: Path):
    script, folder = tmp_path / "script.py", tmp_path / "workers"
    script.write_text(WORKER)
    folder.mkdir()
    with subprocess.Popen([sys.executable, str(script), str(folder)]) as parent:
        deadline = time.monotonic() + 60
        while len(found := list(folder.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(found) == 2
        parent.kill()
    deadline = time.monotonic() + 20
    while any(is_alive(int(path.name)) for path in found) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_alive(int(path.name)) for path in found)


STREAMS = {
    "all closed": "<&- >&- 2>&-",
    "stdout full": "> /dev/full",
    "stderr full": "2> /dev/full",
    "nobody reads": "2>&1 | true",
    "ASCII": "> ascii.txt",
}


@pytest.mark.slow("a run completes if its output streams are closed, full or not read")
@pytest.mark.parametrize("name", STREAMS)
def test_a_run_does_not_depend_on_its_streams(name: str, corpus: Path, tmp_path: Path, whole: dict[str, str]):
    shell = f"{sys.executable} -m curation run short.yaml -i made.jsonl -o out --engine cpu {STREAMS[name]}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | ({"PYTHONIOENCODING": "ascii"} if name == "ASCII" else {}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert data_digests(tmp_path / "out") == whole
