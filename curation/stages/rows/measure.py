# SPDX-License-Identifier: Apache-2.0
"""`measure`: write measures of documents as columns; it removes no document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np

from curation.base.contract import TEXT, Engine, Frame
from curation.base.errors import counted
from curation.base.measures import Measure, name_of
from curation.stages.base import ColumnFacts, Function, RowStage, counts_line
from curation.stages.outcome import Outcome, StageCount
from curation.stages.rows.redact import Redact
from curation.stages.rows.scripts import (
    COUNT,
    SCRIPT,
    SCRIPT_CODES,
    check_scripts,
    columns_of,
    counts_of,
    script_columns,
)
from curation.stages.rows.token_counts import check_tokenizer, check_use, measured, tokenizer_files
from curation.stages.rows.word_list import COLUMN, check_listed_words, list_files, load_words, word_rates
from curation.stages.words import check_words, kernels_of


class MeasureStage(RowStage, frozen=True, kw_only=True, tag="measure"):
    """Add one int64 column per measure to `documents/`. You can choose thresholds from these columns without another
    run.

    names          names of measures (`curation.Measure`), or `tokens`; empty: all of `Measure`, or none with
                   `listed_words`, `personal_data`, `script` or `script_shares`
    listed_words   words of your own, or the path of a file with one word per line. The column `listed_words` (float64)
                   is the share of the words of a text that are listed, whatever their case. A word may have an opening
                   mark before it and one or two marks after it, such as `(` and `."`. `filter` takes it as a column
    personal_data  types of `redact`, such as `email` or `secret`. The column `email_count` (int64) is the number of
                   replacements that `redact` would make with these types. `filter` takes it as a column
    patterns       patterns of `personal_data`, as in `redact`: `checked` (default), `shape` or `published`
    private        `replace` also counts private, loopback and documentation IP addresses; default: `keep`
    script         true writes the column `script` (string): the script that most letters are of, as a code of ISO 15924
                   such as `Latn`, null without letters; of equal ones the first in the alphabet. Han, hiragana and
                   katakana together are `Jpan` if at least a tenth of them is kana, else `Hani`
    script_shares  codes of scripts. The column `Latn_share` (float64) is the share of the letters that are Latin; 0
                   without letters. `Jpan` is Han, hiragana and katakana, `Kore` hangul and Han
    tokenizer      tokenizer of the measure `tokens`, as in the recipe's `tokenizer.name`, the default in recipes
    words          what a word is: `spaces`, `scripts` or `table` (docs/languages.md); default: that of the recipe

    Measures describe the text at this stage; later changes of the text do not update them. If two `measure` stages
    share a name, the later one overwrites the column. Measures of a null are 0. Raises ValueError for an unknown name.
    """

    removes: ClassVar[bool] = False
    revision: ClassVar[int] = 3  # 2: where words end by `scripts` and `table`; 3: `redact`'s addresses in context
    function: ClassVar[Function] = Function(
        """Return the frame with one int64 column per measure.

            >>> frame = pandas.DataFrame({"text": ["two words", ""]})
            >>> curation.measure(frame, ["words", "bytes"])["words"].tolist()
            [2, 0]
        """,
        second="names",
        types={"names": "str | Measure | Sequence[str | Measure]"},
    )

    names: tuple[str, ...] = ()
    listed_words: str | tuple[str, ...] = ""
    personal_data: tuple[str, ...] = ()
    patterns: str = "checked"
    private: str = "keep"
    script: bool = False
    script_shares: tuple[str, ...] = ()
    tokenizer: str = ""
    words: str = ""

    def __post_init__(self) -> None:
        check_words(self.words)
        check_listed_words(self.listed_words)
        if self.personal_data:
            self._redact()  # refuses unknown types
        elif (self.patterns, self.private) != ("checked", "keep"):
            raise ValueError("patterns and private need personal_data; list types there, or leave both out")
        check_scripts(self.script_shares)
        msgspec.structs.force_setattr(self, "names", tuple(dict.fromkeys(map(name_of, self.names))))
        check_use(self.names, self.tokenizer)

    def writes(self) -> dict[str, str]:
        listed = {COLUMN: "double"} if self.listed_words else {}
        counts = dict.fromkeys(map("{}_count".format, self.personal_data), "int64")
        scripts = columns_of(self.script, self.script_shares)
        return dict.fromkeys(self.measures, "int64") | listed | counts | scripts

    def column_facts(self, column: str) -> ColumnFacts:
        return ColumnFacts(SCRIPT_CODES if self.script and column == SCRIPT else ())

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of the measures that the stage writes."""
        others = self.listed_words or self.personal_data or self.script or self.script_shares
        return self.names or (() if others else tuple(Measure.__members__))

    def kernels(self) -> tuple[str, ...]:
        measures = ("measures",) if self.measures or self.listed_words else ()
        return (
            *measures,
            *(("scripts",) if self.script or self.script_shares else ()),
            *kernels_of(self.words),
            *(("rewrite", "shingles", "ngram_table") if self.listed_words else ()),
        )

    def files(self) -> dict[str, str]:
        return list_files(self.listed_words) | tokenizer_files(self.names, self.tokenizer)

    def check(self, inputs: Sequence[str]) -> None:
        if self.listed_words:
            load_words(self.listed_words)
        check_tokenizer(self.names, self.tokenizer)

    def _redact(self) -> Redact:
        return Redact(types=self.personal_data, patterns=self.patterns, private=self.private)

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        columns: dict[str, Any] = measured(engine, frame[TEXT], self.measures, self.tokenizer, self.words)
        if self.personal_data:
            counts = self._redact().count(engine, frame)
            columns |= {f"{name}_count": values for name, values in counts.items()}
        if self.script or self.script_shares:
            columns |= script_columns(engine, frame, self.script, self.script_shares)
        details = counts_of(columns[SCRIPT]) if self.script else {}
        if self.listed_words:
            columns[COLUMN] = word_rates(engine, frame[TEXT], self.listed_words, self.words)
            details["listed"] = int(np.count_nonzero(columns[COLUMN]))
        return Outcome(columns=columns, details=details)

    def explain(self) -> list[str]:
        return [f"write {', '.join(self.writes())}"]

    def report_lines(self, count: StageCount) -> list[str]:
        lines = [f"{counted(len(self.writes()), 'measure')} of {counted(count.documents_in, 'document')}"]
        scripts = {name.removeprefix(COUNT): n for name, n in count.details.items() if name.startswith(COUNT)}
        lines += [f"scripts: {counts_line(scripts)}"] * bool(scripts)
        listed = count.details.get("listed", 0)
        return [*lines, *([f"{counted(listed, 'document')} with listed words"] if self.listed_words else [])]
