# SPDX-License-Identifier: Apache-2.0
"""What a stage gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from curation.contract import Engine, Frame
from curation.rules import Verdict

if TYPE_CHECKING:
    import pyarrow as pa


class Outcome(NamedTuple):
    """One frame after a row-local stage: the kept rows, the verdict on the rows that came, how many texts changed."""

    frame: Frame
    verdict: Verdict | None = None
    edited: int = 0
    details: Mapping[str, int] = MappingProxyType({})  # added up over all frames, for the stage's entry in the report


class OldDuplicates(NamedTuple):
    """Rows of the corpus that go because of a document of a saved index: positions, its number there, how alike."""

    row: np.ndarray  # ascending
    number: np.ndarray
    value: np.ndarray
    reason: str
    index_folder: str


class Duplicates(NamedTuple):
    """Rows of the corpus that go because of another: positions of both, and how alike they are (1.0 = equal)."""

    row: np.ndarray  # ascending
    kept_row: np.ndarray
    value: np.ndarray
    reason: str
    details: Mapping[str, Any] = MappingProxyType({})  # for the stage's entry in the report
    old: OldDuplicates | None = None  # further rows

    @property
    def all_rows(self) -> np.ndarray:
        return np.concatenate([self.row, self.old.row]) if self.old else self.row


class Corpus(Protocol):
    """All rows that reached a whole-corpus stage, in order; key columns are loaded one at a time."""

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


class RowStage(Protocol):
    """A stage that looks at one frame at a time. One that drops no document says `removes: ClassVar[bool] = False`."""

    def apply(self, engine: Engine, frame: Frame) -> Outcome: ...


class CorpusStage(Protocol):
    """A stage that compares documents: it asks for keys of each, then decides about all of them at once."""

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]: ...

    def decide(self, engine: Engine, corpus: Corpus) -> Duplicates: ...


def added_columns(stages: Sequence[object]) -> dict[str, str]:
    """The columns that stages write beside the text: name -> Arrow type; a later one of the same name replaces it."""
    return {name: kind for stage in stages for name, kind in getattr(stage, "added", {}).items()}


__all__ = ["Corpus", "CorpusStage", "Duplicates", "OldDuplicates", "Outcome", "RowStage", "added_columns"]
