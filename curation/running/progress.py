# SPDX-License-Identifier: Apache-2.0
"""Progress of a run: bars in a terminal, plain lines elsewhere.

Progress counts done-records on disk, so it is correct for threads, processes, clusters and resumed runs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from curation.errors import counted
from curation.system.terminal import print_error, printable_line, write_event

POLL_SECONDS = 0.2


class Progress:
    """Progress that shows nothing, the default of the library. Subclasses override both methods."""

    def log(self, line: str) -> None:
        """Show a line of text."""

    @contextmanager
    def watch(self, label: str, folder: Path, total: int) -> Iterator[None]:
        """Show the phase `label` while the context is open: `total` tasks, whose done-records appear in `folder`."""
        yield


class Lines(Progress):
    """Progress as lines on standard error: one when a phase begins and one when it ends."""

    def log(self, line: str) -> None:
        print_error(printable_line(line))

    @contextmanager
    def watch(self, label: str, folder: Path, total: int) -> Iterator[None]:
        started = time.perf_counter()
        self.log(f"{label}: {counted(total, 'task')}")
        yield
        self.log(f"{label}: done in {time.perf_counter() - started:.1f} s")


class JsonLines(Progress):
    """Progress for programs: events `progress`, `phase_began` and `phase_ended`, one JSON object per line."""

    def log(self, line: str) -> None:
        write_event("progress", text=line)

    @contextmanager
    def watch(self, label: str, folder: Path, total: int) -> Iterator[None]:
        started = time.perf_counter()
        write_event("phase_began", phase=label, tasks=total)
        yield
        write_event("phase_ended", phase=label, tasks=total, seconds=round(time.perf_counter() - started, 3))


class Bars(Progress):
    """Progress as a bar per phase on standard error, from the number of done-records in its folder."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True)

    def log(self, line: str) -> None:
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
    """Return `Bars` if standard error is a terminal, else `Lines`."""
    return Bars() if sys.stderr.isatty() else Lines()
