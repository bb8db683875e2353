# SPDX-License-Identifier: Apache-2.0
"""`measure`: writes measures of documents beside them, removes none."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from curation.contract import TEXT, Engine, Frame
from curation.measures import Measure, name_of
from curation.stages.outcome import Outcome


class AddMeasures(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="measure", tag_field="kind"
):
    """Adds a column (int64) per measure to `documents/`, so that thresholds can be chosen, and moved, without measuring
    again.

    names   of `curation.Measure`; empty: all of them

    They are of the text as it stands at this stage: a later one that changes the text leaves them as they are, and of
    two `measure` stages with one name the later counts.
    """

    removes: ClassVar[bool] = False  # documents

    names: tuple[str, ...] = ()
    name: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "names", tuple(dict.fromkeys(map(name_of, self.names))))

    @property
    def added(self) -> dict[str, str]:
        """The columns that the stage writes: name -> Arrow type."""
        return dict.fromkeys(self.names or Measure.__members__, "int64")

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        return Outcome(engine.with_columns(frame, engine.measure(frame[TEXT], tuple(self.added))))


__all__ = ["AddMeasures"]
