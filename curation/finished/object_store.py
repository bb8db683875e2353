# SPDX-License-Identifier: Apache-2.0
"""A prefix of an object store: objects that are created once and never replaced, by conditional writes.

s3fs sends `If-None-Match: *` with a put and with the end of a multipart upload, so the store itself refuses a second
object of the same name. `check_condition` tests this by two writes. Requests are repeated after errors that pass: s3fs
repeats some of them, and this module all.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from curation.errors import OutputError
from curation.reading.urls import check_url, is_remote, scrubbed, shown
from curation.system.interrupts import check as check_interrupts
from curation.system.packages import package_version

PROTOCOLS = ("s3", "s3a", "memory")  # whose conditional writes are tested; `memory` is for tests
S3FS = (2024, 12)  # the first version that sends the condition; 0.4.2 only asks whether the object exists
PROBE = "condition-probe-"  # begins the names of objects that test the condition; they are not part of a copy
TRIES = 6
FIRST_WAIT_SECONDS = 0.5  # doubled after each failed try: 15 s in all
READ_BYTES = 16 << 20  # per request
PART_BYTES = 16 << 20  # of a multipart upload; s3fs enlarges it for files of more than 10,000 parts
PARTS_AT_ONCE = 4
EXISTS, CONFLICT = 412, 409  # HTTP status
PASSING = (408, 409, 425, 429)  # and every status from 500 on
PASSING_CODES = ("RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "InternalError", "BadDigest")
UNSUPPORTED = 501
CREDENTIALS = (
    "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "NoCredentialsError", "PartialCredentialsError",
    "ProfileNotFound", "SignatureDoesNotMatch", "TokenRefreshRequired",
)  # fmt: skip
CLOCK = "RequestTimeTooSkewed"
NEEDED = {"list": "s3:ListBucket", "write": "s3:PutObject", "read": "s3:GetObject"}
Answer = TypeVar("Answer")


class _Fault(NamedTuple):
    """What an error of a store's library says: a code, such as AccessDenied, and an HTTP status; "" and 0 if none."""

    code: str
    status: int


def is_object_url(path: str | os.PathLike[str]) -> bool:
    """Return whether an output is the URL of an object store that this version can write."""
    return isinstance(path, str) and is_remote(path) and path.partition("://")[0] in PROTOCOLS


class ObjectStore:
    """The objects below a URL. OutputError for everything that a retry does not cure, with the address but no secret.

    url   without user names, passwords and queries, and without `/` at its end
    """

    def __init__(self, url: str) -> None:
        check_url(url)
        self.url = shown(url).rstrip("/")
        if not self.url.partition("://")[2].strip("/"):
            raise OutputError(f"{url} names no bucket. Give an output such as s3://BUCKET/PREFIX")
        try:
            import fsspec

            self._files, root = fsspec.url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            missing = scrubbed(error, url)
            raise OutputError(f"{self.url} needs another package: {missing}. pip install 's3fs>=2024.12'") from None
        except Exception as error:  # wrong settings of fsspec or of the file system
            raise OutputError(f"{self.url} cannot be opened: {scrubbed(error, url)}") from None
        self._root = root.rstrip("/")

    def names(self) -> dict[str, int]:
        """Return the bytes of every object, by its name below the prefix."""

        def find() -> dict[str, int]:
            found = self._files.find(self._root, detail=True)
            names = {path.removeprefix(f"{self._root}/"): int(entry["size"]) for path, entry in found.items()}
            return {name: size for name, size in names.items() if name and not name.startswith(PROBE)}

        try:
            return self._try("list", "", find)
        except FileNotFoundError:
            return {}

    def check_condition(self) -> None:
        """Create one object twice, under a name of its own that is deleted afterwards.

        OutputError if the second write is not refused, or not by the store.
        """
        if self._is_s3() and tuple(map(int, re.findall(r"\d+", version := package_version("s3fs"))[:2])) < S3FS:
            raise OutputError(
                f"{self.url}: s3fs {version} sends no condition with a write, so two runs could mix. "
                "pip install -U 's3fs>=2024.12' 'aiobotocore>=2.16', or give a local folder"
            )
        path = f"{self._root}/{PROBE}{secrets.token_hex(8)}"

        def is_created() -> bool:
            return self._create("", lambda _: self._files.pipe_file(path, b"x", mode="create"))

        try:
            is_created()  # False after a lost answer to its first try
            is_replaced = is_created()
        finally:
            with suppress(OutputError, FileNotFoundError):  # credentials that may write need not be allowed to delete
                self._try("write", "", lambda: self._files.rm_file(path))
        if is_replaced:
            raise OutputError(
                f"{self.url}: the store replaces objects despite If-None-Match, so two runs could mix. Give a "
                "store with conditional writes, or a local folder"
            )

    def create(self, name: str, data: bytes) -> bool:
        """Write an object, unless one of this name exists; return whether it was written.

        False may mean that an earlier try of this call wrote it: compare the content.
        """
        return self._create(name, lambda path: self._files.pipe_file(path, data, mode="create"))

    def create_from(self, name: str, path: Path) -> bool:
        """Do the same as `create` with the content of a file, of any size."""
        more = {"chunksize": PART_BYTES, "max_concurrency": PARTS_AT_ONCE} if self._is_s3() else {}
        return self._create(name, lambda key: self._files.put_file(str(path), key, mode="create", **more))

    def _is_s3(self) -> bool:
        return not self.url.startswith("memory:")

    def _create(self, name: str, write: Callable[[str], Any]) -> bool:
        def attempt() -> bool:
            try:
                write(f"{self._root}/{name}")
            except FileExistsError as error:
                if self._is_s3() and not _fault_of(error).status:
                    raise OutputError(
                        f"{self.url}: the installed s3fs asks whether an object exists instead of sending a condition, "
                        "so two runs could mix. pip install -U 's3fs>=2024.12', or give a local folder"
                    ) from None
                return False
            except OSError as error:
                if _fault_of(error).status == EXISTS:  # from stores that do not say which condition failed
                    return False
                raise
            return True

        try:
            return self._try("write", name, attempt)
        except FileNotFoundError:
            raise OutputError(f"{self.url}: its bucket does not exist. Create it, or correct --output") from None

    def end_uploads(self) -> None:
        """Delete the parts of files that a killed process has left; a store may bill them."""
        if not self._is_s3():
            return
        bucket, _, prefix = self._root.partition("/")

        def find() -> list[dict[str, str]]:
            answer = self._files.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=f"{prefix}/" if prefix else "")
            return list(answer.get("Uploads", []))

        with suppress(OutputError, FileNotFoundError):  # credentials that may write need not be allowed to list parts
            for entry in self._try("list", "", find):
                ids = {"Bucket": bucket, "Key": entry["Key"], "UploadId": entry["UploadId"]}
                self._try("write", "", partial(self._files.call_s3, "abort_multipart_upload", **ids))

    def read(self, name: str) -> bytes | None:
        """Return the content of a small object; None if there is none."""
        try:
            return self._try("read", name, lambda: bytes(self._files.cat_file(f"{self._root}/{name}")))
        except FileNotFoundError:
            return None

    def sha256(self, name: str, size: int) -> str:
        """Return the SHA-256 of an object of `size` bytes, in hexadecimal; "" if it is missing or has another size."""
        path, digest = f"{self._root}/{name}", hashlib.sha256()
        try:
            if self._try("read", name, lambda: int(self._files.info(path)["size"])) != size:
                return ""
            for start in range(0, size, READ_BYTES):
                stop = min(start + READ_BYTES, size)
                digest.update(self._try("read", name, lambda: self._range(path, start, stop)))  # noqa: B023  at once
        except FileNotFoundError:
            return ""
        return digest.hexdigest()

    def _range(self, path: str, start: int, stop: int) -> bytes:
        data: bytes = self._files.cat_file(path, start=start, end=stop)
        if len(data) != stop - start:
            raise TimeoutError(f"{len(data)} of {stop - start} bytes came")
        return data

    def _try(self, action: str, name: str, request: Callable[[], Answer]) -> Answer:
        """Return the answer to a request, which is repeated after errors that pass.

        FileNotFoundError for a missing object or bucket, OutputError for everything else.
        """
        wait = FIRST_WAIT_SECONDS
        address = f"{self.url}/{name}" if name else self.url
        for attempt in range(1, TRIES + 1):
            check_interrupts()
            try:
                return request()
            except (FileNotFoundError, OutputError):
                raise
            except Exception as error:  # file systems raise errors of their own libraries
                fault = _fault_of(error)
                if not _passes(error, fault):
                    raise OutputError(_refusal(address, action, error, fault)) from None
                if attempt == TRIES:
                    what = fault.code or type(error).__name__
                    raise OutputError(
                        f"{address}: {what} in {TRIES} tries. Check the network and the store, then run the same "
                        "command again: it resumes"
                    ) from None
            time.sleep(wait)
            wait *= 2
        raise AssertionError


def _fault_of(error: BaseException) -> _Fault:
    """Return the code and the status in an error or its causes: botocore keeps them in `response`."""
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            code = str(response.get("Error", {}).get("Code", ""))
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            return _Fault(code, int(status) or (int(code) if code.isdecimal() else 0))
        cause = cause.__cause__
    return _Fault("", 0)


def _passes(error: Exception, fault: _Fault) -> bool:
    """Whether a later try may succeed: after faults of the server, of the network and of names that are not found."""
    if fault.code or fault.status:
        passing = fault.status in PASSING or (fault.status >= 500 and fault.status != UNSUPPORTED)
        return passing or fault.code in PASSING_CODES
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & {"ConnectionError", "HTTPClientError"} or "aiohttp" in type(error).__module__:  # of botocore, of aiohttp
        return True
    return isinstance(error, OSError) and not isinstance(error, PermissionError)


def _refusal(address: str, action: str, error: Exception, fault: _Fault) -> str:
    """The message about an error that a retry does not cure."""
    code = fault.code or (type(error).__name__ if not fault.status else str(fault.status))
    if code == CLOCK:
        return f"{address}: the clock of this machine differs from the store's ({code}). Set the clock, then run again"
    if code in CREDENTIALS:
        return (
            f"{address}: the store does not accept the credentials ({code}). Set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, then run again"
        )
    if fault.status == UNSUPPORTED or isinstance(error, NotImplementedError):
        return f"{address}: the store has no conditional writes ({code}), which keep runs apart. Give another one"
    if isinstance(error, PermissionError) or fault.status in (401, 403, 405):
        verb = {"list": "listed", "write": "written", "read": "read"}[action]
        return f"{address} may not be {verb} ({code}). Allow {NEEDED[action]} for these credentials, then run again"
    verb = {"list": "listed", "write": "written", "read": "read"}[action]
    return f"{address} cannot be {verb}: {scrubbed(error)}. Correct --output, or give a local folder"
