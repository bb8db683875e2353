# SPDX-License-Identifier: Apache-2.0
"""Keys of lines, paragraphs and sentences, or of windows of them: equal keys are equal units.

A key has 64 bits (uint64). Of 10^10 different units, about three pairs share a key. The host finds the units. The
engine folds and hashes them in a column that refers to the bytes of the texts; between two units the column has a null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import text_buffers
from curation.base.contract import TEXT
from curation.kernels.hashing import GOLDEN
from curation.kernels.rewrite import RewriteSteps
from curation.kernels.units import Units, find_units, stripped

if TYPE_CHECKING:
    from curation.base.contract import Engine

FOLDED = RewriteSteps(lowercase=True, characters="folded", whitespace="collapse")
COMPARISONS = ("exact", "folded")
AT_ONCE = 1 << 19  # units hashed at once: 50 MB of memory
EVERY_SECOND = 0b01010101  # validity bits of eight rows: every second row is valid


class UnitSettings(NamedTuple):
    """How units are compared: the settings of `line_dedup` that its keys depend on."""

    unit: str
    window: int
    compare: str
    min_characters: int


class TextBuffers(NamedTuple):
    """The arrays of an Arrow array of texts: the UTF-8 bytes (uint8), where each text begins and the last ends (int64),
    and whether each text is valid (None: no text is null)."""

    data: np.ndarray
    offsets: np.ndarray
    valid: np.ndarray | None

    def units(self, unit: str) -> Units:
        """Return the lines, paragraphs or sentences of the texts, by `find_units`."""
        return find_units(*self, unit)


def buffers_of(texts: pa.LargeStringArray) -> TextBuffers:
    """Return the arrays of texts, without a copy."""
    valid = texts.is_valid().to_numpy(zero_copy_only=False) if texts.null_count else None
    return TextBuffers(*text_buffers(texts), valid)


def unit_keys(engine: Engine, texts: pa.LargeStringArray, compared: UnitSettings) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays: a key for each unit of the texts, and the number of units of each text (int32). The key is
    that of the window that begins with the unit.

    A key is 0 if the window has only white space or fewer than `min_characters` characters, or does not end in the same
    text. Characters are counted without white space at the ends of units.
    """
    buffers = buffers_of(texts)
    units = buffers.units(compared.unit)
    hashes = np.empty(len(units.spans), np.uint64)
    characters = np.empty(len(hashes) if compared.min_characters else 0, np.int64)
    for start in range(0, len(hashes), AT_ONCE):
        batch = slice(start, start + AT_ONCE)
        column = _contents_column(buffers.data, stripped(buffers.data, units.spans[batch])[:, 1:])
        text = engine.from_arrow(pa.table({TEXT: column}))[TEXT]
        if compared.compare == "folded":
            text = engine.rewrite(text, FOLDED)[0]
        hashes[batch] = engine.hash_text(text)[::2, 0]
        if compared.min_characters:
            characters[batch] = pc.utf8_length(column).to_numpy(zero_copy_only=False)[::2]
    counts = units.counts.astype(np.int32)
    keys = _window_keys(hashes, counts, compared.window)
    if compared.min_characters:
        ends = np.cumsum(np.append(0, characters))
        last = len(ends) - compared.window
        keys[: max(last, 0)][ends[compared.window :] - ends[: max(last, 0)] < compared.min_characters] = 0
    return keys, counts


def _contents_column(data: np.ndarray, contents: np.ndarray) -> pa.LargeStringArray:
    """Return the contents (spans of `data`) as texts with a null between two, without a copy of the bytes."""
    rows = 2 * len(contents) - 1
    valid = np.full(rows // 8 + 1, EVERY_SECOND, np.uint8)
    edges = pa.py_buffer(np.ascontiguousarray(contents))
    return pa.LargeStringArray.from_buffers(rows, edges, pa.py_buffer(data), pa.py_buffer(valid), len(contents) - 1)


def _window_keys(hashes: np.ndarray, counts: np.ndarray, window: int) -> np.ndarray:
    """Return the key of the window at each unit. The hash of a blank unit is 0."""
    if window == 1:
        return hashes
    keys = np.zeros(len(hashes), np.uint64)
    places = len(hashes) - window + 1
    if places < 1:
        return keys
    state, solid = np.full(places, window, np.uint64), np.zeros(places, bool)
    for step in range(window):
        part = hashes[step : step + places]
        solid |= part != 0
        state ^= part
        state *= GOLDEN
        state ^= state >> np.uint64(29)
    document = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    solid &= document[:places] == document[window - 1 :]
    keys[:places] = np.where(solid, state | np.uint64(1), 0)
    return keys
