# SPDX-License-Identifier: Apache-2.0
"""A warning about records that are no documents, for inputs that are read outside a run. It states the number of these
records and shows the first ones."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

from curation.base.contract import Batch
from curation.base.errors import InputError, InputWarning, counted
from curation.reading.documents import Documents
from curation.reading.other_records import OtherCounts, add_counts, add_records, not_pages, other_warnings
from curation.reading.source_files import Slice
from curation.reading.streams import is_damage
from curation.reading.urls import shown

MAX_EXAMPLES = 3  # examples of each kind in a message
REMEDY = 'Mend the files, or give errors="warn" to leave these records out'


class RejectedExample(NamedTuple):
    """A rejected record. `line` counts from 0, from the start of the slice if `in_slice`, else of the file."""

    file: str
    line: int
    in_slice: bool
    error: str


class RecordTally(NamedTuple):
    """Counts of the records of a slice, and examples of those that are no documents.

    file, start   file and start of its first range
    lines         lines of the slice
    damaged       number of files that were not read to their end
    examples      the first rejected records, and the first records that report damage
    others        counts of skipped records of web archives
    """

    file: str
    start: int
    records: int = 0
    lines: int = 0
    rejected: int = 0
    damaged: int = 0
    examples: tuple[RejectedExample, ...] = ()
    others: OtherCounts = {}  # noqa: RUF012  # replaced, never changed

    @property
    def is_partial(self) -> bool:
        """Whether some records are no documents, or some files were not read to their ends."""
        return bool(self.rejected or self.damaged)


NOTHING = RecordTally("", 0)


def add(tally: RecordTally | None, input_slice: Slice, batch: Documents | Batch) -> RecordTally:
    """Return the tally of a slice with one more batch added. `tally` is None for the first batch."""
    first = input_slice.ranges[0]
    tally = tally or RecordTally(first.file.path, first.start)
    damaged = sum(is_damage(entry.error) for entry in batch.rejected)
    examples = list(tally.examples)
    for entry in batch.rejected:
        if len([each for each in examples if is_damage(each.error) == is_damage(entry.error)]) < MAX_EXAMPLES:
            name = shown(input_slice.ranges[entry.file_index].file.path)
            examples.append(RejectedExample(name, entry.line, entry.offset >= 0, entry.error))
    others: OtherCounts = {}
    add_records(others, batch.others)
    pages = batch.rows - not_pages(others)
    add_counts(others, tally.others)
    return tally._replace(
        records=tally.records + pages - damaged,
        lines=tally.lines + batch.lines,
        rejected=tally.rejected + len(batch.rejected) - damaged,
        damaged=tally.damaged + damaged,
        examples=tuple(examples),
        others=others,
    )


def joined(tally: RecordTally, later: RecordTally) -> RecordTally:
    """Return the tally of two slices, of which `later` is read after `tally`; `lines` are those of the last file, and
    the lines of examples count from the starts of their files."""
    if later.file == NOTHING.file:  # a slice without records does not end a file
        return tally
    before = tally.lines if later.file == tally.file and later.start else 0
    found = [each._replace(line=each.line + before * each.in_slice, in_slice=False) for each in later.examples]
    both, others = [*tally.examples, *found], dict[str, dict[str, int]]()
    first = [each for each in both if not is_damage(each.error)], [each for each in both if is_damage(each.error)]
    for each in (tally, later):
        add_counts(others, each.others)
    return RecordTally(
        file=later.file,
        start=later.start,
        records=tally.records + later.records,
        lines=before + later.lines,
        rejected=tally.rejected + later.rejected,
        damaged=tally.damaged + later.damaged,
        examples=(*first[0][:MAX_EXAMPLES], *first[1][:MAX_EXAMPLES]),
        others=others,
    )


def report(tallies: Iterable[RecordTally], errors: str = "warn", so_far: bool = False) -> None:
    """Warn about the records of all slices that are no documents. Raises InputError instead if `errors` is "raise".
    Records of unknown types are no error.

    A worker of a Dask cluster sends the warning to its clients.

    so_far  whether slices follow, and another report about all of them: then records of unknown types are left out
    """
    tally = reduce(joined, tallies, NOTHING)
    parts = []
    if tally.rejected:
        read = " read so far" * so_far
        listed = _listed(tally.examples, tally.rejected, False)
        parts.append(f"{tally.rejected:,} of {counted(tally.records, 'record')}{read} are no documents{listed}")
    if tally.damaged:
        lost = f"{counted(tally.damaged, 'file')} not read to the end: the documents after the damage are lost"
        parts.append(f"{lost}{_listed(tally.examples, tally.damaged, True)}")
    if parts and errors == "raise":
        raise InputError(f"{'. '.join(parts)}. {REMEDY}")
    messages = [". ".join(parts)] * bool(parts) + other_warnings({} if so_far else tally.others)
    for message in messages:
        (sys.modules.get("distributed") or warnings).warn(message, InputWarning, stacklevel=3)


def _listed(examples: Iterable[RejectedExample], count: int, damage: bool) -> str:
    named = [example for example in examples if is_damage(example.error) == damage][:MAX_EXAMPLES]
    listed = [f"{example.file}, line {example.line + 1}: {example.error}" for example in named]
    return f" ({'; '.join(listed)}{'; ...' if count > MAX_EXAMPLES else ''})"
