# SPDX-License-Identifier: Apache-2.0
"""Segments: chains of row stages with the corpus stages right after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from curation.stages import CorpusStage, Stage


class Segment(NamedTuple):
    """A chain of row stages and the corpus stages right after them, as stage numbers."""

    number: int
    row_stages: tuple[int, ...]
    corpus_stages: tuple[int, ...]
    first: int  # number of stages before the segment
    last: int  # number of stages before its corpus stages


def cut_segments(stages: Sequence[Stage]) -> list[Segment]:
    """Return the stages as segments, at least one. Each segment has row stages and the corpus stages right after them.

    A corpus stage that cuts texts or writes columns ends its segment, and another segment always follows, which reads
    the changed documents.
    """
    segments: list[tuple[list[int], list[int]]] = [([], [])]
    for number, stage in enumerate(stages):
        corpus_stages = segments[-1][1]
        compares = isinstance(stage, CorpusStage)
        if corpus_stages and (not compares or _changes(stages[corpus_stages[-1]])):
            segments.append(([], []))
        segments[-1][compares].append(number)
    if stages and _changes(stages[-1]):
        segments.append(([], []))
    result, first = [], 0
    for number, (rows, corpus) in enumerate(segments):
        result.append(Segment(number, tuple(rows), tuple(corpus), first, first + len(rows)))
        first += len(rows) + len(corpus)
    return result


def _changes(stage: Stage) -> bool:
    return isinstance(stage, CorpusStage) and (stage.cuts_text or bool(stage.writes()))
