# SPDX-License-Identifier: Apache-2.0
"""Finds the settings in which two finished runs differ, with the paths that `--set` takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from curation.reading.inputs import input_names, list_inputs
from curation.recipes.changes import completed
from curation.record.identity import changed_facts, identity_in
from curation.results.finished.results import FinishedRun
from curation.rules.decide import OFF, Bounds, Rule, fitting, rules_of_entry
from curation.rules.grammar import OTHER
from curation.rules.groups import GroupedRule
from curation.stages import Filter
from curation.stages.own_code import as_json

SIDES = ("min", "max")
SUBJECT = frozenset(("measure", "ratio", "column"))  # fields of a rule that are in the path of its settings

Entries = Sequence[str | Rule]
Change = Bounds | str | bool | None  # of a rule of a set


class Setting(NamedTuple):
    """A setting of the recipe that differs between the runs A and B; None: not set.

    `path` is one that `--set` takes, such as `stages.filter.ko.top_2gram.max`; for rules without such a path it begins
    with `stages.NAME.rules`. For a list, `a` and `b` have only the entries that the other list lacks; a single entry is
    not in a list.
    """

    path: str
    a: Any
    b: Any


def changed_settings(first: FinishedRun, second: FinishedRun) -> list[Setting]:
    """Return the settings in which the recipes of two runs differ. Each bound of a filter is a setting; if filters have
    different rule sets, all their rules are one setting."""
    recipes = [completed(run.report["recipe"]) for run in (first, second)]
    names = [[stage["name"] for stage in run.report["stages"]] for run in (first, second)]
    stages = [dict(zip(own, recipe.pop("stages"), strict=True)) for own, recipe in zip(names, recipes, strict=True)]
    a, b = _with_named_inputs(recipes[0], recipes[1])
    found = _changes(a, b)
    for name in dict.fromkeys([*names[0], *names[1]]):
        pair = [own.get(name) for own in stages]
        filters = [_filter(run, name) for run in (first, second)]
        if filters[0] is not None and filters[1] is not None:
            path = f"stages.{name}"
            rules: list[Entries] = [_entries(stage.rules) for stage in filters if stage]
            found += _rule_changes(path, f"{path}.rules", rules[0], rules[1])
            pair = [(stage or {}) | {"rules": None} for stage in pair]
        found += _changes(pair[0], pair[1], f"stages.{name}")
    return found + _changes(names[0], names[1], "order of stages")


def other_differences(first: FinishedRun, second: FinishedRun) -> list[str]:
    """Return the differences of two runs besides settings: version, input files, files of stages, tokenizer, and
    revisions of stages. Runs without any difference have the same identity."""
    versions = [str(run.report["versions"]["gpu-pipeline"]) for run in (first, second)]
    changes = [] if versions[0] == versions[1] else [f"version ({versions[0]}, {versions[1]})"]
    return changes + changed_facts(*(identity_in(run.report) for run in (first, second)))


def _with_named_inputs(*recipes: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the recipes with `input` as name -> input, if the inputs of all recipes have the same names."""
    entries = [list_inputs(recipe["input"]) for recipe in recipes]
    if len({tuple(input_names(own)) for own in entries}) > 1:
        return recipes
    named = [dict(zip(input_names(own), map(as_json, own), strict=True)) for own in entries]
    return tuple(recipe | {"input": own} for recipe, own in zip(recipes, named, strict=True))


def _filter(run: FinishedRun, name: str) -> Filter | None:
    stage = run.judging_stage(name)
    return stage if isinstance(stage, Filter) else None


def _changes(a: Any, b: Any, path: str = "") -> list[Setting]:
    if isinstance(a, dict) and isinstance(b, dict):
        keys = dict.fromkeys([*a, *b])
        return [
            change for key in keys for change in _changes(a.get(key), b.get(key), f"{path}.{key}" if path else str(key))
        ]
    if a == b:
        return []
    if not isinstance(a, list) or not isinstance(b, list):
        return [Setting(path, a, b)]
    if len(a) == len(b) and all(isinstance(entry, dict) for entry in (*a, *b)):
        pairs = enumerate(zip(a, b, strict=True))
        return [change for number, (old, new) in pairs for change in _changes(old, new, f"{path}.{number}")]
    return [_change_of_lists(path, a, b)]


def _change_of_lists(path: str, a: list[Any], b: list[Any]) -> Setting:
    only = [entry for entry in a if entry not in b], [entry for entry in b if entry not in a]
    only = only if any(only) else (a, b)
    return Setting(path, *(each[0] if len(each) == 1 else each for each in only))


# Rules


def _entries(rules: str | Entries) -> Entries:
    return [rules] if isinstance(rules, str) else rules


def _rule_changes(path: str, where: str, a: Entries, b: Entries) -> list[Setting]:
    """Return the differences between two lists of rules, for all documents or for a group. Each bound is a setting; if
    the lists have different sets, the whole list is one setting. `path` is the path to rules by their names, `where`
    the path to the list of entries."""
    written = [as_json([*entries]) for entries in (a, b)]
    if written[0] == written[1]:
        return []
    sets = [[number for number, entry in enumerate(entries) if _kind(entry)] for entries in (a, b)]
    if [_kind(a[number]) for number in sets[0]] != [_kind(b[number]) for number in sets[1]]:
        return [_change_of_lists(where, written[0], written[1])]
    rules = [[rule for entry in entries for rule in rules_of_entry(entry)] for entries in (a, b)]
    found = []
    for first, second in zip(*sets, strict=True):
        entry, before, now = f"{where}.{second}", a[first], b[second]
        if _rules_of_values(now):
            found += _group_changes(path, entry, before, now)
        else:
            found += _set_changes(path, entry, before, now, rules[1])
    singles = [_singles(entries) for entries in (a, b)]
    for place in dict.fromkeys([*singles[0], *singles[1]]):
        found += _single_changes(path, where, singles[0].get(place), singles[1].get(place), rules)
    orders = [[place for place in own if place in singles[1 - number]] for number, own in enumerate(singles)]
    if not found or orders[0] != orders[1]:
        found.append(_change_of_lists(where, written[0], written[1]))
    return found


def _kind(entry: str | Rule) -> str:
    """Return the set of an entry, or the column whose values have rules; "" for a single rule."""
    if isinstance(entry, str):
        return entry
    return f"per {entry.per}" if entry.rules is not None else entry.set or ""


def _rules_of_values(entry: str | Rule) -> dict[str, str | list[str | Rule]]:
    return {} if isinstance(entry, str) else entry.rules or {}


def _group_changes(path: str, where: str, a: str | Rule, b: str | Rule) -> list[Setting]:
    """Return the changes of an entry with rules for each value of a column."""
    first, second = map(_rules_of_values, (a, b))
    found = []
    for value in dict.fromkeys([*first, *second]):
        own = first.get(value), second.get(value)
        if isinstance(own[0], list) and isinstance(own[1], list):
            found += _rule_changes(f"{path}.{value}", f"{where}.rules.{value}", own[0], own[1])
        else:
            found += _changes(as_json(own[0]), as_json(own[1]), f"{where}.rules.{value}")
    return found


def _set_changes(path: str, where: str, a: str | Rule, b: str | Rule, rules: Sequence[Rule]) -> list[Setting]:
    """Return the changes of the rules of a set. `rules` are all rules of the filter."""
    options = [{key: getattr(entry, key, None) for key in ("per", "other")} for entry in (a, b)]
    found = _changes(options[0], options[1], where)
    first, second = map(_overrides, (a, b))
    for value, key in dict.fromkeys([*first, *second]):
        changes = [own.get((value, key)) for own in (first, second)]
        single = value or len(fitting(rules, key)) == len(fitting(rules_of_entry(b), key))
        long = f"{where}.group_override.{value}" if value else f"{where}.override"
        before = ".".join([path, *([value] if value else [])]) if single else long
        bounds = [_bounds_of(entry, value, key, change) for entry, change in zip((a, b), changes, strict=True)]
        found += _changes(bounds[0], bounds[1], f"{before}.{key}")
    return found


def _overrides(entry: str | Rule) -> dict[tuple[str, str], Change]:
    """Return (group, key of a rule) -> the change that the entry makes. The group is a value of the column that
    distinguishes groups, or "" for all documents."""
    if isinstance(entry, str):
        return {}
    by_value = {"": entry.override or {}} | (entry.group_override or {})
    return {(value, key): change for value, changes in by_value.items() for key, change in changes.items()}


def _bounds_of(entry: str | Rule, value: str, key: str, change: Change) -> dict[str, Any] | str:
    """Return the bounds, by name, of the rules with a key, in the group of a value or ("") in all groups; `off` for a
    removed rule."""
    if change is not None and not isinstance(change, Bounds):
        return OFF
    rules = rules_of_entry(entry)
    bounds: dict[str, Any] = {}
    for side, name in enumerate(SIDES):
        numbers = {float(bound) for rule in _fits(rules, key, name) for bound in _numbers_of(rule, side, value)}
        finite = sorted(number for number in numbers if math.isfinite(number))
        if finite:
            bounds[name] = finite[0] if len(finite) == 1 else f"{finite[0]:g} to {finite[-1]:g}"
    return bounds


def _numbers_of(rule: Rule, side: int, value: str) -> Sequence[float]:
    """Return the lower or upper bounds of a rule, in the group of a value or in all groups."""
    if not isinstance(rule, GroupedRule):
        return [rule.bounds[side]]
    numbers = rule.limits[side]
    group = rule.groups.place(None if value == OTHER else value) if value else None
    return list(numbers[rule.member] if group is None else numbers[[group]][rule.member[[group]]])


def _singles(entries: Entries) -> dict[tuple[str, int], tuple[int, Rule]]:
    """Return (reason, number among rules of this reason) -> (number of the entry, rule), for entries that are single
    rules."""
    found: dict[tuple[str, int], tuple[int, Rule]] = {}
    counts: dict[str, int] = {}
    for number, entry in enumerate(entries):
        if not _kind(entry) and isinstance(entry, Rule):
            counts[entry.name] = counts.get(entry.name, 0) + 1
            found[entry.name, counts[entry.name]] = number, entry
    return found


def _single_changes(
    path: str, where: str, a: tuple[int, Rule] | None, b: tuple[int, Rule] | None, rules: Sequence[Sequence[Rule]]
) -> list[Setting]:
    """Return the changes of a single rule. If only B has the rule, the changes are the bounds of the rule, which
    settings can add."""
    number, rule = b or a or (0, Rule(measure="words"))
    known = rules[1 if b else 0]
    alone = [key for key in rule.keys if all(_fits(known, key, side) == [rule] for side in rule.conditions)]
    place = f"{path}.{alone[0]}" if alone else f"{where}.{number}"
    if a is None:
        return _changes({}, {key: value for key, value in as_json(rule).items() if value and key not in SUBJECT}, place)
    return _changes(as_json(a[1]), as_json(rule) if b else None, place)


def _fits(rules: Sequence[Rule], key: str, condition: str) -> list[Rule]:
    return [rules[fit] for fit in fitting(rules, key, condition)]
