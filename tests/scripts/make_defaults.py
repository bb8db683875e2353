# SPDX-License-Identifier: Apache-2.0
"""Write `tests/golden/defaults.json`: every default and bound, one to a line, and the revisions of stages.

    python -m tests.scripts.make_defaults

It refuses a changed value until `revision` of the stage is raised and the top section of CHANGELOG.md names the setting
below `### Migration`. `changed` in the file keeps such changes with their section, so that tests miss a note that a
merge has lost.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.inspect import StructType, type_info

import curation
from curation.recipes.recipe import Recipe
from curation.rules.decide import SET_NAMES, expand_rules
from curation.rules.fineweb2_file import ENGLISH
from curation.rules.grammar import Rule
from curation.rules.groups import GroupedRule
from curation.rules.units import UnitRule
from curation.stages import STAGES
from curation.tokens.tokenization import REVISION

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "defaults.json"
REVISED = " (revision)"  # end of a name
COMMAND = "python -m tests.scripts.make_defaults"
OF_RULES = "filter"  # rule sets have its revision
Values = dict[str, Any]


class Changelog(NamedTuple):
    """The top section of CHANGELOG.md: its name, and the notes below `### Migration`, a line each."""

    section: str
    notes: list[str]


def read_changelog(text: str) -> Changelog:
    """Return the top section of the text of a log."""
    section, _, content = text.partition("\n## ")[2].partition("\n## ")[0].partition("\n")
    notes = content.partition("\n### Migration\n")[2].partition("\n### ")[0].split("\n- ")[1:]
    return Changelog(section.strip("[").partition("]")[0], [" ".join(note.split()) for note in notes])


def changelog() -> Changelog:
    return read_changelog((ROOT / "CHANGELOG.md").read_text("utf-8"))


def read_golden() -> Values:
    """Return the stored `defaults`, name -> value, and `changed`, name -> what was before and in which section."""
    return json.loads(GOLDEN.read_text("utf-8"))


# The product


def defaults() -> Values:
    """Return the revisions, defaults and bounds of the product: name -> JSON value."""
    found: Values = {f"{kind}{REVISED}": stage.revision for kind, stage in STAGES.items()}
    found[f"tokenizer{REVISED}"] = REVISION
    for kind, stage in (STAGES | {"rule": UnitRule}).items():
        found |= {name: value for name, value in _settings(type_info(stage), kind) if name != f"{kind}.name"}
    found |= _settings(type_info(Recipe), "recipe", inside=True)
    for name in SET_NAMES:
        found |= _rules(name)
    for name in (name for name in curation.__all__ if name not in (*STAGES, "read")):
        function = getattr(curation, name)
        for each in inspect.signature(function).parameters.values() if inspect.isfunction(function) else ():
            if each.default is not each.empty:
                found[f"curation.{name}.{each.name}"] = each.default
    return json.loads(json.dumps(found, default=str))


def _settings(info: Any, prefix: str, value: object = None, inside: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the defaults of a structure, those of `value` where it is given, and of the structures inside."""
    for field in info.fields:
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        default, name = getattr(value, field.name, default), f"{prefix}.{field.encode_name}"
        if default in (msgspec.NODEFAULT, msgspec.UNSET):
            default = "required" if field.required else "unset"
        if not isinstance(default, msgspec.Struct):
            yield name, msgspec.to_builtins(default)
        found = [*_structures(field.type)] if inside else []
        for each in found:
            path = name.removeprefix("recipe.") + f".{each.tag}" * (len(found) > 1)
            yield from _settings(each, path, default if type(default) is each.cls else None, inside)


def _structures(kind: Any) -> Iterator[StructType]:
    """Yield the structures in a type."""
    if isinstance(kind, StructType):
        yield kind
        return
    inner = [getattr(kind, part) for part in ("item_type", "value_type") if hasattr(kind, part)]
    for each in (*inner, *getattr(kind, "types", ())):
        yield from _structures(each)


def _rules(name: str) -> Values:
    """Return the rules of a set by reason, the second one of a reason with `.2`, and their order."""
    found: Values = {f"{name}.order": []}
    for rule in expand_rules(name):
        number = found[f"{name}.order"].count(rule.name) + 1
        found[f"{name}.order"].append(rule.name)
        found[f"{name}.{rule.name}" + f".{number}" * (number > 1)] = _bounds(rule)
    return found


def _bounds(rule: Rule) -> Values:
    """Return what a rule says; of one with groups the bounds of English, the number of groups and a digest of all."""
    fields = [field for field in msgspec.structs.fields(Rule) if field.name not in ("reason", "listed")]
    said = {each.encode_name: found for each in fields if (found := getattr(rule, each.name)) != each.default}
    if not isinstance(rule, GroupedRule):
        return said
    table = hashlib.sha256(rule.limits.astype("<f8").tobytes())
    lists = {number: listed.words for number, listed in rule.lists.items()}
    table.update(repr((lists, rule.instead)).encode())
    english = [None if math.isnan(bound) else bound for bound in rule.limits[:, rule.groups.numbers[ENGLISH]].tolist()]
    return said | {"english": english, "groups": int(rule.member.sum()), "sha256": table.hexdigest()[:16]}


# What a change needs


def owner_of(name: str) -> str:
    """Return the stage whose revision is raised with a setting, or ""."""
    first = name.partition(".")[0]
    return OF_RULES if first in SET_NAMES else first if first in STAGES else ""


def differing(old: Values, now: Values) -> list[str]:
    """Return the names whose values differ, and those in one of the two alone."""
    return [name for name in {**old, **now} if shown(old, name) != shown(now, name)]


def shown(values: Values, name: str) -> str:
    return json.dumps(values[name], ensure_ascii=False) if name in values else "(none)"


def kept_changes(golden: Values, now: Values, section: str) -> Values:
    """Return the changes of this section: those in the file, and those since. New settings are no changes, but new
    rules of a set are."""
    old = golden["defaults"]
    kept = {name: each for name, each in golden["changed"].items() if each["section"] == section}
    for name in differing(old, now):
        if name in old or f"{name.partition('.')[0]}.order" in old:
            was = kept[name]["was"] if name in kept else shown(old, name)
            kept[name] = {"section": section, "was": was, "revision": old.get(f"{owner_of(name)}{REVISED}", 0)}
    return kept


def missing_steps(golden: Values, now: Values, log: Changelog) -> list[str]:
    """Return what the changes of this section still need: revisions, and notes."""
    changed = kept_changes(golden, now, log.section)
    before = {
        owner_of(name): changed[name]["revision"] for name in sorted(changed, key=lambda n: changed[n]["revision"])
    }
    low = {stage: number + 1 for stage, number in before.items() if now.get(f"{stage}{REVISED}", number + 1) <= number}
    wanted = {name: now.get(name) for name in changed} | {f"{stage}{REVISED}": number for stage, number in low.items()}
    notes = [
        text_on(name, value, changed[name]["was"] if name in changed else "")
        for name, value in wanted.items()
        if not any(names_it(note, name, value) for note in log.notes)
    ]
    steps = [
        f"Raise `revision` of {stage} to {number}, in its class below curation/stages." for stage, number in low.items()
    ]
    if notes:
        steps.append(f"Add below `### Migration` of [{log.section}] in CHANGELOG.md:\n   - {'; '.join(notes)}.")
    return steps


def text_on(name: str, value: object, was: str) -> str:
    """Return the note on a changed value; None: the setting is removed."""
    if name.endswith(REVISED):
        return f"`{name.removesuffix(REVISED)}` has revision {value}"
    change = "has other bounds" if isinstance(value, dict) else f"is {json.dumps(value)}, before {was}"
    return f"`{name}` {'is removed' if value is None else change}"


def names_it(note: str, name: str, value: object) -> bool:
    """Whether a note has the name and, if it is a string or a number, the value."""
    if name.endswith(REVISED):
        name, value = f"`{name.removesuffix(REVISED)}`", f"revision {value}"
    text = value if isinstance(value, str) else json.dumps(value) if isinstance(value, int | float) else ""
    return all(re.search(rf"(?<!\w){re.escape(part)}(?!\.?\w)", note.replace(",", "")) for part in (name, text))


def explain(golden: Values, now: Values, log: Changelog) -> str:
    """Return what to do for a product with other defaults than the file; "" if they are equal."""
    old = golden["defaults"]
    lines = [f"   {name}: {shown(old, name)} -> {shown(now, name)}" for name in differing(old, now)]
    steps = missing_steps(golden, now, log)
    if lines or steps:
        steps.append(f"Run `{COMMAND}`, and commit tests/golden/defaults.json.")
        lines += [f"{number}. {step}" for number, step in enumerate(steps, 1)]
        return "\n".join(["defaults differ from tests/golden/defaults.json, or lack their note:", *lines])
    return ""


def file_text(golden: Values) -> str:
    """Return the text of the file: an entry to a line."""
    parts = (
        f"{json.dumps(part)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {shown(values, name)}" for name in values)
        + "\n}"
        for part, values in golden.items()
    )
    return "{\n" + ",\n".join(parts) + "\n}\n"


def write() -> str:
    """Write the file, and return ""; or return what a change still needs."""
    golden, now, log = read_golden(), defaults(), changelog()
    if missing_steps(golden, now, log):
        return explain(golden, now, log)
    changed = kept_changes(golden, now, log.section)
    GOLDEN.write_text(file_text({"changed": changed, "defaults": now}), "utf-8")
    return ""


if __name__ == "__main__":
    sys.exit(write() or None)
