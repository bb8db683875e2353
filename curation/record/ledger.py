# SPDX-License-Identifier: Apache-2.0
"""The ledger: every document is kept, removed or rejected, and every stage passes on all documents that it does not
remove."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from curation.base.errors import IntegrityError
from curation.reading.other_records import OtherCounts, add_counts, not_pages
from curation.reading.slice_table import SliceTable
from curation.reading.source_files import Slice
from curation.record.repeated_ids import IdSample
from curation.rules.grammar import Rule
from curation.rules.group_tallies import tallies_of_groups
from curation.rules.tallies import Tally
from curation.rules.tallies import as_report as rule_report
from curation.stages.outcome import CUT, StageCount


class SliceRecord(msgspec.Struct, kw_only=True):
    """The done-record of one task in one segment, or the counts of one of its slices. Counts are of records or
    documents unless named otherwise."""

    rows: int = 0  # positions: documents read + rejected + unsampled + skipped + answers that are no pages
    lines: int = 0
    rejected: int = 0
    blank: int = 0  # rejected documents whose text has no visible character
    unsampled: int = 0  # positions that the input's `sample` skipped
    skipped: int = 0  # positions that the input's `skip` passes over
    split: int = 0  # positions of parts beyond the first of their document
    repaired: int = 0  # documents in which malformed UTF-8 became U+FFFD
    documents: int = 0  # in the partition
    removed: int = 0
    bytes_kept: int = 0  # of the texts in the partition
    bytes_read: int = 0
    damaged: list[tuple[int, str]] = []  # number and error of each file range that could not be read to its end
    others: OtherCounts = {}  # records of web archives that are no pages
    measured: int = 0  # rows for `measures/`
    locations: int = 0  # stored in `.locations.npy`: locations of records that do not follow the record before
    ids: IdSample = msgspec.field(default_factory=IdSample)  # of the documents that were read
    filled: list[str] = []  # carried columns with a value in some document
    lengths: Tally | None = None  # bytes of the texts that were read
    read_seconds: float = 0.0
    write_seconds: float = 0.0
    stages: list[StageCount] = []
    slices: list[SliceRecord] = []  # of each slice, if a task has several; their `stages` count only reasons

    @property
    def documents_read(self) -> int:
        """Positions with a document or a rejected record."""
        return self.rows - self.unsampled - self.skipped - not_pages(self.others)

    @property
    def whole_documents(self) -> int:
        """Number of documents before they were split. Blank parts of split documents are among `rejected`, so they are
        added."""
        return self.documents_read - self.split - self.rejected + (self.blank if self.split else 0)

    def read_counts(self) -> tuple[int, int]:
        """Return the number of documents of the slice that the segment read, and the bytes of their texts."""
        first = self.stages[0] if self.stages else None
        return (first.documents_in, first.bytes_in) if first else (self.documents, self.bytes_read)


SUMMED = ("rows", "lines", "rejected", "blank", "unsampled", "skipped", "split", "repaired", "documents", "removed",
          "bytes_kept", "bytes_read", "read_seconds", "write_seconds")  # fmt: skip


class TotalsRecord(NamedTuple):
    """A record with its slice. If `is_sum`, it has the sums of slices; else it has only the damage of this slice."""

    slice: int
    is_sum: bool
    record: SliceRecord


class PartialTotals(msgspec.Struct, kw_only=True):
    """The done-records of some consecutive tasks, added up.

    slices   SLICE_COLUMNS of each slice
    columns  COLUMNS of each task, then for each row stage the documents that reached it
    groups   the sums, and damaged slices, in the order of their slices
    stages   the sums of the counts of stages
    """

    slices: list[list[int]]
    columns: list[list[int]]
    groups: list[TotalsRecord]
    stages: list[StageCount]


SLICE_COLUMNS = ("rows", "lines", "documents")
COLUMNS = ("read", "documents", "bytes", "measured", "bytes_read", "has_rejected", "has_locations")


def _columns_of(record: SliceRecord) -> tuple[int, ...]:
    read = record.documents_read - record.rejected
    return (
        read, record.documents, record.bytes_kept, record.measured, record.bytes_read,
        record.rejected > 0, record.locations > 0, *(stage.documents_in for stage in record.stages),
    )  # fmt: skip


def add_up(slices: SliceTable, numbers: range, records: Iterable[SliceRecord]) -> PartialTotals:
    """Return the totals of the tasks with these numbers; `records` yields a record for each task."""
    groups: list[TotalsRecord] = []
    stages: list[StageCount] = []
    of_slices: list[tuple[int, ...]] = []
    columns: list[tuple[int, ...]] = []
    places: dict[Key, SliceRecord] = {}
    for number, record in zip(numbers, records, strict=True):
        columns.append(_columns_of(record))
        stages = stages or [StageCount(kind=stage.kind, name=stage.name) for stage in record.stages]
        for total, part in zip(stages, record.stages, strict=True):
            total.add(part)
        for own, counts in zip(slices.of_task(number), record.slices or [record], strict=True):
            of_slices.append(tuple(getattr(counts, name) for name in SLICE_COLUMNS))
            key = _key_of(own)
            if key not in places:
                groups.append(TotalsRecord(own.index, True, places.setdefault(key, SliceRecord())))
            if counts.damaged:
                groups.append(TotalsRecord(own.index, False, SliceRecord(damaged=counts.damaged)))
            _add(places[key], counts)
    lists = [[list(map(int, column)) for column in zip(*rows, strict=True)] for rows in (of_slices, columns)]
    return PartialTotals(slices=lists[0], columns=lists[1], groups=groups, stages=stages)


Key = tuple[str, frozenset[str]]


def _key_of(input_slice: Slice) -> Key:
    """Return the key of a slice. Slices with equal keys are added up to one sum."""
    return input_slice.source, frozenset(part.file.format for part in input_slice.ranges)


class SliceTotals:
    """The done-records of the tasks of a segment, added up. The totals take 24 bytes of memory per slice, 58 per task,
    and 8 per task and row stage.

    rows, lines, slice_documents   int64, one per slice: its positions, lines, and documents in the partition
    documents, bytes               int64, one per task: documents in the partition, and the bytes of their texts
    read                           int64, one per task: documents that the segment read
    measured                       int64, one per task: rows of `measures/`
    bytes_read                     int64, one per task: bytes of the texts that were read of the inputs
    has_rejected, has_locations    bool, one per task
    reached                        int64, shape (row stages, tasks): documents that reached each row stage
    slices, records                the sums per input, as a few slices and a record for each: the slices of an input
                                   with files of the same formats have one, and so has each slice with a damaged file
    """

    def __init__(self, slices: SliceTable, parts: Iterable[PartialTotals], stages: Sequence[StageCount]) -> None:
        """Add up `parts`, which have all tasks in order, and add their counts of stages to `stages`."""
        columns = np.zeros((len(COLUMNS) + len(stages), slices.tasks), np.int64)
        of_slices = np.zeros((len(SLICE_COLUMNS), len(slices)), np.int64)
        self.slices: list[Slice] = []
        self.records: list[SliceRecord] = []
        places: dict[Key, SliceRecord] = {}
        done = [0, 0]
        for part in parts:
            for place, (table, rows) in enumerate(((of_slices, part.slices), (columns, part.columns))):
                count = len(rows[0]) if rows else 0
                for index, values in enumerate(rows):
                    table[index, done[place] : done[place] + count] = values
                done[place] += count
            for total, added in zip(stages, part.stages, strict=True) if part.stages else ():
                total.add(added)
            for group in part.groups:
                key = _key_of(slices[group.slice])
                if group.is_sum and key in places:
                    _add(places[key], group.record)
                    continue
                self.slices.append(slices[group.slice])
                self.records.append(group.record)
                if group.is_sum:
                    places[key] = group.record
        self.rows, self.lines, self.slice_documents = of_slices
        self.read, self.documents, self.bytes, self.measured, self.bytes_read = columns[:5]
        self.has_rejected, self.has_locations = columns[5 : len(COLUMNS)].astype(bool)
        self.reached = columns[len(COLUMNS) :]


def _add(total: SliceRecord, record: SliceRecord) -> None:
    for name in SUMMED:
        setattr(total, name, getattr(total, name) + getattr(record, name))
    add_counts(total.others, record.others)
    for number, stage in enumerate(record.stages):
        if number == len(total.stages):
            total.stages.append(StageCount(kind=stage.kind, name=stage.name))
        reasons = total.stages[number].reasons  # counts per input have only reasons and cuts
        for name in CUT:
            setattr(total.stages[number], name, getattr(total.stages[number], name) + getattr(stage, name))
        for reason, count in stage.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    total.lengths = total.lengths or Tally()
    total.lengths.add(record.lengths or Tally())
    total.ids.add(np.array(record.ids.hashes, np.uint64), record.ids.modulus)
    total.filled = list(dict.fromkeys(total.filled + record.filled))


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


def as_report(
    stage: StageCount, lines: Sequence[str], rules: Sequence[Rule] = (), by_group: Sequence[Rule] = ()
) -> dict[str, Any]:
    """Return the stage's entry in `report.json`, without reasons of count 0.

    lines     below the funnel
    rules     `ShownRules.rules` of the stage, whose tallies the entry has
    by_group  its `ShownRules.by_group`
    """
    entry = dict(msgspec.to_builtins(stage))
    entry["reasons"] = {reason: number for reason, number in stage.reasons.items() if number}
    if not stage.details:
        del entry["details"]
    entry["seconds"] = round(stage.seconds, 3)
    entry["retention"] = round(stage.documents_out / stage.documents_in, 6) if stage.documents_in else 0.0
    entry["lines"] = list(lines)
    for name in ("tallies", "groups", "tokens_per_byte", *CUT):
        del entry[name]
    if not stage.unit:
        del entry["unit"]
    if stage.tallies:
        values = [rule_report(*pair) for pair in zip(rules, stage.tallies, strict=True)]
        entry["unit_rules" if stage.unit else "rules"] = values
    if stage.groups:
        pairs = zip(tallies_of_groups(by_group), stage.groups, strict=True)
        entry["groups"] = [tallies.as_report(counts) for tallies, counts in pairs]
    return entry
