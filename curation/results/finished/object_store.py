# SPDX-License-Identifier: Apache-2.0
"""A prefix of an object store. By conditional writes, objects are created once and never replaced.

s3fs sends `If-None-Match: *` with a put and with the end of a multipart upload, so the store itself refuses a second
object of the same name. `check_condition` tests this by two writes. An object is deleted only if it has the content
that this call has written. Requests are repeated after temporary errors. botocore repeats only some of them, this
module all.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from curation.base.errors import OutputError, installation
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.packages import package_version
from curation.reading.answers import awaited, in_tries, tries_again
from curation.reading.urls import check_url, is_remote, scrubbed, shown
from curation.results.finished import request_limits
from curation.results.finished.request_limits import limited_store

PROTOCOLS = ("s3", "s3a", "memory")  # protocols whose conditional writes are tested; `memory` is for tests
# First version that sends the condition; 0.4.2 only checks before the write whether the object exists
S3FS = (2024, 12)
PROBE = "condition-probe-"  # prefix of the names of objects that test the condition; they are not part of a copy
TRIES = 6
STALLED_TRIES = 2  # tries if a request gets no response in time
STALLED = {"FSTimeoutError", "StalledError"}  # fsspec raises the first if no more bytes of an object arrive
FIRST_WAIT_SECONDS = 0.5  # doubled after each failed try: 15 s in all
READ_BYTES = 16 << 20  # per request
PART_BYTES = 16 << 20  # size of a part of a multipart upload; s3fs enlarges it for files of more than 10,000 parts
PARTS_AT_ONCE = 4
EXISTS, CONFLICT = 412, 409  # HTTP status
PASSING = (408, 409, 425, 429)  # and every status from 500 on
PASSING_CODES = (
    "BadDigest", "InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling",
    "ThrottlingException",
)  # fmt: skip
UNSUPPORTED = 501
CREDENTIALS = (
    "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "NoCredentialsError", "PartialCredentialsError",
    "ProfileNotFound", "SignatureDoesNotMatch", "TokenRefreshRequired",
)  # fmt: skip
CLOCK = "RequestTimeTooSkewed"
REGION = ("301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect")
LOCAL = (errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EROFS, errno.ESTALE)
CONNECTION = {"ConnectionError", "HTTPClientError", "ResponseParserError", "StalledError"}  # most are of botocore
NEEDED = {"list": "s3:ListBucket", "write": "s3:PutObject", "read": "s3:GetObject"}
ODD_PARTS = {"", ".", ".."}  # parts between two `/` that libraries, servers and proxies may remove
Answer = TypeVar("Answer")


class _Fault(NamedTuple):
    """The code, such as AccessDenied, and the HTTP status in an error of a store's library; "" and 0 without them."""

    code: str
    status: int


def is_object_url(path: str | os.PathLike[str]) -> bool:
    """Return whether an output is the URL of an object store that this version can write."""
    return isinstance(path, str) and is_remote(path) and path.partition("://")[0] in PROTOCOLS


class DeniedError(OutputError):
    """The credentials do not allow a request."""


def checked_address(url: str) -> str:
    """Return the URL of an output without `/` at its end. URLs with user names or queries are refused, so the result
    has no secrets.

    `#` and `%` are characters of a key, as in `s3://BUCKET/run#1`. Raises OutputError for a URL that libraries, servers
    or proxies may understand as the address of other objects.
    """
    check_url(url)
    address = url.removesuffix("/")
    bucket, *parts = address.partition("://")[2].split("/")
    if not bucket:
        raise OutputError(f"{shown(url)} names no bucket. Give an output such as s3://BUCKET/PREFIX")
    wrong = ""
    if "@" in bucket:
        wrong = "a user name or password, which belongs in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    elif "?" in address:
        wrong = "a query (`?`): an output has none"
    elif "::" in address:
        wrong = "`::`, which separates URLs"
    elif not ODD_PARTS.isdisjoint(parts):
        wrong = "an empty part, `.` or `..` between two `/`"
    elif not _is_unicode(address):
        wrong = "bytes that are not UTF-8"
    if wrong:
        raise OutputError(f"{shown(url)} has {wrong}. Give an output such as s3://BUCKET/PREFIX")
    return address


def _is_unicode(text: str) -> bool:
    return text.encode(errors="replace").decode() == text


def _open(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path of the URL in it."""
    import fsspec

    from curation.reading.stores import file_system

    protocol = url.partition("://")[0]
    fsspec.get_filesystem_class(protocol)
    if protocol == "memory":
        return fsspec.url_to_fs(url)
    if tuple(map(int, re.findall(r"\d+", version := package_version("s3fs"))[:2])) < S3FS:
        raise OutputError(
            f"{url}: s3fs {version} sends no condition with a write, so two runs could mix. "
            f"{installation('s3')}, or give a local folder"
        )
    return file_system(url, use_listings_cache=False, **limited_store())


class ObjectStore:
    """The objects below a URL. Methods raise OutputError for every error that a retry cannot cure.

    url   as `checked_address` returns it
    """

    def __init__(self, url: str) -> None:
        self.url = checked_address(url)
        self._has_answered = False
        try:
            self._files, self._root = _open(self.url)
        except OutputError:
            raise
        except ImportError as error:
            raise OutputError(f"{self.url} needs another package: {error}. {installation('s3')}") from None
        except Exception as error:  # wrong settings of fsspec or of the file system
            raise OutputError(f"{self.url} cannot be opened: {scrubbed(error)}") from None
        self._path()

    def check_names(self, names: Collection[str]) -> None:
        """Raise OutputError if the library would understand the address of an object as that of another object."""
        for name in names:
            self._path(name)

    def _path(self, name: str = "") -> str:
        """Return the path of an object, or of the prefix, for the library. Raises the errors of `check_names`."""
        address, path = (f"{self.url}/{name}", f"{self._root}/{name}") if name else (self.url, self._root)
        version = None
        if self._is_s3():
            bucket, key, version = self._files.split_path(path)
            found = f"{bucket}/{key}" if key else bucket
        else:
            found = self._files._strip_protocol(path).removeprefix("/")
        is_odd = bool(name) and not ODD_PARTS.isdisjoint(name.split("/"))
        if is_odd or version is not None or found != address.partition("://")[2]:
            raise OutputError(
                f"{address}: a library or a server may take this name for another one ({found!r}). Give another one"
            )
        return path

    def _split(self) -> tuple[str, str]:
        """Return the bucket, and the start of the keys of all objects."""
        if not self._is_s3():
            return self._root.split("/")[1], ""
        bucket, key, _ = self._files.split_path(self._root)
        return bucket, f"{key}/" if key else ""

    def above(self) -> Iterator[ObjectStore]:
        """Yield the prefixes that contain this one, the nearest first; the last is the bucket."""
        bucket, _ = self._split()
        url = self.url
        while url != f"{url.partition('://')[0]}://{bucket}":
            url = url.rpartition("/")[0]
            yield ObjectStore(url)

    def names(self) -> dict[str, int]:
        """Return name below the prefix -> size in bytes, for every object."""
        found: dict[str, int] = {}
        start = ""
        with suppress(FileNotFoundError):
            while True:
                page, following = self._try("list", "", partial(self._page, start))
                found |= page
                if not following:
                    break
                if following == start:
                    raise OutputError(f"{self.url}: the store lists its objects without end. Check AWS_ENDPOINT_URL")
                start = following
        return {name: size for name, size in found.items() if name and not name.startswith(PROBE)}

    def _page(self, start: str) -> tuple[dict[str, int], str]:
        """Return names and sizes of a page of the list that begins at `start`, and the start of the next page or ""."""
        if not self._is_s3():
            objects = self._files.find(self._root, detail=True)
            return {path.removeprefix(f"{self._root}/"): entry["size"] for path, entry in objects.items()}, ""
        bucket, prefix = self._split()
        place = {"ContinuationToken": start} if start else {}
        answer = self._files.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, **place, **self._files.req_kw)
        page = {entry["Key"].removeprefix(prefix): int(entry["Size"]) for entry in answer.get("Contents", [])}
        return page, answer["NextContinuationToken"] if answer.get("IsTruncated") else ""

    def is_object(self) -> bool:
        """Return whether an object has the name of the prefix itself."""
        try:
            return bool(self._try("read", "", lambda: self._files.info(self._root)["type"] == "file"))
        except FileNotFoundError:
            return False

    def check_condition(self) -> None:
        """Create an object with a new name twice, and delete it afterwards.

        Raises OutputError unless the store itself refuses the second write.
        """
        name, content = PROBE + secrets.token_hex(8), secrets.token_hex(16).encode()

        def is_created() -> bool:
            return self._create("", lambda _: self._files.pipe_file(self._path(name), content, mode="create"))

        try:
            is_created()  # False if the response to its first try was lost
            is_replaced = is_created()
        finally:
            self.take_back(name, content)
        if is_replaced:
            raise OutputError(
                f"{self.url}: the store replaces objects despite If-None-Match, so two runs could mix. Give a "
                "store with conditional writes, or a local folder"
            )

    def create(self, name: str, data: bytes) -> bool:
        """Write an object, unless one of this name exists; return whether it was written.

        False may also mean that an earlier try of this call wrote it, so compare the content.
        """
        return self._create(name, lambda path: self._files.pipe_file(path, data, mode="create"))

    def take_back(self, name: str, data: bytes) -> bool:
        """Delete an object if its content is `data`, which only this call can have written. Return whether the object
        no longer exists.

        Credentials that may write need not be allowed to delete.
        """
        with suppress(OutputError, FileNotFoundError):
            if (found := self.read(name)) == data:
                self._try("write", name, lambda: self._files.rm_file(self._path(name)))
            return found in (data, None)
        return False

    def create_from(self, name: str, path: Path) -> bool:
        """Do the same as `create` with the content of a file of any size. Raises OSError if the file cannot be read."""
        more = {"chunksize": PART_BYTES, "max_concurrency": PARTS_AT_ONCE} if self._is_s3() else {}
        try:
            return self._create(name, lambda key: self._files.put_file(str(path), key, mode="create", **more))
        except OutputError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, error.filename or str(path)) from None

    def _is_s3(self) -> bool:
        return not self.url.startswith("memory:")

    def _create(self, name: str, write: Callable[[str], Any]) -> bool:
        def attempt() -> bool:
            try:
                write(self._path(name))
            except FileExistsError as error:
                if self._is_s3() and not _fault_of(error).status:
                    raise OutputError(
                        f"{self.url}: the installed s3fs asks whether an object exists instead of sending a condition, "
                        f"so two runs could mix. {installation('s3')}, or give a local folder"
                    ) from None
                return False
            except OSError as error:
                fault = _fault_of(error)
                if fault.status == EXISTS:  # some stores do not say which condition failed
                    return False
                # Another process has ended the upload; the error class is that of a missing bucket
                if fault.code == "NoSuchUpload":
                    raise TimeoutError(fault.code) from None
                raise
            return True

        try:
            return self._try("write", name, attempt)
        except FileNotFoundError as error:
            if error.filename:  # of a local file
                raise
            raise OutputError(f"{self.url}: its bucket does not exist. Create it, or correct --output") from None

    def end_uploads(self, names: Collection[str]) -> None:
        """Delete the parts of unfinished uploads that killed processes left, for objects that exist now. Stores may
        charge for such parts. Other uploads are not ended, since they may belong to another program.
        """
        if not self._is_s3():
            return
        bucket, prefix = self._split()

        def find() -> list[tuple[str, str]]:
            uploads = self._files.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix).get("Uploads", [])
            return [(each["Key"], each["UploadId"]) for each in uploads if each["Key"].removeprefix(prefix) in names]

        with suppress(OutputError, FileNotFoundError):  # credentials with write access may lack the right to list parts
            for key, number in self._try("list", "", find):
                ids = {"Bucket": bucket, "Key": key, "UploadId": number}
                self._try("write", "", partial(self._files.call_s3, "abort_multipart_upload", **ids))

    def read(self, name: str) -> bytes | None:
        """Return the content of a small object; None if the object does not exist."""
        try:
            return self._try("read", name, lambda: bytes(self._files.cat_file(self._path(name))))
        except FileNotFoundError:
            return None

    def sha256(self, name: str, size: int) -> str:
        """Return the SHA-256 of an object of `size` bytes, in hexadecimal; "" if it is missing or has another size."""
        path, digest = self._path(name), hashlib.sha256()
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

    def _endpoint(self) -> str:
        """Return the address to which requests are sent, as the end of a phrase; "" before the client exists."""
        client = getattr(self._files, "_s3", None)
        address = getattr(getattr(client, "meta", None), "endpoint_url", "")
        return f" at {shown(address)}" if address else ""

    def _try(self, action: str, name: str, request: Callable[[], Answer]) -> Answer:
        """Return the response to a request, which is repeated after temporary errors. Raises FileNotFoundError for a
        missing object or bucket, OSError for a local fault, and OutputError for every other error.
        """
        wait, began = FIRST_WAIT_SECONDS, time.monotonic()
        address = f"{self.url}/{name}" if name else self.url
        for attempt in range(1, TRIES + 1):
            check_interrupts()
            try:
                with nullcontext() if self._has_answered else awaited(address):
                    answer = request()
            except (FileNotFoundError, OutputError):
                raise
            except Exception as raised:  # file systems raise errors of their own libraries
                error, fault = _unwrapped(raised), _fault_of(raised)
                if is_local(error):
                    raise error from None
                if not _passes(error, fault):
                    kind = DeniedError if _is_denied(error, fault) else OutputError
                    raise kind(_refusal(address, action, error, fault)) from None
                self._has_answered |= any(fault)
                is_stalled = bool(STALLED & _kinds(error))
                tries = STALLED_TRIES if is_stalled else TRIES
                what = fault.code or type(error).__name__
                what = f"no answer within {request_limits.SILENT_SECONDS:g} s" if is_stalled else what
                if not tries_again(attempt, tries, None if self._has_answered else began):
                    raise OutputError(
                        f"{address}: {what} {in_tries(attempt)}. Check the network and the store{self._endpoint()}, "
                        "then run the same command again: it resumes"
                    ) from None
            else:
                self._has_answered = True
                return answer
            time.sleep(wait)
            wait *= 2
        raise AssertionError


def is_local(error: BaseException) -> bool:
    """Return whether an error is a fault of this machine, such as a file that cannot be read, and not of a network."""
    is_answer = any(_fault_of(error))
    return isinstance(error, OSError) and not is_answer and (bool(error.filename) or error.errno in LOCAL)


def _unwrapped(error: Exception) -> Exception:
    """Return the original error if botocore has only wrapped an unknown error."""
    inner = getattr(error, "kwargs", {}).get("error")
    return inner if type(error).__name__ == "HTTPClientError" and isinstance(inner, Exception) else error


def _kinds(error: Exception) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _fault_of(error: BaseException) -> _Fault:
    """Return the code and the status in an error or its causes, which botocore stores in `response`."""
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
    """Return whether to try again: the server or the network failed, or a host name was not found."""
    if fault.code or fault.status:
        passing = fault.status in PASSING or (fault.status >= 500 and fault.status != UNSUPPORTED)
        return passing or fault.code in PASSING_CODES
    kinds = _kinds(error)
    if kinds & {"FileNotFoundError", "SSLError", "TooManyRedirects"}:
        return False
    if kinds & CONNECTION or "aiohttp" in type(error).__module__:
        return True
    return isinstance(error, OSError) and not isinstance(error, PermissionError)


def _is_denied(error: Exception, fault: _Fault) -> bool:
    is_other = fault.code in (CLOCK, *CREDENTIALS, *REGION)
    return not is_other and (isinstance(error, PermissionError) or fault.status in (401, 403, 405))


def _refusal(address: str, action: str, error: Exception, fault: _Fault) -> str:
    """Return the message about an error that a retry cannot cure."""
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
    if code in REGION:
        return f"{address}: its bucket is in another region ({code}). Set AWS_DEFAULT_REGION, then run again"
    verb = {"list": "listed", "write": "written", "read": "read"}[action]
    if _is_denied(error, fault):
        return f"{address} may not be {verb} ({code}). Allow {NEEDED[action]} for these credentials, then run again"
    if isinstance(error, RecursionError) or "TooManyRedirects" in _kinds(error):
        return f"{address}: the store redirects without end. Check AWS_ENDPOINT_URL and AWS_DEFAULT_REGION"
    if isinstance(error, FileNotFoundError) or "SSLError" in _kinds(error):
        return f"{address}: the connection cannot be made safe ({scrubbed(error)}). Check AWS_CA_BUNDLE, then run again"
    # Raised by the library if a field of the response is missing
    if isinstance(error, LookupError | TypeError | AttributeError):
        return f"{address}: the store does not answer as S3 does ({code}: {scrubbed(error)}). Check AWS_ENDPOINT_URL"
    what = " ".join(scrubbed(error).split())
    return f"{address} cannot be {verb}: {what}. Correct --output, or give a local folder"
