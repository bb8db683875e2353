# SPDX-License-Identifier: Apache-2.0
"""Lines for people on a terminal."""

import io

import pytest

from curation.system.terminal import fitted

LONG = "documents that were removed for a reason and its https://example.org/" + "a" * 40


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [10, 40, 80])
def test_lines_break_between_words_on_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = fitted(LONG, Terminal()).splitlines()
    assert " ".join(map(str.strip, lines)) == LONG and len(lines) > 1
    assert all(len(line) <= columns or " " not in line.strip() for line in lines)


def test_pipes_tables_and_commands_keep_their_lines(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert fitted(LONG, io.StringIO()) == LONG
    for line in ("      curate show DIR --reason too_few_words", "name      12,345   99.00%"):
        assert fitted(line, Terminal()) == line
