# SPDX-License-Identifier: Apache-2.0
"""`decontaminate`: removes documents that have word n-grams of evaluation texts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock

import msgspec
import numpy as np

from curation.contract import TEXT, Engine, Frame
from curation.engine import load_engine
from curation.errors import InputError, nearest
from curation.files import known_sha256
from curation.reading import probe, read_documents, shown
from curation.reading.changes import check_unchanged
from curation.reading.inputs import READING, AnyInput, FilesInput, Input, is_hub
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from curation.reading.source_files import SourceFile
from curation.reading.urls import is_remote
from curation.rules import Verdict
from curation.stages.base import RowStage, Stage, counts_line
from curation.stages.ngram_dedup import COMPARISONS
from curation.stages.ngram_table import TABLES_AT_ONCE, NgramTable, load_table, save_table, table_of
from curation.stages.outcome import Outcome, StageCount

REASON = "contaminated"
SLICE_BYTES = BATCH_BYTES = 16 << 20
_LOADING = Lock()  # of the threads that begin a phase one reads the texts, the others wait for it


class Decontaminate(RowStage, frozen=True, kw_only=True, tag="decontaminate"):
    """Removes documents of which `min_ngrams` or more word n-grams occur in evaluation texts, which a trained model is
    to be tested with (Brown et al. 2020, appendix C: 13 words).

    evaluation_files   the texts: paths, or inputs as in a recipe, whose `name` stands in the report. A text of
                fewer words than `ngram` is one n-gram, and found in documents that have these words alone. One that
                cannot be read is an InputError
    ngram              words (`str.split()`) of an n-gram
    min_ngrams         at least 1; a repeated n-gram counts each time
    compare            `lowercase`: `text.lower()` on both sides; `exact`: the texts as they stand

    n-grams are compared by 64-bit hashes. All of the evaluation texts' are in memory, 24 to 48 bytes each, in every
    process. In `removed/` the value is the number of n-grams found; the report counts the removed documents by the
    input of their first one.
    """

    evaluation_files: tuple[str | FilesInput, ...]
    ngram: int = 13
    min_ngrams: int = 1
    compare: str = "lowercase"

    def __post_init__(self) -> None:
        if isinstance(self.evaluation_files, str | os.PathLike | AnyInput):
            msgspec.structs.force_setattr(self, "evaluation_files", (self.evaluation_files,))
        if not self.evaluation_files:
            raise ValueError("evaluation_files is empty; list the files of the evaluation texts")
        if self.ngram < 1:
            raise ValueError(f"ngram must be at least 1, not {self.ngram}")
        if self.min_ngrams < 1:
            raise ValueError(f"min_ngrams must be at least 1, not {self.min_ngrams}")
        if self.compare not in COMPARISONS:
            raise ValueError(f"no comparison {self.compare!r}{nearest(self.compare, COMPARISONS)}")
        for entry in self.inputs:
            if is_hub(entry.path) or is_remote(entry.path):
                raise ValueError(
                    f"evaluation_files takes files of this machine, not {shown(entry.path)}: download them first"
                )
            for field in entry.__struct_fields__:
                if field not in ("path", *READING) and getattr(entry, field) != getattr(FilesInput(path="x"), field):
                    raise ValueError(f"{field} of {shown(entry.path)} has no meaning in evaluation_files; leave it out")

    @property
    def inputs(self) -> list[AnyInput]:
        return [entry if isinstance(entry, AnyInput) else Input(path=entry) for entry in self.evaluation_files]

    def sources(self) -> list[SourceFile]:
        """The files of the evaluation texts. InputError where one is not there."""
        return find_files(self.inputs)

    def files(self) -> dict[str, str]:
        return {file.path: known_sha256(file.path) for file in self.sources()}

    def check(self, inputs: Sequence[str]) -> None:
        self.table(load_engine("cpu"))

    def table(self, engine: Engine) -> NgramTable:
        """The n-grams of the evaluation texts, read once per process; those of all engines are the same."""
        with _LOADING:
            return _load(_Texts(self.sources(), self.ngram, self.compare, engine))

    def prepare(self, folder: Path) -> Stage:
        """The table as a file that all tasks share: a text that changes during the run changes nothing."""
        table = self.table(load_engine("cpu"))
        path = folder / f"ngrams-{table.digest[:16]}.npz"
        if not path.exists():
            save_table(path, table)
        return LookUp(
            name=self.name, table=str(path), ngram=self.ngram, min_ngrams=self.min_ngrams, compare=self.compare
        )

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        return _look_up(self, self.table(engine), engine, frame)

    def explain(self) -> list[str]:
        return [f"{self.ngram}-grams of {shown(file.path)}" for file in self.sources()]

    def report_lines(self, count: StageCount) -> list[str]:
        return [f"{count.removed:,} removed{f', by {counts_line(count.details)}' if count.details else ''}"]


class LookUp(RowStage, frozen=True, kw_only=True, tag="curation.stages.decontaminate:LookUp"):
    """`decontaminate` in the tasks of a run, which share the table that was made before the first one."""

    table: str
    ngram: int
    min_ngrams: int
    compare: str

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        return _look_up(self, load_table(Path(self.table)), engine, frame)


def _look_up(stage: Decontaminate | LookUp, table: NgramTable, engine: Engine, frame: Frame) -> Outcome:
    text, _ = engine.rewrite(frame[TEXT], COMPARISONS[stage.compare])
    found, owner = engine.ngram_hits(text, table, stage.ngram)
    gone = found >= stage.min_ngrams
    verdict = Verdict.dropping(gone, REASON, found)
    counts = np.bincount(owner[gone], minlength=len(table.names)).tolist()
    return Outcome(verdict, details={name: count for name, count in zip(table.names, counts, strict=True) if count})


class _Texts:
    """Files and what is made of them: the same where their paths, sizes and times are, whatever the engine."""

    def __init__(self, files: Sequence[SourceFile], ngram: int, compare: str, engine: Engine) -> None:
        self.files, self.ngram, self.compare, self.engine = files, ngram, compare, engine
        self._key = msgspec.json.encode((files, ngram, compare))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Texts) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def hashes(self, file: SourceFile) -> Iterator[np.ndarray]:
        """The n-grams of a file's texts, some at a time. InputError for a record that is no text: what it has would be
        trained on without a word."""
        before = 0  # records of the slices before
        for piece in plan_slices([file], SLICE_BYTES):
            rows = 0
            for documents in read_documents(piece, BATCH_BYTES):
                rows += documents.rows
                for entry in documents.rejected:
                    number = before + entry.row + 1
                    raise InputError(f"evaluation texts {shown(file.path)}, record {number:,}: {entry.error}")
                text = self.engine.from_arrow(documents.table)[TEXT]
                compared, _ = self.engine.rewrite(text, COMPARISONS[self.compare])
                yield self.engine.shingles(compared, self.ngram, False)[0]
            check_unchanged(piece)
            before += rows


@lru_cache(maxsize=TABLES_AT_ONCE)
def _load(texts: _Texts) -> NgramTable:
    sources = [probe(file) for file in texts.files]
    names = tuple(dict.fromkeys(file.source for file in sources))
    pieces = [np.zeros(0, np.uint64)]
    owners = [np.zeros(0, np.int32)]
    for file in sources:
        for hashes in texts.hashes(file):
            pieces.append(hashes)
            owners.append(np.full(len(hashes), names.index(file.source), np.int32))
    distinct, first = np.unique(np.concatenate(pieces), return_index=True)
    if not len(distinct):
        raise InputError(f"the evaluation texts of {', '.join(names)} have no words")
    return table_of(names, distinct, np.concatenate(owners)[first])


__all__ = ["Decontaminate", "LookUp"]
