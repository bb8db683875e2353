# SPDX-License-Identifier: Apache-2.0
"""The types that stages receive and return: outcomes of frames, the corpus and decisions about it, counts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from shutil import copyfile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np

from curation.base.arrays import batches_of, load_mapped, load_writable, positions_of
from curation.base.contract import TEXT, Text, position_type
from curation.base.errors import StageError
from curation.base.system.files import commit
from curation.base.system.steps import each
from curation.rules.decide import Verdict
from curation.rules.group_tallies import GroupCounts
from curation.rules.tallies import Tally

if TYPE_CHECKING:
    import pyarrow as pa

ADVICE = "Use one type for all, as np.array(values, np.int64)"  # for keys
CUT = ("bytes_before", "cut_bytes")  # fields of StageCount
BYTES = "bytes"  # column of a storage: sizes of texts
EMPTY: Mapping[str, Any] = MappingProxyType({})


def key_column(stage: int, name: str) -> str:
    """Return the name of the storage's column with the key `name` of the corpus stage number `stage`."""
    return f"{stage}.{name}"


class Outcome(NamedTuple):
    """The result of a row stage for one frame, in the order of its rows.

    verdict   rows to remove, with reasons; None removes none
    text      texts after the stage: a text of the engine or an Arrow string array, one per row; None changes none. A
              text may be null only where it was null before
    edited    bool, one per row: true if the text changed; required with `text`, and only then
    columns   name -> values of every column in the stage's `writes`: NumPy or Arrow arrays, one value per row; nulls
              are kept
    details   name -> integer for the stage's entry in the report, summed over all frames, such as rows by language
    measures  name -> int64, one value per row, for every measure in the stage's `ShownRules.of_documents`
    unit_measures  name -> int64, one value per unit, for every measure in the stage's `ShownRules.of_units`
    groups    number of the group of each row, integers; one array for each column in its `ShownRules.by_group`
    """

    verdict: Verdict | None = None
    text: Text | None = None
    edited: np.ndarray | None = None
    columns: Mapping[str, Any] = EMPTY
    details: Mapping[str, int] = EMPTY
    measures: Mapping[str, np.ndarray] = EMPTY
    unit_measures: Mapping[str, np.ndarray] = EMPTY
    groups: tuple[np.ndarray, ...] = ()


class Drops(NamedTuple):
    """Rows of a corpus that a stage removes for one reason.

    row           integers, ascending and unique: values of `Corpus.rows`
    reason        name in `removed/` and in the report
    value         number shown with the reason, such as a similarity; float64, one per row or one for all
    partner       row kept in place of the removed one, -1 for none; integers, one per row or one for all. With
                  `index_folder` the number of a document in that index
    index_folder  folder of a saved index; "" if partners are rows of the corpus
    """

    row: np.ndarray
    reason: str
    value: np.ndarray | float
    partner: np.ndarray | int
    index_folder: str = ""


class Cuts(NamedTuple):
    """Spans of UTF-8 bytes that a stage cuts out of texts; three int64 arrays of one length.

    row    values of `Corpus.rows`, ascending
    start  first byte of the span in the text of the row; ascending within a row
    stop   byte after the span

    Spans are not empty, do not overlap, and begin and end between code points.
    """

    row: np.ndarray
    start: np.ndarray
    stop: np.ndarray


class Decision(NamedTuple):
    """The decision of a corpus stage: rows to remove and spans to cut.

    drops    rows to remove, each row once, grouped by reason
    cuts     spans to cut, if the class has `cuts_text = True` and its tasks do not store them (`store_cuts`). Those of
             dropped rows have no effect
    details  JSON values for the stage's entry in the report; NumPy numbers and arrays are allowed
    copies   uint16, one per row of the corpus: how often the documents are written, 0 for dropped rows. Only the
             last stage of a recipe may have copies. None: each document is written once
    """

    drops: tuple[Drops, ...] = ()
    cuts: Cuts | None = None
    details: Mapping[str, Any] = EMPTY
    copies: np.ndarray | None = None

    @property
    def dropped(self) -> np.ndarray:
        """All removed rows, in the order of `drops`."""
        return np.concatenate([np.zeros(0, np.int64), *(drops.row for drops in self.drops)])


class Storage(Protocol):
    """Storage of the rows of a corpus, in consecutive partitions."""

    starts: np.ndarray  # int64: first row of each partition, then the total number of rows

    def key_names(self, partition: int) -> Sequence[str]:
        """Return the names of the key columns of all stages."""
        ...

    def key_type(self, partition: int, name: str) -> np.dtype:
        """Return the type of a key column: int64 or uint64."""
        ...

    def read_keys(self, partition: int, name: str, rows: np.ndarray, out: np.ndarray) -> None:
        """Write the keys at `rows` to `out`. `rows` is ascending, not empty, within this partition, and counted over
        all partitions."""
        ...

    def read_texts(self, partition: int, rows: np.ndarray, column: str) -> Iterator[Callable[[], pa.Array]]:
        """Yield functions that read the values of a column at `rows`, one batch each. `rows` is as in `read_keys`.
        Other threads may call the functions."""
        ...


class Corpus:
    """All rows that reached a corpus stage, in order. Key columns are loaded one at a time.

    storage   the stored rows
    rows      rows that earlier stages kept, ascending; integers of `contract.position_type`. Given as numbers, or
              as the `.npy` file of a mask (bool, one per stored row), which is read when `rows` is first used
    stage     number of the stage, for `key_column`
    scratch   folder that only this stage uses; it may not exist yet
    sources   (name, first row, row after the last) of each input
    workers   number of threads of all machines that the stage may use
    """

    def __init__(
        self,
        storage: Storage,
        rows: np.ndarray | Path,
        stage: int,
        scratch: Path,
        sources: Sequence[tuple[str, int, int]] = (),
        workers: int = 1,
    ) -> None:
        self.storage = storage
        self.given = rows
        self.stage = stage
        self.scratch = scratch
        self.sources = sources
        self.workers = workers

    @property
    def threads(self) -> int:
        """The number of threads that a task of the stage may use on this machine."""
        return min(self.workers, len(os.sched_getaffinity(0)))

    @cached_property
    def rows(self) -> np.ndarray:
        """The rows of the corpus as numbers. If a file with a mask was given, it is read here."""
        if isinstance(self.given, Path):
            return positions_of(load_mapped(self.given))
        return self.given.astype(position_type(int(self.storage.starts[-1])), copy=False)

    def present(self) -> np.ndarray:
        """Return a bool per stored row: true for rows of the corpus. If the rows were given as a file, the array is a
        memory map of a new file in `scratch`."""
        if isinstance(self.given, Path):
            copy = self.scratch / "present.npy"
            with commit(copy) as path:  # a process that has lost its lease may have mapped an earlier copy
                copyfile(self.given, path)
            return load_writable(copy)
        mask = np.zeros(int(self.storage.starts[-1]), bool)
        for batch in batches_of(len(self.rows)):
            mask[self.rows[batch]] = True
        return mask

    def between(self, first: int, last: int) -> Corpus:
        """Return the corpus of the rows in the partitions `first` to `last` (exclusive) of the storage."""
        low, high = (int(self.storage.starts[partition]) for partition in (first, last))
        if isinstance(self.given, Path):
            rows = positions_of(load_mapped(self.given)[low:high]).astype(np.int64) + low
        else:
            rows = self.rows[slice(*np.searchsorted(self.rows, np.array([low, high], self.rows.dtype)))]
        return self.of(rows)

    def of(self, rows: np.ndarray) -> Corpus:
        """Return the corpus of some of the rows, ascending."""
        return Corpus(self.storage, rows, self.stage, self.scratch, self.sources, self.workers)

    def column(self, name: str, positions: np.ndarray | None = None) -> np.ndarray:
        """Return a key column at `rows`, or at `rows[positions]` (`positions` ascending); int64 or uint64. Raises
        StageError for an unknown name."""
        return self._gather(key_column(self.stage, name), positions)

    def byte_lengths(self) -> np.ndarray:
        """Return the size of each text at `rows` in bytes of UTF-8, int64."""
        return self._gather(BYTES)

    def texts(self, positions: np.ndarray, column: str = TEXT) -> Iterator[Callable[[], pa.Array]]:
        """Yield functions that read the texts at `rows[positions]` (`positions` ascending), one stored batch each.
        `column` may also name another column that the stage reads. Other threads may call the functions."""
        rows = self.rows[positions]
        pieces = each(
            self._pieces(rows), "reading texts", "document", total=len(rows), worth=lambda piece: piece[2] - piece[1]
        )
        for partition, first, last in pieces:
            yield from self.storage.read_texts(partition, rows[first:last], column)

    def select(self, positions: np.ndarray) -> Corpus:
        """Return the corpus of `rows[positions]` (`positions` ascending)."""
        return self.of(self.rows[positions])

    def _gather(self, name: str, positions: np.ndarray | None = None) -> np.ndarray:
        rows = self.rows if positions is None else self.rows[positions]
        out = None
        for partition, first, last in self._pieces(rows):
            kind = self._key_type(partition, name)
            out = np.empty(len(rows), kind) if out is None else out
            if kind != out.dtype:
                key = self._key_name(name)
                raise StageError(f"the key {key} is {out.dtype} for some rows, {kind} for others. {ADVICE}")
            self.storage.read_keys(partition, name, rows[first:last], out[first:last])
        return np.zeros(0, np.uint64) if out is None else out

    def _key_type(self, partition: int, name: str) -> np.dtype:
        names = self.storage.key_names(partition)
        if name in names:
            return self.storage.key_type(partition, name)
        keys = [self._key_name(other) for other in names if other.startswith(key_column(self.stage, ""))]
        raise StageError(f"the corpus has no column {self._key_name(name)!r}; keys() gives {', '.join(keys) or 'none'}")

    def _key_name(self, name: str) -> str:
        """Return the name of a key column within the stage."""
        return name.removeprefix(key_column(self.stage, ""))

    def _pieces(self, rows: np.ndarray) -> Iterator[tuple[int, int, int]]:
        """Yield each partition with some of `rows`, and where these begin and end in `rows`."""
        if not len(rows):
            return
        first, last = (np.searchsorted(self.storage.starts, rows[[0, -1]], side="right") - 1).tolist()
        bounds = np.searchsorted(rows, self.storage.starts[first : last + 2].astype(rows.dtype))
        for place in np.flatnonzero(np.diff(bounds)).tolist():
            yield first + place, int(bounds[place]), int(bounds[place + 1])


class StageCount(msgspec.Struct, kw_only=True):
    """The entry of one stage in the funnel. Bytes are those of the UTF-8 text; `seconds` are summed over all workers.

    `tallies` has one entry for each of the stage's `ShownRules.rules`; `unit` names what these rules judge: lines,
    paragraphs or sentences.

    `bytes_before` are the bytes of the kept documents before the stage; `cut_bytes` is by how many bytes their texts
    become shorter.

    `groups` has the counts of the groups of each column in `ShownRules.by_group`. `tokens_per_byte` is for the lines of
    the report: tokens per byte of the kept text; None without tokens.

    `removes`, `compares` and `finds_duplicates` describe the class of the stage, which programs that read reports may
    not have.
    """

    kind: str
    name: str
    removes: bool = True
    compares: bool = False
    finds_duplicates: bool = False
    documents_in: int = 0
    documents_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    edited: int = 0
    bytes_before: int = 0
    cut_bytes: int = 0
    reasons: dict[str, int] = {}
    details: dict[str, Any] = {}
    seconds: float = 0.0
    tallies: list[Tally] = []
    groups: list[GroupCounts] = []
    unit: str = ""
    tokens_per_byte: float | None = None

    @property
    def removed(self) -> int:
        """Number of removed documents."""
        return sum(self.reasons.values())

    def add(self, other: StageCount) -> None:
        """Add the counts of another slice."""
        for field in ("documents_in", "documents_out", "bytes_in", "bytes_out", "edited", "seconds", *CUT):
            setattr(self, field, getattr(self, field) + getattr(other, field))
        for reason, number in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + number
        self.add_details(other.details)
        if other.tallies and not self.tallies:
            self.tallies = [Tally(share=tally.share) for tally in other.tallies]
        for tally, more in zip(self.tallies, other.tallies, strict=False):  # a slice without documents has no tallies
            tally.add(more)
        if other.groups and not self.groups:
            self.groups = [GroupCounts() for _ in other.groups]
        for counts, added in zip(self.groups, other.groups, strict=False):
            counts.add(added)

    def add_cuts(self, before: np.ndarray, after: np.ndarray) -> None:
        """Add the bytes of texts of kept documents before and after the stage (int64)."""
        self.bytes_before += int(before.sum())
        self.cut_bytes += int(np.maximum(before - after, 0).sum())

    def hide_texts(self) -> None:
        """Remove the texts from the entries of lists in the details."""
        for entries in self.details.values():
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict):
                    entry.pop("text", None)

    def add_details(self, details: Mapping[str, int]) -> None:
        """Add the details of a row stage's outcome."""
        for name, number in details.items():
            self.details[name] = self.details.get(name, 0) + number
