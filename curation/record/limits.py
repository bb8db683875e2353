# SPDX-License-Identifier: Apache-2.0
"""Limits of file inputs: `skip`, `limit`, budgets. The planning reads an input in order up to its last record within
the limits, and stores in each slice which of its records are read. So limits are exact, and do not depend on slices and
workers.

Only inputs with limits are read twice, and only up to this last record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import ROW, TEXT
from curation.base.engine import load_engine
from curation.base.errors import InputError, counted
from curation.base.system.interrupts import check as check_interrupts
from curation.reading.blank import read_visible
from curation.reading.formats import format_of
from curation.reading.inputs import AnyInput, Budget, FilesInput, entries_by_name
from curation.reading.sampling import chosen
from curation.reading.source_files import Slice
from curation.recipes.recipe import Recipe

BATCH_BYTES = 16 << 20


class Used(msgspec.Struct):
    """The documents and bytes of the budget that inputs have used so far."""

    documents: int = 0
    bytes: int = 0


class Limits:
    """The limits of one input, and how much of them the slices so far have used."""

    def __init__(self, name: str, entry: AnyInput, seed: int, budget: Budget, used: Used) -> None:
        self.name, self.entry, self.seed = name, entry, seed
        self.skip, self.records, self.own, self.used = entry.skip, 0, Used(), used
        self.limit = entry.limit if isinstance(entry.limit, int) else None
        self.budgets = [
            (setting, maximum, counts)
            for setting, maximum, counts in (
                ("max_documents", entry.max_documents, self.own),
                ("max_bytes", entry.max_bytes, self.own),
                ("budget.max_documents", budget.max_documents, used),
                ("budget.max_bytes", budget.max_bytes, used),
            )
            if maximum
        ]

    @property
    def is_done(self) -> bool:
        """Whether the rest of the input is read as a whole, so that no more records must be counted."""
        return not self.skip and self.limit is None and not self.budgets

    def reached(self) -> str:
        """Return the name of the limit that has been reached; "" if none has."""
        reached = (name for name, maximum, counts in self.budgets if _value(name, counts) >= maximum)
        return next(reached, "limit" if self.limit == 0 else "")

    def apply(self, slices: Iterable[Slice]) -> Iterator[Slice]:
        """Yield the slices of the input up to the last slice that is read. Each yielded slice has the range of its
        records to read."""
        is_whole = False  # whether slices follow whose records are not counted
        for input_slice in slices:
            if self.is_done:
                is_whole = True
                yield input_slice
                continue
            if ended := self.reached():  # a limit was reached before this slice
                yield msgspec.structs.replace(input_slice, stop=0, ended_by=ended)
                return
            limited = self._limited(input_slice)
            yield limited
            if limited.ended_by:
                return
        if self.entry.skip >= max(self.records, 1) and not is_whole:
            raise InputError(
                f"input {self.name!r}: skip {self.entry.skip:,} leaves nothing: the input has "
                f"{counted(self.records, 'record')}. Lower skip"
            )

    def _limited(self, input_slice: Slice) -> Slice:
        """Return the slice with its first record to read, and the record after its last."""
        skip, row, ended = self.skip, 0, ""
        for rows, positions, sizes in self._batches(input_slice):
            stop = self._stop(row, rows, positions, sizes)
            row = row + rows if stop is None else stop
            if stop is not None:
                ended = self.reached()
                break
        first = min(skip, row)
        self.records += row
        if ended:
            return msgspec.structs.replace(input_slice, skip=first, stop=row, ended_by=ended)
        return msgspec.structs.replace(input_slice, skip=first) if first else input_slice

    def _stop(self, row: int, rows: int, positions: np.ndarray, sizes: np.ndarray) -> int | None:
        """Return the record after the last one to read, if a limit ends in this batch; None if the batch is read to its
        end.

        row, rows          first record of the batch in the slice, and the number of records
        positions, sizes   records that are documents after `sample`, and the bytes of their texts
        """
        skipped = min(self.skip, rows)
        self.skip -= skipped
        first, stop = row + skipped, row + rows
        if self.limit is not None:
            stop = min(stop, first + self.limit)
            self.limit -= stop - first
        own = (positions >= first) & (positions < stop)
        positions, sizes = positions[own], sizes[own]
        ends = np.cumsum(sizes)
        taken = len(positions)
        for name, maximum, counts in self.budgets:
            left = maximum - _value(name, counts)
            taken = min(taken, left if name.endswith("documents") else int(np.searchsorted(ends, left)) + 1)
        for counts in (self.own, self.used):
            counts.documents += taken
            counts.bytes += int(ends[taken - 1]) if taken else 0
        if not self.reached():
            return None
        return stop if self.reached() == "limit" else int(positions[taken - 1]) + 1

    def _batches(self, input_slice: Slice) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield, batch by batch, the number of records of a slice, and the positions and bytes of text of documents
        after `sample`."""
        stored = [format_of(part.file).row_counts(part.file) for part in input_slice.ranges]
        if not self.budgets and None not in stored:
            pairs = zip(input_slice.ranges, stored, strict=True)
            nothing = np.zeros(0, np.int64)
            yield sum(sum((counts or [])[part.start : part.stop]) for part, counts in pairs), nothing, nothing
            return
        engine, share = load_engine("cpu"), self.entry.sample
        for documents in read_visible(input_slice, BATCH_BYTES):
            check_interrupts()
            table = documents.table
            if self.budgets and share < 1:
                frame = engine.from_arrow(table.combine_chunks())
                table = table.filter(pa.array(chosen(engine, frame, share, self.seed)))
            sizes = pc.binary_length(table.column(TEXT)).to_numpy()
            yield documents.rows, table.column(ROW).to_numpy(), sizes


def _value(name: str, counts: Used) -> int:
    return counts.documents if name.endswith("documents") else counts.bytes


def limit_slices(slices: Iterable[Slice], recipe: Recipe) -> Iterator[Slice]:
    """Yield the slices of a run, without slices after the limits of their inputs.

    Raises InputError for an input whose `skip` leaves nothing, and for a file that cannot be read.
    """
    entries, used, budget = entries_by_name(recipe.input), Used(), file_budget(recipe.input, recipe.budget)
    has_budget = bool(budget.max_documents or budget.max_bytes)
    for name, own in groupby(slices, key=lambda each: each.source):
        entry = entries[name]
        if isinstance(entry, FilesInput) and (entry.is_limited or has_budget):
            yield from Limits(name, entry, recipe.seed, budget, used).apply(own)
        else:
            yield from own


def file_budget(entries: Sequence[AnyInput], budget: Budget) -> Budget:
    """Return the budget for inputs of files; an empty budget if some inputs are streamed."""
    return budget if all(isinstance(entry, FilesInput) for entry in entries) else Budget()


def limited_shares(recipe: Recipe, counts: Mapping[str, tuple[int, int]]) -> dict[str, float]:
    """Return for each input the share of its documents after `sample` that limits allow; 1 without limits.

    counts   input -> documents and bytes of text, estimated
    """
    shares, used = {}, Used()
    budget = file_budget(recipe.input, recipe.budget)
    for name, entry in entries_by_name(recipe.input).items():
        documents, size = counts.get(name, (0, 0))
        left = max(documents - entry.skip, 0)
        left = min(left, entry.limit) if isinstance(entry.limit, int) else left
        share = left / documents if documents else 1.0
        taken, taken_bytes = share * documents * entry.sample, share * size * entry.sample
        caps = [
            (maximum - before) / found
            for maximum, before, found in (
                (entry.max_documents, 0, taken),
                (entry.max_bytes, 0, taken_bytes),
                (budget.max_documents, used.documents, taken),
                (budget.max_bytes, used.bytes, taken_bytes),
            )
            if maximum and found
        ]
        cap = min([1.0, *(max(cap, 0.0) for cap in caps)])
        used.documents += round(taken * cap)
        used.bytes += round(taken_bytes * cap)
        shares[name] = share * cap
    return shares
