# SPDX-License-Identifier: Apache-2.0
"""`decontaminate`: remove documents that contain word n-grams of evaluation texts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import ClassVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.contract import TEXT, Engine, Frame
from curation.engine import load_engine
from curation.errors import InputError, nearest
from curation.kernels.ngram_table import TABLES_AT_ONCE
from curation.reading import shown
from curation.reading.inputs import READING, AnyInput, FilesInput, Input, is_hub
from curation.reading.paths import find_files
from curation.reading.source_files import SourceFile
from curation.reading.urls import is_remote
from curation.rules.decide import Verdict
from curation.stages.base import PATH, Function, RowStage, Stage, counts_line
from curation.stages.corpus.similarity import COMPARISONS, compared_text
from curation.stages.outcome import Outcome, StageCount
from curation.stages.rows.evaluation_items import (
    KEY_WORDS,
    WHOLE_DOCUMENT,
    Evaluation,
    EvaluationItems,
    evaluation_of,
    load_evaluation,
    read_items,
)
from curation.stages.rows.leaks import Leak, Rule, find_leaks, without_spans
from curation.stages.words import check_words, kernels_of
from curation.system.files import known_sha256

REASON = "contaminated"
REMOVES = ("document", "span")
NOTES = {
    "matched_text": "large_string", "evaluation_set": "string", "evaluation_file": "string", "evaluation_item": "int64",
}  # fmt: skip  # columns of `removed/`
ALONE = "{} (question alone, kept)"  # key of the details
_LOADING = Lock()  # one thread reads the evaluation texts, the others wait for the table


class Decontaminate(RowStage, frozen=True, kw_only=True, tag="decontaminate"):
    """Remove documents that contain items of evaluation texts, which later test a trained model: `min_ngrams` or more
    different n-grams of one item (Brown et al. 2020, appendix C: n-grams of 13 words).

    evaluation_files  evaluation texts: local paths, or inputs as in a recipe, whose `name` the report shows. A record
                      that cannot be read is an InputError
    ngram             number of words in an n-gram; at least 1
    min_ngrams        number of different n-grams of one item in a document; at least 1
    compare           the text that is cut into words. `visible`: in lower case, without invisible characters, each
                      punctuation character and sign (P*, S*) as a space; `lowercase`: `text.lower()`; `exact`: the
                      text unchanged; `folded`: as in `fuzzy_dedup`, where all digits are equal
    words             what a word is: `spaces`, `scripts` or `table` (docs/languages.md); default: that of the recipe
    answer_column     column of the evaluation texts with the answer of an item; "": they have none
    removes_question  false keeps a question of an item that has an answer if the first words of the answer are not
                      within 50 words of it
    removes           `document`: whole documents; `span`: the matched words, and documents of which no letter or digit
                      is left. In Python it is `removes_part`

    The different words with a letter that match must have 1.5 bytes per word of an n-gram, 20 for 13 words, unless
    nothing else is in the document. So numbers, alphabets and idioms of code are no leak. A question of fewer words
    than an n-gram is found from 8 words on, from 4 words on if its answer is within 50 words of it; a shorter one only
    as a whole document. n-grams are compared by 64-bit hashes. Each process holds those of all evaluation texts in
    memory, 44 to 68 bytes each. The report counts removed documents by input. In `removed/` the value is the number of
    different n-grams of the item with most. `matched_text` is the longest run of its words, `evaluation_set`,
    `evaluation_file` and `evaluation_item` are its input, its file and its record (from 1). A null matches nothing.
    """

    function: ClassVar[Function] = Function(
        """Return the rows that contain no item of the evaluation texts.

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

    revision: ClassVar[int] = 2  # 2: digits count, signs do not; a document is judged item by item

    evaluation_files: tuple[str | FilesInput, ...]
    ngram: int = 13
    min_ngrams: int = 1
    compare: str = "visible"
    words: str = ""
    answer_column: str = ""
    removes_question: bool = True
    removes_part: str = msgspec.field(default="document", name="removes")

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
        if self.removes_part not in REMOVES:
            did_mean = nearest(self.removes_part, REMOVES)
            raise ValueError(f"removes must be {' or '.join(REMOVES)}, not {self.removes_part!r}{did_mean}")
        if not self.removes_question and not self.answer_column:
            raise ValueError("removes_question: false keeps questions without their answers; it needs answer_column")
        for entry in self.inputs:
            if is_hub(entry.path) or is_remote(entry.path):
                raise ValueError(f"evaluation_files takes local files, not {shown(entry.path)}; download them first")
            for field in entry.__struct_fields__:
                if field not in ("path", *READING) and getattr(entry, field) != getattr(FilesInput(path="x"), field):
                    raise ValueError(f"{field} of {shown(entry.path)} has no meaning in evaluation_files; leave it out")

    def notes(self) -> dict[str, str]:
        return dict(NOTES)

    def kernels(self) -> tuple[str, ...]:
        rewriting = () if self.compare == "exact" else ("rewrite",)
        return (*kernels_of(self.words), "measures", "shingles", "ngram_table", *rewriting)

    @property
    def rule(self) -> Rule:
        """When a document contains an item."""
        return Rule(
            ngram=self.ngram, min_ngrams=self.min_ngrams, compare=self.compare, words=self.words,
            removes=self.removes_part, removes_question=self.removes_question,
        )  # fmt: skip

    @property
    def inputs(self) -> list[AnyInput]:
        """`evaluation_files` as inputs."""
        return [entry if isinstance(entry, AnyInput) else Input(path=entry) for entry in self.evaluation_files]

    def sources(self) -> list[SourceFile]:
        """Return the files with the evaluation texts. InputError for a missing file."""
        columns = [self.answer_column] if self.answer_column else []
        return find_files([msgspec.structs.replace(entry, columns=columns) for entry in self.inputs])

    def files(self) -> dict[str, str]:
        return {file.path: known_sha256(file.path) for file in self.sources()}

    def check(self, inputs: Sequence[str]) -> None:
        self.evaluation(load_engine("cpu"))

    def evaluation(self, engine: Engine) -> Evaluation:
        """Return the items of the evaluation texts, read once per process. All engines give the same."""
        with _LOADING:
            return _load(_Texts(self.sources(), self.rule, self.answer_column, engine))

    def prepare(self, folder: Path) -> Stage:
        """Save the items to a file that all tasks share: evaluation texts that change during the run have no effect."""
        items = self.evaluation(load_engine("cpu")).items
        path = folder / f"items-{items.digest()[:16]}.npz"
        if not path.exists():
            items.save(path)
        return LookUp(name=self.name, items=str(path), rule=self.rule)

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        return _look_up(self.rule, self.evaluation(engine), engine, frame)

    def explain(self) -> list[str]:
        items = self._read_items()
        return [
            *(f"{self.ngram}-grams of {shown(file.path)}" for file in self.sources()),
            *([items.searched()] if items else []),
        ]

    def report_lines(self, count: StageCount) -> list[str]:
        items = self._read_items()
        done = f"{count.removed:,} removed" + (f", {count.edited:,} cut" if self.removes_part == "span" else "")
        found = f", by {counts_line(count.details)}" if count.details else ""
        return [f"{done}{found}{f'; {items.searched()}' if items else ''}"]

    def warnings(self, count: StageCount) -> list[str]:
        items = self._read_items()
        if not items or not items.count(WHOLE_DOCUMENT):
            return []
        advice = "" if self.answer_column else ". answer_column finds those of 4 words or more by their answers"
        return [f"{self.name or self.kind}: {items.searched()}{advice}"]

    def _read_items(self) -> EvaluationItems | None:
        """Return the items; None if the files, which were read when the run began, are gone."""
        try:
            return self.evaluation(load_engine("cpu")).items
        except InputError:
            return None


class LookUp(RowStage, frozen=True, kw_only=True, tag="curation.stages.rows.decontaminate:LookUp"):
    """The stage `decontaminate` in tasks of a run. They share the items that `Decontaminate.prepare` saved."""

    items: str
    rule: Rule

    def notes(self) -> dict[str, str]:
        return dict(NOTES)

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        return _look_up(self.rule, load_evaluation(Path(self.items)), engine, frame)


def _look_up(rule: Rule, evaluation: Evaluation, engine: Engine, frame: Frame) -> Outcome:
    text = compared_text(engine, frame[TEXT], rule.shingles)
    candidates = engine.ngram_hits(text, evaluation.ngrams, rule.ngram)[0] >= rule.min_ngrams
    if evaluation.keys is not None:
        candidates |= engine.ngram_hits(text, evaluation.keys, KEY_WORDS)[0] > 0
    leaks: list[list[Leak]] = []
    if candidates.any():
        compared = engine.filter_rows(engine.with_columns(frame[[TEXT]], {TEXT: text}), candidates)
        texts = engine.to_arrow(compared).column(TEXT).to_pylist()
        leaks = find_leaks(engine, [text or "" for text in texts], evaluation, rule)
    rows = np.flatnonzero(candidates).tolist()
    found = {row: own for row, own in zip(rows, leaks, strict=True) if own}
    leaking = {row: own for row, own in found.items() if own[0].counts}
    names = evaluation.items.names
    sets = Counter(names[evaluation.items.places[own[0].item, 0]] for own in leaking.values())
    sets.update(
        ALONE.format(names[evaluation.items.places[own[0].item, 0]]) for row, own in found.items() if row not in leaking
    )
    if rule.removes == "span":
        return _cut(rule, evaluation, engine, frame, leaking)._replace(details=sets)
    return Outcome(_verdict(evaluation, len(frame), leaking), details=sets)


def _verdict(evaluation: Evaluation, rows: int, leaking: dict[int, list[Leak]]) -> Verdict:
    """Return the verdict that removes rows for their first leak."""
    removed, value = np.zeros(rows, bool), np.zeros(rows, np.int64)
    firsts = [own[0] for own in leaking.values()]
    removed[[*leaking]] = True
    value[[*leaking]] = [leak.ngrams for leak in firsts]
    places = evaluation.items.places[[leak.item for leak in firsts]]
    columns = (
        [leak.text for leak in firsts], [evaluation.items.names[place] for place in places[:, 0]],
        [evaluation.items.files[place] for place in places[:, 1]], places[:, 2],
    )  # fmt: skip
    kinds = (pa.large_string(), pa.string(), pa.string(), pa.int64())
    notes = {name: pa.array(values, kind) for name, values, kind in zip(NOTES, columns, kinds, strict=True)}
    return Verdict.dropping(removed, REASON, value)._replace(notes=notes)


def _cut(
    rule: Rule, evaluation: Evaluation, engine: Engine, frame: Frame, leaking: dict[int, list[Leak]]
) -> Outcome:  # fmt: skip
    """Return the outcome that cuts the leaks out of texts, and removes the rows of which nothing is left."""
    texts = engine.to_arrow(frame[[TEXT]]).column(TEXT).combine_chunks().cast(pa.large_string())
    edited, left = np.zeros(len(frame), bool), []
    for row, own in leaking.items():
        spans = (span for leak in own if leak.counts for span in leak.spans)
        text = without_spans(texts[row].as_py(), spans, rule.shingles.steps)
        if any(map(str.isalnum, text)):
            edited[row] = True
            left.append(text)
    if not edited.any():
        return Outcome(_verdict(evaluation, len(frame), leaking))
    gone = {row: own for row, own in leaking.items() if not edited[row]}
    cut = pc.replace_with_mask(texts, pa.array(edited), pa.array(left, pa.large_string()))
    return Outcome(_verdict(evaluation, len(frame), gone), text=cut, edited=edited)


class _Texts:
    """Files and the settings of their items. Equal if paths, sizes, times and settings are; the engine is ignored."""

    def __init__(self, files: Sequence[SourceFile], rule: Rule, answer_column: str, engine: Engine) -> None:
        self.files, self.rule, self.answer_column, self.engine = files, rule, answer_column, engine
        self._key = msgspec.json.encode((files, rule.ngram, rule.compare, rule.words, answer_column))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Texts) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=TABLES_AT_ONCE)
def _load(texts: _Texts) -> Evaluation:
    return evaluation_of(read_items(texts.engine, texts.files, texts.rule.shingles, texts.answer_column))
