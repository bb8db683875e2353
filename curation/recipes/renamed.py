# SPDX-License-Identifier: Apache-2.0
"""Renamed keys of recipes: refused in a recipe, still read in the reports of finished runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

RECIPE = "recipe"


class Key(NamedTuple):
    """A key of a structure: `recipe` (the top level), `input`, `output`, or the kind of a stage."""

    structure: str
    name: str


RENAMED = {
    Key("output", "seed"): Key(RECIPE, "seed"),
    Key("fuzzy_dedup", "against"): Key("fuzzy_dedup", "index"),
    Key("decontaminate", "against"): Key("decontaminate", "evaluation_files"),
}


def renamed_keys(recipe: object) -> list[str]:
    """One sentence per old key in a recipe of dictionaries, with the new name."""
    return [
        f"{where}{'.' if where else ''}{old.name} is now {new.name}{'' if kept else ', at the top of the recipe'}"
        for where, content, structure in _structures(recipe)
        for old, new in RENAMED.items()
        if old.structure == structure and old.name in content
        for kept in [new.structure == structure]
    ]


def with_new_names(recipe: Any) -> Any:
    """The recipe of a report (dictionaries) with old keys renamed; any other value is returned unchanged."""
    copied = _copied(recipe)
    for _, content, structure in list(_structures(copied)):
        for old, new in RENAMED.items():
            if old.structure == structure and old.name in content:
                target = content if new.structure == structure else copied
                target.setdefault(new.name, content.pop(old.name))
    return copied


def _copied(value: Any) -> Any:
    """A copy of all dictionaries and lists; other values are shared."""
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    return [_copied(entry) for entry in value] if isinstance(value, list) else value


def _structures(recipe: object) -> Iterator[tuple[str, dict[str, Any], str]]:
    """(path in the recipe, content, structure name) of every structure."""
    if not isinstance(recipe, dict):
        return
    yield "", recipe, RECIPE
    if isinstance(recipe.get("output"), dict):
        yield "output", recipe["output"], "output"
    for field in ("input", "stages"):
        listed = recipe.get(field)
        for number, entry in enumerate(listed if isinstance(listed, list) else []):
            if isinstance(entry, dict):
                yield f"{field}[{number}]", entry, "input" if field == "input" else str(entry.get("kind"))
