# SPDX-License-Identifier: Apache-2.0
"""Commands that run a recipe or print its plan."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from curation.cli import recipes
from curation.cli.execution import conclude, prepare_memory, run_recipe
from curation.cli.options import LOGGING, RUNNING, add_inputs, add_recipe, inputs_of, share, split_names
from curation.cli.parsing import Command, Parser
from curation.system import interrupts


def _add_run(parser: Parser) -> None:
    add_recipe(parser)
    share(parser, "output", *RUNNING, *LOGGING)


def run(options: argparse.Namespace) -> int:
    prepare_memory()
    return conclude(run_recipe(recipes.load(options), options.output, options), options.output, options)


def _add_plan(parser: Parser) -> None:
    add_recipe(parser)
    share(parser, "log")


def plan(options: argparse.Namespace) -> int:
    import yaml

    from curation.errors import counted
    from curation.packing.tokenization import load_tokenizer
    from curation.reading.paths import find_files
    from curation.recipes.recipe import as_builtins
    from curation.running.plan import check_stages

    recipe = recipes.load(options)
    check_stages(recipe)
    files = find_files(recipe.input)
    if recipe.output.formats:
        load_tokenizer(recipe.tokenizer)  # as a run does: its errors belong to the plan
    chain = [(name, stage.explain()) for name, stage in zip(recipe.stage_names, recipe.stages, strict=True)]
    size = sum(max(file.bytes, 0) for file in files)
    console = options.console
    console.info(yaml.safe_dump(as_builtins(recipe), sort_keys=False, allow_unicode=True).removesuffix("\n"))
    console.info("# the chain")
    for number, (name, lines) in enumerate(chain, 1):
        console.info("\n".join([f"# {number}. {name}", *(f"#      {line}" for line in lines)]))
    console.info(f"# {counted(len(files), 'file')}, {size:,} bytes")
    stages = [{"name": name, "explained": lines} for name, lines in chain]
    return console.result("plan", recipe=as_builtins(recipe), stages=stages, files=len(files), bytes=size)


def _add_demo(parser: Parser) -> None:
    share(parser, "output", default="demo", required=False, help="write corpus and run to this folder (default: demo)")
    share(parser, "set", *RUNNING, *LOGGING)


def demo(options: argparse.Namespace) -> int:
    prepare_memory()
    from curation.demo import CORPUS, prepare_corpus
    from curation.reading.inputs import Input
    from curation.recipes.recipe import DEFAULT_RECIPE, load_recipe
    from curation.system.files import local_output

    folder = local_output(options.output)
    out = options.output = str(folder / "out")
    entry = Input(path=str(folder / CORPUS), name="documentation")
    recipe = load_recipe(DEFAULT_RECIPE, entry, settings=options.set)  # its errors come before the first write
    interrupts.begin_writing()
    corpus, message = prepare_corpus(folder)
    options.console.info(message)
    finished = run_recipe(recipe, out, options)
    if code := conclude(finished, out, options, corpus=str(corpus)):
        return code
    options.console.info(
        f"\nNext: curate inspect {out}/tokens/documentation_00000_text_document\n"
        f"      curate verify {out}\n"
        f"      curate run --input 'your/*.jsonl' --output DIR"
    )
    return 0


def _add_measure(parser: Parser) -> None:
    add_inputs(parser)
    parser.add_argument(
        "--names", default="", metavar="A,B", help="compute these measures (default: all of curation.Measure)"
    )
    share(parser, "set")
    share(parser, "stages", help="run these stages before the measures (default: none)")
    share(parser, "rules", help="keep what passes these rule sets, in the filter stage or in one before the others")
    share(parser, "output", *RUNNING, *LOGGING)


def measure(options: argparse.Namespace) -> int:
    prepare_memory()
    from curation.running.report_text import RANKS, percentiles, print_percentiles
    from curation.stages.base import added_columns

    stage = {"kind": "measure", "names": split_names(options.names) if options.names else []}
    stages = [*recipes.stages_of(options), stage]
    content = {"name": "measure", "input": inputs_of(options), "stages": stages, "output": {"formats": []}}
    recipe = recipes.build("measure", content, options)
    finished = run_recipe(recipe, options.output, options)
    folder, names = Path(options.output), added_columns(recipe.stages[-1:])
    if options.console.is_for_people:
        print_percentiles(folder, finished.report["documents"]["kept"], names)
        return conclude(finished, options.output, options)
    return conclude(finished, options.output, options, ranks=RANKS, percentiles=percentiles(folder, names))


def _add_tokenize(parser: Parser) -> None:
    add_inputs(parser)
    share(parser, "recipe", dest="recipe", help="use the tokenizer, output settings and seed of this recipe")
    share(parser, "tokenizer")
    parser.add_argument(
        "--formats", default="", metavar="A,B", help="write these of megatron, token_shards, blocks, chunks, packed"
    )
    share(parser, "set")
    share(parser, "stages", help="run these stages before the tokenizer (default: none)")
    share(parser, "rules", help="keep what passes these rule sets, in the filter stage or in one before the others")
    share(parser, "allow_code", "output", *RUNNING, *LOGGING)


def tokenize(options: argparse.Namespace) -> int:
    prepare_memory()
    base = recipes.base_of(options)
    tokenizer, output = base.get("tokenizer", {}), base.get("output", {}) | {"index": False}
    if options.tokenizer:
        tokenizer = tokenizer | {"name": options.tokenizer}
    if options.formats:
        output = output | {"formats": split_names(options.formats)}
    stages = recipes.stages_of(options)
    content: dict[str, Any] = {"name": "tokenize", "input": inputs_of(options), "stages": stages}
    content |= {"seed": base["seed"]} if base else {}
    recipe = recipes.build("tokenize", content | {"tokenizer": tokenizer, "output": output}, options)
    return conclude(run_recipe(recipe, options.output, options), options.output, options)


RUN = Command("run", "run a recipe", _add_run, run, resumes=True)
PLAN = Command("plan", "print what a recipe would do; read no document, write nothing", _add_plan, plan)
DEMO = Command("demo", "run the default recipe on the documentation of this Python", _add_demo, demo, resumes=True)
MEASURE = Command("measure", "measure documents, to choose thresholds", _add_measure, measure, resumes=True)
TOKENIZE = Command(
    "tokenize",
    "turn documents into training data, without a recipe",
    _add_tokenize,
    tokenize,
    resumes=True,
)
