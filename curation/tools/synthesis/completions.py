# SPDX-License-Identifier: Apache-2.0
"""Reads the body of an answer: a chat completion, or an error. Fields that no document needs may be invalid or
missing."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, NamedTuple

import msgspec

MAX_TOKENS = 1 << 40  # largest count that an endpoint may report
MAX_DIGITS = 20  # digits of a number that is converted; Python refuses more than 4,300
ERROR_TEXTS = ("error", "message", "detail", "msg", "error_description", "errors", "title")
WITHOUT_MESSAGE = ("content_filter", "length")  # reasons of choices that some endpoints send without a message
ERROR_CODES = ("code", "status", "status_code")
TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)


class StatusError(Exception):
    """The endpoint answered with an error.

    status    HTTP status, or the code in a body with status 200; 0 if there is none
    detail    text of the error
    wait      seconds to wait before another attempt; 0: not given
    target    of a redirect that is not followed; "" for none
    """

    def __init__(self, status: int, detail: str, wait: float = 0, target: str = "") -> None:
        super().__init__(status)
        self.status, self.detail, self.wait, self.target = status, _sound(detail), wait, target


class NoCompletionError(Exception):
    """A body that is no chat completion."""


class Completion(NamedTuple):
    """The first choice of an answer. `prompt_tokens` and `answer_tokens` are None if the endpoint did not count
    them."""

    text: str
    refusal: str
    finish_reason: str
    prompt_tokens: int | None
    answer_tokens: int | None


class _Message(msgspec.Struct):
    content: str | list[str | dict[str, Any]] | None = None
    refusal: Any = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    finish_reason: Any = None
    index: Any = None
    error: Any = None


class _Answer(msgspec.Struct):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    usage: Any = None


def completion_of(body: bytes) -> Completion:
    """Return the completion in the body of a response. Raises StatusError if the body has an error instead, and
    NoCompletionError if it has neither."""
    try:
        # Unlike msgspec, json reads NaN, a byte order mark and halves of surrogate pairs.
        content = json.loads(body, parse_int=lambda digits: int(digits[:MAX_DIGITS]))
        if isinstance(content, dict) and not content.get("choices") and (content.get("error") or _text_in(content)):
            raise StatusError(_code_in(content), _text_in(content) or body.decode("utf-8", "replace"))
        answer = msgspec.convert(content, _Answer)
    except (ValueError, RecursionError) as error:  # msgspec's own errors too
        raise NoCompletionError(_kind_of(body) or str(error)) from None
    choice = next((choice for choice in answer.choices if choice.index == 0), answer.choices[0])
    if choice.error:
        raise StatusError(_code_in({"error": choice.error}), _text_in(choice.error) or str(choice.error))
    reason = choice.finish_reason if isinstance(choice.finish_reason, str) else ""
    if choice.message is None and reason not in WITHOUT_MESSAGE:
        raise NoCompletionError("the first choice has no message")
    message, usage = choice.message or _Message(), answer.usage if isinstance(answer.usage, dict) else {}
    refusal = message.refusal if isinstance(message.refusal, str) else ""
    counts = (_count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens"))
    return Completion(_sound(_joined(message.content)), _sound(refusal), _sound(reason), *counts)


def error_text(body: str) -> str:
    """Return the text of an error in a body, the title of a web page, or else the body."""
    try:
        text = _text_in(json.loads(body))
    except (ValueError, RecursionError):
        title = TITLE.search(body)
        text = title[1] if title else ""
    return text or body


def _text_in(value: Any) -> str:
    """Return the first text in the fields ERROR_TEXTS of an error, at any depth."""
    if isinstance(value, dict):
        value = [value.get(name) for name in ERROR_TEXTS]
    if isinstance(value, list):
        return next((text for entry in value if (text := _text_in(entry))), "")
    return value if isinstance(value, str) else ""


def _code_in(content: dict[str, Any]) -> int:
    """Return the HTTP status that an error names; 0 if it names none."""
    inner = content.get("error")
    named = [fields.get(name) for fields in (inner, content) if isinstance(fields, dict) for name in ERROR_CODES]
    codes = (str(code) for code in named if isinstance(code, int | str))
    return next((int(code) for code in codes if re.fullmatch("[45][0-9]{2}", code)), 0)


def _kind_of(body: bytes) -> str:
    start = body.strip()[:16]
    if start.startswith(b"<"):
        title = TITLE.search(body.decode("utf-8", "replace"))
        return f"a web page{f': {title[1].strip()}' if title else ''}"
    if start.startswith((b"data:", b"event:", b":")):
        return "an event stream. Let the endpoint answer without streaming"
    return "" if start else "an empty body"


def _joined(content: str | list[str | dict[str, Any]] | None) -> str:
    """Return the text of a content, which some servers send in parts."""
    parts = [content] if isinstance(content, str) else content or []
    texts = (part if isinstance(part, str) else part.get("text") for part in parts)
    return "".join(text for text in texts if isinstance(text, str))


def _sound(text: str) -> str:
    """Return a text with U+FFFD in place of lone surrogates, which UTF-8 files cannot contain."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None
