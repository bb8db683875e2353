# SPDX-License-Identifier: Apache-2.0
"""The recipe of a command line, from its arguments and options."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from curation.cli.parsing import UsageError

if TYPE_CHECKING:
    from curation.recipes.recipe import Recipe


def load(options: argparse.Namespace) -> Recipe:
    """Return the recipe of `run` and `plan`; `--input` replaces its inputs, `--text-column` applies to all of them.

    Raises RecipeError, or UsageError if two recipes are given.
    """
    from curation.recipes.recipe import DEFAULT_RECIPE, check_readable, load_recipe

    name, inputs = _name_of(options) or DEFAULT_RECIPE, _inputs_of(options)
    recipe = load_recipe(name, inputs or None, settings=settings_of(options), allow_code=options.allow_code)
    if options.text_column and not inputs:
        recipe = _with_text_column(recipe, options.text_column)
    if not getattr(options, "measures", None):  # measures, which are read instead of documents
        check_readable(recipe)  # `plan` does not run it
    return recipe


def build(name: str, content: dict[str, Any], options: argparse.Namespace) -> Recipe:
    """Return the recipe that a command builds itself, changed by `--set`. Raises RecipeError."""
    from curation.recipes.recipe import Recipe, convert_recipe
    from curation.recipes.settings import apply_settings

    return convert_recipe(
        apply_settings(content, options.set, Recipe), name, allow_code=getattr(options, "allow_code", ())
    )


def stages_of(options: argparse.Namespace) -> list[Any]:
    """Return the stages of `--stages` and `--rules`, for a command whose own recipe has none.

    `--rules` sets the rules of the filter in `--stages`, or of a new filter before the other stages.
    """
    from curation.base.errors import RecipeError
    from curation.recipes.recipe import Recipe
    from curation.recipes.settings import FILTER, apply_settings, rules_setting, stages_setting

    content: dict[str, Any] = {"stages": []}
    if options.stages:
        content = apply_settings(content, [stages_setting(options.stages)], Recipe)
    if not isinstance(content["stages"], list):
        raise RecipeError(f"--stages takes names or a list, such as exact_dedup,fuzzy_dedup, not {options.stages!r}")
    if options.rules:
        if not any(isinstance(stage, dict) and stage.get("kind") == FILTER for stage in content["stages"]):
            content["stages"].insert(0, {"kind": FILTER})
        content = apply_settings(content, [rules_setting(options.rules)], Recipe)
    return list(content["stages"])


def base_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the content of the recipe that `tokenize --recipe` names; empty without it."""
    from curation.recipes.recipe import as_builtins, load_recipe

    return as_builtins(load_recipe(options.recipe, allow_code=options.allow_code)) if options.recipe else {}


def settings_of(options: argparse.Namespace) -> list[str]:
    """Return the settings `PATH=VALUE` of `--stages`, `--rules` and `--tokenizer`, then those of `--set`."""
    from curation.recipes.settings import rules_setting, stages_setting

    settings = [stages_setting(options.stages)] if options.stages else []
    settings += [rules_setting(options.rules)] if options.rules else []
    settings += [f"tokenizer.name={options.tokenizer}"] if getattr(options, "tokenizer", "") else []
    return [*settings, *options.set]


def _name_of(options: argparse.Namespace) -> str:
    if options.recipe and options.recipe_option:
        raise UsageError(f"two recipes: {options.recipe} and --recipe {options.recipe_option}; give one")
    return options.recipe or options.recipe_option


def _inputs_of(options: argparse.Namespace) -> list[dict[str, str]]:
    from curation.base.errors import RecipeError

    for path in options.input:
        if path.lower().endswith((".yaml", ".yml")):
            raise RecipeError(f"{path} is a recipe: put it before --input")
    return [{"path": path, "text_column": options.text_column} for path in options.input]


def _with_text_column(recipe: Recipe, name: str) -> Recipe:
    import msgspec

    from curation.base.errors import RecipeError

    try:
        return msgspec.structs.replace(
            recipe, input=[msgspec.structs.replace(entry, text_column=name) for entry in recipe.input]
        )
    except (TypeError, ValueError) as error:  # for an input without columns, or one whose id column has this name
        raise RecipeError(f"--text-column {name}: {error}") from None
