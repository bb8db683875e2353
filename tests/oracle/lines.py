# SPDX-License-Identifier: Apache-2.0
"""The stage `lines` in plain Python: the settings of a recipe, applied unit by unit."""

import re
from collections import Counter
from functools import lru_cache
from typing import Any, NamedTuple

from tests.oracle.measures import measure_document
from tests.oracle.units import units_of

measured = lru_cache(None)(measure_document)
INFINITE = float("inf")


class Edited(NamedTuple):
    """A text after the stage: None and the reason if its document is removed; units and characters cut by rule."""

    text: str | None
    reason: str
    units: Counter
    characters: Counter


def lines_of(
    text: str, rules: list[dict[str, Any]], unit: str = "line", strip: bool = False,
    max_removed: dict[str, float] | None = None, cut: bool = True,
) -> Edited:  # fmt: skip
    """`rules` have a `name`, and `measure`, `ratio` or `matches`, written out as a run stores them."""
    units = units_of(text, unit)
    contents = [content.strip() if strip else content for _, content, _ in units]
    broken = [_first_broken(contents, number, rules) for number in range(len(units))]
    removing = [rule["name"] for rule in broken if rule and rule.get("removes")]
    if removing:
        return Edited(None, removing[0], Counter(), Counter())
    for name, share in (max_removed or {}).items():
        weights = [1 if name == "lines" else measured(content)[name] for content in contents]
        lost = sum(weight for weight, rule in zip(weights, broken, strict=True) if rule)
        if lost / max(sum(weights), 1) > share:
            return Edited(None, "too_much_removed", Counter(), Counter())
    if not cut or not units:
        return Edited(text, "", Counter(), Counter())
    parts = zip(units, contents, broken, strict=True)
    kept = "".join(before + content + after for (before, _, after), content, rule in parts if not rule)
    gone = [(rule["name"], len(content)) for rule, content in zip(broken, contents, strict=True) if rule]
    characters: Counter = Counter()
    for name, size in gone:
        characters[name] += size
    return Edited(kept, "", Counter(name for name, _ in gone), characters)


def _first_broken(contents: list[str], number: int, rules: list[dict[str, Any]]) -> dict[str, Any] | None:
    for rule in rules:
        value = _value(contents, number, rule)
        low, high = rule.get("min", rule.get("min_count", 0)), rule.get("max", rule.get("max_count", INFINITE))
        if not low <= value <= high:
            return rule
    return None


def _value(contents: list[str], number: int, rule: dict[str, Any]) -> float:
    content = contents[number]
    if "matches" in rule:
        return len(re.findall(rule["matches"], content))
    if "ratio" in rule:
        above, below = (measured(content)[name] for name in rule["ratio"])
        return above / max(below, 1)
    if rule["measure"] == "repeats":
        return contents[:number].count(content) if content.split() else 0
    return measured(content)[rule["measure"]]
