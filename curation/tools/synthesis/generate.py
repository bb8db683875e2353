# SPDX-License-Identifier: Apache-2.0
"""`curation.generate`: collect the answers of a task in a folder, and write the documents that they make."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from curation.base.errors import InputWarning, OutputError, RecipeError, counted
from curation.base.system.files import as_json, commit, local_output, read_json, write_json
from curation.reading.urls import shown
from curation.record.folder import check_entries, locked, sweep
from curation.tools.synthesis.answers import OUTCOMES, WITH_KEY, Answers
from curation.tools.synthesis.asking import Asker
from curation.tools.synthesis.credentials import Credentials
from curation.tools.synthesis.self_instruct import SelfInstructWork
from curation.tools.synthesis.task import AnyTask, Score, Template, load_task
from curation.tools.synthesis.work import MISSING, WRITTEN, ScoreWork, SynthesisTask, TemplateWork

FILES = TASK, ANSWERS, DOCUMENTS, REPORT = "task.json", "answers.jsonl", "documents.jsonl", "report.json"


class Generated(NamedTuple):
    """The result of a call of `generate`.

    path       JSON Lines file with the documents, which runs read
    report     content of `report.json`: requests by outcome, tokens, and documents by reason
    asked      answers that this call has collected
    failed     requests that failed in this call, after all retries; another call asks them again
    fault      message of the last failed request; "" if none failed
    is_spent   whether the budget of tokens ended this call
    notice     message about an answer that a kill had cut; "" for none
    """

    path: Path
    report: dict[str, Any]
    asked: int
    failed: int
    fault: str
    is_spent: bool
    notice: str

    def __repr__(self) -> str:
        missing = self.report["requests"][MISSING]
        return f"<generated {counted(self.report['documents'], 'document')} in {str(self.path)!r}; {missing:,} missing>"


def generate(
    task: str | os.PathLike[str] | Mapping[str, Any],
    output: str | os.PathLike[str],
    *,
    input: object = None,
    settings: Sequence[str] = (),
) -> Generated:
    """Ask an OpenAI-compatible endpoint for documents or for scores of documents, and write them as JSON Lines.

    task       a YAML file, a shipped task (`rephrase`, `educational_score`), or a dictionary of the settings
    output     a folder, for `answers.jsonl`, `documents.jsonl` and `report.json`. A call with the same folder asks only
               for what has no answer there; changed limits and a larger `documents` are the same task
    input      in place of the task's own: paths, or inputs as in a recipe
    settings   `PATH=VALUE` strings, such as `model=qwen3-8b`

    Each answer is stored and synced before it is used. The documents follow from the stored answers in the order of the
    requests, so equal answers give equal bytes. The key of the endpoint comes from the environment variable that
    `key_variable` names, and is not stored. The package `openai` is needed while answers are missing.

        >>> import curation
        >>> generated = curation.generate("pages.yaml", "pages")  # its answers are there already
        >>> generated
        <generated 2 documents in 'pages/documents.jsonl'; 0 missing>
        >>> generated.asked
        0

    RecipeError: a wrong task. InputError: no key, no `openai`, an endpoint that refuses the key or fails again and
    again; what was answered is stored. OutputError: the folder of another task or of a run. InputWarning: answers that
    repeat the key of the endpoint.
    """
    loaded, folder = load_task(task, input, settings), local_output(output)
    if Credentials(loaded).are_in(loaded.identity):
        raise RecipeError(
            f"the task has the key of {shown(loaded.endpoint)} in its text, and task.json would store it. "
            "Remove the key"
        )
    with locked(folder):
        _check_folder(folder, loaded.identity)
        items: Counter[str] = Counter()
        documents = 0
        with (
            closing(Answers(folder / ANSWERS)) as answers,
            closing(Asker(loaded, answers)) as asker,
            warnings.catch_warnings(),
        ):
            work = _work_of(loaded, answers)
            is_asking = True
            while is_asking:
                is_asking = asker.ask(work.needed())
                warnings.simplefilter("ignore", InputWarning)  # the first pass over the input has already warned
            with commit(folder / DOCUMENTS) as temporary, open(temporary, "wb") as file:
                for document in work.documents(items):
                    file.write(as_json(document))
                    documents += 1
        report = {
            "kind": loaded.identity["kind"], "model": loaded.model, "task": loaded.digest,
            "endpoint": shown(loaded.endpoint), "documents": documents, **_counts(work, answers, items),
        }  # fmt: skip
        write_json(folder / REPORT, report, indent=True)
    if number := report["requests"][WITH_KEY]:
        warnings.warn(
            f"{folder / ANSWERS}: {counted(number, 'answer')} with the key of the endpoint, stored as [key]. "
            f"{DOCUMENTS} leaves them out. Find out why the endpoint sends the key, and replace it",
            InputWarning,
            stacklevel=2,
        )
    return Generated(
        folder / DOCUMENTS, report, asker.asked, len(asker.failed), asker.fault, asker.is_spent, answers.notice
    )


def _work_of(task: AnyTask, answers: Answers) -> SynthesisTask:
    if isinstance(task, Template):
        return TemplateWork(task, answers)
    return ScoreWork(task, answers) if isinstance(task, Score) else SelfInstructWork(task, answers)


def _check_folder(folder: Path, identity: dict[str, Any]) -> None:
    """Store the task in a new folder. Raises OutputError for a folder of another task, or with other files."""
    check_entries(folder, FILES)
    sweep(folder, FILES)
    if (path := folder / ANSWERS).exists() and path.stat().st_nlink > 1:
        raise OutputError(f"{path} has another name (a hard link), and answers are appended. Replace it by a copy")
    stored = read_json(folder / TASK)
    if stored is None:
        if names := sorted(entry.name for entry in folder.iterdir()):
            raise OutputError(f"{folder} is not empty (it has {', '.join(names[:5])}); give a new --output")
        write_json(folder / TASK, identity, indent=True)
    elif stored != identity:
        other = sorted(name for name in {*stored, *identity} if stored.get(name) != identity.get(name))
        raise OutputError(f"{folder} has the answers of another task: {', '.join(other)} differ. Give a new --output")


def _counts(work: SynthesisTask, answers: Answers, items: Counter[str]) -> dict[str, Any]:
    """Return the counts of requests by outcome, of items by reason, and of tokens. Requests that the task does not use
    count as `unused`."""
    counts = answers.counts
    missing = sum(key not in answers for key in work.requests)
    requests = {outcome: counts[outcome] for outcome in OUTCOMES} | {
        MISSING: missing, "unused": len(answers) - len(work.requests) + missing,
    }  # fmt: skip
    left_out = {reason: number for reason, number in sorted(items.items()) if reason != WRITTEN}
    return {
        "items": {WRITTEN: items[WRITTEN], **left_out},
        "requests": requests,
        "retries": counts["retries"],
        "tokens": {"prompt": counts["prompt"], "answer": counts["answer"], "estimated": counts["estimated"]},
    }
