# SPDX-License-Identifier: Apache-2.0
"""Words and characters of many short texts at once are those of the oracle, at every place of a mask of 64 bytes."""

import random

import numpy as np
import pytest

from cpu_fallback import flat_counts
from cpu_fallback.text import measure
from curation.base.contract import TEXT
from curation.base.engine import load_engine
from tests.conftest import frame_of
from tests.corpus import NASTY
from tests.oracle.measures import measure_document

PIECES = ["a", "b c", " ", "\n", "é", "\u2003", "\u3000x", "漢", "\x00", "\x85", "😀", "word" * 20, "  y", "\u00a0"]


@pytest.mark.parametrize("limit", [0, 1 << 30], ids=["one by one", "flat"])
def test_counts_of_short_texts(monkeypatch: pytest.MonkeyPatch, limit: int):
    monkeypatch.setattr(flat_counts, "SHORT_BYTES", limit)
    dice = random.Random(1)
    made = ["".join(dice.choices(PIECES, k=dice.randrange(30))) for _ in range(300)]
    texts = ["left out", *made, *(text for text in NASTY if len(text) < 500), ""]
    found = measure(frame_of(load_engine("cpu"), texts)[TEXT].iloc[1:], flat_counts.NAMES)
    expected = [measure_document(text) for text in texts[1:]]
    for name in flat_counts.NAMES:
        np.testing.assert_array_equal(found[name], [each[name] for each in expected], name)


def test_texts_with_nulls_and_without_rows():
    texts = frame_of(load_engine("cpu"), ["a b", None, ""])[TEXT]
    assert measure(texts, ("words", "characters"))["words"].tolist() == [2, 0, 0]
    assert measure(texts[:0], ("words",))["words"].tolist() == []
