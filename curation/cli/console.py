# SPDX-License-Identifier: Apache-2.0
"""Output of a command: text for people, JSON for programs (`--log json`), or errors and warnings only (`--quiet`).

Results are on standard output, everything else on standard error. `docs/programs.md` lists the keys of the JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from curation.base.system.terminal import (
    as_json_line,
    log_as_json,
    print_error,
    print_line,
    printable_line,
    write_event,
)

if TYPE_CHECKING:
    from curation.base.system.progress import Progress

LOGS = ("text", "json")


class Console:
    """Text for people: bars in a terminal, or plain lines if `lines` is true."""

    is_for_people = True

    def __init__(self, lines: bool = False) -> None:
        self.lines = lines

    def progress(self) -> Progress:
        """Return the progress display of a run."""
        from curation.base.system.progress import ProgressLines, choose_progress

        return ProgressLines() if self.lines else choose_progress()

    def info(self, *lines: object) -> None:
        """Print lines for people, on standard output."""
        print_line("\n".join(map(printable_line, lines)))

    def warn(self, text: object) -> None:
        """Print a warning on standard error."""
        print_error(printable_line(f"warning: {text}"))

    def fail(self, text: object, code: int) -> None:
        """Print the error that ends a command with exit code `code`, on standard error."""
        print_error(self.error_line(text, code))

    def error_line(self, text: object, code: int) -> str:
        """Return the line that `fail` prints."""
        return printable_line(f"curate: {text}")

    def stopping(self, text: str) -> str:
        """Return the line that answers a signal."""
        return f"curate: {text}"

    def result(self, command: str, code: int = 0, **content: Any) -> int:
        """Print the result of a command for programs, and return `code`, its exit code."""
        return code


class Quiet(Console):
    """Errors and warnings only."""

    is_for_people = False

    def progress(self) -> Progress:
        from curation.base.system.progress import Progress

        return Progress()

    def info(self, *lines: object) -> None:
        return


class Json(Quiet):
    """One JSON object per line for every message and the result."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__()
        self.quiet = quiet
        log_as_json()

    def progress(self) -> Progress:
        from curation.base.system.progress import ProgressEvents

        return super().progress() if self.quiet else ProgressEvents()

    def warn(self, text: object) -> None:
        write_event("warning", text=str(text))

    def error_line(self, text: object, code: int) -> str:
        return as_json_line("error", text=str(text), exit_code=code)

    def stopping(self, text: str) -> str:
        return as_json_line("stopping", text=text)

    def result(self, command: str, code: int = 0, **content: Any) -> int:
        print_line(as_json_line("result", command=command, exit_code=code, **content))
        return code


def choose_console(words: Sequence[str]) -> Console:
    """Return the console for the `--log` and `--quiet` of a command line.

    The words are searched before they are parsed: an error in the command line is printed in this form too.
    """
    words = words[: words.index("--")] if "--" in words else words
    logs = [after for word, after in zip(words, [*words[1:], ""], strict=True) if word == "--log"]
    logs += [word.partition("=")[2] for word in words if word.startswith("--log=")]
    quiet = "--quiet" in words
    if "json" in logs:
        return Json(quiet)
    return Quiet() if quiet else Console(lines="text" in logs)
