# SPDX-License-Identifier: Apache-2.0
"""`measure`: write measures of documents as columns; it removes no document."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from curation.contract import TEXT, Engine, Frame
from curation.errors import counted
from curation.measures import Measure, name_of
from curation.stages.base import RowStage
from curation.stages.outcome import Outcome, StageCount


class MeasureStage(RowStage, frozen=True, kw_only=True, tag="measure"):
    """Add one int64 column per measure to `documents/`, from which thresholds can be chosen without another run.

    names   names of measures (`curation.Measure`); empty: all

    Measures describe the text at this stage; later changes of the text do not update them. If two `measure` stages
    share a name, the later one overwrites the column. Measures of a null are 0. ValueError for an unknown name.
    """

    removes: ClassVar[bool] = False

    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "names", tuple(dict.fromkeys(map(name_of, self.names))))

    def writes(self) -> dict[str, str]:
        return dict.fromkeys(self.names or Measure.__members__, "int64")

    def kernels(self) -> tuple[str, ...]:
        return ("measures",)

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        return Outcome(columns=engine.measure(frame[TEXT], tuple(self.writes())))

    def explain(self) -> list[str]:
        return [f"write {', '.join(self.writes())}"]

    def report_lines(self, count: StageCount) -> list[str]:
        return [f"{counted(len(self.writes()), 'measure')} of {counted(count.documents_in, 'document')}"]


__all__ = ["MeasureStage"]
