# SPDX-License-Identifier: Apache-2.0
"""What stages are given and what they give back: outcomes of frames, decisions about a corpus, counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np

from curation.contract import Text, position_type
from curation.errors import StageError
from curation.rules import Verdict

if TYPE_CHECKING:
    import pyarrow as pa

ADVICE = "Give all one type, as np.array(values, np.int64)"  # for keys
BYTES = "bytes"  # the column of a storage that has the sizes of texts
EMPTY: Mapping[str, Any] = MappingProxyType({})


def key_column(stage: int, name: str) -> str:
    """The storage's column that holds the key `name` of the corpus stage number `stage`."""
    return f"{stage}.{name}"


class Outcome(NamedTuple):
    """What a row stage says about the rows of one frame, in their order.

    verdict   which rows it removes, and why; None removes none
    text      the texts after the stage: a text of the engine, or an Arrow array; None leaves them as they are
    edited    bool, one per row: whether its text is another one; comes with `text`, which has no nulls
    columns   name -> values of every column in the stage's `writes`: NumPy or Arrow arrays, one value per row
    details   integers for the stage's entry in the report, added up over all frames: edits by kind, rows by language
    """

    verdict: Verdict | None = None
    text: Text | None = None
    edited: np.ndarray | None = None
    columns: Mapping[str, Any] = EMPTY
    details: Mapping[str, int] = EMPTY


class Drops(NamedTuple):
    """Rows of a corpus that a stage removes for one reason.

    row      int, ascending: positions among all rows, as in `Corpus.rows`
    value    float64: what is shown with the reason, such as a similarity; one number for all will do
    partner  int: the row that stays in its place, -1 for none; with `index_folder` the number of a document there; one
             for all will do
    index_folder   the folder of the saved index that `partner` counts in
    """

    row: np.ndarray
    reason: str
    value: np.ndarray | float
    partner: np.ndarray | int
    index_folder: str = ""


class Cuts(NamedTuple):
    """Spans of UTF-8 bytes that a stage cuts out of texts: `start` to `stop` of the text of `row`. Sorted by row and
    start; spans of a row do not overlap, and begin and end between code points. All int64."""

    row: np.ndarray
    start: np.ndarray
    stop: np.ndarray


class Decision(NamedTuple):
    """What a corpus stage decides: rows to remove, no row twice, or spans to cut. `details`, which are JSON, go to the
    report."""

    drops: tuple[Drops, ...] = ()
    cuts: Cuts | None = None
    details: Mapping[str, Any] = EMPTY

    @property
    def dropped(self) -> np.ndarray:
        """The rows that are removed."""
        return np.concatenate([np.zeros(0, np.int64), *(found.row for found in self.drops)])


class Storage(Protocol):
    """Where the rows of a corpus are: in pieces, one after the other."""

    starts: np.ndarray  # int64: the first row of each piece, and the row after the last one

    def key_names(self, piece: int) -> Sequence[str]:
        """The key columns of all stages."""
        ...

    def key_type(self, piece: int, name: str) -> np.dtype:
        """The type of a key column."""
        ...

    def read_keys(self, piece: int, name: str, rows: np.ndarray, out: np.ndarray) -> None:
        """Into `out` the keys at `rows`: ascending, at least one, all of the piece, counted from the first piece on."""
        ...

    def read_texts(self, piece: int, rows: np.ndarray) -> Iterator[Callable[[], pa.LargeStringArray]]:
        """What reads the texts at `rows`, which are as those of `read_keys`. It may be called in another thread."""
        ...


class Corpus:
    """All rows that reached a corpus stage, in order; key columns are loaded one at a time.

    rows      positions (of `contract.position_type`) of the rows that are still there, ascending
    stage     number of the stage; the storage has its keys under `key_column`
    scratch   a folder for this stage alone; it may not exist yet
    sources   (name, first row, row after the last) of each input
    workers   threads that a stage may use
    """

    def __init__(
        self,
        storage: Storage,
        rows: np.ndarray,
        stage: int,
        scratch: Path,
        sources: Sequence[tuple[str, int, int]] = (),
        workers: int = 1,
    ) -> None:
        self.storage = storage
        self.rows = rows.astype(position_type(int(storage.starts[-1])), copy=False)
        self.stage = stage
        self.scratch = scratch
        self.sources = sources
        self.workers = workers

    def column(self, name: str, positions: np.ndarray | None = None) -> np.ndarray:
        """One key column at `rows`, or at `rows[positions]` (ascending). StageError for a name that is not there."""
        return self._gather(key_column(self.stage, name), positions)

    def byte_lengths(self) -> np.ndarray:
        """Bytes of the text of each of `rows`, int64."""
        return self._gather(BYTES)

    def texts(self, positions: np.ndarray) -> Iterator[Callable[[], pa.LargeStringArray]]:
        """What reads the texts at `rows[positions]` (ascending), in pieces no larger than the batches they were written
        in. It may be called in another thread."""
        rows = self.rows[positions]
        for piece, first, last in self._pieces(rows):
            yield from self.storage.read_texts(piece, rows[first:last])

    def select(self, positions: np.ndarray) -> Corpus:
        """The corpus of `rows[positions]` (ascending) alone."""
        return Corpus(self.storage, self.rows[positions], self.stage, self.scratch, self.sources, self.workers)

    def _gather(self, name: str, positions: np.ndarray | None = None) -> np.ndarray:
        rows = self.rows if positions is None else self.rows[positions]
        out = None
        for piece, first, last in self._pieces(rows):
            kind = self._key_type(piece, name)
            out = np.empty(len(rows), kind) if out is None else out
            if kind != out.dtype:
                raise StageError(f"the key {self._own(name)} is {out.dtype} for some rows, {kind} for others. {ADVICE}")
            self.storage.read_keys(piece, name, rows[first:last], out[first:last])
        return np.zeros(0, np.uint64) if out is None else out

    def _key_type(self, piece: int, name: str) -> np.dtype:
        names = self.storage.key_names(piece)
        if name in names:
            return self.storage.key_type(piece, name)
        keys = [self._own(other) for other in names if other.startswith(key_column(self.stage, ""))]
        raise StageError(f"the corpus has no column {self._own(name)!r}; keys() gives {', '.join(keys) or 'none'}")

    def _own(self, name: str) -> str:
        """What the stage calls a key column."""
        return name.removeprefix(key_column(self.stage, ""))

    def _pieces(self, rows: np.ndarray) -> Iterator[tuple[int, int, int]]:
        """The pieces that hold some of `rows`, and where these begin and end in `rows`."""
        bounds = np.searchsorted(rows, self.storage.starts.astype(rows.dtype))
        for piece in np.flatnonzero(np.diff(bounds)).tolist():
            yield piece, int(bounds[piece]), int(bounds[piece + 1])


class StageCount(msgspec.Struct, kw_only=True):
    """One stage's part of the funnel; `bytes` are of the UTF-8 text, `seconds` summed over all workers.

    `removes` and `compares` are those of the stage's class, so that a report can be read without it.
    """

    kind: str
    name: str
    removes: bool = True
    compares: bool = False
    documents_in: int = 0
    documents_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    edited: int = 0
    reasons: dict[str, int] = {}
    details: dict[str, Any] = {}
    seconds: float = 0.0

    @property
    def removed(self) -> int:
        """Documents."""
        return sum(self.reasons.values())

    def add(self, other: StageCount) -> None:
        """Adds the counts of another slice."""
        for field in ("documents_in", "documents_out", "bytes_in", "bytes_out", "edited", "seconds"):
            setattr(self, field, getattr(self, field) + getattr(other, field))
        for reason, number in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + number
        self.add_details(other.details)

    def add_details(self, details: Mapping[str, int]) -> None:
        """Adds up what a row stage counted of its own."""
        for name, number in details.items():
            self.details[name] = self.details.get(name, 0) + number


__all__ = ["BYTES", "Corpus", "Cuts", "Decision", "Drops", "Outcome", "StageCount", "Storage", "key_column"]
