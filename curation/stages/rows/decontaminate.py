# SPDX-License-Identifier: Apache-2.0
"""`decontaminate`: remove documents that contain word n-grams of evaluation texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import ClassVar

import msgspec
import numpy as np
import pyarrow as pa

from curation.contract import ROW, TEXT, Engine, Frame
from curation.engine import load_engine
from curation.errors import InputError, nearest
from curation.kernels.ngram_table import TABLES_AT_ONCE, NgramTable, load_table, save_table, table_of
from curation.reading import probe, read_documents, shown
from curation.reading.changes import check_unchanged
from curation.reading.inputs import READING, AnyInput, FilesInput, Input, is_hub
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from curation.reading.source_files import SourceFile
from curation.reading.urls import is_remote
from curation.rules.decide import Verdict
from curation.stages.base import PATH, Function, RowStage, Stage, counts_line
from curation.stages.corpus.similarity import COMPARISONS, ShingleSettings, compared_text
from curation.stages.outcome import Outcome, StageCount
from curation.stages.rows.evaluation_items import NOTES, EvaluationItems, first_matches, load_items
from curation.stages.words import check_words, kernels_of
from curation.system.files import known_sha256
from curation.system.steps import each

REASON = "contaminated"
SLICE_BYTES = BATCH_BYTES = 16 << 20
_LOADING = Lock()  # one thread reads the evaluation texts, the others wait for the table


class Decontaminate(RowStage, frozen=True, kw_only=True, tag="decontaminate"):
    """Remove documents with `min_ngrams` or more word n-grams of evaluation texts, which later test a trained model
    (Brown et al. 2020, appendix C: n-grams of 13 words).

    evaluation_files  evaluation texts: local paths, or inputs as in a recipe, whose `name` the report shows. A text of
                      fewer than `ngram` words is one n-gram; it matches only documents that consist of the same
                      words. A record that cannot be read is an InputError
    ngram             number of words in an n-gram; at least 1
    min_ngrams        number of matching n-grams that removes a document; at least 1; repeated ones count each time
    compare           the text that is cut into words. `visible`: in lower case, without invisible characters,
                      each punctuation character and sign (P*, S*) as a space; `lowercase`: `text.lower()`; `exact`: the
                      text unchanged; `folded`: as in `fuzzy_dedup`, where all digits are equal
    words             what a word is: `spaces`, `scripts` or `table` (docs/languages.md); default: that of the recipe

    n-grams are compared by 64-bit hashes. Each process holds those of all evaluation texts in memory, 44 to 68 bytes
    each. The report counts removed documents by the input of their first match. In `removed/` the value is the number
    of matching n-grams. `ngram` is the first of them; `evaluation_file` and `evaluation_item` are the file and the
    record (from 1) that have it first. A null matches nothing.
    """

    function: ClassVar[Function] = Function(
        """Return the rows that share fewer than `min_ngrams` word n-grams with the evaluation texts.

        The evaluation texts are read at once, for Dask frames too.

            >>> import curation, pandas, pathlib
            >>> _ = pathlib.Path("quiz.txt").write_text("two three")
            >>> frame = pandas.DataFrame({"text": ["one two three", "three two"]})
            >>> curation.decontaminate(frame, "quiz.txt", ngram=2)["text"].tolist()
            ['three two']

        Raises InputError for evaluation texts that cannot be read.
        """,
        types={"evaluation_files": f"{PATH} | FilesInput | Sequence[{PATH} | FilesInput]"},
    )

    revision: ClassVar[int] = 2  # 2: digits count, signs do not

    evaluation_files: tuple[str | FilesInput, ...]
    ngram: int = 13
    min_ngrams: int = 1
    compare: str = "visible"
    words: str = ""

    def __post_init__(self) -> None:
        check_words(self.words)
        if isinstance(self.evaluation_files, str | os.PathLike | AnyInput):
            msgspec.structs.force_setattr(self, "evaluation_files", (self.evaluation_files,))
        if not self.evaluation_files:
            raise ValueError("evaluation_files is empty; list the files with the evaluation texts")
        if self.ngram < 1:
            raise ValueError(f"ngram must be at least 1, not {self.ngram}")
        if self.min_ngrams < 1:
            raise ValueError(f"min_ngrams must be at least 1, not {self.min_ngrams}")
        if self.compare not in COMPARISONS:
            raise ValueError(f"compare: no comparison {self.compare!r}{nearest(self.compare, COMPARISONS)}")
        for entry in self.inputs:
            if is_hub(entry.path) or is_remote(entry.path):
                raise ValueError(f"evaluation_files takes local files, not {shown(entry.path)}; download them first")
            for field in entry.__struct_fields__:
                if field not in ("path", *READING) and getattr(entry, field) != getattr(FilesInput(path="x"), field):
                    raise ValueError(f"{field} of {shown(entry.path)} has no meaning in evaluation_files; leave it out")

    def notes(self) -> dict[str, str]:
        return dict(NOTES)

    def kernels(self) -> tuple[str, ...]:
        return (*kernels_of(self.words), "shingles", "ngram_table", *(() if self.compare == "exact" else ("rewrite",)))

    @property
    def inputs(self) -> list[AnyInput]:
        """`evaluation_files` as inputs."""
        return [entry if isinstance(entry, AnyInput) else Input(path=entry) for entry in self.evaluation_files]

    def sources(self) -> list[SourceFile]:
        """Return the files with the evaluation texts. InputError for a missing file."""
        return find_files(self.inputs)

    def files(self) -> dict[str, str]:
        return {file.path: known_sha256(file.path) for file in self.sources()}

    def check(self, inputs: Sequence[str]) -> None:
        self.table(load_engine("cpu"))

    def table(self, engine: Engine) -> NgramTable:
        """Return the n-grams of the evaluation texts, read once per process. All engines give the same table."""
        return self._load(engine)[0]

    def _load(self, engine: Engine) -> tuple[NgramTable, EvaluationItems]:
        with _LOADING:
            return _load(_Texts(self.sources(), self.ngram, self.compare, self.words, engine))

    def prepare(self, folder: Path) -> Stage:
        """Save the table to a file that all tasks share: evaluation texts that change during the run have no effect."""
        table, items = self._load(load_engine("cpu"))
        path = folder / f"ngrams-{table.digest[:16]}.npz"
        if not _items_path(path).exists():
            save_table(path, table)
            items.save(_items_path(path))
        return LookUp(
            name=self.name,
            table=str(path),
            ngram=self.ngram,
            min_ngrams=self.min_ngrams,
            compare=self.compare,
            words=self.words,
        )

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        table, items = self._load(engine)
        return _look_up(self, table, lambda: items, engine, frame)

    def explain(self) -> list[str]:
        return [f"{self.ngram}-grams of {shown(file.path)}" for file in self.sources()]

    def report_lines(self, count: StageCount) -> list[str]:
        return [f"{count.removed:,} removed{f', by {counts_line(count.details)}' if count.details else ''}"]


class LookUp(RowStage, frozen=True, kw_only=True, tag="curation.stages.rows.decontaminate:LookUp"):
    """The stage `decontaminate` in tasks of a run. They share the n-gram table that `Decontaminate.prepare` saved."""

    table: str
    ngram: int
    min_ngrams: int
    compare: str
    words: str = ""

    def notes(self) -> dict[str, str]:
        return dict(NOTES)

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        path = Path(self.table)
        return _look_up(self, load_table(path), lambda: load_items(_items_path(path)), engine, frame)


def _items_path(path: Path) -> Path:
    """The file with the places of the n-grams of a saved table."""
    return path.with_suffix(".items.npz")


def _look_up(
    stage: Decontaminate | LookUp, table: NgramTable, items: Callable[[], EvaluationItems], engine: Engine, frame: Frame
) -> Outcome:
    settings = ShingleSettings(COMPARISONS[stage.compare], stage.ngram, False, stage.words)
    text = compared_text(engine, frame[TEXT], settings)
    hits, owner = engine.ngram_hits(text, table, stage.ngram)
    removed = hits >= stage.min_ngrams
    verdict = Verdict.dropping(removed, REASON, hits)
    notes = {name: pa.array([], kind) for name, kind in NOTES.items()}
    if removed.any():
        compared = engine.filter_rows(engine.with_columns(frame[[TEXT]], {TEXT: text}), removed)
        texts = engine.to_arrow(compared).column(TEXT).to_pylist()
        notes = first_matches(engine, [text or "" for text in texts], table, items(), stage.ngram)
    counts = np.bincount(owner[removed], minlength=len(table.names)).tolist()
    details = {name: count for name, count in zip(table.names, counts, strict=True) if count}
    return Outcome(verdict._replace(notes=notes), details=details)


class _Texts:
    """Files and the settings of their n-grams. Equal if paths, sizes, times and settings are; the engine is ignored."""

    def __init__(self, files: Sequence[SourceFile], ngram: int, compare: str, words: str, engine: Engine) -> None:
        self.files, self.engine = files, engine
        self.settings = ShingleSettings(COMPARISONS[compare], ngram, False, words)
        self._key = msgspec.json.encode((files, ngram, compare, words))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Texts) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def hashes(self, file: SourceFile) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the n-gram hashes of a file, batch by batch, with the number of the record of each. InputError for a
        rejected record: its content would otherwise stay in the training data unnoticed."""
        records = 0  # of earlier slices
        for input_slice in plan_slices([file], SLICE_BYTES):
            rows = 0
            for documents in read_documents(input_slice, BATCH_BYTES):
                rows += documents.rows
                for entry in documents.rejected:
                    number = records + entry.row + 1
                    raise InputError(f"evaluation texts {shown(file.path)}, record {number:,}: {entry.error}")
                text = self.engine.from_arrow(documents.table)[TEXT]
                compared = compared_text(self.engine, text, self.settings)
                hashes, offsets = self.engine.shingles(compared, self.settings.ngram, False)
                items = documents.table.column(ROW).to_numpy() + records + 1
                yield hashes, np.repeat(items, np.diff(offsets))
            check_unchanged(input_slice)
            records += rows


@lru_cache(maxsize=TABLES_AT_ONCE)
def _load(texts: _Texts) -> tuple[NgramTable, EvaluationItems]:
    sources = [probe(file) for file in texts.files]
    names = tuple(dict.fromkeys(file.source for file in sources))
    batches = [np.zeros(0, np.uint64)]
    owners, file_numbers, items = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    files = tuple(dict.fromkeys(shown(file.path) for file in sources))
    for file in each(sources, "reading evaluation texts", "file", size=lambda file: max(file.bytes, 0)):
        for hashes, numbers in texts.hashes(file):
            file_numbers.append(np.full(len(hashes), files.index(shown(file.path)), np.int32))
            items.append(numbers)
            batches.append(hashes)
            owners.append(np.full(len(hashes), names.index(file.source), np.int32))
    distinct, first = np.unique(np.concatenate(batches), return_index=True)
    if not len(distinct):
        raise InputError(f"the evaluation texts of {', '.join(names)} have no words")
    table = table_of(names, distinct, np.concatenate(owners)[first])
    return table, EvaluationItems(files, distinct, np.concatenate(file_numbers)[first], np.concatenate(items)[first])
