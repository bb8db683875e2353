# SPDX-License-Identifier: Apache-2.0
"""Completion of commands, options and their values in bash, zsh and fish, generated from the list of commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from curation.cli.parsing import Command, CommandGroup, Parser

FILES = {"DIR", "FILE", "INPUT", "PATH", "PREFIX", "RECIPE", "STEM"}  # metavars that mean paths
ENDLESS = ("+", "*")


class OptionValues(NamedTuple):
    """Values of an option or of a positional argument."""

    names: tuple[str, ...]
    files: bool  # whether paths of files are values too


class Completed(NamedTuple):
    """An option, in the form that a completion script needs."""

    flags: tuple[str, ...]
    values: OptionValues | None  # None: the option takes no value
    is_endless: bool  # whether the option takes several values
    help: str


def completion_script(shell: str, groups: Sequence[CommandGroup]) -> str:
    """Return the script with which a shell ("bash", "zsh" or "fish") completes `curate`."""
    commands = [command for group in groups for command in group.commands]
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands)


def _names() -> dict[str, Callable[[], Iterable[str]]]:
    """Return a function per argument that lists the values of this argument; keys are argparse's destinations."""
    from curation.base.measures import Measure
    from curation.recipes.recipe import shipped_recipes
    from curation.rules.decide import SET_NAMES
    from curation.stages import STAGES
    from curation.tokens.forms import OUTPUT_FORMATS

    return {
        "recipe": shipped_recipes,
        "recipe_option": shipped_recipes,
        "name": shipped_recipes,
        "formats": lambda: OUTPUT_FORMATS,
        "rules": lambda: SET_NAMES,
        "stages": lambda: STAGES,
        "names": lambda: (measure.name for measure in Measure),
        "scheduler": lambda: ("auto", "threads", "processes"),
    }


def _values(action: argparse.Action) -> OptionValues:
    named = _names().get(action.dest, tuple)()
    return OptionValues(tuple(action.choices or named), action.metavar in FILES or action.dest == "tokenizer")


def _options(command: Command) -> list[Completed]:
    actions = [action for action in Parser(command).actions if action.option_strings]
    return [
        Completed(
            tuple(action.option_strings),
            None if action.nargs == 0 else _values(action),
            action.nargs in ENDLESS,
            action.help or "",
        )
        for action in actions
    ]


def _words(command: Command) -> OptionValues:
    """Return the values of all positional arguments of a command."""
    arguments = [_values(action) for action in Parser(command).actions if not action.option_strings]
    return OptionValues(tuple(name for each in arguments for name in each.names), any(each.files for each in arguments))


def _cases(commands: Sequence[Command]) -> Iterator[str]:
    """Yield branches of a `case` over the command and the option before the cursor, in the syntax of bash and zsh."""
    for command in commands:
        for option in _options(command):
            if option.values:
                pattern = "|".join(f'"{command.name} {flag}"' for flag in option.flags)
                yield f"{pattern}) {_assignments(option.values)} ;;"
        flags = " ".join(flag for option in _options(command) for flag in option.flags)
        yield f'"{command.name} ") {_assignments(_words(command))} flags="{flags}" ;;'


def _assignments(values: OptionValues) -> str:
    return f'names="{" ".join(values.names)}" files="{"yes" if values.files else ""}"'


def _first_words(commands: Sequence[Command]) -> dict[str, list[str]]:
    """Return the first word of each command -> its second words, empty for commands of one word."""
    words: dict[str, list[str]] = {}
    for command in commands:
        first, *rest = command.name.split()
        words.setdefault(first, []).extend(rest)
    return words


def _function(commands: Sequence[Command]) -> str:
    """Return the text of a function for bash and zsh. From the words before the cursor, `$@`, it sets `names`, `files`
    and `flags`."""
    families = {first: rest for first, rest in _first_words(commands).items() if rest}
    options = [option for command in commands for option in _options(command)]
    switches = {flag for option in options if not option.values for flag in option.flags}
    endless = {flag for option in options if option.is_endless for flag in option.flags}
    family_cases = "\n".join(
        f'        {first}) if (( $# == 1 )); then names="{" ".join(rest)}"; return; fi; command="$1 $2"; shift ;;'
        for first, rest in families.items()
    )
    cases = "\n".join(f"        {case}" for case in _cases(commands))
    return f"""\
_curate_find() {{
    names="" files="" flags=""
    if (( $# == 0 )); then
        names="{" ".join(_first_words(commands))}" flags="--help --version"
        return
    fi
    local command="$1" option="" word
    case "$1" in
{family_cases}
    esac
    shift
    for word in "$@"; do
        case "$word" in
            {"|".join(sorted(switches))}|--*=*) option="" ;;
            -*) option="$word" ;;
            =) ;;
            *) case "$option" in {"|".join(sorted(endless))}) ;; *) option="" ;; esac ;;
        esac
    done
    case "$command $option" in
{cases}
    esac
    case "$option" in {"|".join(sorted(endless))}) files="yes" flags="-" ;; esac
}}
"""


def _bash(commands: Sequence[Command]) -> str:
    return f"""\
# Completion of curate in bash. Install: curate completion bash > ~/.local/share/bash-completion/completions/curate
{_function(commands)}
_curate() {{
    local names files flags current="${{COMP_WORDS[COMP_CWORD]}}"
    local -a words=("${{COMP_WORDS[@]:1:COMP_CWORD-1}}")
    [[ $current == "=" ]] && {{ words+=("="); current=""; }}
    _curate_find "${{words[@]}}"
    [[ $current == -* ]] && names="$flags" files=""
    COMPREPLY=()
    local match
    while IFS= read -r match; do COMPREPLY+=("$match"); done < <(compgen -W "$names" -- "$current")
    if [[ $files ]]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r match; do COMPREPLY+=("$match"); done < <(compgen -f -- "$current")
    fi
}}
complete -F _curate curate
"""


def _zsh(commands: Sequence[Command]) -> str:
    return f"""\
#compdef curate
# Completion of curate in zsh. Install: curate completion zsh > "${{fpath[1]}}/_curate"
{_function(commands)}
_curate() {{
    local names files flags
    _curate_find "${{(@)words[2,CURRENT-1]}}"
    if [[ ${{words[CURRENT]}} == -* ]]; then
        compadd -- ${{=flags}}
    else
        [[ -n $names ]] && compadd -- ${{=names}}
        [[ -n $files ]] && _files
    fi
    return 0
}}
if [[ $funcstack[1] == _curate ]]; then _curate "$@"; else compdef _curate curate; fi
"""


def _fish(commands: Sequence[Command]) -> str:
    firsts = _first_words(commands)
    lines = ["# Completion of curate in fish. Install: curate completion fish > ~/.config/fish/completions/curate.fish"]
    lines.append("complete -c curate -f")
    for first, rest in firsts.items():
        text = next((command.help for command in commands if command.name == first), f"{first} {', '.join(rest)}")
        lines.append(f"complete -c curate -n __fish_use_subcommand -a {first} -d {_quoted(text)}")
        if rest:
            is_second = f"__fish_seen_subcommand_from {first}; and not __fish_seen_subcommand_from {' '.join(rest)}"
            lines.append(f"complete -c curate -n {_quoted(is_second)} -a {_quoted(' '.join(rest))}")
    for command in commands:
        lines += _fish_lines(command)
    return "\n".join(lines) + "\n"


def _fish_lines(command: Command) -> Iterator[str]:
    when = _quoted("; and ".join(f"__fish_seen_subcommand_from {word}" for word in command.name.split()))
    start = f"complete -c curate -n {when}"
    words = _words(command)
    if words.files:
        yield f"{start} -F"
    if words.names:
        yield f"{start} -a {_quoted(' '.join(words.names))}"
    for option in _options(command):
        flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
        yield f"{start} {flags}{_fish_values(option.values)} -d {_quoted(option.help)}"


def _fish_values(values: OptionValues | None) -> str:
    if values is None:
        return ""
    names = f" -a {_quoted(' '.join(values.names))}" if values.names else ""
    return f" -r{' -F' if values.files else ' -f'}{names}"


def _quoted(text: str) -> str:
    """Return the text in single quotes, escaped for fish."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
