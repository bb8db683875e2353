# SPDX-License-Identifier: Apache-2.0
"""Signals: SIGINT, SIGTERM and SIGHUP end `curate` with one message and no temporary files. A rerun resumes.

A signal raises `Interrupted` in the main thread. Before the first write of a run it ends the process at once instead,
because libraries catch and drop exceptions while they load. `check` raises an exception that was dropped later.
The library does not own the process: without `install` the other functions have no effect.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_received = _signals = 0
_writing = False
_notice = b"curate: interrupted\n"


class Interrupted(KeyboardInterrupt):
    """A signal asks the process to end; `exit_code` is 128 + its number, as in shells."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def install() -> None:
    """Install handlers for `SIGNALS`, except for signals that the parent made this process ignore, as `nohup` does."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _handle)


def announce(line: str) -> None:
    """Set the line that is printed on standard error when a signal ends the process at once."""
    global _notice
    _notice = f"{line}\n".encode()


def begin_writing() -> None:
    """Mark the first write: from now on a signal lets the program remove incomplete files. Raises Interrupted."""
    global _writing
    _writing = True
    check()


def check() -> None:
    """Raise Interrupted if a signal came and other code dropped its exception."""
    if _received:
        raise Interrupted(_received)


def _handle(number: int, _: FrameType | None) -> None:
    """Raise at the first signal, ignore the second (it would interrupt the clean-up), end the process at the third."""
    global _received, _signals
    _signals += 1
    if not _writing or _signals > 2:
        with suppress(OSError):  # standard error is closed
            os.write(2, _notice)
        os._exit(128 + number)
    if not _received:
        _received = number
        raise Interrupted(number)


__all__ = ["Interrupted", "announce", "begin_writing", "check", "install"]
