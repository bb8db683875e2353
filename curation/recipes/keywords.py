# SPDX-License-Identifier: Apache-2.0
"""Keywords of the library's functions as stages and inputs, checked like the settings of a recipe."""

from __future__ import annotations

import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

import msgspec
import numpy as np

from curation.base.errors import ArgumentError, CurationError, RecipeError, counted, nearest
from curation.base.measures import Measure
from curation.recipes.advice import UNKNOWN, advice_for
from curation.recipes.recipe import Recipe
from curation.recipes.settings import expand_shorthands
from curation.rules.keywords import as_python, as_rule

NO_SETTINGS = ("details", "text_column")  # keywords that are no settings of a stage

Function = TypeVar("Function", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=msgspec.Struct)


def takes(
    kind: type[msgspec.Struct] | None = None, error: type[CurationError] = RecipeError
) -> Callable[[Function], Function]:
    """Decorate a function: refuse unknown keywords. With `kind`, a stage class whose fields are keywords of the
    function, append the class's docstring. Also refuse keywords together with a stage object: a keyword equal to its
    default looks like an omitted keyword."""

    def documented(function: Function) -> Function:
        parameters = inspect.signature(function).parameters
        known = [*parameters]
        required = [name for name, entry in parameters.items() if entry.default is inspect.Parameter.empty]

        @wraps(function)
        def checked(*arguments: Any, **given: Any) -> Any:
            named = dict(zip(known, arguments, strict=False)) | given
            for name in given:
                if name not in known:
                    rule = as_rule(name, given[name]) if "rules" in known else ""
                    hint = f". Write rules={as_python(rule)}" if rule else nearest(name, known)
                    raise error(f"{function.__name__}: no setting {name!r}{hint}")
            if missing := [name for name in required if name not in named]:
                lacking = f"{counted(len(missing), 'argument')} missing ({', '.join(missing)})"
                raise ArgumentError(
                    f"{function.__name__}: {lacking}. Write curation.{function.__name__}({', '.join(required)})"
                )
            others = [name for name in known[2:] if name in named and name not in NO_SETTINGS]
            if kind is not None and others and isinstance(named.get(known[1]), kind):
                raise error(
                    f"{function.__name__} takes either keywords or one {kind.__name__}, not both: leave "
                    f"{', '.join(others)} out, or set it in the {kind.__name__}"
                )
            return function(*arguments, **given)

        if kind is not None:
            texts = (inspect.cleandoc(text or "") for text in (function.__doc__, kind.__doc__))
            checked.__doc__ = f"\n\n`curation.{kind.__name__}`: ".join(texts)
        return cast(Function, checked)

    return documented


def plain_settings(kind: type[msgspec.Struct], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are fields of `kind` as recipe values; a single value for a list field becomes a list.
    Raises ValueError for a value of a type that settings cannot have."""
    settings = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name in arguments:
            value = _without_measures(arguments[field.encode_name])
            settings[field.encode_name] = [value] if _is_entry(value, field.type) else value
    return dict(msgspec.to_builtins(settings, enc_hook=_plain_value))


def _is_entry(value: object, kind: Any) -> bool:
    """Whether a value is a single entry for a setting that takes only lists of such entries."""
    union = typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
    kinds = {typing.get_origin(each) or each for each in union}
    return (
        isinstance(value, str | dict | msgspec.Struct | os.PathLike)
        and bool(kinds & {list, tuple})
        and type(value) not in kinds
    )


def _without_measures(value: Any) -> Any:
    """Replace members of `Measure` by their names: msgspec would encode them as numbers."""
    if isinstance(value, dict):
        return {key: _without_measures(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set):
        return [_without_measures(entry) for entry in value]
    return value.name if isinstance(value, Measure) else value


def _plain_value(value: object) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise ValueError(f"no setting can be a {type(value).__name__}; pass numbers, strings, or lists and dicts of them")


def check_types(function: str, kinds: Mapping[str, tuple[object, type]]) -> None:
    """Raise RecipeError if a value has another type than its keyword requires, as for the settings of a recipe.

    kinds  name of a keyword of `function` -> its value, and one of int, float, bool and str
    """
    for name, (value, kind) in kinds.items():
        plain = value.item() if isinstance(value, np.generic) else value
        try:
            msgspec.convert(os.fspath(plain) if isinstance(plain, os.PathLike) else plain, kind)
        except msgspec.ValidationError as error:
            raise RecipeError(f"{function}: {error} - at `$.{name}`") from None


def stage_of(kind: type[Kind], first: object, arguments: Mapping[str, Any]) -> Kind:
    """Return `first` if it is a stage object, else a stage built from the arguments and checked like a recipe."""
    if isinstance(first, kind):
        return first
    tag = kind.__struct_config__.tag
    if first is not None and "stage" in arguments:
        raise RecipeError(f"{tag} takes keywords or one {kind.__name__}, not {first!r}")
    content: dict[str, Any] = {}
    try:
        [content] = expand_shorthands({"stages": [{"kind": tag, **plain_settings(kind, arguments)}]})["stages"]
        return msgspec.convert(content, kind)
    except ValueError as error:  # msgspec's own errors too
        raise RecipeError(f"{tag}: {error}{_hint(str(error), content)}") from None


def _hint(message: str, content: object) -> str:
    """Return a hint with names close to an unknown field of a stage, as for recipes; "" for any other message."""
    if not UNKNOWN.match(message):
        return ""
    return advice_for(message.replace("`$", "`$.stages[0]"), {"stages": [content]}, Recipe)
