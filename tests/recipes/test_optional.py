# SPDX-License-Identifier: Apache-2.0
"""`when`: stages that a recipe has only with a setting."""

from typing import Any

import pytest

from curation.base.errors import RecipeError
from curation.recipes.recipe import as_builtins, convert_recipe, parse_recipe

TEXT = """
stages:
  - exact_dedup
  - {kind: filter, name: own, when: stages.own.rules}
  - {kind: select, when: stages.own.rules, column: score, drop_lowest: 0.5}
"""


def test_a_stage_is_left_out_without_its_setting():
    recipe = parse_recipe(TEXT)
    assert recipe.stage_names == ["exact_dedup"]
    assert recipe.left_out == ["own: set stages.own.rules", "select: set stages.own.rules"]
    assert convert_recipe(as_builtins(recipe)) == recipe


def test_a_setting_puts_the_stages_in():
    recipe = parse_recipe(TEXT, settings=["stages.own.rules=gopher", "stages.select.drop_lowest=0.25"])
    assert recipe.stage_names == ["exact_dedup", "own", "select"] and recipe.left_out == []
    assert recipe.stages[2].drop_lowest == 0.25


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ("rules", r"when must be a setting, such as stages\.classify\.model, not 'rules' - at `\$\.stages\[0\]`"),
        (True, r"when must be a setting, such as stages\.classify\.model, not True"),
        ("stages.filtr.rules", r"when: no stage named 'filtr'; did you mean filter\?"),
        ("stages.filter.rulez", r"when: filter has no field 'rulez'; did you mean rules\?"),
    ],
)
def test_a_wrong_condition_is_refused(when: Any, told: str):
    with pytest.raises(RecipeError, match=told):
        convert_recipe({"stages": [{"kind": "filter", "when": when}]})
