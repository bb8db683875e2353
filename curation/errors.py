# SPDX-License-Identifier: Apache-2.0
"""Every error a caller can catch.

CurationError
├── RecipeError      (ValueError)   the recipe asks for something that cannot be      exit code 2
├── InputError       (ValueError)   an input is missing or is not what it was said to be        2
├── TokenizerError   (ValueError)   a tokenizer cannot be loaded or does not fit                2
├── OutputError      (OSError)      the output folder is in use, finished, or of another run    2
├── EngineError      (RuntimeError) an engine, its device or its packages are not usable        2
├── IntegrityError   (RuntimeError) results contradict each other: the run failed               1
├── StageError       (RuntimeError) a stage returned something else than it announces           1
└── OutOfMemoryError (MemoryError)  the memory this process may use is too small: it failed     1

A structure that is built in Python with a wrong setting (`Rewrite(unicode="NFC")`) raises plain ValueError, which the
first three are too.
"""

import difflib
import errno
from collections.abc import Iterable
from concurrent.futures import BrokenExecutor

SHOWN_NAMES = 10
NO_THREAD = ("can't start new thread", "Failed to launch worker thread")


class CurationError(Exception):
    """Base of all errors of this package; `exit_code` is what the command line returns for it."""

    exit_code = 2


class RecipeError(CurationError, ValueError):
    """The recipe has an unknown key, a value out of range or a combination without a meaning."""


class InputError(CurationError, ValueError):
    """An input does not exist, has another format, or lacks the column it should have."""


class TokenizerError(CurationError, ValueError):
    """A tokenizer cannot be loaded, or cannot give what the recipe asks for."""


class OutputError(CurationError, OSError):
    """The output folder is locked, belongs to another recipe, or would be overwritten."""


class EngineError(CurationError, RuntimeError):
    """An engine cannot start here: no device, a driver too old, a broken package."""


class IntegrityError(CurationError, RuntimeError):
    """Two results that must agree do not: a count, a digest, an index."""

    exit_code = 1


class StageError(CurationError, RuntimeError):
    """A stage returned something else than it announces."""

    exit_code = 1


class OutOfMemoryError(CurationError, MemoryError):
    """The memory that this process may use is too small for a run, or ran out; a run that began can go on."""

    exit_code = 1


def nearest(name: object, names: Iterable[object]) -> str:
    """'; did you mean ...' for a message about an unknown name, else the first ten of what there is."""
    known = list(dict.fromkeys(map(str, names)))
    close = difflib.get_close_matches(str(name), known, 3)
    if close:
        return f"; did you mean {', '.join(close)}?"
    more = f" and {len(known) - SHOWN_NAMES} more" if len(known) > SHOWN_NAMES else ""
    return f"; there are {', '.join(known[:SHOWN_NAMES]) or 'none'}{more}"


def counted(number: int, noun: str) -> str:
    """`1 document`, `2,000 documents`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def is_shortage(error: Exception) -> bool:
    """MemoryError (Arrow's too); a worker process that was killed or crashed; an address that cannot be mapped; no
    memory for the stack of a thread, which Python and Arrow say in words alone."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, (MemoryError, BrokenExecutor)) or any(words in str(error) for words in NO_THREAD)
