# SPDX-License-Identifier: Apache-2.0
"""A model that is a function, in place of an endpoint, and what a call of `generate` leaves in its folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from curation.tools.synthesis.answers import Answer
from curation.tools.synthesis.endpoint import Pace
from curation.tools.synthesis.task import AnyTask, Request

TASK = {
    "kind": "template",
    "endpoint": "http://localhost:1/v1",
    "model": "m",
    "seeds": ["a", "b", "c"],
    "prompt": "on {text}",
}
Model = Callable[[str], Any]
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "synthetic_documents.md").read_text("utf-8")
MESSAGES: dict[str, str] = dict(  # mistake -> message on the page
    re.findall(r"^\| ([^|]*\w) \| `(.*)` \|$", PAGE.partition("## Errors")[2], re.MULTILINE)
)


def stored(request: Request, found: Any) -> Answer:
    """An answer of one token per word, by its text or by fields of it."""
    fields = found if isinstance(found, dict) else {"text": found}
    told = {"outcome": "answered", "finish_reason": "stop", "prompt_tokens": 10, "is_estimated": False, "retries": 0}
    told |= {"answer_tokens": len(fields["text"].split()), "time": 0.0}
    return Answer(key=request.key, request=request.content, **told | fields)


class Models:
    """A replacement of `Endpoint` that records its prompts."""

    def __init__(self, model: Model) -> None:
        self.model, self.prompts = model, []
        self.requests: list[dict[str, Any]] = []

    def __call__(self, task: AnyTask, pace: Pace) -> Models:
        return self

    def answer(self, request: Request) -> Answer:
        self.requests.append(request.content)
        self.prompts.append(request.content["messages"][-1]["content"])
        return stored(request, self.model(self.prompts[-1]))

    def close(self) -> None:
        """Nothing is open."""


def documents_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "documents.jsonl").read_text("utf-8").splitlines()]


def files_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("answers.jsonl", "documents.jsonl", "report.json")}
