# SPDX-License-Identifier: Apache-2.0
"""Measures how well probabilities of a label agree with the labels of held-out texts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

BINS = 10


class LabelMetrics(NamedTuple):
    """Metrics of one label on held-out texts; NaN where they are not defined.

    texts      texts with the label
    precision  share of texts with the label among those for which it is the most probable one
    recall     share of the texts with the label for which it is the most probable one
    auc        area under the ROC curve: the probability that a text with the label has a higher score than one without
    """

    texts: int
    precision: float
    recall: float
    auc: float


class CalibrationBin(NamedTuple):
    """Held-out texts with a probability from `low` to below `high`; the last bin has 1 too.

    mean    mean probability, NaN for an empty bin
    share   share of the texts that have the label, NaN for an empty bin
    """

    low: float
    high: float
    texts: int
    mean: float
    share: float


def label_metrics(truth: np.ndarray, scores: np.ndarray) -> list[LabelMetrics]:
    """Return the metrics of each label.

    truth   label of each text, integers of shape (texts,)
    scores  probability of each label, float64 of shape (texts, labels)
    """
    best = scores.argmax(axis=1)
    metrics = []
    for label in range(scores.shape[1]):
        has, is_best = truth == label, best == label
        both = int(np.count_nonzero(has & is_best))
        metrics.append(
            LabelMetrics(
                int(np.count_nonzero(has)), _share(both, is_best), _share(both, has), roc_auc(has, scores[:, label])
            )
        )
    return metrics


def _share(part: int, whole: np.ndarray) -> float:
    total = np.count_nonzero(whole)
    return float(part / total) if total else float("nan")


def roc_auc(has_label: np.ndarray, scores: np.ndarray) -> float:
    """Return the area under the ROC curve by ranks (Mann and Whitney 1947), ties counted as one half; NaN if all texts
    or none have the label."""
    positives = int(np.count_nonzero(has_label))
    negatives = len(has_label) - positives
    if not positives or not negatives:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = (last - (counts - 1) / 2)[inverse]  # the mean rank of equal scores, from 1
    return float((ranks[has_label].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def calibration(has_label: np.ndarray, scores: np.ndarray) -> list[CalibrationBin]:
    """Return ten bins of equal width with the mean probability and the share of texts that have the label."""
    bins = np.clip((scores * BINS).astype(np.int64), 0, BINS - 1)
    table = []
    for number in range(BINS):
        chosen = bins == number
        count = int(np.count_nonzero(chosen))
        mean, share = (float(scores[chosen].mean()), float(has_label[chosen].mean())) if count else (np.nan, np.nan)
        table.append(CalibrationBin(number / BINS, (number + 1) / BINS, count, mean, share))
    return table
