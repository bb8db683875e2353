# SPDX-License-Identifier: Apache-2.0
"""`curate init`."""

from __future__ import annotations

import argparse

from curation.cli.options import READING, SPEAKING, inputs_in, share
from curation.cli.parsing import Command, Parser, UsageError

SUFFIXES = (".yaml", ".yml")


def _add_init(parser: Parser) -> None:
    parser.add_argument("paths", nargs="*", default=[], metavar="PATH", help="your files, folders, globs or URLs")
    share(parser, "input", help="the same, or more of them")
    share(parser, *READING)
    share(
        parser,
        "output",
        default="recipe.yaml",
        required=False,
        metavar="FILE",
        help="the recipe (default: recipe.yaml)",
    )
    share(parser, "force", help="replace FILE")
    share(parser, *SPEAKING)


def init(options: argparse.Namespace) -> int:
    from curation.errors import OutputError, counted
    from curation.files import commit, local_output
    from curation.reading.inputs import list_inputs
    from curation.starter import starting_recipe

    path = local_output(options.output)
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"init --output {options.output} is no recipe; expected a name ending in .yaml")
    if path.exists() and not options.force:
        raise OutputError(f"{path} exists already. Give another --output, or --force")
    found = inputs_in(options)
    text = starting_recipe(list_inputs(found), options.output)
    with commit(path) as temporary:
        temporary.write_text(text, "utf-8")
    options.voice.tell(f"{path}: {counted(len(found), 'input')}, the stages of the default recipe")
    if not found:
        options.voice.tell("Change its input, or give your files: curate init PATH --force")
    options.voice.tell(f"Next: curate run {options.output} -o out")
    return int(options.voice.result("init", output=str(path), inputs=len(found)))


INIT = Command("init", "write a recipe to start from, for your own files", _add_init, init)
