# SPDX-License-Identifier: Apache-2.0
"""Bounds on the sizes of edited texts: a bound per text, `max_document_bytes` of its input, and a bound on all texts of
a frame together.

A stage receives only a frame, so the bound per text is in a context variable. Functions on data frames set no bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import pyarrow as pa

from curation.base.contract import Engine, Frame
from curation.rules.decide import Verdict
from curation.stages.outcome import Outcome

TOO_LARGE = "above_max_document_bytes"
GROWTH = 4  # edited texts of a frame may have this many times the bytes of the texts before
SMALL_BYTES = 4 << 20  # texts with fewer bytes count as if they had so many
MAX_PARTS = 16
_largest: ContextVar[int] = ContextVar("largest", default=0)


class TextsGrowError(Exception):
    """An edit would make the texts of several rows too large together. `parts`: number of frames into which to divide
    the rows."""

    def __init__(self, parts: int) -> None:
        super().__init__(f"edited texts are too large together: divide the frame into {parts}")
        self.parts = parts


@contextmanager
def bounded_texts(max_bytes: int) -> Iterator[None]:
    """Limit each text that stages make in this block to `max_bytes`."""
    token = _largest.set(max_bytes)
    try:
        yield
    finally:
        _largest.reset(token)


def exceed(sizes: np.ndarray, before: int) -> bool:
    """Return whether texts of `sizes` bytes, made from texts of `before` bytes in all, exceed a bound."""
    largest = _largest.get()
    return bool(largest and len(sizes) and (sizes.max() > largest or sizes.sum() > GROWTH * max(before, SMALL_BYTES)))


def too_large(sizes: np.ndarray, before: int) -> np.ndarray:
    """Return which texts are too large to be made; parameters as of `exceed`. Raises TextsGrowError if the other texts
    are too large together."""
    gone = sizes > _largest.get()
    made, allowed = int(sizes[~gone].sum()), GROWTH * max(before, SMALL_BYTES)
    if made > allowed and np.count_nonzero(~gone) > 1:
        raise TextsGrowError(min(-(-made // allowed) + 1, MAX_PARTS))
    return gone


def divided(engine: Engine, frame: Frame, parts: int) -> Iterator[Frame]:
    """Yield the rows of a frame in at most `parts` frames."""
    rows = np.arange(len(frame))
    for part in np.array_split(rows, min(parts, len(frame))):
        yield engine.filter_rows(frame, (rows >= part[0]) & (rows <= part[-1]))


def without_large_texts(engine: Engine, text: Any, outcome: Outcome) -> Outcome:
    """Return the outcome of a stage that removes the rows whose edited texts (`text`) are above the bound."""
    largest = _largest.get()
    if not largest or outcome.edited is None or not outcome.edited.any():
        return outcome
    sizes = engine.byte_lengths(text)
    gone = outcome.edited & (sizes > largest)
    if outcome.verdict is not None:
        gone &= outcome.verdict.kept
    return remove_large(outcome, gone, sizes, largest) if gone.any() else outcome


def remove_large(outcome: Outcome, gone: np.ndarray, sizes: np.ndarray | float, largest: int = 0) -> Outcome:
    """Return the outcome that also removes the rows `gone` (bool), with their `sizes` as values."""
    bound = (-math.inf, float(largest or _largest.get()))
    verdict = Verdict.dropping(gone, TOO_LARGE, sizes)._replace(bounds=(bound,))
    if outcome.verdict is not None:
        verdict = _joined(outcome.verdict, verdict)
    edited = None if outcome.edited is None else outcome.edited & ~gone
    return outcome._replace(verdict=verdict, edited=edited)


def _joined(first: Verdict, second: Verdict) -> Verdict:
    """Return one verdict with the removals of both. `second` has one reason, and removes only rows that `first`
    keeps."""
    gone = second.reason >= 0
    place = np.cumsum(~first.kept) - 1
    places = pa.array(place[~first.kept | gone], mask=gone[~first.kept | gone])
    return first._replace(
        reason=np.where(gone, len(first.reasons), first.reason),
        reasons=(*first.reasons, *second.reasons),
        value=np.where(gone, second.value, first.value),
        bounds=(*(first.bounds or ((-math.inf, math.inf),) * len(first.reasons)), *second.bounds),
        notes={name: pa.array(values).take(places) for name, values in first.notes.items()},
    )
