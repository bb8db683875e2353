# SPDX-License-Identifier: Apache-2.0
"""Advice for a recipe of the wrong shape: what to write instead of the value that msgspec refuses.

msgspec names the fault and its place: "Expected `array`, got `str` - at `$.stages`". The functions add the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from curation.base.errors import RecipeError, nearest
from curation.reading.inputs import FilesInput, HubInput, is_hub
from curation.recipes.settings import structures_below
from curation.rules.keywords import as_rule
from curation.stages import STAGES, Filter
from curation.tokens.forms import OUTPUT_FORMATS

EXPECTED = re.compile(r"Expected `(?:object \| (?=array))?(\w+)(?: \| \w+)*`, got `(\w+)`(?: - at `\$(.*)`)?")
UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$(.*)`)?")
MISSING = re.compile(r"Object missing required field `(.*?)`(?: - at `\$(.*)`)?")
STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
EXPONENT = re.compile(r"[-+]?\d+\.?\d*[eE][-+]?\d{1,2}")
KEY = re.compile(r"Expected `str`, got `\w+` - at `key` in `\$(.*?)`(?: - at `\$(.*)`)?")
NUMBER = re.compile(r"[-+]?[\d_]*\.?\d+")
PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")
SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kKMGT])(?:i?[bB])?")
UNITS = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
EXAMPLE = "stages: [exact_dedup]"
COLUMNS = "Write a list, columns: [score], or a mapping with all names, columns: {new_name: field, score: score}"
HYDRA = "_target_"
PARTS = {"input": "an input", "tokenizer": "tokenizer:", "output": "output:", "budget": "budget:"}
SHORT = {"filter": "rules", "language": "keep"}  # the setting that is meant if a single value replaces the settings
REQUIRED = {  # examples of settings without a default
    ("filter", "rules"): "rules: gopher, or rules: {words: {min: 50}}",
    ("language", "keep"): "keep: [en]",
}


def refuse_hydra(content: Any) -> None:
    """Raise RecipeError for a configuration of Hydra, such as one of NeMo Curator: it names classes."""
    waiting: list[tuple[str, Any]] = [("$", content)]
    for path, value in waiting:  # the loop appends to it
        if isinstance(value, dict) and HYDRA in value:
            raise RecipeError(
                f"{HYDRA}: {value[HYDRA]} is a configuration of Hydra, as NeMo Curator has them, expected a recipe. "
                f"Name stages by their kind: stages: [{{kind: filter, rules: gopher}}]; `curate recipes show nemo` "
                f"prints an example, and `curate import-config FILE` writes a recipe from FILE - at `{path}`"
            )
        entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        waiting += [(f"{path}[{key}]" if isinstance(value, list) else f"{path}.{key}", entry) for key, entry in entries]


def advice_for(message: str, content: Any, recipe: type[msgspec.Struct]) -> str:
    """Return the remedy for a message of msgspec about `content`, or "". The remedy is appended to the message.

    recipe   the structure of a recipe
    """
    if match := UNKNOWN.match(message):
        return _for_unknown(match[1], _steps(match[2]), content, recipe)
    if match := MISSING.match(message):
        return _for_missing(match[1], _value_at(content, _steps(match[2])), recipe, _steps(match[2]))
    if match := KEY.match(message):
        return _for_key(_steps(match[2]) + _steps(match[1]), content)
    if match := EXPECTED.match(message):
        return _for_type(match[1], match[2], _steps(match[3]), content, recipe)
    return ""


def _steps(path: str | None) -> list[str | int]:
    return [name or int(number) for name, number in STEP.findall(path or "")]


def _value_at(content: Any, steps: Sequence[str | int]) -> Any:
    """Return the value at a path; None if the path has no value."""
    for step in steps:
        try:
            content = content[step]
        except (LookupError, TypeError):
            return None
    return content


# Unknown and missing fields


def _for_unknown(name: str, steps: Sequence[str | int], content: Any, recipe: type[msgspec.Struct]) -> str:
    parent = _value_at(content, steps)
    fields = [field for kind in _structures_at(steps, content, recipe) for field in kind.__struct_encode_fields__]
    hint = nearest(name, fields)
    if longer := _longer(name, fields):
        return longer
    is_filter = isinstance(parent, dict) and parent.get("kind") == Filter.__struct_config__.tag
    if is_filter and (rule := as_rule(name, parent.get(name))):  # `words` is a setting, close to `min_words`
        return f". Write rules: {rule}"
    others = _structures_with(name, recipe)
    if hint.startswith("; did") and (not others or f"{name}s" in fields):
        return hint
    if ":" in name:
        return f". Put a space after the colon: {name.replace(':', ': ', 1)}"
    if not steps and name in STAGES:
        return f"; {name} is a stage. Write stages: [{{kind: {name}, ...}}]"
    return f"; it is a setting of {' or of '.join(others)}" if others else hint


def _longer(name: str, fields: Sequence[str]) -> str:
    """Return a question that names the fields which begin with `name` and "_"; "" if there are none."""
    longer = [field for field in fields if field.startswith(f"{name}_")]
    return f"; did you mean {' or '.join(longer)}?" if longer else ""


def _structures_at(
    steps: Sequence[str | int], content: Any, recipe: type[msgspec.Struct]
) -> Sequence[type[msgspec.Struct]]:
    """Return the structures that a path of a recipe may hold."""
    match list(steps):
        case ["stages", int(), *rest]:
            stage = STAGES.get(str((_value_at(content, steps[:2]) or {}).get("kind")))
            return _below([stage] if stage else [], rest)
        case ["input", int(), *rest]:
            path = (_value_at(content, steps[:2]) or {}).get("path")
            return _below([HubInput if isinstance(path, str) and is_hub(path) else FilesInput], rest)
        case other:
            return _below([recipe], other)


def _below(kinds: Sequence[type[msgspec.Struct]], steps: Sequence[str | int]) -> Sequence[type[msgspec.Struct]]:
    for step in steps:
        if isinstance(step, str):
            kinds = structures_below(kinds, step)
    return kinds


def _structures_with(name: str, recipe: type[msgspec.Struct]) -> list[str]:
    """Return the parts of a recipe that have a field of this name."""
    parts = [words for part, words in PARTS.items() for kind in structures_below([recipe], part)
             if name in kind.__struct_encode_fields__]  # fmt: skip
    kinds = [kind for kind, stage in STAGES.items() if name in stage.__struct_encode_fields__]
    return list(dict.fromkeys([*parts, *(f"a stage: {{kind: {kind}, {name}: ...}}" for kind in kinds)]))


def _for_missing(name: str, parent: Any, recipe: type[msgspec.Struct], steps: Sequence[str | int]) -> str:
    if not isinstance(parent, dict):
        return ""
    kind = parent.get("kind")
    if name == "kind" and steps[:1] == ["stages"]:
        return _for_missing_kind(parent)
    if example := REQUIRED.get((str(kind), name)):
        return f". Write {{kind: {kind}, {example}}}" if name != "rules" else f". Write {example}"
    return f". Add {name}:"


def _for_missing_kind(stage: dict[Any, Any]) -> str:
    """Return the remedy for a stage without its kind."""
    for key, value in stage.items():
        if isinstance(value, str) and value in STAGES:
            return f". Write kind: {value} instead of {key}: {value}"
        if key in STAGES and len(stage) > 1:
            return f". Indent the settings below {key}:, or write {{kind: {key}, ...}}"
        if key in STAGES:
            setting = f"{SHORT[key]}: [{value}]" if key in SHORT and isinstance(value, str) else "..."
            return f". The settings of {key} are a mapping: {{kind: {key}, {setting}}}"
    if len(stage) == 1 and isinstance(next(iter(stage)), str):
        return nearest(next(iter(stage)), STAGES)
    return f"; a kind is one of {', '.join(STAGES)}"


# Values of a wrong type


def _for_type(expected: str, got: str, steps: Sequence[str | int], content: Any, recipe: type[msgspec.Struct]) -> str:
    value, name = _value_at(content, steps), next((step for step in reversed(steps) if isinstance(step, str)), "")
    if not steps:
        return f". A recipe is a mapping, such as {EXAMPLE}"
    if expected == "array":
        return _for_list(name, value)
    if expected == "object":
        return _for_mapping(name, value, is_entry=isinstance(steps[-1], int))
    if expected in ("int", "float") and isinstance(value, str):
        return _for_number(expected, value)
    if expected == "str":
        kinds = _structures_at(steps[:-1], content, recipe) if isinstance(value, int | float) else ()
        fields = [field for kind in kinds for field in kind.__struct_encode_fields__]
        is_rule = (
            isinstance(value, dict) and steps[0] == "stages" and _value_at(content, [*steps[:-1], "kind"]) == "filter"
        )
        return f". Write rules: {{{name}: ...}}" if is_rule else _longer(name, fields) or _for_text(name, value, got)
    return ". Write true or false" if expected == "bool" else ""


def _for_key(steps: Sequence[str | int], content: Any) -> str:
    """Return the remedy for a key that is no text."""
    mapping = _value_at(content, steps)
    keys = [key for key in mapping if not isinstance(key, str)] if isinstance(mapping, dict) else []
    if not keys:
        return ""
    shown = f": {{'{keys[0]}': ...}}" if type(keys[0]) in (int, float) else ""  # YAML reads `no` as False
    return f". Quote the keys of {steps[-1]}{shown}"


def _for_text(name: str, value: Any, got: str) -> str:
    entries = value.items() if isinstance(value, dict) and got != "object" else ()
    numbers = [(key, entry) for key, entry in entries if isinstance(entry, int | float)]
    if numbers:  # the message does not name the entry
        return f". Quote it: {name}: {{{numbers[0][0]}: '{numbers[0][1]}'}}"
    if name == "columns":
        return f". {COLUMNS}"
    if isinstance(value, dict | list):
        return f". Write one value: {name}: ..." if got in ("object", "array") else ""
    return ". Write a value after the colon, or leave it out" if value is None else f". Quote it: {name}: '{value}'"


def _for_list(name: str, value: Any) -> str:
    if value is None:
        return f". Write {name}: [] for none, or leave it out"
    if isinstance(value, dict):
        return ". Write a list: - before each entry"
    if name == "input" and isinstance(value, str):
        return f". Write input: [{{path: {value}}}]"
    return f". Write a list: {name}: [{value}]" if isinstance(value, str | int | float) else ""


def _for_mapping(name: str, value: Any, is_entry: bool) -> str:
    if name == "max_removed" and isinstance(value, int | float):
        return f". Write max_removed: {{words: {value}}}"
    if not isinstance(value, str):
        return ". Leave it out to use the defaults" if value is None else ""
    if name == "input" and is_entry:
        return f". Write {{path: {value}}}"
    if name == "output" and value in OUTPUT_FORMATS:
        return f". Write output: {{formats: [{value}]}}"
    if name == "listed":
        return f". Write listed: {{file: {value}, as: domain}}"
    return f". Write {name}: {{name: {value}}}" if name == "tokenizer" else ""


def _for_number(expected: str, text: str) -> str:
    """Return the remedy for text in place of a number."""
    if NUMBER.fullmatch(text) and (expected == "float" or "." not in text):
        return ". Remove the quotes"
    if EXPONENT.fullmatch(text):  # text in YAML 1.1
        if expected == "int" and not float(text).is_integer():
            return ""
        written = f"{float(text):_.0f}" if expected == "int" else "it with a dot and a sign, as 1.0e-3"
        return f"; {text} is text in YAML, write {written}"
    if (match := PERCENT.fullmatch(text)) and expected == "float":
        return f". Write {float(match[1]) / 100:g}"
    if (match := SIZE.fullmatch(text)) and expected == "int":
        return f". Write {int(float(match[1]) * UNITS[match[2]]):_}"
    return ""
