# SPDX-License-Identifier: Apache-2.0
"""Settings of a recipe as text, `PATH=VALUE`, until `curation.settings` has them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from curation.errors import RecipeError

if TYPE_CHECKING:
    from curation.recipe import Recipe


def stages_setting(text: str) -> str:
    return f"stages=[{', '.join(f'{{kind: {kind.strip()}}}' for kind in text.split(','))}]"


def rules_setting(text: str) -> str:
    return f"stages.filter.rules=[{text}]"


def apply_settings(content: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    import yaml

    content = copy.deepcopy(content)
    for setting in settings:
        path, mark, value = setting.partition("=")
        if not mark or not path:
            raise RecipeError(f"--set {setting}: expected PATH=VALUE, such as output.shuffle=true")
        _put(content, path.split("."), yaml.safe_load(value), path)
    return content


def _put(content: Any, keys: list[str], value: Any, path: str) -> None:
    for key in keys[:-1]:
        content = content.setdefault(key, {}) if isinstance(content, dict) else _entry(content, key, path)
    if not isinstance(content, dict):
        raise RecipeError(f"--set {path}: there is no such setting")
    content[keys[-1]] = value


def _entry(content: Any, key: str, path: str) -> Any:
    for entry in content if isinstance(content, list) else []:
        if isinstance(entry, dict) and key in (entry.get("kind"), entry.get("name")):
            return entry
    raise RecipeError(f"--set {path}: there is no {key!r}")


def load_recipe(name: str, inputs: Any = None, *, settings: Sequence[str] = ()) -> Recipe:
    from curation.recipe import as_builtins, convert_recipe
    from curation.recipe import load_recipe as load

    recipe = load(name, inputs)
    return convert_recipe(apply_settings(as_builtins(recipe), settings), name) if settings else recipe
