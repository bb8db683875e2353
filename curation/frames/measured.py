# SPDX-License-Identifier: Apache-2.0
"""Measures that a frame already has: `curation.filter` and `curation.explain` do not compute them again.

`measure` and `explain` note the names of the measures that they add in `frame.attrs`, which pandas copies to selections
of rows and columns, and stores in Parquet. A stage that changes the text removes the note. If a user has changed the
text, a check of some rows finds it, and the frame is measured again. Frames without `attrs` are always measured again.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from curation.base.contract import TEXT, Engine, Frame
from curation.base.engine import engine_of
from curation.base.errors import InputWarning
from curation.base.measures import TOKENS
from curation.frames.written import callers_level
from curation.rules.decide import Rule, Verdict
from curation.stages import Filter, MeasureStage, RowStage, Stage
from curation.stages.outcome import Outcome
from curation.stages.words import divides

CHECKED_ROWS = 16  # least number of checked rows; in large frames, one row in 200 is checked
NOTE = "curation.measured"  # in frame.attrs: column of the text -> names of measures
VERDICT = {"kept": "bool", "reason": "large_string", "value": "double", "bound": "double"}


class Explain(RowStage, frozen=True, kw_only=True, tag="explain"):
    """Add the measures that rules need, the counts of their patterns, and the verdict: whether the row is `kept`, and
    the `reason`, `value` and `bound` of the first broken rule.

    rules      as in `curation.Filter`
    tokenizer  as in `curation.Filter`
    words      as in `curation.Filter`
    measured   whether the frame has the measures
    """

    removes: ClassVar[bool] = False

    rules: str | list[str | Rule]
    tokenizer: str = ""
    words: str = ""
    measured: bool = False

    @property
    def filter(self) -> Filter:
        """The filter with these rules."""
        return Filter(rules=self.rules, tokenizer=self.tokenizer, words=self.words)

    def reads(self) -> tuple[str, ...]:
        return self.filter.reads()

    def writes(self) -> dict[str, str]:
        return dict.fromkeys([*self.filter.measures, *self.filter.patterns], "int64") | VERDICT

    def kernels(self) -> tuple[str, ...]:
        return ("measures",)

    def check(self, inputs: Sequence[str]) -> None:
        self.filter.check(inputs)

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        names = self.filter.measures
        if self.measured:
            measures = _columns(engine, frame, names)
        else:
            measures = self.filter.measure(engine, frame, names)
        verdict = self.filter.judge(engine, frame, measures)
        counts = self.filter.count_patterns(engine, frame)
        return Outcome(columns=measures | counts | _verdict_columns(verdict))


def _verdict_columns(verdict: Verdict) -> dict[str, Any]:
    number = pa.array(verdict.reason.astype(np.int64), mask=verdict.kept)
    return {
        "kept": verdict.kept,
        "reason": pa.array(verdict.reasons, pa.large_string()).take(number),
        "value": verdict.value,
        "bound": verdict.broken_bounds(),
    }


class _MeasuredFilter(Filter, frozen=True, kw_only=True, tag="filter"):
    """`filter` on a frame that has the measures."""

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        return Outcome(self.judge(engine, frame, _columns(engine, frame, self.measures)))


def _columns(engine: Engine, frame: Frame, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    return {name: engine.to_arrow(frame[[name]]).column(name).to_numpy() for name in names}


def on_measures(stage: RowStage, frame: Frame, text_column: str) -> RowStage:
    """Return a stage that reads the measures of the frame instead of computing them, or the same stage if it needs no
    measures, or needs measures that the frame lacks."""
    if not isinstance(stage, Filter | Explain):
        return stage
    of_rules = stage if isinstance(stage, Filter) else stage.filter
    wanted = of_rules.measures
    if TOKENS in wanted or _of_other_text(of_rules):  # tokens in the frame may be those of another tokenizer
        return stage
    if not wanted or not {*wanted} <= {*_noted(frame, text_column)}:
        return stage
    if stale := _stale(of_rules, frame, text_column):
        warnings.warn(
            f"the measures in the frame are not those of {text_column!r}: {stale}. All texts are measured again. After "
            "a change of the text, call curation.measure again",
            InputWarning,
            stacklevel=callers_level(),
        )
        return stage
    if isinstance(stage, Explain):
        return Explain(rules=stage.rules, tokenizer=stage.tokenizer, measured=True)
    return _MeasuredFilter(rules=stage.rules, tokenizer=stage.tokenizer)


def _stale(stage: Filter, frame: Frame, text_column: str) -> str:
    """Return the first difference between the measures in the frame and those of its texts, in some of the rows; "" if
    there is none. The check takes 1 to 2 % of the time of measuring all rows."""
    count = min(len(frame), max(CHECKED_ROWS, len(frame) // 200))
    if not count:
        return ""
    engine, names = engine_of(frame), stage.measures
    rows = np.linspace(0, len(frame) - 1, count).astype(np.int64)
    table = engine.to_arrow(frame[[text_column, *names]].iloc[rows])
    now = stage.measure(engine, engine.from_arrow(pa.table({TEXT: table.column(text_column)})), names)
    for name in names:
        before = table.column(name).to_numpy()
        differs = np.flatnonzero(before != now[name])
        if len(differs):
            row = differs[0]
            return f"{name} is {before[row]:,} in the frame and {now[name][row]:,} in the text"
    return ""


def _of_other_text(stage: Filter) -> bool:
    """Return whether the stage measures divided or normalized texts."""
    return divides(stage.words) or bool(stage.normalized_measures)


def note_measures(frame: Frame, stage: Stage, text_column: str, changed: bool) -> None:
    """Update the note of a frame after a stage. `changed` tells whether the stage changed texts.

    If the note changes, the frame is a new one, because a stage that adds columns or changes texts returns a new
    frame."""
    names = _noted(frame, text_column)
    added = (*stage.writes(),) if isinstance(stage, MeasureStage) else ()
    added = stage.filter.measures if isinstance(stage, Explain) else added
    if divides(getattr(stage, "words", "")) or (isinstance(stage, Explain) and _of_other_text(stage.filter)):
        added = ()
    known = [] if changed else [name for name in names if name not in stage.writes()]
    if {*known, *added} != {*names}:
        frame.attrs[NOTE] = {**frame.attrs.get(NOTE, {}), text_column: sorted({*known, *added})}


def _noted(frame: Frame, text_column: str) -> list[str]:
    """Return the measures of a text column that the frame has as integers without nulls."""
    note = getattr(frame, "attrs", {}).get(NOTE)
    names = note.get(text_column, []) if isinstance(note, dict) else []
    return [name for name in names if name in frame.columns and frame[name].dtype == np.int64]
