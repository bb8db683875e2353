# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of a recipe, for editors that complete and check YAML.

The schema is generated from the structures of recipes and covers names, types, choices and shorthands. `curate plan`
finds the errors that need a comparison of several settings.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from curation.base.measures import TOKENS, Measure
from curation.kernels.units import UNITS
from curation.reading.extract_settings import EXTRACTORS, KEPT
from curation.reading.formats import FORMATS
from curation.reading.inputs import AUTO
from curation.recipes import recipe as recipes
from curation.recipes.exports import PATTERN as EXPORT
from curation.recipes.optional import PATTERN as SETTING
from curation.recipes.optional import WHEN
from curation.recipes.settings import RULE_FIELDS, SUBJECTS
from curation.rules.decide import RULE_SETS, SET_NAMES
from curation.rules.units import LANGUAGE, REPEATS
from curation.stages import STAGES
from curation.stages.corpus.similarity import COMPARISONS
from curation.stages.exact import exact_dedup as exact
from curation.stages.exact import line_dedup as lines
from curation.stages.exact import span_cuts, unit_keys
from curation.stages.near import fuzzy_dedup as fuzzy
from curation.stages.rows import redact, rewrite
from curation.tokens.blends import NAMES, WAYS
from curation.tokens.forms import OUTPUT_FORMATS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEMPLATE = "#/$defs/{name}"
FIELD_LINE = re.compile(r"((?:\w+, )*\w+) {2,}(\S.*)")  # lines of a docstring with names and their description
CHOICES: dict[str, Mapping[str, tuple[str, ...]]] = {
    "Rewrite": rewrite.CHOICES,
    "Redact": redact.CHOICES,
    "ExactDedup": {"compare": tuple(exact.COMPARED)},
    "LineDedup": {"unit": UNITS, "compare": unit_keys.COMPARISONS, "keep": lines.KEEP},
    "SubstringDedup": {"bounds": tuple(span_cuts.BOUNDS)},
    "FuzzyDedup": fuzzy.CHOICES,
    "Lines": {"unit": UNITS},
    "NgramDedup": {"compare": tuple(COMPARISONS)},
    "Decontaminate": {"compare": tuple(COMPARISONS)},
    "FilesInput": {"format": (AUTO, *FORMATS)},
    "Extract": {"by": EXTRACTORS, "tables": KEPT, "lists": KEPT},
    "Output": {
        "formats": OUTPUT_FORMATS,
    },
    "Blend": {"by": WAYS},
    "Megatron": {"names": NAMES},
}
KIND = "kind"
OWN = ":"  # in the kind of a stage outside the package, MODULE:CLASS
INPUTS = ("FilesInput", "HubInput")
OF_UNITS = (LANGUAGE, "min_probability")  # a rule of lines, paragraphs and sentences
OF_GROUPS = ("other", "group_override")  # keys of a set whose rules have groups
OPENAPI_ONLY = "discriminator"


def recipe_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a recipe. Settings of stages outside the package are not checked."""
    stages = tuple(STAGES.values())
    roots, definitions = msgspec.json.schema_components([recipes.Recipe, *stages], ref_template=TEMPLATE)
    structures = {kind.__name__: kind for kind in _structures([recipes.Recipe, *stages])}
    for name, entry in definitions.items():
        _describe(entry, structures[name])
        for field, choices in CHOICES.get(name, {}).items():
            _restrict(entry["properties"][field], choices)
    for name in INPUTS:  # the path determines the kind
        definitions[name]["required"].remove(KIND)
    for name in ("raw", "cleaned"):
        definitions["Output"]["properties"][name]["pattern"] = f"^(?:{EXPORT})$"
    definitions |= _rule_forms(definitions)
    definitions["Recipe"]["properties"]["stages"]["items"] = _stage_forms(definitions, stages)
    cleaned = {name: _without_void(entry) for name, entry in definitions.items()}
    return {"$schema": DIALECT, "title": "A recipe of gpu-pipeline", **roots[0], "$defs": cleaned}


def _structures(roots: list[type[msgspec.Struct]]) -> list[type]:
    """Return the structures and all structures inside their fields."""
    structures: dict[type, None] = {}
    waiting: list[Any] = list(msgspec.inspect.multi_type_info(roots))
    for node in waiting:  # the loop appends to it
        if isinstance(node, msgspec.inspect.StructType) and node.cls not in structures:
            structures[node.cls] = None
            waiting += [field.type for field in node.fields]
        waiting += [getattr(node, part) for part in ("item_type", "value_type") if hasattr(node, part)]
        waiting += [*getattr(node, "item_types", ()), *getattr(node, "types", ())]
    return list(structures)


def _describe(entry: dict[str, Any], structure: type) -> None:
    """Copy the docstring of a structure into its schema: the first paragraph, and the lines on fields."""
    text = inspect.getdoc(structure) or ""
    entry["description"] = " ".join(text.partition("\n\n")[0].split())
    for name, description in field_texts(text).items():
        if name in entry["properties"] and "$ref" not in entry["properties"][name]:
            entry["properties"][name]["description"] = description


def field_texts(docstring: str) -> dict[str, str]:
    """Return field -> description, from docstring lines such as `unit, compare   ...` and the indented ones after."""
    texts: dict[str, list[str]] = {}
    names: list[str] = []
    for line in docstring.splitlines():
        if match := FIELD_LINE.fullmatch(line):
            names = [name for name in match[1].split(", ") if name not in texts]  # the first line counts
            texts |= {name: [match[2]] for name in names}
        elif line.startswith("    ") and names:
            for name in names:
                texts[name].append(line.strip())
        else:
            names = []
    return {name: " ".join(lines) for name, lines in texts.items()}


def _restrict(entry: dict[str, Any], choices: tuple[str, ...]) -> None:
    """Restrict a field, or each entry of its list, to `choices`."""
    target = entry["items"] if entry.get("type") == "array" else entry
    target["enum"] = list(choices)


def _rule_forms(definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the forms of rules: the name of a set, a rule, a mapping by measure, ratio or column, or a list of
    these."""
    return _forms_of(definitions, "Filter", "", ()) | _forms_of(definitions, "Lines", "Unit", (REPEATS,))


def _forms_of(definitions: dict[str, Any], stage: str, prefix: str, measures: tuple[str, ...]) -> dict[str, Any]:
    properties = definitions[f"{prefix}Rule"]["properties"]
    conditions = {name: entry for name, entry in properties.items() if name not in (*SUBJECTS, *OF_GROUPS, *OF_UNITS)}
    sets = RULE_SETS if prefix else SET_NAMES  # units have no columns, and hence no groups
    changes = next(form for form in properties["override"]["anyOf"] if form.get("type") == "object")
    one_rule = changes["additionalProperties"]
    by_language = {"type": "object", "additionalProperties": one_rule}  # of a set whose rules have groups
    changes["additionalProperties"] = {"anyOf": [one_rule, by_language]}
    override = {"anyOf": [{"type": "null"}, *properties["override"]["anyOf"]]}
    bound = {"$ref": TEMPLATE.format(name=f"{prefix}Conditions")}
    keyed = dict.fromkeys(sets, override) | dict.fromkeys((*Measure.__members__, TOKENS, *measures), bound)
    names = (f"{prefix}Rule", f"{prefix}KeyedRules")
    one = [{"enum": list(sets)}, *({"$ref": TEMPLATE.format(name=name)} for name in names)]
    if not prefix:
        groups = {"anyOf": [*one, {"type": "string"}, {"type": "array", "items": {"anyOf": one}}]}
        properties["rules"] = {"type": "object", "minProperties": 1, "additionalProperties": groups}
    else:
        del properties["rules"]
    properties["any"] = {"type": "array", "minItems": 2, "items": {"anyOf": one[1:]}}
    definitions[stage]["properties"]["rules"] = {"anyOf": [*one, {"type": "array", "items": {"anyOf": one}}]}
    return {
        f"{prefix}Conditions": {
            "type": "object",
            "properties": conditions,
            "minProperties": 1,
            "additionalProperties": False,
        },
        f"{prefix}KeyedRules": {
            "description": "Rules by a set, a measure, a ratio (`a/b`) or a column",
            "type": "object",
            "properties": keyed,
            "propertyNames": {"not": {"enum": sorted({*RULE_FIELDS, *(OF_UNITS if prefix else ())})}},
            "minProperties": 1,
            "additionalProperties": bound,
        },
    }


def _stage_forms(definitions: dict[str, Any], stages: tuple[type[msgspec.Struct], ...]) -> dict[str, Any]:
    """The forms of a stage: with its `kind`, as `KIND: {...}`, or as the kind alone if no setting is required."""
    forms: list[dict[str, Any]] = []
    bare = []
    for stage in stages:
        name, kind = stage.__name__, str(stage.__struct_config__.tag)
        whole = definitions[name]
        settings = {field: entry for field, entry in whole["properties"].items() if field != KIND}
        required = [field for field in whole["required"] if field != KIND]
        definitions[f"{name}Settings"] = whole | {"properties": settings, "required": required}
        value: dict[str, Any] = {"$ref": TEMPLATE.format(name=f"{name}Settings")}
        if not required:
            bare.append(kind)
            value = {"anyOf": [value, {"type": "null"}]}
        keyed = {"type": "object", "properties": {kind: value}, "required": [kind], "additionalProperties": False}
        forms += [{"$ref": TEMPLATE.format(name=name)}, keyed]
    own = {"type": "object", "properties": {KIND: {"type": "string", "pattern": OWN}}, "required": [KIND]}
    when = {KIND: {"enum": list(STAGES)}, WHEN: {"type": "string", "pattern": f"^{SETTING}$"}}
    optional = {"type": "object", "properties": when, "required": [KIND, WHEN]}
    return {"anyOf": [*forms, {"enum": bare}, own, optional]}


def _without_void(value: Any) -> Any:
    """Return the schema without infinite defaults, which JSON cannot represent, and without OpenAPI keywords."""
    if isinstance(value, dict):
        kept = {key: entry for key, entry in value.items() if key != OPENAPI_ONLY and not _is_infinite(key, entry)}
        return {key: _without_void(entry) for key, entry in kept.items()}
    return [_without_void(entry) for entry in value] if isinstance(value, list) else value


def _is_infinite(key: str, value: Any) -> bool:
    return key == "default" and isinstance(value, float) and not math.isfinite(value)
