# SPDX-License-Identifier: Apache-2.0
"""Each engine replaces the chosen texts. It keeps the other texts, the nulls and the index."""

import random
from types import ModuleType

import numpy as np
import pytest

from curation.base.contract import TEXT
from curation.stages.words import with_parts
from tests.conftest import frame_of
from tests.corpus import NASTY


@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
@pytest.mark.parametrize("count", [3, 700])
def test_texts_are_replaced_in_place(engine: ModuleType, share: float, count: int):
    chance = random.Random(count)
    texts = [None if chance.random() < 0.1 else chance.choice(NASTY)[:2000] for _ in range(count)]
    wanted = np.array([text is not None and chance.random() < share for text in texts])
    parts = [chance.choice(["", "é", "another text " * 9, "漢字"]) for _ in range(np.count_nonzero(wanted))]
    text = engine.filter_rows(frame_of(engine, ["left out", *texts]), np.arange(count + 1) > 0)[TEXT]
    found = with_parts(engine, text, frame_of(engine, parts)[TEXT], wanted)
    left = iter(parts)
    expected = [next(left) if is_wanted else text for text, is_wanted in zip(texts, wanted.tolist(), strict=True)]
    assert engine.to_arrow(found.to_frame(TEXT)).column(TEXT).to_pylist() == expected
    if not wanted.all():
        assert [*found.index] == [*text.index]
