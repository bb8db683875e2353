# SPDX-License-Identifier: Apache-2.0
"""Streamed data sets are collected into files before the plan: `_work/collected/<input>/NNNNNN.arrow`.

The runner reads data sets one after the other, in order, up to their budgets. It holds one file in memory at a time (up
to 32 MiB of text or 100,000 rows). The done-record of a file has the position in the data set after the file, from
which the next try resumes. Documents that arrived before a connection broke are kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation import __version__
from curation.base.contract import TEXT, Engine
from curation.base.errors import InputError, counted
from curation.base.system.files import commit, numbered_path, remove
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.packages import package_version
from curation.base.system.progress import Progress
from curation.base.system.sealed import read_sealed, write_sealed
from curation.base.system.steps import Count
from curation.reading.documents import REJECTED
from curation.reading.inputs import Budget, HubInput, entries_by_name, hub_label
from curation.reading.minima import check_fewest, check_minimum
from curation.reading.sampling import chosen
from curation.reading.source_files import CarriedColumn, SourceFile
from curation.reading.urls import scrubbed, shown
from curation.recipes.recipe import Recipe
from curation.record.folder import COLLECTED

MAX_FILE_BYTES = 32 << 20  # of text
MAX_FILE_ROWS = 100_000
MAX_TRIES = 4  # consecutive tries without a new batch
FIRST_WAIT_SECONDS = 1.0
DESCRIPTION = "source.json"


class SavedTable(msgspec.Struct, kw_only=True):
    """The done-record of one collected file."""

    rows: int = 0
    bytes: int = 0  # of text
    skipped: int = 0  # documents that `sample` skipped
    arrived: int = 0  # documents of the data set, before `skip`, `limit` and `sample`
    place: dict[str, Any] | None = None  # position in the data set after the last batch
    done: bool = False  # whether the data set has ended, or its budget is reached


class Collected(NamedTuple):
    """The files collected from one input, with their documents, bytes of text, and documents that `sample` skipped."""

    files: list[SourceFile]
    documents: int
    bytes: int
    skipped: int


def collect(
    recipe: Recipe, files: Sequence[SourceFile], engine: Engine, work: Path, progress: Progress
) -> list[SourceFile]:
    """Collect each streamed data set into local files. Return `files` with these in place of the data sets.

    `work` is the folder `_work/`. `recipe.budget` limits all data sets together, in their order. Raises InputError if a
    data set cannot be read up to its budget, or has less than its `min_bytes`.
    """
    result: list[SourceFile] = []
    documents = size = 0
    entries, seed = entries_by_name(recipe.input), recipe.seed
    for file in files:
        entry = entries[file.source]
        if not isinstance(entry, HubInput):
            result.append(file)
            continue
        remaining = _remaining(entry, recipe.budget, documents, size)
        collected = _Source(entry, file, remaining, seed, work / COLLECTED / file.source).collect(engine, progress)
        documents, size = documents + collected.documents, size + collected.bytes
        result += collected.files
        if entry.skip and not collected.documents + collected.skipped:
            raise InputError(f"{hub_label(entry)}: skip {entry.skip:,} leaves nothing of it. Lower skip")
        check_minimum(hub_label(entry), collected.bytes, entry.min_bytes, entry.max_bytes)
        check_fewest(hub_label(entry), collected.documents, entry.min_documents)
    return result


def _remaining(entry: HubInput, budget: Budget, documents: int, size: int) -> tuple[int, int]:
    """Return the documents and bytes that the budgets still allow; -1 for no limit."""
    pairs = (entry.max_documents, budget.max_documents, documents), (entry.max_bytes, budget.max_bytes, size)
    remaining = []
    for own, shared, used in pairs:
        limits = [own] * bool(own) + [max(shared - used, 0)] * bool(shared)
        remaining.append(min(limits, default=-1))
    return remaining[0], remaining[1]


def _library_version() -> str:
    try:
        return package_version("datasets")
    except PackageNotFoundError:
        return ""


def _stored(entry: HubInput) -> list[str] | dict[str, str | CarriedColumn]:
    """Return the setting `columns` to read a collected file with. The file has the columns under the new names that
    `columns` of the input gives."""
    if not isinstance(entry.columns, dict):
        return entry.columns
    return {
        name: name if isinstance(each, str) else msgspec.structs.replace(each, field=name)
        for name, each in entry.columns.items()
    }


class _Source:
    """The collection of one data set into files."""

    def __init__(self, entry: HubInput, file: SourceFile, remaining: tuple[int, int], seed: int, folder: Path) -> None:
        self.entry, self.file, self.remaining, self.seed, self.folder = entry, file, remaining, seed, folder
        self.saved: list[SavedTable] = []
        self.pending: list[pa.Table] = []
        self.next = SavedTable()

    def collect(self, engine: Engine, progress: Progress) -> Collected:
        self._resume()
        tries, wait = MAX_TRIES, FIRST_WAIT_SECONDS
        if self.saved and not self.saved[-1].done:
            progress.log(f"{self.file.source}: resuming after {counted(self.documents, 'document')}")
        while not (self.saved and self.saved[-1].done):
            before = self.arrived
            try:
                with progress.watch(f"collecting {self.file.source}", 0, self._count, unit=""):
                    self._read(engine)
            except ConnectionError as error:
                progressed = self.arrived > before
                tries, wait = (MAX_TRIES, FIRST_WAIT_SECONDS) if progressed else (tries - 1, wait * 2)
                if not tries:
                    raise InputError(
                        f"{self.file.path}: the connection broke after {self.documents:,} documents, {MAX_TRIES} times "
                        f"({scrubbed(error)}). They are kept. Rerun the same command without --force to resume"
                    ) from None
                check_interrupts()
                time.sleep(wait)
        progress.log(f"{self.file.source}: {counted(self.documents, 'document')}, {self.bytes / 1e6:,.1f} MB collected")
        paths = [numbered_path(self.folder, number, ".arrow") for number in range(len(self.saved))]
        return Collected([self._as_file(path) for path in paths], self.documents, self.bytes, self.skipped)

    def _count(self) -> Count:
        limits = zip((self.documents, self.bytes), self.remaining, strict=True)
        share = max((done / limit for done, limit in limits if limit > 0), default=None)
        return Count(len(self.saved), self.documents, self.bytes, share=None if share is None else min(share, 1.0))

    @property
    def documents(self) -> int:
        return sum(table.rows for table in (*self.saved, self.next))

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in (*self.saved, self.next))

    @property
    def arrived(self) -> int:
        return sum(table.arrived for table in (*self.saved, self.next))

    @property
    def skipped(self) -> int:
        return sum(table.skipped for table in (*self.saved, self.next))

    def _resume(self) -> None:
        """Load the records of files that an earlier try collected from the same input. Delete files of another
        input."""
        description = {
            "version": __version__,
            "datasets": _library_version(),  # a version may not understand the position that another version stored
            "input": msgspec.to_builtins(self.entry) | {"data_files": shown(self.entry.data_files)},
            "left": list(self.remaining),
            "seed": self.seed,
        }
        known = self.folder / DESCRIPTION
        if not known.exists() or read_sealed(known) != description:
            remove(self.folder)
            write_sealed(known, description)
        while (path := numbered_path(self.folder, len(self.saved), ".json")).exists():
            self.saved.append(read_sealed(path, SavedTable))

    def _read(self, engine: Engine) -> None:
        """Read from the last stored position to the end. After a broken connection, too, write the documents that
        arrived."""
        start = self.saved[-1].place if self.saved else None
        try:
            for table, place in self._batches(start):
                check_interrupts()
                done = self._take(engine, table)
                self.next.place = place
                if done or self.next.bytes >= MAX_FILE_BYTES or self.next.rows >= MAX_FILE_ROWS:
                    self._flush(done)
                if done:
                    return
        except ConnectionError:
            if self.next.place is not None:
                self._flush(False)
            raise
        self._flush(True)

    def _batches(self, place: dict[str, Any] | None) -> Iterator[tuple[pa.Table, dict[str, Any]]]:
        if 0 in self.remaining:  # earlier inputs reached the shared budget
            return iter(())
        from curation.reading.hub import HubSource  # with HTTP, which most runs do not need

        return iter(HubSource(self.entry, place))

    def _take(self, engine: Engine, table: pa.Table) -> bool:
        """Add the sampled rows of a table, up to the budget; return whether the budget is reached."""
        table, is_last = self._within(table)
        if self.entry.sample < 1:
            mask = chosen(engine, engine.from_arrow(table.combine_chunks()), self.entry.sample, self.seed)
            self.next.skipped += int(np.count_nonzero(~mask))
            table = table.filter(pa.array(mask))
        max_documents, max_bytes = self.remaining
        sizes = np.asarray(pc.fill_null(pc.binary_length(table.column(TEXT)), 0).to_numpy())
        ends = self.bytes + np.cumsum(sizes)
        rows = len(table)
        if max_bytes >= 0:  # the document that reaches the budget is the last one
            rows = min(rows, int(np.searchsorted(ends, max_bytes)) + 1)
        if max_documents >= 0:
            rows = min(rows, max_documents - self.documents)
        self.pending.append(table.slice(0, rows))
        self.next.rows += rows
        self.next.bytes += int(sizes[:rows].sum())
        full_bytes = max_bytes >= 0 and self.bytes >= max_bytes
        return is_last or full_bytes or (max_documents >= 0 and self.documents >= max_documents)

    def _within(self, table: pa.Table) -> tuple[pa.Table, bool]:
        """Return the rows that `skip` and `limit` of the data set select, and whether no later row can be selected."""
        first, skip = self.arrived, self.entry.skip
        self.next.arrived += len(table)
        stop = skip + self.entry.limit if isinstance(self.entry.limit, int) else first + len(table) + 1
        start = min(max(skip - first, 0), len(table))
        return table.slice(start, max(min(stop - first, len(table)) - start, 0)), stop <= first + len(table)

    def _flush(self, done: bool) -> None:
        """Write the pending rows as a file, then its done-record."""
        self.next.done = done
        path = numbered_path(self.folder, len(self.saved), ".arrow")
        names = ["id", TEXT, *self.entry.carried]
        names += [REJECTED] if any(REJECTED in table.column_names for table in self.pending) else []
        schema = pa.schema([(name, pa.large_string()) for name in names])
        with commit(path) as temporary, pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as file:
            for table in self.pending:
                file.write_table(table.select(names).cast(schema))
        if self.next.place is None and self.saved:
            self.next.place = self.saved[-1].place
        write_sealed(numbered_path(self.folder, len(self.saved), ".json"), msgspec.to_builtins(self.next))
        self.saved.append(self.next)
        self.next, self.pending = SavedTable(), []

    def _as_file(self, path: Path) -> SourceFile:
        status = path.stat()
        commits = [table.place["commit"] for table in self.saved if table.place]
        return msgspec.structs.replace(
            self.file, path=str(path), label=self.file.path, commit=commits[-1] if commits else "", format="arrow",
            bytes=status.st_size, modified_ns=status.st_mtime_ns, text_column=TEXT, id_column="id",
            columns=_stored(self.entry), sample=1.0,
        )  # fmt: skip
