# SPDX-License-Identifier: Apache-2.0
"""What the answers of a server say of a file: all that are read must be parts of one state of it.

An answer describes itself by its place in the file, the length of the file, its ETag and its time. Only contradictions
count: a server may leave out any of these, and it may send less than it was asked for.
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
SILENT_SECONDS = 60  # without a byte of the file
ANSWER_SECONDS = 60  # from a request to the end of the headers of its answer, with all redirects
LIST_SECONDS = 3600  # for all requests of a listing
NOTICE_SECONDS = 5.0  # without an answer, until the user reads what is awaited
FIRST_SECONDS = 10  # for all tries of a server that has never answered: its address may be wrong
UNKNOWN_SIZE = -1
STEP = 1 << 20  # bytes of a file that are asked for at once
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
    """Log which address is awaited, once, if this context is open for NOTICE_SECONDS."""
    notice = threading.Timer(NOTICE_SECONDS, log.warning, ("waiting for an answer of %s", url))
    notice.daemon = True
    notice.start()
    try:
        yield
    finally:
        notice.cancel()


def tries_again(attempt: int, tries: int, unanswered_since: float | None) -> bool:
    """Return whether a request is repeated after its failed try number `attempt` of at most `tries`.

    unanswered_since  time of the first try (`time.monotonic`) of a server that has never answered; else None
    """
    is_late = unanswered_since is not None and time.monotonic() - unanswered_since > FIRST_SECONDS
    return attempt < tries and not is_late


def in_tries(attempt: int) -> str:
    """Return "in 1 try" or "in 5 tries"."""
    return f"in {attempt} {'try' if attempt == 1 else 'tries'}"


class AnswerError(OSError):
    """An answer that cannot be used. It is asked for again; the text is for the message after the last try.

    status   HTTP status that a try cannot change, or 0
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class ChangedError(AnswerError):
    """An answer of another state of the file than that of the answers before it."""


class State(NamedTuple):
    """What an answer says of the whole file; UNKNOWN_SIZE and "" where it says nothing.

    etag, modified  its strong ETag, and the time of its last change
    version         digest by `version_of`
    """

    size: int = UNKNOWN_SIZE
    etag: str = ""
    modified: str = ""
    version: str = ""


def strong(etag: str | None) -> str:
    """Return an ETag that tells bytes apart; "" for a weak one, or none."""
    return etag if etag and not etag.startswith(WEAK) else ""


def version_of(info: Mapping[str, Any]) -> str:
    """Return a digest (hex) of the first of VERSIONS in a description of a file; "" where it has none."""
    known = (str(info[name]) for name in VERSIONS if info.get(name) not in (None, ""))
    known_version = next(filter(strong, known), "")
    return hashlib.sha256(known_version.encode()).hexdigest()[:VERSION_DIGITS] if known_version else ""


def same_state(before: State, now: State) -> State:
    """Return what two answers say of a file together. ChangedError where they contradict each other."""
    if before.size != now.size and UNKNOWN_SIZE not in (before.size, now.size):
        raise ChangedError(f"the server reports {now.size:,} bytes, before it reported {before.size:,}")
    was, has = next(filter(all, [(before.etag, now.etag), (before.modified, now.modified)]), ("", ""))
    if was != has:
        raise ChangedError(OTHER_VERSION)
    size = now.size if before.size == UNKNOWN_SIZE else before.size
    return State(size, before.etag or now.etag, before.modified or now.modified, before.version or now.version)


def check_part(content_range: str, start: int, stop: int, length: int) -> int:
    """Return the size of the file by an answer to a request for the bytes from `start` to `stop` (exclusive).

    content_range   its header; "" where it has none
    length          of the answer

    AnswerError where it says that it has other bytes. UNKNOWN_SIZE where it does not say the size.
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
