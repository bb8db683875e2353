# SPDX-License-Identifier: Apache-2.0
"""The settings and the report of stages with an encoder, which reads a text in windows of tokens."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from curation.base.arrays import as_one_array
from curation.base.contract import TEXT, Engine, Frame
from curation.base.errors import counted
from curation.models.windows import TokenWindows
from curation.stages.outcome import StageCount

# What a model read of each document; `truncated` is 1 if the model read only the start. `window_line` shows the sums.
WINDOW_VALUES = dict.fromkeys(("windows", "truncated", "characters", "characters_seen"), "int64")


def check_windows(windows: int, pooling: str) -> None:
    """Raise ValueError for a number of windows that does not fit the pooling."""
    if windows < 0:
        raise ValueError(f"windows must be 0 (the whole text) or more, not {windows}")
    if pooling == "first" and windows != 1:
        raise ValueError(f"pooling: first reads one window, and windows is {windows}; use mean or max, or windows: 1")


def texts_of(engine: Engine, frame: Frame, max_characters: int = 0) -> list[str | None]:
    """Return the texts of a frame, up to `max_characters` of each (0: all)."""
    texts: list[str | None] = as_one_array(engine.to_arrow(frame[[TEXT]]).column(TEXT)).to_pylist()
    return [text and text[:max_characters] for text in texts] if max_characters else texts


def describe_windows(windows: int, pooling: str) -> str:
    """Describe the parts of a text that an encoder reads, for `curate plan`."""
    if windows == 1:
        return "the first window"
    return f"the {pooling} of {f'up to {windows:,}' if windows else 'all'} windows"


def window_columns(windows: TokenWindows) -> dict[str, pa.Array]:
    """Return the values of WINDOW_VALUES for each document."""
    counts = np.bincount(windows.document, minlength=len(windows.seen))
    columns = (counts, windows.is_truncated, windows.characters, windows.seen)
    return {name: pa.array(column.astype(np.int64)) for name, column in zip(WINDOW_VALUES, columns, strict=True)}


def sums_of(values: pa.Table, names: Iterable[str]) -> dict[str, int]:
    """Return the sums of columns of integers, for the details of an outcome."""
    return {name: int(values.column(name).to_numpy().sum()) for name in names}


def window_line(count: StageCount) -> list[str]:
    """Return a line with the share of the text that the model read; no line for a model that does not read windows."""
    details = count.details
    if "windows" not in details:
        return []
    share = details["characters_seen"] / max(details["characters"], 1)
    line = f"read {100 * share:.1f} % of the characters in {counted(details['windows'], 'window')}"
    if details["truncated"]:
        line += f"; {counted(details['truncated'], 'document')} truncated"
    return [line]
