# SPDX-License-Identifier: Apache-2.0
"""The functions of `curation` on frames as functions of an engine: `cpu_fallback.filter(frame, "gopher")`.

Of the packages from `stages` up, engines import only this module (docs/decisions/0118). On import, it loads no other
module of these packages. A function of `curation` is loaded when the engine's function is looked up, or called with a
frame.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, NamedTuple

import curation

HOMES = ("frames", "fingerprints", "stage_functions", "token_pairs")  # modules of `curation.frames`
FUNCTIONS = {"explain", *(name for home in HOMES for name in curation._HOMES[f"curation.frames.{home}"])}


@cache
def function_of(engine: str, name: str) -> Callable[..., Any]:
    """Return `curation.<name>` as a function of an engine's package, which takes only frames of the engine. Raises
    AttributeError for a name that is not in FUNCTIONS."""
    if name not in FUNCTIONS:
        raise AttributeError(f"module {engine!r} has no attribute {name!r}")
    function = getattr(curation, name)

    @wraps(function)
    def of_engine(frame: Any, *arguments: Any, **settings: Any) -> Any:
        _check_frame(engine, name, frame)
        return function(frame, *arguments, **settings)

    return _placed(of_engine, engine)


@cache
def with_frames(function: Callable[..., Any], series: type) -> Callable[..., Any]:
    """Return a function of the contract that also takes frames, which it passes to the function of `curation` with its
    name.

    series  class of the engine's texts. If the first argument is one, the arguments are those of the contract
    """
    engine, name = function.__module__.partition(".")[0], function.__name__
    count = len(inspect.signature(function).parameters)

    @wraps(function)
    def of_text_or_frame(*arguments: Any, **settings: Any) -> Any:
        if arguments and isinstance(arguments[0], series):
            if settings or len(arguments) != count:
                _check_contract(function, engine, arguments, settings)
            return function(*arguments, **settings)
        return function_of(engine, name)(*arguments, **settings)

    of_text_or_frame.__doc__ = (
        f"A Series of texts: as `curation.base.contract.Engine.{name}`. A frame: as `curation.{name}`."
    )
    return _placed(of_text_or_frame, engine)


def _placed(function: Callable[..., Any], engine: str) -> Callable[..., Any]:
    """Return the function with the names by which pickle finds it in the engine's package."""
    function.__module__, function.__qualname__ = engine, function.__name__
    return function


def _check_contract(function: Callable[..., Any], engine: str, arguments: Any, settings: Any) -> None:
    signature, name = inspect.signature(function), function.__name__
    try:
        signature.bind(*arguments, **settings)
    except TypeError as error:
        raise TypeError(
            f"{engine}.{name} takes ({', '.join(signature.parameters)}) with a Series: {error}. For the settings of "
            f'curation.{name}, give a frame: .to_frame("text")'
        ) from None


# Frames of the engine


class _Frames(NamedTuple):
    """Facts about the frames of an engine: its name in `curation.base.engine`; the package and the names of its
    libraries; how frames of the other engine (in memory, of Dask) are converted to its frames; and the package of the
    other engine."""

    engine: str
    package: str
    libraries: str
    in_memory: str
    lazy: str
    other: str


FRAMES = {
    "cpu_fallback": _Frames("cpu", "pandas", "pandas or Dask", ".to_pandas()", '.to_backend("pandas")', "gpu_pipeline"),
    "gpu_pipeline": _Frames(
        "gpu", "cudf", "cuDF or Dask-cuDF", "cudf.from_pandas(frame)", '.to_backend("cudf")', "cpu_fallback"
    ),
}


def _check_frame(engine: str, name: str, value: Any) -> None:
    """Raise ArgumentError, with the remedy, for a value that is no frame of the engine."""
    from curation.base.engine import FRAME_LIBRARIES
    from curation.base.errors import ArgumentError
    from curation.frames.tables import is_column, is_table

    own, meta = FRAMES[engine], getattr(value, "_meta", value)
    owner = FRAME_LIBRARIES.get(_library_of(meta))
    if owner == own.engine and hasattr(meta, "columns"):
        return
    if owner == own.engine and is_column(value):
        remedy = f'Give a frame, such as .to_frame("text"), or call curation.{name}'
    elif owner and owner != own.engine:
        remedy = f"Convert it by {own.in_memory if meta is value else own.lazy}, or import {own.other}"
    elif is_table(value) or is_column(value) or hasattr(value, "collect"):
        remedy = f"curation.{name} takes tables and columns of polars, DuckDB and pyarrow"
    else:
        texts, files = f'{own.package}.DataFrame({{"text": texts}})', f'curation.read(paths, engine="{own.engine}")'
        remedy = f"Make one of texts by {texts}, or one of files by {files}"
    raise ArgumentError(f"{engine}.{name} expects a DataFrame of {own.libraries}, got {_shown(value)}. {remedy}")


def check_text(engine: str, text: Any, series: type) -> None:
    """Raise ArgumentError for a value that is no Series of the engine, in a function that takes no frames."""
    if not isinstance(text, series):
        from curation.base.errors import ArgumentError

        raise ArgumentError(
            f"{engine}: this function takes a Series of texts, got {_shown(text)}. Give a column, such as "
            f"frame['text']; {engine}.hash, .minhash, .tokenize and the functions of stages take frames"
        )


def _library_of(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _shown(value: Any) -> str:
    meta = getattr(value, "_meta", value)
    lazy, library = "" if meta is value else "Dask ", _library_of(meta)
    return f"a {lazy}{type(value).__name__}" + ("" if library == "builtins" else f" of {library}")
