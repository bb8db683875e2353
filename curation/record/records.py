# SPDX-License-Identifier: Apache-2.0
"""The done-records of a phase, and the notes of its running tasks, from which progress is counted.

A task returns its counts, and the runner adds them up, so it reads no folder while tasks run. When a run resumes, the
records of the tasks that are done are read once. A task that takes longer than a second notes its counts in
`NNNNNN.running`, because one large compressed file is one task. The runner holds 9 bytes per task in memory, and reads
records one at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import orjson

from curation.base.system.damage import reading
from curation.base.system.files import numbered_folders, numbered_path
from curation.base.system.sealed import read_sealed
from curation.base.system.shared_files import stale
from curation.base.system.steps import Count, Every, bytes_read, each, listen

RECORD, RUNNING = ".json", ".running"
NOTE_SECONDS = 1.0
NOTED_TASKS = 256  # most running tasks whose notes are read
Record = TypeVar("Record")


class TaskCounts(NamedTuple):
    """Counts of one task: documents and bytes of text read, documents kept, and stored bytes read of its input."""

    documents: int
    bytes: int
    kept: int
    stored: int = 0


class Decoder(NamedTuple, Generic[Record]):
    """Functions that read the records of a phase: `decode` makes a record from JSON, `counts` returns its counts.
    `removes`: the phase removes documents, so that progress shows the number of kept documents."""

    decode: Callable[[Any], Record]
    counts: Callable[[Record], TaskCounts]
    removes: bool


class TaskRecords(Generic[Record]):
    """The records of tasks in a folder.

    sizes  stored bytes of the input of each task, or another measure of its work; int64
    """

    def __init__(self, folder: Path, sizes: Sequence[int] | np.ndarray, decoder: Decoder[Record]) -> None:
        self.folder, self.decoder = folder, decoder
        self.sizes = np.asarray(sizes, np.int64)
        self.is_done = np.zeros(len(self.sizes), bool)
        self.running: dict[int, None] = {}  # in the order in which they began
        self.done = self.work = 0
        self.total = max(int(self.sizes.sum()), 1)
        self.sums = [0, 0, 0]
        for number in self._listed(RUNNING):
            numbered_path(folder, number, RUNNING).unlink(missing_ok=True)  # of a killed run
        self.find_done()

    def find_done(self) -> None:
        """Count the tasks whose records appeared since the last call, such as those of an earlier run."""
        for number in each(self._listed(RECORD), "reading records", "record"):
            if number < len(self.sizes) and not self.is_done[number]:
                self.end(number, None)

    def pending(self) -> np.ndarray:
        """Return the numbers of the tasks without a record, ascending."""
        return np.flatnonzero(~self.is_done)

    def begin(self, number: int) -> None:
        """Count a task as running, so that its note is read."""
        self.running[number] = None

    def end(self, number: int, counts: TaskCounts | None) -> None:
        """Count a task as done. If `counts` is None, the counts are read from the task's record."""
        counts = counts or self._read(number)[1]
        self.is_done[number] = True
        self.running.pop(number, None)
        self.done += 1
        self.work += int(self.sizes[number])
        self.sums = [total + value for total, value in zip(self.sums, counts[:3], strict=True)]

    def count(self) -> Count:
        """Return the counts of the finished tasks, and those that running tasks have noted."""
        numbers = list(islice([*self.running], NOTED_TASKS))
        notes = [(number, _read_note(numbered_path(self.folder, number, RUNNING))) for number in numbers]
        running = [(number, note) for number, note in notes if note and not self.is_done[number]]
        work = self.work + sum(min(note.stored, int(self.sizes[number])) for number, note in running)
        documents, size, kept = (
            total + sum(note[index] for _, note in running) for index, total in enumerate(self.sums)
        )
        return Count(self.done, documents, size, kept if self.decoder.removes else None, work / self.total)

    def each(self) -> Iterator[Record]:
        """Yield the records of all tasks, which must be done, in the order of their numbers."""
        return (self._read(number)[0] for number in range(len(self.sizes)))

    def _read(self, number: int) -> tuple[Record, TaskCounts]:
        """Return the record of a task, and its counts. Raises IntegrityError for a damaged file."""
        path = numbered_path(self.folder, number, RECORD)
        try:
            content = read_sealed(path)
        except FileNotFoundError:
            raise stale(path) from None  # its task is done
        with reading(path):
            record = self.decoder.decode(content)
            return record, self.decoder.counts(record)

    def _listed(self, suffix: str) -> list[int]:
        """Return the numbers of the folder's files with a suffix."""
        numbers = []
        for folder in numbered_folders(self.folder):
            with os.scandir(folder) as entries:
                names = [entry.name.removesuffix(suffix) for entry in entries if entry.name.endswith(suffix)]
            numbers += [int(name) for name in names if name.isdecimal()]
        return numbers


def _read_note(path: Path) -> TaskCounts | None:
    """Return the note of a running task; None if the task has ended, or is writing the note."""
    with suppress(OSError, ValueError, TypeError):
        return TaskCounts(*orjson.loads(path.read_bytes()))
    return None


class RunningNote:
    """The note of a running task. Use it as a context: the note is deleted at the end of the task."""

    def __init__(self, folder: Path, number: int) -> None:
        self.path = numbered_path(folder, number, RUNNING)
        self.clock, self.before = Every(NOTE_SECONDS), bytes_read()
        self.is_written = False
        self.counts, self.batch, self.share = (0, 0, 0), (0, 0), 0.0

    def __enter__(self) -> RunningNote:
        listen(self.part)
        return self

    def begin(self, documents: int, size: int) -> None:
        """Begin a batch of `documents` documents with `size` bytes."""
        self.batch, self.share = (documents, size), 0.0

    def part(self, share: float) -> None:
        """Count a share of the batch as done. Progress is the highest share so far, because the share begins
        again at 0 when a second slow stage starts."""
        self.share = max(self.share, share)
        documents, size = (int(self.share * number) for number in self.batch)
        self._store(self.counts[0] + documents, self.counts[1] + size, self.counts[2])

    def write(self, documents: int, size: int, kept: int) -> None:
        """Note the counts of complete batches, at most once per second."""
        self.counts = documents, size, kept
        self._store(*self.counts)

    def _store(self, documents: int, size: int, kept: int) -> None:
        if self.clock.is_due():
            self.path.parent.mkdir(exist_ok=True)  # a subfolder of `numbered_path`
            self.path.write_bytes(orjson.dumps((documents, size, kept, bytes_read() - self.before)))
            self.is_written = True

    def __exit__(self, *error: object) -> None:
        listen(None)
        if self.is_written:
            self.path.unlink(missing_ok=True)
