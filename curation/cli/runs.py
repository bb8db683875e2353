# SPDX-License-Identifier: Apache-2.0
"""Commands that run a recipe or print its plan."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from curation.base.system.terminal import aligned
from curation.cli import recipes
from curation.cli.execution import conclude, prepare_memory, run_recipe
from curation.cli.options import LOGGING, RUNNING, add_inputs, add_recipe, inputs_of, share, split_names
from curation.cli.parsing import Command, Parser, UsageError, number_of_seconds

if TYPE_CHECKING:
    from curation.cli.console import Console
    from curation.recipes.recipe import Recipe


def _add_run(parser: Parser) -> None:
    add_recipe(parser)
    share(parser, "output")
    share(parser, "work", *RUNNING, *LOGGING)
    parser.add_argument(
        "--reuse", default="", type=os.path.expanduser, metavar="OLD",
        help="take scores and vectors of equal texts from the run in this folder (default: compute all)",
    )  # fmt: skip
    parser.add_argument(
        "--array-task", default="", metavar="K/N", help="take part in the run as process K of N that share only DIR"
    )
    parser.add_argument(
        "--lease-seconds",
        type=number_of_seconds,
        metavar="S",
        help="with --array-task: let others take over after S seconds of silence (default: 60)",
    )


def run(options: argparse.Namespace) -> int:
    """Run a recipe, one task of an array, or a share of a run that several machines divide."""
    prepare_memory()
    more = {name: getattr(options, name) for name in ("array_task", "work", "reuse")}
    if options.lease_seconds is not None:
        if not options.array_task:
            raise UsageError("--lease-seconds is for --array-task, which is missing")
        more["lease_seconds"] = options.lease_seconds
    return conclude(run_recipe(recipes.load(options), options.output, options, **more), options.output, options)


def _add_plan(parser: Parser) -> None:
    add_recipe(parser)
    share(parser, "output", default=".", required=False, help="compare with the disk of DIR (default: this folder)")
    parser.add_argument(
        "--measures", metavar="DIR", help="print what the bounds would remove of this run's documents, by its measures/"
    )
    parser.add_argument("--full", action="store_true", help="print every setting and bound, without a sample")
    share(
        parser,
        "engine",
        help="gpu: print modelled times of both (default: auto, if usable)",
    )
    share(parser, "workers", "log")


def plan(options: argparse.Namespace) -> int:
    """Print settings, estimates and warnings of a run that has not begun; no output is written."""
    import msgspec

    from curation.cli.plan_text import plan_lines
    from curation.running.planning.estimate import estimate

    recipe, console = recipes.load(options), options.console
    if options.measures:
        return _plan_by_measures(recipe, options)
    if options.full and console.is_for_people:
        return _print_settings(recipe, console)
    given = {"engine": options.engine, "workers": options.workers}
    found = estimate(recipe, options.output, **given, progress=console.progress())
    console.info(*plan_lines(found))
    for warning in found.warnings:
        console.warn(warning)
    return int(console.result("plan", **msgspec.to_builtins(found)))


def _plan_by_measures(recipe: Recipe, options: argparse.Namespace) -> int:
    """Print what each rule of a recipe would remove of the documents of a finished run."""
    from curation.base.errors import counted
    from curation.results.finished.measured_rules import plan_by_measures

    effects, console = plan_by_measures(recipe, options.measures), options.console
    for effect in effects:
        reached = max(effect.reached, 1)
        lines = [f"{effect.name}: {counted(effect.reached, 'document')} reached {effect.of} of {options.measures}"]
        rows = [
            ("rule", "documents", "share", "first"),
            *(
                (reason, f"{number:,}", f"{number / reached:.2%}", f"{effect.first[reason]:,}")
                for reason, number in effect.reasons.items()
            ),
            ("in all", f"{effect.removed:,}", f"{effect.removed / reached:.2%}", ""),
        ]
        lines += [f"  {line}" for line in aligned(rows)]
        lines.append(f"that run removed {effect.before:,} there; judged in {1000 * effect.seconds:.0f} ms")
        console.info(*lines)
    return int(console.result("plan", measures=options.measures, filters=[effect._asdict() for effect in effects]))


def _print_settings(recipe: Recipe, console: Console) -> int:
    """Print the recipe with all defaults as YAML, and the meaning of each stage as comments."""
    import yaml

    from curation.base.errors import counted
    from curation.recipes.recipe import as_builtins
    from curation.running.planning.estimate import check_inputs, size_of

    files, _ = check_inputs(recipe)
    settings = str(yaml.safe_dump(as_builtins(recipe), sort_keys=False, allow_unicode=True))
    console.info(*settings.removesuffix("\n").split("\n"), "# the chain")
    for number, (name, stage) in enumerate(zip(recipe.stage_names, recipe.stages, strict=True), 1):
        console.info(f"# {number}. {name}", *(f"#      {line}" for line in stage.explain()))
    console.info(f"# {counted(len(files), 'file')}, {size_of(files):,} bytes")
    return 0


def _add_tokenize(parser: Parser) -> None:
    add_inputs(parser)
    share(parser, "recipe", dest="recipe", help="use the tokenizer, output settings and seed of this recipe")
    share(parser, "tokenizer")
    parser.add_argument(
        "--formats", default="", metavar="A,B",
        help="write these of megatron, token_shards, blocks, chunks, packed, mds, litdata",
    )  # fmt: skip
    share(parser, "set")
    share(parser, "stages", help="run these stages before the tokenizer (default: none)")
    share(parser, "rules", help="keep what passes these rule sets, in the filter stage or in one before the others")
    share(parser, "allow_code")
    share(parser, "output")
    share(parser, "work", *RUNNING, *LOGGING)


def tokenize(options: argparse.Namespace) -> int:
    """Run a recipe that has a tokenizer and, without a recipe of its own, no stages."""
    prepare_memory()
    base = recipes.base_of(options)
    tokenizer, output = base.get("tokenizer", {}), base.get("output", {}) | {"index": False}
    if options.tokenizer:
        tokenizer = tokenizer | {"name": options.tokenizer}
    if options.formats:
        from curation.recipes.form_settings import with_formats

        output = with_formats(output, split_names(options.formats))
    stages = recipes.stages_of(options)
    content: dict[str, Any] = {"name": "tokenize", "input": inputs_of(options), "stages": stages}
    content |= {"seed": base["seed"]} if base else {}
    recipe = recipes.build("tokenize", content | {"tokenizer": tokenizer, "output": output}, options)
    return conclude(run_recipe(recipe, options.output, options, work=options.work), options.output, options)


RUN = Command("run", "run a recipe", _add_run, run, resumes=True)
PLAN = Command("plan", "print what a recipe would do, from a sample of the documents; write nothing", _add_plan, plan)
TOKENIZE = Command(
    "tokenize",
    "turn documents into training data, without a recipe",
    _add_tokenize,
    tokenize,
    resumes=True,
)
