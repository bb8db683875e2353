# SPDX-License-Identifier: Apache-2.0
"""A file behind HTTP. It is read by ranges, or from its beginning if the server does not send ranges.

The files of fsspec accept any response as the bytes that they requested. This module compares each response with its
request and with earlier responses. It uses the sessions of fsspec, with the settings of its configuration.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import aiohttp
from fsspec.asyn import sync
from fsspec.config import apply_config
from fsspec.implementations.http import HTTPFileSystem

from curation.base.errors import InputError
from curation.reading import answers
from curation.reading.answers import (
    NUMBER,
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
from curation.reading.source_files import COMPRESSIONS
from curation.reading.urls import path_of, shown

OK, PART, FAILED_CONDITION, NO_SUCH_RANGE = 200, 206, 412, 416  # HTTP status
IDENTITY = ("", "identity")  # values of Content-Encoding
VALIDATORS = ("ETag", "Content-MD5", "Last-Modified")
CERTIFICATES = "SSL_CERT_FILE"  # environment variable


class _Answer(NamedTuple):
    """A response whose body is unread, what it states about the file, and the position of its first byte in the
    file."""

    response: Any
    state: State
    start: int
    is_part: bool


class HttpFile:
    """A file behind HTTP.

    said          what the server states about the file now. If the size is unknown, the file is read from its beginning
    state         the statements of all responses together, beginning with `known`; a contradiction raises ChangedError
    block_bytes   minimum bytes to request

    again         whether an earlier response could not be used. Requests are then conditional (If-Match), so that
                  caches pass them on
    """

    block_bytes = 5 << 20

    def __init__(self, url: str, known: State, again: bool) -> None:
        # A file whose name says that it is compressed is read as it is, whatever Content-Encoding says.
        self._is_compressed = os.path.splitext(path_of(url).lower())[1] in COMPRESSIONS
        client = apply_config(HTTPFileSystem, {}).get("client_kwargs", {})
        self._files = HTTPFileSystem(client_kwargs=client | {"auto_decompress": not self._is_compressed})
        self._url, self._shown = self._files.encode_url(url), shown(url)
        self._headers = {"Accept-Encoding": "identity"}
        if again and known.etag:
            self._headers["If-Match"] = known.etag
        self._body: _Answer | None = None
        self._at = 0  # the next byte of the body
        self._announced = ""  # value of Accept-Ranges
        self.state = known
        self.said: State = self._run(self._ask)

    def fetch(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop` (exclusive). There are fewer if the server sends fewer, and none at
        the end."""
        data: bytes = self._run(self._fetch, start, stop)
        return data

    def sends_ranges(self, is_sure: bool) -> bool:
        """Return whether the server sends parts of the file. With `is_sure`, request a part, whatever the server
        announces."""
        if self.said.size <= 0 or self._announced == "none":
            return self.said.size == 0
        return (self._announced == "bytes" and not is_sure) or bool(self._run(self._try_range))

    def close(self) -> None:
        """Close the open response, without reading the rest of its body."""
        if self._body is not None:
            with suppress(RuntimeError):  # the loop has ended with the process
                self._files.loop.call_soon_threadsafe(self._body.response.close)
            self._body = None

    def _run(self, action: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return sync(self._files.loop, action, *arguments)
        except TimeoutError:
            raise AnswerError(f"the server does not answer within {answers.ANSWER_SECONDS:g} s") from None
        except aiohttp.InvalidURL:
            raise
        except aiohttp.ClientConnectorCertificateError as error:
            raise InputError(f"{self._shown} cannot be read: {_certificate_fault(error)}") from None
        except aiohttp.TooManyRedirects:
            raise InputError(f"{self._shown} cannot be read: the server redirects without end") from None
        except aiohttp.ClientResponseError as error:  # from the parser of headers
            raise AnswerError(f"the server's answer is not valid HTTP ({type(error.__cause__).__name__})") from None
        except aiohttp.ClientConnectorError as error:
            raise AnswerError(f"no connection to {error.host} ({error.os_error.strerror or error.os_error})") from error
        except aiohttp.ClientError as error:
            raise AnswerError(f"the request failed ({type(error).__name__})") from error

    async def _ask(self) -> State:
        """Return the state of the file, from a HEAD request. If that does not state enough, request the first byte."""
        try:
            response = await self._request("HEAD", {})
            self._announced = response.headers.get("Accept-Ranges", "").lower()
            said = self._whole(response)
            if said.size > 0 or self._is_encoded(response):
                self.state = same_state(self.state, said)
                return said
        except (AnswerError, aiohttp.ClientError):  # for example of a URL that is signed only for GET
            pass
        answer = await self._get(0, 1)
        answer.response.close()
        return answer.state

    async def _try_range(self) -> bool:
        answer = await self._get(0, 1)
        answer.response.close()
        return answer.is_part

    async def _fetch(self, start: int, stop: int) -> bytes:
        if self._body is None or self._at > start:
            self._body = await self._get(start, stop) if self.said.size > 0 else await self._get()
            self._at = self._body.start
        while self._at < start and await self._read(min(start - self._at, STEP)):
            pass
        data = await self._read(stop - start)
        if self._body.is_part:
            self._body.response.release()
            self._body = None
        return data

    async def _read(self, size: int) -> bytes:
        """Return the next bytes of the body; fewer than `size` only at its end."""
        assert self._body is not None
        blocks = []
        now = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(answers.SILENT_SECONDS) as silence:
                while size and (block := await self._body.response.content.read(size)):
                    blocks.append(block)
                    size -= len(block)
                    silence.reschedule(now() + answers.SILENT_SECONDS)
        except TimeoutError:
            raise AnswerError(f"the server sends no byte of the file for {answers.SILENT_SECONDS:g} s") from None
        data = b"".join(blocks)
        self._at += len(data)
        return data

    async def _get(self, start: int = 0, stop: int = UNKNOWN_SIZE) -> _Answer:
        """Request a part of the file, by default the whole file. Raises AnswerError if the response contradicts itself,
        the request or an earlier response."""
        response = await self._request("GET", {"Range": f"bytes={start}-{stop - 1}"} if stop > 0 else {})
        try:
            answer = self._described(response, start, stop)
            self.state = same_state(self.state, answer.state)
        except BaseException:
            response.close()
            raise
        return answer

    async def _request(self, method: str, headers: dict[str, str]) -> Any:
        """Return the response to a request. Raises AnswerError if its status says that it has no bytes of the file."""
        options = dict(self._files.kwargs) | {"timeout": aiohttp.ClientTimeout(total=None)}
        sent = options.pop("headers", {}) | self._headers | headers
        session = await self._files.set_session()
        async with asyncio.timeout(answers.ANSWER_SECONDS):
            response = await session.request(method, self._url, headers=sent, **options)
        if response.status in (OK, PART, NO_SUCH_RANGE):
            return response
        response.close()
        if response.status == FAILED_CONDITION:
            raise ChangedError(OTHER_VERSION)
        raise AnswerError(f"the server answers {response.status}", response.status)

    def _described(self, response: Any, start: int, stop: int) -> _Answer:
        """Return a response to a request for bytes of the file, together with its own statements about them."""
        content_range, length = response.headers.get("Content-Range", ""), _length(response)
        if response.status == NO_SUCH_RANGE:
            if start:
                raise AnswerError(f"the server has no bytes from {start:,} on, of {self.state.size:,} announced")
            return _Answer(response, _state(response, 0), 0, True)
        if response.status == OK and not content_range.startswith(f"bytes {start}-"):
            return _Answer(response, self._whole(response), 0, False)
        if stop < 0 or self._is_encoded(response) or response.content_type.startswith("multipart/"):
            raise AnswerError(f"the server answers {PART} with parts in a form that was not asked for")
        return _Answer(response, _state(response, check_part(content_range, start, stop, length)), start, True)

    def _whole(self, response: Any) -> State:
        return _state(response, UNKNOWN_SIZE if self._is_encoded(response) else _length(response))

    def _is_encoded(self, response: Any) -> bool:
        """Return whether aiohttp decompresses a body, so that Content-Length is not the length of the file."""
        return not self._is_compressed and response.headers.get("Content-Encoding", "").lower() not in IDENTITY


def _length(response: Any) -> int:
    length = response.headers.get("Content-Length", "")
    return int(length) if NUMBER.fullmatch(length) else UNKNOWN_SIZE


def _state(response: Any, size: int) -> State:
    said = {name: response.headers[name] for name in VALIDATORS if name in response.headers}
    return State(size, strong(said.get("ETag")), said.get("Last-Modified", ""), version_of(said))


def _certificate_fault(error: aiohttp.ClientConnectorCertificateError) -> str:
    path = os.environ.get(CERTIFICATES, "")
    if path and not os.path.exists(path):
        return f"its certificate cannot be checked: {CERTIFICATES} names {path}, which does not exist"
    reason = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
    return (
        f"its certificate is not accepted ({reason}). Set {CERTIFICATES} to a file with the certificate of its issuer"
    )
