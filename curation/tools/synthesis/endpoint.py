# SPDX-License-Identifier: Apache-2.0
"""Asks an OpenAI-compatible endpoint: sends attempts to get an answer, and interprets the endpoint's errors.

Answers are limited in bytes and in time, and checked before use. Messages and files never contain the key.
"""

from __future__ import annotations

import errno
import os
import ssl
import threading
import time

from curation.base.errors import InputError, is_shortage
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.os_errors import fault_of
from curation.reading.urls import shown
from curation.tools.synthesis.answers import ANSWERED, CUT, EMPTY, HTTP_STATUS, REFUSED, WITH_KEY, Answer
from curation.tools.synthesis.completions import Completion, NoCompletionError, StatusError, completion_of
from curation.tools.synthesis.connection import MAX_BYTES, MAX_WAIT_SECONDS, Connection
from curation.tools.synthesis.credentials import Credentials
from curation.tools.synthesis.task import BYTES_PER_TOKEN, AnyTask, Request

SHOWN_CHARACTERS = 300  # most characters of an error's message
PASSING = frozenset((408, 409, 425, 429))  # and all statuses from 500 on
OF_THE_REQUEST = frozenset((400, 413, 422))
LOCAL = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS))
POLL_SECONDS = 0.05
STORED = "Answers so far are stored"


class FailedError(Exception):
    """An attempt failed, but another attempt may succeed, after `wait` seconds if the endpoint names a time."""

    def __init__(self, message: str, wait: float = 0) -> None:
        super().__init__(message)
        self.wait = wait


class Pace:
    """Decides when attempts may be sent, by the limits per minute. Repeated attempts count too. Safe for threads."""

    def __init__(self, task: AnyTask) -> None:
        self._task, self._lock, self._next = task, threading.Lock(), 0.0

    def turn(self, request: Request) -> float:
        """Return when one attempt may be sent, as a time of `time.monotonic()`."""
        task = self._task
        per_request = 60 / task.requests_per_minute if task.requests_per_minute else 0
        per_token = 60 / task.tokens_per_minute if task.tokens_per_minute else 0
        with self._lock:
            turn = max(self._next, time.monotonic())
            self._next = turn + max(per_request, per_token * task.most_tokens(request))
        return turn


class Endpoint:
    """The endpoint of a task. Raises InputError without its key, without the package `openai`, or for a wrong proxy."""

    def __init__(self, task: AnyTask, pace: Pace) -> None:
        self.task, self._pace = task, pace
        self._credentials = Credentials(task)
        self._credentials.check_key()
        self._connection = Connection(task.endpoint, self._credentials)
        proxy = self._connection.proxy
        self.name = f"{shown(task.endpoint)}{f' (by the proxy {proxy})' if proxy else ''}"

    def close(self) -> None:
        """Close the connections. Attempts under way end without an answer."""
        self._connection.close()

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request, after up to `retries` failed attempts.

        FailedError: the last attempt failed too. InputError: the endpoint refuses all requests, or the request has the
        key.
        """
        if self._credentials.are_in(request.content):
            raise InputError(
                f"a request has the key of {self.name} in its text, and answers.jsonl stores requests. Remove the key "
                f"from the input. {STORED}"
            )
        for attempt in range(self.task.retries + 1):
            check_interrupts()
            try:
                return self._attempt(request, attempt)
            except FailedError as error:
                if attempt == self.task.retries:
                    raise
                _sleep(error.wait or min(2.0 ** min(attempt, 12), MAX_WAIT_SECONDS))
                _sleep(self._pace.turn(request) - time.monotonic())
        raise AssertionError

    def _attempt(self, request: Request, retries: int) -> Answer:
        try:
            return self._made(request, completion_of(self._body(request)), retries)
        except NoCompletionError as error:
            message, fault = f"{self.name} sends no chat completion ({self._message(str(error))})", None
        except StatusError as error:
            detail = self._message(error.detail)
            message, fault = f"{self.name} answers {error.status or 'an error'}{f': {detail}' if detail else ''}", error
        if fault is None or not fault.status or fault.status in PASSING or fault.status >= 500:
            raise FailedError(message, fault.wait if fault else 0)
        if fault.status in OF_THE_REQUEST:
            return self._stored(request, retries, REFUSED, message, f"{HTTP_STATUS}{fault.status}", 0, 0)
        if fault.target:
            message = f"{self.name} answers {fault.status}, a redirect to {self._message(fault.target)}"
        raise InputError(f"{message}{self._remedy(fault)}. {STORED}")

    def _body(self, request: Request) -> bytes:
        """Send a request, and return the body of the answer, of at most MAX_BYTES."""
        seconds = self.task.timeout_seconds
        try:
            body = self._connection.body(request.content, seconds)
        except StatusError:
            raise
        except TimeoutError:
            fault = f"gives no whole answer within {seconds:g} s (timeout_seconds)"
        except Exception as error:  # the errors of the client's libraries have no common base
            fault = self._fault_of(error)
        else:
            if len(body) <= MAX_BYTES:
                return body
            fault = f"sends an answer of more than {MAX_BYTES:,} bytes"
        raise FailedError(f"{self.name} {fault}")

    def _fault_of(self, error: Exception) -> str:
        """Return the fault that broke the connection. InputError: a fault of this machine."""
        faults = _system_errors(error)
        if local := next((fault for fault in faults if fault.errno in LOCAL or is_shortage(fault)), None):
            remedy = "Raise `ulimit -n`, or lower concurrency"
            raise InputError(f"{self.name} cannot be asked: {fault_of(local, remedy)}. {STORED}") from None
        detail = os.strerror(faults[0].errno or 0) if faults else self._message(str(error))
        return f"gives no answer ({type(error).__name__}: {detail})"

    def _made(self, request: Request, reply: Completion, retries: int) -> Answer:
        outcome, text, reason = ANSWERED if reply.text.strip() else EMPTY, reply.text, reply.finish_reason
        if reply.refusal or reason == "content_filter":
            outcome, text = REFUSED, reply.refusal or text
        elif reason == "length":
            outcome = CUT
        if reason.startswith(HTTP_STATUS):  # this start marks requests that the endpoint refused
            reason = repr(reason)
        hidden, reason_hidden = map(self._credentials.hidden_in_answer, (text, reason))
        if (hidden, reason_hidden) != (text, reason):
            outcome = WITH_KEY
        return self._stored(
            request, retries, outcome, hidden, reason_hidden, reply.prompt_tokens, reply.answer_tokens
        )  # fmt: skip

    def _stored(
        self, request: Request, retries: int, outcome: str, text: str, reason: str, prompt: int | None,
        answer: int | None,
    ) -> Answer:  # fmt: skip
        """Return an answer, with estimates in place of counts that are None."""
        return Answer(
            key=request.key, request=request.content, outcome=outcome, text=text, finish_reason=reason,
            prompt_tokens=request.prompt_tokens if prompt is None else prompt,
            answer_tokens=len(text.encode()) // BYTES_PER_TOKEN if answer is None else answer,
            is_estimated=None in (prompt, answer), retries=retries, time=time.time(),
        )  # fmt: skip

    def _remedy(self, error: StatusError) -> str:
        if error.target:
            return ". Set endpoint to an address that answers without a redirect"
        if error.status in (401, 403):
            is_keyed = bool(self.task.key_variable)
            name = self._credentials.variable
            return f". Check the key in {name}" if is_keyed else ". Name the variable with its key: key_variable: NAME"
        if error.status == 404:
            return ". Check endpoint, which often ends in /v1, and model"
        return ""

    def _message(self, text: str) -> str:
        """Return text of the endpoint for a message: on one line, short, and without credentials."""
        return " ".join(self._credentials.hidden_in_message(text).split())[:SHOWN_CHARACTERS]


def _system_errors(error: BaseException | None) -> list[OSError]:
    """Return the errors of the operating system that caused an error of a library."""
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes += [error, *getattr(error, "exceptions", ())]  # an exception group has one error per address
        error = error.__cause__ or error.__context__
    known = (cause for cause in causes if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError))
    return [cause for cause in known if cause.errno in errno.errorcode]


def _sleep(seconds: float) -> None:
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        check_interrupts()
        time.sleep(min(left, POLL_SECONDS))
