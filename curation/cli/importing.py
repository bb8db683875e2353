# SPDX-License-Identifier: Apache-2.0
"""The command `curate import-config`."""

from __future__ import annotations

import argparse
import os

from curation.cli.init import path_of_output, share_output, write_recipe
from curation.cli.parsing import Command, Parser


def _add_import(parser: Parser) -> None:
    parser.add_argument(
        "config",
        type=os.path.expanduser,
        metavar="FILE",
        help="read this configuration of NeMo Curator, data-juicer or dolma, or script of datatrove; nothing is run",
    )
    share_output(parser, "RECIPE")


def import_config(options: argparse.Namespace) -> int:
    """Write the recipe, and print the entries whose translation differs, or that have no translation."""
    from curation.recipes.imported.config import import_config

    path = path_of_output(options)
    found, console = import_config(options.config, path.name), options.console
    write_recipe(path, found.text)
    console.info(f"{path}: {found.translated:,} of {found.entries:,} entries of a configuration of {found.tool}")
    for title, lines in (("Not the same here", found.differences), ("Not translated", found.not_translated)):
        if lines:
            console.info(f"{title}:")
        for line in lines:
            console.info(f"  {line}")
    console.info(f"Next: curate plan {options.output}")
    return int(
        console.result(
            "import-config",
            output=str(path),
            tool=found.tool,
            entries=found.entries,
            translated=found.translated,
            differences=found.differences,
            not_translated=found.not_translated,
        )
    )


IMPORT_CONFIG = Command(
    "import-config", "write a recipe from the configuration of another tool", _add_import, import_config
)
