# SPDX-License-Identifier: Apache-2.0
"""The requests of a task, and the documents that it makes of their answers.

Requests and documents depend only on the task, its input and the stored answers, in the order of the requests.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from typing import Any, Protocol

from curation.base.contract import ID, TEXT
from curation.tools.synthesis.answers import ANSWERED, WITH_KEY, Answer, Answers
from curation.tools.synthesis.task import AnyTask, Fields, Request, Score, Template, filled

WRITTEN = "written"
MISSING, UNPARSABLE, REPEATED = "missing", "unparsable", "repeated"  # reasons
ATTEMPTS = 2  # requests for the score of a document: a second one if the first answer has no score

Document = dict[str, Any]


class SynthesisTask(Protocol):
    """The requests of a task, and the documents that it makes from the answers.

    requests   requests whose answers the task has used
    """

    requests: set[str]

    def needed(self) -> Iterator[Request]:
        """Yield the requests that follow from the answers so far, also those that already have an answer."""
        ...

    def documents(self, tally: Counter[str]) -> Iterator[Document]:
        """Yield the documents. `tally` counts each of them as `written`, and all others by the reason why they are left
        out."""
        ...


class TemplateWork:
    """The requests of a template task, and one document per answer."""

    def __init__(self, task: Template, answers: Answers) -> None:
        self.task, self.answers = task, answers
        self.requests: set[str] = set()

    def _items(self) -> Iterator[tuple[Fields, Request]]:
        items = self._in_turns() if self.task.documents else self._once(0)
        return islice(items, self.task.documents or None)

    def _in_turns(self) -> Iterator[tuple[Fields, Request]]:
        for sample in count():
            yield from self._once(sample)

    def _once(self, sample: int) -> Iterator[tuple[Fields, Request]]:
        for fields in self.task.read():
            yield fields, self.task.request(filled(self.task, fields), sample)

    def needed(self) -> Iterator[Request]:
        """Yield one request per seed document. With `documents`, seeds are repeated in turn until there are `documents`
        requests."""
        return (request for _, request in self._items())

    def documents(self, tally: Counter[str]) -> Iterator[Document]:
        """Yield the written answers. A request equal to that of an earlier seed counts as repeated."""
        for fields, request in self._items():
            answer = self.answers.get(request.key)
            outcome = REPEATED if request.key in self.requests else outcome_of(answer)
            self.requests.add(request.key)
            tally[outcome] += 1
            if answer and outcome == WRITTEN:
                yield {ID: request.key, TEXT: answer.text} | made_by(self.task) | {"seed_id": fields[ID]}


class ScoreWork:
    """The requests for numbers of documents, and the documents with their numbers."""

    def __init__(self, task: Score, answers: Answers) -> None:
        self.task, self.answers = task, answers
        self.requests: set[str] = set()
        before, _, after = task.answer.partition(f"{{{task.column}}}")
        self._line = re.compile(f"{re.escape(before)}(-?[0-9]{{1,9}}){re.escape(after)}")

    def needed(self) -> Iterator[Request]:
        """Yield the next request of each document: the first one, or another one after an answer without a number."""
        return (self._last(fields)[0] for fields in self._items())

    def _items(self) -> Iterator[Fields]:
        return islice(self.task.read(), self.task.documents or None)

    def _last(self, fields: Fields) -> tuple[Request, Answer | None, int | None]:
        """Return the last request of a document so far, its answer and its score."""
        prompt = filled(self.task, fields)
        for sample in range(ATTEMPTS):
            request = self.task.request(prompt, sample)
            self.requests.add(request.key)
            answer = self.answers.get(request.key)
            score = self._score(answer.text) if answer and answer.outcome == ANSWERED else None
            if answer is None or score is not None or answer.outcome == WITH_KEY:
                break
        return request, answer, score

    def _score(self, text: str) -> int | None:
        """Return the number that the answer has on a line of the given form; None for no number, several, or one out of
        bounds."""
        numbers = {int(match[1]) for line in text.splitlines() if (match := self._line.fullmatch(line.strip()))}
        score = numbers.pop() if len(numbers) == 1 else None
        return score if score is not None and self.task.min <= score <= self.task.max else None

    def documents(self, tally: Counter[str]) -> Iterator[Document]:
        """Yield the seed documents whose answer has a number, with the number in the task's column."""
        for fields in self._items():
            _, answer, score = self._last(fields)
            outcome = outcome_of(answer)
            if outcome == WRITTEN and score is None:
                outcome = UNPARSABLE
            tally[outcome] += 1
            if outcome == WRITTEN:
                yield {**fields, self.task.column: score, "model": self.task.model, "task": self.task.digest}


def outcome_of(answer: Answer | None) -> str:
    """Return `written` for an answer that can be used, else the reason why it cannot."""
    if answer is None:
        return MISSING
    return WRITTEN if answer.outcome == ANSWERED else answer.outcome


def made_by(task: AnyTask) -> Document:
    """Return the columns of synthetic documents."""
    return {"synthetic": True, "model": task.model, "task": task.digest}
