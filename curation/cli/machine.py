# SPDX-License-Identifier: Apache-2.0
"""Commands about this machine and this package."""

from __future__ import annotations

import argparse
import json
from itertools import takewhile

from curation.cli.parsing import Command, Parser, UsageError, add
from curation.terminal import say

SHELLS = ("bash", "zsh", "fish")
NAME_WIDTH = 20


def _add_nothing(parser: Parser) -> None: ...


def doctor(options: argparse.Namespace) -> int:
    from curation.doctor import diagnose

    lines, sound = diagnose()
    say("\n".join(lines))
    return 0 if sound else 1


def _add_recipes(parser: Parser) -> None:
    add(
        parser,
        "action",
        noun="action",
        nargs="?",
        choices=("list", "show"),
        default="list",
        help="default: list; show prints one",
    )
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="of the recipe to show")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of recipes, for editors")


def recipes(options: argparse.Namespace) -> int:
    from curation.errors import RecipeError, nearest
    from curation.recipe import shipped_recipes

    if options.schema:
        from curation.recipe_schema import recipe_schema

        say(json.dumps(recipe_schema(), indent=2, ensure_ascii=False))
        return 0
    shipped = shipped_recipes()
    if options.action == "list":
        for name, text in shipped.items():
            say(f"{name:<{NAME_WIDTH}}{_first_sentence(text)}")
        return 0
    if not options.name:
        raise UsageError(f"give the name of a recipe to show: {', '.join(shipped)}")
    if options.name not in shipped:
        raise RecipeError(f"no recipe named {options.name!r}{nearest(options.name, shipped)}")
    say(shipped[options.name], end="")
    return 0


def _first_sentence(text: str) -> str:
    """Of the comment that a recipe begins with."""
    comment = " ".join(
        line.removeprefix("# ") for line in takewhile(lambda line: line.startswith("#"), text.splitlines())
    )
    return comment.partition(". ")[0].removesuffix(".") + "."


def _add_completion(parser: Parser) -> None:
    add(parser, "shell", choices=SHELLS, help="the shell that completes")


def completion(options: argparse.Namespace) -> int:
    from curation.cli.completion import completion_script
    from curation.cli.groups import GROUPS

    say(completion_script(options.shell, GROUPS), end="")
    return 0


DOCTOR = Command("doctor", "engines, versions, devices, and a parity check", _add_nothing, doctor)
RECIPES = Command("recipes", "list the shipped recipes, or show one", _add_recipes, recipes)
COMPLETION = Command("completion", "print what makes a shell complete all this", _add_completion, completion)
