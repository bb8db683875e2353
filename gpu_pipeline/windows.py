# SPDX-License-Identifier: Apache-2.0
"""Finds the records of windows (`curation.kernels.spans`) of all texts of a batch at once. One sort finds which records
are equal.

Texts and positions are on the host: they are copied to the device, and records are copied back. A period is compared
byte by byte for each anchor, up to 1.5 times `length`. So texts with a short period are slower than others. The CPU
engine takes texts of 1 GiB or more, and texts that do not fit the device.
"""

from collections.abc import Callable
from typing import Any

import cupy as cp
import numpy as np

from curation.base.engine import load_engine
from curation.kernels.spans import CLOSER, KEPT, NODE, REPEATED, SLOTS
from gpu_pipeline.kernels import core, window_kernels
from gpu_pipeline.memory.buffers import download, upload
from gpu_pipeline.memory.device import device_errors, finish, memory, warn_of_short_memory

LARGEST = 1 << 30  # bytes of text; positions of strings have 32 bits
# Bytes on the device, not measured: per byte of text, with the hash of a string and the distance of an anchor; per
# position, with its record; per record, with the scratch of the sort. Text with an anchor per byte takes more.
TEXT_BYTES, PLACE_BYTES, RECORD_BYTES = 24, 90, 110


def _on_device(size: int, run: Callable[[], Any], on_cpu: Callable[[], Any]) -> Any:
    """Return the result of `run`, which takes `size` bytes on the device. If the device has no room, return the result
    of `on_cpu`."""
    try:
        with memory().reserve(size):
            result = run()
            finish()
            return result
    except MemoryError:
        warn_of_short_memory()
        return on_cpu()


@device_errors()
def anchor_records(
    data: np.ndarray, offsets: np.ndarray, length: int, memory: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    size, on_cpu = int(offsets[-1] - offsets[0]), load_engine("cpu").anchor_records
    if size >= LARGEST:
        return on_cpu(data, offsets, length, memory)
    return _on_device(
        TEXT_BYTES * size,
        lambda: _anchor_records(data, offsets, length, memory),
        lambda: on_cpu(data, offsets, length, memory),
    )


def _anchor_records(
    data: np.ndarray, offsets: np.ndarray, length: int, memory: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    origin = int(offsets[0])
    if not (np.diff(offsets) >= length).any():
        return np.zeros((0, 3), np.uint64), np.zeros((0, 3), np.int64), np.zeros((0, 2), np.int64)
    text, ends = upload(data[origin : offsets[-1]]), cp.asarray(offsets - origin)
    values, places, rows = _find_anchors(text, ends, length)
    repeated = cp.empty(rows.size, bool)
    core.launch(window_kernels.mark_periods, rows.size, text, ends, rows, length, values, places, repeated)
    others = cp.flatnonzero(~repeated)
    hashes = cp.empty((others.size, 2), np.uint64)
    core.launch(window_kernels.hash_anchors, others.size, text, places[others], length, hashes)
    remembered = cp.asarray(memory)
    known = _are_known(hashes, remembered)
    repeated[others] = known
    records = cp.empty((others.size, 3), np.uint64)
    records[:, 0], records[:, 1:] = values[others], hashes
    spans = _joined(places[repeated], length) + origin
    result = download(records[~known]), download(places[~repeated] + origin), download(spans)
    memory[:] = cp.asnumpy(remembered)
    return result


def _find_anchors(text: cp.ndarray, offsets: cp.ndarray, length: int) -> tuple[cp.ndarray, ...]:
    """Return three arrays of anchors: hash of the string, position, and text. A window is the first of its anchor if
    the window before has another anchor. Windows that do not end in their text are left out."""
    values, distances = window_kernels.anchor_distances(text, length)
    is_first = cp.ones(distances.size, bool)
    is_first[1:] = distances[1:] + 1 != distances[:-1]
    starts, ends = offsets[:-1], offsets[1:]
    is_first[starts[ends - starts >= length]] = True
    low = cp.flatnonzero(is_first)
    rows = cp.searchsorted(offsets, low, side="right") - 1
    is_inside = low + length <= ends[rows]
    low, rows = low[is_inside], rows[is_inside]
    places = cp.empty((low.size, 3), np.int64)
    places[:, 0], places[:, 1], places[:, 2] = low, ends[rows] - length, low + distances[low]
    places[:-1, 1] = cp.minimum(places[:-1, 1], low[1:] - 1)
    return values[places[:, 2]], places, rows


def _are_known(hashes: cp.ndarray, memory: cp.ndarray) -> cp.ndarray:
    """Return whether each record equals the last record before it in the same slot of `memory`. Afterwards `memory` has
    the last record of each slot."""
    if len(hashes) == 0 or len(memory) == 0:
        return cp.zeros(len(hashes), bool)
    slot = (hashes[:, 0] & np.uint64(SLOTS - 1)).astype(np.int64)
    order = cp.argsort(slot, kind="stable")
    slot, ordered = slot[order], hashes[order]
    is_first, is_last = cp.ones(slot.size, bool), cp.ones(slot.size, bool)
    is_first[1:] = slot[1:] != slot[:-1]
    is_last[:-1] = is_first[1:]
    before = cp.empty_like(ordered)
    before[1:] = ordered[:-1]
    before[is_first] = memory[slot[is_first]]
    known = cp.empty(slot.size, bool)
    known[order] = (before == ordered).all(axis=1)
    memory[slot[is_last]] = ordered[is_last]
    return known


def _joined(places: cp.ndarray, length: int) -> cp.ndarray:
    """Return the bytes of the windows at `places` as spans (start, stop); windows that touch share one span."""
    is_first, is_last = cp.ones(len(places), bool), cp.ones(len(places), bool)
    is_first[1:] = places[:-1, 1] + length < places[1:, 0]
    is_last[:-1] = is_first[1:]
    spans = cp.empty((int(is_first.sum()), 2), np.int64)
    spans[:, 0], spans[:, 1] = places[is_first, 0], places[is_last, 1] + length
    return spans


@device_errors()
def node_records(data: np.ndarray, places: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    low, high, anchor = places.T
    counts = (anchor - low) // NODE - (anchor - high) // NODE + 1
    return _on_device(
        _closer_bytes(places, counts),
        lambda: _closer_records(window_kernels.hash_nodes, 3, counts, data, places, length),
        lambda: load_engine("cpu").node_records(data, places, length),
    )


@device_errors()
def window_records(data: np.ndarray, places: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    counts = places[:, 1] - places[:, 0] + 1
    return _on_device(
        _closer_bytes(places, counts),
        lambda: _closer_records(window_kernels.hash_windows, 2, counts, data, places, length),
        lambda: load_engine("cpu").window_records(data, places, length),
    )


def _closer_bytes(places: np.ndarray, counts: np.ndarray) -> int:
    text = int(places[:, 1].max() - places[:, 0].min()) if len(places) else 0
    return text + PLACE_BYTES * int(len(places) + counts.sum())


def _closer_records(
    kernel: Any, width: int, counts: np.ndarray, data: np.ndarray, places: np.ndarray, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the records that a kernel makes for `places`, and the place of each record. The kernel makes counts[k]
    records for places[k]."""
    starts = core.starts_of(counts)
    records = cp.empty((int(starts[-1]), width), np.uint64)
    parts = cp.empty((len(records), 3), np.int64)
    if len(records):
        origin, end = int(places[:, 0].min()), int(places[:, 1].max()) + length
        on_device = upload(data[origin:end]), cp.asarray(np.ascontiguousarray(places - origin)), cp.asarray(starts)
        core.launch(kernel, len(records), *on_device, length, records, parts)
        parts += origin
    return download(records), download(parts)


@device_errors()
def judge_records(records: np.ndarray, is_whole: bool) -> np.ndarray:
    return _on_device(
        RECORD_BYTES * len(records),
        lambda: _verdicts(records, is_whole),
        lambda: load_engine("cpu").judge_records(records, is_whole),
    )


def _verdicts(records: np.ndarray, is_whole: bool) -> np.ndarray:
    """Return for each record whether it is KEPT, REPEATED or CLOSER. One radix sort per column, the most significant
    last, keeps equal records in order."""
    count = len(records)
    if count == 0:
        return np.zeros(0, np.uint8)
    columns = [cp.asarray(np.ascontiguousarray(column)) for column in records.T]
    order = cp.arange(count)
    for column in reversed(columns):
        order = order[cp.argsort(column[order], kind="stable")]
    is_first = cp.zeros((2, count), bool)  # over the records with the same first hash, and over equal records
    is_first[:, :1] = True
    for number, column in enumerate(columns):
        ordered = column[order]
        is_first[min(number, 1), 1:] |= ordered[1:] != ordered[:-1]
    is_first[1] |= is_first[0]
    kept = CLOSER
    if is_whole:
        part = core.prefix_sums(is_first[0], np.int64) - 1
        kept = cp.where(cp.bincount(part[is_first[1]])[part] > 1, CLOSER, KEPT)
    verdicts = cp.empty(count, np.uint8)
    verdicts[order] = cp.where(is_first[1], kept, REPEATED)
    return cp.asnumpy(verdicts)
