# SPDX-License-Identifier: Apache-2.0
"""`curate measure --recipe`, where rules differ between groups of documents."""

from __future__ import annotations

from typing import ClassVar

from curation.stages.base import Function
from curation.stages.rows.measure import MeasureStage


class RuleMeasures(MeasureStage, frozen=True, kw_only=True, tag="curation.stages.rows.rule_measures:RuleMeasures"):
    """Add measures of documents that have the columns `per`, whose values have rules of their own."""

    function: ClassVar[Function] = Function("")

    per: tuple[str, ...]

    def reads(self) -> tuple[str, ...]:
        return self.per
