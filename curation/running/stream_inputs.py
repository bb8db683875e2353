# SPDX-License-Identifier: Apache-2.0
"""Streamed data sets become files before a run is planned: `_work/collected/<input>/NNNNNN.arrow`.

They are read one after the other, in order, up to their budgets. A piece of some megabytes is in memory at a time; its
record holds the place behind it, from which the next try goes on. What a connection had given when it broke is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation import __version__
from curation.contract import TEXT, Engine
from curation.errors import InputError
from curation.files import commit, piece_path, read_json, remove, write_json
from curation.reading.hub import HubSource
from curation.reading.inputs import Budget, HubInput, entries_by_name, hub_label
from curation.reading.sampling import chosen
from curation.reading.source_files import SourceFile
from curation.reading.urls import scrubbed, shown
from curation.recipe import Recipe
from curation.running.progress import Progress

PIECE_BYTES = 32 << 20  # of text in a file
PIECE_ROWS = 100_000
TRIES = 4  # without a new batch between them
FIRST_WAIT_SECONDS = 1.0
DESCRIPTION = "source.json"
FOLDER = "collected"


class Piece(msgspec.Struct, kw_only=True):
    """The done-record of one file."""

    rows: int = 0
    bytes: int = 0  # of text
    passed_over: int = 0  # by `sample`
    place: dict[str, Any] | None = None  # behind the last batch
    done: bool = False  # the data set is at its end, or its budget is used up


class Collected(NamedTuple):
    """What was taken of one input."""

    files: list[SourceFile]
    documents: int
    bytes: int
    passed_over: int


def clear_work(work: Path) -> None:
    """Deletes what stands in a work folder without a plan, but for what was collected: the next try goes on with it."""
    for path in work.iterdir() if work.is_dir() else ():
        if path.name != FOLDER:
            remove(path)


def collect(
    recipe: Recipe, files: Sequence[SourceFile], engine: Engine, work: Path, progress: Progress
) -> list[SourceFile]:
    """The files with each streamed data set replaced by what was collected of it.

    `recipe.budget` is of all data sets together, in their order. Raises InputError where a data set cannot be read to
    the end of its budget, or where less than `min_bytes` came.
    """
    found: list[SourceFile] = []
    documents = size = 0
    entries, seed = entries_by_name(recipe.input), recipe.seed
    for file in files:
        entry = entries[file.source]
        if not isinstance(entry, HubInput):
            found.append(file)
            continue
        left = _left(entry, recipe.budget, documents, size)
        taken = _Source(entry, file, left, seed, work / FOLDER / file.source).collect(engine, progress)
        documents, size = documents + taken.documents, size + taken.bytes
        found += taken.files
        check_minimum(hub_label(entry), taken.bytes, entry.min_bytes, entry.max_bytes)
    return found


def _left(entry: HubInput, budget: Budget, documents: int, size: int) -> tuple[int, int]:
    """Documents and bytes that may still be taken; -1 for any number."""
    pairs = (entry.max_documents, budget.max_documents, documents), (entry.max_bytes, budget.max_bytes, size)
    found = []
    for own, shared, used in pairs:
        limits = [own] * bool(own) + [max(shared - used, 0)] * bool(shared)
        found.append(min(limits, default=-1))
    return found[0], found[1]


def check_minimum(what: str, size: int, least: int, most: int = 0) -> None:
    """InputError where an input has less text than it has to have."""
    if size < least:
        short = " and the budget ends there" if most and most < least else ""
        raise InputError(
            f"{what} gave {size:,} bytes of text{short}, min_bytes asks for {least:,}. Add inputs, or lower min_bytes"
        )


class _Source:
    """One data set on its way into files."""

    def __init__(self, entry: HubInput, file: SourceFile, left: tuple[int, int], seed: int, folder: Path) -> None:
        self.entry, self.file, self.left, self.seed, self.folder = entry, file, left, seed, folder
        self.pieces: list[Piece] = []
        self.waiting: list[pa.Table] = []
        self.next = Piece()

    def collect(self, engine: Engine, progress: Progress) -> Collected:
        self._resume()
        tries, wait = TRIES, FIRST_WAIT_SECONDS
        if self.pieces and not self.pieces[-1].done:
            progress.say(f"{self.file.source}: goes on after {self.documents:,} documents")
        while not (self.pieces and self.pieces[-1].done):
            before = self.documents + self.passed_over
            try:
                self._read(engine)
            except ConnectionError as error:
                moved = self.documents + self.passed_over > before
                tries, wait = (TRIES, FIRST_WAIT_SECONDS) if moved else (tries - 1, wait * 2)
                if not tries:
                    raise InputError(
                        f"{self.file.path}: the connection broke after {self.documents:,} documents, {TRIES} times "
                        f"({scrubbed(error)}). They are kept; the same command, without --force, goes on from here"
                    ) from None
                time.sleep(wait)
        progress.say(f"{self.file.source}: {self.documents:,} documents, {self.bytes / 1e6:,.1f} MB collected")
        paths = [piece_path(self.folder, number, ".arrow") for number in range(len(self.pieces))]
        return Collected([self._as_file(path) for path in paths], self.documents, self.bytes, self.passed_over)

    @property
    def documents(self) -> int:
        return sum(piece.rows for piece in (*self.pieces, self.next))

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in (*self.pieces, self.next))

    @property
    def passed_over(self) -> int:
        return sum(piece.passed_over for piece in (*self.pieces, self.next))

    def _resume(self) -> None:
        """Takes what an earlier try left of the same input, and deletes what it left of another."""
        description = {
            "version": __version__,
            "input": msgspec.to_builtins(self.entry) | {"data_files": shown(self.entry.data_files)},
            "left": list(self.left),
            "seed": self.seed,
        }
        if read_json(self.folder / DESCRIPTION) != description:
            remove(self.folder)
            write_json(self.folder / DESCRIPTION, description)
        while (record := read_json(piece_path(self.folder, len(self.pieces), ".json"))) is not None:
            self.pieces.append(msgspec.convert(record, Piece))

    def _read(self, engine: Engine) -> None:
        """Reads on from the last place to the end; whatever ends it, what came is written."""
        start = self.pieces[-1].place if self.pieces else None
        try:
            for table, place in self._batches(start):
                done = self._take(engine, table)
                self.next.place = place
                if done or self.next.bytes >= PIECE_BYTES or self.next.rows >= PIECE_ROWS:
                    self._flush(done)
                if done:
                    return
        except ConnectionError:
            if self.next.place is not None:
                self._flush(False)
            raise
        self._flush(True)

    def _batches(self, place: dict[str, Any] | None) -> Iterator[tuple[pa.Table, dict[str, Any]]]:
        if 0 in self.left:  # others have used up the budget
            return iter(())
        return iter(HubSource(self.entry, place))

    def _take(self, engine: Engine, table: pa.Table) -> bool:
        """Adds the sampled rows of a table, up to the budget; whether that is used up."""
        if self.entry.sample < 1:
            mask = chosen(engine, engine.from_arrow(table.combine_chunks()), self.entry.sample, self.seed)
            self.next.passed_over += int(np.count_nonzero(~mask))
            table = table.filter(pa.array(mask))
        most_documents, most_bytes = self.left
        sizes = np.asarray(pc.fill_null(pc.binary_length(table.column(TEXT)), 0).to_numpy())
        ends = self.bytes + np.cumsum(sizes)
        rows = len(table)
        if most_bytes >= 0:  # the document that reaches the budget is the last one
            rows = min(rows, int(np.searchsorted(ends, most_bytes)) + 1)
        if most_documents >= 0:
            rows = min(rows, most_documents - self.documents)
        self.waiting.append(table.slice(0, rows))
        self.next.rows += rows
        self.next.bytes += int(sizes[:rows].sum())
        full_bytes = most_bytes >= 0 and self.bytes >= most_bytes
        return full_bytes or (most_documents >= 0 and self.documents >= most_documents)

    def _flush(self, done: bool) -> None:
        """Writes the waiting rows as a file, and its record."""
        self.next.done = done
        path = piece_path(self.folder, len(self.pieces), ".arrow")
        names = ["id", TEXT, *self.entry.columns]
        schema = pa.schema([(name, pa.large_string()) for name in names])
        with commit(path) as temporary, pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as file:
            for table in self.waiting:
                file.write_table(table.select(names).cast(schema))
        if self.next.place is None and self.pieces:
            self.next.place = self.pieces[-1].place
        write_json(piece_path(self.folder, len(self.pieces), ".json"), msgspec.to_builtins(self.next))
        self.pieces.append(self.next)
        self.next, self.waiting = Piece(), []

    def _as_file(self, path: Path) -> SourceFile:
        status = path.stat()
        commits = [piece.place["commit"] for piece in self.pieces if piece.place]
        return msgspec.structs.replace(
            self.file, path=str(path), label=self.file.path, commit=commits[-1] if commits else "", format="arrow",
            bytes=status.st_size, modified_ns=status.st_mtime_ns, text_column=TEXT, id_column="id", sample=1.0,
        )  # fmt: skip
