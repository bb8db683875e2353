# SPDX-License-Identifier: Apache-2.0
"""The entries of a configuration of another tool, and their translation.

The table of each tool maps a name, such as `WordCountFilter`, to a function from the settings of the entry to a
`Translation`. A setting that no function asked for is reported, so nothing is lost without a line about it.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import yaml

from curation.base.measures import highest_ratio
from curation.reading.urls import shown as without_secrets
from curation.recipes.recipe import shipped_recipes
from curation.recipes.rule_settings import subject_of
from curation.rules.decide import RULE_SETS

MAX_SHOWN = 100  # characters of a value
WHEN = "when"


class Unread(NamedTuple):
    """A value that only a run of the other tool would know, such as an argument of a script."""

    text: str


class Made(dict[str, Any]):
    """The settings of a call in a script, such as `MinhashConfig(n_grams=5)`.

    name         name of the class or function that is called
    positional   the positional values
    line number in the script
    """

    def __init__(self, name: str, settings: Mapping[str, Any], positional: list[Any], line: int) -> None:
        super().__init__(settings)
        self.name, self.positional, self.line = name, positional, line

    def __str__(self) -> str:
        return f"{self.name}(...)"


class Entry(NamedTuple):
    """A step of another tool: its name, its place in the file, and its settings."""

    name: str
    place: str
    settings: Mapping[str, Any]


class Translation(NamedTuple):
    """The translation of an entry: parts of a recipe.

    steps       stages (with `kind`) and rules (without), in their order
    inputs      inputs to read
    of_inputs   settings of all inputs
    output, tokenizer   settings of these parts of the recipe
    differs     differences from the other tool
    """

    steps: tuple[Any, ...] = ()
    inputs: tuple[dict[str, Any], ...] = ()
    of_inputs: Mapping[str, Any] = {}  # never changed
    output: Mapping[str, Any] = {}
    tokenizer: Mapping[str, Any] = {}
    differs: str = ""


class NotTranslated(Exception):  # noqa: N818  # it ends one entry, not the command
    """An entry without a counterpart; the text names the closest feature."""


# Reason -> (setting, or "Entry.setting" -> values with which it changes no document; (): any value)
Void = Mapping[str, Mapping[str, tuple[Any, ...]]]


class Settings:
    """The settings of an entry. The object records which settings a function has asked for."""

    def __init__(self, values: Mapping[str, Any], owner: str = "") -> None:
        self.values, self.owner = values, owner
        self.asked: set[str] = set()
        self.inner: list[Settings] = []

    def within(self, name: str, owner: str) -> Settings:
        """Return the mapping in a setting as settings of `owner`. Raises NotTranslated for a value that is no
        mapping."""
        found = self.values.get(name)
        if isinstance(found, Unread) or not (found is None or isinstance(found, Mapping)):
            raise NotTranslated(f"{name} is {shown(found)}, expected {owner}(...) or a mapping in the file")
        self.asked.add(name)
        self.inner.append(Settings(found or {}, owner))
        return self.inner[-1]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a setting; without one, its default in the other tool. Raises NotTranslated for a value
        that only a run of the other tool would know."""
        value = self.values.get(name, default)
        if isinstance(value, Unread | Made):
            raise NotTranslated(
                f"{name} is {shown(value)}, and only values in the file are read: write it there, or here"
            )
        self.asked.add(name)
        return value

    def number(self, name: str, default: Any = None) -> float | None:
        """Return a number; None for a bound that is switched off, or that everything satisfies."""
        value = self.get(name, default)
        if isinstance(value, str):
            with suppress(ValueError):
                value = float(value)  # YAML 1.1 reads 1e-3 as text
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise NotTranslated(f"{name} is {shown(value)}, expected a number")
        return None if math.isnan(value) or abs(value) >= sys.maxsize else value

    def choice(self, name: str, *values: Any, default: Any) -> Any:
        """Return a setting that may have only these values."""
        value = self.get(name, default)
        if value not in values:
            raise NotTranslated(f"{name}: {shown(value)} has no counterpart; here it is as {shown(values[0])}")
        return value

    def given(self) -> str:
        """Return the settings that a function has asked for and the file gives, as text for a comment."""
        asked = {
            name: value
            for name, value in self.values.items()
            if value is not None and name in self.asked and not isinstance(value, Mapping)
        }
        return ", ".join(
            [*(f"{name} {shown(value)}" for name, value in asked.items()), *(s.given() for s in self.inner)]
        )

    def unasked(self, void: Void) -> list[str]:
        """Return the settings in the file that no function asked for. Settings in `void`, which change no document, are
        left out."""
        known = {name: values for listed in void.values() for name, values in listed.items()}

        def is_void(name: str) -> bool:
            values = known.get(f"{self.owner}.{name}", known.get(name))
            return values is not None and (not values or self.values[name] in values)

        found = [name for name, value in self.values.items() if name not in self.asked and value is not None]
        return [
            *(name for name in found if not is_void(name)),
            *(name for inner in self.inner for name in inner.unasked(void)),
        ]


Translator = Callable[[Settings], Translation]


def shown(value: Any) -> str:
    """Return a value as readable text on one line, without passwords of URLs."""
    text = value.text if isinstance(value, Unread) else str(value)
    text = without_secrets(text) if "://" in text else text
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


# Bounds


class TheirBound(NamedTuple):
    """A bound of a rule: the value of the setting `name` in the other tool, or 1 minus this value."""

    name: str
    default: float | None = None
    is_rest: bool = False


def rest(name: str, default: float) -> TheirBound:
    """Return a bound that is 1 minus the number in an entry."""
    return TheirBound(name, default, is_rest=True)


def _bound_of(settings: Settings, value: TheirBound | None) -> float | None:
    number = settings.number(value.name, value.default) if value else None
    return round(1 - number, 12) if number is not None and value and value.is_rest else number


def rule_with(subject: str | Mapping[str, Any], low: float | None, high: float | None) -> tuple[dict[str, Any], ...]:
    """Return the rule on a measure, a ratio `a/b` or another subject; nothing if every document satisfies it."""
    about = subject_of(subject) if isinstance(subject, str) else dict(subject)
    highest = highest_ratio(*about["ratio"]) if "ratio" in about else math.inf
    found = {"min": low} if low is not None and low > 0 else {}
    found |= {"max": high} if high is not None and high < highest else {}
    return (about | found,) if found else ()


def as_in(rule_set: str, reason: str) -> dict[str, Any]:
    """Return the subject of a rule in a shipped rule set that follows the other tool."""
    [rule] = [rule for rule in RULE_SETS[rule_set] if rule.name == reason]
    if rule.matches:
        return {"matches": rule.matches, "per": rule.per}
    return {"ratio": [*rule.ratio]} if rule.ratio else {"measure": rule.measure}


def bounds(
    subject: str | Mapping[str, Any], min: TheirBound | None = None, max: TheirBound | None = None
) -> Translator:
    """Return the translation of a filter with a lower and an upper bound."""

    def translate(settings: Settings) -> Translation:
        return Translation(rule_with(subject, _bound_of(settings, min), _bound_of(settings, max)))

    return translate


# Other parts


def nearest(text: str) -> Translator:
    """An entry without a counterpart."""

    def translate(settings: Settings) -> Translation:
        raise NotTranslated(text)

    return translate


def always(*steps: Any, differs: str = "", **parts: Any) -> Translator:
    """Return a translation that does not depend on the settings of the entry. Its settings are listed as not
    translated."""

    def translate(settings: Settings) -> Translation:
        return Translation(steps, differs=differs, **parts)

    return translate


def replace(pattern: str, by: str = "") -> dict[str, Any]:
    """Return a `rewrite` stage with one replacement by a regular expression."""
    return {"kind": "rewrite", "replace": [{"matches": pattern, "by": by}]}


def literal(text: str) -> str:
    """Return a pattern of RE2 that matches exactly this text."""
    return re.sub(r"([^\w\s]|\\)", r"\\\1", text, flags=re.ASCII) if text.isascii() else re.escape(text)


@cache
def _shipped(name: str) -> list[Any]:
    return list(yaml.safe_load(shipped_recipes()[name])["stages"])


def shipped(recipe: str, stage: str) -> dict[str, Any]:
    """Return the stage named `stage` of a shipped recipe, which follows the same tool."""
    [found] = [entry for entry in _shipped(recipe) if isinstance(entry, dict) and entry.get("name") == stage]
    return dict(found)


def tokenizer_name(name: str) -> str:
    """Return the name of a tokenizer in a recipe: a path or an encoding unchanged, ORG/NAME as a name on the Hub."""
    is_of_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not name.endswith((".json", ".model"))
    return f"hub:{name}" if is_of_hub else name


def needs(*paths: str) -> str:
    """Return a note for a stage with `when`: the stage is left out until the user gives the settings at `paths`."""
    return f"left out until you give your file: --set {' --set '.join(f'{path}=...' for path in paths)}"


def as_list(value: Any) -> list[Any]:
    """Return a list for a setting that may be absent, one value, or several."""
    return [] if value is None else list(value) if isinstance(value, list | tuple | set) else [value]


def texts(settings: Settings, name: str, default: Any = None) -> list[str]:
    """Return the strings of a setting. Raises NotTranslated if a value is no string."""
    values = as_list(settings.get(name, default))
    if wrong := [value for value in values if not isinstance(value, str)]:
        raise NotTranslated(f"{name} has {shown(wrong[0])}, expected text")
    return values
