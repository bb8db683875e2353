# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, each defined and documented once."""

from __future__ import annotations

import argparse
import os
from typing import Any

from curation.cli.console import LOGS
from curation.cli.parsing import Parser, UsageError, add, whole_number

ENGINES = ("auto", "gpu", "cpu")
NOTHING_KEPT = 3  # exit code
INPUT_HELP = "read these files, folders and quoted globs, each as one input"
READING = ("text_column",)
RECIPE = ("recipe", "set", "stages", "rules", "tokenizer", "allow_code")
RUNNING = ("engine", "workers", "scheduler", "force", "force_disk", "allow_empty", "verbose")
LOGGING = ("quiet", "log")


def module_name(text: str) -> str:
    """Return the value of `--allow-code`. Raises ArgumentTypeError if Python cannot import such a name."""
    if not text or not all(part.isidentifier() for part in text.split(".")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a module name; write it as in an import: package.module")
    return text


def setting(text: str) -> str:
    """Return the value of `--set`. Raises ArgumentTypeError if it has no `=`, before further words are read as a
    recipe."""
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"expected PATH=VALUE without spaces, such as seed=3, not {text!r}")
    return text


def _option(*flags: str, **settings: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    return flags, settings


SHARED = {
    "input": _option("--input", "-i", nargs="+", action="extend", default=[], metavar="PATH", help=INPUT_HELP),
    "output": _option(
        "--output", "-o", required=True, type=os.path.expanduser, metavar="DIR",
        help="write the run to this folder; or copy the finished run to this URL, such as s3://BUCKET/PREFIX",
    ),
    "work": _option(
        "--work", default="", type=os.path.expanduser, metavar="DIR",
        help="with a URL as output: run in this folder (default: a folder here, named by the URL)",
    ),
    "recipe": _option(
        "--recipe", default="", metavar="RECIPE", help="same as the argument RECIPE", dest="recipe_option"
    ),
    "text_column": _option(
        "--text-column", default="", metavar="NAME",
        help="read the text of every input from this column (default: text, content, body, ...)",
    ),
    "set": _option(
        "--set", action="append", default=[], metavar="PATH=VALUE", type=setting,
        help="change a recipe setting, such as stages.filter.words.min=100; repeatable",
    ),
    "stages": _option("--stages", default="", metavar="A,B", help="run these stages instead of the recipe's"),
    "rules": _option("--rules", default="", metavar="A,B", help="use these rule sets in the filter stage"),
    "tokenizer": _option(
        "--tokenizer", default="", metavar="NAME", help="tokenize with gpt2, tokenizer.json, .model or hub:ORG/NAME"
    ),
    "allow_code": _option(
        "--allow-code", action="append", default=[], metavar="MODULE", type=module_name,
        help="import this module, so that the recipe may name its stages; repeatable",
    ),
    "engine": _option(
        "--engine", choices=ENGINES, default="auto",
        help="compute on this engine (default: auto, the GPU if usable and faster)",
    ),
    "workers": _option(
        "--workers", type=whole_number, default=0, metavar="N", help="run N tasks at once (default: 0, as many as fit)"
    ),
    "scheduler": _option(
        "--scheduler", default="auto", metavar="S",
        help="run tasks on threads, processes, or the Dask scheduler at this address (default: auto, threads, "
        "and from 16 workers on processes of up to 8 threads)",
    ),
    "force": _option("--force", action="store_true", help="delete the earlier run in DIR and start again"),
    "force_disk": _option("--force-disk", action="store_true", help="start a run that needs more disk than is free"),
    "allow_empty": _option(
        "--allow-empty", action="store_true", help=f"exit with 0 instead of {NOTHING_KEPT} if the run keeps no document"
    ),
    "model": _option(
        "--model", default="", metavar="FOLDER",
        help="compute vectors with the encoder or static embeddings in this local folder, or package:NAME",
    ),
    "windows": _option(
        "--windows", type=whole_number, metavar="N",
        help="read up to N windows of a text; 0: the whole text (default: 4)",
    ),
    "quiet": _option("--quiet", action="store_true", help="print errors and warnings only"),
    "verbose": _option(
        "--verbose", "-v", action="store_true", help="print all reasons and the totals at the end of a run"
    ),
    "log": _option(
        "--log", choices=LOGS, noun="form", default="", help="print lines without bars, or JSON for programs"
    ),
}  # fmt: skip


def share(parser: Parser, *names: str, **changed: Any) -> None:
    """Add options of `SHARED` to a parser, in the order of `names`. `changed` replaces settings of an option; with it,
    only one name may be given."""
    for name in names:
        flags, settings = SHARED[name]
        add(parser, *flags, **settings | changed)


def check_needs_model(options: argparse.Namespace, *names: str) -> None:
    """Raise UsageError if one of some options, named by their values, is given without `--model`."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value is not False and not options.model:  # 0 was given
            raise UsageError(f"--{name.replace('_', '-')} is for --model, which is missing")


def add_recipe(parser: Parser) -> None:
    """Add a recipe, as an argument or as `--recipe`, and every option that changes it."""
    parser.add_argument(
        "recipe",
        nargs="?",
        default="",
        metavar="RECIPE",
        help="use this recipe, a YAML file or a shipped name (default: default)",
    )
    share(parser, *RECIPE, "input", *READING)


def add_inputs(parser: Parser) -> None:
    """Add `INPUT...`, the same as `--input`, and the options for reading inputs."""
    parser.add_argument("paths", nargs="*", default=[], metavar="INPUT", help=INPUT_HELP)
    share(parser, "input", help="same as INPUT")
    share(parser, *READING)


def inputs_of(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the inputs of a command that has `add_inputs`, in the form of a recipe.

    Raises UsageError if the command has no input.
    """
    inputs = inputs_in(options)
    if not inputs:
        raise UsageError(f"{options.command.name} needs an input: give a file, folder or glob, or --input")
    return inputs


def inputs_in(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the inputs of a command that has `add_inputs`, in the form of a recipe; the list may be empty."""
    return [{"path": path, "text_column": options.text_column} for path in (*options.paths, *options.input)]


def split_names(names: str) -> list[str]:
    """Return the names of a comma-separated list, without the spaces around them."""
    return [name.strip() for name in names.split(",")]
