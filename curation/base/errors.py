# SPDX-License-Identifier: Apache-2.0
"""Every error that a caller can catch.

CurationError
├── RecipeError      (ValueError)   the recipe has an invalid key, value or combination   exit code 2
├── InputError       (ValueError)   an input is missing or does not have the declared format        2
├── ArgumentError    (TypeError)    an argument of a function has another type than expected            2
├── TokenizerError   (ValueError)   a tokenizer cannot be loaded or does not fit the recipe         2
├── OutputError      (OSError)      the output folder is locked, finished, or of another run        2
├── EngineError      (RuntimeError) an engine, its device or its packages are not usable            2
├── IntegrityError   (RuntimeError) results contradict each other, or a file of a run is damaged    1
├── StageError       (RuntimeError) a stage returned something else than it announces               1
└── OutOfMemoryError (MemoryError)  the memory limit of this process is too small                   1

A structure built in Python with an invalid setting (`Rewrite(unicode="nfd")`) raises plain ValueError. RecipeError,
InputError and TokenizerError are ValueErrors too. InputWarning (UserWarning) reports records that are left out.
"""

import difflib
import errno
import math
from collections.abc import Iterable
from concurrent.futures import BrokenExecutor

SHOWN_NAMES = 10
LESS_LIKE = 0.2  # names that are less like the unknown one than the nearest by this much are not shown
NO_THREAD = ("can't start new thread", "Failed to launch worker thread")


class CurationError(Exception):
    """Base of all errors of this package; `exit_code` is the exit code of the command line."""

    exit_code = 2

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows: frames of the user's code, and the message."""
        from curation.base.system.tracebacks import rendered

        return rendered(self, str(self))


class RecipeError(CurationError, ValueError):
    """The recipe has an unknown key, a value out of range or an invalid combination."""


class InputError(CurationError, ValueError):
    """An input does not exist, has another format, or lacks the column it should have."""


class InputWarning(UserWarning):
    """Records were left out: they are no documents, their file is damaged, or several have one id. Or a stage replaces
    columns of a frame."""


class ArgumentError(CurationError, TypeError):
    """An argument of a function has another type than the function expects, such as a list in place of a frame."""


class TokenizerError(CurationError, ValueError):
    """A tokenizer cannot be loaded, or lacks a feature that the recipe needs."""


class OutputError(CurationError, OSError):
    """The output folder is locked, belongs to another recipe, would be overwritten, or needs more space than the disk
    has."""


class EngineError(CurationError, RuntimeError):
    """An engine cannot start here: no device, a driver too old, a broken package."""


class DeviceLostError(EngineError):
    """A GPU failed during a run."""


class IntegrityError(CurationError, RuntimeError):
    """Two results that must be equal differ, such as counts or digests. Or a file of a run is damaged."""

    exit_code = 1


class StageError(CurationError, RuntimeError):
    """A stage returned something else than it announces."""

    exit_code = 1


class OutOfMemoryError(CurationError, MemoryError):
    """The memory that this process may use is too small for a run, or ran out. A run that has begun can be resumed."""

    exit_code = 1


# Names that other tools or people use -> names in this package. A message suggests those that are valid where it is
# raised.
SYNONYMS = {
    "at_least": ("min",), "at_most": ("max",), "lower": ("min", "lowercase"), "lower_bound": ("min",),
    "upper": ("max",), "upper_bound": ("max",), "contains": ("matches", "listed"), "pattern": ("matches",),
    "regex": ("matches",), "equals": ("in",), "one_of": ("in",),
    "dedup": ("exact_dedup", "fuzzy_dedup"), "deduplicate": ("exact_dedup", "fuzzy_dedup"),
    "minhash": ("fuzzy_dedup",), "lsh": ("fuzzy_dedup",), "semdedup": ("semantic_dedup",), "langid": ("language",),
    "pii": ("redact",), "anonymize": ("redact",), "clean": ("rewrite",), "normalize": ("rewrite",),
    "quality": ("filter", "classify"), "heuristics": ("filter",),
    "jaccard": ("threshold",), "similarity": ("threshold",), "num_perm": ("permutations",),
    "num_hashes": ("permutations",), "text_field": ("text_column",), "text_key": ("text_column",),
    "id_field": ("id_column",), "id_key": ("id_column",), "languages": ("keep",), "share": ("keep_highest",),
    "fraction": ("sample", "keep_highest"), "language_score": ("language_probability",),
}  # fmt: skip


def nearest(name: object, names: Iterable[object]) -> str:
    """Return the end of a message about the unknown name `name`.

    It is "; did you mean ..." with the names in SYNONYMS or up to three similar names. Without any, it is "; expected
    one of ..." with the first ten names.
    """
    known = list(dict.fromkeys(map(str, names)))
    if meant := [synonym for synonym in SYNONYMS.get(str(name).lower(), ()) if synonym in known]:
        return f"; did you mean {' or '.join(meant)}?"
    close = difflib.get_close_matches(str(name), known, 3)
    likeness = [difflib.SequenceMatcher(None, other, str(name)).ratio() for other in close]
    close = [other for other, ratio in zip(close, likeness, strict=True) if ratio > likeness[0] - LESS_LIKE]
    if close:
        return f"; did you mean {', '.join(close)}?"
    if not known:
        return "; there are none"
    more = f" and {len(known) - SHOWN_NAMES} more" if len(known) > SHOWN_NAMES else ""
    return f"; expected one of {', '.join(known[:SHOWN_NAMES])}{more}"


def near_or_nothing(name: object, names: Iterable[object]) -> str:
    """Return "; did you mean ..." with up to three names close to an unknown one, or ""."""
    hint = nearest(name, names)
    return hint if hint.startswith("; did") else ""


def as_share(value: float) -> str:
    """Return the hint ". Write 0.8 for 80 %" for a share from 2 to 100, which is probably a percentage; else ""."""
    return f". Write {value / 100:g} for {value:g} %" if 2 <= value <= 100 else ""


def counted(number: int, noun: str) -> str:
    """Return a count with its noun: "1 document", "2,000 documents"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def sentence(text: str) -> str:
    """Return a text with a full stop, unless it ends with a question mark, as hints do."""
    return text if text.endswith("?") else f"{text}."


def shown_number(value: float, digits: int = 3) -> str:
    """Return a number as readable text, with all digits before the point: "3,480", "100,000" or "0.123"."""
    if not math.isfinite(value):
        return f"{value:g}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 10**digits else f"{value:,.{digits}g}"


def shown_size(size: int) -> str:
    """Return a number of bytes in the largest unit: "12 bytes", "3.4 kB", "5.6 MB"."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return counted(size, "byte")


def installation(extra: str) -> str:
    """Return how to install an extra of this package: from the package index, or in a clone."""
    return f"pip install 'gpu-pipeline[{extra}]', or '.[{extra}]' in a clone"


def is_shortage(error: Exception) -> bool:
    """Return whether an error means that memory ran out.

    Such errors are MemoryError (also Arrow's), the end of a worker process that was killed or crashed, and ENOMEM.
    Another is a thread that cannot start; Python and Arrow report it only in the text of the error.
    """
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, (MemoryError, BrokenExecutor)) or any(words in str(error) for words in NO_THREAD)
