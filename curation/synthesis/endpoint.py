# SPDX-License-Identifier: Apache-2.0
"""An OpenAI-compatible endpoint, called by the package `openai`, and what its answers may be.

Answers are limited in bytes and in time, and checked before use. Messages and files never contain the key.
"""

from __future__ import annotations

import os
import time
from email.utils import parsedate_to_datetime
from typing import Annotated, Any

import msgspec

from curation.errors import InputError
from curation.reading.hub_errors import broken_connection
from curation.reading.urls import scrubbed, shown
from curation.synthesis.answers import ANSWERED, CUT, EMPTY, HTTP_STATUS, REFUSED, Answer
from curation.synthesis.task import BYTES_PER_TOKEN, AnyTask, Request
from curation.system.interrupts import check as check_interrupts

INSTALL = "pip install 'openai>=2'"
MAX_BYTES = 8_000_000  # of an answer; 100,000 tokens are about 0.5 MB
MAX_ERROR_BYTES = 64_000  # of the body of an HTTP error
SHOWN_CHARACTERS = 300  # of its message
MAX_WAIT_SECONDS = 3600.0  # that an endpoint may ask for
PASSING = frozenset((408, 409, 425, 429))  # and all from 500 on
OF_THE_REQUEST = frozenset((400, 413, 422))
POLL_SECONDS = 0.05
HIDDEN = "[key]"

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Count
    completion_tokens: Count


class _Completion(msgspec.Struct):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    usage: _Usage | None = None


class FailedError(Exception):
    """An attempt failed, and another one may succeed, after `wait` seconds if the endpoint says so."""

    def __init__(self, message: str, wait: float = 0) -> None:
        super().__init__(message)
        self.wait = wait


class _StatusError(Exception):
    """An HTTP error of the endpoint."""

    def __init__(self, status: int, body: str, retry_after: str) -> None:
        super().__init__(status)
        self.status, self.detail, self.wait = status, _message_in(body), _seconds(retry_after)


class Endpoint:
    """The endpoint of a task. RecipeError without its key; InputError without the package `openai`."""

    def __init__(self, task: AnyTask) -> None:
        try:
            import openai
        except ImportError as error:
            raise InputError(f"generate needs the package openai ({error}). Run: {INSTALL}") from None
        self.task, self.name, self._openai = task, shown(task.endpoint), openai
        self._key = os.environ.get(task.key_variable, "") if task.key_variable else ""
        if task.key_variable and not self._key.strip():
            raise InputError(
                f"the environment variable {task.key_variable} (key_variable) is not set, expected the API key of "
                f"{self.name}. Set it: export {task.key_variable}=..."
            )
        client = openai.DefaultHttpxClient(event_hooks={"response": [_read_error]})
        self._client = openai.OpenAI(
            base_url=task.endpoint, api_key=self._key or "none", max_retries=0, timeout=task.timeout_seconds,
            http_client=client, default_headers={"Accept-Encoding": "identity"},
        )  # fmt: skip
        self._create = self._client.chat.completions.with_streaming_response.create  # imports modules, for seconds

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request, after up to `retries` failed attempts.

        FailedError: the last attempt failed too. InputError: the endpoint refuses all requests.
        """
        for attempt in range(self.task.retries + 1):
            check_interrupts()
            try:
                return self._attempt(request, attempt)
            except FailedError as error:
                if attempt == self.task.retries:
                    raise
                _sleep(error.wait or 2.0**attempt)
        raise AssertionError

    def _attempt(self, request: Request, retries: int) -> Answer:
        try:
            return self._made(request, self._body(request), retries)
        except (_StatusError, self._openai.OpenAIError, *broken_connection()) as error:
            found = error if isinstance(error, _StatusError) else error.__cause__ or error
        if not isinstance(found, _StatusError):
            raise FailedError(f"{self.name} gives no answer ({type(found).__name__}: {self._message(str(found))})")
        detail = f"{self.name} answers {found.status}: {self._message(found.detail)}"
        if found.status in PASSING or found.status >= 500:
            raise FailedError(detail, found.wait)
        if found.status in OF_THE_REQUEST:
            return self._stored(request, retries, REFUSED, detail, f"{HTTP_STATUS}{found.status}")
        raise InputError(f"{detail}{self._remedy(found.status)}. Answers so far are stored")

    def _body(self, request: Request) -> bytes:
        """Send a request, and return the body of the answer, of at most MAX_BYTES."""
        ends = time.monotonic() + self.task.timeout_seconds
        content = dict(request.content)
        named = {"model": content.pop("model"), "messages": content.pop("messages")}
        with self._create(**named, extra_body=content) as response:
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise FailedError(f"{self.name} sends an answer of more than {MAX_BYTES:,} bytes")
                if time.monotonic() > ends:
                    raise FailedError(f"{self.name} sends an answer for more than {self.task.timeout_seconds:g} s")
        return bytes(body)

    def _made(self, request: Request, body: bytes, retries: int) -> Answer:
        try:
            found = msgspec.json.decode(self._without_key(body.decode()), type=_Completion)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FailedError(f"{self.name} sends no chat completion ({error})") from None
        choice, usage = found.choices[0], found.usage
        reason, text = choice.finish_reason or "", choice.message.content or ""
        outcome = ANSWERED if text.strip() else EMPTY
        if choice.message.refusal or reason == "content_filter":
            outcome, text = REFUSED, choice.message.refusal or text
        elif reason == "length":
            outcome = CUT
        return self._stored(request, retries, outcome, text, reason, usage)

    def _stored(
        self, request: Request, retries: int, outcome: str, text: str, reason: str = "", usage: _Usage | None = None
    ) -> Answer:
        is_estimated = usage is None and outcome != REFUSED
        prompt, answer = (request.prompt_tokens, len(text.encode()) // BYTES_PER_TOKEN) if is_estimated else (0, 0)
        return Answer(
            key=request.key, request=request.content, outcome=outcome, text=text, finish_reason=reason,
            prompt_tokens=usage.prompt_tokens if usage else prompt,
            answer_tokens=usage.completion_tokens if usage else answer,
            is_estimated=is_estimated, retries=retries, time=time.time(),
        )  # fmt: skip

    def _remedy(self, status: int) -> str:
        if status in (401, 403):
            variable = self.task.key_variable
            return (
                f". Check the key in {variable}" if variable else ". Name the variable with its key: key_variable: NAME"
            )
        if status == 404:
            return ". Check endpoint, which often ends in /v1, and model"
        return ""

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, HIDDEN) if self._key else text

    def _message(self, text: str) -> str:
        """Return text of the endpoint for a message: on one line, short, and without secrets."""
        return scrubbed(" ".join(self._without_key(text).split()))[:SHOWN_CHARACTERS]


def _read_error(response: Any) -> None:
    """Raise _StatusError for an HTTP error, with the beginning of its body: the package would read all of it."""
    if response.status_code < 400:
        return
    body = bytearray()
    for chunk in response.iter_raw():
        body += chunk
        if len(body) > MAX_ERROR_BYTES:
            break
    raise _StatusError(
        response.status_code, bytes(body).decode("utf-8", "replace"), response.headers.get("retry-after", "")
    )


def _message_in(body: str) -> str:
    """Return the message in the body of an error, or the body if it has none."""
    try:
        return str(msgspec.json.decode(body)["error"]["message"])
    except (msgspec.DecodeError, LookupError, TypeError):
        return body


def _seconds(value: str) -> float:
    """Return the seconds of a Retry-After header, which may be a date; 0 without one, at most MAX_WAIT_SECONDS."""
    try:
        seconds = float(value) if value.replace(".", "").isdecimal() else _until(value)
    except ValueError:
        return 0
    return min(max(seconds, 0.0), MAX_WAIT_SECONDS)


def _until(date: str) -> float:
    return parsedate_to_datetime(date).timestamp() - time.time()


def _sleep(seconds: float) -> None:
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        check_interrupts()
        time.sleep(min(left, POLL_SECONDS))
