# SPDX-License-Identifier: Apache-2.0
"""Answers on disk: each answer is appended to a JSON Lines file, and synced, before anything uses it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from curation.base.errors import IntegrityError
from curation.base.system.files import sync_folder

ANSWERED, CUT, REFUSED, EMPTY, WITH_KEY = "answered", "cut", "refused", "empty", "with_key"
HTTP_STATUS = "HTTP "  # start of the `finish_reason` of a request that the endpoint refused
OUTCOMES = (ANSWERED, CUT, REFUSED, EMPTY, WITH_KEY)


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request and its answer.

    key                      of the request
    request                  the content that the endpoint got: model, messages and parameters
    outcome                  `answered`; `cut` at `max_tokens`; `refused` by the model or the endpoint; `empty`;
                             `with_key`: it repeats the endpoint's key, which `text` has replaced by `[key]`
    text                     the answer, or the reason of a refusal
    finish_reason            as the endpoint gives it, or `HTTP 400` of a request that it refused
    prompt_tokens, answer_tokens   as the endpoint counted them, or estimated if `is_estimated`
    retries                  failed attempts before this one
    time                     of the answer, in seconds since 1970
    """

    key: str
    request: dict[str, Any]
    outcome: str
    text: str
    finish_reason: str
    prompt_tokens: int
    answer_tokens: int
    is_estimated: bool
    retries: int
    time: float

    @property
    def is_paid(self) -> bool:
        """Whether a model has answered; False if the endpoint refused the request with an HTTP status."""
        return not self.finish_reason.startswith(HTTP_STATUS)


class Answers:
    """The answers in a file. Memory: about 200 bytes per answer.

    notice   message about a last line that a kill had cut, and that was removed; "" for none
    counts   answers by outcome, tokens and retries
    """

    def __init__(self, path: Path) -> None:
        self.path, self.notice = path, ""
        self.counts: Counter[str] = Counter()
        self._offsets: dict[str, int] = {}
        self._file = open(path, "a+b")  # noqa: SIM115  closed by close
        sync_folder(path.parent)
        try:
            self._scan()
        except BaseException:
            self.close()
            raise

    def _scan(self) -> None:
        start = 0
        self._file.seek(0)
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                self._file.truncate(start)
                self.notice = (
                    f"{self.path}: an earlier call was killed while it wrote line {number}, which is asked again"
                )
                break
            try:
                self._note(msgspec.json.decode(line, type=Answer), start)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise IntegrityError(
                    f"{self.path}: line {number} is damaged ({error}). Delete the line; its request is asked again"
                ) from None
            start += len(line)

    def _note(self, answer: Answer, start: int) -> None:
        self._offsets[answer.key] = start
        prompt, text = answer.prompt_tokens, answer.answer_tokens
        counts = {answer.outcome: 1, "prompt": prompt, "answer": text, "retries": answer.retries}
        self.counts.update(counts | {"estimated": answer.is_estimated * (prompt + text)})

    def __contains__(self, key: str) -> bool:
        return key in self._offsets

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def tokens(self) -> int:
        """Tokens that all answers have used."""
        return self.counts["prompt"] + self.counts["answer"]

    def get(self, key: str) -> Answer | None:
        """Return the answer to a request; None if it has none."""
        if key not in self._offsets:
            return None
        self._file.seek(self._offsets[key])
        return msgspec.json.decode(self._file.readline(), type=Answer)

    def add(self, answers: Sequence[Answer]) -> None:
        """Append answers and sync them."""
        start = self._file.seek(0, os.SEEK_END)
        lines = [msgspec.json.encode(answer) + b"\n" for answer in answers]
        self._file.write(b"".join(lines))
        self._file.flush()
        os.fsync(self._file.fileno())
        for answer, line in zip(answers, lines, strict=True):
            self._note(answer, start)
            start += len(line)

    def close(self) -> None:
        """Close the file of answers. A later call with the same file reads them again."""
        self._file.close()
