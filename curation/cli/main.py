# SPDX-License-Identifier: Apache-2.0
"""Runs one command, and makes an exit code and one message of what it raises."""

from __future__ import annotations

import argparse
import errno
import gc
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from curation import __version__, interrupts
from curation.cli.groups import GROUPS
from curation.cli.options import NOTHING_KEPT
from curation.cli.parsing import HELP, help_text, is_family, parse
from curation.cli.voice import Voice, choose_voice
from curation.errors import CurationError
from curation.terminal import protect_streams, say

DESCRIPTION = "Raw text to training data: curated, deduplicated, tokenised, packed."
EXIT_CODES = (
    "exit codes: 0 done; 1 the run failed; 2 wrong use, recipe or input; "
    f"{NOTHING_KEPT} done, but no document is kept; 129, 130, 143 ended by SIGHUP, SIGINT, SIGTERM, and can be resumed"
)
OBJECTS_BETWEEN_COLLECTIONS = 100_000


def command() -> int:
    """`main` in a process of its own. Some 200,000 objects of the libraries live as long as it does; looking among them
    for garbage took 0.1 s while they were loaded and 0.3 s at the end."""
    protect_streams()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    code = main()
    gc.freeze()
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in HELP or (words[1:2] and words[1] in HELP and is_family(words[0], GROUPS)):
        say(help_text(GROUPS, DESCRIPTION, EXIT_CODES, shutil.get_terminal_size().columns))
        return 0 if words else 2
    if words[0] == "--version":
        say(f"gpu-pipeline {__version__}")
        return 0
    return _run(words, choose_voice(words))


def _run(words: Sequence[str], voice: Voice) -> int:
    options = argparse.Namespace()
    try:
        options = parse(words, GROUPS)
        options.voice = voice
        code = _call(options)
        sys.stdout.flush()
        return code
    except CurationError as error:
        return _fail(voice, str(error), error.exit_code)
    except OSError as error:  # a full disk, a folder that may not be written
        return _fail(voice, f"{error}{_room_wanted(error, options)}", 1)
    except KeyboardInterrupt as error:
        code = getattr(error, "exit_code", 128 + signal.SIGINT)
        return _fail(voice, f"interrupted{_goes_on(options)}", code)


def _call(options: argparse.Namespace) -> int:
    try:
        return int(options.command.function(options))
    except Exception:
        interrupts.check()  # of a signal in the middle of other people's code
        raise


def _fail(voice: Voice, text: str, code: int) -> int:
    voice.fail(text, code)
    return code


def _room_wanted(error: OSError, options: argparse.Namespace) -> str:
    """Advice for a full disk or quota; empty for any other error."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT) or "output" not in options:
        return ""
    return f"; make room for the output, {options.output}{_goes_on(options)}"


def _goes_on(options: argparse.Namespace) -> str:
    """Advice on how to resume an interrupted command; empty where it would start from the beginning."""
    if "command" not in options or not options.command.resumes:
        return ""
    if not options.force:
        return "; the same command goes on from here"
    from curation.reading.paths import RUN_PLAN, RUN_REPORT

    folder = Path(options.output)
    if (folder / RUN_REPORT).exists() or not folder.joinpath(*RUN_PLAN).exists():
        return ""  # --force has deleted nothing yet, or not written what the new run is
    return "; the same command without --force goes on from here"
