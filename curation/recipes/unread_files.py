# SPDX-License-Identifier: Apache-2.0
"""Finds files whose names show no format, and outputs of runs, in the folders and globs given to `curate init`."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from curation.base.errors import InputError
from curation.reading.formats import FORMATS
from curation.reading.formats.base import PROBED_BYTES
from curation.reading.globs import HIDDEN, glob_paths
from curation.reading.inputs import FilesInput
from curation.reading.paths import has_input_file, has_no_suffix, is_run, split_suffix
from curation.recipes.file_facts import suffix_of
from curation.recipes.text_kinds import CODE_SUFFIXES

MAX_CODE = 8  # globs for source code


def _below(path: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the folders of an input as `os.walk` does, without hidden folders and output folders of runs. Instead of
    its subfolders, each item has the names of the output folders in it."""
    for parent, folders, names in os.walk(os.path.expanduser(path)):
        shown = sorted(name for name in folders if not name.startswith(HIDDEN))
        folders[:] = [name for name in shown if not is_run(os.path.join(parent, name))]
        yield parent, [name for name in shown if name not in folders], sorted(names)


def runs_below(path: str) -> list[str]:
    """Return the output folders of runs in a folder."""
    return [os.path.normpath(os.path.join(parent, name)) for parent, runs, _ in _below(path) for name in runs]


def _unread_below(path: str) -> list[str]:
    """Return the files of a folder in which no name shows a format."""
    folder = os.path.expanduser(path)
    if not os.path.isdir(folder) or is_run(folder) or has_input_file(folder):
        return []
    return [os.path.join(parent, name) for parent, _, names in _below(path) for name in names
            if not name.startswith(HIDDEN)]  # fmt: skip


def bare_files(path: str) -> list[str]:
    """Return the files without a suffix, for a folder in which no name shows a format."""
    return [*filter(has_no_suffix, _unread_below(path))]


def only_code(path: str) -> list[str]:
    """Return globs for the source code of a folder or glob that has no file with a known format, at most MAX_CODE."""
    if is_glob(path):
        matches = _matches(path)
        return [path] * bool(matches and {suffix_of(match).lower() for match in matches} <= CODE_SUFFIXES)
    return [*code_among(_unread_below(path), path)][:MAX_CODE]


def code_among(paths: Iterable[str], folder: str = "") -> dict[str, int]:
    """Return globs that match the files with suffixes of programming languages -> their number, largest first."""
    code = [path for path in paths if suffix_of(path).lower() in CODE_SUFFIXES]
    top = folder or (os.path.commonpath([os.path.dirname(path) for path in code]) if code else "")
    globs = Counter(os.path.join(glob.escape(top), "**", f"*{suffix_of(path)}") for path in code)
    return dict(globs.most_common())


def is_glob(path: str) -> bool:
    """Return whether a path is a glob and no file."""
    return glob.has_magic(path) and not os.path.exists(os.path.expanduser(path))


def _matches(pattern: str) -> list[str]:
    return [match for match in glob_paths(os.path.expanduser(pattern)).shown if os.path.isfile(match)]


def unknown_matches(pattern: str) -> list[str]:
    """Return the matches of a glob whose names tell no format."""
    return [match for match in _matches(pattern) if not split_suffix(match)[0]]


def known_matches(entry: FilesInput) -> list[FilesInput]:
    """Return an input for each match of a glob whose format is known."""
    known = [match for match in _matches(entry.path) if split_suffix(match)[0]]
    if not known:
        raise InputError(f"no file that matches {entry.path} has a known format; see docs/inputs.md for the suffixes")
    return [msgspec.structs.replace(entry, path=match) for match in known]


def format_of(path: str) -> str:
    """Return the format of a file without a known suffix, by its first bytes."""
    with open(os.path.expanduser(path), "rb") as file:
        head = file.read(PROBED_BYTES).lstrip()
    return next((name for name, kind in FORMATS.items() if re.match(kind.start, head)), "text")
