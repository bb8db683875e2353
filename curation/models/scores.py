# SPDX-License-Identifier: Apache-2.0
"""Scores of texts by a transformer classifier or regressor, as integers.

The last digits of floats depend on the device and on libraries. Scores are therefore rounded once, to multiples of 1 /
SCORE_UNITS, and all later steps use the stored integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from curation.base.errors import InputError, nearest
from curation.models.encoder_files import ModelFiles
from curation.models.transformers import load_transformer, open_transformer
from curation.models.windows import TokenWindows, pool, results_of

SCORE_UNITS = 10_000
SHOWN_LABELS = 10


class Scores(NamedTuple):
    """The scores of documents.

    units    the score in 1 / SCORE_UNITS, int64; 0 where `known` is false
    known    bool, one per document: false for a document without tokens
    windows  the windows that the model read
    """

    units: np.ndarray
    known: np.ndarray
    windows: TokenWindows


def head_of(model: str) -> ModelFiles:
    """Return the folder of a classifier or regressor. Raises InputError for an encoder without a head."""
    files = open_transformer(model)
    if not files.labels:
        raise InputError(
            f"{model} has no head of a classifier or regressor: its config.json names no architecture that ends in "
            "ForSequenceClassification. Give such a model"
        )
    return files


def check_label(model: str, label: str) -> None:
    """Raise ValueError if a classifier lacks the label. A regressor has one output and needs none."""
    labels = head_of(model).labels
    if not label and len(labels) > 1:
        raise ValueError(f"label is missing; the model has {', '.join(labels[:SHOWN_LABELS])}")
    if label and label not in labels:
        raise ValueError(f"label: no label {label!r} in the model{nearest(label, labels)}")


def score_texts(texts: Sequence[str | None], model: str, label: str, windows: int, pooling: str) -> Scores:
    """Return the probability of a label, or the number of a regressor, for each text.

    windows  windows per document; 0: all
    pooling  how windows become one score: first, mean or max

    Raises InputError for a model that gives NaN, and the errors of `load_transformer`.
    """
    encoder = load_transformer(model, True)
    files = head_of(model)
    read = encoder.windows(texts, windows)
    values = _scores(files, results_of(encoder, read, model))
    column = files.labels.index(label) if label else 0
    pooled = pool(values[:, [column]], read, pooling)[:, 0]
    known = np.zeros(len(texts), bool)
    known[read.document] = True
    return Scores(np.rint(np.where(known, pooled, 0) * SCORE_UNITS).astype(np.int64), known, read)


def _scores(files: ModelFiles, outputs: np.ndarray) -> np.ndarray:
    """Return probabilities, or the numbers of a regressor, from the outputs of a head."""
    if files.is_regressor:
        return outputs
    if files.config.problem_type == "multi_label_classification":
        return np.asarray(1 / (1 + np.exp(-outputs)))
    powers = np.exp(outputs - outputs.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
