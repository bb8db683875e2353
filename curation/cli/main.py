# SPDX-License-Identifier: Apache-2.0
"""Entry point: run one command and turn its errors into one message and an exit code."""

from __future__ import annotations

import argparse
import gc
import shutil
import signal
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from curation import __version__
from curation.base.errors import CurationError, InputWarning
from curation.base.system import interrupts
from curation.base.system.os_errors import PASSING, explain
from curation.base.system.terminal import print_line, protect_streams, warning_line
from curation.cli.console import Console, choose_console
from curation.cli.groups import GROUPS
from curation.cli.options import NOTHING_KEPT
from curation.cli.parsing import HELP, help_text, is_family, parse

DESCRIPTION = "Raw text to training data: curated, deduplicated, tokenised, packed."
EXIT_CODES = (
    "exit codes: 0 success; 1 failed run; 2 invalid command line, recipe or input; "
    f"{NOTHING_KEPT} success, but no document kept; 4 undecided and 5 worse, of ablate; "
    "129, 130, 143 ended by SIGHUP, SIGINT, SIGTERM, resumable"
)
OBJECTS_BETWEEN_COLLECTIONS = 300_000  # more than the libraries create


def command() -> int:
    """Run `main` as a whole process and return its exit code.

    The libraries create about 200,000 objects that live until the end. Garbage collection over them took 0.1 s during
    loading and 0.3 s at exit, so it runs rarely.
    """
    protect_streams()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    code = main()
    gc.freeze()
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. `arguments` default to those of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if not words or words[0] in HELP or (words[1:2] and words[1] in HELP and is_family(words[0], GROUPS)):
        print_line(help_text(GROUPS, DESCRIPTION, EXIT_CODES, shutil.get_terminal_size().columns))
        return 0 if words else 2
    if words[0] == "--version":
        print_line(f"gpu-pipeline {__version__}")
        return 0
    return _run(words, choose_console(words))


def _run(words: Sequence[str], console: Console) -> int:
    options = argparse.Namespace()
    interrupts.announce(console.stopping, lambda code: console.error_line(_interrupted(options), code))
    try:
        options = parse(words, GROUPS)
        options.console, options.groups = console, GROUPS
        code = _call(options)
        sys.stdout.flush()
        return code
    except CurationError as error:
        return _fail(console, str(error), error.exit_code)
    except OSError as error:  # a full disk, a folder without write permission
        where = str(vars(options).get("output") or vars(options).get("html") or "")
        return _fail(console, f"{explain(error, where=where)}{_rerun_advice(error, options)}", 1)
    except KeyboardInterrupt as error:
        code = int(getattr(error, "exit_code", 128 + signal.SIGINT))
        return _fail(console, _interrupted(options), code) if interrupts.take_last_line() else code


def _call(options: argparse.Namespace) -> int:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", InputWarning)
            warnings.showwarning = partial(_show_warning, options.console)
            return int(options.command.function(options))
    except Exception:
        interrupts.check()  # a library may have replaced the exception of a signal
        raise


def _show_warning(console: Console, message: Warning | str, category: type[Warning], *place: Any) -> None:
    """Print a warning as commands print warnings. A warning of a library is printed with its location and class."""
    console.warn(message if issubclass(category, InputWarning) else warning_line(message, category, *place))


def _fail(console: Console, text: str, code: int) -> int:
    console.fail(text, code)
    return code


def _rerun_advice(error: OSError, options: argparse.Namespace) -> str:
    """Return advice on how to resume after a temporary error, such as a full disk; "" for any other error."""
    return _resume_advice(options) if error.errno in PASSING and "output" in options else ""


def _interrupted(options: argparse.Namespace) -> str:
    return f"interrupted{_resume_advice(options)}"


def _resume_advice(options: argparse.Namespace) -> str:
    """Return advice on how to resume an interrupted command; "" if it would start from the beginning."""
    if "command" not in options or not options.command.resumes or not options.output:
        return ""
    if not vars(options).get("force"):
        return "; rerun the same command to resume"
    from curation.reading.paths import RUN_PLAN, RUN_REPORT

    folder = Path(options.output)
    if (folder / RUN_REPORT).exists() or not folder.joinpath(*RUN_PLAN).exists():
        return ""  # either --force has not deleted the old run yet, or the plan of the new run is not written
    return "; rerun the same command without --force to resume"
