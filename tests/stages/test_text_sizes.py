# SPDX-License-Identifier: Apache-2.0
"""Edited texts obey `max_document_bytes`: a larger one is never made, and frames are divided before they grow."""

import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from curation.base.contract import TEXT, Engine
from curation.rules.decide import Verdict
from curation.running.run import run
from curation.stages import RowStage, text_sizes
from curation.stages.base import Outputs
from curation.stages.invoke import apply_stage
from curation.stages.outcome import Outcome
from curation.stages.rows.text_edits import Replacement, replace_matches, replacement_problem
from curation.stages.text_sizes import TOO_LARGE, TextsGrowError, bounded_texts
from tests.conftest import table_of
from tests.runs import kept_rows, recipe_of, records_of, removed_rows, report_of

PATTERNS = ["a", "x*", "(a)(b)?", "^", "$", "(?s).", "é", r"\b", "[^a]"]
NOTHING = pa.scalar("", pa.large_string())
REPLACEMENTS = ["", "-", "long text", r"\0\0", r"\1z\2\2\\", r"\\\\0é"]


def test_a_replacement_makes_a_text_exactly_if_it_fits():
    chance = random.Random(3)
    drawn = ["".join(chance.choices("abé x\n", k=chance.randrange(30))) for _ in range(20)]
    texts = pa.array([*drawn, None], pa.large_string())
    for pattern, by in product(PATTERNS, REPLACEMENTS):
        if replacement_problem(Replacement(matches=pattern, by=by)):
            continue
        made = pc.replace_substring_regex(texts, pattern, by)
        with bounded_texts(25):
            found = replace_matches(texts, pattern, by)
        is_large = pc.and_(pc.match_substring_regex(texts, pattern), pc.greater(pc.binary_length(made), 25))
        expected = pc.if_else(pc.fill_null(is_large, False), pa.scalar(None, pa.large_string()), made)
        assert found.to_pylist() == expected.to_pylist(), (pattern, by)


REPLACED = [{"matches": "b+", "by": "twelve bytes"}, {"matches": "x", "by": ""}]
GROWING: dict[str, Any] = {"kind": "rewrite", "lowercase": True, "replace": REPLACED}


@pytest.mark.parametrize("small", [text_sizes.SMALL_BYTES, 10])
def test_a_run_removes_what_an_edit_makes_too_large(small: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(text_sizes, "SMALL_BYTES", small)  # of the second run: nearly each document is a frame
    texts = ["B", "abxa", "b b b b b", "\u023a" * 20, "plain", "c" * 30, "b b b"]
    (tmp_path / "a.jsonl").write_bytes(records_of(texts))
    given = {"path": str(tmp_path / "a.jsonl"), "max_document_bytes": 55}
    run(recipe_of(given, stages=[GROWING], output={"formats": []}), tmp_path / "out", workers=1, engine="cpu")
    made = ["twelve bytes", "atwelve bytesa", "plain", "c" * 30, "twelve bytes twelve bytes twelve bytes"]
    assert [row[3] for row in kept_rows(tmp_path / "out")] == made
    assert [row[3:6] for row in removed_rows(tmp_path / "out")] == [
        ("rewrite", TOO_LARGE, None), ("rewrite", TOO_LARGE, 60.0)
    ]  # fmt: skip
    stage = report_of(tmp_path / "out")["stages"][0]
    assert stage["reasons"] == {TOO_LARGE: 2} and stage["edited"] == 3 and stage["documents_in"] == 7


class Doubled(RowStage, frozen=True, kw_only=True, tag="test_text_sizes:Doubled"):
    """Removes the first row with a note, and doubles all others."""

    def outputs(self) -> Outputs:
        return Outputs(notes={"note": "int64"})

    def apply(self, engine: Engine, frame: Any) -> Outcome:
        texts = engine.to_arrow(frame[[TEXT]]).column(TEXT).combine_chunks()
        first = np.arange(len(frame)) == 1
        verdict = Verdict.dropping(first, "first")._replace(notes={"note": np.array([7])})
        return Outcome(verdict, pc.binary_join_element_wise(texts, texts, NOTHING), ~first)


def test_all_stages_are_bounded(engine: Engine):
    frame = engine.from_arrow(table_of(["aaaa", "bb", "c"]))
    with bounded_texts(6):
        kept, outcome = apply_stage(engine, frame, Doubled())
    assert engine.to_arrow(kept)[TEXT].to_pylist() == ["cc"] and outcome.edited.tolist() == [False, False, True]
    verdict = outcome.verdict
    assert verdict.counts() == {"first": 1, TOO_LARGE: 1} and verdict.value[0] == 8
    assert pa.array(verdict.notes["note"]).to_pylist() == [None, 7]
    assert verdict.broken_bounds()[0] == 6 and np.isnan(verdict.broken_bounds()[1:]).all()
    assert len(apply_stage(engine, frame, Doubled())[0]) == 2  # a function has no bound


def test_texts_that_grow_together_are_divided():
    texts = pa.array(["b"] * 1000, pa.large_string())
    with bounded_texts(1 << 30), pytest.raises(TextsGrowError) as raised:
        replace_matches(texts, "b", "b" * 40_000)
    assert raised.value.parts == 4
