# SPDX-License-Identifier: Apache-2.0
"""The command `curate import-config`."""

from __future__ import annotations

import argparse
import os

from curation.cli.options import LOGGING, share
from curation.cli.parsing import Command, Parser, UsageError

SUFFIXES = (".yaml", ".yml")


def _add_import(parser: Parser) -> None:
    parser.add_argument(
        "config",
        type=os.path.expanduser,
        metavar="FILE",
        help="read this configuration of NeMo Curator, data-juicer or dolma, or script of datatrove; nothing is run",
    )
    share(
        parser,
        "output",
        default="recipe.yaml",
        required=False,
        metavar="RECIPE",
        help="write the recipe to RECIPE (default: recipe.yaml)",
    )
    share(parser, "force", help="replace RECIPE")
    share(parser, *LOGGING)


def import_config(options: argparse.Namespace) -> int:
    from curation.errors import OutputError
    from curation.recipes.imported.config import import_config
    from curation.system.files import commit, local_output
    from curation.system.os_errors import explain

    path = local_output(options.output)
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"import-config --output {options.output} is no recipe; expected a name ending in .yaml or .yml"
        )
    if path.exists() and not options.force:
        raise OutputError(f"{path} already exists. Give another --output, or --force")
    found, console = import_config(options.config, path.name), options.console
    try:
        with commit(path) as temporary:
            temporary.write_text(found.text, "utf-8")
    except OSError as error:
        raise OutputError(f"the recipe cannot be written: {explain(OSError(error.errno, '', str(path)))}") from None
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
