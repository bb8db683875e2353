# SPDX-License-Identifier: Apache-2.0
"""Globs: of local files, and of the files behind a URL. Both leave out hidden names."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from curation.errors import InputError, counted
from curation.reading.answers import LIST_SECONDS
from curation.reading.remote import cause_of, refuse_local, refuse_remote
from curation.reading.urls import KEY_MARKS, LITERAL, check_url, is_http, path_of, scrubbed, shown

HIDDEN = ("_", ".")  # first characters of names that folders and globs leave out, as Spark, Dask and Arrow do
MAX_NAMES = 5  # that a message lists


def glob_paths(pattern: str) -> list[str]:
    """Return the matches of a glob, sorted, without hidden names."""
    pattern = with_existing_folder(pattern)
    return visible(glob.glob(pattern, recursive=True), pattern)


def with_existing_folder(pattern: str) -> str:
    """Return a glob in which the longest folder that exists as it is written, such as `x[1]/`, is no pattern."""
    folder, rest = os.path.split(pattern)
    while folder and not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        folder, part = os.path.split(folder)
        rest = os.path.join(part, rest)
    return os.path.join(glob.escape(folder), rest) if folder else pattern


def visible(matches: Iterable[str], pattern: str) -> list[str]:
    """Return matches sorted. Names that begin with `_` or `.` need a part of the pattern that begins so."""
    asked = [part for part in pattern.split("/") if part.startswith(HIDDEN)]

    def is_asked(name: str) -> bool:
        return not name.startswith(HIDDEN) or any(fnmatchcase(name, part) for part in asked)

    return sorted(match for match in matches if all(map(is_asked, match.split("/"))))


def remote_matches(url: str) -> list[str]:
    """Return the URL itself, or the sorted matches of a glob in it: files alone. An existing `x[1]` is no glob."""
    if not _has_wildcards(url):
        return [url]
    import fsspec

    check_url(url)
    try:
        system, pattern = fsspec.url_to_fs(url)
        system.invalidate_cache()  # a cached listing may be outdated
        if "*" not in pattern and system.isfile(pattern):
            return [url]
        limit = {"timeout": LIST_SECONDS} if system.async_impl else {}  # fsspec's own, of all requests together
        found = system.glob(pattern, detail=True, **limit)
        matches = [match for match, info in found.items() if info["type"] != "directory" and not match.endswith("/")]
        urls = [_url_of(match, url, pattern, system) for match in visible(matches, pattern)]
    except Exception as raised:  # file systems raise errors of their own libraries
        refuse_local(url, raised)
        error = cause_of(raised)
        refuse_remote(url, error)
        raise InputError(f"{shown(url)} cannot be listed: {scrubbed(error, url) or type(error).__name__}") from None
    if not urls:
        folders = f", only {counted(len(found), 'folder')}. To read the files in one, name it with /*" if found else ""
        raise InputError(f"no file matches {shown(url)}{hidden_hint(matches) or folders}")
    return urls


def _has_wildcards(url: str) -> bool:
    path = path_of(url).partition("://")[2]
    if is_http(url):
        path = path.partition("/")[2]  # a host may be [::1]
    return not url.startswith(LITERAL) and glob.has_magic(path)


def _url_of(match: str, url: str, pattern: str, system: Any) -> str:
    """Return the URL of a match. It has the host and the user of the glob, and its key has no wildcard and no query."""
    start = url.removesuffix(pattern) if url.endswith(pattern) else system.unstrip_protocol(match).removesuffix(match)
    is_key = not is_http(match) and any(mark in match for mark in KEY_MARKS)
    return f"{LITERAL if is_key else ''}{start}{match}"


def hidden_hint(paths: Iterable[str]) -> str:
    """The hint for a glob whose only matches are hidden; "" without one."""
    first = sorted(paths)[: MAX_NAMES + 1]
    if not first:
        return ""
    names = ", ".join([*first[:MAX_NAMES], *("..." for _ in first[MAX_NAMES:])])
    return f". A glob leaves out files and folders whose names begin with _ or . ({names}). To read a file, name it"
