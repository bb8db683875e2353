# SPDX-License-Identifier: Apache-2.0
"""`classify`: write the probability of a label of a fastText model into a column."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from curation.contract import TEXT, Engine, Frame
from curation.errors import counted, nearest
from curation.kernels.fasttext import SCORE_UNITS
from curation.models.fasttext import describe_model, label_names, load_classifier
from curation.stages.base import RowStage
from curation.stages.language import check_new_column
from curation.stages.outcome import Outcome, StageCount

SHOWN_LABELS = 10
BINS = 10  # of the probabilities in the report


class Classify(RowStage, frozen=True, kw_only=True, tag="classify"):
    """Write the probability of one label of a fastText model into a column. No document is removed: `filter` and
    `select` take the column.

    model           path of a supervised fastText model, `.bin` or `.ftz`, such as one of `curate train classifier`
    label           label of the model, without `__label__`; required
    column          name of the new column in `documents/`: float64, null for a text without anything the model knows
    max_characters  number of characters (code points) classified, from the start; 0: all; line ends count as spaces

    Probabilities are computed in integers, with a resolution of 0.000001. They equal those of the package fasttext
    within 0.00001. ValueError for a label that the model does not have, InputError for a model that cannot be used.
    """

    removes: ClassVar[bool] = False

    model: str
    label: str = ""
    column: str = "quality"
    max_characters: int = 0

    def __post_init__(self) -> None:
        if self.max_characters < 0:
            raise ValueError(f"max_characters must be 0 (all) or more, not {self.max_characters}")
        check_new_column(self.column)
        if not self.model:
            raise ValueError("model is empty; give the path of a fastText model")
        labels = label_names(self.model)
        if not self.label:
            raise ValueError(f"label is missing; the model has {', '.join(labels[:SHOWN_LABELS])}")
        if self.label not in labels:
            raise ValueError(f"label: no label {self.label!r} in the model{nearest(self.label, labels)}")

    def kernels(self) -> tuple[str, ...]:
        return ("language",)

    def writes(self) -> dict[str, str]:
        return {self.column: "double"}

    def files(self) -> dict[str, str]:
        model = describe_model(self.model)
        return {model["file"]: model["sha256"]}

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        model = load_classifier(self.model).scoring(self.label)
        label, score = engine.classify(frame[TEXT], model, self.max_characters)
        known = label >= 0
        bins = np.bincount(np.minimum(score[known] * BINS // SCORE_UNITS, BINS - 1), minlength=BINS)
        details = {f"bin_{number}": int(count) for number, count in enumerate(bins.tolist())}
        details["unknown"] = int(np.count_nonzero(~known))
        return Outcome(columns={self.column: pa.array(score / SCORE_UNITS, mask=~known)}, details=details)

    def explain(self) -> list[str]:
        text = f"the first {self.max_characters:,} characters" if self.max_characters else "the whole text"
        return [f"{self.column}: probability of {self.label!r} by {self.model}; classify {text}"]

    def report_lines(self, count: StageCount) -> list[str]:
        """Return one line: documents per tenth of the probability, from 0."""
        bins = [count.details.get(f"bin_{number}", 0) for number in range(BINS)]
        unknown = count.details.get("unknown", 0)
        line = f"{self.column} in tenths from 0: {', '.join(f'{number:,}' for number in bins)} documents"
        return [line, *([f"{counted(unknown, 'document')} without words of the model"] if unknown else [])]


__all__ = ["Classify"]
