# SPDX-License-Identifier: Apache-2.0
"""Slow loops: each step counts as progress, and is a safe point at which a signal ends the loop.

A loop does not know the display. The caller sets it with `shown_by`; without it the loop is only interruptible.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple, Protocol, TypeVar
from weakref import WeakSet

from curation.base.system.interrupts import check

Item = TypeVar("Item")


class Count(NamedTuple):
    """The progress of a phase: counts of its work so far.

    done       tasks or steps that are complete
    documents  documents read; None if the phase does not count them
    bytes      bytes of their text; None if the phase does not count them
    kept       documents that passed all stages of the phase; None if it has none
    share      part of the work that is done, from 0 to 1; None: `done` divided by the total
    """

    done: int
    documents: int | None = None
    bytes: int | None = None
    kept: int | None = None
    share: float | None = None


class Display(Protocol):
    """A display of progress: `curation.base.system.progress.Progress`."""

    def watch(
        self, label: str, total: int, count: Callable[[], Count], *, unit: str = "task", is_loop: bool = False
    ) -> AbstractContextManager[None]:
        """Show a phase while the context is open."""
        ...

    def over(self, is_complete: bool) -> None:
        """Show the end of the call."""
        ...


_display: ContextVar[Display | None] = ContextVar("display", default=None)
_loops: ContextVar[WeakSet[AbstractContextManager[None]] | None] = ContextVar("loops", default=None)
_reads = threading.local()  # bytes that the task of this thread has read


@contextmanager
def shown_by(display: Display | None) -> Iterator[None]:
    """Show the slow loops of the block on a display.

    After an error, a loop's generator stays alive, since a notebook keeps the traceback that refers to it. So the end
    of the block ends the loops and their threads.
    """
    loops: WeakSet[AbstractContextManager[None]] = WeakSet()
    tokens, is_complete = (_display.set(display), _loops.set(loops)), False
    try:
        yield
        is_complete = True
    finally:
        _display.reset(tokens[0])
        _loops.reset(tokens[1])
        for loop in [*loops]:
            loop.__exit__(GeneratorExit, GeneratorExit(), None)
        if display:
            display.over(is_complete)


def each(
    items: Iterable[Item], label: str, unit: str, *, total: int = 0, worth: Callable[[Item], int] | None = None,
    size: Callable[[Item], int] | None = None,
) -> Iterator[Item]:  # fmt: skip
    """Yield the items of a slow loop, and count each one after its step.

    label  what the loop does
    unit   noun in the singular for what is counted
    total  number of units; 0: the number of items, or unknown if `items` has no length
    worth  number of units of an item; 1 without it
    size   bytes of an item. The loop then also counts bytes. If `items` is a list, its share is that of the bytes

    Raises Interrupted before an item if a signal has come.
    """
    done = size_done = 0
    all_bytes = sum(map(size, items)) if size and isinstance(items, list) else 0

    def count() -> Count:
        return Count(done, bytes=size_done if size else None, share=size_done / all_bytes if all_bytes else None)

    known = total or (len(items) if isinstance(items, Sized) else 0)
    watched, loops = watching(label, known, count, unit, is_loop=True), _loops.get()
    if loops is not None:
        loops.add(watched)
    with watched:
        for item in items:
            check()
            yield item
            size_done += size(item) if size else 0
            done += worth(item) if worth else 1
            del item  # before the next one is made: it may be large


def watching(
    label: str, total: int, count: Callable[[], Count], unit: str, *, is_loop: bool = False
) -> AbstractContextManager[None]:
    """Show a phase while the context is open; see `Display.watch`. The display is that of the calling thread."""
    display = _display.get()
    return display.watch(label, total, count, unit=unit, is_loop=is_loop) if display else nullcontext()


def note_read(size: int) -> None:
    """Count bytes that this thread read from an input as they are stored, before decompression."""
    _reads.bytes = getattr(_reads, "bytes", 0) + size


def bytes_read() -> int:
    """Return the bytes that this thread has read from inputs."""
    return getattr(_reads, "bytes", 0)


def listen(listener: Callable[[float], object] | None) -> None:
    """Let this thread call `listener` with the share of a batch that a slow stage has done. None ends the calls."""
    _reads.listener = listener


def note_share(share: float) -> None:
    """Report which part of a batch a slow stage has done, from 0 to 1."""
    if listener := getattr(_reads, "listener", None):
        listener(share)


class Every:
    """A clock: `is_due()` is true at most once per `seconds`, and first after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._next = time.monotonic() + seconds

    def is_due(self) -> bool:
        """Return whether the time has come, and begin the next period."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self.seconds
        return True
