# SPDX-License-Identifier: Apache-2.0
"""The stage of `curate measure --recipe` for rules that differ between groups of documents."""

from __future__ import annotations

from typing import ClassVar

from curation.stages.base import Function
from curation.stages.rows.measure import MeasureStage


class RuleMeasures(MeasureStage, frozen=True, kw_only=True, tag="curation.stages.rows.rule_measures:RuleMeasures"):
    """Add measures to documents that have the columns `per`. The values of these columns select the rules."""

    function: ClassVar[Function] = Function("")

    per: tuple[str, ...]

    def reads(self) -> tuple[str, ...]:
        return self.per
