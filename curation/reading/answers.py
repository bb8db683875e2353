# SPDX-License-Identifier: Apache-2.0
"""Compares the HTTP responses of a server about a file: all parts that are read must come from one version of it.

A response states the position of its bytes, the length of the file, an ETag and a time. Only contradictions are errors.
A server may leave out any of these, and may send fewer bytes than requested.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

# Limits of requests. A transfer may take any time, as long as bytes of the file arrive.
SILENT_SECONDS = 60  # maximum time in which no byte of the file arrives
ANSWER_SECONDS = 60  # maximum from a request to the end of the headers of its response, with all redirects
LIST_SECONDS = 3600  # maximum for all requests of a listing
NOTICE_SECONDS = 5.0  # without a response, until the log names the address
FIRST_SECONDS = 10  # maximum for all tries if a server has never answered: its address may be wrong
UNKNOWN_SIZE = -1
STEP = 1 << 20  # bytes of a file that are read at once
# Fields that identify a version, the most reliable first: S3, GCS, HTTP, Azure, local and in memory.
VERSIONS = (
    "VersionId", "generation", "blob_id", "ETag", "etag", "md5Hash", "Content-MD5", "Last-Modified", "LastModified",
    "last_modified", "updated", "mtime", "modify", "modificationTime", "created",
)  # fmt: skip
WEAK = "W/"  # a weak ETag, which different bytes may share (RFC 9110, section 8.8.1)
VERSION_DIGITS = 16
MAX_SHOWN = 80  # characters of a header in a message
NUMBER = re.compile(r"[0-9]{1,18}")
CONTENT_RANGE = re.compile(r"bytes\s+([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
OTHER_VERSION = "the server reports another version"


log = logging.getLogger(__name__)


@contextmanager
def awaited(url: str) -> Iterator[None]:
    """If this context is open for NOTICE_SECONDS, log once for which address the program waits."""
    notice = threading.Timer(NOTICE_SECONDS, log.warning, ("waiting for an answer of %s", url))
    notice.daemon = True
    notice.start()
    try:
        yield
    finally:
        notice.cancel()


def tries_again(attempt: int, tries: int, unanswered_since: float | None) -> bool:
    """Return whether to repeat a request after its failed try number `attempt` of at most `tries`.

    unanswered_since  time of the first try (`time.monotonic`) if the server has never answered; else None
    """
    is_late = unanswered_since is not None and time.monotonic() - unanswered_since > FIRST_SECONDS
    return attempt < tries and not is_late


def in_tries(attempt: int) -> str:
    """Return "in 1 try" or "in 5 tries"."""
    return f"in {attempt} {'try' if attempt == 1 else 'tries'}"


class AnswerError(OSError):
    """A response that cannot be used. The request is repeated; the text is for the message after the last try.

    status   HTTP status of the response, or 0
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class ChangedError(AnswerError):
    """A response that comes from another version of the file than the responses before it."""


class State(NamedTuple):
    """What a response states about the whole file; UNKNOWN_SIZE and "" if it states nothing.

    etag, modified  strong ETag, and time of the last change
    version         digest that `version_of` returns
    """

    size: int = UNKNOWN_SIZE
    etag: str = ""
    modified: str = ""
    version: str = ""


def strong(etag: str | None) -> str:
    """Return a strong ETag, which differs if the bytes differ; "" for a weak ETag or none."""
    return etag if etag and not etag.startswith(WEAK) else ""


def version_of(info: Mapping[str, Any]) -> str:
    """Return a digest (hex) of the first of the fields VERSIONS in a description of a file; "" if it has none."""
    known = (str(info[name]) for name in VERSIONS if info.get(name) not in (None, ""))
    known_version = next(filter(strong, known), "")
    return hashlib.sha256(known_version.encode()).hexdigest()[:VERSION_DIGITS] if known_version else ""


def same_state(before: State, now: State) -> State:
    """Return the combined statements of two responses about a file. Raises ChangedError if they contradict each
    other."""
    if before.size != now.size and UNKNOWN_SIZE not in (before.size, now.size):
        raise ChangedError(f"the server reports {now.size:,} bytes, before it reported {before.size:,}")
    was, has = next(filter(all, [(before.etag, now.etag), (before.modified, now.modified)]), ("", ""))
    if was != has:
        raise ChangedError(OTHER_VERSION)
    size = now.size if before.size == UNKNOWN_SIZE else before.size
    return State(size, before.etag or now.etag, before.modified or now.modified, before.version or now.version)


def check_part(content_range: str, start: int, stop: int, length: int) -> int:
    """Return the size of the file, from a response to a request for the bytes from `start` to `stop` (exclusive).

    content_range   the header Content-Range; "" without it
    length          bytes of the response

    Returns UNKNOWN_SIZE if the response does not state the size. Raises AnswerError if the response has other bytes
    than requested.
    """
    match = CONTENT_RANGE.fullmatch(content_range)
    if match:
        first, last = int(match[1]), int(match[2])
        is_asked_for = first == start and length in (UNKNOWN_SIZE, last + 1 - first)
    else:
        is_asked_for = not content_range and length <= stop - start
    if not is_asked_for:
        sent = f"{length:,} bytes" if length != UNKNOWN_SIZE else "an answer"
        described = f"Content-Range: {content_range[:MAX_SHOWN]}" if content_range else "no Content-Range"
        raise AnswerError(f"asked for bytes={start}-{stop - 1}, the server sends {sent} with {described}")
    return int(match[3]) if match and match[3] != "*" else UNKNOWN_SIZE
