# SPDX-License-Identifier: Apache-2.0
"""Finds the records of windows (`curation.kernels.spans`), text by text. Hash tables find which records are equal."""

import numpy as np

from curation.kernels.spans import NODE, hash_anchors, hash_nodes, hash_windows, judge, new_anchors


def anchor_records(
    data: np.ndarray, offsets: np.ndarray, length: int, memory: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values, places = new_anchors(data, offsets, length)
    records, spans = np.empty((len(values), 3), np.uint64), np.empty((len(values), 2), np.int64)
    kept, repeated = hash_anchors(data, offsets, length, values, memory, places, records, spans)
    return records[:kept], places[:kept].copy(), spans[:repeated].copy()


def node_records(data: np.ndarray, places: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    low, high, anchor = places.T
    count = int(((anchor - low) // NODE - (anchor - high) // NODE + 1).sum())
    records, nodes = np.empty((count, 3), np.uint64), np.empty((count, 3), np.int64)
    hash_nodes(data, places, length, records, nodes)
    return records, nodes


def window_records(data: np.ndarray, places: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    count = int((places[:, 1] - places[:, 0] + 1).sum())
    records, windows = np.empty((count, 2), np.uint64), np.empty((count, 3), np.int64)
    hash_windows(data, places, length, records, windows)
    return records, windows


def judge_records(records: np.ndarray, is_whole: bool) -> np.ndarray:
    verdicts = np.zeros(len(records), np.uint8)
    judge(records, is_whole, verdicts)
    return verdicts
