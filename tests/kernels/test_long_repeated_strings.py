"""Long documents, whose repeated strings are counted by sorted hashes, measure as the definition says."""

import random

import numpy as np
import pandas as pd

from cpu_fallback import repeated_strings
from cpu_fallback.buffers import STRING, buffers_of
from tests.oracle.measures import repeated_strings as expected


def test_long_documents(monkeypatch):
    monkeypatch.setattr(repeated_strings, "LONG_BYTES", 12)
    draw = random.Random(1)
    texts = ["".join(draw.choices(signs, k=count)) for signs in ("ab", "a b", "éa中") for count in (11, 30, 2000)]
    texts += ["", "short", "a" * 100, "0123456789" * 30]
    data, offsets, _ = buffers_of(pd.Series(texts, dtype=STRING))
    found = repeated_strings.repeat_long_rows(data, offsets, np.ones(len(texts), bool), 10)
    assert found.tolist() == [expected(text, 10) if len(text.encode()) > 12 else 0 for text in texts]
    nulls = np.zeros(len(texts), bool)
    assert not repeated_strings.repeat_long_rows(data, offsets, nulls, 10).any()
