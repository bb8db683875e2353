# SPDX-License-Identifier: Apache-2.0
"""Units of texts are those of the oracle, tile their text, and are as many as the measure of their name."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.kernels.units import LINE, UNITS, find_units, stripped
from tests.corpus import NASTY, real_documents
from tests.oracle.measures import _measure_size
from tests.oracle.units import units_of

ENDS = ["\r\n", "\r", "\n", "\n\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\u2028", "\u2029", "\u2027"]
PIECES = [
    *ENDS,
    " ",
    "\u3000",
    "\u200b",
    "a",
    "é",
    "漢。",
    "x.",
    'end."',
    "…)",
    "-",
    "A b c",
    "\x00",
    "\U0001f600",
    "।",
]
TEXTS = ["", *(text for text in NASTY if len(text) < 20_000), "\u2028".join(PIECES), " ".join(PIECES), "".join(PIECES)]


def arrays(texts: list[str | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    column = pa.array(["before", *texts], pa.large_string()).slice(1)
    offsets = np.frombuffer(column.buffers()[1], np.int64)[1 : len(texts) + 2]
    return np.frombuffer(column.buffers()[2], np.uint8), offsets, column.is_valid().to_numpy(zero_copy_only=False)


def found(texts: list[str | None], unit: str, strip: bool = False) -> list[list[tuple[str, ...]]]:
    """The units of each text in three parts, as the oracle has them."""
    data, offsets, valid = arrays(texts)
    units = find_units(data, offsets, valid, unit)
    spans = stripped(data, units.spans) if strip else units.spans
    edges = np.column_stack([spans, units.ends(offsets)]).tolist()
    parts = [tuple(bytes(data[a:b]).decode() for a, b in pairwise(row)) for row in edges]
    lists: list[list[tuple[str, ...]]] = [[] for _ in texts]
    for number, part in zip(units.texts().tolist(), parts, strict=True):
        lists[number].append(part)
    return lists


@pytest.mark.parametrize("unit", UNITS)
def test_units_are_those_of_the_oracle(unit: str):
    texts = [*TEXTS, *real_documents()[:15]]
    units = found(texts, unit)
    assert units == [units_of(text, unit) for text in texts]
    for text, parts in zip(texts, units, strict=True):
        assert "".join("".join(part) for part in parts) == (text if parts else "")
        assert bool(parts) == bool(text if unit == LINE else text.split())
        assert len(parts) == _measure_size(text)[f"{unit}s"]


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), max_size=4), st.sampled_from(UNITS))
def test_units_of_any_text(texts: list[str], unit: str):
    assert found(texts, unit) == [units_of(text, unit) for text in texts]


def test_nulls_and_long_lines():
    long = "word " * 200_000
    assert [len(units) for units in found([None, long, None, "", "a"], LINE)] == [0, 1, 0, 0, 1]
    assert found([], LINE) == []


def test_contents_are_stripped_as_by_python():
    texts = ["\u3000 a b\u2003\n \x1f\n", " \t", "x"]
    assert found(texts, LINE, strip=True) == [
        [("\u3000 ", "a b", "\u2003\n"), (" \x1f", "", "\n")], [(" \t", "", "")], [("", "x", "")],
    ]  # fmt: skip
