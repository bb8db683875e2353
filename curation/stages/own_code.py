# SPDX-License-Identifier: Apache-2.0
"""Stages by kind: stages of this package, and stages of installed modules that the user allows.

A kind with a colon, `mypackage.stages:BlockUrls`, names a class of a module. The module is imported only if the user
allows its name: people share recipes as data, and an import runs code.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from inspect import isfunction
from threading import RLock
from typing import Any

import msgspec

from curation.base.errors import RecipeError, nearest
from curation.base.system.files import known_sha256
from curation.stages import STAGES, CorpusStage, RowStage, Stage
from curation.stages.cells import CURE, MAIN, check_cell, is_of_cell, sources_of

OWN_PACKAGE = "curation"
_SEARCHING = RLock()  # held by the thread that changes where Python looks for modules


def convert_stage(content: object, path: str, allow_code: Sequence[str]) -> Stage:
    """Return the stage that an entry of a recipe describes.

    content     mapping with `kind` and settings; a stage passes unchanged
    path        place of the entry in the recipe, for messages
    allow_code  names of modules that may be imported, with their submodules

    Raises ValueError with the path of a wrong value, RecipeError for a class that is not allowed, not installed or not
    a stage.
    """
    if isinstance(content, Stage):
        return content
    if not isinstance(content, dict):
        if isinstance(content, type) and issubclass(content, Stage):
            raise ValueError(f"Expected a stage, got its class. Write {content.__name__}() - at `{path}`")
        if callable(content):
            name = getattr(content, "__name__", "")
            raise ValueError(
                f"Expected a stage, got the function {name}. Write @curation.stage before it - at `{path}`"
            )
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
    """Return a stage as JSON, for tasks. Raises RecipeError if tasks would read a different stage from the JSON."""
    content = msgspec.json.decode(msgspec.json.encode(as_json(stage)))
    try:
        same = stage_from_job(content) == stage
    except (msgspec.ValidationError, TypeError, RecipeError) as error:
        raise RecipeError(f"{stage.kind}: tasks cannot read its settings: {error}") from None
    if not same:
        raise RecipeError(
            f"{stage.kind}: its settings change when they are sent to a task. Use values of JSON: text, finite "
            "numbers, true, false, null, and lists and mappings of them"
        )
    return dict(content)


def stage_from_job(content: dict[str, Any]) -> Stage:
    """Return the stage that a task received; its class may be in any module. The driver chose the module, and the
    digest of the job proves that the job comes from the driver."""
    kind = content["kind"]
    return msgspec.convert(content, STAGES[kind] if kind in STAGES else own_class(kind))


def check_class(stage: Stage) -> None:
    """Raise RecipeError for a stage whose kind names another class. Tasks find the class by the kind."""
    kind, own = stage.kind, _place_of(type(stage))
    if "<locals>" in own:
        raise RecipeError(f"{own} is defined inside a function, where tasks cannot find it. Move it to its module")
    if is_of_cell(type(stage)):
        check_cell(stage)
    if STAGES.get(kind) is type(stage) or kind == own:
        return
    raise RecipeError(f"{own} has the kind {kind!r}, which names another class; write tag={own!r}")


def _place_of(stage_class: type[Stage]) -> str:
    return f"{stage_class.__module__}:{stage_class.__qualname__}"


def files_of(stage: Stage) -> dict[str, str]:
    """Return the files that a stage depends on: name -> SHA-256. These include `stage.files()`. A stage of another
    package adds the source file of its module, without the modules that it imports. A stage of a notebook's cell adds
    the source of the cell."""
    module = type(stage).__module__
    if _is_in(module, OWN_PACKAGE):
        return stage.files()
    if is_of_cell(type(stage)):
        return stage.files() | sources_of(type(stage))
    source = getattr(sys.modules[module], "__file__", None)
    if module == MAIN or not source:
        raise RecipeError(
            f"{stage.kind}: a run needs stages of an installed module, and {module} has no source file. {CURE}"
        )
    return stage.files() | {f"module {module}": known_sha256(source)}


def own_class(kind: str) -> type[Stage]:
    """Return the class that a kind with a colon names. Raises RecipeError if the class is missing or not a stage."""
    name, _, qualified = kind.partition(":")
    stage_class = getattr(_import(kind, name), qualified, None)
    if not (isinstance(stage_class, type) and issubclass(stage_class, RowStage | CorpusStage)):
        hint = f"; write @curation.stage before def {qualified}" if isfunction(stage_class) else ""
        hint = hint or (f". It belongs to a notebook that this process has not run. {CURE}" if name == MAIN else "")
        raise RecipeError(f"{kind}: {name} has no class {qualified} that is a RowStage or a CorpusStage{hint}")
    tag = stage_class.__struct_config__.tag
    if tag != kind:
        if tag == _place_of(stage_class):
            raise RecipeError(f"{kind}: the stage is defined elsewhere; write kind: {tag}")
        raise RecipeError(
            f"{kind}: the class must have its kind in recipes as its tag; write class {qualified}(..., tag={kind!r})"
        )
    return stage_class


def _check_allowed(kind: str, module: str, allow_code: Sequence[str]) -> None:
    for name in allow_code:
        if not all(part.isidentifier() for part in name.split(".")):
            raise RecipeError(f"allow_code takes the names of modules, such as {module.split('.')[0]}, not {name!r}")
    if not any(_is_in(module, name) for name in allow_code):
        if module == MAIN:
            raise RecipeError(f"{kind} is a stage of a notebook, which no other process has. {CURE}")
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
                f"{kind}: no module named {top!r} is installed here. The working directory is not searched: install "
                "the package (pip install -e .), or add its folder to PYTHONPATH"
            )
        try:
            return importlib.import_module(module)
        except Exception as error:  # imported code may raise any error
            raise RecipeError(f"{kind}: importing {module} fails with {type(error).__name__}: {error}") from error


@contextmanager
def _installed_modules_alone() -> Iterator[None]:
    """Leave the working directory out of `sys.path`, where `python -m` and notebooks put it first. An unrelated file in
    it must not count as an installed module."""
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
    """Return a structure as JSON values with all its settings. Left out are settings whose value is the default, if
    that is null or infinite."""
    if isinstance(value, msgspec.Struct):
        fields = [(field, getattr(value, field.name)) for field in _fields_of(type(value))]
        settings = {field.encode_name: as_json(given) for field, given in fields if not _is_void(given, field.default)}
        config = value.__struct_config__
        return {str(config.tag_field): config.tag, **settings} if config.tag is not None else settings
    if isinstance(value, dict):
        return {key: as_json(entry) for key, entry in value.items()}
    return [as_json(entry) for entry in value] if isinstance(value, list | tuple) else msgspec.to_builtins(value)


@lru_cache(maxsize=256)
def _fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a structure; `msgspec.structs.fields` evaluates all annotations at each call (0.5 ms)."""
    return msgspec.structs.fields(kind)


def _is_void(given: object, default: object) -> bool:
    is_empty = given is None or (isinstance(given, float) and math.isinf(given))
    return given is msgspec.UNSET or (is_empty and given == default)


def _json_type(value: object) -> str:
    names = {str: "str", int: "int", float: "float", bool: "bool", list: "array", dict: "object", type(None): "null"}
    return names.get(type(value), type(value).__name__)
