# SPDX-License-Identifier: Apache-2.0
"""Stages by their kinds: those of this package, and those of installed modules that the user has allowed.

A kind with a colon, `mypackage.stages:BlockUrls`, names a class of a module. The module is imported only where the user
allows its name: a recipe is data that people pass on, and importing runs code.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from curation.errors import RecipeError, nearest
from curation.files import known_sha256
from curation.stages import STAGES, CorpusStage, RowStage, Stage

OWN_PACKAGE = "curation"


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
    module, colon, _ = str(kind).partition(":")
    if colon and not _is_in(module, OWN_PACKAGE):
        _check_allowed(str(kind), module, allow_code)
        return _converted(content, own_class(str(kind)), path)
    if kind not in STAGES:
        raise ValueError(f"Invalid value {kind!r} - at `{path}.kind`{nearest(kind, STAGES)}")
    return _converted(content, STAGES[str(kind)], path)


def stage_for_job(stage: Stage) -> dict[str, Any]:
    """A stage as JSON, which has no infinity: a bound that a rule does not set is left out."""
    return dict(without_nulls(msgspec.json.decode(msgspec.json.encode(stage))))


def stage_from_job(content: dict[str, Any]) -> Stage:
    """The stage that a task was sent, of whatever module: the driver of the run chose it, and the digest of the job
    says that it is the driver's."""
    kind = content["kind"]
    return msgspec.convert(content, STAGES[kind] if kind in STAGES else own_class(kind))


def files_of(stage: Stage) -> dict[str, str]:
    """What a stage depends on beside its settings: its files, and for a stage of another package the source file of its
    module, but not what that imports. Name -> SHA-256."""
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
        return sys.modules[module]
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
    before = sys.path[:]
    first = os.path.realpath(sys.path[0]) == os.getcwd() and not sys.flags.safe_path if sys.path else False
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


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(entry) for key, entry in value.items() if entry is not None}
    return [without_nulls(entry) for entry in value] if isinstance(value, list) else value


def _json_type(value: object) -> str:
    return {str: "str", int: "int", float: "float", bool: "bool", list: "array"}.get(type(value), "null")


__all__ = ["convert_stage", "files_of", "own_class", "stage_for_job", "stage_from_job", "without_nulls"]
