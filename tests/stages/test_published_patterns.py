# SPDX-License-Identifier: Apache-2.0
"""`redact` with `patterns: published`: the literal patterns, in linear time."""

import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.base.contract import TEXT
from curation.base.engine import load_engine
from curation.base.errors import RecipeError
from curation.recipes.recipe import load_recipe, parse_recipe
from curation.stages import Redact
from tests.oracle.redaction import redact_published

CPU = load_engine("cpu")
PIECES = st.sampled_from(
    [
        *("555-123-4567", "5551234567", "4111 1111 1111 1111", "1234\u00a05678-9012-3456", "123-45-6789"),
        *("999.1.2.300", "a@b.co", "x.y@z-w.co.uk", "a@b.c|d", "é", "电", "٣٤٥", "123", "4567", "a", "co", "b.a"),
        *("@", ".", "-", "_", "%", "|", " ", "\n"),
    ]
)


def redacted(texts: list[str | None]) -> list[str | None]:
    frame = CPU.from_arrow(pa.table({TEXT: pa.array(texts, pa.large_string())}))
    outcome = Redact(patterns="published").apply(CPU, frame)
    return texts if outcome.text is None else outcome.text.to_pylist()


@given(st.lists(st.lists(PIECES, max_size=12).map("".join), min_size=1, max_size=8))
def test_any_text_as_the_literal_patterns(texts: list[str]):
    assert redacted(texts) == [redact_published(text)[0] for text in texts]


def test_numbers_that_the_checked_patterns_leave():
    text = "Call 555-123-4567 or 1234567890; card 1234 5678 9012 3456; 000-00-0000; 999.999.999.999; 电话555-123-4567"
    [found] = redacted([text])
    assert found == (
        "Call [REDACTED]_PHONE or [REDACTED]_PHONE; card [REDACTED]_CREDIT_CARD; [REDACTED]_SSN; "
        "[REDACTED]_IP_ADDRESS; 电话555-123-4567"  # a Chinese character is a letter: no edge
    )
    assert Redact().patterns == "checked" and redacted([None, "a@b.co"]) == [None, "[REDACTED]_EMAIL"]


def test_long_runs_take_linear_time():
    text = "a." * 500_000 + " a@b.co"  # a second; the literal pattern would take hours
    started = time.process_time()
    assert redacted([text])[0] == text.replace("a@b.co", "[REDACTED]_EMAIL")
    assert time.process_time() - started < 10


def test_the_recipe_and_its_identity():
    [stage] = [stage for stage in load_recipe("nemo").stages if isinstance(stage, Redact)]
    assert stage.patterns == "published" and list(stage.computed_with()) == ["unicode"]
    assert Redact().computed_with() == {}
    with pytest.raises(RecipeError, match="patterns must be one of checked, shape, published, not 'plain'"):
        parse_recipe("stages: [{kind: redact, patterns: plain}]")
