# SPDX-License-Identifier: Apache-2.0
"""The command `curate init`."""

from __future__ import annotations

import argparse

from curation.cli.options import LOGGING, READING, inputs_in, share
from curation.cli.parsing import Command, Parser, UsageError

SUFFIXES = (".yaml", ".yml")


def _add_init(parser: Parser) -> None:
    parser.add_argument("paths", nargs="*", default=[], metavar="PATH", help="read these files, folders, globs or URLs")
    share(parser, "input", help="same as the argument PATH; both may be given")
    share(parser, *READING)
    share(
        parser,
        "output",
        default="recipe.yaml",
        required=False,
        metavar="FILE",
        help="write the recipe to FILE (default: recipe.yaml)",
    )
    share(parser, "force", help="replace FILE")
    share(parser, *LOGGING)


def init(options: argparse.Namespace) -> int:
    from curation.errors import OutputError, counted
    from curation.reading.inputs import list_inputs
    from curation.recipes.starter import starting_recipe
    from curation.system.files import commit, local_output
    from curation.system.os_errors import explain

    path = local_output(options.output)
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"init --output {options.output} is not a recipe; expected a name ending in .yaml or .yml")
    if path.exists() and not options.force:
        raise OutputError(f"{path} already exists. Give another --output, or --force")
    inputs = inputs_in(options)
    text = starting_recipe(list_inputs(inputs), options.output)
    try:
        with commit(path) as temporary:
            temporary.write_text(text, "utf-8")
    except OSError as error:
        raise OutputError(f"the recipe cannot be written: {explain(OSError(error.errno, '', str(path)))}") from None
    options.console.info(f"{path}: {counted(len(inputs), 'input')}, the stages of the default recipe")
    if not inputs:
        options.console.info("Edit its input, or name your files: curate init PATH --force")
    options.console.info(f"Next: curate run {options.output} -o out")
    return int(options.console.result("init", output=str(path), inputs=len(inputs)))


INIT = Command("init", "write a starting recipe for your own files", _add_init, init)
