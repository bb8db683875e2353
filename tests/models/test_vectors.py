# SPDX-License-Identifier: Apache-2.0
"""Vectors as integers: the same on every machine, in every form of a column, and through a run."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation.base.contract import TEXT
from curation.base.errors import InputError
from curation.models.vectors import (
    arrow_type,
    cosines,
    dots,
    from_column,
    quantised,
    squared_norms,
    to_column,
    type_name,
    unit_vectors,
    units_of,
)
from curation.stages.outcome import Outcome

FLOATS = [[0.3, -0.1, 0.25], None, [0.0, 0.0, 0.0], [1e-310, 2e-310, 0.0], [-1e308, 5e307, 0.0]]
INTEGERS = [[127, -42, 106], [0, 0, 0], [0, 0, 0], [64, 127, 0], [-127, 64, 0]]
PRESENT = [True, False, False, True, True]


def forms() -> dict[str, pa.Array]:
    return {
        "json": pa.array([None if row is None else orjson.dumps(row).decode() for row in FLOATS], pa.large_string()),
        "list": pa.array(FLOATS, pa.list_(pa.float64())),
        "large_list": pa.array(FLOATS, pa.large_list(pa.float64())),
        "fixed": pa.array(FLOATS, pa.list_(pa.float64(), 3)),
        "sliced": pa.array([[9.0, 9.0], *FLOATS], pa.list_(pa.float64()))[1:],
        "int8": to_column(np.array(INTEGERS, np.int8), np.array(PRESENT)),
        "chunked": pa.chunked_array([pa.array(FLOATS[:2], pa.list_(pa.float64())), pa.array(FLOATS[2:])]),
    }


@pytest.mark.parametrize("form", forms())
def test_each_form_of_a_column_gives_the_same_integers(form: str):
    vectors, present = from_column(forms()[form], "v")
    assert vectors.dtype == np.int8 and vectors.tolist() == INTEGERS and present.tolist() == PRESENT


def test_quantising_is_exact_rounding_and_keeps_quantised_vectors():
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(50, 24)).astype(np.float32)
    found, _ = quantised(vectors)
    for row, integers in zip(vectors.tolist(), found.tolist(), strict=True):
        largest = max(map(abs, map(Fraction, row)))
        assert integers == [round(Fraction(value) * 127 / largest) for value in row]
    assert (quantised(found.astype(float))[0] == found).all()
    assert np.abs(np.linalg.norm(unit_vectors(found), axis=1) - 1).max() < 1e-6


def test_cosines_are_the_exact_ones_rounded_down():
    rng = np.random.default_rng(2)
    left = rng.integers(-127, 128, (300, 40)).astype(np.int8)
    right = (left + rng.integers(-20, 21, left.shape)).clip(-128, 127).astype(np.int8)
    right[:5], right[5:10] = left[:5], -left[5:10]
    dot, a, b = dots(left, right), squared_norms(left), squared_norms(right)
    pairs = zip(left.tolist(), right.tolist(), strict=True)
    assert dot.tolist() == [sum(x * y for x, y in zip(*pair, strict=True)) for pair in pairs]
    found = cosines(dot, a, b).tolist()
    assert found[:10] == [10_000] * 5 + [-10_000] * 5
    for value, d, n in zip(found, dot.tolist(), (a * b).tolist(), strict=True):
        for bound, reached in ((value, True), (value + 1, False)):  # bound / 10,000 <= d / sqrt(n), by squares
            sign = 1 if d >= 0 else -1
            assert (sign * d * d * 10**8 >= (1 if bound >= 0 else -1) * bound * bound * n) == reached
    assert [units_of(0.95), units_of(0.95001), units_of(1)] == [9_500, 9_501, 10_000]


BAD = {
    "not vectors": (pa.array([1, 2]), "column 'v' holds int64, but vectors are lists of numbers"),
    "lists of text": (pa.array([["a"]]), "column 'v' holds list<item: string>, but vectors are lists of numbers"),
    "text": (pa.array(["[1, 2]", "one"]), "the value of document 'b' is 'one', but a vector is a JSON array"),
    "object": (pa.array(['{"a": 1}']), "the value of document 'a' is '{\"a\": 1}', but a vector is a JSON array"),
    "dimensions": (pa.array([[1.0, 2.0], [1.0]]), "different dimensions: 1 in document 'b' and 2 in document 'a'"),
    "nan": (pa.array([None, [1.0, float("nan")]]), "the vector of document 'b' holds NaN or an infinite number"),
    "infinite": (pa.array([[float("inf")]]), "the vector of document 'a' holds NaN or an infinite number"),
    "null": (pa.array([[1.0, None]]), "the vector of document 'a' holds a null"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_vector_is_named(case: str):
    column, message = BAD[case]
    with pytest.raises(InputError) as error:
        from_column(column, "v", ["a", "b"])
    assert message in str(error.value)


class AddVectors(curation.RowStage, frozen=True, kw_only=True, tag="tests.models.test_vectors:AddVectors"):
    """Read a column of vectors and write it as integers."""

    def reads(self) -> tuple[str, ...]:
        return ("given",)

    def writes(self) -> dict[str, str]:
        return {"vector": type_name(3)}

    def apply(self, engine: Any, frame: Any) -> Outcome:
        return Outcome(
            columns={"vector": to_column(*from_column(engine.to_arrow(frame[["given"]]).column(0), "given"))}
        )


def test_vectors_of_an_input_flow_through_a_run_to_documents(tmp_path: Path):
    texts = [f"text number {number}" for number in range(5)]
    lines = [orjson.dumps({TEXT: text, "given": given}) for text, given in zip(texts, FLOATS, strict=True)]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    pq.write_table(
        pa.table({TEXT: [f"other {text}" for text in texts], "given": pa.array(FLOATS)}), tmp_path / "b.parquet"
    )
    recipe = curation.Recipe(
        input=[curation.Input(path=str(tmp_path / name), columns=["given"]) for name in ("a.jsonl", "b.parquet")],
        stages=[AddVectors(), curation.ExactDedup(), curation.Rewrite(lowercase=True)],
        output=curation.Output(formats=[]),
    )
    curation.run(recipe, tmp_path / "out")
    paths = sorted((tmp_path / "out" / "documents").glob("*.parquet"))
    column = pa.chunked_array([chunk for path in paths for chunk in pq.read_table(path).column("vector").chunks])
    assert column.type == arrow_type("int8[3]")
    expected = [row if present else None for row, present in zip(INTEGERS, PRESENT, strict=True)]
    assert column.to_pylist() == 2 * expected
