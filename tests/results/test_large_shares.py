# SPDX-License-Identifier: Apache-2.0
"""Warnings about stages that cut most of an input, put most of its documents into one group, or judge code as prose."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curation.recipes.recipe import convert_recipe
from curation.record.large_shares import JOIN, warn_of_cuts
from curation.record.partitions import Partitions
from curation.record.segment_state import SegmentState
from curation.results.report import lost_by_input
from curation.results.report.lost_by_input import LostByInput
from curation.running.planning.estimate import estimate
from curation.running.run import run
from curation.stages.corpus.cutting import StoredCuts
from tests.runs import recipe_of, records_of

HALF = "A first half with twenty-six or more letters | and a second half of a line."
TEXTS = {  # input -> texts
    "other": [f"Text {number} of many, with words." for number in range(300)],
    "wrapped": [f"Line {number} of a text about whales and\nmore of words {number}.\n" * 3 for number in range(40)],
    "short": ["A line of a text about whales and\nmore of words.\n" * 3] * 9,
    "halves": [f"Document {number}. {HALF}" for number in range(60)],
    "same": ["The server does not answer to it."] * 11 + [f"An answer to question {number}." for number in range(10)],
    "equal": ["An error of it."] * 10 + [f"An answer to the question {number}." for number in range(10)],
    "removed": ["The page has moved to it."] * 10 + [f"{number}" for number in range(40)],
    "code": [f"a{number} = b(c)\nd(e);\nreturn f{number};" for number in range(8)],
}
STAGES: list[Any] = [
    {"filter": {"rules": {"stop_words": {"min": 1}}}},
    {"rewrite": {"replace": [{"matches": "[|].*", "by": "."}]}},
    {"lines": {"rules": [{"matches": "[.] *$", "min_count": 1}]}},
    "exact_dedup",
]
EDITED = ". See curate show DIR --what edited"
CUT = f"lines cuts 4,170 of 6,300 bytes (66%) from the texts of input 'wrapped' that it keeps{JOIN}"
CODE = (
    "input 'code': about 8 of 8 documents look like source code, by a sample. The rules of filter are for prose, and "
    "remove about 8 of them. Read this input in a recipe of its own, without such rules"
)
SAME = (("same", 11, 21, 52), ("removed", 10, 10, 100))
GROUPS = [
    f"exact_dedup: one group of duplicates has {size} of {documents} documents of input '{name}' ({share}%), and one "
    f"document of it stays. To see whether they share only a template: curate show DIR --what pairs"
    for name, size, documents, share in SAME
]


def test_a_stage_that_takes_most_of_an_input_has_a_warning(tmp_path: Path):
    """A stage counts what reaches it. What it takes of all inputs together, or of a few texts, is less than half."""
    for name, texts in TEXTS.items():
        (tmp_path / f"{name}.jsonl").write_bytes(records_of(texts))
    recipe = recipe_of(*(tmp_path / f"{name}.jsonl" for name in TEXTS), stages=STAGES, output={"formats": []})
    found = run(recipe, tmp_path / "out", engine="cpu", slice_bytes=1_000_000).report["warnings"]
    assert [line for line in found if " cuts " in line or "one group" in line or "code" in line] == [CUT, *GROUPS, CODE]
    planned = [line for line in estimate(recipe).warnings if " cuts " in line or "duplicates" in line or "code" in line]
    groups = [
        f"exact_dedup: about {size} of {documents} documents of input '{name}' ({share}%) seem to be duplicates of one."
        " Look whether they share only a template"
        for name, size, documents, share in SAME
    ]
    assert planned == [CUT.replace("4,170", "about 4,170"), CODE, *groups]


def test_what_corpus_stages_cut_is_that_of_each_input(monkeypatch: pytest.MonkeyPatch):
    """Of 6 partitions, two are of `a`, the third is shared by `a`, `none` and `b`, and two are of `c`."""
    partitions = Partitions(Path(), [5, 5, 5, 0, 5, 5])
    partitions.inputs = [("a", 0, 11), ("none", 11, 11), ("b", 11, 15), ("c", 15, 25)]
    cuts, sizes = np.array([100, 0, 30, 0, 7, 8]), np.array([100, 500, 70, 0, 3, 2])
    rows = {2: (np.array([1, 0, 9, 0, 20]), np.array([10, 20, 30, 0, 40]))}
    monkeypatch.setattr(lost_by_input, "_cut_by_row", lambda cuts, state, partition: rows[partition])
    lost = LostByInput()
    sums: Any = None
    stored = StoredCuts(Path(), cuts)
    lost.add_spans("s", stored, SegmentState(partitions, Path(), sizes, sizes, stored, [], sums))
    assert lost.cuts == {("s", "input 'a'"): (101, 710), ("s", "input 'b'"): (29, 90), ("s", "input 'c'"): (15, 20)}


def test_stages_that_delete_markup_have_no_warning():
    def warned(**settings: Any) -> list[str]:
        [stage] = convert_recipe({"input": [{"path": "a"}], "stages": [{"kind": "rewrite", **settings}]}).stages
        return [*warn_of_cuts({("rewrite", "input 'a'"): (6_000.0, 10_000.0)}, {"rewrite": stage})]

    assert warned(markup="strip") == warned(replace=[{"matches": "</?[a-z]+>", "by": ""}]) == []
    [line] = warned(replace=[{"matches": "(?s)References.*", "by": ""}])
    assert line == f"rewrite cuts 6,000 of 10,000 bytes (60%) from the texts of input 'a' that it keeps{EDITED}"
