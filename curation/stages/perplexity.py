# SPDX-License-Identifier: Apache-2.0
"""`perplexity`: write how well a language model predicts each text into a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from curation.contract import TEXT, Engine, Frame
from curation.errors import counted, nearest
from curation.kernels.language_model import LINES, TOTAL, UNITS, UNKNOWN_WORDS, WORDS
from curation.models.ngrams import KenlmModel, load_language_model
from curation.stages.base import RowStage
from curation.stages.language import check_new_column
from curation.stages.outcome import Outcome, StageCount
from curation.system.files import known_sha256

UNITS_OF = ("token", "word", "byte")
DECIMALS = 4  # of a perplexity
DECADES = 6  # in the report: below 10, 100, ...; the last has no bound


class Perplexity(RowStage, frozen=True, kw_only=True, tag="perplexity"):
    """Write the perplexity of a text by an n-gram language model into a column. No document is removed: `filter` and
    `select` take the column.

    model    path of an ARPA file, such as one of `curate train lm`, also compressed with gzip; or of a binary file of
             KenLM, which needs the package kenlm and is computed on the host
    per      `token`: per word and end of a line, as KenLM and CCNet count; `word`: per word; `byte`: per byte of UTF-8
    column   name of the new column in `documents/`: float64, null for a text without words

    The perplexity is 10^(-s / n): s is the sum of the log probabilities (base 10) of all words and ends of lines, n the
    number of units. Each line with words is a sentence. Words are runs of bytes without ASCII white space: give the
    model texts of the form that it was trained on, by a `rewrite` before. Sums of ARPA files are exact integers, the
    same on both engines; values are rounded once, to 0.0001. InputError for a model that cannot be used.
    """

    removes: ClassVar[bool] = False

    model: str
    per: str = "token"
    column: str = "perplexity"

    def __post_init__(self) -> None:
        check_new_column(self.column)
        if not self.model:
            raise ValueError("model is empty; give the path of an ARPA file")
        if self.per not in UNITS_OF:
            raise ValueError(f"per: no unit {self.per!r}{nearest(self.per, UNITS_OF)}")

    def kernels(self) -> tuple[str, ...]:
        return ("language_model",)

    def writes(self) -> dict[str, str]:
        return {self.column: "double"}

    def files(self) -> dict[str, str]:
        return {self.model: known_sha256(self.model)}

    def check(self, inputs: Sequence[str]) -> None:
        load_language_model(self.model)

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        model = load_language_model(self.model)
        if isinstance(model, KenlmModel):
            scores = model.score_texts(engine.to_arrow(frame[[TEXT]]).column(TEXT).to_pylist())
        else:
            scores = engine.score_text(frame[TEXT], model)
        words = scores[:, WORDS]
        if self.per == "byte":
            units = engine.byte_lengths(frame[TEXT])
        else:
            units = words + scores[:, LINES] if self.per == "token" else words
        known = words > 0
        values = perplexities(scores[:, TOTAL], np.maximum(units, 1))
        decade = np.minimum(np.floor(np.log10(values[known])).astype(np.int64), DECADES - 1)
        bins = np.bincount(np.maximum(decade, 0), minlength=DECADES)
        details = {f"decade_{number}": int(count) for number, count in enumerate(bins.tolist())}
        details |= {"empty": int(np.count_nonzero(~known)), "words": int(words.sum())}
        details["unknown_words"] = int(scores[:, UNKNOWN_WORDS].sum())
        return Outcome(columns={self.column: pa.array(values, mask=~known)}, details=details)

    def explain(self) -> list[str]:
        return [f"{self.column}: perplexity per {self.per} by {self.model}"]

    def report_lines(self, count: StageCount) -> list[str]:
        """Return documents per power of ten of the perplexity, and the share of words that the model does not know."""
        bins = [count.details.get(f"decade_{number}", 0) for number in range(DECADES)]
        names = [f"below {10 ** (number + 1):,}" for number in range(DECADES - 1)] + ["above"]
        shown = ", ".join(f"{name} {number:,}" for name, number in zip(names, bins, strict=True) if number)
        words, unknown = count.details.get("words", 0), count.details.get("unknown_words", 0)
        empty = count.details.get("empty", 0)
        return [
            f"{self.column} {shown or 'of no document'}; {unknown / max(words, 1):.2%} of the words unknown",
            *([f"{counted(empty, 'document')} without words"] if empty else []),
        ]


def perplexities(totals: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return 10^(-total / units), rounded to DECIMALS. `totals`: int64 in units of a logarithm; `units`: above 0."""
    return np.round(np.power(10.0, -totals / (UNITS * units.astype(np.float64))), DECIMALS)


__all__ = ["Perplexity", "perplexities"]
