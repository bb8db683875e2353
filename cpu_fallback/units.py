# SPDX-License-Identifier: Apache-2.0
"""Makes frames with one unit of a text (`curation.kernels.units`) per row, and texts without some of their units."""

import numpy as np
import pandas as pd

from cpu_fallback.buffers import buffers_of, series_of
from cpu_fallback.unit_kernels import SLACK, copy_contents, copy_kept
from curation.base.contract import TEXT, UnitFrame
from curation.kernels.units import Units, find_units, stripped


def split_units(text: pd.Series, unit: str, strip: bool) -> UnitFrame:
    data, offsets, nulls = buffers_of(text)
    units = find_units(data, offsets, nulls, unit)
    contents = stripped(data, units.spans) if strip else units.spans
    sizes = contents[:, 2] - contents[:, 1]
    out, starts = np.empty(int(sizes.sum()) + SLACK, np.uint8), np.zeros(len(contents) + 1, np.int64)
    copy_contents(data, contents, out, starts)
    rows = series_of(out[: starts[-1]], starts, pd.RangeIndex(len(contents)), name=TEXT)
    return UnitFrame(rows.to_frame(), units.counts, (units.spans, contents))


def join_units(text: pd.Series, units: UnitFrame, kept: np.ndarray) -> tuple[pd.Series, np.ndarray]:
    data, offsets, nulls = buffers_of(text)
    spans, contents = units.spans
    valid = np.ones(len(text), bool) if nulls is None else nulls
    ends = Units(spans, units.counts).ends(offsets)
    out, out_ends = np.empty(int(offsets[-1] - offsets[0]) + SLACK, np.uint8), np.zeros(len(text) + 1, np.int64)
    edited = np.zeros(len(text), bool)
    copy_kept(data, offsets, valid, spans, contents, ends, units.counts, kept, out, out_ends, edited)
    return series_of(out[: out_ends[-1]], out_ends, text.index, nulls, text.name), edited
