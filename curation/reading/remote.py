# SPDX-License-Identifier: Apache-2.0
"""Files behind URLs. A failed read is repeated from the same byte, and a version detects changes of the file."""

from __future__ import annotations

import errno
import io
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from curation.base.errors import InputError, installation
from curation.base.system.os_errors import FILLING
from curation.base.system.steps import note_read
from curation.reading.answers import (
    OTHER_VERSION,
    UNKNOWN_SIZE,
    AnswerError,
    ChangedError,
    State,
    awaited,
    in_tries,
    tries_again,
)
from curation.reading.urls import LITERAL, check_url, is_http, scrubbed, shown

TRIES = 5
FIRST_WAIT_SECONDS = 0.5  # doubled after each failed try
NOT_FOUND, DENIED, LATER = 404, (401, 403), (408, 425, 429)  # HTTP status
LOCAL = (*FILLING, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS)  # faults of this machine
EXTRAS = {"http": "http", "https": "http", "s3": "s3", "s3a": "s3", "hf": "hub"}  # protocol -> its extra
PACKAGES = {  # protocol -> package of its file system, for which there is no extra
    "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs", "sftp": "paramiko", "ssh": "paramiko",
}  # fmt: skip
MIXED = (
    "Documents could be lost, or come from two states of the file. Wait until the file is complete, then rerun with a "
    "new --output, or with --force"
)
Answer = TypeVar("Answer")


class RemoteFile(io.RawIOBase):
    """A remote file. After a failed read, it is opened again, and reading continues at the same byte.

    size      in bytes; -1 if the server does not report it. Such a file is read to its end, and seeking reads all bytes
              before the position
    version   digest that changes with the file; "" if the server reports nothing that identifies a version

    planned   (size, version) at the time of planning; -1 and "" if unknown

    Raises InputError if the server refuses the file, and after TRIES failed tries. Responses from two versions of the
    file count as failed tries. If the file is not planned and the server does not answer the first request at all, the
    tries end after `answers.FIRST_SECONDS`.
    """

    _source: Any = None  # `close` reads it even if `check_url` refused the path

    def __init__(self, path: str, planned: tuple[int, str] = (UNKNOWN_SIZE, "")) -> None:
        check_url(path)
        self.path = path
        self.position = 0
        self._state, self._planned_version = State(planned[0]), planned[1]
        self._asks_again = False
        self._block, self._block_start = b"", 0  # the bytes that were fetched last
        self._is_first = planned == (UNKNOWN_SIZE, "")
        with awaited(shown(path)):
            said = self._try(lambda: self._opened().said)
        self._is_first = False
        self.size, self.version = said.size, said.version
        self._end = sys.maxsize if said.size == UNKNOWN_SIZE else said.size

    def sends_ranges(self, is_sure: bool = False) -> bool:
        """Return whether the server sends parts of the file. With `is_sure`, request a part, whatever the server
        announces."""
        return self._try(lambda: bool(self._opened().sends_ranges(is_sure)))

    def _opened(self) -> Any:
        if self._source is None:
            source = _open_source(self.path, self._state, self._asks_again)
            planned, now = self._planned_version, source.said.version
            if planned and now and planned != now:
                raise ChangedError(OTHER_VERSION)
            self._source = source
        return self._source

    def _try(self, action: Callable[[], Answer]) -> Answer:
        wait, began = FIRST_WAIT_SECONDS, time.monotonic()
        attempt = 1
        while True:
            try:
                return action()
            except (InputError, MemoryError):
                raise
            except Exception as raised:  # file systems raise errors of their own libraries
                refuse_local(self.path, raised)
                error = cause_of(raised)
                refuse_remote(self.path, error)
                self._asks_again |= isinstance(error, AnswerError)
                self._drop()
                what = str(error) if isinstance(error, AnswerError) else type(error).__name__
                if not tries_again(attempt, TRIES, began if self._is_first else None):
                    self._give_up(error, f"{what}, {in_tries(attempt)}")
            time.sleep(wait)
            wait *= 2
            attempt += 1

    def _give_up(self, error: BaseException, what: str) -> NoReturn:
        if isinstance(error, ChangedError):
            raise InputError(f"{shown(self.path)} has changed while it was read: {error}. {MIXED}") from None
        raise InputError(f"{shown(self.path)}: {what}. Check the address and the network, then run again") from None

    def _drop(self) -> None:
        if self._source is not None:
            source, self._source = self._source, None
            self._state = source.state
            with suppress(Exception):  # of a connection that is broken
                source.close()

    def readable(self) -> bool:
        """Return true, which `io.BufferedReader` expects."""
        return True

    def seekable(self) -> bool:
        """Return true: the next read begins at the new position."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position without a request. Raises InputError for a position from the end if the length is
        unknown."""
        if whence == os.SEEK_END and self.size == UNKNOWN_SIZE:
            raise InputError(f"{shown(self.path)}: the server does not report its length; download it first")
        self.position = {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.size}[whence] + offset
        return self.position

    def tell(self) -> int:
        """Return the position of the next read."""
        return self.position

    def close(self) -> None:
        """Close the file and its open response."""
        self._drop()
        super().close()

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, or a part of it at the end of the file."""
        view, done = memoryview(buffer), 0
        while done < len(view) and (data := self._next(len(view) - done)):
            view[done : done + len(data)] = data
            done += len(data)
            self.position += len(data)
        note_read(done)
        return done

    def _next(self, size: int) -> memoryview:
        """Return the next bytes, at most `size`; none at the end of the file."""
        at = self.position - self._block_start
        if not 0 <= at < len(self._block):
            self._block = b""  # free it before the next block is fetched
            self._block, self._block_start, at = self._try(lambda: self._fetch(size)), self.position, 0
        return memoryview(self._block)[at : at + size]

    def _fetch(self, size: int) -> bytes:
        source, start = self._opened(), self.position
        stop = min(start + max(size, source.block_bytes), self._end)
        data: bytes = source.fetch(start, stop) if start < stop else b""
        if not data and start < self.size:
            raise AnswerError(f"the server sends {start:,} of the {self.size:,} bytes that it announced")
        if not data:
            self._end = start
        return data


def _open_source(url: str, known: State, again: bool) -> Any:
    plain = url.removeprefix(LITERAL)
    if is_http(plain):
        from curation.reading.http import HttpFile

        return HttpFile(plain, known, again)
    from curation.reading.stores import OtherFile, S3File, open_store

    files, path = open_store(url)
    if plain.startswith(("s3://", "s3a://")) and hasattr(files, "_call_s3"):
        return S3File(files, path, known, plain != url)
    return OtherFile(files, path, known)


def cause_of(error: BaseException) -> BaseException:
    """Return the real cause of an error, since fsspec raises FileNotFoundError for every refusal of a server."""
    cause = error.__cause__
    hides = isinstance(error, FileNotFoundError) and cause is not None and _status(cause) != NOT_FOUND
    return cause if hides and cause is not None else error


def _status(error: BaseException) -> int:
    """Return the HTTP status of an error; 0 for other errors."""
    status = getattr(error, "status", 0)
    return status if isinstance(status, int) else 0


def refuse_local(url: str, error: BaseException) -> None:
    """Raise OSError if an error or one of its causes is a fault of this machine, such as a full disk."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in LOCAL:
            raise OSError(cause.errno, os.strerror(cause.errno), shown(url)) from None
        cause = cause.__cause__ or cause.__context__


def refuse_remote(url: str, error: BaseException) -> None:
    """Raise InputError if a retry cannot help against an error of a file system."""
    status = _status(error)
    if status in DENIED:
        raise InputError(f"{shown(url)} may not be read: the server answers {status}") from None
    if 200 <= status < 500 and status not in (NOT_FOUND, *LATER):
        raise InputError(f"{shown(url)} cannot be read: the server answers {status}") from None
    if isinstance(error, FileNotFoundError) or status == NOT_FOUND:
        raise InputError(f"{shown(url)} does not exist") from None
    match error:
        case PermissionError():
            raise InputError(f"{shown(url)} may not be read: {scrubbed(error, url)}") from None
        case ImportError():
            protocol = url.partition("://")[0].rpartition("::")[2]
            remedy = f". pip install {PACKAGES[protocol]}" if protocol in PACKAGES else ""
            remedy = f". {installation(EXTRAS[protocol])}" if protocol in EXTRAS else remedy
            raise InputError(f"{shown(url)} needs another package: {scrubbed(error, url)}{remedy}") from None
        case ValueError():  # unknown protocol, host or port. The library's advice is for programmers, so it is cut off
            raise InputError(f"{shown(url)} cannot be opened: {scrubbed(error, url).partition('. ')[0]}") from None
