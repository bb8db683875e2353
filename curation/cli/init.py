# SPDX-License-Identifier: Apache-2.0
"""The command `curate init`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from curation.cli.options import LOGGING, READING, inputs_in, share
from curation.cli.parsing import Command, Parser, UsageError

MAX_SHOWN_UNUSED, MAX_SHOWN_INPUTS = 5, 20
SUFFIXES = (".yaml", ".yml")


def _add_init(parser: Parser) -> None:
    parser.add_argument("paths", nargs="*", default=[], metavar="PATH", help="read these files, folders, globs or URLs")
    share(parser, "input", help="same as PATH")
    share(parser, *READING)
    share_output(parser, "FILE")


def share_output(parser: Parser, metavar: str) -> None:
    """Add the options of a command that writes a recipe."""
    share(
        parser,
        "output",
        default="recipe.yaml",
        required=False,
        metavar=metavar,
        help=f"write the recipe to {metavar} (default: recipe.yaml)",
    )
    share(parser, "force", help=f"replace {metavar}")
    share(parser, *LOGGING)


def path_of_output(options: argparse.Namespace) -> Path:
    """Return the path to which a command writes its recipe. Raises UsageError for another suffix, OutputError if the
    file exists."""
    from curation.base.system.files import prepare_output

    return prepare_output(_named_output(options), options.force)


def _named_output(options: argparse.Namespace) -> Path:
    from curation.base.system.files import local_output

    path = local_output(options.output)
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"{options.command.name} --output {options.output} is not a recipe; expected a name ending in .yaml or .yml"
        )
    return path


def _inputs(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the inputs of the command. Raises UsageError if there is no input, or if one is a recipe."""
    entries = inputs_in(options)
    if not entries:
        raise UsageError(
            "init has no input; expected the files, folders, globs or URLs to read: curate init PATH -o "
            f"{shlex.quote(options.output)}"
        )
    recipes = [entry["path"] for entry in entries if entry["path"].lower().endswith(SUFFIXES)]
    if recipes:
        raise UsageError(f"init would read {recipes[0]} as an input. To write the recipe to it: -o {recipes[0]}")
    return entries


def write_recipe(path: Path, text: str, others: Mapping[str, str] = MappingProxyType({})) -> None:
    """Write a recipe. First write the `others` (path -> text), which are files that the recipe names."""
    from curation.base.system.files import commit

    for name, content in ({**others, str(path): text}).items():
        with commit(Path(name)) as temporary:
            temporary.write_text(content, "utf-8")


def init(options: argparse.Namespace) -> int:
    """Look at samples of the inputs, write a recipe that suits them, and print the reasons for its settings."""
    from curation.base.errors import counted
    from curation.base.system.files import check_new_or_same, prepare_output, sweep_dead
    from curation.reading.inputs import list_inputs
    from curation.recipes.starter import describe, is_all_code, left_out_lines, lists_of, starting_recipe
    from curation.recipes.survey import HIDDEN_NAME, UNKNOWN, survey

    path = _named_output(options)
    surveyed = survey(list_inputs(_inputs(options)), options.output)
    prepare_output(path, options.force)
    inputs, console = surveyed.inputs, options.console
    text = starting_recipe(surveyed, options.output)
    texts = lists_of(surveyed)
    for name, content in texts.items():
        check_new_or_same(Path(name), content.encode(), options.force)
        sweep_dead(Path(name))
    write_recipe(path, text, texts)
    others = {name: reason for name, reason in surveyed.unused.items() if reason not in (UNKNOWN, HIDDEN_NAME)}
    left_out = [*left_out_lines(others, "not read"), *left_out_lines(surveyed.faults, "read in part")]
    for line in left_out[:MAX_SHOWN_UNUSED]:
        console.info(line)
    if left_out[MAX_SHOWN_UNUSED:]:
        console.info(f"and for {counted(len(left_out) - MAX_SHOWN_UNUSED, 'more reason')}, which the recipe has")
    stages = "stages for source code" if is_all_code(surveyed) else "the stages of the default recipe"
    console.info(f"{path}: {counted(len(inputs), 'input')}, {stages}")
    for suggested in inputs[:MAX_SHOWN_INPUTS]:
        settings = ", ".join(f"{name} {value}" for name, value in suggested.settings.items() if name != "path")
        console.info(f"  {suggested.settings['path']}{f' ({settings})' if settings else ''}")
        for line in describe(suggested):
            console.info(f"    {line}")
    console.info(f"Next: curate plan {options.output}", f"      curate run {options.output} -o out")
    return int(
        console.result("init", output=str(path), inputs=len(inputs), unused=surveyed.unused, faults=surveyed.faults)
    )


INIT = Command("init", "write a starting recipe for your own files", _add_init, init)
