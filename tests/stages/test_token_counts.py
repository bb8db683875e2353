# SPDX-License-Identifier: Apache-2.0
"""The measure `tokens` in rules and in the stage `measure`, by the tokenizer of the recipe or of a call."""

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import curation
from curation.stages import Filter, Lines, MeasureStage
from tests.conftest import frame_of
from tests.tokens.samples import train_tokenizer

TEXTS = ["one two three", "", None, "a", "naïve 漢字"]
COUNTS = [3, 0, 0, 1, 7]


def test_rules_and_stage_count_the_same_tokens(engine):
    frame = frame_of(engine, TEXTS)
    stage = MeasureStage(names=("tokens", "words"), tokenizer="gpt2")
    assert stage.apply(engine, frame).columns["tokens"].tolist() == COUNTS
    rules = [curation.Rule(measure="tokens", max=3), curation.Rule(ratio=("characters", "tokens"), min=2)]
    outcome = Filter(rules=list(rules), tokenizer="gpt2").apply(engine, frame)
    assert outcome.measures["tokens"].tolist() == COUNTS
    assert outcome.verdict.kept.tolist() == [True, False, False, False, False]


def test_lines_are_cut_by_their_tokens(engine):
    stage = Lines(rules=[curation.Rule(measure="tokens", min=2)], tokenizer="gpt2")
    text = stage.apply(engine, frame_of(engine, ["one two\nthree\nnaïve 漢字", "one", None])).text
    assert engine.to_arrow(text.to_frame("text")).column("text").to_pylist() == ["one two\nnaïve 漢字", "", None]


def test_a_run_counts_by_the_tokenizer_of_its_recipe(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"text": "one two three"}\n{"text": "one"}\n')
    rules = {"rules": {"tokens": {"max": 2}}}
    stages = [{"lines": rules}, {"filter": rules}, {"measure": {"names": ["tokens"]}}]
    content = {"input": [{"path": str(tmp_path / "a.jsonl")}], "stages": stages, "output": {"formats": []}}
    path = str(train_tokenizer(tmp_path / "tokenizer.json", ["one one one two"] * 9))
    recipe = curation.convert_recipe(content | {"tokenizer": {"name": path}})
    assert {stage.tokenizer for stage in recipe.stages} == {path}
    assert all([*stage.files()] == [path] for stage in recipe.stages)
    result = curation.run(recipe, tmp_path / "out", engine="cpu", progress=False)
    assert [stage["edited"] for stage in result.report["stages"]] == [1, 0, 0]
    assert pq.read_table(tmp_path / "out" / "documents").column("tokens").to_pylist() == [0, 1]


def test_explain_measures_tokens_and_does_not_reuse_those_of_another_tokenizer(tmp_path: Path):
    path = str(train_tokenizer(tmp_path / "tokenizer.json", ["naïve 漢字"] * 9))
    frame = curation.measure(pd.DataFrame({"text": ["naïve 漢字"]}), "tokens", tokenizer="gpt2")
    rule = curation.Rule(measure="tokens", max=5)
    explained = curation.explain(frame, curation.Filter(rules=[rule], tokenizer=path))
    assert explained["tokens"].tolist() < COUNTS[-1:]


WITHOUT = r"the measure tokens needs a tokenizer, and none is set. .* give tokenizer: a tiktoken encoding such as gpt2"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda frame: curation.filter(frame, curation.Rule(measure="tokens", max=2)), WITHOUT),
        (lambda frame: curation.measure(frame, ["tokens"]), WITHOUT),
        (lambda frame: curation.explain(frame, curation.Rule(measure="tokens", max=2)), WITHOUT),
        (lambda frame: curation.lines(frame, curation.Rule(measure="tokens", max=2)), WITHOUT),
        (lambda frame: curation.measure(frame, ["words"], tokenizer="gpt2"), "tokenizer 'gpt2' has no use: nothing"),
        (lambda frame: curation.filter(frame, "gopher", tokenizer="gpt2"), "tokenizer 'gpt2' has no use: nothing"),
        (lambda frame: curation.measure(frame, ["tokens"], tokenizer="gpt9"), "gpt9"),
    ],
)
def test_bad_settings(call, message):
    with pytest.raises(curation.CurationError, match=message):
        call(pd.DataFrame({"text": ["a"]}))
