# SPDX-License-Identifier: Apache-2.0
"""`curate embed`: vectors of documents, without a recipe."""

from __future__ import annotations

import argparse
from typing import Any

from curation.cli import recipes
from curation.cli.execution import conclude, prepare_memory, run_recipe
from curation.cli.options import LOGGING, RUNNING, add_inputs, inputs_of, share
from curation.cli.parsing import Command, Parser

SETTINGS = ("model", "column", "windows", "pooling")


def _add_embed(parser: Parser) -> None:
    add_inputs(parser)
    share(
        parser,
        "model",
        required=True,
        help="use the encoder or static embeddings in this local folder, or package:NAME",
    )
    parser.add_argument(
        "--column", default="", metavar="NAME", help="write vectors to this column (default: embedding)"
    )
    share(parser, "windows")
    parser.add_argument(
        "--pooling", default="", metavar="KIND", help="make one vector of windows by mean, max or first (default: mean)"
    )
    share(parser, "set")
    share(parser, "output")
    share(parser, *RUNNING, *LOGGING)


def embed(options: argparse.Namespace) -> int:
    """Run a recipe with a single `embed` stage, so that the output is a normal run, which can be resumed."""
    prepare_memory()
    given = {name: getattr(options, name) for name in SETTINGS}
    stage = {"kind": "embed"} | {name: value for name, value in given.items() if value not in ("", None)}
    content: dict[str, Any] = {"name": "embed", "input": inputs_of(options), "stages": [stage]}
    recipe = recipes.build("embed", content | {"output": {"formats": []}}, options)
    return conclude(run_recipe(recipe, options.output, options), options.output, options)


EMBED = Command("embed", "write a vector of each document, without a recipe", _add_embed, embed, resumes=True)
