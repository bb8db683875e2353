# SPDX-License-Identifier: Apache-2.0
"""Settings that differ are named by what `--set` takes."""

from pathlib import Path
from typing import Any

import pytest

from curation.recipes.recipe import as_builtins, parse_recipe
from curation.results.finished.changed_settings import changed_settings, other_differences
from curation.results.finished.results import FinishedRun

RECIPE = """
input:
  - {path: a.jsonl, name: web}
  - {path: b.jsonl, name: books}
stages:
  - language: {label_probability: 0.4}
  - filter:
      name: main
      rules: [{set: gopher_multilingual}, {words: {max: 90000}, domain: {in: [a.org]}}]
  - filter:
      name: counted
      rules:
        - {matches: "[0-9]", max_count: 9}
        - {set: gopher, override: {words: {min: 20}}}
  - filter:
      name: kinds
      rules:
        - {per: kind, rules: {de: {words: {min: 30}}, fr: de, other: keep}}
  - lines: {rules: [{measure: words, min: 1}]}
  - fuzzy_dedup
output: {formats: []}
"""


def run_with(*settings: str) -> FinishedRun:
    recipe = parse_recipe(RECIPE, settings=settings)
    return FinishedRun(
        Path("out"), {"recipe": as_builtins(recipe), "stages": [{"name": name} for name in recipe.stage_names]}
    )


@pytest.mark.parametrize(
    ("setting", "before", "after"),
    [
        ("seed=7", 1234, 7),
        ("input.books.sample=0.5", 1.0, 0.5),
        ("stages.language.label_probability=0.7", 0.4, 0.7),
        ("stages.main.ko.top_2gram.max=0.05", 0.282, 0.05),
        ("stages.main.words.max=70000", 90000.0, 70000.0),
        ("stages.main.text_lines.min=5", None, 5),
        ("stages.counted.text_matches.max_count=3", 9.0, 3.0),
        ("stages.counted.too_few_stop_words.min=3", 2.0, 3.0),
        ("stages.kinds.de.words.min=40", 30.0, 40.0),
        ("stages.lines.rules.0.min=2", 1, 2),
        ("stages.fuzzy_dedup.threshold=0.9", 0.8, 0.9),
        ("output.removed=ids", "text", "ids"),
    ],
)
def test_a_setting_is_found_by_its_path(setting: str, before: Any, after: Any):
    path = setting.partition("=")[0]
    assert changed_settings(run_with(), run_with(setting)) == [(path, before, after)]
    assert (
        changed_settings(run_with(setting), run_with()) != [] == changed_settings(run_with(setting), run_with(setting))
    )


def test_all_bounds_that_sliders_moved_are_found():
    moved = ["ko.top_2gram.max=0.05", "ja.top_2gram.max=0.06", "de.words.min=70", "de.words.max=80000"]
    found = changed_settings(run_with(), run_with(*(f"stages.main.{path}" for path in moved)))
    assert [f"{setting.path}={setting.b:g}" for setting in found] == [f"stages.main.{path}" for path in moved]


@pytest.mark.parametrize(
    ("settings", "paths"),
    [
        (["stages.counted.too_few_stop_words=off"], ["stages.counted.too_few_stop_words"]),
        (["stages.main.ko.top_2gram=off"], ["stages.main.ko.top_2gram"]),
        (["stages.counted.rules=[fineweb]"], ["stages.counted.rules"]),  # another set: one line
        (["stages.main.rules.0.other=remove"], ["stages.main.rules.0.other"]),
        (
            ["stages.kinds.rules=[{per: kind, rules: {de: {words: {min: 30}}, fr: keep, other: keep}}]"],
            ["stages.kinds.rules.0.rules.fr"],
        ),
        (["stages.counted.rules.0.matches='[a-z]'"], ["stages.counted.text_matches.matches"]),
        (["stages.main.rules.2.in=[b.org]"], ["stages.main.domain.in"]),
        (["stages=[exact_dedup]"], ["stages.exact_dedup", "stages.language"]),
    ],
)
def test_other_changes_of_rules_and_stages_are_named_once(settings: list[str], paths: list[str]):
    found = [setting.path for setting in changed_settings(run_with(), run_with(*settings))]
    assert len(found) == len({*found}) and {*paths} <= {*found}
    assert len(paths) > 1 or found == paths


def test_an_order_of_rules_is_a_change():
    texts = ["stages.counted.rules=[{words: {min: 3}}, {digit_characters/characters: {max: 0.1}}]",
             "stages.counted.rules=[{digit_characters/characters: {max: 0.1}}, {words: {min: 3}}]"]  # fmt: skip
    assert [setting.path for setting in changed_settings(*map(run_with, texts))] == ["stages.counted.rules"]


def test_runs_are_equal_only_where_their_identities_are():
    """Equal settings hide other files, lists, tokenizers and versions."""
    facts = {"files": [], "stage_files": {}, "stage_revisions": {}, "tokenizer": {}}
    report = run_with().report | {"versions": {"gpu-pipeline": "1"}} | facts
    one = FinishedRun(Path("out"), report)
    assert other_differences(one, one) == []
    for changed, fact in [
        ({"versions": {"gpu-pipeline": "2"}}, "version (1, 2)"),
        ({"stage_files": {"main": {"bad.txt": "00"}}}, "bad.txt of stage main (new)"),
        ({"tokenizer": {"name": "gpt2"}}, "tokenizer.name"),
        ({"stage_revisions": {"main": 2}}, "stage_revisions.main"),
    ]:
        assert other_differences(one, FinishedRun(Path("out"), report | changed)) == [fact]
