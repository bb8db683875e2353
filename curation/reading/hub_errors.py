# SPDX-License-Identifier: Apache-2.0
"""Turns errors of `datasets` and of its dependencies into messages about a data set."""

from __future__ import annotations

import errno
import json
import re
import socket
import ssl
import sys
from collections.abc import Iterator
from traceback import walk_tb
from typing import TypeVar

import yaml

from curation.base.errors import nearest
from curation.base.system.os_errors import FILLING, explain
from curation.reading.hub_requests import proxy_of_hub, shown_text
from curation.reading.inputs import HubInput
from curation.reading.urls import is_remote, scrubbed, shown

HTTP_ERRORS = {
    "httpx": "HTTPError",
    "httpx2": "HTTPError",
    "aiohttp": "ClientError",
}  # connection errors that are no OSError
NETWORK = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN, errno.ENETRESET)
# Numbers that errors of connections never have
WITHOUT_PATH = (*FILLING, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EROFS)
LIBRARY = "huggingface_hub"
ABSENT_FILES = ("EntryNotFoundError", "RemoteEntryNotFoundError")
PASSING = (408, 429)  # status codes of temporary errors, besides those from 500 on
LONGEST = 300  # characters of a library's message
OUTSIDE = "names files outside of the data set. Set data_files to files of the data set"
KNOWN = ".jsonl, .csv or .parquet"
Error = TypeVar("Error", bound=BaseException)


def message_of(error: Exception, entry: HubInput, label: str, *, is_folder: bool, file: str) -> str:
    """Return the message about an error of the library, with its remedy.

    is_folder  whether the data set is a local folder
    file       the file that was being read; "" for an unknown one
    """
    kinds = (_of_connection, _of_names, _of_content)
    for text_of in kinds if is_folder else (_of_status, *kinds, _of_no_hub):
        if text := text_of(error, entry, file):
            return f"{label}{text}"
    location = f" (file {file})" if file else ""
    remedy = "Repair the file" if file else "Check its README.md, its files and data_files"
    other = "leave out hf: to read the folder without datasets" if is_folder else "set data_files to other files"
    return f"{label} cannot be read: {on_one_line(error)}{location}. {remedy}, or {other}"


def _of_status(error: Exception, entry: HubInput, _: str) -> str:
    status, message, names = status_of(error), _shortened(error), {type(each).__name__ for each in chain(error)}
    if status >= 500 or status in PASSING:
        return f": the hub answers {status}, an error on its side. Rerun the same command later"
    if status == 407 or "ProxyError" in names:
        return f": the proxy {shown(proxy_of_hub()[1])} refuses the request. Check its user name and password"
    if status in (401, 403) or (not status and re.search(r"\bgated\b|authenticat", message, re.IGNORECASE)):
        return (
            f": the hub denies access ({status or 'gated'}). Check the name; if it is right, accept the terms on its "
            "page, and log in with `hf auth login` or set HF_TOKEN"
        )
    if match := re.search(r"Revision '(.*)' doesn't exist", str(error), re.DOTALL):
        if match[1] == entry.revision:
            return f" has no revision {match[1]!r} (404). Correct revision, or leave it out for the main branch"
        return f" no longer has the commit {match[1]}, whose documents were read first. Use a new --output, or --force"
    if status == 404 or type(error).__name__ == "DatasetNotFoundError":
        return " was not found (404). Check the name and the revision; a private one needs `hf auth login` or HF_TOKEN"
    if "OfflineModeIsEnabled" in message:
        return ": HF_HUB_OFFLINE is set, and the cache has no copy. Unset it, or load the data set once with a network"
    if "FileMetadataError" in names:
        return ": the answer is not that of a hub: it has no X-Repo-Commit. Check HF_ENDPOINT and the proxy"
    if status < 400:
        return ""
    text = next(_shortened(each) for each in chain(error) if _own_status(each))
    return f": the hub answers {status} ({text}). Check the name and the account"


def _of_connection(error: Exception, _: HubInput, __: str) -> str:
    causes = [each for each in chain(error) if is_broken_connection(each)]
    if not causes:
        return ""
    proxy, cause = proxy_of_hub()[1], _shortened(causes[-1])
    through = f" through the proxy {shown(proxy)}" if proxy else ""
    return f": the hub cannot be reached{through} ({cause}). Rerun the same command without --force to resume"


def _of_names(error: Exception, entry: HubInput, _: str) -> str:
    message = _shortened(error)
    if type(error).__name__ == "HFValidationError":
        return f": {message}. Correct the name"
    if "Bad split" in message or "BuilderConfig" in message:
        wrong, what = (entry.split, "split") if "Bad split" in message else (entry.config, "configuration")
        listed = re.search(r"[Aa]vailable[^\[]*\[([^\]]*)", str(error))
        offered = [name.strip(" '\"") for name in listed[1].split(",")] if listed else []
        return f" has no {what} {wrong!r}{nearest(wrong, offered)}"
    if "Data files don't belong to" in message:
        return f": {'data_files' if entry.data_files else 'README.md'} {OUTSIDE}"
    if "Config name is missing" in message:
        offer = " ".join(str(error).split()).rpartition("[")[2].partition("]")[0]
        return f" has several configurations; set config to one of {offer}"
    if isinstance(error, FileNotFoundError) and error.errno is None:
        if entry.data_files:
            where = ", at an address that answers" if is_remote(entry.data_files) else ""
            return f": data_files matches no file that datasets can read. Expected names such as {KNOWN}{where}"
        return f" has no file that datasets can read, such as {KNOWN}. Add one, or correct data_files in its README.md"
    if "scripts are no longer supported" in message:
        return f": {message}. Scripts are not run. Use a copy in Parquet, or leave out hf: and name its files"
    return ""


def _of_content(error: Exception, _: HubInput, file: str) -> str:
    message = _shortened(error)
    if isinstance(error, ImportError):
        return (
            f": {file or 'a file'} needs another package ({message}). Install it, or leave the file out by data_files"
        )
    if isinstance(error, yaml.YAMLError):
        return f": README.md or .huggingface.yaml has invalid YAML ({message}). Correct it, or delete it"
    if isinstance(error, StopIteration) or type(error).__name__ == "EmptyDataError":
        return f": {file or 'its first file'} is empty. Remove it, or leave it out by data_files"
    if re.search("Schema at index|column names don't match", message):
        return f": its files differ in their columns ({message}). Set data_files to files with the same columns"
    return ""


def _of_no_hub(error: Exception, _: HubInput, __: str) -> str:
    """Return the message about a response that `huggingface_hub` cannot use; "" for other errors."""
    for each in chain(error):
        modules = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(each.__traceback__)]
        packages = [name.partition(".")[0] for name in modules]
        if isinstance(each, json.JSONDecodeError) and LIBRARY in packages:
            return f": the answer of the hub is not JSON{shown_text(each.doc)}. Check HF_ENDPOINT and the proxy"
        if packages[-1:] == [LIBRARY]:
            return f": the answer is not that of a hub ({on_one_line(each)}). Check HF_ENDPOINT and the proxy"
    return ""


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes (`__cause__` or `__context__`).

    `datasets` requests files that a data set need not have, such as README.md. If such a request gets a 404, and
    another error is raised while `datasets` handles it, the chain ends before the 404.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen and not (seen and type(error).__name__ in ABSENT_FILES):
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def within(error: BaseException, kind: type[Error]) -> Error | None:
    """Return the first error of the class `kind` among an error and its causes; None if there is none."""
    return next((each for each in chain(error) if isinstance(each, kind)), None)


def local_fault(error: BaseException | None) -> str:
    """Return the message about an error of this machine's files or limits; "" for other errors."""
    while error is not None:
        if isinstance(error, OSError):
            has_path = error.errno is not None and error.filename is not None
            if has_path or error.errno in WITHOUT_PATH:
                return explain(error)
        error = error.__cause__  # not __context__, since files are often missing in a cache
    return ""


def is_broken_connection(error: BaseException) -> bool:
    """Return whether the cause of an error is a connection that failed or broke."""
    if status := status_of(error):
        return status >= 500 or status in PASSING
    kinds: tuple[type[BaseException], ...] = (ConnectionError, TimeoutError, socket.gaierror, ssl.SSLError)
    return any(
        isinstance(each, (*kinds, *_http_errors())) or (isinstance(each, OSError) and each.errno in NETWORK)
        for each in chain(error)
    )


def _shortened(error: BaseException) -> str:
    text = scrubbed(" ".join(str(error).split())).rstrip(".")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def on_one_line(error: BaseException) -> str:
    """Return the class and the message of an error, shortened for use inside another message."""
    return f"{type(error).__name__}: {_shortened(error)}"


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an error or of its causes; 0 without one."""
    return next((status for each in chain(error) if (status := _own_status(each))), 0)


def _own_status(error: BaseException) -> int:
    status = getattr(getattr(error, "response", None), "status_code", 0) or getattr(error, "status", 0)
    return status if isinstance(status, int) else 0


def broken_connection() -> tuple[type[Exception], ...]:
    """Return the error classes that a broken connection may raise."""
    return OSError, EOFError, *_http_errors()


def _http_errors() -> list[type[Exception]]:
    """Return the error classes of the HTTP packages that are loaded."""
    return [getattr(sys.modules[package], name) for package, name in HTTP_ERRORS.items() if package in sys.modules]
