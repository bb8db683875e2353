# SPDX-License-Identifier: Apache-2.0
"""`fuzzy_dedup` with `skip_prefix: common`: beginnings that documents share are found and left out of comparisons."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.base.errors import RecipeError
from curation.recipes.recipe import convert_recipe
from curation.running.run import run
from curation.stages import FuzzyDedup
from curation.stages.near import common_prefixes
from curation.stages.near.common_prefixes import WithoutPrefix
from tests.oracle import common_prefixes as oracle
from tests.runs import digests, recipe_of, records_of
from tests.stages.divided import ORDERS, Order, corpus_of, decide_in_order, write_partitions

STAGE = FuzzyDedup(skip_prefix="common", ngram=1)
PROMPT = "System: you answer the questions of visitors of a café in short sentences. " * 5 + "\n"


def found_in(folder: Path, texts: Sequence[str], order: Order, cut: int):
    """The removed rows with the kept ones, the counts, and the texts that were compared."""
    partitions = write_partitions(folder / "segment", {}, [cut, len(texts) - cut], texts)
    corpus = corpus_of(partitions, np.ones(len(texts), bool), workers=2)
    with pytest.MonkeyPatch.context() as patch:
        decision = decide_in_order(patch, STAGE, corpus, order)
        reads = WithoutPrefix.over(corpus, ()).texts(np.arange(len(texts)))
        compared = [text for read in reads for text in read().to_pylist()]
    [drops] = decision.drops
    return dict(zip(drops.row.tolist(), np.asarray(drops.partner).tolist(), strict=True)), decision.details, compared


def test_dialogues_under_one_prompt_are_compared_without_it(tmp_path: Path):
    dialogues = [f"{PROMPT}User: question {number} about {number * 7}?\nAnswer: {number}" for number in range(9)]
    texts = [*dialogues, dialogues[2] + "\n", PROMPT, PROMPT, "ä" * 100, "", "A text without a prompt."]
    removed, details, compared = found_in(tmp_path, texts, ORDERS[0], 5)
    assert removed == {9: 2, 11: 10}
    assert compared == oracle.without_prefix(texts) and compared[9:12] == [compared[2] + "\n", PROMPT, PROMPT]
    cut = [len(text.encode()) - len(rest.encode()) for text, rest in zip(texts, compared, strict=True)]
    assert (details["prefix_documents"], details["prefix_bytes"]) == (10, sum(cut)) and max(cut) >= len(PROMPT) - 64


@pytest.mark.slow("common beginnings are those of plain Python, however the work is divided")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a", "é" * 3, "long"]), st.integers(0, 3), st.text("aé\n", max_size=80)),
        min_size=1,
        max_size=30,
    ),
    st.integers(0, 30),
    st.sampled_from(ORDERS),
)
def test_beginnings_equal_those_of_slow_python(documents: list[tuple[str, int, str]], cut: int, order: Order):
    texts = [(first * 64)[: 64 * 5] + "b" * (40 * steps) + rest for first, steps, rest in documents]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for module in (common_prefixes, oracle):
            patch.setattr(module, "CONTINUATIONS", 3)
            patch.setattr(module, "MAX_STEPS", 4)
        assert found_in(Path(folder), texts, order, min(cut, len(texts)))[2] == oracle.without_prefix(texts)


@pytest.mark.slow("a run with common beginnings that stops at each file resumes with the same bytes")
def test_a_run_that_stops_at_each_rename_of_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    chance, source, seen = np.random.default_rng(3), tmp_path / "in.jsonl", set[str]()
    questions = [" ".join(f"word{number}" for number in chance.integers(0, 90, 20)) for _ in range(20)]
    source.write_bytes(records_of([f"{PROMPT}{text}{' more' * (row // 20)}" for row, text in enumerate(2 * questions)]))
    stage = {"kind": "fuzzy_dedup", "skip_prefix": "common", "contained": 0.9}
    recipe, real = recipe_of(source, stages=[stage], output={"formats": []}), os.replace

    def write(name: str) -> None:
        run(recipe, tmp_path / name, engine="cpu", workers=1, slice_bytes=3000)

    def replace(origin: Any, target: Any) -> None:
        real(origin, target)
        name = str(Path(target).relative_to(tmp_path / "out"))
        if name not in seen and "stage-0" in name:
            seen.add(name)
            raise KeyboardInterrupt

    write("whole")
    monkeypatch.setattr(os, "replace", replace)
    while True:
        with suppress(KeyboardInterrupt):
            write("out")
            break
    for folder in ("prefixes/runs", "prefix_found", "prefix_keys", "groups", "representatives", "values"):
        assert any(f"{folder}/" in name for name in seen), folder
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


@pytest.mark.parametrize(
    ("stage", "output", "message"),
    [
        (
            {"index": "old"},
            {},
            "index has n-grams of whole documents, but `skip_prefix: common` leaves out their beginnings",
        ),
        (
            {},
            {"index": True},
            "output.index needs n-grams of whole documents, and skip_prefix of fuzzy_dedup",
        ),
        ({"skip_prefix": "first"}, {}, "skip_prefix must be one of none, common, not 'first'"),
    ],
)
def test_what_needs_whole_documents_is_refused(stage: dict, output: dict, message: str):
    entry = {"kind": "fuzzy_dedup", "skip_prefix": "common", **stage}
    with pytest.raises(RecipeError, match=message):
        convert_recipe({"input": [{"path": "a.jsonl"}], "stages": [entry], "output": {"formats": [], **output}})
