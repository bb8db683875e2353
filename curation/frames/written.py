# SPDX-License-Identifier: Apache-2.0
"""Columns of a frame that stages wrote. A warning names other columns of the frame that a stage replaces.

The names are noted in `frame.attrs`, like those of measures in `curation.frames.measured`. Tables of polars, DuckDB and
pyarrow, and frames of a run's documents, have no note, so a second call warns about columns of the first.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from curation.base.contract import Frame
from curation.base.errors import InputWarning
from curation.stages import Stage

NOTE = "curation.written"  # in frame.attrs: names of columns
OWN = ("curation", "cpu_fallback", "gpu_pipeline")  # packages whose lines a warning does not name


def note_written(frame: Frame, stage: Stage) -> None:
    """Add the columns that a stage wrote to the note of a frame, if its library has `attrs`."""
    if stage.writes() and hasattr(frame, "attrs"):
        frame.attrs[NOTE] = sorted({*_noted(frame), *stage.writes()})


def warn_of_replaced(frame: Any, stage: Stage) -> None:
    """Warn of columns that a stage will replace, unless another stage wrote them or this stage reads them."""
    known = {*_noted(frame), *stage.reads()}
    replaced = [name for name in stage.writes() if name in frame.columns and name not in known]
    if not replaced:
        return
    settings = [name for name in ("column", "names") if name in stage.__struct_fields__]
    option = {"column": "set column to another name, or ", "names": "leave them out of names, or "}
    warnings.warn(
        f"{stage.name or stage.kind} replaces columns that the frame has: {', '.join(map(repr, replaced))}. To keep "
        f"them, {option[settings[0]] if settings else ''}rename them first",
        InputWarning,
        stacklevel=callers_level(),
    )


def callers_level() -> int:
    """Return the `stacklevel` at which a warning of the calling function names the line that called this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in OWN:
        level, frame = level + 1, frame.f_back
    return level


def _noted(frame: Any) -> list[str]:
    noted = getattr(getattr(frame, "_meta", frame), "attrs", {}).get(NOTE)
    return noted if isinstance(noted, list) else []
