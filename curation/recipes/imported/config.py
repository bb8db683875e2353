# SPDX-License-Identifier: Apache-2.0
"""Reads the configuration of another tool and writes a recipe."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from curation.base.errors import RecipeError
from curation.base.system.os_errors import explain
from curation.base.system.path_advice import advice
from curation.base.system.terminal import printable_line
from curation.reading.inputs import is_hub
from curation.recipes.imported import curator, datajuicer, datatrove, dolma
from curation.recipes.imported.entries import WHEN, Entry, NotTranslated, Settings, Translation, Translator
from curation.recipes.imported.scripts import pipelines_of
from curation.recipes.recipe import convert_recipe, parse_recipe
from curation.recipes.yaml_text import flow, parse_yaml

MAX_BYTES = 4_000_000
SCRIPT, STRUCTURED = ".py", (".yaml", ".yml", ".json")
MAX_SHOWN = 80  # characters of a name
MAX_NAMED, MAX_REASONS = 10, 3  # keys and entries in a message
KEYS: dict[str, Any] = {  # a key at the top -> the tool that has it
    "process": datajuicer,
    "streams": dolma,
    "taggers": dolma,
    "dedupe": dolma,
    "tokenizer_name_or_path": dolma,
    "tokenizer": dolma,
    "workflow": curator,
    "filters": curator,
    "stages": curator,
}
EXPECTED = "a configuration of NeMo Curator, data-juicer or dolma (.yaml, .json), or a script of datatrove (.py)"


class Imported(NamedTuple):
    """A recipe from another tool.

    tool             name of the tool
    text             YAML text of the recipe, with comments
    entries          number of entries of the configuration
    translated       number of entries that the recipe has
    differences      entries that the recipe has, with their differences
    not_translated   entries and settings without a counterpart, with the closest feature
    """

    tool: str
    text: str
    entries: int
    translated: int
    differences: list[str]
    not_translated: list[str]


class TranslatedEntry(NamedTuple):
    """An entry, its translation, and the settings that the file gives for it."""

    entry: Entry
    part: Translation
    given: str


def import_config(path: str, name: str = "recipe.yaml") -> Imported:
    """Return a recipe from the configuration of another tool, which is read and never run.

    path   a YAML or JSON file of NeMo Curator, data-juicer or dolma, or a Python script of datatrove
    name   file name of the recipe, for the commands in its comments

    Raises RecipeError for a file of another kind, or if no entry can be translated.
    """
    tool, entries, remark = _read(path)
    found, differences, missing = _translate(entries, tool)
    if not any(part != Translation(differs=part.differs) for _, part, _ in found):
        more = "; ..." if len(missing) > MAX_REASONS else ""
        raise RecipeError(
            f"{path}: nothing of this configuration of {tool.NAME} can be translated: "
            f"{'; '.join(missing[:MAX_REASONS]) or 'it has no entries'}{more}. `curate init` writes a first recipe"
        )
    head = [
        f"{len(found):,} of {len(entries):,} entries of {printable_line(Path(path).name)} ({tool.NAME}).",
        *remark,
        f"`curate import-config` wrote this recipe. Check it: curate plan {printable_line(name)}",
    ]
    body = [*_recipe_lines(found, Path(name).stem), *_notes(differences, missing)]
    text = "\n".join([*(f"# {line}" for line in head), *body]) + "\n"
    try:
        parse_recipe(text, name)
    except RecipeError as error:
        raise RecipeError(f"{path}: its parts make no recipe: {str(error).removeprefix(f'{name}: ')}") from None
    return Imported(tool.NAME, text, len(entries), len(found), differences, missing)


# Reading


def _read(path: str) -> tuple[Any, list[Entry], list[str]]:
    """Return the module of the tool, the entries of the file, and notes that concern all entries."""
    suffix = Path(path).suffix.lower()
    if Path(path).exists() and not Path(path).is_file():
        raise RecipeError(f"{path} is a folder, a pipe or a device, expected {EXPECTED}")
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise RecipeError(f"{path} does not exist{advice(path) or f'; expected {EXPECTED}'}") from None
    except OSError as error:
        raise RecipeError(f"{path} cannot be read: {explain(error)}") from None
    if suffix != SCRIPT and suffix not in STRUCTURED:
        raise RecipeError(f"{path} has the suffix {suffix or 'of no file'!r}, expected {EXPECTED}")
    if len(raw) > MAX_BYTES:
        raise RecipeError(f"{path} has more than {MAX_BYTES:,} bytes, too many for a configuration. Is it data?")
    if suffix == SCRIPT:
        try:
            pipelines = pipelines_of(raw.decode("utf-8-sig"), path)
        except UnicodeDecodeError:
            raise RecipeError(f"{path} is not UTF-8 text. Save the script as UTF-8") from None
        remark = f"Its {len(pipelines)} pipelines are one recipe, in their order: delete what belongs to another job."
        return datatrove, list(datatrove.entries_of(pipelines)), [remark] * (len(pipelines) > 1)
    content = parse_yaml(raw, path)
    tool = _tool_of(content, path)
    try:
        return tool, list(tool.entries_of(content)), []
    except (AttributeError, TypeError):  # text in place of a mapping, for example
        raise RecipeError(f"{path} has the keys of a configuration of {tool.NAME}, and values of other kinds") from None


def _tool_of(content: Any, path: str) -> Any:
    if not isinstance(content, dict):
        raise RecipeError(f"{path} holds no mapping at its top, expected {EXPECTED}")
    stages = content.get("stages")
    own = (
        [stage for stage in stages if not isinstance(stage, dict) or curator.TARGET not in stage]
        if isinstance(stages, list)
        else []
    )
    if own and not content.keys() & (KEYS.keys() - {"stages", "tokenizer"}):
        raise RecipeError(
            f"{path} is a recipe of this package, or has stages without {curator.TARGET}. Run a recipe with "
            f"`curate run {path}`"
        )
    for key, tool in KEYS.items():
        if content.get(key):
            return tool
    names = ", ".join(printable_line(str(key)[:MAX_SHOWN]) for key in list(content)[:MAX_NAMED]) or "nothing"
    raise RecipeError(f"{path} has {names} at its top, none of {', '.join(KEYS)}. Expected {EXPECTED}")


# Translation


def _translate(entries: Iterable[Entry], tool: Any) -> tuple[list[TranslatedEntry], list[str], list[str]]:
    """Translate entries. Return the translated entries, a line per difference, and a line per missing counterpart."""
    found: list[TranslatedEntry] = []
    differences: list[str] = []
    missing: list[str] = []
    for entry in entries:
        settings = Settings(entry.settings, entry.name)
        try:
            part = _translated(entry, settings, tool.TABLE)
        except NotTranslated as error:
            missing.append(_line(entry, str(error)))
            continue
        if earlier := next((each.entry for each in found if _reads_again(each.part, part)), None):
            place = f"{earlier.name} ({earlier.place})"
            missing.append(_line(entry, f"{place} reads some of its files, and a run reads a file once. Edit input"))
            continue
        found.append(TranslatedEntry(entry, part, settings.given()))
        differences += [_line(entry, part.differs)] if part.differs else []
        if unasked := settings.unasked(tool.VOID):
            missing.append(_line(entry, f"not translated of it: {', '.join(unasked)}"))
    return found, differences, missing


def _reads_again(earlier: Translation, later: Translation) -> bool:
    """Whether two readers with different settings have files in common, by their paths."""
    return any(
        first != second
        and not is_hub(first["path"])
        and _has_common(*(os.path.normpath(each["path"]) for each in (first, second)))
        for first in earlier.inputs
        for second in later.inputs
    )


def _has_common(first: str, second: str) -> bool:
    return any(
        fnmatchcase(one, other) or one.startswith(f"{other}/") for one, other in ((first, second), (second, first))
    )


def _translated(entry: Entry, settings: Settings, table: Mapping[str, Translator]) -> Translation:
    """Translate an entry. Raises NotTranslated for an unknown name, and for settings that no recipe accepts."""
    if entry.name not in table:
        raise NotTranslated("no counterpart is known" if entry.place else "no list of steps and no step in this file")
    try:
        part = table[entry.name](settings)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:  # a wrong kind
        raise NotTranslated(f"its settings have unexpected values ({type(error).__name__})") from None
    part = part._replace(steps=tuple(map(_whole, part.steps)))
    content: dict[str, Any] = {"stages": [*_as_stages(part.steps)], "input": [*part.inputs]}
    content |= {"tokenizer": dict(part.tokenizer)} if part.tokenizer else {}
    try:
        convert_recipe(content | ({"output": dict(part.output)} if part.output else {}))
    except RecipeError as error:
        raise NotTranslated(str(error).removeprefix("recipe: ").partition(" - at `")[0]) from None
    return part


def _whole(value: Any) -> Any:
    """Return a value in which floats such as 5.0 are integers, since YAML of other tools may have such floats for
    counts."""
    if isinstance(value, dict):
        return {name: _whole(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) > 1 else value


def _is_stage(step: Any) -> bool:
    return isinstance(step, dict) and "kind" in step


def _as_stages(steps: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the stages of steps; consecutive rules form one filter."""
    rules: list[Any] = []
    for step in steps:
        if not _is_stage(step):
            rules.append(step)
            continue
        if rules:
            yield {"kind": "filter", "rules": rules}
        rules = []
        yield step
    if rules:
        yield {"kind": "filter", "rules": rules}


# Writing


def _recipe_lines(found: list[TranslatedEntry], name: str) -> Iterator[str]:
    yield f"name: {flow(name)}"
    yield from _input_lines(found)
    yield from _stage_lines(found)
    tokenizer: dict[str, Any] = {}
    output: dict[str, Any] = {"formats": []}
    for entry, part, given in found:
        tokenizer |= part.tokenizer
        output |= part.output
        if part.tokenizer:
            yield f"# {_comment(entry, given)}"
    if tokenizer:
        yield f"tokenizer: {flow(tokenizer)}"
    yield f"output: {flow(output)}"


def _input_lines(found: list[TranslatedEntry]) -> Iterator[str]:
    """Yield the lines of the inputs, each input once, with the settings that concern all inputs."""
    of_all: dict[str, Any] = {}
    for _, part, _ in found:
        for key, value in part.of_inputs.items():
            of_all[key] = _joined(of_all[key], value) if key in of_all and key == "columns" else value
    seen: list[dict[str, Any]] = []
    for entry, part, given in found:
        for content in part.inputs:
            if content in seen:
                continue
            if not seen:
                yield "input:"
            seen.append(content)
            yield f"  # {_comment(entry, given)}"
            yield f"  - {flow(content | {key: value for key, value in of_all.items() if _fits(key, content)})}"
    if not seen:
        yield "# The configuration names no input: give --input PATH, or write"
        yield f"# input: [{flow({'path': 'data'} | of_all)}]"


def _fits(key: str, content: dict[str, Any]) -> bool:
    """Return whether an input may have a setting: only inputs of web pages have `extract`."""
    return key != "extract" or content.get("format") == "warc"


def _joined(columns: Any, more: Any) -> dict[str, str]:
    """Return two values of `columns` as one mapping."""
    found = [value if isinstance(value, dict) else {name: name for name in value} for value in (columns, more)]
    return found[0] | found[1]


def _stage_lines(found: list[TranslatedEntry]) -> Iterator[str]:
    """Yield the lines of the stages. Consecutive rules form one filter, with a comment above each rule that names its
    entry."""
    in_rules, taken, is_first = False, set[str](), True
    for entry, part, given in found:
        comment = [_comment(entry, given)]
        for step in _renamed(part.steps, taken):
            if is_first:
                yield "stages:"
            is_first = False
            if _is_stage(step):
                in_rules = False
                yield from (f"  # {line}" for line in comment)
                comment = []
                yield f"  - {flow(step)}"
                continue
            if not in_rules:
                yield "  - kind: filter"
                yield "    rules:"
            in_rules = True
            yield from (f"      # {line}" for line in comment)
            comment = []
            yield f"      - {flow(step)}"
    if is_first:
        yield "stages: []"


def _renamed(steps: tuple[Any, ...], taken: set[str]) -> list[Any]:
    """Return the steps with stages renamed so that no earlier stage has the same name; `when` is adapted."""
    named = {step["name"]: "" for step in steps if _is_stage(step) and step.get("name")}
    for name in named:
        number = 2
        named[name] = name
        while named[name] in taken:
            named[name], number = f"{name}_{number}", number + 1
    taken |= {*named.values()}
    changed = [dict(step) if _is_stage(step) else step for step in steps]
    for step in (step for step in changed if _is_stage(step)):
        if step.get("name"):
            step["name"] = named[step["name"]]
        if WHEN in step:
            first, name, last = step[WHEN].split(".")
            step[WHEN] = f"{first}.{named.get(name, name)}.{last}"
    return changed


def _comment(entry: Entry, given: str) -> str:
    place = f"{entry.place} " if entry.place and entry.place != entry.name else ""
    return printable_line(f"{place}{entry.name}{f': {given}' if given else ''}")


def _line(entry: Entry, note: str) -> str:
    place = f" ({entry.place})" if entry.place and entry.place != entry.name else ""
    return printable_line(f"{entry.name[:MAX_SHOWN]}{place}: {note}")


def _notes(differences: list[str], missing: list[str]) -> Iterator[str]:
    for title, lines in (("Not the same here", differences), ("Not translated", missing)):
        if lines:
            yield f"# {title}:"
            yield from (f"# - {line}" for line in lines)
