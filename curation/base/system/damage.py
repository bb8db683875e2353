# SPDX-License-Identifier: Apache-2.0
"""Damaged files of runs: whatever a library raises while it reads one becomes one error that names the file.

`reading` belongs around calls of libraries on the bytes of a file, and checks of what they return. Errors elsewhere are
bugs of this program, which must stay tracebacks.
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

SHOWN = 200  # characters of an error of a library, which may have paragraphs
REPORT, WORK, PLAN = "report.json", "_work", "plan.json"
ARRAY = "array"  # in WORK: what the processes of an array tell each other; the next ones write it again
RESUME_ADVICE = "Completed work is kept. Rerun the same command without --force to resume"
# Errors of NumPy, `zipfile`, `json`, PyTorch and Arrow for damaged files; RuntimeError is of PyTorch, and of encrypted
# and deeply nested files.
FAULTS = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RuntimeError, SyntaxError, TypeError,
    ValueError, pickle.UnpicklingError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
LIBRARIES = ("msgspec", "pyarrow")  # some of their errors have no other base; not everyone who reads a file loads them
PLACES = {
    errno.EISDIR: "it is a folder, expected a file",
    errno.ENOTDIR: "a part of its path is a file, expected a folder",
}


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise IntegrityError for an error of a library that reads a file of a run, and for a folder in its place. Other
    errors of the system pass, such as those of missing files, permissions and disks."""
    try:
        yield
    except CurationError:
        raise
    except OSError as error:
        if error.errno is not None and error.errno not in PLACES:
            error.filename = error.filename or str(path)  # Arrow names it in the text alone
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
    """Return the error of a file whose content is not what a run writes. It names the fault and the remedy."""
    text = " ".join(str(fault).split())[:SHOWN].rstrip(".") or type(fault).__name__
    return IntegrityError(f"{path} is damaged: {text}. {remedy(path)}")


def remedy(path: str | os.PathLike[str]) -> str:
    """Return what to do about a damaged file: of an array, of a finished run, of an unfinished one, or of no run."""
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
