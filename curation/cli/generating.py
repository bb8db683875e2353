# SPDX-License-Identifier: Apache-2.0
"""`curate generate`: documents, or scores of documents, from the endpoint of a language model."""

from __future__ import annotations

import argparse
from typing import Any

from curation.base.system import interrupts
from curation.base.system.steps import shown_by
from curation.base.system.terminal import aligned
from curation.cli.options import LOGGING, share
from curation.cli.parsing import Command, Parser


def _add_generate(parser: Parser) -> None:
    parser.add_argument(
        "task", metavar="TASK", help="ask for this task, a YAML file or a shipped one: rephrase, educational_score"
    )
    share(parser, "input")
    share(parser, "set", help="change a setting of the task, such as model=qwen3-8b; repeatable")
    share(parser, "output", help="store the answers and write documents.jsonl and report.json in this folder")
    share(parser, *LOGGING)


def generate(options: argparse.Namespace) -> int:
    """Ask the endpoint for the missing answers and write the documents; return 1 if requests failed."""
    from curation.cli.execution import prepare_memory

    prepare_memory()
    from curation.base.errors import counted
    from curation.tools.synthesis.generate import generate
    from curation.tools.synthesis.work import MISSING

    console = options.console
    interrupts.begin_writing()
    with shown_by(console.progress()):
        found = generate(options.task, options.output, input=options.input or None, settings=options.set)
    if found.notice:
        console.warn(found.notice)
    for line in _lines(found.report):
        console.info(line)
    missing = found.report["requests"][MISSING]
    if found.is_spent:
        console.warn(f"the budget of tokens is used up; {counted(missing, 'request')} or more without an answer. Raise "
                     "budget_tokens, and rerun the same command")  # fmt: skip
    if found.failed:
        console.warn(f"{counted(found.failed, 'request')} failed, the last: {found.fault}. Rerun the same command")
    console.info(f"{found.path}: {counted(found.report['documents'], 'document')}; asked {found.asked:,} now")
    return int(
        console.result(
            "generate", code=1 if found.failed else 0, output=str(found.path), asked=found.asked, failed=found.failed,
            is_spent=found.is_spent, **found.report,
        )
    )  # fmt: skip


def _lines(report: dict[str, Any]) -> list[str]:
    """Return the counts of requests, items and tokens, as aligned lines of text."""
    rows = [
        (part, ", ".join(f"{number:,} {name}" for name, number in report[part].items() if number) or "none")
        for part in ("requests", "items", "tokens")
    ]
    return [*aligned(rows)]


GENERATE = Command(
    "generate", "collect documents or scores from a language model's endpoint", _add_generate, generate, resumes=True
)
