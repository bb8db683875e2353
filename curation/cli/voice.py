# SPDX-License-Identifier: Apache-2.0
"""How a command speaks: for people, for programs, or of errors and warnings alone.

Results are on standard output, everything else on standard error. `docs/command_line.md` has the keys of `--log json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from curation import interrupts
from curation.terminal import as_json_line, complain, log_as_json, say, tell_event

if TYPE_CHECKING:
    from curation.running.progress import Progress

LOGS = ("text", "json")


class Voice:
    """Text: bars in a terminal, unless plain `lines` were asked for."""

    is_for_people = True

    def __init__(self, lines: bool = False) -> None:
        self.lines = lines

    def progress(self) -> Progress:
        """The display of a run's progress."""
        from curation.running.progress import Lines, choose_progress

        return Lines() if self.lines else choose_progress()

    @property
    def draws(self) -> bool:
        """Whether libraries may draw bars of their own."""
        import sys

        return not self.lines and sys.stderr.isatty()

    def tell(self, text: object) -> None:
        """Something for people alone."""
        say(text)

    def warn(self, text: object) -> None:
        complain(f"warning: {text}")

    def fail(self, text: object, code: int) -> None:
        complain(f"curate: {text}")

    def result(self, command: str, code: int = 0, **content: Any) -> int:
        """What came of a command, for programs. Gives the exit code."""
        return code


class Quiet(Voice):
    """Errors and warnings alone."""

    is_for_people = False
    draws = False

    def progress(self) -> Progress:
        from curation.running.progress import Progress

        return Progress()

    def tell(self, text: object) -> None:
        return


class Json(Quiet):
    """Every message, and the result, is one JSON object on a line of its own."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__()
        self.quiet = quiet
        log_as_json()
        interrupts.announce(as_json_line("error", text="interrupted"))

    def progress(self) -> Progress:
        from curation.running.progress import JsonLines

        return super().progress() if self.quiet else JsonLines()

    def warn(self, text: object) -> None:
        tell_event("warning", text=str(text))

    def fail(self, text: object, code: int) -> None:
        tell_event("error", text=str(text), exit_code=code)

    def result(self, command: str, code: int = 0, **content: Any) -> int:
        if not self.quiet:
            say(as_json_line("result", command=command, exit_code=code, **content))
        return code


def choose_voice(words: Sequence[str]) -> Voice:
    """The voice that a command line asks for. It is needed before the line was found to be correct."""
    words = words[: words.index("--")] if "--" in words else words
    logs = [after for word, after in zip(words, [*words[1:], ""], strict=True) if word == "--log"]
    logs += [word.partition("=")[2] for word in words if word.startswith("--log=")]
    quiet = "--quiet" in words
    if "json" in logs:
        return Json(quiet)
    return Quiet() if quiet else Voice(lines="text" in logs)
