# SPDX-License-Identifier: Apache-2.0
"""What stages are given and what they give back: outcomes of frames, decisions about a corpus, counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np

from curation.contract import Text
from curation.rules import Verdict

if TYPE_CHECKING:
    import pyarrow as pa

EMPTY: Mapping[str, Any] = MappingProxyType({})


class Outcome(NamedTuple):
    """What a row stage says about the rows of one frame, in their order.

    verdict   which rows it removes, and why; None removes none
    text      the texts after the stage: a text of the engine, or an Arrow array; None leaves them as they are
    edited    bool, one per row: whether its text is another one; comes with `text`
    columns   name -> values of every column in the stage's `writes`: NumPy or Arrow arrays, one value per row
    details   counts for the stage's entry in the report, added up over all frames: edits by kind, rows by language
    """

    verdict: Verdict | None = None
    text: Text | None = None
    edited: np.ndarray | None = None
    columns: Mapping[str, Any] = EMPTY
    details: Mapping[str, int] = EMPTY


class Drops(NamedTuple):
    """Rows of a corpus that a stage removes for one reason.

    row      int, ascending: positions among all rows, as in `Corpus.rows`
    value    float64: what is shown beside the reason, such as a similarity
    partner  int: the row that stays in its place, -1 for none; with `index_folder` the number of a document there
    index_folder   the folder of the saved index that `partner` counts in
    """

    row: np.ndarray
    reason: str
    value: np.ndarray
    partner: np.ndarray
    index_folder: str = ""


class Cuts(NamedTuple):
    """Spans of UTF-8 bytes that a stage cuts out of texts: `start` to `stop` of the text of `row`. Sorted by row and
    start; spans of a row do not overlap, and begin and end between code points. All int64."""

    row: np.ndarray
    start: np.ndarray
    stop: np.ndarray


class Decision(NamedTuple):
    """What a corpus stage decides: rows to remove, no row twice, or spans to cut. `details` go to the report."""

    drops: tuple[Drops, ...] = ()
    cuts: Cuts | None = None
    details: Mapping[str, Any] = EMPTY

    @property
    def dropped(self) -> np.ndarray:
        """The rows that are removed."""
        return np.concatenate([np.zeros(0, np.int64), *(found.row for found in self.drops)])


class Corpus(Protocol):
    """All rows that reached a corpus stage, in order; key columns are loaded one at a time."""

    rows: np.ndarray  # positions (of `contract.position_type`) of the rows that are still there, ascending
    sources: Sequence[tuple[str, int, int]]  # (name, first row, row after the last) of each input
    scratch: Path  # a folder for this stage alone; it may not exist yet
    workers: int  # threads that a stage may use

    def column(self, name: str, positions: np.ndarray | None = None) -> np.ndarray:
        """One key column at `rows`, or at `rows[positions]` (ascending)."""
        ...

    def byte_lengths(self) -> np.ndarray:
        """Bytes of the text of each of `rows`, int64."""
        ...

    def texts(self, positions: np.ndarray) -> Iterator[Callable[[], pa.LargeStringArray]]:
        """What reads the texts at `rows[positions]` (ascending), in pieces no larger than the batches they were written
        in. It may be called in another thread."""
        ...

    def select(self, positions: np.ndarray) -> Corpus:
        """The corpus of `rows[positions]` (ascending) alone."""
        ...


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


__all__ = ["Corpus", "Cuts", "Decision", "Drops", "Outcome", "StageCount"]
