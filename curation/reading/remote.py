# SPDX-License-Identifier: Apache-2.0
"""Files behind URLs, by fsspec: opened again where reading fails, and told from a later version of the same URL."""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from curation.errors import InputError
from curation.reading.urls import check_url, scrubbed, shown

STEP = 1 << 20
TRIES = 5
FIRST_WAIT_SECONDS = 0.5  # doubled after each failed try
CONNECT_SECONDS, READ_SECONDS = 30, 60  # without an answer of an HTTP server; fsspec waits 300 s for all of a file
UNKNOWN_SIZE = -1
NOT_FOUND, DENIED, LATER = 404, (401, 403), (408, 425, 429)  # what servers answer
# What file systems know of a version, the surest first: S3, GCS, HTTP, Azure, local and in memory.
VERSIONS = (
    "VersionId", "generation", "blob_id", "ETag", "etag", "md5Hash", "Content-MD5", "Last-Modified", "LastModified",
    "last_modified", "updated", "mtime", "modify", "modificationTime", "created",
)  # fmt: skip
WEAK = "W/"  # an ETag that other bytes of the same meaning may have (RFC 9110, section 8.8.1)
VERSION_DIGITS = 16
Answer = TypeVar("Answer")


class ShortAnswerError(OSError):
    """A server ended a file before the length that it had announced."""


class RemoteFile(io.RawIOBase):
    """A file that is opened again where it was when reading fails. `size` is -1 where the server does not say it; such
    a file is read to its end, and a place in it is reached by reading. `version` tells it from another file of the same
    URL, and is empty where the server says nothing to tell it by."""

    def __init__(self, path: str) -> None:
        check_url(path)
        self.path = path
        self.position = 0
        self.file: Any = None
        self.size, self.version = 0, ""
        size = self._try(lambda: getattr(self._open(), "size", None))
        self.size = UNKNOWN_SIZE if size is None else int(size)

    def _open(self) -> Any:
        if self.file is None:
            import fsspec

            opened = fsspec.open(self.path, "rb", **_options(self.path))
            opened.fs.invalidate_cache()  # a listing may hold the state of an earlier time
            self.version = version_of(opened.fs.info(opened.path))
            file = opened.open()
            if self.size == UNKNOWN_SIZE:
                left = self.position
                while left and (piece := file.read(min(left, STEP))):
                    left -= len(piece)
            else:
                file.seek(self.position)
            self.file = file
        return self.file

    def _try(self, action: Callable[[], Answer]) -> Answer:
        wait = FIRST_WAIT_SECONDS
        attempt = 1
        while True:
            try:
                return action()
            except InputError:
                raise
            except Exception as raised:  # file systems raise errors of their own libraries
                error = cause_of(raised)
                refuse_remote(self.path, error)
                self.file = None
                if attempt == TRIES:
                    what = " ".join(filter(None, [type(error).__name__, str(_status(error) or "")]))
                    what = str(error) if isinstance(error, ShortAnswerError) else what
                    raise InputError(f"{shown(self.path)}: {what} in {attempt} tries") from None
            time.sleep(wait)
            wait *= 2
            attempt += 1

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END and self.size == UNKNOWN_SIZE:
            raise InputError(f"{shown(self.path)}: the server does not say how long it is; download it first")
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.size}[whence] + offset
        if self.file is not None and start != self.position:
            if self.size == UNKNOWN_SIZE:
                self.file = None
            else:
                self.file.seek(start)
        self.position = start
        return start

    def tell(self) -> int:
        return self.position

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None
        super().close()

    def _read(self, size: int) -> bytes:
        data: bytes = self._open().read(size)
        if size and not data and self.position < self.size:
            raise ShortAnswerError(f"the server sends {self.position:,} of the {self.size:,} bytes that it announced")
        return data

    def readinto(self, buffer: Any) -> int:
        data = self._try(lambda: self._read(len(buffer)))
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)


def _options(url: str) -> dict[str, Any]:
    """Options for fsspec. HTTP gets a time limit on silence, in place of one on the whole file."""
    if not url.startswith(("http://", "https://")):
        return {}
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
    return {"client_kwargs": {"timeout": timeout}}


def version_of(info: Mapping[str, Any]) -> str:
    """A digest of the first of VERSIONS that a file system knows of a file; empty where it knows none."""
    known = (str(info[name]) for name in VERSIONS if info.get(name) not in (None, ""))
    found = next((value for value in known if not value.startswith(WEAK)), "")
    return hashlib.sha256(found.encode()).hexdigest()[:VERSION_DIGITS] if found else ""


def cause_of(error: BaseException) -> BaseException:
    """What is behind an error: fsspec says of every answer of a server that there is no such file."""
    cause = error.__cause__
    hides = isinstance(error, FileNotFoundError) and cause is not None and _status(cause) != NOT_FOUND
    return cause if hides and cause is not None else error


def _status(error: BaseException) -> int:
    """What an HTTP server answered; 0 for other errors."""
    status = getattr(error, "status", 0)
    return status if isinstance(status, int) else 0


def refuse_remote(url: str, error: BaseException) -> None:
    """InputError for an error of a file system that another try does not change."""
    status = _status(error)
    if status in DENIED:
        raise InputError(f"{shown(url)} may not be read: the server answers {status}") from None
    if 300 <= status < 500 and status not in (NOT_FOUND, *LATER):
        raise InputError(f"{shown(url)} cannot be read: the server answers {status}") from None
    match error:
        case FileNotFoundError():
            raise InputError(f"{shown(url)} does not exist") from None
        case PermissionError():
            raise InputError(f"{shown(url)} may not be read: {scrubbed(error, url)}") from None
        case ImportError():
            raise InputError(f"{shown(url)} needs another package: {scrubbed(error, url)}") from None
        case ValueError():  # no such protocol, host or port
            raise InputError(f"{shown(url)} cannot be opened: {scrubbed(error, url)}") from None


__all__ = ["UNKNOWN_SIZE", "RemoteFile", "cause_of", "refuse_remote", "version_of"]
