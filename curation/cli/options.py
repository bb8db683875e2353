# SPDX-License-Identifier: Apache-2.0
"""Options that several commands have, each spelled and explained once."""

from __future__ import annotations

import argparse
from typing import Any

from curation.cli.parsing import Parser, UsageError, add, whole_number
from curation.cli.voice import LOGS

ENGINES = ("auto", "gpu", "cpu")
NOTHING_KEPT = 3  # the exit code
INPUT_HELP = (
    "file, folder or glob, each an input of its own: a glob in quotes is one input, without quotes the shell makes one "
    "of every file"
)
READING = ("text_column",)
RECIPE = ("recipe", "set", "stages", "rules", "tokenizer", "allow_code")
RUNNING = ("engine", "workers", "scheduler", "force", "allow_empty")
SPEAKING = ("quiet", "log")


def module_name(text: str) -> str:
    """The value of `--allow-code`."""
    if not text or not all(part.isidentifier() for part in text.split(".")):
        raise argparse.ArgumentTypeError(f"{text!r} is no module name; write it as Python imports it: package.module")
    return text


SHARED: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "input": (
        ("--input", "-i"),
        {"nargs": "+", "action": "extend", "default": [], "metavar": "PATH", "help": INPUT_HELP},
    ),
    "output": (("--output", "-o"), {"required": True, "metavar": "DIR", "help": "folder of the run"}),
    "recipe": (
        ("--recipe",),
        {"default": "", "metavar": "RECIPE", "help": "the same as the word RECIPE", "dest": "recipe_option"},
    ),
    "text_column": (
        ("--text-column",),
        {"default": "", "metavar": "NAME", "help": "of every input (default: text, content, body, ...)"},
    ),
    "set": (
        ("--set",),
        {
            "action": "append", "default": [], "metavar": "PATH=VALUE",
            "help": "a setting of the recipe, such as stages.filter.words.min=100; may be repeated",
        },
    ),
    "stages": (("--stages",), {"default": "", "metavar": "A,B", "help": "these stages instead of the recipe's"}),
    "rules": (("--rules",), {"default": "", "metavar": "A,B", "help": "rule sets of the filter stage"}),
    "tokenizer": (
        ("--tokenizer",), {"default": "", "metavar": "NAME", "help": "gpt2, tokenizer.json, .model, hub:ORG/NAME"}
    ),
    "allow_code": (
        ("--allow-code",),
        {
            "action": "append", "default": [], "metavar": "MODULE", "type": module_name,
            "help": "module whose stages the recipe may name; it is imported; may be repeated",
        },
    ),
    "engine": (
        ("--engine",),
        {"choices": ENGINES, "default": "auto", "help": "what computes (default: auto, the GPU where it is usable)"},
    ),
    "workers": (
        ("--workers",),
        {"type": whole_number, "default": 0, "metavar": "N", "help": "tasks at once (default: as many as fit)"},
    ),
    "scheduler": (
        ("--scheduler",),
        {"default": "threads", "metavar": "S", "help": "threads, processes, or the address of a Dask scheduler"},
    ),
    "force": (("--force",), {"action": "store_true", "help": "delete what an earlier run left in DIR"}),
    "allow_empty": (
        ("--allow-empty",),
        {"action": "store_true", "help": f"exit with 0, not {NOTHING_KEPT}, where the run keeps no document"},
    ),
    "quiet": (("--quiet",), {"action": "store_true", "help": "print errors and warnings only"}),
    "log": (
        ("--log",),
        {"choices": LOGS, "noun": "form", "default": "", "help": "plain lines without bars, or JSON for programs"},
    ),
}  # fmt: skip


def share(parser: Parser, *names: str, **changed: Any) -> None:
    """Adds options of the table, in the order of `names`; `changed` settings are of the only one named."""
    for name in names:
        flags, settings = SHARED[name]
        add(parser, *flags, **settings | changed)


def add_recipe(parser: Parser) -> None:
    """A recipe, as a word of its own or behind `--recipe`, and all that changes it."""
    parser.add_argument("recipe", nargs="?", default="", metavar="RECIPE", help="YAML file or name (default: default)")
    share(parser, *RECIPE, "input", *READING)


def add_inputs(parser: Parser) -> None:
    """Inputs, as words of their own or behind `--input`."""
    parser.add_argument("paths", nargs="*", default=[], metavar="INPUT", help=INPUT_HELP)
    share(parser, "input", help="the same, or more of them")
    share(parser, *READING)


def inputs_of(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The inputs of a command that has `add_inputs`, as a recipe has them. UsageError where there is none."""
    found = inputs_in(options)
    if not found:
        raise UsageError(f"{options.command.name} --input is missing: give a file, a folder or a glob")
    return found


def inputs_in(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The same, which may be none."""
    return [{"path": path, "text_column": options.text_column} for path in (*options.paths, *options.input)]


def listed(names: str) -> list[str]:
    """What stands between commas."""
    return [name.strip() for name in names.split(",")]
