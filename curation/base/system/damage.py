# SPDX-License-Identifier: Apache-2.0
"""Damaged files of runs: any error of a library that reads such a file becomes an IntegrityError that names the file.

Use `reading` only around library calls that parse a file, and around checks of their results. Errors elsewhere are bugs
of this program, and must keep their tracebacks.
"""

from __future__ import annotations

import errno
import os
import pickle
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from curation.base.errors import CurationError, IntegrityError

SHOWN = 200  # characters shown of a library's error, which may be long
REPORT, WORK, PLAN = "report.json", "_work", "plan.json"
ARRAY = "array"  # folder in WORK for messages between the processes of a job array; a rerun writes them again
RESUME_ADVICE = "Completed work is kept. Rerun the same command without --force to resume"
# Errors that NumPy, `zipfile`, `json`, PyTorch and Arrow raise for damaged files. PyTorch raises RuntimeError, and so
# do encrypted and deeply nested files.
FAULTS = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RuntimeError, SyntaxError, TypeError,
    ValueError, pickle.UnpicklingError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
LIBRARIES = ("msgspec", "pyarrow")  # their errors are recognised by module name: a reader may not import them
PLACES = {
    errno.EISDIR: "it is a folder, expected a file",
    errno.ENOTDIR: "a part of its path is a file, expected a folder",
}


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise IntegrityError if a library cannot parse a file of a run, or if a folder is in its place. Errors of the
    operating system pass unchanged, such as missing files, permissions and disk errors."""
    try:
        yield
    except CurationError:
        raise
    except OSError as error:
        if error.errno is not None and error.errno not in PLACES:
            error.filename = error.filename or str(path)  # Arrow names the file only in the text of the error
            raise
        raise damaged(path, PLACES.get(error.errno or 0, str(error))) from None
    except MemoryError as error:
        raise damaged(path, f"{error}; or memory is short") from None
    except FAULTS as error:
        raise damaged(path, error) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in LIBRARIES:
            raise
        raise damaged(path, error) from None


def damaged(path: str | os.PathLike[str], fault: object) -> IntegrityError:
    """Return the error for a file whose content is not what a run writes. It names the fault and the remedy."""
    text = " ".join(str(fault).split())[:SHOWN].rstrip(".") or type(fault).__name__
    return IntegrityError(f"{path} is damaged: {text}. {remedy(path)}")


def remedy(path: str | os.PathLike[str]) -> str:
    """Return the advice about a damaged file, which differs for a job array, a finished run, an unfinished run, and no
    run."""
    for folder in Path(path).parents:
        if folder.name == ARRAY and folder.parent.name == WORK:
            return RESUME_ADVICE
        is_finished = os.path.lexists(folder / REPORT)
        if folder.name == WORK or (not is_finished and (folder / WORK / PLAN).is_file()):
            return "Start over with --force"
        if is_finished:
            return (
                f"`curate verify {folder}` names every changed file. Put this one back, or run the recipe again with a "
                "new --output or --force"
            )
    return "Put the file back, or write it again"
