# SPDX-License-Identifier: Apache-2.0
"""Entries of a list that a text holds, in plain Python."""

import unicodedata2

from curation.rules.hosts import host_of


def runs_of(text: str) -> list[str]:
    """The runs of letters, their marks, and digits of a text, in lower case."""
    runs, inside = [""], False
    for character in text:
        is_mark = unicodedata2.category(character).startswith("M")
        inside = character.isalnum() or (inside and is_mark)
        if inside:
            lowered = {"İ": "i", "ς": "σ"}.get(character, character.lower())
            runs[-1] += "σ" if lowered == "ς" else lowered
        elif runs[-1]:
            runs.append("")
    return [run for run in runs if run]


def _domain(entry: str) -> str:
    return host_of(entry) or host_of(f"[{entry}]")


def holds(text: str | None, entry: str, way: str) -> bool:
    """Whether a text holds an entry of a list: a domain, a word or some in a row, a value, or a part."""
    text = text or ""
    if way == "value":
        return text == entry
    if way == "domain":
        host, entry = host_of(text), _domain(entry)
        is_name = ":" not in host and not host.rpartition(".")[2].isdigit()
        return host != "" and (host == entry or (is_name and host.endswith(f".{entry}")))
    runs, wanted = runs_of(text), runs_of(entry)
    if way == "part":
        return "".join(wanted) in "".join(runs)
    return any(runs[k : k + len(wanted)] == wanted for k in range(len(runs) - len(wanted) + 1))


def count(text: str | None, entries: list[str], way: str) -> int:
    """The number of different entries that a text holds."""
    different = {" ".join(runs_of(entry)) if way in ("word", "part") else entry: entry for entry in entries}
    if way == "part":
        different = {"".join(runs_of(entry)): entry for entry in entries}
    if way == "domain":
        different = {_domain(entry): entry for entry in entries}
    return sum(holds(text, entry, way) for entry in different.values())
