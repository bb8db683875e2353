# SPDX-License-Identifier: Apache-2.0
"""`decontaminate`: remove documents that contain word n-grams of evaluation texts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import msgspec

from curation.base.contract import Engine
from curation.base.engine import load_engine
from curation.base.errors import InputError, counted, nearest
from curation.base.system.files import known_sha256
from curation.kernels.ngram_table import TABLES_AT_ONCE
from curation.reading import shown
from curation.reading.inputs import READING, AnyInput, FilesInput, Input, is_hub
from curation.reading.paths import find_files
from curation.reading.source_files import SourceFile
from curation.reading.urls import is_remote
from curation.stages.base import PATH, Function, Stage, counts_line
from curation.stages.corpus.similarity import COMPARISONS
from curation.stages.exact.evaluation_items import (
    WHOLE_DOCUMENT,
    Evaluation,
    EvaluationItems,
    evaluation_of,
    load_evaluation,
    read_items,
)
from curation.stages.exact.leak_stage import LeakStage
from curation.stages.exact.leaks import LeakRule
from curation.stages.outcome import StageCount
from curation.stages.words import check_words, kernels_of

REMOVES = ("document", "span")
MAX_DOCUMENTS = 1000  # largest setting: tasks hold this many texts per n-gram in memory
SHOWN_SETS, SHOWN_CHARACTERS = 20, 300  # evaluation inputs in the report, and characters of each text there
_LOADING = Lock()  # one thread reads the evaluation texts, the others wait for the table


class Decontaminate(LeakStage, frozen=True, kw_only=True, tag="decontaminate"):
    """Remove documents that contain items of evaluation texts, which later test a trained model: `min_ngrams` or more
    different n-grams of one item (Brown et al. 2020, appendix C: n-grams of 13 words).

    evaluation_files  evaluation texts: local paths, or inputs as in a recipe, whose `name` the report shows. A record
                      that cannot be read is an InputError
    ngram             number of words in an n-gram; at least 1
    min_ngrams        number of different n-grams of one item in a document; at least 1
    max_documents     an n-gram that more documents of different text have is common, as those of licences: it and its
                      words decide nothing, unless a document has 80 % of all n-grams of the item. 0: none is common; at
                      most 1,000
    compare           the text that is cut into words. `visible`: in the form NFKC and lower case, without invisible
                      characters, each punctuation character and sign (P*, S*) as a space, letters that look the same as
                      one; `lowercase`: `text.lower()`; `exact`: the
                      text unchanged; `folded`: as in `fuzzy_dedup`, where all digits are equal
    words             what a word is: `spaces`, `scripts` or `table` (docs/languages.md); default: that of the recipe
    answer_column     column of the evaluation texts with the answer of an item; "": they have none
    removes_question  false keeps a question of an item that has an answer if the first words of the answer are not
                      within 50 words of it
    removes           `document`: whole documents; `span`: the matched words, and documents of which no letter or digit
                      is left. In Python it is `removes_part`

    The different matching words that have a letter must have 1.5 bytes per word of an n-gram together, 20 for 13 words,
    unless the document has no other words. So numbers, alphabets and idioms of code are no leak. A question of fewer
    words than an n-gram is found if it has at least 8 words, or at least 4 words and its answer within 50 words of it.
    A shorter question is found only as a whole document. n-grams are compared by 64-bit hashes. Each process holds the
    hashes of all evaluation texts in memory: 44 to 68 bytes per n-gram, and 28 more while it counts documents. The
    report counts removed documents by input. `removed/` describes the item with the most n-grams in the document. The
    value is the number of different n-grams of this item. `matched_text` is the longest run of matched words;
    `evaluation_set`, `evaluation_file` and `evaluation_item` are the item's input, file and record (from 1). A null
    matches nothing.
    """

    function: ClassVar[Function] = Function(
        """Return the rows that contain no item of the evaluation texts.

        On a Dask frame the call itself reads all text. It reads partitions with candidates, which are documents with a
        known n-gram, twice more. The rows stay lazy.

            >>> import curation, pandas, pathlib
            >>> _ = pathlib.Path("quiz.txt").write_text("two three")
            >>> frame = pandas.DataFrame({"text": ["one two three", "three two"]})
            >>> curation.decontaminate(frame, "quiz.txt", ngram=2)["text"].tolist()
            ['three two']

        Raises InputError for evaluation texts that cannot be read.
        """,
        types={"evaluation_files": f"{PATH} | FilesInput | Sequence[{PATH} | FilesInput]"},
    )

    # 2: digits count, signs do not; a document is judged item by item. 3: common n-grams decide nothing
    # 4: letters that look the same are equal; `scripts` and `table` divide words differently
    revision: ClassVar[int] = 4

    evaluation_files: tuple[str | FilesInput, ...]
    ngram: int = 13
    min_ngrams: int = 1
    max_documents: int = 10
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
        if not 0 <= self.max_documents <= MAX_DOCUMENTS:
            raise ValueError(
                f"max_documents must be 0 (no n-gram is common) to {MAX_DOCUMENTS:,}, not {self.max_documents}"
            )
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

    def kernels(self) -> tuple[str, ...]:
        rewriting = () if self.compare == "exact" else ("rewrite",)
        return (*kernels_of(self.words), "hashes", "measures", "shingles", "ngram_table", *rewriting)

    def rule_of(self) -> LeakRule:
        return LeakRule(
            ngram=self.ngram, min_ngrams=self.min_ngrams, max_documents=self.max_documents, compare=self.compare,
            words=self.words, removes=self.removes_part, removes_question=self.removes_question,
        )  # fmt: skip

    @property
    def inputs(self) -> list[AnyInput]:
        """`evaluation_files` as inputs."""
        return [entry if isinstance(entry, AnyInput) else Input(path=entry) for entry in self.evaluation_files]

    def sources(self) -> list[SourceFile]:
        """Return the files with the evaluation texts. Raises InputError for a missing file."""
        columns = [self.answer_column] if self.answer_column else []
        return find_files([msgspec.structs.replace(entry, columns=columns) for entry in self.inputs])

    def files(self) -> dict[str, str]:
        return {file.path: known_sha256(file.path) for file in self.sources()}

    def check(self, inputs: Sequence[str]) -> None:
        self.evaluation(load_engine("cpu"))

    def evaluation(self, engine: Engine) -> Evaluation:
        """Return the items of the evaluation texts, read once per process. All engines give the same items."""
        with _LOADING:
            return _load(_Texts(self.sources(), self.rule_of(), self.answer_column, engine))

    def prepare(self, folder: Path) -> Stage:
        """Save the items to a file that all tasks share: evaluation texts that change during the run have no effect."""
        items = self.evaluation(load_engine("cpu")).items
        path = folder / f"items-{items.digest()[:16]}.npz"
        if not path.exists():
            items.save(path)
        return LookUp(name=self.name, items=str(path), rule=self.rule_of())

    def explain(self) -> list[str]:
        items = self._read_items()
        return [
            *(f"{self.ngram}-grams of {shown(file.path)}" for file in self.sources()),
            *([items.searched()] if items else []),
        ]

    def report_lines(self, count: StageCount) -> list[str]:
        items, details = self._read_items(), count.details
        by_set = {entry["name"]: entry["documents"] for entry in details["sets"] if entry["documents"]}
        done = f"{count.removed:,} removed" + (f", {count.edited:,} cut" if self.removes_part == "span" else "")
        found = f", by {counts_line(by_set)}" if by_set else ""
        lines = [f"{done}{found}{f'; {items.searched()}' if items else ''}"]
        for entry in details["sets"][:SHOWN_SETS]:
            alone = f", {entry['questions_alone']:,} with a question alone kept" if entry["questions_alone"] else ""
            lines.append(
                f"{entry['name']}: {entry['items_seen']:,} of {counted(entry['items'], 'item')} found, in "
                f"{counted(entry['documents'], 'document')}{alone}{_quoted(entry)}"
            )
        if details["common_ngrams"]:
            common = counted(details["common_ngrams"], "common n-gram")
            lines.append(f"{common}, in more than {self.max_documents:,} documents, decide nothing alone:")
        for entry in details["common"]:
            lines.append(
                f"in {counted(entry['documents'], 'document')}, of {entry['evaluation_set']}, item "
                f"{entry['item']:,}{_quoted(entry)}"
            )
        if details["shared_ngrams"]:
            lines.append(f"{counted(details['shared_ngrams'], 'n-gram')} of several evaluation inputs; they count")
        return lines

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


def _quoted(entry: dict[str, Any]) -> str:
    """Return the text of an entry of the details in one line; "" if it has none (`report: {samples: false}`)."""
    text = " ".join(entry.get("text", "").split())[:SHOWN_CHARACTERS]
    return f": {text}" if text else ""


class LookUp(LeakStage, frozen=True, kw_only=True, tag="curation.stages.exact.decontaminate:LookUp"):
    """The stage `decontaminate` in tasks of a run. They share the items that `Decontaminate.prepare` saved."""

    items: str
    rule: LeakRule

    def rule_of(self) -> LeakRule:
        return self.rule

    def evaluation(self, engine: Engine) -> Evaluation:
        return load_evaluation(Path(self.items))


class _Texts:
    """Files with evaluation texts and the settings of their items. Two objects are equal if their paths, sizes, times
    and settings are equal; the engine is ignored."""

    def __init__(self, files: Sequence[SourceFile], rule: LeakRule, answer_column: str, engine: Engine) -> None:
        self.files, self.rule, self.answer_column, self.engine = files, rule, answer_column, engine
        self._key = msgspec.json.encode((files, rule.ngram, rule.compare, rule.words, answer_column))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Texts) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=TABLES_AT_ONCE)
def _load(texts: _Texts) -> Evaluation:
    return evaluation_of(read_items(texts.engine, texts.files, texts.rule.shingles, texts.answer_column))
