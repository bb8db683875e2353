# SPDX-License-Identifier: Apache-2.0
"""Files of object stores and of other file systems of fsspec."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import fsspec
from fsspec.asyn import sync

from curation.reading import answers
from curation.reading.answers import (
    OTHER_VERSION,
    STEP,
    UNKNOWN_SIZE,
    AnswerError,
    ChangedError,
    State,
    check_part,
    same_state,
    strong,
    version_of,
)
from curation.reading.urls import LITERAL, scrubbed


def file_system(url: str, **settings: Any) -> tuple[Any, str]:
    """Return the file system that reads a URL, and the path of the URL in it. S3 gets fewer retries, since other layers
    repeat requests too."""
    files, path = fsspec.url_to_fs(url, **settings)
    if hasattr(files, "_call_s3"):
        files.retries = 1  # botocore and this package repeat requests, too: 5 x 5 x 5 tries took a minute
    return files, path


def open_store(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the name of the file in it. The key of a literal URL is used unchanged."""
    if not url.startswith(LITERAL):
        return file_system(url)
    scheme, _, rest = url.removeprefix(LITERAL).partition("://")
    host, _, key = rest.partition("/")
    kind = fsspec.get_filesystem_class(scheme)
    start = f"{scheme}://{host}"
    return kind(**kind._get_kwargs_from_urls(start)), f"{kind._strip_protocol(start).rstrip('/')}/{key}"


class S3File:
    """An object behind S3. Attributes and methods are those of `curation.reading.http.HttpFile`."""

    block_bytes = 50 << 20

    def __init__(self, files: Any, path: str, known: State, is_literal: bool) -> None:
        self._files = files
        bucket, key, version = files.split_path(path)
        if is_literal:
            key, version = path.removeprefix(f"{bucket}/"), None
        self._object = {"Bucket": bucket, "Key": key} | ({"VersionId": version} if version else {})
        if not key:
            raise FileNotFoundError(path)
        head = sync(files.loop, self._call, "head_object")
        self.said = _state_by(head, head["ContentLength"])
        self.state = same_state(known, self.said)

    def fetch(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop`, in one request of this range."""
        data: bytes = sync(self._files.loop, self._fetch, start, stop)
        return data

    def sends_ranges(self, is_sure: bool) -> bool:
        """Return true: S3 serves any range."""
        return True

    def close(self) -> None:
        """Do nothing: no response stays open between requests."""

    async def _fetch(self, start: int, stop: int) -> bytes:
        condition = {"IfMatch": self.state.etag} if self.state.etag else {}
        if getattr(self._files, "local_expiry_check", False):  # a setting for stores without If-Match
            condition = {}
        answer = await self._call("get_object", Range=f"bytes={start}-{stop - 1}", **condition)
        body, blocks = answer["Body"], []
        now = asyncio.get_running_loop().time
        try:
            size = check_part(answer.get("ContentRange", ""), start, stop, answer.get("ContentLength", UNKNOWN_SIZE))
            self.state = same_state(self.state, _state_by(answer, size))
            async with asyncio.timeout(answers.SILENT_SECONDS) as silence:
                while block := await body.read(STEP):
                    blocks.append(block)
                    silence.reschedule(now() + answers.SILENT_SECONDS)
        except TimeoutError:
            raise AnswerError(f"the store sends no byte of the file for {answers.SILENT_SECONDS:g} s") from None
        finally:
            body.close()
        return b"".join(blocks)[: stop - start]

    async def _call(self, method: str, **parameters: Any) -> Any:
        from botocore.exceptions import BotoCoreError  # errors of the client, such as no connection or no credentials

        try:
            async with asyncio.timeout(answers.ANSWER_SECONDS):
                return await self._files._call_s3(method, self._files.req_kw, **self._object, **parameters)
        except TimeoutError:
            raise AnswerError(f"the store does not answer within {answers.ANSWER_SECONDS:g} s") from None
        except FileNotFoundError:  # raised anew without its cause: `cause_of` would return the cause
            raise FileNotFoundError(self._object["Key"]) from None
        except OSError as error:
            if error.errno == errno.EINVAL and "pre-condition" in str(error):
                raise ChangedError(OTHER_VERSION) from None
            raise
        except BotoCoreError as error:
            raise AnswerError(scrubbed(error)) from error


def _state_by(answer: Any, size: int) -> State:
    return State(size, strong(answer.get("ETag")), str(answer.get("LastModified", "")), version_of(answer))


class OtherFile:
    """A file of another file system of fsspec, which checks its responses itself."""

    block_bytes = 0  # it reads ahead itself

    def __init__(self, files: Any, path: str, known: State) -> None:
        self._files, self._path, self._at = files, path, 0
        files.invalidate_cache()  # a cached listing may be outdated
        version = version_of(files.info(path))
        self._file = files.open(path, "rb")
        size = getattr(self._file, "size", None)
        self.said = State(UNKNOWN_SIZE if size is None else int(size), etag=version, version=version)
        self.state = same_state(known, self.said)

    def fetch(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop`. If the file cannot seek, it is read up to `start` first."""
        if self.said.size != UNKNOWN_SIZE:
            self._file.seek(start)
        else:
            self._skip_to(start)
        data: bytes = self._file.read(stop - start)
        self._at = start + len(data)
        return data

    def _skip_to(self, start: int) -> None:
        if start < self._at:
            self._file, self._at = self._files.open(self._path, "rb"), 0
        while self._at < start and (block := self._file.read(min(start - self._at, STEP))):
            self._at += len(block)

    def sends_ranges(self, is_sure: bool) -> bool:
        """Return whether a read can begin at any position of the file: it can if the length of the file is known."""
        return self.said.size != UNKNOWN_SIZE

    def close(self) -> None:
        """Close the file of fsspec."""
        self._file.close()
