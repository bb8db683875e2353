# SPDX-License-Identifier: Apache-2.0
"""Files behind URLs, by fsspec: with retries, and with a version to recognise changes.

fsspec's HTTP file system does not retry reads; s3fs and gcsfs retry requests themselves, 5 and 6 times. Retries here
reopen the file at its position.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from curation.errors import InputError
from curation.reading.urls import check_url, scrubbed, shown
from curation.system.steps import note_read

STEP = 1 << 20
TRIES = 5
FIRST_WAIT_SECONDS = 0.5  # doubled after each failed try
CONNECT_SECONDS, READ_SECONDS = 30, 60  # until an HTTP server counts as silent; fsspec limits the whole file to 300 s
UNKNOWN_SIZE = -1
NOT_FOUND, DENIED, LATER = 404, (401, 403), (408, 425, 429)  # HTTP status
# Fields of `info` that identify a version, the most reliable first: S3, GCS, HTTP, Azure, local and in memory.
VERSIONS = (
    "VersionId", "generation", "blob_id", "ETag", "etag", "md5Hash", "Content-MD5", "Last-Modified", "LastModified",
    "last_modified", "updated", "mtime", "modify", "modificationTime", "created",
)  # fmt: skip
PACKAGES = {  # protocol -> package of its file system
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs", "hf": "huggingface_hub",
    "http": "'fsspec[http]'", "https": "'fsspec[http]'", "sftp": "paramiko", "ssh": "paramiko",
}  # fmt: skip
WEAK = "W/"  # a weak ETag, which different bytes may share (RFC 9110, section 8.8.1)
VERSION_DIGITS = 16
Answer = TypeVar("Answer")


class ShortAnswerError(OSError):
    """A server ended a file before its announced length."""


class RemoteFile(io.RawIOBase):
    """A remote file that is reopened at its position when a read fails.

    size      in bytes; -1 where the server does not report it. Such a file is read to its end, and a position in it is
              reached by reading.
    version   digest that changes with the file; "" where the server reports nothing to identify a version

    Raises InputError where the server refuses the file, or after TRIES failed tries.
    """

    file: Any = None  # `close` asks for it where `check_url` refused the path

    def __init__(self, path: str) -> None:
        check_url(path)
        self.path = path
        self.position = 0
        self.size, self.version = 0, ""
        size = self._try(lambda: getattr(self._open(), "size", None))
        self.size = UNKNOWN_SIZE if size is None else int(size)

    def _open(self) -> Any:
        if self.file is None:
            import fsspec

            opened = fsspec.open(self.path, "rb", **_options(self.path))
            opened.fs.invalidate_cache()  # a cached listing may be outdated
            self.version = version_of(opened.fs.info(opened.path))
            file = opened.open()
            if self.size == UNKNOWN_SIZE:
                remaining = self.position
                while remaining and (block := file.read(min(remaining, STEP))):
                    remaining -= len(block)
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
                    advice = "Check the address and the network, then run again"
                    raise InputError(f"{shown(self.path)}: {what} in {attempt} tries. {advice}") from None
            time.sleep(wait)
            wait *= 2
            attempt += 1

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END and self.size == UNKNOWN_SIZE:
            raise InputError(f"{shown(self.path)}: the server does not report its length; download it first")
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
        note_read(len(data))
        return len(data)


def _options(url: str) -> dict[str, Any]:
    """Return options for fsspec. For HTTP they limit the silence of the server, not the time for the whole file."""
    if not url.startswith(("http://", "https://")):
        return {}
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
    return {"client_kwargs": {"timeout": timeout}}


def version_of(info: Mapping[str, Any]) -> str:
    """Return a digest (hex) of the first of VERSIONS in a file system's `info`; "" where it has none."""
    known = (str(info[name]) for name in VERSIONS if info.get(name) not in (None, ""))
    known_version = next((value for value in known if not value.startswith(WEAK)), "")
    return hashlib.sha256(known_version.encode()).hexdigest()[:VERSION_DIGITS] if known_version else ""


def cause_of(error: BaseException) -> BaseException:
    """Return the cause of an error: fsspec raises FileNotFoundError for every refusal of a server."""
    cause = error.__cause__
    hides = isinstance(error, FileNotFoundError) and cause is not None and _status(cause) != NOT_FOUND
    return cause if hides and cause is not None else error


def _status(error: BaseException) -> int:
    """Return the HTTP status of an error; 0 for other errors."""
    status = getattr(error, "status", 0)
    return status if isinstance(status, int) else 0


def refuse_remote(url: str, error: BaseException) -> None:
    """Raise InputError for an error of a file system that a retry cannot change."""
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
            package = PACKAGES.get(url.partition("://")[0].rpartition("::")[2], "")
            remedy = f". pip install {package}" if package else ""
            raise InputError(f"{shown(url)} needs another package: {scrubbed(error, url)}{remedy}") from None
        case ValueError():  # unknown protocol, host or port
            raise InputError(f"{shown(url)} cannot be opened: {scrubbed(error, url)}") from None
