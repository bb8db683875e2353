# SPDX-License-Identifier: Apache-2.0
"""Shorthands inside a recipe, and settings (`PATH=VALUE`) that change it.

Shorthands and settings work on the content of a recipe, the dictionaries from YAML, before the recipe is checked. A run
stores and compares recipes with shorthands written out.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence, Set
from typing import Any

import msgspec

from curation.base.errors import RecipeError, near_or_nothing, nearest
from curation.kernels.word_breaks import WORDS
from curation.recipes.rule_settings import put_rule, subject_of
from curation.recipes.yaml_text import parse_yaml
from curation.rules.decide import SET_NAMES, Rule
from curation.rules.grammar import divided_override
from curation.rules.units import LANGUAGE, REPEATS
from curation.stages import STAGES, Filter
from curation.stages.base import stage_names

FILTER, LINES = "filter", "lines"
RULE_FIELDS = frozenset(Rule.__struct_encode_fields__)
SUBJECTS = ("measure", "ratio", "column", "set", "override", "any", "rules")
FORMS = frozenset((*SUBJECTS, "matches", "listed"))  # a rule that is written out has one of these
EXAMPLE = "{min: 50}"

Structures = tuple[type[msgspec.Struct], ...] | None  # allowed at a path; None: anything, (): no fields


# Shorthands


def expand_shorthands(content: Any) -> Any:
    """The content of a recipe with shorthands written out.

    Shorthands are `exact_dedup` and `{exact_dedup: {...}}` for a stage, and mappings for rules. Other values stay
    unchanged; `convert_recipe` refuses them. Raises ValueError for a wrong shorthand.
    """
    if not isinstance(content, dict) or not isinstance(content.get("stages"), list | tuple):
        return content
    stages = [_expanded_stage(entry, f"$.stages[{number}]") for number, entry in enumerate(content["stages"])]
    return {**content, "stages": stages}


def _expanded_stage(entry: Any, path: str) -> Any:
    if isinstance(entry, str):
        name, colon, rest = entry.partition(":")
        if colon and name in (*STAGES, "kind"):
            raise ValueError(f"{entry!r} is text in YAML. Put a space after the colon: {name}: {rest} - at `{path}`")
        entry = {"kind": entry}
    elif isinstance(entry, dict) and len(entry) == 1:
        ((kind, settings),) = entry.items()
        if isinstance(kind, str) and kind != "kind" and (settings is None or isinstance(settings, dict)):
            settings = settings or {}
            if "kind" in settings:
                raise ValueError(f"{kind} is the kind of the stage; leave kind: {settings['kind']!r} out - at `{path}`")
            entry = {"kind": kind, **settings}
    if isinstance(entry, dict) and entry.get("kind") in (FILTER, LINES) and "rules" in entry:
        more = {REPEATS, LANGUAGE} if entry["kind"] == LINES else set()
        entry = {**entry, "rules": expand_rule_shorthands(entry["rules"], f"{path}.rules", more)}
    return entry


def expand_rule_shorthands(rules: Any, path: str, more: Set[str]) -> Any:
    """Return rules with each shorthand replaced by its mapping.

    For example `{words: {min: 50}, a/b: {max: 0.1}, language: {in: [en]}, gopher: {}}`.

    A key is a rule set, a measure or a ratio (`a/b`); any other key is a column. `path` is the place of the rules in
    messages, `more` are further names of measures. Raises ValueError.
    """
    if isinstance(rules, dict):
        return _listed_rule(rules, path, more)
    if not isinstance(rules, list):
        return rules
    written_out: list[Any] = []
    for number, entry in enumerate(rules):
        is_rule = isinstance(entry, dict) and entry
        written_out += _listed_rule(entry, f"{path}[{number}]", more) if is_rule else [entry]
    return written_out


def _listed_rule(rule: dict[Any, Any], path: str, more: Set[str]) -> list[Any]:
    if LANGUAGE in more and not isinstance(rule.get(LANGUAGE, {}), dict):
        return [rule]
    for name in ("reason", "removes"):
        if isinstance(rule.get(name), str) and not FORMS & rule.keys():
            example = next((key for key in rule if key != name), "words")
            raise ValueError(
                f"{name} is a setting of the rule; write {{{example}: {{..., {name}: {rule[name]}}}}} - at `{path}`"
            )
    if not RULE_FIELDS & rule.keys():
        return _keyed(rule, path, more)
    if isinstance(rule.get("rules"), dict):
        return [{**rule, "rules": _expanded_groups(rule["rules"], f"{path}.rules", more)}]
    if "any" not in rule:
        return [_divided(rule)]
    entries = expand_rule_shorthands(rule["any"], f"{path}.any", more)
    if isinstance(entries, list):  # `Rule` refuses a set, with a message that a name alone would not get
        entries = [{"set": entry} if isinstance(entry, str) else entry for entry in entries]
    return [{**rule, "any": entries}]


def _divided(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule set whose overrides for single groups are moved from `override` to `group_override`. Such an
    override has a value of the groups' column as its key."""
    if not isinstance(rule.get("override"), dict):
        return rule
    own, by_value = divided_override(rule["override"])
    if not by_value:
        return rule
    rest = {name: value for name, value in rule.items() if name != "override"}
    by_value = {**(rule.get("group_override") or {}), **by_value}
    return {**rest, **({"override": own} if own else {}), "group_override": by_value}


def _expanded_groups(groups: dict[Any, Any], path: str, more: Set[str]) -> dict[str, Any]:
    """Return the rules of each value of a column, with mappings written out."""
    for value in groups:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is no text. Quote it: YAML reads no, yes, on and off as truth - at `{path}`")
    return {value: expand_rule_shorthands(rules, f"{path}.{value}", more) for value, rules in groups.items()}


def _keyed(rules: dict[Any, Any], path: str, more: Set[str]) -> list[dict[str, Any]]:
    return [_keyed_rule(key, conditions, path, more) for key, conditions in rules.items()]


def _keyed_rule(key: Any, conditions: Any, path: str, more: Set[str]) -> dict[str, Any]:
    if not isinstance(key, str):
        raise ValueError(f"{key!r} is not the name of a measure or column. Quote it if it is - at `{path}`")
    named_set = key in SET_NAMES
    if conditions is None and named_set:
        conditions = {}
    if not isinstance(conditions, dict) or not (conditions or named_set):
        raise ValueError(f"{key!r} needs conditions, such as {key}: {EXAMPLE}, not {conditions!r} - at `{path}`")
    if named_set:
        others = {name: conditions[name] for name in ("per", "other") if isinstance(conditions.get(name), str)}
        override = {name: change for name, change in conditions.items() if name not in others}
        return _divided({"set": key, **others, **({"override": override} if override else {})})
    for name in SUBJECTS:
        if name in conditions:
            raise ValueError(f"leave {name} out: the key {key!r} already names the value to bound - at `{path}`")
    return {**subject_of(key, more), **conditions}


# Settings


def apply_settings(content: Any, settings: Sequence[str], structure: type[msgspec.Struct]) -> Any:
    """A copy of the content of a recipe with `settings` applied in order and shorthands written out.

    settings    `PATH=VALUE` strings, VALUE in YAML. PATH is dotted: `output.formats`, `input.NAME.sample`,
                `stages.fuzzy_dedup.threshold`. A stage is its `name` or its kind, an input its name; both may be a
                number, from 0. In a filter, a name that is not a field is a rule: `stages.filter.words.min=100`,
                `stages.filter.too_few_stop_words=off`
    structure   the type of `content`, `Recipe`; its fields check the paths

    Raises RecipeError for a path that leads nowhere or to several places, and for a wrong value.
    """
    try:
        changed = expand_shorthands(_copied(content))
    except ValueError as error:
        raise RecipeError(str(error)) from None
    for setting in settings:
        try:
            path, value = _parsed(setting)
            if isinstance(changed, dict):
                _put(changed, path, value, structure)
            changed = expand_shorthands(changed)
        except RecipeError:
            raise
        except ValueError as error:  # msgspec's own errors too
            raise RecipeError(f"setting {_path_of(setting)}: {error}") from None
    return changed


def stages_setting(text: str) -> str:
    """A setting for all stages, from comma-separated kinds or a YAML list; RecipeError for an empty name."""
    return f"stages={_listed(text, 'stages', 'exact_dedup,fuzzy_dedup')}"


def rules_setting(text: str) -> str:
    """A setting for the rules of the only filter, from comma-separated rule sets or YAML
    (`{words: {min: 50}}`); RecipeError for an unknown rule set."""
    listed = _listed(text, "rules", f"gopher, or {{words: {EXAMPLE}}}")
    for name in listed[1:-1].split(", ") if listed != text.strip() else ():
        if name not in SET_NAMES:
            advice = f"Give names of rule sets, or rules in YAML: {{words: {EXAMPLE}}}"
            raise RecipeError(f"no rule set named {name!r}{near_or_nothing(name, SET_NAMES) or '.'} {advice}")
    return f"stages.{FILTER}.rules={listed}"


def _listed(text: str, what: str, example: str) -> str:
    """Return a YAML list or mapping unchanged, and comma-separated names as a YAML list."""
    text = text.strip()
    if text.startswith(("[", "{")):
        return text
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise RecipeError(f"{what} must be comma-separated names, such as {example}; got {text!r}")
    if any(" " in name and name.replace(" ", "_").isidentifier() for name in names):
        raise RecipeError(f"{what} are separated by commas: {','.join(text.replace(',', ' ').split())}; got {text!r}")
    return f"[{', '.join(names)}]"


def _copied(value: Any) -> Any:
    """Return a copy without shared objects, since an alias of YAML is one object in two places."""
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    return [_copied(entry) for entry in value] if isinstance(value, list | tuple) else value


def _parsed(setting: str) -> tuple[list[str], Any]:
    path, equals, text = setting.partition("=")
    names = [name.strip() for name in path.split(".")]
    if not equals or not all(names):
        raise ValueError("expected PATH=VALUE, such as seed=3")
    if not text.strip():
        raise ValueError(f"no value. Write {path}='' for an empty text")
    return names, parse_yaml(text, f"setting {_path_of(setting)}: the value (quote text that has YAML syntax)")


def _path_of(setting: str) -> str:
    """Return only the path of a setting, for messages: its value may be a URL with a password."""
    return repr(setting.partition("=")[0])


def _put(content: dict[str, Any], path: list[str], value: Any, structure: type[msgspec.Struct]) -> None:
    match path:
        case ["stages", _, *_]:
            _put_in_stage(content, path[1:], value)
        case ["input", _, *_]:
            _put_in_input(content, path[1:], value)
        case _:
            _put_field(content, (structure,), [], path, value)


def _put_field(parent: Any, kinds: Structures, done: list[str], path: list[str], value: Any) -> None:
    """Set `value` at `path` below `parent`, a structure of one of `kinds` at the path `done`."""
    name, rest = path[0], path[1:]
    where = ".".join(done)
    if isinstance(parent, list):
        place: Any = _number(name, len(parent), where)
        below = kinds
    elif isinstance(parent, dict):
        place, below = name, _below(kinds, name, where)
    else:
        raise ValueError(f"{where} is a single value and has no field {name!r}")
    if not rest:
        parent[place] = value
        return
    if isinstance(parent, dict) and place not in parent:
        if below == ():
            raise ValueError(f"{'.'.join([*done, name])} is a single value and has no field {rest[0]!r}")
        parent[place] = {}
    _put_field(parent[place], below, [*done, name], rest, value)


def _number(name: str, count: int, where: str) -> int:
    if not name.isdecimal() or int(name) >= count:
        raise ValueError(f"{where} has {count} entries, numbered from 0; there is no {name!r}")
    return int(name)


def _below(kinds: Structures, name: str, where: str) -> Structures:
    """Return the structures that a field of `kinds` may hold. Raises ValueError for an unknown field."""
    if kinds is None:
        return None
    fields = {field.encode_name: field.type for kind in kinds for field in msgspec.structs.fields(kind)}
    if name not in fields:
        hint = f"; did you mean stages.{name}?" if not where and name in STAGES else nearest(name, fields)
        raise ValueError(f"{where or 'a recipe'} has no field {name!r}{hint}")
    types = list(_nested_types(fields[name]))
    structures = tuple(kind for kind in types if isinstance(kind, type) and issubclass(kind, msgspec.Struct))
    free = not structures and {dict, list, tuple} & {typing.get_origin(kind) for kind in types}
    return None if free else structures


def structures_below(kinds: Sequence[type[msgspec.Struct]], name: str) -> Sequence[type[msgspec.Struct]]:
    """Return the structures that the field `name` of `kinds` may hold; () for an unknown field or a single value."""
    types = [field.type for kind in kinds for field in msgspec.structs.fields(kind) if field.encode_name == name]
    nested = [inner for outer in types for inner in _nested_types(outer)]
    return tuple(kind for kind in nested if isinstance(kind, type) and issubclass(kind, msgspec.Struct))


def _nested_types(kind: Any) -> Iterator[Any]:
    """Yield a type and all its type arguments, nested ones too."""
    yield kind
    for argument in typing.get_args(kind):
        yield from _nested_types(argument)


def _entries(content: dict[str, Any], field: str) -> list[Any]:
    entries = content.get(field)
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"the recipe has no {field} to change. Add one first")
    return entries


def _put_in_input(content: dict[str, Any], path: list[str], value: Any) -> None:
    from curation.reading.inputs import FilesInput, HubInput, is_hub

    entries = _entries(content, "input")
    number, rest = _named_input(entries, path)
    if not rest:
        raise ValueError(f"name a field of the input: input.{path[0]}.sample")
    if isinstance(entries[number], str):
        entries[number] = {"path": entries[number]}
    entry = entries[number]
    kind = HubInput if isinstance(entry, dict) and is_hub(str(entry.get("path"))) else FilesInput
    _put_field(entry, (kind,), ["input", path[0]], rest, value)


def _named_input(entries: list[Any], path: list[str]) -> tuple[int, list[str]]:
    """Return the number of the input with which a path begins, and the rest of the path; names may contain dots."""
    from curation.reading.inputs import input_names, list_inputs

    if path[0].isdecimal():
        return _number(path[0], len(entries), "input"), path[1:]
    names = input_names(list_inputs(entries))
    return _named(names, path, "input")


def _named(names: Sequence[str], path: list[str], what: str) -> tuple[int, list[str]]:
    """Return the number of the longest of `names` with which a path begins, and the rest of the path."""
    for length in range(len(path), 0, -1):
        name = ".".join(path[:length])
        fits = [number for number, known in enumerate(names) if known == name]
        if fits:
            return fits[0], path[length:]
    hint = nearest(path[0], names)
    separator = " Or" if hint.endswith("?") else "; or"
    raise ValueError(f"no {what} named {path[0]!r}{hint}{separator} give its number, from 0")


# Stages


def _put_in_stage(content: dict[str, Any], path: list[str], value: Any) -> None:
    stages = _entries(content, "stages")
    number, rest = _named_stage(stages, path)
    stage = stages[number]
    where = ["stages", *path[: len(path) - len(rest)]]
    if not rest:
        raise ValueError(f"name a field of the stage: {'.'.join(where)}.name")
    kind = STAGES.get(stage["kind"])  # None for a kind outside the package
    is_measure_words = rest[0] == "words" and not (len(rest) == 1 and value in WORDS)  # `words` is a field, too
    if kind is Filter and (is_measure_words or rest[0] not in Filter.__struct_fields__):
        put_rule(stage, rest, value, ".".join(where))
    else:
        _put_field(stage, None if kind is None else (kind,), where, rest, value)


def _named_stage(stages: list[Any], path: list[str]) -> tuple[int, list[str]]:
    """Return the number of the stage with which a path begins, and the rest of the path; names win over kinds."""
    for number, entry in enumerate(stages):
        if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
            raise ValueError(f"stages[{number}] is not a stage; expected a mapping with a kind")
    if path[0].isdecimal():
        return _number(path[0], len(stages), "stages"), path[1:]
    kinds = [entry["kind"] for entry in stages]
    names = stage_names([(str(entry.get("name") or ""), entry["kind"]) for entry in stages])
    fits = [number for number, kind in enumerate(kinds) if kind == path[0]]
    if len(fits) > 1 and path[0] not in names:
        raise ValueError(f"{path[0]!r} is ambiguous: name {' or '.join(names[number] for number in fits)}")
    number, rest = _named([*names, *kinds], path, "stage")
    return number % len(stages), rest
