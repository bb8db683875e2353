# SPDX-License-Identifier: Apache-2.0
"""SIGINT, SIGTERM and SIGHUP end `curate` with one message and no temporary files: the same command goes on.

A signal raises `Interrupted` where the program is. Before a run has written anything it ends the process at once
instead: while libraries are loaded, their code catches and drops exceptions. `check` raises again what was dropped
later. The library does not own the process: without `install` the other functions do nothing.
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
    """A signal asks the process to end; `exit_code` is what shells give for it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def install() -> None:
    """Handles the signals in this process, but for those that its parent has it ignore, as `nohup` does."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _handle)


def announce(line: str) -> None:
    """Makes this the line that a process leaves which a signal ends at once."""
    global _notice
    _notice = f"{line}\n".encode()


def begin_writing() -> None:
    """From here on a signal leaves the program time to remove what is half written."""
    global _writing
    _writing = True
    check()


def check() -> None:
    """Interrupted where a signal came and somebody's code dropped its exception."""
    if _received:
        raise Interrupted(_received)


def _handle(number: int, _: FrameType | None) -> None:
    """The first signal raises; a second one would do so in the clean-up of the first; the third ends the process."""
    global _received, _signals
    _signals += 1
    if not _writing or _signals > 2:
        with suppress(OSError):  # nobody reads it any more
            os.write(2, _notice)
        os._exit(128 + number)
    if not _received:
        _received = number
        raise Interrupted(number)


__all__ = ["Interrupted", "announce", "begin_writing", "check", "install"]
