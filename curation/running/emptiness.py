# SPDX-License-Identifier: Apache-2.0
"""Why a run kept nothing: one sentence, which is a warning of its report, so that a rerun gives the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from curation.errors import counted
from curation.reading.inputs import ENCODED
from curation.reading.source_files import Slice
from curation.running.ledger import SliceRecord
from curation.stages.outcome import StageCount

NOTHING = "nothing is kept: "
SEEN_REJECTIONS = 1000  # the first ones are of the kind that all have
HINTS = (
    ("text_column", ""),  # which the error itself asks for
    ("max_document_bytes", "; raise it"),
    ("expected a string", "; set text_column: of the input to a field with text"),
    ("is null", "; set text_column: of the input to a field with text"),
    ("", "; rejected.jsonl has every error"),
)


def nothing_kept(report: Mapping[str, Any]) -> str:
    """Of the content of `report.json` the sentence that says why no document is kept; empty where some are."""
    if report["documents"]["kept"]:
        return ""
    return next((warning for warning in report["warnings"] if warning.startswith(NOTHING)), NOTHING.rstrip(": "))


def emptiness(
    documents: Mapping[str, int], stages: Sequence[StageCount], slices: Sequence[Slice],
    records: Sequence[SliceRecord], rejected: Path,
) -> list[str]:  # fmt: skip
    """The sentence for `nothing_kept`, of what became of most records; nothing where documents are kept. `rejected` is
    the path of `rejected.jsonl`."""
    if documents["kept"]:
        return []
    read, lost = documents["read"], max(documents["removed"], documents["rejected"])
    if not read:
        unsampled = sum(record.unsampled for record in records)
        passed = f"sample: passed over all {counted(unsampled, 'record')}; raise it"
        return [NOTHING + (passed if unsampled else "the input has no documents")]
    cause = _removal(stages) if lost == documents["removed"] else _rejection(slices, rejected)
    return [f"{NOTHING}{lost:,} of {read:,} records were {cause}"]


def _removal(stages: Sequence[StageCount]) -> str:
    most = max(stages, key=lambda stage: stage.removed)
    number, reason = most.removed, max(most.reasons, key=lambda name: most.reasons[name])
    return f"removed, most of them by {most.name} ({number:,} of {most.documents_in:,}, for {reason})"


def _rejection(slices: Sequence[Slice], rejected: Path) -> str:
    with open(rejected, "rb") as file:
        seen = [orjson.loads(line) for line in islice(file, SEEN_REJECTIONS)]
    kinds = Counter(_kind(record) for record in seen)
    [(most, _)] = kinds.most_common(1)
    record = next(record for record in seen if _kind(record) == most)
    error = record["error"]
    if "is not valid " in error:
        formats = {part.file.format for piece in slices if piece.source == record["source"] for part in piece.parts}
        hint = "; convert the input to UTF-8, which its format asks for"
        if formats & {*ENCODED}:
            hint = "; set encoding: of the input to that of its files, such as latin-1"
    else:
        hint = next(hint for mark, hint in HINTS if mark in error)
    return f"rejected, most of them since {error}{hint}"


def _kind(record: Mapping[str, Any]) -> tuple[str, str]:
    """Errors of a kind differ in numbers alone."""
    return record["source"], re.sub(r"\d+", "", record["error"])
