# SPDX-License-Identifier: Apache-2.0
"""The stage of `curate measure --spans`: count what `substring_dedup` would cut."""

from __future__ import annotations

from typing import ClassVar

from curation.stages.base import Forecast, Function, StageSample
from curation.stages.exact.substring_dedup import SubstringDedup
from curation.stages.outcome import StageCount


class SpanShares(SubstringDedup, frozen=True, kw_only=True, tag="curation.stages.exact.span_shares:SpanShares"):
    """Count what `substring_dedup` would cut, and leave all documents as they are. So several such stages with
    different lengths read the same text."""

    function: ClassVar[Function] = Function("")
    removes: ClassVar[bool] = False
    cuts_text: ClassVar[bool] = False

    def report_lines(self, count: StageCount) -> list[str]:
        return []

    def forecast(self, sample: StageSample) -> Forecast:
        return super().forecast(sample)._replace(warnings=())
