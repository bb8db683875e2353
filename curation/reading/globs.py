# SPDX-License-Identifier: Apache-2.0
"""Finds the files that a glob matches, on this machine or behind a URL. Hidden names are left out."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from curation.base.errors import InputError, counted
from curation.base.system.os_errors import fault_of
from curation.reading.answers import LIST_SECONDS, awaited
from curation.reading.remote import cause_of, refuse_local, refuse_remote
from curation.reading.urls import KEY_MARKS, LITERAL, check_url, is_http, path_of, scrubbed, shown

HIDDEN = ("_", ".")  # first characters of names that folders and globs leave out, as Spark, Dask and Arrow do
NEVER_DATA = (".git", ".cache", ".ipynb_checkpoints", "_temporary")  # hidden folders of other programs
RECURSIVE = "**"
# Fsspec's regular expression for it is slow: it tries all ways to divide the folders
REPEATED = re.compile(r"(^|/)(?:\*\*/){2,}")
MAX_NAMES = 5  # that a message lists


class GlobMatches(NamedTuple):
    """The matches of a glob, and the hidden paths that it leaves out; both are sorted and disjoint.

    sizes   bytes of the files that a server has listed
    """

    shown: list[str]
    hidden: list[str]
    sizes: Mapping[str, int] = {}


def glob_paths(pattern: str) -> GlobMatches:
    """Return the matches of a glob, each once.

    pattern   if its first folders exist literally, such as `x[1]/`, they are not used as a pattern

    Raises InputError if a folder cannot be listed that may have matches that are not hidden.
    """
    folder, rest = os.path.split(pattern)
    while folder and not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        folder, part = os.path.split(folder)
        rest = os.path.join(part, rest)
    if folder and not os.path.isdir(folder):
        folder, rest = "", pattern
    asked = _asked(os.path.join(glob.escape(folder), rest))
    matches: dict[bool, list[str]] = {False: [], True: []}
    for path, is_hidden in _walk(folder, rest.split("/"), asked):
        matches[is_hidden or not _is_visible(path, asked)].append(path)
    return GlobMatches(sorted(matches[False]), sorted(matches[True]))


def _walk(folder: str, parts: list[str], asked: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield the paths in a folder that match the parts of a glob, each with whether it is hidden: only hidden names
    lead to it.

    Each folder is listed only once. For `**/**`, the result is that of `glob.glob`, which visits a folder of depth n up
    to n^2 times.
    """
    last = len(parts) - 1
    waiting = [(folder, _with_empty(parts, {0}), set[int]())]
    while waiting:
        folder, indexes, behind = waiting.pop()  # `behind`: indexes that only hidden names lead to
        for name in _names(folder, [parts[index] for index in indexes | behind], is_hidden=not indexes):
            path = os.path.join(folder, name)
            if name in NEVER_DATA and not _is_visible(name, asked):
                continue
            matched = {index for index in indexes if _is_match(name, parts[index], with_hidden=False)}
            hidden = {index for index in indexes | behind if _is_match(name, parts[index], with_hidden=True)} - matched
            if last in matched | hidden:
                yield path, last not in matched
            inside, below = ({index + (parts[index] != RECURSIVE) for index in each} - {last + 1}
                             for each in (matched, hidden))  # fmt: skip
            if inside | below and os.path.isdir(path) and not _is_loop(folder, path):
                waiting.append((path, _with_empty(parts, inside), _with_empty(parts, below)))


def _with_empty(parts: list[str], indexes: set[int]) -> set[int]:
    """Add the index after each `**`, since `**` also matches zero folders."""
    extended = set(indexes)
    for index in range(min(indexes, default=len(parts)), len(parts) - 1):
        if index in extended and parts[index] == RECURSIVE:
            extended.add(index + 1)
    return extended


def _names(folder: str, parts: list[str], is_hidden: bool) -> list[str]:
    """Return the names in a folder that parts of a glob may match. A hidden folder that cannot be listed is no error,
    since no run reads it."""
    fixed = {part for part in parts if not glob.has_magic(part)}
    listed = []
    try:
        os.stat(os.path.join(folder, os.curdir))
        if len(fixed) < len({*parts}):
            with os.scandir(folder or os.curdir) as entries:
                listed = [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if is_hidden:
            return []
        raise InputError(f"folder {os.path.normpath(folder)} cannot be listed: {fault_of(error)}") from None
    return listed + [name for name in fixed.difference(listed) if os.path.lexists(os.path.join(folder, name))]


def _is_match(name: str, part: str, with_hidden: bool) -> bool:
    if not glob.has_magic(part):
        return name == part
    is_shown = with_hidden or not name.startswith(".") or part.startswith(".")
    return is_shown and name not in ("", os.curdir, os.pardir) and (part == RECURSIVE or fnmatchcase(name, part))


def _is_loop(folder: str, path: str) -> bool:
    """Return whether a path in a folder is a link to the folder or to one of its parents."""
    if not os.path.islink(path):
        return False
    return os.path.join(os.path.realpath(folder), "").startswith(os.path.join(os.path.realpath(path), ""))


def _asked(pattern: str) -> list[str]:
    """Return the parts of a glob that begin with `_` or `.`, and so ask for hidden names."""
    return [part for part in pattern.split("/") if part.startswith(HIDDEN)]


def _is_visible(path: str, asked: list[str]) -> bool:
    """Return whether each name in a path that begins with `_` or `.` matches one of these parts of the glob
    (`asked`)."""
    return all(
        not name.startswith(HIDDEN) or any(fnmatchcase(name, part) for part in asked) for name in path.split("/")
    )


def remote_matches(url: str) -> GlobMatches:
    """Return the URL itself, or the files that its glob matches. If a file such as `x[1]` exists, the URL is no glob.

    Files in hidden folders are not among the hidden files, since a server need not list them.
    """
    if not _has_wildcards(url):
        return GlobMatches([url], [])
    from curation.reading.stores import file_system

    check_url(url)
    try:
        system, pattern = file_system(url)
        system.invalidate_cache()  # a cached listing may be outdated
        if "*" not in pattern and system.isfile(pattern):
            return GlobMatches([url], [])
        limit = {"timeout": LIST_SECONDS} if system.async_impl else {}  # fsspec's own, of all requests together
        with awaited(shown(url)):
            infos = system.glob(REPEATED.sub(r"\1**/", pattern), detail=True, **limit)
        matches = [match for match, info in infos.items() if info["type"] != "directory" and not match.endswith("/")]
        asked = _asked(pattern)
        shown_files = sorted(match for match in matches if _is_visible(match, asked))
        urls = [_url_of(match, url, pattern, system) for match in shown_files]
        others = {*matches}.difference(shown_files)
        hidden = {_url_of(match, url, pattern, system): infos[match].get("size") or 0 for match in sorted(others)
                  if _is_visible(match.rpartition("/")[0], asked)}  # fmt: skip
    except Exception as raised:  # file systems raise errors of their own libraries
        refuse_local(url, raised)
        error = cause_of(raised)
        refuse_remote(url, error)
        raise InputError(f"{shown(url)} cannot be listed: {scrubbed(error, url) or type(error).__name__}") from None
    if not urls:
        folders = f", only {counted(len(infos), 'folder')}. To read the files in one, name it with /*" if infos else ""
        raise InputError(f"no file matches {shown(url)}{hidden_hint(matches) or folders}")
    return GlobMatches(urls, [*hidden], hidden)


def _has_wildcards(url: str) -> bool:
    path = path_of(url).partition("://")[2]
    if is_http(url):
        path = path.partition("/")[2]  # a host may be [::1]
    return not url.startswith(LITERAL) and glob.has_magic(path)


def _url_of(match: str, url: str, pattern: str, system: Any) -> str:
    """Return the URL of a match, with the host and the user of the glob. A key with special characters is marked as
    literal."""
    start = url.removesuffix(pattern) if url.endswith(pattern) else system.unstrip_protocol(match).removesuffix(match)
    is_key = not is_http(match) and any(mark in match for mark in KEY_MARKS)
    return f"{LITERAL if is_key else ''}{start}{match}"


def hidden_hint(paths: Iterable[str]) -> str:
    """Return the hint for a glob that matches only hidden files; "" if there are none."""
    first = sorted(paths)[: MAX_NAMES + 1]
    if not first:
        return ""
    names = ", ".join([*first[:MAX_NAMES], *("..." for _ in first[MAX_NAMES:])])
    return f". A glob leaves out files and folders whose names begin with _ or . ({names}). To read a file, name it"
