# SPDX-License-Identifier: Apache-2.0
"""Settings of single rules of a filter, such as `stages.filter.words.min=100`, or `stages.filter.deu_Latn.words.min=30`
for a group; and the paths of rules in such settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from functools import cache
from typing import Any

import msgspec

from curation.base.errors import near_or_nothing, nearest
from curation.base.measures import is_measure, near_measure
from curation.rules.decide import OFF, SET_NAMES, Rule, fitting, keys_of, numbers_by_key, reasons_of, rules_of_entry
from curation.rules.groups import GroupedRule, Groups, of_different_groups, rules_of_group, values_with_rules
from curation.stages import Filter, Stage


def subject_of(key: str, more: Set[str] = frozenset()) -> dict[str, Any]:
    """Return the field that holds the subject of a rule: ratio, measure or column."""
    if "/" in key:
        return {"ratio": [name.strip() for name in key.split("/")]}
    return {"measure" if is_measure(key) or key in more else "column": key}


def put_rule(stage: dict[str, Any], path: list[str], value: Any, where: str) -> None:
    """Change or remove a rule of a filter, in place; add one for a measure or ratio that has none. Raises ValueError
    for a path that leads to no rule or to several.

    stage  the filter, with `rules` as in the recipe, written out
    path   a rule by reason, measure, ratio or column. Before it may be a value of a column whose values have separate
           rules. After it is a bound, unless `value` has several bounds or is `off`
    where  path of the stage, for messages
    """
    key, *rest = path
    rules = stage.get("rules", [])
    rules = stage["rules"] = [rules] if isinstance(rules, str) else rules
    places, known = _expanded(msgspec.convert(rules, list[str | Rule]))
    fits = fitting(known, key)
    if rest and not fits and (found := _groups_of(places, known, key)):
        _put_rule_of_value(rules, *found, path, value, where)
    else:
        new = {} if fits else _new_subject(known, key, where)
        change = _change(value, rest, f"{where}.{key}", "min=50" if new else _bound_of(known[fits[0]]))
        if change == OFF:
            _put_change(rules, *_fit(rules, places, known, key), OFF)
        elif new:
            rules.append(new | change)
        else:
            for condition, bound in change.items():
                _put_change(rules, *_fit(rules, places, known, key, condition), {condition: bound})
    if not _expanded(msgspec.convert(rules, list[str | Rule]))[1]:
        raise ValueError(f"{where} would have no rules. Remove the stage instead")


def _expanded(entries: Sequence[str | Rule]) -> tuple[list[int], list[Rule]]:
    """Return the number of the entry of each single rule, and the single rules. Overrides of rule sets are applied."""
    found = [(number, rule) for number, entry in enumerate(entries) for rule in rules_of_entry(entry)]
    return [number for number, _ in found], [rule for _, rule in found]


def _groups_of(places: Sequence[int], known: Sequence[Rule], value: str) -> tuple[int, Groups] | None:
    """Return the first groups that list `value` of their column, and the number of the entry with these groups."""
    grouped = ((number, rule) for number, rule in zip(places, known, strict=True) if isinstance(rule, GroupedRule))
    return next(((number, rule.groups) for number, rule in grouped if rule.groups.lists(value)), None)


def _change(value: Any, rest: list[str], where: str, example: str) -> Any:
    """Return the change that a setting makes to a rule: bounds by name, or `off`."""
    change = {rest[0]: value} if len(rest) == 1 else value
    if change is False or change == OFF:  # YAML takes `off` for false
        return OFF
    if not isinstance(change, dict) or not change or len(rest) > 1:
        raise ValueError(f"give a bound of {where.rpartition('.')[2]}: {where}.{example}")
    return change


def _fit(
    rules: list[Any], places: Sequence[int], known: Sequence[Rule], key: str, condition: str = ""
) -> tuple[int, str]:
    """Return the number of the entry of `rules` that a key and a condition select, and the name of the rule in the
    entry's override. The name is the reason, or the key if other rules of the entry have this reason. Raises ValueError
    if they select no rule or several."""
    if condition and condition not in Rule.__struct_encode_fields__:
        raise ValueError(f"a rule has no condition {condition!r}{nearest(condition, Rule.__struct_encode_fields__)}")
    fits = fitting(known, key, "in_" if condition == "in" else condition)
    if not fits:
        raise ValueError(f"no rule named {key!r}{nearest(key, keys_of(known))}")
    number, name = places[fits[0]], known[fits[0]].name
    is_one = {places[fit] for fit in fits} == {number}
    if not is_one or (len(fits) > 1 and not of_different_groups([known[fit] for fit in fits])):
        raise ValueError(f"{key!r} is ambiguous: name {reasons_of(known, fits)}, or write the rules out")
    if isinstance(rules[number], dict) and "rules" in rules[number]:
        raise ValueError(f"{key!r} differs per {rules[number]['per']}; change the rules of each value in the recipe")
    same = [place for place, rule in enumerate(known) if places[place] == number and rule.name == name]
    return number, name if same == fits else key


def _put_change(rules: list[Any], number: int, name: str, change: Any, value: str = "") -> None:
    """Put a change into an entry of `rules`. For a set, the change is put last into its override, where the last one
    wins. `value`: the value of the column whose rule changes, or "" for all values."""
    entry = rules[number]
    if isinstance(entry, dict) and "set" not in entry:
        rules[number : number + 1] = [] if change == OFF else [entry | change]
        return
    field = "group_override" if value else "override"
    entry = {"set": entry} if isinstance(entry, str) else entry
    changes = entry.get(field) or {}
    own = dict(changes.get(value, {}) if value else changes)
    before = own.pop(name, OFF)
    own[name] = before | change if isinstance(before, dict) and change != OFF else change
    others = {other: each for other, each in changes.items() if other != value}
    rules[number] = {**entry, field: {**others, value: own} if value else own}


def _put_rule_of_value(rules: list[Any], number: int, groups: Groups, path: list[str], value: Any, where: str) -> None:
    """Change or remove a rule as `put_rule` does. The path begins with a value of the column that the groups of an
    entry have."""
    name, key, *rest = path
    entry = rules[number]
    if isinstance(entry, str) or "rules" not in entry:
        _put_change(rules, number, key, _change(value, rest, f"{where}.{name}.{key}", "min=50"), name)
        return
    own = dict(enumerate(values_with_rules(entry["rules"], SET_NAMES))).get(groups.place(name) or 0)
    if own is None:
        raise ValueError(
            f"{name!r} has no rules of its own. Give it some in the recipe: {{{name}: {{words: {{min: 50}}}}}}"
        )
    inner = {"rules": entry["rules"][own]}
    put_rule(inner, path[1:], value, f"{where}.{name}")
    rules[number] = {**entry, "rules": {**entry["rules"], own: inner["rules"]}}


def bound_paths(name: str, stage: Stage, rules: Sequence[Rule], value: str = "") -> list[str]:
    """Return for each rule its path in settings, such as `stages.filter.words`, to which `.min=50` can be appended; ""
    if no path leads to only this rule.

    name   of the stage
    rules  of the stage, or with `value` those of a group
    value  a value of the column of groups
    """
    parts = ["stages", name, *([value] if value else [])]
    if not isinstance(stage, Filter) or name.isdecimal() or any(map(_has_syntax, parts)):
        return [""] * len(rules)
    known = stage.expanded
    own: Sequence[Rule] = known
    if value:
        found = _groups_of(range(len(known)), known, value)
        if found is None or fitting(known, value):
            return [""] * len(rules)
        groups = found[1]
        own = rules_of_group(known, groups, groups.place(value) or 0)
    taken = {*Filter.__struct_fields__} - {"words"} if not value else set()
    by_key = numbers_by_key(own)
    only = cache(lambda key, side: _only(fitting(own, key, side, by_key.get(key, ()))))
    keys = [_key_of(rule, own, taken, only) for rule in rules]
    return [".".join([*parts, key]) if key else "" for key in keys]


def _only(numbers: Sequence[int]) -> int | None:
    return numbers[0] if len(numbers) == 1 else None


def _key_of(rule: Rule, known: Sequence[Rule], taken: Set[str], only: Callable[[str, str], int | None]) -> str:
    """Return the first key that selects only this rule in settings of its bounds; "" if there is no such key. `only`
    returns the number of the only rule that a key and a bound select."""
    sides = [side for side, bound in zip(("min", "max"), rule.bounds, strict=True) if math.isfinite(bound)]
    for key in rule.keys:
        fits = [] if key in taken or _has_syntax(key) else [only(key, side) for side in sides]
        if fits and all(number is not None and _same(known[number], rule) for number in fits):
            return key
    return ""


def _has_syntax(part: str) -> bool:
    """Return whether `--set` would read a part of a setting's path as several parts, or strip its spaces."""
    return bool({*part} & {*".="}) or part != part.strip()


def _same(first: Rule, second: Rule) -> bool:
    return (first.name, first.measures, first.bounds) == (second.name, second.measures, second.bounds)


def _bound_of(rule: Rule) -> str:
    """Return an example of a setting: a bound of the rule, such as `max=0.1`."""
    low, high = rule.bounds
    if low == -high == -math.inf:  # they differ between groups
        return "max=0.1"
    return f"min={low:g}" if low > -math.inf else f"max={high:g}"


def _new_subject(known: Sequence[Rule], key: str, where: str) -> dict[str, Any]:
    """Return the subject of a new rule. Raises ValueError for a name that is not a measure or ratio."""
    subject = subject_of(key)
    if "column" in subject:
        hint = near_or_nothing(key, [*Filter.__struct_fields__, *keys_of(known)]) or near_measure(key)
        raise ValueError(f"{where} has no field or rule {key!r}, and no measure has that name{hint}")
    return subject
