# SPDX-License-Identifier: Apache-2.0
"""Parses command lines. Every mistake gives one message, with the closest valid name if there is one."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from curation.base.errors import CurationError, nearest

NEGATIVE = re.compile(r"-\d+$|-\d*\.\d+$")  # argparse takes such a word as a value, not as an option
NAME_WIDTH = 18
HELP = ("-h", "--help")
REQUIRED = "the following arguments are required"  # a message of argparse
EMPTY = "expected a value, not an empty text. Is a variable of your script not set?"


class UsageError(CurationError):
    """The command line names an unknown command, option or value, or lacks a required one."""


class Command(NamedTuple):
    """A command: its name, its help, its options and its function."""

    name: str  # one word, or two: `train tokenizer`
    help: str
    add_options: Callable[[Parser], None]
    function: Callable[[argparse.Namespace], int]
    aliases: tuple[str, ...] = ()  # earlier names; the help omits them
    resumes: bool = False  # whether the same command resumes after an interruption


class CommandGroup(NamedTuple):
    """Commands that the help lists under one title."""

    title: str
    commands: Sequence[Command]


class Parser(argparse.ArgumentParser):
    """Parser of one command. Option names cannot be abbreviated, so a new option breaks no script."""

    def __init__(self, command: Command) -> None:
        super().__init__(prog=f"curate {command.name}", description=_sentence(command.help), allow_abbrev=False)
        self.command = command
        command.add_options(self)

    @property
    def actions(self) -> list[argparse.Action]:
        """All arguments, in order of definition. argparse has no public name for them."""
        return self._actions

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the options of a command line from which the command is removed. Raises UsageError."""
        self._check_flags(words)
        options, extra = self.parse_known_intermixed_args(words)
        if extra:
            named = " ".join(map(repr, extra))
            takes_inputs = any("--input" in action.option_strings for action in self.actions) and not any(
                word.endswith((".yaml", ".yml")) for word in extra
            )
            hint = "give inputs with --input" if takes_inputs else f"see {self.prog} --help"
            raise UsageError(f"{self.command.name}: unexpected {named}; {hint}")
        options.command = self.command
        return options

    def _check_flags(self, words: Sequence[str]) -> None:
        """Raise UsageError for an unknown option, before argparse reports a missing one instead."""
        known = [flag for action in self.actions for flag in action.option_strings]
        for word in words:
            if word == "--":
                return
            if not word.startswith("-") or word == "-" or NEGATIVE.match(word) or " " in word:
                continue
            flag = word.partition("=")[0]
            longer = [own for own in known if own.startswith(f"-{flag}") and flag not in known]
            if longer and not flag.startswith("--"):  # argparse reads `-out` as `-o ut`
                short = f", or {flag[:2]} with a space after it" if flag[:2] in known else ""
                raise UsageError(
                    f"{self.command.name} has no option {flag}; did you mean {' or '.join(longer)}{short}?"
                )
            if flag not in known and (flag.startswith("--") or flag[:2] not in known):
                raise UsageError(f"{self.command.name} has no option {flag}{_near_or_help(flag, known, self.prog)}")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuse an empty value, which would count as not given. Such a value usually comes from a variable of a script
        that is not set."""
        if "" in arg_strings:
            name = "" if action.option_strings else f"{action.metavar or action.dest}: "
            raise argparse.ArgumentError(action, f"{name}{EMPTY}")
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of argparse's messages `argument --workers: ...` and `argument shell: ...`."""
        name, _, detail = message.removeprefix("argument ").partition(": ")
        if name == REQUIRED:
            detail = f": {detail} is missing"
        elif name.startswith("-"):
            detail = f" {name}: {detail}"
        else:
            detail = f": {detail or name}"
        hint = "" if detail.endswith("?") else f"; see {self.prog} --help"
        raise UsageError(f"{self.command.name}{detail}{hint}")


def _one_of(noun: str, names: Sequence[str], default: str) -> Callable[[str], str]:
    """Return a function that checks a value against the choices of an argument and suggests the nearest one."""

    def check(text: str) -> str:
        if text not in (*names, default):
            raise argparse.ArgumentTypeError(f"unknown {noun} {text!r}{nearest(text, names)}")
        return text

    return check


def whole_number(text: str) -> int:
    """Return `text` as an integer; argparse reports other text."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, not {text!r}") from None


def number_of_seconds(text: str) -> float:
    """Return `text` as a number of seconds; argparse reports other text."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected seconds, such as 60, not {text!r}") from None


def parse(words: Sequence[str], groups: Sequence[CommandGroup]) -> argparse.Namespace:
    """Return the options of a command line. Raises UsageError for an unknown command, option or value."""
    commands = {name: command for group in groups for command in group.commands for name in _names(command)}
    for count in (2, 1):
        if command := commands.get(" ".join(words[:count])):
            return Parser(command).parse(words[count:])
    shown = [command.name for group in groups for command in group.commands]
    first = words[0]
    if family := _family(first, groups):
        raise UsageError(f"{first} needs one of: {', '.join(family)}" if len(words) == 1 else _unknown(words, family))
    if first.startswith("-"):
        raise UsageError(f"put options after the command: curate COMMAND {first.partition('=')[0]}; see curate --help")
    raise UsageError(f"unknown command {first!r}{_near_or_help(first, shown, 'curate')}")


def is_family(word: str, groups: Sequence[CommandGroup]) -> bool:
    """Return whether commands of two words begin with `word`."""
    return bool(_family(word, groups))


def _family(word: str, groups: Sequence[CommandGroup]) -> list[str]:
    names = [command.name.split() for group in groups for command in group.commands]
    return [rest[0] for first, *rest in names if rest and first == word]


def _unknown(words: Sequence[str], family: Sequence[str]) -> str:
    return f"unknown command '{words[0]} {words[1]}'{nearest(words[1], family)}"


def _names(command: Command) -> tuple[str, ...]:
    return (command.name, *command.aliases)


def _near_or_help(name: str, names: Sequence[str], program: str) -> str:
    longer = [known for known in names if known.startswith(name)]
    hint = nearest(name, longer or names)
    return hint if hint.startswith("; did") else f"; see {program} --help"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def help_text(groups: Sequence[CommandGroup], description: str, epilog: str, width: int) -> str:
    """Return the text of `curate --help`, wrapped at `width` characters: the commands by group."""
    blocks = ["usage: curate COMMAND ...    (options: curate COMMAND --help)", *textwrap.wrap(description, width)]
    for group in groups:
        blocks.append("\n".join([f"{group.title}:", *(_help_line(command, width) for command in group.commands)]))
    blocks.append(textwrap.fill(epilog, width))
    return "\n\n".join(blocks)


def _help_line(command: Command, width: int) -> str:
    indent = f"    {command.name:<{NAME_WIDTH}}"
    return textwrap.fill(command.help, max(width, 40), initial_indent=indent, subsequent_indent=" " * len(indent))


def add(parser: Any, *flags: str, **settings: Any) -> None:
    """Add an argument as `add_argument` does; the error for a value outside `choices` names the nearest one.

    `noun` names a choice in that error (default: the name of the argument).
    """
    if "choices" in settings:
        noun = settings.pop("noun", flags[0].lstrip("-"))
        settings["type"] = _one_of(noun, settings["choices"], settings.get("default", ""))
    parser.add_argument(*flags, **settings)
