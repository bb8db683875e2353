# SPDX-License-Identifier: Apache-2.0
"""Progress: what it counts, how it looks on a terminal, in lines and as events, and that it ends with its phase."""

import gzip
import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import curation
from curation.base.errors import IntegrityError
from curation.base.system import interrupts, progress
from curation.base.system.files import numbered_path
from curation.base.system.progress import (
    Bars,
    NotebookLine,
    Progress,
    ProgressEvents,
    ProgressLines,
    choose_progress,
    span,
)
from curation.base.system.sealed import write_sealed
from curation.base.system.steps import Count, bytes_read, each, note_share, shown_by
from curation.base.system.terminal import EVENTS
from curation.cli import main
from curation.record import records as task_records
from curation.record.records import Decoder, RunningNote, TaskCounts, TaskRecords
from curation.running.run import run
from tests.runs import made_texts, recipe_of, records_of

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = Decoder(dict, lambda record: TaskCounts(record["read"], 10 * record["read"], record["kept"]), removes=True)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines and events come every few milliseconds, and tasks note their counts at every batch."""
    monkeypatch.setattr(progress, "REPORT_SECONDS", 0.01)
    monkeypatch.setattr(progress, "LISTING_SHARE", 0)
    monkeypatch.setattr(task_records, "NOTE_SECONDS", 0.0)


class Watched(Progress):
    """Keeps every phase with its counts."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.counts: dict[str, list[Count]] = {}
        self.lines: list[str] = []

    def log(self, line: str) -> None:
        self.lines.append(line)

    @contextmanager
    def watch(self, label: str, total: int, count: Callable[[], Count], **settings: Any) -> Iterator[None]:
        self.phases.append(label)
        self.counts[label] = [count()]
        yield
        self.counts[label].append(count())


def wait_for(condition: Callable[[], bool]) -> None:
    clock = threading.Event()
    for _ in range(500):
        if condition():
            return
        clock.wait(0.01)
    pytest.fail("nothing happened in 5 s")


# What is counted


def test_records_are_counted_once_and_running_tasks_by_their_notes(tmp_path: Path, quick: None):
    (tmp_path / "000002.running").write_text("[99, 99, 99, 99]")  # of a killed run
    write_sealed(numbered_path(tmp_path, 1, ".json"), {"read": 5, "kept": 4})
    (tmp_path / "job-12.json").write_text("{}")
    records = TaskRecords(tmp_path, [100, 300, 100], DOCUMENTS)
    assert records.pending().tolist() == [0, 2] and records.count() == Count(1, 5, 50, 4, share=0.6)
    records.begin(0)
    with RunningNote(tmp_path, 0) as note:
        note.write(2, 20, 1)
        assert records.count() == Count(1, 7, 70, 5, share=0.6)
        (tmp_path / "000000.running").write_text("[2, 20, 1, 50]")
        assert records.count() == Count(1, 7, 70, 5, share=0.7)
        (tmp_path / "000000.running").write_text("[2, 2")  # while it is written
        assert records.count() == Count(1, 5, 50, 4, share=0.6)
    assert not (tmp_path / "000000.running").exists()
    for number in (0, 2):
        write_sealed(numbered_path(tmp_path, number, ".json"), {"read": 1, "kept": 0})
    records.end(0, TaskCounts(1, 10, 0))
    assert records.count() == Count(2, 6, 60, 4, share=0.8)
    records.end(2, None)  # its task found the record of another one: read it
    records.find_done()
    assert records.count() == Count(3, 7, 70, 4, share=1.0) and not len(records.pending())
    assert list(records.each()) == [{"read": 1, "kept": 0}, {"read": 5, "kept": 4}, {"read": 1, "kept": 0}]


def test_a_task_notes_what_it_has_read_of_a_compressed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(task_records, "NOTE_SECONDS", 0.0)
    monkeypatch.setattr("cpu_fallback.session.BATCH_BYTES", 2000)
    data = gzip.compress(records_of(made_texts(60)), 0)
    (tmp_path / "a.jsonl.gz").write_bytes(data * 4)
    notes: list[list[int]] = []
    write = RunningNote.write

    def noted(self: RunningNote, *counts: int) -> None:
        write(self, *counts)
        notes.append(json.loads(self.path.read_bytes()))

    monkeypatch.setattr(RunningNote, "write", noted)
    recipe = recipe_of(tmp_path / "a.jsonl.gz", stages=[])
    run(recipe, tmp_path / "out", engine="cpu", workers=1, progress=False)
    read = [note for note in notes if note[3]]
    assert len(read) > 3 and read == sorted(read) and read[-1][0] == 240
    assert 0 < read[0][3] <= read[-1][3] == 4 * len(data)
    assert not [*tmp_path.rglob("*.running")]


def test_bytes_are_counted_by_thread(tmp_path: Path):
    before = bytes_read()
    (tmp_path / "a.jsonl").write_bytes(records_of(made_texts(10)))
    threading.Thread(
        target=lambda: list(curation.read(str(tmp_path / "a.jsonl"), keep_blank=True).compute(scheduler="sync"))
    ).start()
    assert bytes_read() == before


def test_phases_of_a_run_say_what_came_in_and_what_is_left(tmp_path: Path):
    texts = [f"{number} some words" for number in range(50)]
    (tmp_path / "a.jsonl").write_bytes(records_of([*texts, *texts[:20], "short"]))
    stages = [{"kind": "filter", "rules": [{"measure": "words", "min": 2}]}, {"kind": "exact_dedup"}]
    watched = Watched()
    run(recipe_of(tmp_path / "a.jsonl", stages=stages), tmp_path / "out", engine="cpu", progress=watched)
    size = sum(len(text.encode()) for text in [*texts, *texts[:20], "short"])
    assert watched.counts["read + filter"][1] == Count(1, 71, size, 70, share=1.0)
    assert watched.counts["exact_dedup"] == [Count(0, 70, kept=70), Count(0, 70, kept=50)]
    assert watched.counts["write + tokenise"][1]._replace(bytes=0) == Count(1, 50, 0, None, share=1.0)
    assert "exact_dedup: 70 documents to compare" in watched.lines
    assert {"planning", "finish"} <= {*watched.phases}


def test_a_slow_phase_shows_documents_per_second():
    counts = iter([Count(0, 0, 0, 0), Count(0, 125, 500_000, 0)])
    phase = progress.ShownPhase("read + embed", 4, lambda: next(counts), "task", is_loop=False)
    phase.poll()
    phase._started -= 50
    phase.poll()
    assert "0.5 MB (2.5 documents/s)" in phase.numbers()
    assert "2.5 docs/s" in phase.numbers(is_short=True)


def test_a_slow_stage_notes_the_part_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(task_records.Every, "is_due", lambda self: True)
    with RunningNote(tmp_path, 3) as note:
        note.write(10, 1000, 9)
        note.begin(40, 8000)
        note_share(0.5)
        assert task_records._read_note(note.path) == (30, 5000, 9, 0)
        note_share(0.25)  # of a second stage
        assert task_records._read_note(note.path) == (30, 5000, 9, 0)
        note.write(50, 9000, 45)
        assert task_records._read_note(note.path) == (50, 9000, 45, 0)
    note_share(0.5)
    assert not note.path.exists()


def test_a_resumed_run_counts_speed_without_the_earlier_tasks(monkeypatch: pytest.MonkeyPatch):
    counts = iter([Count(2, 100, 10_000_000, 90, share=0.5), Count(3, 150, 15_000_000, 130, share=0.75)])
    phase = progress.ShownPhase("read", 4, lambda: next(counts), "task", is_loop=False)
    phase.poll()
    phase._started -= 10
    assert phase.bytes_per_second == 0 and phase.seconds_left is None
    phase.poll()
    assert phase.bytes_per_second == pytest.approx(500_000, rel=0.01)
    assert phase.seconds_left == pytest.approx(10, rel=0.01)
    phase.is_even = False
    assert phase.seconds_left is None and "10 s so far" in phase.numbers()
    phase.is_even = True
    line = ", ".join(phase.numbers())
    assert re.fullmatch(
        r"3 of 4 tasks, 150 documents, 15\.0 MB \(0\.5 MB/s\), 130 kept, 10 s left, memory [\d,]+ MB", line
    ), line


# Loops


def test_a_loop_counts_its_steps_and_is_a_safe_point(monkeypatch: pytest.MonkeyPatch):
    watched = Watched()
    with shown_by(watched):
        assert list(each([3, 4], "adding", "number", size=lambda number: number)) == [3, 4]
        loop = each(iter("abc"), "spelling", "letter", total=6, worth=lambda _: 2)
        assert next(loop) == "a"
    assert watched.counts["adding"] == [Count(0, bytes=0, share=0.0), Count(2, bytes=7, share=1.0)]
    monkeypatch.setattr(interrupts, "_received", 2)
    with pytest.raises(interrupts.Interrupted):
        next(loop)
    assert list(watched.counts) == ["adding", "spelling"] and len(watched.counts["spelling"]) == 1
    with pytest.raises(interrupts.Interrupted):  # without a display too
        next(each([1], "x", "y"))


def followers() -> list[str]:
    """The threads that follow a phase. Other tests may leave threads of libraries."""
    return [thread.name for thread in threading.enumerate() if "(_follow)" in thread.name]


@pytest.mark.parametrize("display", [ProgressLines, Bars])
def test_a_loop_that_an_error_left_ends_with_its_block(display: type[Progress]):
    loop = each([1], "dividing", "number")  # this frame keeps it, as a traceback does
    with shown_by(display()):
        next(loop)
        assert followers()
    assert not followers()
    assert list(loop) == []  # goes on


def test_a_count_that_fails_neither_hides_the_error_nor_goes_on():
    def count() -> Count:
        raise IntegrityError("its folder is gone")

    watched = Bars().watch("x", 1, count)
    with pytest.raises(ZeroDivisionError), watched:
        _ = 1 / (not followers())  # one runs
    assert not followers()


def test_a_loop_frees_an_item_before_the_next_one():
    class Large:
        alive = 0

        def __init__(self) -> None:
            Large.alive += 1
            assert Large.alive == 1

        def __del__(self) -> None:
            Large.alive -= 1

    for item in each((Large() for _ in range(3)), "x", "y"):
        del item


# How it looks


def test_lines_come_while_a_phase_runs(quick: None, capsys: pytest.CaptureFixture[str]):
    done = [0]
    shown = ProgressLines()
    text = ""

    def seen(part: str) -> bool:
        nonlocal text
        text += capsys.readouterr().err
        return part in text

    with (
        shown.watch("read", 2, lambda: Count(done[0], 7 * done[0])),
        shown.watch("quick loop", 5, lambda: Count(1), unit="file", is_loop=True),
    ):
        wait_for(lambda: seen("read: 0 of 2 tasks, 0 documents, 0 s so far, memory "))
        done[0] = 1
        wait_for(lambda: seen("read: 1 of 2 tasks, 7 documents, "))
        wait_for(lambda: seen("quick loop: 1 of 5 files, "))
    text += capsys.readouterr().err
    assert text.startswith("read: 2 tasks\n")
    assert re.search(r"^read: done in 0\.\d s, 7 documents$", text, re.MULTILINE)
    with pytest.raises(ZeroDivisionError), shown.watch("fails", 1, lambda: Count(0)):
        raise ZeroDivisionError
    assert "fails: done" not in capsys.readouterr().err and not followers()


def test_a_short_loop_says_nothing(capsys: pytest.CaptureFixture[str]):
    for shown in (ProgressLines(), ProgressEvents(), Progress()):
        with shown.watch("loop", 5, lambda: Count(1), is_loop=True):
            pass
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("seconds", "text"), [(7.4, "7 s"), (130, "2 min"), (7500, "2 h 05 min")])
def test_spans_of_time(seconds: float, text: str):
    assert span(seconds) == text


def test_python_shows_progress_unless_told_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "a.jsonl").write_bytes(records_of(made_texts(20)))
    recipe = recipe_of(tmp_path / "a.jsonl", stages=[])
    run(recipe, tmp_path / "one", engine="cpu")
    out, err = capsys.readouterr()
    assert out == "" and "read: done in " in err and "20 documents" in err
    run(recipe, tmp_path / "two", engine="cpu", progress=False)
    assert capsys.readouterr() == ("", "")


def test_a_notebook_gets_one_line_that_replaces_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    shown = in_a_notebook(monkeypatch)
    (tmp_path / "a.jsonl").write_bytes(records_of(made_texts(20)))
    recipe = recipe_of(tmp_path / "a.jsonl", stages=[])
    run(recipe, tmp_path / "out", engine="cpu")
    assert capsys.readouterr() == ("", "")
    assert len({options["display_id"] for _, options in shown}) == 1 < len(shown)
    assert [options["update"] for _, options in shown] == [False, *[True] * (len(shown) - 1)]
    lines = [data["text/plain"] for data, _ in shown]
    assert lines[-1].startswith("done in ")
    unfolded = shown[-1][0]["text/html"]
    assert unfolded.startswith('<details class="tex2jax_ignore')
    assert "engine cpu (asked for)" in unfolded and "<br>memory: " in unfolded
    shown.clear()
    with suppress(ValueError), shown_by(choose_progress()):
        raise ValueError
    assert shown == []  # no line was begun
    with suppress(ValueError), shown_by(line := choose_progress()):
        line.log("<b>\x1b[2J")
        raise ValueError
    assert shown[0][0] == {"text/plain": "<b>\\x1b[2J"} and shown[1][0]["text/plain"].startswith("stopped after ")
    assert "&lt;b&gt;\\x1b[2J" in shown[1][0]["text/html"]


def in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """The outputs that a notebook shows from now on: data, and the options of the display."""
    shown: list[tuple[dict[str, str], dict[str, Any]]] = []
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=True))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    display = SimpleNamespace(display=lambda data, **options: shown.append((data, options)))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(progress, "NOTEBOOK_SECONDS", 0.001)
    return shown


TERMINAL = """
import sys, time
from curation.base.system import progress
from curation.base.system.steps import Count

progress.SHORT_LOOP_SECONDS = progress.Bars.loop_delay = 0.3
shown = progress.choose_progress()
assert isinstance(shown, progress.Bars)
started = time.monotonic()

def count():
    share = min((time.monotonic() - started) / 0.9, 1.0)
    return Count(int(3 * share), int(3000 * share), int(6e6 * share), int(2000 * share), share)

shown.log("a line before")
with shown.watch("read + filter", 3, count):
    with shown.watch("inner \\x1b[2J loop", 5, lambda: Count(2), unit="file", is_loop=True):
        time.sleep(0.9)
    shown.log("a line between")
with shown.watch("compiling kernels, once per version", 15, lambda: Count(9)):
    pass
"""


def on_terminal(*command: str) -> str:
    """What a command writes to a terminal of 80 columns, without control sequences."""
    leader, follower = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80", "TERM": "xterm"}
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        shown = b""
        with closing(os.fdopen(leader, "rb", buffering=0)) as terminal:
            try:
                while data := terminal.read(4096):
                    shown += data
            except OSError:  # the process has closed its side
                pass
    assert process.returncode == 0, shown
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())


def test_a_terminal_shows_the_numbers_of_a_phase_and_of_its_slow_loop():
    shown = on_terminal(sys.executable, "-c", TERMINAL)
    assert re.search(r"read \+ filter +\d/3, [\d.]+k? docs, \d\.\d MB/s, [\d.]+k? kept, \d s so far, \d+ MB", shown)
    assert re.search(r"inner \\x1b\[2J loop +2/5, \d s so far, \d+ MB", shown)
    assert re.search(r"read \+ filter +done in \d\.\d s, 3\.0k docs, \d\.\d MB/s, 2\.0k kept", shown)
    assert re.search(r"compiling kernels, once per version +done in 0\.0 s", shown)
    assert shown.count("a line before") == shown.count("a line between") == 1


def test_a_signal_ends_the_drawing(capfd: pytest.CaptureFixture[str]):
    shown = Bars()
    with shown.watch("read", 2, lambda: Count(1)):
        (close,) = interrupts._before_answer
        close()
        capfd.readouterr()
        with shown.watch("write", 2, lambda: Count(1)):
            pass
    assert capfd.readouterr() == ("", "") and interrupts._before_answer == []


# Events


def events_of(capsys: pytest.CaptureFixture[str], *command: object) -> list[dict[str, Any]]:
    main([*map(str, command), "--log", "json"])
    return [json.loads(line) for line in "".join(capsys.readouterr()).splitlines()]


def documented() -> dict[str, tuple[str, ...]]:
    """The table of events in `docs/programs.md`."""
    page = (ROOT / "docs" / "programs.md").read_text("utf-8")
    table = page.partition("| `event` | other keys |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    return {name.strip(" `"): tuple(re.findall("`([a-z_]+)`", keys)) for name, keys in rows}


def test_the_page_lists_the_events():
    assert documented() == EVENTS


def test_events_have_the_documented_keys(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("cpu_fallback.session.BATCH_BYTES", 2000)
    (tmp_path / "a.jsonl").write_bytes(records_of(["漢字" * 40, *made_texts(300)]))
    out = tmp_path / "out"
    events = events_of(capsys, "run", "-i", tmp_path / "a.jsonl", "-o", out, "--engine", "cpu")
    events += events_of(capsys, "run", "-i", tmp_path / "none.jsonl", "-o", tmp_path / "two")
    (out / "rejected.jsonl").write_text("changed")
    events += events_of(capsys, "verify", out)
    events.append(json.loads(interrupts_line()))
    found = {event["event"]: {*event} - {"event", "time"} for event in events if event["event"] != "result"}
    assert found == {name: {*keys} for name, keys in EVENTS.items() if name != "result"}
    for event in events:
        keys = {*event} - {"event", "time"}
        assert keys >= {*EVENTS["result"]} if event["event"] == "result" else keys == {*EVENTS[event["event"]]}, event
    (progressed, *_) = [event for event in events if event["event"] == "phase_progressed" and event["documents"]]
    assert progressed["memory_bytes"] > 50e6 and progressed["seconds"] >= 0


def interrupts_line() -> str:
    from curation.cli.console import Json

    return Json().stopping("stopping")


def test_a_notebook_says_how_a_stopped_run_goes_on():
    shown: list[Any] = []
    line = NotebookLine(lambda data, **_: shown.append(data))
    line.note = "the same call resumes the run"
    line.log("reading")
    line.over(False)
    assert "stopped after 0 s; the same call resumes the run</summary>" in shown[-1]["text/html"]
