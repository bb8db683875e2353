# SPDX-License-Identifier: Apache-2.0
"""Functions for stages with rules about the lists that the rules name: their files, stored entries, and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from curation.base.errors import counted
from curation.rules.grammar import Rule
from curation.rules.list_files import MAX_SHOWN
from curation.rules.listed import Listed, digest_of, entries_of, notes_of, store


def check_lists(rules: Iterable[Rule], words: str) -> None:
    """Read the lists of rules. In this module, `words` is the setting of the stage. Raises InputError if a list cannot
    be read or has no entries."""
    for listed, own in lists_in(rules, words):
        entries_of(listed, own)


def lists_in(rules: Iterable[Rule], words: str = "") -> list[tuple[Listed, str]]:
    """Return the lists in files that rules name, also inside `any`, each once. Each list comes with how its rule
    divides texts into words (the setting `words`)."""
    found = ((part.listed, _words_of(part, words)) for rule in rules for part in rule.parts)
    return list(dict.fromkeys((listed, own) for listed, own in found if listed is not None and listed.file))


def _words_of(rule: Rule, words: str) -> str:
    return words if rule.counts_words else ""


def list_kernels(rules: Iterable[Rule]) -> tuple[str, ...]:
    """Return the groups of kernels that rules on lists need."""
    return ("lists",) if any(part.listed is not None for rule in rules for part in rule.parts) else ()


def list_files(rules: Iterable[Rule]) -> dict[str, str]:
    """Return path -> SHA-256 of the files of lists. Raises InputError if a file is missing."""
    return {listed.file: digest_of(listed) for listed, _ in lists_in(rules)}


def with_stored_lists(rules: Iterable[str | Rule], folder: Path, words: str) -> Iterator[str | Rule]:
    """Yield the entries of `rules`, with each list stored in a file of `folder`, which all processes of a machine
    memory-map."""
    for rule in rules:
        if isinstance(rule, str):
            yield rule
        elif rule.rules:
            groups = {
                value: entries if isinstance(entries, str) else [*with_stored_lists(entries, folder, words)]
                for value, entries in rule.rules.items()
            }
            yield msgspec.structs.replace(rule, rules=groups)
        elif rule.any_:
            yield msgspec.structs.replace(rule, any_=tuple(with_stored_lists(rule.any_, folder, words)))
        else:
            yield (
                rule
                if rule.listed is None or rule.listed.words
                else msgspec.structs.replace(rule, listed=store(rule.listed, folder, _words_of(rule, words)))
            )


def sizes_of(rules: Iterable[Rule], words: str) -> list[str]:
    """Return a readable line with the number of entries for each list."""
    return [f"{listed.describe()}: {_entries(notes_of(listed, own).entries)}" for listed, own in lists_in(rules, words)]


def list_warnings(rules: Iterable[Rule], words: str) -> list[str]:
    """Return the warnings about lines that are no entries, and about domains of one label."""
    found = ((listed, own) for listed, own in lists_in(rules, words) if Path(listed.file).is_file())
    return [line for listed, own in found for line in _doubts(listed, own)]


def _doubts(listed: Listed, words: str) -> Iterator[str]:
    notes = notes_of(listed, words)
    if notes.bad:
        shown = "; ".join(notes.first_bad) + _more(notes.bad)
        yield f"{listed.describe()}: {counted(notes.bad, 'line')} without an entry: {shown}"
    if notes.single:
        names = ", ".join(notes.first_single) + _more(notes.single)
        yield f"{listed.describe()}: {_entries(notes.single)} of one label, which lists all hosts below it: {names}"


def _entries(number: int) -> str:
    return "1 entry" if number == 1 else f"{number:,} entries"


def _more(number: int) -> str:
    return ", ..." if number > MAX_SHOWN else ""
