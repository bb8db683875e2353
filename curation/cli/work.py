# SPDX-License-Identifier: Apache-2.0
"""Commands that run a recipe, or say what one would do."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from curation import interrupts
from curation.cli import recipes
from curation.cli.options import RUNNING, SPEAKING, add_inputs, add_recipe, inputs_of, listed, share
from curation.cli.parsing import Command, Parser
from curation.cli.running import conclude, load_within_limits, run_recipe


def _add_run(parser: Parser) -> None:
    add_recipe(parser)
    share(parser, "output", *RUNNING, *SPEAKING)


def run(options: argparse.Namespace) -> int:
    load_within_limits()
    return conclude(run_recipe(recipes.load(options), options.output, options), options.output, options)


def _add_plan(parser: Parser) -> None:
    add_recipe(parser)
    share(parser, "log")


def plan(options: argparse.Namespace) -> int:
    import yaml

    from curation.errors import counted
    from curation.packing.tokenization import load_tokenizer
    from curation.reading.paths import find_files
    from curation.recipe import as_builtins
    from curation.running.plan import check_stages

    recipe = recipes.load(options)
    check_stages(recipe)
    files = find_files(recipe.input)
    if recipe.output.formats:
        load_tokenizer(recipe.tokenizer)  # which a run refuses at once
    chain = [(name, stage.explain()) for name, stage in zip(recipe.stage_names, recipe.stages, strict=True)]
    size = sum(max(file.bytes, 0) for file in files)
    voice = options.voice
    voice.tell(yaml.safe_dump(as_builtins(recipe), sort_keys=False, allow_unicode=True).removesuffix("\n"))
    voice.tell("# the chain")
    for number, (name, lines) in enumerate(chain, 1):
        voice.tell("\n".join([f"# {number}. {name}", *(f"#      {line}" for line in lines)]))
    voice.tell(f"# {counted(len(files), 'file')}, {size:,} bytes")
    stages = [{"name": name, "explained": lines} for name, lines in chain]
    return voice.result("plan", recipe=as_builtins(recipe), stages=stages, files=len(files), bytes=size)


def _add_demo(parser: Parser) -> None:
    share(parser, "output", default="demo", required=False, help="folder of the corpus and the run (default: demo)")
    share(parser, "set", *RUNNING, *SPEAKING)


def demo(options: argparse.Namespace) -> int:
    load_within_limits()
    from curation.demo import CORPUS, prepare_corpus
    from curation.files import local_output
    from curation.reading.inputs import Input
    from curation.recipe import DEFAULT_RECIPE, load_recipe

    folder = local_output(options.output)
    out = options.output = str(folder / "out")
    entry = Input(path=str(folder / CORPUS), name="documentation")
    recipe = load_recipe(DEFAULT_RECIPE, entry, settings=options.set)  # before anything is written
    interrupts.begin_writing()
    corpus, told = prepare_corpus(folder)
    options.voice.tell(told)
    finished = run_recipe(recipe, out, options)
    if code := conclude(finished, out, options, corpus=str(corpus)):
        return code
    options.voice.tell(
        f"\nNext: curate inspect {out}/tokens/documentation_00000_text_document\n"
        f"      curate verify {out}\n"
        f"      curate run --input 'your/*.jsonl' --output DIR"
    )
    return 0


def _add_measure(parser: Parser) -> None:
    add_inputs(parser)
    parser.add_argument("--names", default="", metavar="A,B", help="of curation.Measure (default: all)")
    share(parser, "set", "output", *RUNNING, *SPEAKING)


def measure(options: argparse.Namespace) -> int:
    load_within_limits()
    from curation.running.report_text import RANKS, percentiles, print_percentiles
    from curation.stages.base import added_columns

    stage = {"kind": "measure", "names": listed(options.names) if options.names else []}
    content = {"name": "measure", "input": inputs_of(options), "stages": [stage], "output": {"formats": []}}
    recipe = recipes.made("measure", content, options)
    finished = run_recipe(recipe, options.output, options)
    folder, names = Path(options.output), added_columns(recipe.stages)
    if options.voice.is_for_people:
        print_percentiles(folder, finished.report["documents"]["kept"], names)
        return conclude(finished, options.output, options)
    found = percentiles(folder, names)
    return conclude(finished, options.output, options, ranks=RANKS, percentiles=found)


def _add_tokenize(parser: Parser) -> None:
    add_inputs(parser)
    share(parser, "recipe", dest="recipe", help="whose tokenizer and output settings to use")
    share(parser, "tokenizer")
    parser.add_argument(
        "--formats", default="", metavar="A,B", help="of megatron, token_shards, blocks, chunks, packed"
    )
    share(parser, "set", "allow_code", "output", *RUNNING, *SPEAKING)


def tokenize(options: argparse.Namespace) -> int:
    load_within_limits()
    base = recipes.base_of(options)
    tokenizer, output = base.get("tokenizer", {}), base.get("output", {}) | {"index": False}
    if options.tokenizer:
        tokenizer = tokenizer | {"name": options.tokenizer}
    if options.formats:
        output = output | {"formats": listed(options.formats)}
    content: dict[str, Any] = {"name": "tokenize", "input": inputs_of(options), "stages": []}
    content |= {"seed": base["seed"]} if base else {}
    recipe = recipes.made("tokenize", content | {"tokenizer": tokenizer, "output": output}, options)
    return conclude(run_recipe(recipe, options.output, options), options.output, options)


RUN = Command("run", "run a recipe", _add_run, run, resumes=True)
PLAN = Command("plan", "print what a recipe would do; reads no document, writes nothing", _add_plan, plan)
DEMO = Command("demo", "the default recipe on the documentation found on this machine", _add_demo, demo, resumes=True)
MEASURE = Command(
    "measure", "documents as they are, with measures to choose thresholds by", _add_measure, measure, resumes=True
)
TOKENIZE = Command(
    "tokenize", "documents as they are to training data, without any stage", _add_tokenize, tokenize, resumes=True
)
