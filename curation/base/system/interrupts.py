# SPDX-License-Identifier: Apache-2.0
"""Signals: SIGINT, SIGTERM and SIGHUP end `curate` with one message and no temporary files. A rerun resumes.

A thread receives the signals and answers at once. It raises no exception in the middle of other code. Inside an import,
an exception could leave a lock of Python held, or a library could swallow it. `check` raises `Interrupted` at safe
points instead. A process that reaches no safe point within GRACE_SECONDS is ended, as by a second signal. A process
that has not written anything yet is ended at once.

A program that imports the library keeps its own signal handling: this module handles signals only after `install`.
"""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from curation.base.system.tracebacks import rendered

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_SECONDS = 3.5  # from the first signal to the end of the process
POLL_SECONDS = 0.05
ANSWER_SECONDS = 0.2  # for other threads to prepare an answer
CLEAN_UP_SECONDS = 0.5
STOPPING = {signal.SIGINT: "stopping; press again to stop at once"}  # only SIGINT comes from a key
Value = TypeVar("Value")

_received = 0
_writing = _is_installed = _is_listening = False
_at_end: list[Callable[[], Any]] = []
_before_answer: list[Callable[[], Any]] = []
_task = threading.local()
_last_line = threading.Lock()  # taken by the thread that prints it
_stopping: Callable[[str], str] = "curate: {}".format
INTERRUPTED = "curate: interrupted"
_ended: Callable[[int], str] = lambda code: INTERRUPTED  # noqa: E731  a default


class Interrupted(KeyboardInterrupt):
    """A signal asks the process to end; `exit_code` is 128 + its number, as in shells."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.exit_code = 128 + number

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows of a run that is stopped."""
        return rendered(self, "stopped; the same call resumes the run")

    def __reduce__(self) -> tuple[type[Interrupted], tuple[int]]:  # to pass from a worker process
        return Interrupted, (self.number,)


class Stop(threading.Event):
    """An event that is set when a session is stopped. A copy in another process is a new event, which is never set."""

    def __reduce__(self) -> tuple[type[Stop], tuple[()]]:
        return Stop, ()


def install() -> None:
    """Let `SIGNALS` end the process. A signal that the parent set to be ignored stays ignored, as with `nohup`."""
    global _is_installed
    _is_installed = True
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _handle)


def listen() -> None:
    """From now on, receive signals in a thread, if `install` was called.

    Call this after the allocators are configured. Otherwise glibc gives the thread a second arena of about 15 MB.
    """
    global _is_listening
    if _is_listening or not _is_installed:
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=(reading,), daemon=True).start()
    _is_listening = True


def _leave_to_parent() -> None:
    """Give signals their default actions in a forked child, such as a process of `multiprocessing.Pool` in a stage. The
    child has no listening thread. Its signals would go to its parent through the pipe that both share."""
    global _is_installed, _is_listening
    if _is_listening:
        signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        if signal.getsignal(number) is _handle:
            signal.signal(number, signal.SIG_DFL)
    _is_installed = _is_listening = False


os.register_at_fork(after_in_child=_leave_to_parent)


def announce(stopping: Callable[[str], str], ended: Callable[[int], str]) -> None:
    """Set the lines that are printed on standard error. `stopping` formats the answer to a signal. `ended` returns the
    last line for an exit code if the process is ended before the command returns; "" prints nothing."""
    global _stopping, _ended, _last_line
    _stopping, _ended, _last_line = stopping, ended, threading.Lock()


def take_last_line() -> bool:
    """Return whether the caller may print the last line: true only once after `announce`. The command and a second
    signal may end the process at the same time."""
    return _last_line.acquire(blocking=False)


def at_end(function: Callable[[], Any]) -> None:
    """Register a function to call before this module ends the process. It may take half a second."""
    _at_end.append(function)


def before_answer(function: Callable[[], Any]) -> Callable[[], None]:
    """Register a function to call before a signal is answered, such as one that clears the terminal. Return a function
    that removes it again."""
    _before_answer.append(function)

    def revoke() -> None:
        with suppress(ValueError):
            _before_answer.remove(function)

    return revoke


def begin_writing() -> None:
    """Mark the first write: from now on, a signal leaves time to remove incomplete files. Raises Interrupted after a
    signal."""
    global _writing
    listen()
    _writing = True
    check()


def check() -> None:
    """Raise Interrupted if a signal has come, or if this task or its session has been stopped."""
    if _received:
        raise Interrupted(_received)
    stop: Stop | None = getattr(_task, "stop", None)
    is_cancelled: Callable[[], bool] | None = getattr(_task, "is_cancelled", None)
    if (stop is not None and stop.is_set()) or (is_cancelled is not None and is_cancelled()):
        raise Interrupted(signal.SIGINT)


def request_stop(number: int) -> None:
    """Let `check` raise Interrupted from now on, in all threads."""
    global _received
    _received = _received or number


def run_task(stop: Stop, function: Callable[..., Value], *arguments: Any) -> Value:
    """Call `function`, in which `check` raises Interrupted once `stop` is set."""
    _task.stop = stop
    try:
        check()
        return function(*arguments)
    finally:
        _task.stop = None


@contextmanager
def cancelled_by(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """In this context, `check` raises Interrupted in this thread once `is_cancelled` returns true."""
    _task.is_cancelled = is_cancelled
    try:
        yield
    finally:
        _task.is_cancelled = None


def wait_for(function: Callable[[], Value], seconds: float = math.inf) -> Value:
    """Return the result of `function`, called in another thread. Raises Interrupted as soon as a signal comes, and
    TimeoutError after `seconds`."""
    result: Future[Value] = Future()
    threading.Thread(target=_fill, args=(result, function), daemon=True).start()
    deadline = time.monotonic() + seconds
    while not result.done():
        if time.monotonic() > deadline:
            raise TimeoutError
        with suppress(TimeoutError):
            result.exception(POLL_SECONDS)
        check()
    return result.result()


def _fill(result: Future[Value], function: Callable[[], Value]) -> None:
    try:
        result.set_result(function())
    except BaseException as error:
        result.set_exception(error)


def _handle(number: int, frame: FrameType | None) -> None:
    """End the process, unless the listening thread runs: that thread gets the signal from Python's wake-up
    descriptor."""
    if not _is_listening:
        end(128 + number)


def _listen(descriptor: int) -> None:
    deadline = None
    while True:
        wait = None if deadline is None else max(deadline - time.monotonic(), 0)
        if not select.select([descriptor], [], [], wait)[0]:
            end(128 + _received)
        for number in os.read(descriptor, 64):
            if number not in SIGNALS:
                continue
            if _received or not _writing:
                end(128 + (_received or number))
            deadline = time.monotonic() + GRACE_SECONDS
            request_stop(number)
            for function in (*_before_answer,):
                _call(function, ANSWER_SECONDS)
            _print(_stopping(STOPPING.get(signal.Signals(number), "stopping")))


def end(code: int) -> None:
    """Remove incomplete files and end the process."""
    for function in _at_end:
        _call(function, CLEAN_UP_SECONDS)
    if take_last_line():
        line = _call(lambda: _ended(code), ANSWER_SECONDS)  # a machine under load may be too slow
        _print(INTERRUPTED if line is None else line)
    os._exit(code)


def _call(function: Callable[[], Value], seconds: float) -> Value | None:
    """Return the result of `function`; None if it fails or takes more than `seconds`."""
    result: Future[Value] = Future()
    threading.Thread(target=_fill, args=(result, function), daemon=True).start()
    with suppress(BaseException):
        return result.result(seconds)
    return None


def _print(line: str) -> None:
    if line:
        descriptor = 2
        with suppress(AttributeError, OSError, ValueError):  # a stream without a descriptor
            descriptor = sys.stderr.fileno()
        with suppress(OSError):  # standard error is closed
            os.write(descriptor, f"{line}\n".encode(errors="backslashreplace"))
