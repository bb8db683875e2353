# SPDX-License-Identifier: Apache-2.0
"""Progress of a run: bars on a terminal, one line that replaces itself in a notebook, a line every 30 seconds
elsewhere, events for programs.

Phases and slow loops report only counts (`curation.base.system.steps.Count`). Only this module decides how they look.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

from curation.base.errors import IntegrityError, counted
from curation.base.system.html_table import CLASSES
from curation.base.system.interrupts import before_answer
from curation.base.system.steps import Count
from curation.base.system.terminal import fitted, print_error, printable_line, short_number, write_event

REPORT_SECONDS = 30.0  # between lines and events
NOTEBOOK_SECONDS = 1.0
DRAW_SECONDS = 0.2
NOTEBOOK_MARK = {"curation": {"progress": True}}  # metadata of the line in a notebook
SHORT_LOOP_SECONDS = 0.5  # a loop that takes less time gets no bar
LISTING_SHARE = 20  # counting may list large folders: it takes at most 1/20 of the time
WIDE_COLUMNS = 150  # terminals with fewer columns show short numbers and no bar
MIN_LABEL = 12
MIN_ETA_SECONDS = 2.0
SLOW_BYTES = 50_000  # per second; below this, documents per second are shown


class ShownPhase:
    """A phase or loop that a display shows."""

    def __init__(
        self, label: str, total: int, count: Callable[[], Count], unit: str, is_loop: bool, is_even: bool = True
    ) -> None:
        self.label, self.total, self.unit, self.is_loop, self.is_even = label, total, unit, is_loop, is_even
        self._count = count
        self._started = time.perf_counter()
        self._first: Count | None = None
        self.last = Count(0)
        self.is_shown = not is_loop
        self.count_seconds = 0.0

    def poll(self) -> None:
        """Update the counts. If that fails, they stay as they were: an interrupted phase may have lost its folder."""
        before = time.perf_counter()
        with suppress(OSError, IntegrityError):
            self.last = self._count()
            self._first = self._first or self.last
        self.count_seconds = time.perf_counter() - before

    @property
    def seconds(self) -> float:
        """Seconds since the phase began."""
        return time.perf_counter() - self._started

    @property
    def share(self) -> float:
        """Part of the work that is done, from 0 to 1."""
        return self._share_of(self.last)

    @property
    def bytes_per_second(self) -> float | None:
        """Speed since the phase began. Tasks that an earlier run has done do not count."""
        if self.last.bytes is None or self._first is None or self.seconds <= 0:
            return None
        return (self.last.bytes - (self._first.bytes or 0)) / self.seconds

    @property
    def documents_per_second(self) -> float | None:
        """Documents per second since the phase began; None if the phase counts no documents."""
        if self.last.documents is None or self._first is None or self.seconds <= 0:
            return None
        return (self.last.documents - (self._first.documents or 0)) / self.seconds

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds to the end; None while too little is known, and if the tasks take very different times."""
        if self._first is None or self.seconds < MIN_ETA_SECONDS or not self.is_even:
            return None
        gained = self.share - self._share_of(self._first)
        return self.seconds * (1 - self.share) / gained if gained > 0 else None

    def _share_of(self, count: Count) -> float:
        return min(count.done / self.total if self.total else 0.0, 1.0) if count.share is None else count.share

    def facts(self) -> dict[str, Any]:
        """Return the counts for programs."""
        rate, left = self.bytes_per_second, self.seconds_left
        return {
            "phase": self.label,
            "done": self.last.done,
            "tasks": self.total,
            "documents": self.last.documents,
            "bytes": self.last.bytes,
            "kept": self.last.kept,
            "bytes_per_second": None if rate is None else round(rate),
            "seconds": round(self.seconds, 3),
            "seconds_left": None if left is None else round(left, 1),
            "memory_bytes": resident_bytes(),
        }

    def numbers(self, is_done: bool = False, is_short: bool = False) -> list[str]:
        """Return the counts as readable text. `is_short`: for a terminal of 80 columns."""
        last, rate, parts = self.last, self.bytes_per_second, []
        if self.unit and not is_done:
            of = f" of {counted(self.total, self.unit)}" if self.total else f" {self.unit}s"
            parts.append(f"{last.done:,}/{self.total:,}" if is_short and self.total else f"{last.done:,}{of}")
        # A phase that only handles files has counted no document at its end.
        counts_documents = not is_done or last.documents or last.bytes or last.kept is not None
        if last.documents is not None and counts_documents:
            parts.append(f"{short_number(last.documents)} docs" if is_short else counted(last.documents, "document"))
        if last.bytes is not None and counts_documents:
            speed = f"{rate / 1e6:,.1f} MB/s" if rate else ""
            if rate and rate < SLOW_BYTES and self.documents_per_second:  # a model reads the texts
                speed = f"{self.documents_per_second:,.1f} {'docs' if is_short else 'documents'}/s"
            size = f"{last.bytes / 1e6:,.1f} MB"
            parts.append((speed or size) if is_short else f"{size} ({speed})" if speed else size)
        if last.kept is not None:
            parts.append(f"{short_number(last.kept) if is_short else f'{last.kept:,}'} kept")
        if is_done:
            return parts
        left = self.seconds_left
        parts.append(f"{span(self.seconds)} so far" if left is None else f"{span(left)} left")
        return [*parts, f"{'' if is_short else 'memory '}{resident_bytes() / 1e6:,.0f} MB"]


class Progress:
    """Progress that shows nothing. Subclasses override the methods `log`, `began`, `progressed` and `ended`."""

    every = 0.0  # seconds between calls of `progressed`; 0: never
    loop_delay = 0.0  # seconds before a loop is shown
    label = ""  # of the phase that began last
    note = ""  # added to the last line: how to resume a stopped run, or that it was finished

    def log(self, line: str) -> None:
        """Show a line of text."""

    @contextmanager
    def watch(
        self,
        label: str,
        total: int,
        count: Callable[[], Count],
        *,
        unit: str = "task",
        is_loop: bool = False,
        is_even: bool = True,
    ) -> Iterator[None]:
        """Show a phase while the context is open.

        label    what the phase does
        total    number of its tasks; 0 if it is unknown
        count    function that returns what is done so far. Another thread calls it
        unit     noun in the singular for what `total` counts; "" for a phase that cannot count
        is_loop  whether it is a step of another phase, shown only if it takes long
        is_even  whether the tasks take about the same time, so that the time left can be estimated
        """
        self.label = label
        if not self.every:
            yield
            return
        phase, stop = ShownPhase(label, total, count, unit, is_loop, is_even), threading.Event()
        if phase.is_shown:
            self.began(phase)
        watcher = threading.Thread(target=self._follow, args=(phase, stop), daemon=True)
        watcher.start()
        try:
            yield
        except BaseException:
            self._stop(watcher, stop, phase, is_complete=False)
            raise
        self._stop(watcher, stop, phase, is_complete=True)

    def _follow(self, phase: ShownPhase, stop: threading.Event) -> None:
        phase.poll()
        wait = max(self.every, self.loop_delay) if phase.is_loop else self.every
        while not stop.wait(max(wait, LISTING_SHARE * phase.count_seconds)):
            phase.poll()
            if not phase.is_shown:
                phase.is_shown = True
                self.began(phase)
            self.progressed(phase)
            wait = self.every

    def _stop(self, watcher: threading.Thread, stop: threading.Event, phase: ShownPhase, is_complete: bool) -> None:
        stop.set()
        watcher.join()
        if phase.is_shown:
            phase.poll()
            self.ended(phase, is_complete)

    def began(self, phase: ShownPhase) -> None:
        """Show the beginning of a phase."""

    def progressed(self, phase: ShownPhase) -> None:
        """Show the counts of a phase."""

    def ended(self, phase: ShownPhase, is_complete: bool) -> None:
        """Show the end of a phase; `is_complete` is false after an error."""

    def over(self, is_complete: bool) -> None:
        """Show the end of the call, whose phases have all ended."""


class ProgressLines(Progress):
    """Progress as lines on standard error: at the begin and the end of a phase, and every `seconds` between."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.every = seconds or REPORT_SECONDS

    def log(self, line: str) -> None:
        print_error(printable_line(line))

    def began(self, phase: ShownPhase) -> None:
        if phase.total and not phase.is_loop:
            self.log(f"{phase.label}: {counted(phase.total, phase.unit)}")

    def progressed(self, phase: ShownPhase) -> None:
        self.log(f"{phase.label}: {', '.join(phase.numbers())}")

    def ended(self, phase: ShownPhase, is_complete: bool) -> None:
        if is_complete:
            self.log(f"{phase.label}: {', '.join([f'done in {phase.seconds:.1f} s', *phase.numbers(is_done=True)])}")


class ProgressEvents(Progress):
    """Progress for programs: events as JSON lines. `curation.base.system.terminal.EVENTS` lists their keys."""

    def __init__(self) -> None:
        self.every = REPORT_SECONDS

    def log(self, line: str) -> None:
        write_event("progress", text=line)

    def began(self, phase: ShownPhase) -> None:
        write_event("phase_began", phase=phase.label, tasks=phase.total)

    def progressed(self, phase: ShownPhase) -> None:
        write_event("phase_progressed", **phase.facts())

    def ended(self, phase: ShownPhase, is_complete: bool) -> None:
        if is_complete:
            kept = ("phase", "tasks", "documents", "bytes", "kept", "seconds")
            write_event("phase_ended", **{name: value for name, value in phase.facts().items() if name in kept})


class Bars(Progress):
    """Progress as a line per phase on a terminal, redrawn several times per second."""

    every, loop_delay = DRAW_SECONDS, SHORT_LOOP_SECONDS

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True)
        self._lock = threading.RLock()
        self._tasks: dict[ShownPhase, Any] = {}
        self._drawing: Any = None
        self._revoke: Callable[[], None] = lambda: None
        self._is_closed = False

    def log(self, line: str) -> None:
        self.console.print(fitted(printable_line(line), sys.stderr), markup=False, highlight=False, soft_wrap=True)

    def began(self, phase: ShownPhase) -> None:
        with self._lock:
            if self._is_closed:
                return
            if self._drawing is None:
                self._drawing = self._start()
                self._revoke = before_answer(self.close)
            self._tasks[phase] = self._drawing.add_task(printable_line(phase.label), total=None, numbers="")

    def progressed(self, phase: ShownPhase) -> None:
        with self._lock:
            if self._drawing is not None:
                self._draw(phase, phase.numbers(is_short=self._is_narrow))

    def ended(self, phase: ShownPhase, is_complete: bool) -> None:
        with self._lock:
            if self._drawing is None:
                return
            if phase.is_loop:
                self._drawing.remove_task(self._tasks.pop(phase))
            else:
                begun = [f"done in {phase.seconds:.1f} s"] if is_complete else ["stopped"]
                self._draw(phase, [*begun, *phase.numbers(True, self._is_narrow)])
                self._tasks.pop(phase)
            if not self._tasks:
                self._stop_drawing()

    def close(self) -> None:
        """Stop drawing, so that the terminal can show an answer to a signal."""
        with self._lock:
            self._is_closed = True
            self._stop_drawing()

    def _stop_drawing(self) -> None:
        if self._drawing is not None:
            self._drawing.stop()
            self._drawing = None
            self._revoke()

    @property
    def _is_narrow(self) -> bool:
        return bool(self.console.width < WIDE_COLUMNS)

    def _start(self) -> Any:
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        label, numbers = (
            TextColumn(f"{{task.{name}}}", markup=False, table_column=Column(no_wrap=True))
            for name in ("description", "fields[numbers]")
        )
        bar = [] if self._is_narrow else [BarColumn(20)]
        drawing = Progress(label, *bar, numbers, console=self.console, refresh_per_second=1 / DRAW_SECONDS)
        drawing.start()
        return drawing

    def _draw(self, phase: ShownPhase, parts: list[str]) -> None:
        knows_share = phase.total or phase.last.share is not None
        share = {"total": 1.0, "completed": phase.share} if knows_share else {}
        numbers, label = ", ".join(parts), printable_line(phase.label)
        room = max(self.console.width - len(numbers) - 1, MIN_LABEL)
        label = label if len(label) <= room or not self._is_narrow else f"{label[: room - 1]}…"
        self._drawing.update(self._tasks[phase], description=label, numbers=numbers, **share)


class NotebookLine(Progress):
    """Progress as one line below a cell of a notebook, which replaces itself. At the end, a click on it shows all
    messages.

    display   `IPython.display.display`, which can update an earlier output by its id
    """

    def __init__(self, display: Callable[..., Any]) -> None:
        self.every = self.loop_delay = NOTEBOOK_SECONDS
        self._display, self._id = display, f"curation-{os.urandom(8).hex()}"
        self._lock = threading.Lock()
        self._messages: list[str] = []
        self._started, self._drawn = time.monotonic(), -math.inf

    def log(self, line: str) -> None:
        self._messages.append(line)
        self._draw(line)

    def began(self, phase: ShownPhase) -> None:
        self._draw(phase.label)

    def progressed(self, phase: ShownPhase) -> None:
        self._draw(f"{phase.label}: {', '.join(phase.numbers())}")

    def over(self, is_complete: bool) -> None:
        if self._drawn == -math.inf and not self.note:
            return
        text = f"{'done in' if is_complete else 'stopped after'} {span(time.monotonic() - self._started)}"
        text += f"; {self.note}" if self.note else ""
        messages = "<br>".join(escape(printable_line(line)) for line in self._messages)
        data = {"text/html": f'<details class="{CLASSES}"><summary>{text}</summary>{messages}</details>'}
        self._draw(text, data if messages else {}, is_last=True)

    def _draw(self, line: str, more: Mapping[str, str] = MappingProxyType({}), is_last: bool = False) -> None:
        """Replace the line, but not more often than people can read."""
        with self._lock:
            now, is_first = time.monotonic(), self._drawn == -math.inf
            if is_last or now - self._drawn >= self.every / 2:
                data = {"text/plain": printable_line(line), **more}
                self._display(data, raw=True, display_id=self._id, update=not is_first, metadata=NOTEBOOK_MARK)
                self._drawn = now


def choose_progress(wanted: Progress | bool = True) -> Progress:
    """Return the display of progress. For `True`, it is one line in a notebook, bars if standard error is a terminal,
    and lines elsewhere. For `False`, it shows nothing."""
    if isinstance(wanted, Progress):
        return wanted
    if not wanted:
        return Progress()
    return _of_notebook() or (Bars() if sys.stderr.isatty() else ProgressLines())


def notebook_progress(other: Progress | None = None) -> Progress:
    """Return the display for functions on frames: one line in a notebook, elsewhere `other`, or nothing if it is
    None."""
    return _of_notebook() or other or Progress()


def _of_notebook() -> NotebookLine | None:
    """Return the display for a notebook; None if this process is not a notebook's kernel."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    return NotebookLine(display)


def span(seconds: float) -> str:
    """Return a time as `45 s`, `3 min` or `2 h 05 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def resident_bytes() -> int:
    """Return the resident bytes of this process and its child processes. Shared pages count once per process."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for process in ["self", *_children()]:
        with suppress(OSError, ValueError, IndexError):  # it has ended
            total += int(Path(f"/proc/{process}/statm").read_bytes().split()[1]) * page
    return total


def _children() -> list[str]:
    children: list[str] = []
    with suppress(OSError):  # kernels without this file
        for task in os.listdir("/proc/self/task"):
            with suppress(OSError):  # the thread has ended
                children += Path(f"/proc/self/task/{task}/children").read_text().split()
    return children
