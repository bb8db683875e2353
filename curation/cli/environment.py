# SPDX-License-Identifier: Apache-2.0
"""Commands about the environment: shipped recipes, shell completion, compiled kernels."""

from __future__ import annotations

import argparse
import json
from itertools import takewhile

from curation.base.errors import counted
from curation.base.system.terminal import print_line
from curation.cli.options import LOGGING, share
from curation.cli.parsing import Command, Parser, UsageError, add

SHELLS = ("bash", "zsh", "fish")
NAME_WIDTH = 20


def _add_recipes(parser: Parser) -> None:
    add(
        parser,
        "action",
        noun="action",
        nargs="?",
        choices=("list", "show"),
        default="list",
        help="list all (default), or show one",
    )
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="show this recipe")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of recipes, for editors")


def recipes(options: argparse.Namespace) -> int:
    """List the shipped recipes, print one, or print the JSON Schema of recipes."""
    from curation.base.errors import RecipeError, nearest
    from curation.recipes.recipe import shipped_recipes

    if options.schema:
        from curation.recipes.schema import recipe_schema

        print_line(json.dumps(recipe_schema(), indent=2, ensure_ascii=False))
        return 0
    shipped = shipped_recipes()
    if options.action == "list":
        width = max(NAME_WIDTH, max(map(len, shipped)) + 2)
        for name, text in shipped.items():
            print_line(f"{name:<{width}}{_first_sentence(text)}")
        return 0
    if not options.name:
        raise UsageError(f"recipes show needs the name of a recipe: {', '.join(shipped)}")
    if options.name not in shipped:
        raise RecipeError(f"no recipe named {options.name!r}{nearest(options.name, shipped)}")
    print_line(shipped[options.name], end="")
    return 0


def _first_sentence(text: str) -> str:
    """Return the first sentence of the comment at the start of a recipe."""
    comment = " ".join(
        line.removeprefix("# ") for line in takewhile(lambda line: line.startswith("#"), text.splitlines())
    )
    return comment.partition(". ")[0].removesuffix(".") + "."


def _add_completion(parser: Parser) -> None:
    add(parser, "shell", choices=SHELLS, help="complete in this shell")


def completion(options: argparse.Namespace) -> int:
    """Print the script that a shell loads at its start."""
    from curation.cli.completion import completion_script

    print_line(completion_script(options.shell, options.groups), end="")
    return 0


def _add_warmup(parser: Parser) -> None:
    parser.add_argument(
        "recipe", nargs="?", default="", metavar="RECIPE", help="compile the kernels of this recipe (default: all)"
    )
    share(parser, "set", "allow_code", "engine", "workers", *LOGGING)


def warmup(options: argparse.Namespace) -> int:
    """Compile the kernels that are missing, so that the first run need not wait for the compiler."""
    from curation.base.engine import choose_engine
    from curation.base.system.memory import count_compilers, read_limits, read_processors
    from curation.kernels.cache import FOLDER
    from curation.recipes.recipe import load_recipe
    from curation.stages.warm_up import GROUPS, missing_groups, recipe_groups, warm_up

    engine = choose_engine(options.engine).name
    groups = list(GROUPS)
    if options.recipe:
        recipe = load_recipe(options.recipe, settings=options.set, allow_code=options.allow_code)
        groups = recipe_groups(recipe, engine)
    missing = missing_groups(groups)
    warm_up(missing, options.console.progress(), count_compilers(read_limits(), options.workers or read_processors()))
    options.console.info(
        f"{counted(len(groups), 'group')} of kernels compiled, {len(missing)} of them now, in {FOLDER}"
    )
    return int(options.console.result("warmup", folder=str(FOLDER), compiled=missing))


RECIPES = Command("recipes", "list the shipped recipes, or show one", _add_recipes, recipes)
COMPLETION = Command("completion", "print the completion script of a shell", _add_completion, completion)
WARMUP = Command("warmup", "compile kernels now, so that the first run does not", _add_warmup, warmup)
