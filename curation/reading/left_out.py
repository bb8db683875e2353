# SPDX-License-Identifier: Apache-2.0
"""Files that the search in folders and globs leaves out, and the line about them that `run`, `plan` and `init`
print."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable

from curation.base.errors import counted, shown_size
from curation.reading.formats import FORMATS
from curation.reading.globs import HIDDEN, NEVER_DATA

PARTIAL = (".part", ".partial", ".crdownload", ".download", ".incomplete", ".aria2", ".tmp")
ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar")
DOCUMENTS = (".pdf", ".doc", ".docx", ".odt", ".rtf", ".epub", ".xml", ".xlsx")
MAX_SUFFIXES, MAX_HIDDEN = 5, 3  # names in the line


class LeftOut:
    """Files that the search found but that are not read.

    unknown   files whose names do not tell their format -> bytes
    links     broken links with names of a known format, and links to files that are read -> reason; None: such links
              are errors
    hidden    files with names of a known format that begin with `_` or `.`, or are in such a folder -> bytes
    """

    def __init__(self) -> None:
        self.unknown: dict[str, int] = {}
        self.hidden: dict[str, int] = {}
        self.links: dict[str, str] | None = None
        self._example = ""  # a path with which an input reads the first hidden file

    def add_unknown(self, paths: Iterable[str]) -> None:
        """Add files with an unknown suffix, and their sizes."""
        self.unknown |= {path: _bytes_of(path) for path in paths}

    def add_hidden(self, paths: Iterable[str], root: str, size_of: Callable[[str], int] | None = None) -> None:
        """Add hidden files. `root`: the folder in which the search began."""
        for path in paths:
            self._example = self._example or _path_to_read(path, root)
            self.hidden[path] = (size_of or _bytes_of)(path)

    def add(self, other: LeftOut) -> None:
        """Add the files that another search left out. The first example is kept."""
        self.unknown |= other.unknown
        self.hidden |= other.hidden
        self._example = self._example or other._example

    def line(self) -> str:
        """Return the number, the bytes and the remedy of the files, in one line; "" without any."""
        return ". ".join(part for part in (self._unknown_line(), self.hidden_line()) if part)

    def _unknown_line(self) -> str:
        if not self.unknown:
            return ""
        suffixes = Counter(os.path.splitext(path)[1] or os.path.basename(path) for path in self.unknown).most_common()
        listed = ", ".join(f"{count:,} {suffix}" for suffix, count in suffixes[:MAX_SUFFIXES])
        folder = os.path.commonpath([os.path.dirname(path) for path in self.unknown]) or os.curdir
        return (
            f"{_size(self.unknown)} in {folder} not read, by names without a known format: {listed}"
            f"{', ...' if suffixes[MAX_SUFFIXES:] else ''}. To read them, make them an input with format: "
            f"{', '.join(FORMATS)}"
        )

    def hidden_line(self) -> str:
        """Return the part of the line about hidden files; "" without any."""
        if not self.hidden:
            return ""
        named = ", ".join([*[*self.hidden][:MAX_HIDDEN], *["..."] * (len(self.hidden) > MAX_HIDDEN)])
        return (
            f"{_size(self.hidden)} not read, whose names or folders begin with _ or .: {named}. To read such files, "
            f"make them an input, as in path: {self._example}"
        )


def _size(files: dict[str, int]) -> str:
    return f"{counted(len(files), 'file')} ({shown_size(sum(files.values()))})"


def _bytes_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # a broken link
        return 0


def _path_to_read(path: str, root: str) -> str:
    """Return a path with which an input reads a hidden file and similar ones: its outermost hidden folder, or a
    glob."""
    parts = path.removeprefix(root).strip("/").split("/")
    first_hidden = next(number for number, part in enumerate(parts) if part.startswith(HIDDEN))
    above = path.removesuffix("/".join(parts[first_hidden:]))
    if first_hidden < len(parts) - 1:
        return above + parts[first_hidden]
    return f"{glob.escape(above)}{parts[-1][0]}*{os.path.splitext(parts[-1])[1]}"


def hidden_below(folder: str, is_run: Callable[[str], bool]) -> Iterable[str]:
    """Yield the files in a hidden folder and its subfolders, sorted. Folders of other programs (NEVER_DATA) and outputs
    of runs are skipped. Folders that cannot be listed are skipped too, since no run reads them."""
    if os.path.basename(folder) in NEVER_DATA or is_run(folder):
        return
    for parent, folders, names in os.walk(folder):
        inside = (name for name in sorted(folders) if name not in NEVER_DATA)
        folders[:] = [name for name in inside if not is_run(os.path.join(parent, name))]
        yield from (os.path.join(parent, name) for name in sorted(names))


def conversion(suffix: str) -> str:
    """Return the remedy for files of a format that is not read; "" for an unknown format."""
    if suffix.lower() in ARCHIVES:
        return ". Unpack the archive first"
    if suffix.lower() in PARTIAL:
        return ". It is a part of a download: let it finish, or leave it out"
    return ". Convert the documents to text first" if suffix.lower() in DOCUMENTS else ""
