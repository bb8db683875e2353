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
from curation.rules.groups import GroupedRule, groups_in, of_different_groups
from curation.stages import Filter, Stage


def subject_of(key: str, more: Set[str] = frozenset()) -> dict[str, Any]:
    """Return the field that holds the subject of a rule: ratio, measure or column."""
    if "/" in key:
        return {"ratio": [name.strip() for name in key.split("/")]}
    return {"measure" if is_measure(key) or key in more else "column": key}


def put_rule(stage: dict[str, Any], path: list[str], value: Any, where: str) -> None:
    """Change or remove a rule of a filter, in place; add one for a measure or ratio that has none. ValueError for a
    path that leads to no rule or to several.

    stage  the filter, with `rules` as in the recipe, written out
    path   a rule by reason, measure, ratio or column; before it a value of a column that has rules of its own; after it
           a bound, unless `value` has several or is `off`
    where  path of the stage, for messages
    """
    key, *rest = path
    rules = stage.get("rules", [])
    rules = [rules] if isinstance(rules, str) else rules
    msgspec.convert(rules, list[str | Rule])
    is_known = any(fitting(_expanded(entry), key) for entry in rules)
    if rest and not is_known and (number := _entry_of_value(rules, key)) is not None:
        rules[number] = _changed_group(rules[number], path, value, where)
        _expanded(rules[number])
        stage["rules"] = rules
        return
    new = {} if is_known else _new_subject(rules, key, where)
    if len(rest) == 1:
        value = {rest[0]: value}
    if value is False or value == OFF:  # YAML takes `off` for false
        _remove_rule(rules, key, where)
    elif not isinstance(value, dict) or not value or len(rest) > 1:
        raise ValueError(f"give a bound of {key}: {where}.{key}.{'min=50' if new else _bound_of(rules, key)}")
    elif new:
        rules.append(new | value)
    else:
        for condition, bound in value.items():
            _change(rules, key, condition, bound)
    msgspec.convert(rules, list[str | Rule])
    stage["rules"] = rules


def _entry_of_value(rules: list[Any], value: str) -> int | None:
    """The number of the first entry of `rules` with rules of their own for a value of a column."""
    for number, entry in enumerate(rules):
        if any(groups.lists(value) for groups in groups_in(_expanded(entry))):
            return number
    return None


def _changed_group(entry: Any, path: list[str], value: Any, where: str) -> Any:
    """An entry of `rules` with another rule for a value of its column; the path begins with the value."""
    name, key, *rest = path
    if isinstance(entry, dict) and "rules" in entry:
        own = _listed_value(entry, name)
        inner = {"rules": entry["rules"][own]}
        put_rule(inner, path[1:], value, f"{where}.{name}")
        return {**entry, "rules": {**entry["rules"], own: inner["rules"]}}
    change = {rest[0]: value} if len(rest) == 1 else value
    if len(rest) > 1 or not (isinstance(change, dict) or change is False or change == OFF):
        raise ValueError(f"give a bound of {key}: {where}.{name}.{key}.min=50")
    groups = {} if isinstance(entry, str) else entry.get("group_override") or {}
    before = groups.get(name, {}).get(key)
    if isinstance(change, dict):
        change = {**(before if isinstance(before, dict) else {}), **change}
    others = {other: rules for other, rules in groups.items() if other != name}
    own_rules = {other: rule for other, rule in groups.get(name, {}).items() if other != key}
    written = {"set": entry} if isinstance(entry, str) else entry
    return {**written, "group_override": {**others, name: {**own_rules, key: change}}}


def _listed_value(entry: dict[str, Any], value: str) -> str:
    """The value under which an entry lists the rules of another one. ValueError for a value without rules."""
    rules = entry["rules"]
    (groups,) = groups_in(_expanded(entry))
    for name, own in rules.items():
        has_rules = not isinstance(own, str) or (own in SET_NAMES and own not in rules)
        if has_rules and (name == value or groups.find(name) == groups.find(value) is not None):
            return str(name)
    raise ValueError(
        f"{value!r} has no rules of its own. Give it some in the recipe: {{{value}: {{words: {{min: 50}}}}}}"
    )


def bound_paths(name: str, stage: Stage, rules: Sequence[Rule], value: str = "") -> list[str]:
    """Return the path of each of some rules in settings, such as `stages.filter.words`, which `.min=50` continues; ""
    if no path leads to a rule alone.

    name   of the stage
    rules  of the stage, or with `value` those of a group
    value  a value of the column of groups
    """
    parts = ["stages", name, *([value] if value else [])]
    if not isinstance(stage, Filter) or name.isdecimal() or any(map(_has_syntax, parts)):
        return [""] * len(rules)
    entries = [stage.rules] if isinstance(stage.rules, str) else [*stage.rules]
    known = [each for entry in entries for each in rules_of_entry(entry)]
    own: list[Rule] = known
    if value:
        number = _entry_of_value(entries, value)
        if number is None or fitting(known, value):
            return [""] * len(rules)
        grouped = [each for each in rules_of_entry(entries[number]) if isinstance(each, GroupedRule)]
        own = [found for each in grouped if (found := each.of_group(_place(each, value))) is not None]
    taken = {*Filter.__struct_fields__} - {"words"} if not value else set()
    by_key = numbers_by_key(own)
    only = cache(lambda key, side: _only(fitting(own, key, side, by_key.get(key, ()))))
    keys = [_key_of(rule, own, taken, only) for rule in rules]
    return [".".join([*parts, key]) if key else "" for key in keys]


def _only(numbers: Sequence[int]) -> int | None:
    return numbers[0] if len(numbers) == 1 else None


def _key_of(rule: Rule, known: Sequence[Rule], taken: Set[str], only: Callable[[str, str], int | None]) -> str:
    """The first key by which settings of the bounds of a rule find this rule alone; "" without one. `only` returns the
    number of the rule that a key and a bound name alone."""
    sides = [side for side, bound in zip(("min", "max"), rule.bounds, strict=True) if math.isfinite(bound)]
    for key in rule.keys:
        fits = [] if key in taken or _has_syntax(key) else [only(key, side) for side in sides]
        if fits and all(number is not None and _same(known[number], rule) for number in fits):
            return key
    return ""


def _has_syntax(part: str) -> bool:
    """Whether a part of a path would be read as several, or without its spaces."""
    return bool({*part} & {*".="}) or part != part.strip()


def _place(rule: GroupedRule, value: str) -> int:
    """The group of a value, or of all others."""
    found = rule.groups.find(value)
    return int(found if found is not None else rule.groups.other or 0)


def _same(first: Rule, second: Rule) -> bool:
    return (first.name, first.measures, first.bounds) == (second.name, second.measures, second.bounds)


def _bound_of(rules: list[Any], key: str) -> str:
    """An example of a setting: a bound that the first rule of this name has, such as `max=0.1`."""
    known = [rule for entry in rules for rule in _expanded(entry)]
    low, high = known[fitting(known, key)[0]].bounds
    if low == -high == -math.inf:  # they differ between groups
        return "max=0.1"
    return f"min={low:g}" if low > -math.inf else f"max={high:g}"


def _expanded(entry: Any) -> Sequence[Rule]:
    """The rules of an entry of `rules`; for a set, after its override."""
    return rules_of_entry(entry if isinstance(entry, str) else msgspec.convert(entry, Rule))


def _new_subject(rules: list[Any], key: str, where: str) -> dict[str, Any]:
    """The subject of a new rule; ValueError for a name that is not a measure or ratio."""
    subject = subject_of(key)
    if "column" in subject:
        known = keys_of([rule for entry in rules for rule in _expanded(entry)])
        names = [*Filter.__struct_fields__, *known]
        hint = near_or_nothing(key, names) or near_measure(key)
        raise ValueError(f"{where} has no field or rule {key!r}, and no measure has that name{hint}")
    return subject


def _fit(rules: list[Any], key: str, condition: str = "") -> tuple[int, str]:
    """(number of the entry of `rules`, name of the rule in its override) that a key names; ValueError for none or
    several. The name is the reason, or the key if other rules of the entry have this reason."""
    places = [(number, rule) for number, entry in enumerate(rules) for rule in _expanded(entry)]
    known = [rule for _, rule in places]
    fits = fitting(known, key, "in_" if condition == "in" else condition)
    if not fits:
        raise ValueError(f"no rule named {key!r}{nearest(key, keys_of(known))}")
    entries = {places[fit][0] for fit in fits}
    if len(entries) > 1 or (len(fits) > 1 and not of_different_groups([known[fit] for fit in fits])):
        raise ValueError(f"{key!r} is ambiguous: name {reasons_of(known, fits)}, or write the rules out")
    number, rule = places[fits[0]]
    same = [place for place, each in enumerate(places) if each[0] == number and each[1].name == rule.name]
    if isinstance(rules[number], dict) and "rules" in rules[number]:
        raise ValueError(f"{key!r} differs per {rules[number]['per']}; change the rules of each value in the recipe")
    return number, rule.name if same == fits else key


def _change(rules: list[Any], key: str, condition: str, bound: Any) -> None:
    if condition not in Rule.__struct_encode_fields__:
        raise ValueError(f"a rule has no condition {condition!r}{nearest(condition, Rule.__struct_encode_fields__)}")
    number, name = _fit(rules, key, condition)
    if _is_set(rules[number]):
        before = _override(rules[number]).get(name)
        _set_override(rules, number, name, {**(before if isinstance(before, dict) else {}), condition: bound})
    else:
        rules[number][condition] = bound


def _remove_rule(rules: list[Any], key: str, where: str) -> None:
    number, name = _fit(rules, key)
    if _is_set(rules[number]):
        _set_override(rules, number, name, OFF)
    else:
        del rules[number]
    if not any(map(_expanded, rules)):
        raise ValueError(f"{where} would have no rules. Remove the stage instead")


def _is_set(entry: Any) -> bool:
    return isinstance(entry, str) or "set" in entry


def _override(entry: Any) -> dict[str, Any]:
    return {} if isinstance(entry, str) else entry.get("override") or {}


def _set_override(rules: list[Any], number: int, reason: str, change: Any) -> None:
    """Set a change as the last one, which wins."""
    entry = rules[number]
    others = {key: other for key, other in _override(entry).items() if key != reason}
    written = {"set": entry} if isinstance(entry, str) else entry
    rules[number] = {**written, "override": {**others, reason: change}}
