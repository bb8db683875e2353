# SPDX-License-Identifier: Apache-2.0
"""The done-records of a phase, and the notes of its running tasks, from which progress is counted.

Records are files, so progress is correct for threads, processes, clusters and resumed runs. Each is read once. A task
that takes longer than a second notes its counts in `NNNNNN.running`: one large compressed file is one task.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from curation.system.files import numbered_path, read_json
from curation.system.steps import Count, Every, bytes_read

RECORD, RUNNING = ".json", ".running"
NOTE_SECONDS = 1.0
Record = TypeVar("Record")


class Counts(NamedTuple):
    """Counts of one task: documents and bytes of text read, documents kept, and stored bytes read of its input."""

    documents: int
    bytes: int
    kept: int
    stored: int = 0


class Decoder(NamedTuple, Generic[Record]):
    """How the records of a phase are read: from JSON, and the counts in them. `removes`: whether the phase removes
    documents, so that the number of kept ones is shown."""

    decode: Callable[[Any], Record]
    counts: Callable[[Record], Counts]
    removes: bool


class TaskRecords(Generic[Record]):
    """The records of tasks in a folder.

    sizes  number of a task -> stored bytes of its input, or another measure of its work
    """

    def __init__(self, folder: Path, sizes: Mapping[int, int], decoder: Decoder[Record]) -> None:
        self.folder, self.sizes, self.decoder = folder, sizes, decoder
        self.records: dict[int, Record | None] = dict.fromkeys(sizes)
        self.done = self.work = 0
        self.total = max(sum(sizes.values()), 1)
        self.sums = [0, 0, 0]
        for number in self._listed(RUNNING):
            numbered_path(folder, number, RUNNING).unlink(missing_ok=True)  # of a killed run

    def pending(self) -> set[int]:
        """Return the numbers of the tasks without a record."""
        return self.records.keys() - self._listed(RECORD)

    def count(self) -> Count:
        """Return the counts of the finished tasks and, where they have noted some, of the running ones."""
        for number in self._listed(RECORD):
            if self.records.get(number, 0) is None:
                self._add(number)
        notes = [(number, _read_note(numbered_path(self.folder, number, RUNNING))) for number in self._listed(RUNNING)]
        running = [(number, note) for number, note in notes if note and self.records.get(number, 0) is None]
        work = self.work + sum(min(note.stored, self.sizes[number]) for number, note in running)
        documents, size, kept = (
            total + sum(note[place] for _, note in running) for place, total in enumerate(self.sums)
        )
        return Count(self.done, documents, size, kept if self.decoder.removes else None, work / self.total)

    def all(self) -> list[Record]:
        """Return the records of all tasks, which must be done."""
        return [self._add(number) if record is None else record for number, record in self.records.items()]

    def _add(self, number: int) -> Record:
        record = self.records[number] = self.decoder.decode(read_json(numbered_path(self.folder, number, RECORD)))
        self.done += 1
        self.work += self.sizes[number]
        counts = self.decoder.counts(record)
        self.sums = [total + value for total, value in zip(self.sums, counts[:3], strict=True)]
        return record

    def _listed(self, suffix: str) -> set[int]:
        """The numbers of the folder's files with a suffix."""
        with os.scandir(self.folder) as entries:
            names = [entry.name.removesuffix(suffix) for entry in entries if entry.name.endswith(suffix)]
        return {int(name) for name in names if name.isdecimal()}


def _read_note(path: Path) -> Counts | None:
    """The note of a running task; None if it has ended, or is writing."""
    with suppress(OSError, ValueError, TypeError):
        return Counts(*orjson.loads(path.read_bytes()))
    return None


class RunningNote:
    """The note of a running task. Use it as a context: the note is deleted at the end of the task."""

    def __init__(self, folder: Path, number: int) -> None:
        self.path = numbered_path(folder, number, RUNNING)
        self.clock, self.before = Every(NOTE_SECONDS), bytes_read()
        self.is_written = False

    def __enter__(self) -> RunningNote:
        return self

    def write(self, documents: int, size: int, kept: int) -> None:
        """Note the counts, at most once per second."""
        if self.clock.is_due():
            self.path.write_bytes(orjson.dumps((documents, size, kept, bytes_read() - self.before)))
            self.is_written = True

    def __exit__(self, *error: object) -> None:
        if self.is_written:
            self.path.unlink(missing_ok=True)
