# SPDX-License-Identifier: Apache-2.0
"""Completion in real shells: bash and fish are asked, zsh checks the syntax."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from curation.cli.completion import completion_script
from curation.cli.groups import GROUPS
from curation.cli.parsing import Parser
from curation.recipes.recipe import shipped_recipes
from curation.tokens.forms import OUTPUT_FORMATS

COMMANDS = [command for group in GROUPS for command in group.commands]
FIRST = list(dict.fromkeys(command.name.split()[0] for command in COMMANDS))
ASKED: list[tuple[str, set[str]]] = [  # the last word is the one to complete
    ("", {*FIRST}),
    ("re", {"recipes"}),
    ("train ", {"tokenizer", "classifier", "lm"}),
    ("run --engine ", {"auto", "gpu", "cpu"}),
    ("run -i x.jsonl --engine g", {"gpu"}),
    ("run --log j", {"json"}),
    ("run --worke", {"--workers"}),
    ("run --force --al", {"--allow-code", "--allow-empty"}),
    ("tokenize x --formats ", {*OUTPUT_FORMATS}),
    ("recipes show ne", {"nemo", "news_wiki_web"}),
    ("completion ", {"bash", "zsh", "fish"}),
    ("train tokenizer --kind b", {"bpe"}),
    ("train tokenizer --voc", {"--vocabulary"}),
    ("verify --lo", {"--log"}),
]
WITH_FILES: list[tuple[str, set[str]]] = [
    ("run ", {*shipped_recipes(), "data.jsonl"}),
    ("run --output ", {"data.jsonl"}),
    ("run -i other.jsonl da", {"data.jsonl"}),
    ("run --recipe n", {"nemo", "news_wiki_web"}),
    ("init da", {"data.jsonl"}),
    ("measure --force da", {"data.jsonl"}),
]


def shell(name: str) -> str:
    found = shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed: apt-get install {name}")
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.jsonl").touch()
    return tmp_path


@cache  # 0.1 s
def made(name: str) -> str:
    return completion_script(name, GROUPS)


def script(name: str, folder: Path) -> Path:
    path = folder.parent / f"completion.{name}"
    path.write_text(made(name), "utf-8")
    return path


def ask_bash(folder: Path, words: list[str]) -> list[str]:
    """What bash's function leaves in COMPREPLY for `curate` and these words."""
    asked = f"""
source {script("bash", folder)}
complete -p curate >&2
COMP_WORDS=(curate "$@") COMP_CWORD=$#
_curate
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        [shell("bash"), "-c", asked, "bash", *words], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stderr == "complete -F _curate curate\n"
    return done.stdout.split()


def line_of(value: object) -> str:
    """The name of a case: sets are in another order in each process."""
    return value if isinstance(value, str) else "..."


@pytest.mark.parametrize(("line", "expected"), ASKED + WITH_FILES, ids=line_of)
def test_bash_completes(folder: Path, line: str, expected: set[str]):
    found = ask_bash(folder, line.split(" "))
    assert {*found} == expected and len(found) == len(expected)


def test_bash_completes_behind_an_equals_sign(folder: Path):
    assert ask_bash(folder, ["run", "--engine", "=", "c"]) == ["cpu"]  # as it splits words
    assert {*ask_bash(folder, ["run", "--engine", "="])} == {"auto", "gpu", "cpu"}


@pytest.mark.parametrize("command", COMMANDS, ids=[command.name for command in COMMANDS])
def test_bash_completes_every_option_of_every_command(folder: Path, command: object):
    flags = {flag for action in Parser(command).actions for flag in action.option_strings}
    assert {*ask_bash(folder, [*command.name.split(), "-"])} == flags


@pytest.mark.parametrize(("line", "expected"), ASKED, ids=line_of)
def test_fish_completes(folder: Path, line: str, expected: set[str]):
    asked = f"source {script('fish', folder)}; complete -C 'curate {line}'"
    command = [shell("fish"), "--no-config", "-c", asked]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    found = {entry.split("\t")[0] for entry in done.stdout.splitlines()}
    assert (found, done.stderr) == (expected, "")


@pytest.mark.parametrize(("name", "option"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_scripts_have_the_syntax_of_their_shell(folder: Path, name: str, option: str):
    done = subprocess.run([shell(name), option, script(name, folder)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


ZSH = """
autoload -U compinit; compinit -u -D
source {script}
compadd() {{ shift; print -l -- "$@" }}
_files() {{ print FILES }}
words=(curate "$@") CURRENT=$(( $# + 1 ))
_curate
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run --engine ", {"auto", "gpu", "cpu"}),
        ("run ", {*shipped_recipes(), "FILES"}),
        ("run -i a b", {"FILES"}),
        ("train ", {"tokenizer", "classifier", "lm"}),
        ("", {*FIRST}),
    ],
    ids=line_of,
)
def test_zsh_is_given_the_words(folder: Path, line: str, expected: set[str]):
    command = [shell("zsh"), "-f", "-c", ZSH.format(script=script("zsh", folder)), "zsh", *line.split(" ")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ({*done.stdout.split()}, done.stderr) == (expected, "")
