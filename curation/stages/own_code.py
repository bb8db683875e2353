# SPDX-License-Identifier: Apache-2.0
"""Stages by their kinds: those of this package, and those of installed modules that the user has allowed.

A kind with a colon, `mypackage.stages:BlockUrls`, names a class of a module. The module is imported only where the user
allows its name: a recipe is data that people pass on, and importing runs code.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

import msgspec

from curation.errors import RecipeError, nearest
from curation.files import known_sha256
from curation.stages import STAGES, CorpusStage, RowStage, Stage

OWN_PACKAGE = "curation"
_SEARCHING = RLock()  # one thread at a time changes where Python looks for modules


def convert_stage(content: object, path: str, allow_code: Sequence[str]) -> Stage:
    """The stage of a recipe's entry. ValueError with the `path` of what is wrong, RecipeError for code that is not
    allowed, not installed or no stage."""
    if isinstance(content, Stage):
        return content
    if not isinstance(content, dict):
        raise ValueError(f"Expected `object`, got `{_json_type(content)}` - at `{path}`")
    kind = content.get("kind")
    if kind is None:
        raise ValueError(f"Object missing required field `kind` - at `{path}`")
    if not isinstance(kind, str):
        raise ValueError(f"Expected `str`, got `{_json_type(kind)}` - at `{path}.kind`")
    module, colon, _ = kind.partition(":")
    if colon and not _is_in(module, OWN_PACKAGE):
        _check_allowed(kind, module, allow_code)
        return _converted(content, own_class(kind), path)
    if kind not in STAGES:
        raise ValueError(f"Invalid value {kind!r} - at `{path}.kind`{nearest(kind, STAGES)}")
    return _converted(content, STAGES[kind], path)


def stage_for_job(stage: Stage) -> dict[str, Any]:
    """A stage as JSON, for tasks. RecipeError where they would read another one."""
    content = msgspec.json.decode(msgspec.json.encode(as_json(stage)))
    try:
        same = stage_from_job(content) == stage
    except (msgspec.ValidationError, TypeError, RecipeError) as error:
        raise RecipeError(f"{stage.kind}: tasks cannot read its settings: {error}") from None
    if not same:
        raise RecipeError(
            f"{stage.kind}: its settings change on their way to a task. Use what JSON has: text, finite numbers, true, "
            "false, null, lists and mappings of them"
        )
    return dict(content)


def stage_from_job(content: dict[str, Any]) -> Stage:
    """The stage that a task was sent, of whatever module: the driver of the run chose it, and the digest of the job
    says that it is the driver's."""
    kind = content["kind"]
    return msgspec.convert(content, STAGES[kind] if kind in STAGES else own_class(kind))


def check_class(stage: Stage) -> None:
    """RecipeError for a stage that a task would take for one of another class: they find it by its kind."""
    kind, own = stage.kind, f"{type(stage).__module__}:{type(stage).__qualname__}"
    if STAGES.get(kind) is type(stage) or kind == own:
        return
    raise RecipeError(f"{own} has the kind {kind!r}, by which a run finds another class; write tag={own!r}")


def files_of(stage: Stage) -> dict[str, str]:
    """What a stage depends on besides its settings: its files, and for a stage of another package the source file of
    its module, but not what that imports. Name -> SHA-256."""
    module = type(stage).__module__
    if _is_in(module, OWN_PACKAGE):
        return stage.files()
    source = getattr(sys.modules[module], "__file__", None)
    if module == "__main__" or not source:
        raise RecipeError(
            f"{stage.kind}: a run needs stages of an installed module, and {module} has no file of its own"
        )
    return stage.files() | {f"module {module}": known_sha256(source)}


def own_class(kind: str) -> type[Stage]:
    """The class that a kind with a colon names. RecipeError where there is none, or none that is a stage."""
    name, _, qualified = kind.partition(":")
    found = getattr(_import(kind, name), qualified, None)
    if not (isinstance(found, type) and issubclass(found, RowStage | CorpusStage)):
        raise RecipeError(f"{kind}: {name} has no class {qualified} that is a RowStage or a CorpusStage")
    if found.__struct_config__.tag != kind:
        raise RecipeError(
            f"{kind}: the class must say what it is called in recipes; write class {qualified}(..., tag={kind!r})"
        )
    return found


def _check_allowed(kind: str, module: str, allow_code: Sequence[str]) -> None:
    for name in allow_code:
        if not all(part.isidentifier() for part in name.split(".")):
            raise RecipeError(f"allow_code takes the names of modules, such as {module.split('.')[0]}, not {name!r}")
    if not any(_is_in(module, name) for name in allow_code):
        top = module.split(".")[0]
        raise RecipeError(
            f"{kind} is code of the module {module}, which is imported only if you allow it: --allow-code {top}, or "
            f"allow_code=[{top!r}] in Python"
        )


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _import(kind: str, module: str) -> Any:
    if module in sys.modules:
        return importlib.import_module(module)  # waits for a thread that is importing it
    top = module.split(".")[0]
    with _installed_modules_alone():
        if not top.isidentifier() or importlib.util.find_spec(top) is None:
            raise RecipeError(
                f"{kind}: no module named {top!r} is installed here. The working directory does not count: install the "
                "package (pip install -e .), or name its folder in PYTHONPATH"
            )
        try:
            return importlib.import_module(module)
        except Exception as error:  # whatever code of others raises while it is imported
            raise RecipeError(f"{kind}: importing {module} fails with {type(error).__name__}: {error}") from error


@contextmanager
def _installed_modules_alone() -> Iterator[None]:
    """Leaves out the working directory, which `python -m` and notebooks search first: a file that lies there by chance
    must not be taken for an installed module."""
    with _SEARCHING:
        before = sys.path[:]
        first = bool(sys.path) and os.path.realpath(sys.path[0]) == os.getcwd() and not sys.flags.safe_path
        sys.path[:] = [entry for entry in before[first:] if entry]
        try:
            yield
        finally:
            sys.path[:] = before


def _converted(content: dict[str, Any], kind: type[Stage], path: str) -> Stage:
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        text, _, inner = str(error).partition(" - at `$")
        raise ValueError(f"{text} - at `{path}{inner or '`'}") from None


def as_json(value: Any) -> Any:
    """A structure as JSON has it, with all settings, but for nulls and infinities that are defaults."""
    if isinstance(value, msgspec.Struct):
        fields = [(field, getattr(value, field.name)) for field in msgspec.structs.fields(value)]
        found = {field.encode_name: as_json(given) for field, given in fields if not _is_void(given, field.default)}
        config = value.__struct_config__
        return {str(config.tag_field): config.tag, **found} if config.tag is not None else found
    if isinstance(value, dict):
        return {key: as_json(entry) for key, entry in value.items()}
    return [as_json(entry) for entry in value] if isinstance(value, list | tuple) else msgspec.to_builtins(value)


def _is_void(given: object, default: object) -> bool:
    is_empty = given is None or (isinstance(given, float) and math.isinf(given))
    return given is msgspec.UNSET or (is_empty and given == default)


def _json_type(value: object) -> str:
    known = {str: "str", int: "int", float: "float", bool: "bool", list: "array", dict: "object", type(None): "null"}
    return known.get(type(value), type(value).__name__)


__all__ = ["as_json", "check_class", "convert_stage", "files_of", "own_class", "stage_for_job", "stage_from_job"]
