# SPDX-License-Identifier: Apache-2.0
"""Counting: every document is kept, removed or rejected, and every stage passes on what it does not remove."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from curation.errors import IntegrityError
from curation.stages.outcome import StageCount


class SliceRecord(msgspec.Struct, kw_only=True):
    """The done-record of one slice in one segment."""

    rows: int = 0  # positions: documents read + rejected + unsampled
    lines: int = 0
    rejected: int = 0
    unsampled: int = 0  # positions that the input's `sample` passed over
    repaired: int = 0  # documents in which malformed UTF-8 became U+FFFD
    documents: int = 0  # in the part
    removed: int = 0
    bytes_read: int = 0
    damaged: list[tuple[int, str]] = []  # number and error of each part that was not read to its end
    filled: list[str] = []  # carried columns that are not null in every document
    read_seconds: float = 0.0
    write_seconds: float = 0.0
    stages: list[StageCount] = []


def total_stages(stages: Sequence[StageCount], records: Iterable[SliceRecord]) -> None:
    """Adds every slice's counts to the stages of the same position."""
    for record in records:
        for total, part in zip(stages, record.stages, strict=True):
            total.add(part)


def check_ledger(documents: dict[str, int], stages: Sequence[StageCount]) -> None:
    """IntegrityError unless read + copies = kept + removed + rejected, and each stage starts where the last ended."""
    left = documents["read"] + documents["copies"]
    right = documents["kept"] + documents["removed"] + documents["rejected"]
    if left != right:
        raise IntegrityError(f"the ledger does not add up: read + copies = {left}, kept + removed + rejected = {right}")
    arriving = documents["read"] - documents["rejected"]
    for stage in stages:
        if stage.documents_in != arriving:
            raise IntegrityError(f"stage {stage.name}: {stage.documents_in} documents came, {arriving} were sent")
        if stage.documents_in - sum(stage.reasons.values()) != stage.documents_out:
            raise IntegrityError(
                f"stage {stage.name}: {stage.documents_in} came, {stage.documents_out} left, {stage.reasons}"
            )
        arriving = stage.documents_out
    if arriving + documents["copies"] != documents["kept"]:
        raise IntegrityError(
            f"the last stage left {arriving} documents, {documents['copies']} are copies, {documents['kept']} written"
        )


def as_report(stage: StageCount, lines: Sequence[str]) -> dict[str, Any]:
    """The stage's entry in `report.json`, with its `lines` under the funnel; reasons that never fired are left out."""
    entry = dict(msgspec.to_builtins(stage))
    entry["reasons"] = {reason: number for reason, number in stage.reasons.items() if number}
    if not stage.details:
        del entry["details"]
    entry["seconds"] = round(stage.seconds, 3)
    entry["retention"] = round(stage.documents_out / stage.documents_in, 6) if stage.documents_in else 0.0
    entry["lines"] = list(lines)
    return entry
