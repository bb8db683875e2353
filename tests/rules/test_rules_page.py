# SPDX-License-Identifier: Apache-2.0
"""The pages on rules say what the code does: their examples are read, their tables are those of the code."""

import re
from pathlib import Path

import pytest

from curation.base.measures import Measure, is_measure
from curation.recipes.recipe import load_recipe, parse_recipe
from curation.rules.decide import RULE_SETS, Rule

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("rules", "rule_lists", "rules_per_language", "measures", "rule_sets", "pipelines")
PAGES = "\n".join((DOCS / f"{name}.md").read_text("utf-8") for name in NAMES)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGES, re.DOTALL)


def reasons_table() -> str:
    lines = ["| set | reason | bounds |", "|---|---|---|"]
    for name, rules in RULE_SETS.items():
        for rule in rules if name != "gopher" else ():
            bounds = ", ".join(
                f"{bound} {getattr(rule, bound):,g}" for bound in rule.conditions if bound in ("min", "max")
            )
            subject = f"matches per `{rule.per}`" if rule.per else f"`{'/'.join(rule.measures)}`"
            lines.append(f"| `{name}` | `{rule.name}` | {subject}: {bounds} |")
    return "\n".join(lines)


def measures_table() -> str:
    rows = [f"| `{measure.name}` | {measure.definition} | {measure.source} |" for measure in Measure]
    return "\n".join(["| measure | definition | source |", "|---|---|---|", *rows])


@pytest.mark.parametrize(("name", "table"), [("reasons", reasons_table), ("measures", measures_table)])
def test_every_reason_and_measure_is_on_the_page(name, table):
    found = re.search(rf"<!-- {name} -->\n(.*)\n<!-- /{name} -->", PAGES, re.DOTALL)
    assert found, f"no table of {name}"
    assert found[1] == table()


def test_rules_of_other_tools_are_rules():
    """Each line of the table has a bound by measures that exist."""
    section = PAGES.split("\n## Rules of other tools\n")[1].split("\n## ")[0]
    subjects = re.findall(r"^\| [^|]+ \| `([a-z0-9_/]+)` \|", section, re.MULTILINE)
    assert len(subjects) > 8
    for subject in subjects:
        assert all(map(is_measure, subject.split("/"))), subject


@pytest.mark.parametrize("text", blocks("yaml"))
def test_every_example_is_a_recipe(text: str):
    assert parse_recipe(text).stages


@pytest.mark.parametrize("setting", [line for text in blocks("settings") for line in text.splitlines()])
def test_every_setting_can_be_made(setting: str):
    text = """
    input: [{path: news.jsonl, name: news}]
    stages: [{kind: rewrite, unicode: nfc}, {kind: filter, rules: gopher}, fuzzy_dedup]
    tokenizer: {name: other}
    """
    assert parse_recipe(text, settings=[setting]) != parse_recipe(text)


def test_the_page_has_every_key_of_a_rule():
    keys = set(re.findall(r"`([a-z_]+)`", "".join(re.findall(r"^\| (`[^|]*) \|", PAGES, re.MULTILINE))))
    assert {*Rule.__struct_encode_fields__} <= keys


def test_sets_have_one_rule_to_a_reason():
    for name, rules in RULE_SETS.items():
        reasons = [rule.name for rule in rules]
        assert len(reasons) == len({*reasons}), name


def test_a_shipped_recipe_takes_the_settings_of_its_own_stages():
    recipe = load_recipe("common_crawl", settings=["stages.gopher.length.min=100", "stages.langid.min_probability=0.8"])
    assert recipe.stages[0].min_probability == 0.8 and recipe.stages[1].rules[0].override["length"].min == 100
