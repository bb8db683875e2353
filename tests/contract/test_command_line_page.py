# SPDX-License-Identifier: Apache-2.0
"""`docs/command_line.md` has a line for every command, argument and option, as the parser has them."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from curation.cli.groups import GROUPS
from curation.cli.options import SHARED
from curation.cli.parsing import Command, Parser

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command_line.md"
COMMANDS = {command.name: command for group in GROUPS for command in group.commands}
SHARED_HELP = {flag: settings["help"] for flags, settings in SHARED.values() for flag in flags}
LATER = {"import"}


def arguments(command: Command) -> list[argparse.Action]:
    return [action for action in Parser(command).actions if "--help" not in action.option_strings]


def is_shared(action: argparse.Action) -> bool:
    """Whether the table of shared options has it, explained in the same words."""
    return any(SHARED_HELP.get(flag) == action.help for flag in action.option_strings)


def shown(action: argparse.Action) -> str:
    """As `--input, -i PATH...`, or `RECIPE`."""
    choices = f"{{{','.join(action.choices or ())}}}"
    value = "" if action.nargs == 0 else f" {action.metavar or choices}{'...' if action.nargs in ('+', '*') else ''}"
    return ", ".join(action.option_strings) + value if action.option_strings else value.strip()


def shared_lines() -> dict[str, str]:
    """The table of shared options: the first flag -> the line."""
    having: dict[str, list[tuple[str, argparse.Action]]] = {flags[0]: [] for flags, _ in SHARED.values()}
    for command in COMMANDS.values():
        for action in filter(is_shared, arguments(command)):
            having[action.option_strings[0]].append((command.name, action))
    return {
        flag: f"| `{shown(found[0][1])}` | {found[0][1].help} | {names_of([name for name, _ in found])} |"
        for flag, found in having.items()
        if found
    }


def names_of(commands: list[str]) -> str:
    """The names of commands, or of all others if these are fewer."""
    others = [name for name in COMMANDS if name not in commands]
    return ", ".join(commands) if len(commands) <= len(others) else f"all but {', '.join(others)}"


def command_lines(command: Command) -> Iterator[str]:
    yield f"{command.help[0].upper()}{command.help[1:]}."
    for action in arguments(command):
        if not is_shared(action):
            must = " (required)" if action.required and action.option_strings else ""
            yield f"- `{shown(action)}`: {action.help}{must}"


@pytest.fixture(scope="module")
def sections() -> dict[str, list[str]]:
    """The lines below each heading."""
    found: dict[str, list[str]] = {}
    for line in filter(None, PAGE.read_text("utf-8").splitlines()):
        if line.startswith("#"):
            found[line] = []
        else:
            found[[*found][-1]].append(line)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_has_every_argument_of_a_command(sections: dict[str, list[str]], name: str):
    assert sections.get(f"### curate {name}") == [*command_lines(COMMANDS[name])]


@pytest.mark.parametrize(("flag", "line"), shared_lines().items(), ids=[*shared_lines()])
def test_the_page_has_every_shared_option(sections: dict[str, list[str]], flag: str, line: str):
    assert [told for told in sections["## Shared options"] if re.match(rf"\| `{flag}[`, ]", told)] == [line]


def test_the_page_has_no_command_or_option_that_the_parser_lacks(sections: dict[str, list[str]]):
    assert [line.removeprefix("### curate ") for line in sections if line.startswith("### ")] == [*COMMANDS]
    options = [line for line in sections["## Shared options"] if line.startswith("| `")]
    assert options == [*shared_lines().values()]


def test_groups_are_headings_in_their_order(sections: dict[str, list[str]]):
    titles = [f"## {group.title}" for group in GROUPS]
    assert [heading for heading in sections if heading in titles] == titles


def test_no_later_command_is_announced():
    assert not LATER & {word for name in COMMANDS for word in name.split()}
