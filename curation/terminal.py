# SPDX-License-Identifier: Apache-2.0
"""What reaches a terminal: text without control characters, on streams whose loss does not end a run.

Names, reasons and texts come from other people. An ESC in one of them could clear the screen, set its title, or type.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # all control characters but tab and newline
UNSAFE_IN_LINE = re.compile(rf"[\t\n]|{UNSAFE.pattern}")


def printable(text: object) -> str:
    """The text with control characters and lone surrogates as escapes (`\\x1b`, `\\udc80`); tabs and newlines stay."""
    return UNSAFE.sub(_escaped, str(text))


def printable_line(text: object) -> str:
    """As `printable`, on one line: a name with a newline must not look like two messages."""
    return UNSAFE_IN_LINE.sub(_escaped, str(text))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def say(text: object = "", end: str = "\n") -> None:
    """Prints text on standard output."""
    print(printable(text), end=end)


def complain(text: object) -> None:
    """Prints text on standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def as_json_line(event: str, **content: Any) -> str:
    """An event of `--log json`, in ASCII: what happened, when, and what there is to say of it."""
    return json.dumps({"event": event, "time": datetime.now(UTC).isoformat(timespec="milliseconds"), **content})


def tell_event(event: str, **content: Any) -> None:
    """Prints an event on standard error."""
    complain(as_json_line(event, **content))


def log_as_json() -> None:
    """From here on the messages of the logs are events too."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, _Printable):
            handler.setFormatter(_Event())


class _Lossy:
    """A stream that goes on without its other end: nobody reads any more, the terminal is gone, its disk is full."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_lost = False

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            self._give_up()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        self.is_lost = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def stdout_is_lost() -> bool:
    """Whether what is printed on standard output goes nowhere any more."""
    return getattr(sys.stdout, "is_lost", False)


def protect_streams() -> None:
    """Makes this process's standard streams fit for a run: closed ones are opened on nothing, since the next file would
    get their numbers and all that libraries print; and no error of writing to them ends the run."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115  for the life of the process
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # in an encoding without the character
        setattr(sys, name, _Lossy(stream))
    handler = logging.StreamHandler()
    handler.setFormatter(_Printable())
    logging.getLogger().addHandler(handler)


class _Printable(logging.Formatter):
    """Messages of the logs of this and other packages."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(f"{record.levelname.lower()}: {super().format(record)}")


class _Event(logging.Formatter):
    """The same as JSON lines. What other packages report is a message at most: none of them ends a run."""

    def format(self, record: logging.LogRecord) -> str:
        event = "warning" if record.levelno >= logging.WARNING else "progress"
        return as_json_line(event, text=super().format(record))


__all__ = [
    "as_json_line", "complain", "log_as_json", "printable", "printable_line", "protect_streams", "say",
    "stdout_is_lost", "tell_event",
]  # fmt: skip
