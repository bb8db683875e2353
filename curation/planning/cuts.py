# SPDX-License-Identifier: Apache-2.0
"""Warnings about stages that cut most of the text of an input, for the plan and the report of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from curation.stages import Lines, Stage

MAX_CUT_SHARE = 0.5  # of the bytes of the documents that a stage keeps
MIN_BYTES = 10_000  # of these documents: a few texts say nothing about an input
JOIN_LINES = r"""{kind: rewrite, replace: [{matches: '(\S) *\n *([\p{L}\p{N}])', by: '\1 \2'}]}"""

# (stage, input) -> bytes that are cut, and bytes of the kept documents before; input "": all inputs together
Cuts = dict[tuple[str, str], tuple[float, float]]


def add_cut(cuts: Cuts, stage: str, source: str, cut: float, before: float) -> None:
    """Add the bytes of some documents of an input to the cuts."""
    earlier = cuts.get((stage, source), (0, 0))
    cuts[stage, source] = earlier[0] + cut, earlier[1] + before


def warn_of_cuts(cuts: Cuts, stages: Mapping[str, Stage]) -> Iterator[str]:
    """Yield a warning for each stage and input of which it cuts more than MAX_CUT_SHARE. `stages`: name -> stage."""
    for (name, source), (cut, before) in cuts.items():
        if before >= MIN_BYTES and cut > MAX_CUT_SHARE * before:
            of = f"input {source!r}" if source else "all inputs"
            remedy = ""
            if isinstance(stages[name], Lines):
                remedy = f". If its paragraphs are wrapped into lines, put this stage before it: {JOIN_LINES}"
            yield (
                f"{name} cuts {cut:,.0f} of {before:,.0f} bytes ({cut / before:.0%}) from the texts of {of} that it "
                f"keeps{remedy}"
            )
