# SPDX-License-Identifier: Apache-2.0
"""`curate demo`."""

from __future__ import annotations

import argparse

from curation.base.system import interrupts
from curation.cli.execution import conclude, prepare_memory, run_recipe
from curation.cli.options import LOGGING, RUNNING, share
from curation.cli.parsing import Command, Parser


def _add_demo(parser: Parser) -> None:
    share(parser, "output", default="demo", required=False, help="write corpus and run to this folder (default: demo)")
    share(parser, "set", *RUNNING, *LOGGING)


def demo(options: argparse.Namespace) -> int:
    """Write the documentation in this Python installation as a corpus, and run the default recipe on it."""
    prepare_memory()
    from curation.base.system.files import local_output
    from curation.reading.inputs import Input
    from curation.recipes.recipe import DEFAULT_RECIPE, load_recipe
    from curation.tools.demo import CORPUS, prepare_corpus

    folder = local_output(options.output)
    out = options.output = str(folder / "out")
    entry = Input(path=str(folder / CORPUS), name="documentation")
    recipe = load_recipe(DEFAULT_RECIPE, entry, settings=options.set)  # may raise before the first write
    interrupts.begin_writing()
    corpus, message = prepare_corpus(folder)
    options.console.info(message)
    finished = run_recipe(recipe, out, options)
    if code := conclude(finished, out, options, corpus=str(corpus)):
        return code
    options.console.info(
        f"Next: curate inspect {out}/tokens/documentation_00000_text_document",
        "      curate init your/folder -o recipe.yaml",
        "      curate run recipe.yaml -o DIR",
    )
    return 0


DEMO = Command("demo", "run the default recipe on the documentation of this Python", _add_demo, demo, resumes=True)
