# SPDX-License-Identifier: Apache-2.0
"""Compares a recipe with the recipe of an earlier run."""

from __future__ import annotations

from typing import Any

import msgspec

from curation.recipes.recipe import Recipe
from curation.stages import STAGES
from curation.stages.own_code import as_json


def changed_keys(before: object, after: object, path: str = "") -> list[str]:
    """Return the paths at which two recipes (from `as_builtins`) differ. For two stages of different kinds, this is the
    path of the stage."""
    if isinstance(before, dict) and isinstance(after, dict) and before.get("kind") == after.get("kind"):
        keys = sorted({*before, *after})
        return [
            change
            for key in keys
            for change in changed_keys(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [change for k, (old, new) in pairs for change in changed_keys(old, new, f"{path}[{k}]")]
    return [] if before == after else [path or "recipe"]


def completed(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return the recipe of a report, completed with the defaults of settings that its version did not have.

    So if the default of a new setting changes results, the `revision` of its stage must be raised. Stages of other
    packages, and settings that this version does not know, are left as they are: no module is imported.
    """
    entries = [{"keep_blank": True} | entry for entry in recipe["input"]]  # as earlier versions read
    kinds = {field.name: field.type for field in msgspec.structs.fields(Recipe)}
    stages = [_completed(entry, STAGES.get(str(entry.get("kind")))) for entry in recipe["stages"]]
    rest = {name: _completed(value, kinds.get(name)) for name, value in (recipe | {"input": entries}).items()}
    return as_json(Recipe()) | rest | {"stages": stages}


def _completed(value: Any, kind: Any) -> Any:
    try:
        return value if kind is None else as_json(msgspec.convert(value, kind))
    except ValueError:  # msgspec's own errors too
        return value
