# SPDX-License-Identifier: Apache-2.0
"""Progress of a run: bars in a terminal, plain lines elsewhere. It counts done-records on disk, so that it is right
for threads, processes and clusters alike, and after a restart."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from curation.terminal import complain, printable_line, tell_event

POLL_SECONDS = 0.2


class Progress:
    """Shows nothing: the default of the library."""

    def say(self, line: str) -> None: ...

    @contextmanager
    def watch(self, label: str, folder: Path, total: int) -> Iterator[None]:
        yield


class Lines(Progress):
    """One line when a phase begins and one when it ends."""

    def say(self, line: str) -> None:
        complain(printable_line(line))

    @contextmanager
    def watch(self, label: str, folder: Path, total: int) -> Iterator[None]:
        started = time.perf_counter()
        self.say(f"{label}: {total} to do")
        yield
        self.say(f"{label}: done in {time.perf_counter() - started:.1f} s")


class JsonLines(Progress):
    """The same for programs: `progress`, `phase_began` and `phase_ended`, one JSON object a line."""

    def say(self, line: str) -> None:
        tell_event("progress", text=line)

    @contextmanager
    def watch(self, label: str, folder: Path, total: int) -> Iterator[None]:
        started = time.perf_counter()
        tell_event("phase_began", phase=label, tasks=total)
        yield
        tell_event("phase_ended", phase=label, tasks=total, seconds=round(time.perf_counter() - started, 3))


class Bars(Progress):
    """A bar per phase, from the number of done-records in its folder."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True)

    def say(self, line: str) -> None:
        self.console.print(printable_line(line), markup=False, highlight=False)

    @contextmanager
    def watch(self, label: str, folder: Path, total: int) -> Iterator[None]:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        name = TextColumn("{task.description:<24}", markup=False)
        columns = [name, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
        stop = threading.Event()
        with Progress(*columns, console=self.console) as bars:
            task = bars.add_task(printable_line(label), total=total)

            def poll() -> None:
                while not stop.wait(POLL_SECONDS):
                    bars.update(task, completed=_done(folder))

            watcher = threading.Thread(target=poll, daemon=True)
            watcher.start()
            try:
                yield
            finally:
                stop.set()
                watcher.join()
                bars.update(task, completed=_done(folder))


def _done(folder: Path) -> int:
    return sum(1 for _ in folder.glob("*.json"))


def choose_progress() -> Progress:
    """Bars where a person watches, lines where a log does."""
    return Bars() if sys.stderr.isatty() else Lines()
