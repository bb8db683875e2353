# SPDX-License-Identifier: Apache-2.0
"""Finds spans of texts that other texts contain too, from positions where both may be equal. Both engines run this
module on the host."""

import numpy as np

from curation.kernels.cache import kernel
from curation.kernels.hashing import at, load64
from curation.kernels.spans import CHUNK, find_anchors


def all_anchors(data: np.ndarray, offsets: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes (uint64) and the places (int64 of shape (n, 3)) of all anchors of the texts
    data[offsets[k]:offsets[k + 1]], also of repeated windows."""
    windows = int(np.maximum(np.diff(offsets) - length + 1, 0).sum())
    places, hashes = np.empty((windows, 3), np.int64), np.empty(windows, np.uint64)
    count = find_anchors(data, offsets, length, length // 2, np.empty(CHUNK + length, np.uint64), places, hashes)
    return hashes[:count], places[:count].copy()


def matching_spans(
    data: np.ndarray, places: np.ndarray, length: int, first: np.ndarray, count: np.ndarray, positions: np.ndarray,
    texts: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Return spans of `data` that `texts` contains too: int64 (number, start, stop, shift). A span is at `start +
    shift` in `texts`.

    places     int64 (low, high, anchor), as in `curation.kernels.spans`
    first      of each place, int64: the first of its `count` elements of `positions`
    positions  uint64: positions in `texts`; the bytes there may equal those of an anchor

    A span contains the anchor, has at least `length` bytes, and is inside the windows of its place; `number` is the
    number of the place.
    """
    if not len(places):
        return np.zeros((0, 4), np.int64)
    positions.flags.writeable = False  # the type of a memory map, so the kernel is compiled once
    spans = np.empty((int(count.sum()), 4), np.int64)
    return spans[: match_places(data, places, length, first, count, positions, texts, spans)].copy()


@kernel
def match_places(data, places, length, first, count, positions, texts, spans):
    """Write the spans of `matching_spans`; return how many there are."""
    written = 0
    for number in range(len(places)):
        low, high, anchor = places[number, 0], places[number, 1], places[number, 2]
        for k in range(first[number], first[number] + count[number]):
            position = np.int64(positions[k])
            if position < 0 or position >= len(texts):  # of a damaged file
                continue
            most, after = min(high + length - anchor, len(texts) - position), np.int64(0)
            while after + 8 <= most and load64(data, anchor + after) == load64(texts, position + after):
                after += 8
            while after < most and data[at(anchor + after)] == texts[at(position + after)]:
                after += 1
            most, before = min(anchor - low, position), np.int64(0)
            while before < most and data[at(anchor - before - 1)] == texts[at(position - before - 1)]:
                before += 1
            if before + after >= length:
                spans[written, 0], spans[written, 1], spans[written, 2] = number, anchor - before, anchor + after
                spans[written, 3] = position - anchor
                written += 1
    return written
