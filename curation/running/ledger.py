# SPDX-License-Identifier: Apache-2.0
"""The ledger: every document is kept, removed or rejected, and every stage passes on all others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from curation.errors import IntegrityError
from curation.rules.grammar import Rule
from curation.rules.tallies import Tally
from curation.rules.tallies import as_report as rule_report
from curation.stages.outcome import StageCount


class SliceRecord(msgspec.Struct, kw_only=True):
    """The done-record of one slice in one segment. Counts are of records or documents unless named otherwise."""

    rows: int = 0  # positions: documents read + rejected + unsampled
    lines: int = 0
    rejected: int = 0
    unsampled: int = 0  # positions that the input's `sample` skipped
    repaired: int = 0  # documents in which malformed UTF-8 became U+FFFD
    documents: int = 0  # in the partition
    removed: int = 0
    bytes_read: int = 0
    damaged: list[tuple[int, str]] = []  # number and error of each file range that was not read to its end
    marks: int = 0  # places of records that do not follow the one before them, in `.places.npy`
    filled: list[str] = []  # carried columns with a value in some document
    lengths: Tally | None = None  # of the texts that were read, in bytes
    read_seconds: float = 0.0
    write_seconds: float = 0.0
    stages: list[StageCount] = []

    def read_counts(self) -> tuple[int, int]:
        """Return the number of documents that the segment read of the slice, and the bytes of their text."""
        first = self.stages[0] if self.stages else None
        return (first.documents_in, first.bytes_in) if first else (self.documents, self.bytes_read)


def total_stages(stages: Sequence[StageCount], records: Iterable[SliceRecord]) -> None:
    """Add the counts of every slice to the stages at the same position, in place."""
    for record in records:
        for total, part in zip(stages, record.stages, strict=True):
            total.add(part)


def check_ledger(documents: dict[str, int], stages: Sequence[StageCount]) -> None:
    """Raise IntegrityError unless the counts of documents add up.

    The run: read + copies = kept + removed + rejected. Each stage: documents in = documents out of the stage before,
    and documents out = documents in - removed.
    """
    incoming = documents["read"] + documents["copies"]
    outgoing = documents["kept"] + documents["removed"] + documents["rejected"]
    if incoming != outgoing:
        raise IntegrityError(
            f"the ledger does not add up: read + copies = {incoming}, kept + removed + rejected = {outgoing}"
        )
    arriving = documents["read"] - documents["rejected"]
    for stage in stages:
        if stage.documents_in != arriving:
            raise IntegrityError(f"stage {stage.name}: {stage.documents_in} documents in, expected {arriving}")
        if stage.documents_in - sum(stage.reasons.values()) != stage.documents_out:
            raise IntegrityError(
                f"stage {stage.name}: {stage.documents_in} documents in, {stage.documents_out} out, removed "
                f"{stage.reasons}"
            )
        arriving = stage.documents_out
    if arriving + documents["copies"] != documents["kept"]:
        raise IntegrityError(
            f"the last stage kept {arriving} documents, {documents['copies']} are copies, {documents['kept']} were "
            "written"
        )


def as_report(stage: StageCount, lines: Sequence[str], rules: Sequence[Rule] = ()) -> dict[str, Any]:
    """Return the stage's entry in `report.json`, with its `lines` under the funnel, the tallies of its `rules`, and
    without reasons of count 0."""
    entry = dict(msgspec.to_builtins(stage))
    entry["reasons"] = {reason: number for reason, number in stage.reasons.items() if number}
    if not stage.details:
        del entry["details"]
    entry["seconds"] = round(stage.seconds, 3)
    entry["retention"] = round(stage.documents_out / stage.documents_in, 6) if stage.documents_in else 0.0
    entry["lines"] = list(lines)
    del entry["tallies"]
    if stage.tallies:
        entry["rules"] = [rule_report(*pair) for pair in zip(rules, stage.tallies, strict=True)]
    return entry
