# SPDX-License-Identifier: Apache-2.0
"""Rules for each value of a column."""

import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.base.errors import RecipeError
from curation.recipes.recipe import as_builtins, convert_recipe, load_recipe, parse_recipe
from curation.rules.decide import Rule, expand_rules
from curation.running.run import run
from curation.stages import Filter
from curation.stages.invoke import apply_stage
from tests.conftest import table_of
from tests.runs import assert_refused, recipe_of, removed_rows

TEXTS = ["a b c", "a b", "a\nb", "x y z", "x y", "", None, "u v w"]
LANGUAGES = ["deu_Latn", "deu_Latn", "zho_Hani", "zho_Hani", "deu_Latn", "fra_Latn", "zho_Hani", None]
GROUPS = {"deu_Latn": [{"measure": "words", "min": 3}], "zho_Hani": [
    {"measure": "words", "min": 1}, {"ratio": ["newlines", "words"], "max": 0.2},
]}  # fmt: skip


def verdict_of(engine: ModuleType, rules: Any, languages: pa.Array | None = None) -> list[Any]:
    """(reason, value, broken bound) of each row; None for a kept one."""
    column = pa.array(LANGUAGES, pa.large_string()) if languages is None else languages
    frame = engine.from_arrow(table_of(TEXTS).append_column("language", column))
    stage = convert_recipe({"stages": [{"kind": "filter", "rules": rules}]}).stages[0]
    verdict = apply_stage(engine, frame, stage)[1].verdict
    assert verdict is not None
    rows = zip(verdict.reason.tolist(), verdict.value.tolist(), verdict.broken_bounds().tolist(), strict=True)
    return [None if reason < 0 else (verdict.reasons[reason], value, bound) for reason, value, bound in rows]


def grouped(**more: Any) -> list[Any]:
    return [{"per": "language", "rules": {**GROUPS, **more}}]


def test_each_document_is_judged_by_the_rules_of_its_value(engine: ModuleType):
    short, newlines = ("words", 2.0, 3.0), ("newlines_per_words", 0.5, 0.2)
    own = [None, short, newlines, None, short]
    assert verdict_of(engine, grouped(other="keep")) == [*own, None, ("words", 0.0, 1.0), None]
    gone = ("other_language", math.nan, math.nan)
    np.testing.assert_equal(verdict_of(engine, grouped(other="remove")), [*own, gone, ("words", 0.0, 1.0), gone])
    by_german = [*own, ("words", 0.0, 3.0), ("words", 0.0, 1.0), None]
    assert verdict_of(engine, grouped(other="deu_Latn")) == by_german
    own_other = [*own, ("characters", 0.0, 5.0), ("words", 0.0, 1.0), None]
    assert verdict_of(engine, grouped(other={"characters": {"min": 5}})) == own_other
    assert verdict_of(engine, grouped(fra_Latn="keep", other="deu_Latn"))[5:] == [None, ("words", 0.0, 1.0), None]


SETTINGS = [
    {"rules": "gopher"},
    {"rules": [{"any": [{"measure": "words", "min": 3}, {"matches": "x", "min_count": 1}]}]},
    {"rules": [{"matches": "[xa]", "max_count": 0}, {"column": "id", "in": ["doc-0", "doc-4"]}]},
    {"rules": ["fineweb", {"matches": "[a-z]", "per": "words", "max": 0.9}, {"column": "id", "not_in": ["doc-1"]}]},
]


@pytest.mark.parametrize("rules", SETTINGS, ids=str)
def test_a_group_removes_what_its_rules_remove_alone(engine: ModuleType, rules: dict[str, Any]):
    alone = verdict_of(engine, rules["rules"])
    own = {"deu_Latn": rules["rules"], "zho_Hani": [{"measure": "words", "min": 1}], "other": "keep"}
    found = verdict_of(engine, [{"per": "language", "rules": own}])
    german = [row for row, language in enumerate(LANGUAGES) if language == "deu_Latn"]
    np.testing.assert_equal([found[row] for row in german], [alone[row] for row in german])
    assert [row for row, gone in enumerate(found) if gone and row not in german] == [6]


@pytest.mark.parametrize(
    ("values", "rules"),
    [
        (pa.array([1, 1, 2, 2, 1, 3, 2, None]), {"1": GROUPS["deu_Latn"], "2": GROUPS["zho_Hani"]}),
        (pa.array(LANGUAGES).dictionary_encode(), GROUPS),
        (pa.array([value == "deu_Latn" for value in LANGUAGES]), {"true": GROUPS["deu_Latn"]}),
    ],
)
def test_the_column_may_hold_other_types(values: pa.Array, rules: dict[str, Any]):
    from curation.base.engine import load_engine

    found = verdict_of(load_engine("cpu"), [{"per": "language", "rules": {**rules, "other": "keep"}}], values)
    assert found[:2] == [None, ("words", 2.0, 3.0)]
    with pytest.raises(RecipeError, match="rules per language: the column holds double; expected strings, integers"):
        verdict_of(load_engine("cpu"), grouped(), pa.array([0.5] * 8))


def test_values_without_rules_are_an_error_with_counts(engine: ModuleType):
    told = "rules per language: 2 documents of 8 have a value without rules: 'fra_Latn' (1), null (1). List each in"
    with pytest.raises(RecipeError, match=re.escape(told)):
        verdict_of(engine, grouped())
    assert verdict_of(engine, grouped(fra_Latn=[], other="keep"))[5] is None


WRONG = {
    "{per: language, rules: {}}": ("map a value of the column to rules",),
    "{per: language, rules: {other: keep}}": ("map a value of the column to rules",),
    "{rules: {de: gopher}}": ("need per: COLUMN, not None",),
    "{per: text, rules: {de: gopher}}": ("need per: COLUMN, not 'text'",),
    "{per: language, reason: x, rules: {de: gopher}}": ("have reasons of their own; remove reason",),
    "{per: language, min: 1, rules: {de: gopher}}": ("min has no meaning with rules per column. Give it in the rules",),
    "{per: language, rules: {de: goper}}": ("'de' is 'goper'", "neither keep nor remove"),
    "{per: language, rules: {de: gopher, other: df}}": ("'other' is 'df'", "no rule set"),
    "{per: language, rules: {no: gopher}}": ("False is no text. Quote it", "stages[0].rules[0].rules"),
    "{per: language, rules: {de: {words: {mim: 5}}}}": ("unknown field `mim`",),
    "{per: language, rules: {de: [{per: x, rules: {a: gopher}}]}}": ("single rules and sets, not rules per column",),
    "{per: language, rules: {de: gopher, other: fineweb2}}": ("'other' are single rules", "Write that set alone"),
    "{any: [{words: {min: 1}}, {per: language, rules: {a: gopher}}]}": ("any takes single rules",),
}


@pytest.mark.parametrize("rule", WRONG)
def test_wrong_rules_of_a_column_are_refused(rule: str):
    assert_refused(f"stages: [{{kind: filter, rules: [{rule}]}}]", WRONG[rule])


def test_lines_have_no_columns():
    rule = "{per: language, rules: {de: gopher}}"
    assert_refused(f"stages: [{{kind: lines, rules: [{rule}]}}]", ["a rule on column 'language' judges documents"])


RECIPE = """
stages:
  - kind: filter
    rules:
      - per: language
        rules:
          deu_Latn: {words: {min: 50}, newlines/words: {max: 0.15}}
          zho_Hani: [gopher_quality, {words: {min: 80, reason: too_few_words}}]
          other: {words: {min: 60}}
"""


def test_a_run_stores_the_rules_and_says_what_they_are():
    recipe = parse_recipe(RECIPE)
    assert convert_recipe(orjson.loads(orjson.dumps(as_builtins(recipe)))) == recipe
    stage = recipe.stages[0]
    assert isinstance(stage, Filter) and stage.reads() == ("language",)
    assert stage.explain()[:3] == [
        "words: words at least 50 to 60, per language (2 groups)",
        "newlines_per_words: newlines / words at most 0.15, per language (1 group)",
        "too_few_words: words at least 50, per language (1 group)",
    ]
    assert stage.shown_rules().rules == ()
    with pytest.raises(RecipeError, match="'words' differs per language; change the rules of each value"):
        load_recipe("default", settings=[f"stages={as_builtins(recipe)['stages']}", "stages.filter.words.min=5"])


def test_a_rule_twice_in_a_group_is_two_rules():
    rules = expand_rules([Rule(per="c", rules={"a": [Rule(measure="words", min=1), Rule(measure="words", max=9)]})])
    assert [rule.conditions for rule in rules] == [("min",), ("max",)]


def test_a_run(tmp_path: Path):
    source = tmp_path / "in.jsonl"
    source.write_bytes(
        b"".join(
            orjson.dumps({"text": text or "", "language": language or "x"}) + b"\n"
            for text, language in zip(TEXTS, LANGUAGES, strict=True)
        )
    )
    given = {"path": str(source), "columns": ["language"]}
    stages = [{"kind": "filter", "rules": grouped(other="remove")}]
    report = run(recipe_of(given, stages=stages, output={"formats": []}), tmp_path / "out").report
    assert report["stages"][0]["reasons"] == {"words": 3, "newlines_per_words": 1, "other_language": 2}
    removed = pq.read_table(tmp_path / "out" / "removed").to_pylist()
    assert [(row["reason"], row["bound"]) for row in removed if row["reason"] == "words"] == [
        ("words", 3.0), ("words", 3.0), ("words", 1.0),
    ]  # fmt: skip
    assert len(removed_rows(tmp_path / "out")) == 6
    with pytest.raises(
        RecipeError, match=r"rules per language: 2 documents of 8 have a value without rules: .*'x' \(1"
    ):
        run(recipe_of(given, stages=[{"kind": "filter", "rules": grouped()}]), tmp_path / "refused")
    assert not list((tmp_path / "refused").rglob("documents/*.parquet"))


def test_values_that_a_stage_can_write_are_checked_before_the_run(tmp_path: Path):
    (tmp_path / "in.jsonl").write_bytes(b'{"text": "a"}\n')
    stages = [{"kind": "language", "keep": ["de", "en"]}, {"kind": "filter", "rules": grouped()}]
    told = "rules per language: the stage language can write 1 value without rules: 'en'. List each in rules, or give"
    with pytest.raises(RecipeError, match=re.escape(told)):
        run(recipe_of(tmp_path / "in.jsonl", stages=stages), tmp_path / "out")
