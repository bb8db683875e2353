# SPDX-License-Identifier: Apache-2.0
"""Words of a command line to options. Every mistake is one message, with the nearest name where there is one."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from curation.errors import CurationError, nearest

NEGATIVE = re.compile(r"-\d+$|-\d*\.\d+$")  # a value, as argparse has it
NAME_WIDTH = 18
HELP = ("-h", "--help")
REQUIRED = "the following arguments are required"  # what argparse says


class UsageError(CurationError):
    """The command line names something that there is not, or lacks something that there must be."""


class Command(NamedTuple):
    """A command, and what it says of itself."""

    name: str  # one word, or two: `train tokenizer`
    help: str
    add_options: Callable[[Parser], None]
    function: Callable[[argparse.Namespace], int]
    aliases: tuple[str, ...] = ()  # earlier names, which no help shows
    resumes: bool = False  # whether the same command goes on after an interruption


class Group(NamedTuple):
    """Commands that the help shows together."""

    title: str
    commands: Sequence[Command]


class Parser(argparse.ArgumentParser):
    """Options of one command. Names are not abbreviated, so that a new option breaks no script."""

    def __init__(self, command: Command) -> None:
        super().__init__(prog=f"curate {command.name}", description=_sentence(command.help), allow_abbrev=False)
        self.command = command
        command.add_options(self)

    @property
    def actions(self) -> list[argparse.Action]:
        """All arguments, in order. argparse has no public name for them."""
        return self._actions

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """The options of a command line without the command. UsageError."""
        self._check_flags(words)
        options, extra = self.parse_known_intermixed_args(words)
        if extra:
            raise UsageError(f"{self.command.name} takes no {' '.join(map(repr, extra))}; see {self.prog} --help")
        options.command = self.command
        return options

    def _check_flags(self, words: Sequence[str]) -> None:
        """UsageError for an unknown option, before argparse misses another one."""
        known = [flag for action in self.actions for flag in action.option_strings]
        for word in words:
            if word == "--":
                return
            if not word.startswith("-") or word == "-" or NEGATIVE.match(word) or " " in word:
                continue
            flag = word.partition("=")[0]
            if flag not in known and (flag.startswith("--") or flag[:2] not in known):
                raise UsageError(f"{self.command.name} has no option {flag}{_near_or_help(flag, known, self.prog)}")

    def error(self, message: str) -> NoReturn:
        """Replaces what argparse prints: `argument --workers: ...`, or `argument shell: ...` of a word."""
        name, _, told = message.removeprefix("argument ").partition(": ")
        if name == REQUIRED:
            told = f": {told} is missing"
        elif name.startswith("-"):
            told = f" {name}: {told}"
        else:
            told = f": {told or name}"
        hint = "" if told.endswith("?") else f"; see {self.prog} --help"
        raise UsageError(f"{self.command.name}{told}{hint}")


def _one_of(noun: str, names: Sequence[str], default: str) -> Callable[[str], str]:
    """A function that checks a value against the choices of an argument, and suggests the nearest one."""

    def check(text: str) -> str:
        if text not in (*names, default):
            raise argparse.ArgumentTypeError(f"no {noun} {text!r}{nearest(text, names)}")
        return text

    return check


def whole_number(text: str) -> int:
    """The value of an option that counts."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, not {text!r}") from None


def parse(words: Sequence[str], groups: Sequence[Group]) -> argparse.Namespace:
    """The options of a command line. UsageError for a command that there is not."""
    commands = {name: command for group in groups for command in group.commands for name in _names(command)}
    for count in (2, 1):
        if command := commands.get(" ".join(words[:count])):
            return Parser(command).parse(words[count:])
    shown = [command.name for group in groups for command in group.commands]
    first = words[0]
    if family := _family(first, groups):
        raise UsageError(f"{first} needs one of: {', '.join(family)}" if len(words) == 1 else _unknown(words, family))
    if first.startswith("-"):
        raise UsageError(f"options follow the command: curate COMMAND {first.partition('=')[0]}; see curate --help")
    raise UsageError(f"no command {first!r}{_near_or_help(first, shown, 'curate')}")


def is_family(word: str, groups: Sequence[Group]) -> bool:
    """Whether commands of two words begin with a word."""
    return bool(_family(word, groups))


def _family(word: str, groups: Sequence[Group]) -> list[str]:
    names = [command.name.split() for group in groups for command in group.commands]
    return [rest[0] for first, *rest in names if rest and first == word]


def _unknown(words: Sequence[str], family: Sequence[str]) -> str:
    return f"no command '{words[0]} {words[1]}'{nearest(words[1], family)}"


def _names(command: Command) -> tuple[str, ...]:
    return (command.name, *command.aliases)


def _near_or_help(name: str, names: Sequence[str], program: str) -> str:
    longer = [known for known in names if known.startswith(name)]
    hint = nearest(name, longer or names)
    return hint if hint.startswith("; did") else f"; see {program} --help"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def help_text(groups: Sequence[Group], description: str, epilog: str, width: int) -> str:
    """What `curate --help` prints: the commands in their groups."""
    blocks = ["usage: curate COMMAND ...    (curate COMMAND --help: its options)", *textwrap.wrap(description, width)]
    for group in groups:
        blocks.append("\n".join([f"{group.title}:", *(_help_line(command, width) for command in group.commands)]))
    blocks.append(textwrap.fill(epilog, width))
    return "\n\n".join(blocks)


def _help_line(command: Command, width: int) -> str:
    indent = f"    {command.name:<{NAME_WIDTH}}"
    return textwrap.fill(command.help, max(width, 40), initial_indent=indent, subsequent_indent=" " * len(indent))


def add(parser: Any, *flags: str, **settings: Any) -> None:
    """As `add_argument`; an argument with `choices` says which of them is near, as the `noun` that they are."""
    if "choices" in settings:
        noun = settings.pop("noun", flags[0].lstrip("-"))
        settings["type"] = _one_of(noun, settings["choices"], settings.get("default", ""))
    parser.add_argument(*flags, **settings)
