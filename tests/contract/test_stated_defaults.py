# SPDX-License-Identifier: Apache-2.0
"""Defaults of settings that pages state are those of the product, as `tests/golden/defaults.json` has them."""

import re
from collections import defaultdict
from typing import Any, NamedTuple

import pytest

from tests.contract.test_command_line_page import COMMANDS, arguments
from tests.contract.test_docs import FENCE, ROOT
from tests.scripts.make_defaults import read_golden

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "how_to").glob("*.md"))]
NUMBER, CODE = r"\d[\d,]*(?:\.\d+)?(?: [MG]B)?", r"`[^`]+`"
STATED = re.compile(
    rf"({CODE})(?: \(default\)|, the default| by default| is the default)"
    rf"|(?<![\w.])({NUMBER}) by default"
    rf"|[Dd]efault(?: of| is|:)?\s({NUMBER}|true|false|`--[^`]+`|`\w+: [^`]+`)"
    rf"|(?:[Dd]efault(?: of| is|:)|[Bb]y default|\(default)\s({CODE})|[Bb]y default \(({CODE})\)"
)
WITH_VALUE = re.compile(r"`.*?([a-z_]+)(?:: | )([^{}]+)}*`")  # `kind: value`, `--kind value`, `a: {kind: value}`
BLOCK = re.compile(r"^(?:\|.*\n?)+|^(?:(?!\|).+\n?)+", re.M)  # a table, or a paragraph
MADE: dict[str, dict[str, Any]] = {
    "threshold": {"fuzzy_dedup": 0.8, "semantic_dedup": 0.95}, "verify": {"fuzzy_dedup": "exact"},
    "keep": {"fuzzy_dedup": "first"}, "patterns": {"redact": "checked"}, "max_document_bytes": {"input": 100_000_000},
    "removed": {"output": "text"}, "engine": {"run": "auto"}, "append_eod": {"tokenizer": True},
}  # fmt: skip
UNITS = {"": 1, " MB": 10**6, " GB": 10**9}


class Statement(NamedTuple):
    """A stated default, and the true ones: of the owner named last before it, or of all that have the setting."""

    setting: str
    value: str
    defaults: dict[str, Any]


def settings() -> dict[str, dict[str, Any]]:
    """Setting -> its owner -> its default."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in read_golden()["defaults"].items():
        owner, _, setting = name.replace("input.files", "input").rpartition(".")
        if owner != "rule" and not isinstance(value, dict) and (setting, value) != ("words", ""):  # "": as the recipe
            found[setting][owner.rpartition(".")[2]] = value
    return found


def statements(text: str, known: dict[str, dict[str, Any]]) -> list[Statement]:
    found = []
    prose = FENCE.sub(lambda fence: re.sub(r"[^\n]", " ", fence[0]), text)
    for block in BLOCK.finditer(prose):
        for match in STATED.finditer(block[0]):
            value = next(filter(None, match.groups()))
            lines = block[0][: match.start()].split("\n")  # of a table the head, and the row
            before = lines[0] + lines[-1] if block[0][0] == "|" else "\n".join(lines)
            setting = (re.findall(r"`(\w+)(?:: [^`]*)?`", before) or [""])[-1]
            if whole := WITH_VALUE.fullmatch(value):
                setting, value = whole.groups()
            if owners := known.get(setting):
                before = text[: block.start() + match.start()]
                named = {owner: [*re.finditer(rf"(?:`|kind: |- ){owner}\b", before)] for owner in owners}
                last = max((at[-1].start() for at in named.values() if at), default=0)
                chosen = [owner for owner, at in named.items() if at and at[-1].start() == last] or [*owners]
                found.append(Statement(setting, value.strip("`"), {owner: owners[owner] for owner in chosen}))
    return found


def is_true(statement: Statement) -> bool:
    number = re.fullmatch(r"(\d[\d,]*(?:\.\d+)?)( [MG]B)?", statement.value)
    value = float(number[1].replace(",", "")) * UNITS[number[2] or ""] if number else statement.value.replace('"', "")
    shown = [str(each).lower() if isinstance(each, bool) else each for each in statement.defaults.values()]
    return value in [each.replace('"', "") if isinstance(each, str) else each for each in shown]


def test_help_states_the_defaults():
    """The page of commands has the texts of `--help`."""
    stated = [
        (command.name, action.option_strings, found[1], f"{action.default:{'g' * isinstance(action.default, float)}}")
        for command in COMMANDS.values()
        for action in arguments(command)
        if action.default and (found := re.search(rf"default: ({NUMBER}|\w+)\)", action.help or ""))
    ]
    assert [each for each in stated if each[2] != each[3]] == [] and len(stated) > 10


def test_pages_state_the_defaults():
    known = settings()
    found = [(page.name, each) for page in PAGES for each in statements(page.read_text("utf-8"), known)]
    assert [each for each in found if not is_true(each[1])] == [] and len(found) > 30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`fuzzy_dedup` and `semantic_dedup`: `threshold` is 0.8 by default.", [False]),
        ("`semantic_dedup` and `fuzzy_dedup`: `threshold` is 0.8 by default.", [True]),
        ("`fuzzy_dedup`\n\n| `threshold` | shares; the default of 0.85 keeps more |", [False]),
        ("`fuzzy_dedup`\n\nWith `verify: none`, the default, or `keep` (default `first`)", [False, True]),
        ("`redact`\n\n| `patterns` | is |\n| `shape` (default) | a |\n| `checked` (default) | |", [False, True]),
        ("`max_document_bytes` (default: 10 MB), `output: {removed: ids}`, the default", [False, False]),
        ("`--engine auto`, the default; `tokenizer: {name: gpt2}`; `append_eod` (default false)", [True, False]),
        ("`no_setting` (default 5), `threshold` is low by default, `unheard: of` (default)", []),
    ],
)  # fmt: skip
def test_a_wrong_statement_is_found(text: str, expected: list[bool]):
    assert [is_true(each) for each in statements(text, MADE)] == expected
