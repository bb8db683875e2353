# SPDX-License-Identifier: Apache-2.0
"""`measure`: writes measures of documents beside them, removes none."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from curation.contract import TEXT, Engine, Frame
from curation.errors import counted
from curation.measures import Measure, name_of
from curation.stages.base import RowStage
from curation.stages.outcome import Outcome, StageCount


class MeasureStage(RowStage, frozen=True, kw_only=True, tag="measure"):
    """Adds a column (int64) per measure to `documents/`, so that thresholds can be chosen, and moved, without measuring
    again.

    names   of `curation.Measure`; empty: all of them

    They are of the text as it stands at this stage: a later one that changes the text leaves them as they are, and of
    two `measure` stages with one name the later counts.
    """

    removes: ClassVar[bool] = False  # documents

    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "names", tuple(dict.fromkeys(map(name_of, self.names))))

    def writes(self) -> dict[str, str]:
        return dict.fromkeys(self.names or Measure.__members__, "int64")

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        return Outcome(columns=engine.measure(frame[TEXT], tuple(self.writes())))

    def explain(self) -> list[str]:
        return [f"writes {', '.join(self.writes())}"]

    def report_lines(self, count: StageCount) -> list[str]:
        return [f"{counted(len(self.writes()), 'measure')} of {counted(count.documents_in, 'document')}"]


__all__ = ["MeasureStage"]
