# SPDX-License-Identifier: Apache-2.0
"""Terminal output: text without control characters, on streams whose loss does not end a run.

Names, reasons and texts come from untrusted files. An ESC in them could clear the screen, set its title, or simulate
typing. A bidi control could change the order of a line, and an invisible character could make two names look equal.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

GAP = "  "  # between two columns of a table
# The events of `--log json`: name -> keys besides `event` and `time`. A `result` has more, by command.
EVENTS = {
    "progress": ("text",),
    "phase_began": ("phase", "tasks"),
    "phase_progressed": (
        "phase", "done", "tasks", "documents", "bytes", "kept", "bytes_per_second", "seconds", "seconds_left",
        "memory_bytes",
    ),
    "phase_ended": ("phase", "tasks", "documents", "bytes", "kept", "seconds"),
    "warning": ("text",),
    "stopping": ("text",),
    "error": ("text", "exit_code"),
    "result": ("command", "exit_code"),
}  # fmt: skip
# Bidi controls, line and paragraph separators, invisible characters and noncharacters. ZERO WIDTH SPACE, NON-JOINER and
# JOINER (U+200B to U+200D) are allowed: Khmer, Thai, Persian, Hindi and emoji need them.
HIDDEN = r"\u061c\u180e\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f"
UNSAFE = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{HIDDEN}]")  # all controls except tab and newline
UNSAFE_IN_LINE = re.compile(rf"[\t\n]|{UNSAFE.pattern}")
UNSAFE_OF_LIBRARIES = re.compile(rf"(?![\b\r\x1b]){UNSAFE.pattern}")  # progress bars need \b, \r and ESC


def printable(text: object) -> str:
    """Return the text with control characters (but tab and newline), lone surrogates, bidi controls and invisible
    characters as escapes: `\\x1b`, `\\udc80`, `\\u202e`."""
    return UNSAFE.sub(_escaped, str(text))


def printable_line(text: object) -> str:
    """Return the text as `printable` does, and escape tab and newline too: a name must not look like two messages."""
    return UNSAFE_IN_LINE.sub(_escaped, str(text))


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def short_number(number: int) -> str:
    """Return a number in three digits and a unit: 999, 1.0k, 12.3k, 600k, 1.0M, 180M."""
    value, unit = float(number), ""
    for unit in ("", "k", "M"):
        if value < 999.5 or unit == "M":
            break
        value /= 1000
    return f"{value:.1f}{unit}" if unit and value < 99.95 else f"{value:.0f}{unit}"


def fitted(line: str, stream: TextIO) -> str:
    """Return a line, broken between words if it is wider than the terminal of `stream`.

    Without a terminal, the line is unchanged. So are rows of tables and commands to copy, which contain two adjacent
    spaces.
    """
    if "  " in line or not stream.isatty():
        return line
    import shutil
    import textwrap

    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> Iterator[str]:
    """Yield rows of text as lines of a table. Columns are aligned to the right, except those in `left`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield GAP.join(cells).rstrip()


def print_line(text: object = "", end: str = "\n") -> None:
    """Print text on standard output, escaped by `printable`."""
    print(printable(text), end=end)


def print_escaped(text: str) -> None:
    """Print a line on standard output as it is: its untrusted parts are escaped already."""
    print(text)


def print_error(text: object) -> None:
    """Print text on standard error, escaped by `printable`."""
    print(printable(text), file=sys.stderr, flush=True)


def as_json_line(event: str, **content: Any) -> str:
    """Return an event of `--log json` as one line of ASCII: its name, the time (UTC, ISO 8601) and its content."""
    return json.dumps({"event": event, "time": datetime.now(UTC).isoformat(timespec="milliseconds"), **content})


def write_event(event: str, **content: Any) -> None:
    """Print an event on standard error."""
    print_error(as_json_line(event, **content))


def log_as_json() -> None:
    """Print later log messages as events."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, _Printable):
            handler.setFormatter(_Event())


def print_once(*libraries: str) -> None:
    """Remove the log handlers of libraries if `protect_streams` prints all messages: otherwise each appears twice."""
    if any(isinstance(handler.formatter, _Printable | _Event) for handler in logging.getLogger().handlers):
        for name in libraries:
            logging.getLogger(name).handlers.clear()


class _Lossy:
    """A stream that ignores write errors, such as a closed pipe, a closed terminal or a full disk.

    It also escapes text that libraries write.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_lost = False

    def write(self, text: str) -> int:
        try:
            self._stream.write(UNSAFE_OF_LIBRARIES.sub(_escaped, text))
        except OSError:
            self._discard_output()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._discard_output()

    def _discard_output(self) -> None:
        self.is_lost = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def stdout_is_lost() -> bool:
    """Return whether the reader of standard output has closed it, so that printing more is useless."""
    return getattr(sys.stdout, "is_lost", False)


def protect_streams() -> None:
    """Make the standard streams of this process safe for a run: write errors do not end it.

    Closed streams are opened on /dev/null. Otherwise the next opened file would get their descriptors, and libraries
    would print into it. Log messages, warnings and tracebacks are escaped by `printable`.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
    if sys.stderr:  # Python gets another descriptor, since `without_panics` redirects descriptor 2
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding=sys.stderr.encoding)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115  for the life of the process
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # for characters that the encoding lacks
        setattr(sys, name, _Lossy(stream))
    handler = logging.StreamHandler()
    handler.setFormatter(_Printable())
    logging.getLogger().addHandler(handler)
    sys.excepthook = threading.excepthook = _print_traceback
    warnings.showwarning = lambda *warning: print_error(printable_line(warning_line(*warning)))


def warning_line(message: Warning | str, category: type[Warning], file: str, line: int, *_: Any) -> str:
    """Return a warning of a library with its file, line and class."""
    return f"{file}:{line}: {category.__name__}: {message}"


def _print_traceback(error: Any, *others: Any) -> None:
    """Print a traceback from the arguments of `sys.excepthook` or of `threading.excepthook`."""
    import traceback

    kind, *rest = (error, *others) if others else (error.exc_type, error.exc_value, error.exc_traceback)
    if kind is not SystemExit:
        print_error("".join(traceback.format_exception(kind, *rest)).removesuffix("\n"))


class _Printable(logging.Formatter):
    """Formats log messages of this and other packages as text."""

    def format(self, record: logging.LogRecord) -> str:
        shown = printable if record.exc_info or record.stack_info else printable_line  # a traceback has lines
        return shown(f"{record.levelname.lower()}: {super().format(record)}")


class _Event(logging.Formatter):
    """Formats log messages of this and other packages as JSON lines. No message becomes an `error` event: a log message
    ends no run."""

    def format(self, record: logging.LogRecord) -> str:
        event = "warning" if record.levelno >= logging.WARNING else "progress"
        return as_json_line(event, text=super().format(record))
