# SPDX-License-Identifier: Apache-2.0
"""`@curation.stage`: a row stage from a function of texts."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, ClassVar, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import as_one_array
from curation.base.contract import ID, TEXT, Engine, Frame
from curation.base.errors import RecipeError, StageError, is_shortage
from curation.rules.decide import Verdict
from curation.stages import STAGES, RowStage
from curation.stages.checks import TAKEN, UNREADABLE
from curation.stages.outcome import Outcome

SEARCH_SECONDS = 5.0  # a call that fails within this time is repeated with parts of the frame, to find the row
FIRST = ("texts", "frame")  # names of the first parameter
COLUMNS: dict[type, str] = {int: "int64", float: "double"}
HOW = "def keep(texts, *, min_characters: int = 100) -> bool"
ONE_EACH = "Return one boolean, number or string per row: an Arrow or NumPy array, a Series or a list"
JSON = "Use bool, int, float, str, or lists and dicts of them"

Settings = ParamSpec("Settings")
First = TypeVar("First", contravariant=True)


class StageMaker(Protocol[Settings]):
    """The class of a stage, as type checkers see it. `function` is the function itself."""

    function: Callable[..., Any]

    def __call__(self, *args: Settings.args, **settings: Settings.kwargs) -> RowStage: ...


class FunctionStage(RowStage, frozen=True, kw_only=True):
    """A stage that calls `function`. `_result` is the type that the function announces. `frame_columns` are the columns
    of `reads`, or None if the function takes texts. In a worker process, `sent_sources` has the SHA-256 of a notebook's
    cell."""

    function: ClassVar[Callable[..., Any]]
    sent_sources: ClassVar[dict[str, str]] = {}
    frame_columns: ClassVar[tuple[str, ...] | None] = None
    _result: ClassVar[type | None] = None

    def __init_subclass__(cls) -> None:
        """Allow settings with the names of methods of earlier versions: a function cannot define such methods."""

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(type(self)):
            try:
                msgspec.convert(getattr(self, field.name), field.type)
            except msgspec.ValidationError as error:
                raise ValueError(f"{self.function.__name__}: {error} - at `$.{field.name}`") from None

    def reads(self) -> tuple[str, ...]:
        return tuple(name for name in self.frame_columns or () if name not in (ID, TEXT))

    def writes(self) -> dict[str, str]:
        return {self.function.__name__: COLUMNS[self._result]} if self._result in COLUMNS else {}

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        texts = as_one_array(engine.to_arrow(frame[[TEXT]]).column(TEXT)).cast(pa.large_string())
        if not len(texts):  # an empty list has no type
            return Outcome(columns={name: pa.array([], kind) for name, kind in self.writes().items()})
        given = (
            texts.fill_null("") if self.frame_columns is None else frame[[*dict.fromkeys([TEXT, *self.frame_columns])]]
        )
        started = time.monotonic()
        try:
            found = self._call(given)
        except Exception as error:
            is_quick = time.monotonic() - started < SEARCH_SECONDS and not is_shortage(error)
            if is_quick and (row := self._raising_row(engine, given, error)) >= 0:
                ids = engine.to_arrow(frame[[ID]]).column(ID).to_pylist() if ID in frame.columns else []
                error.add_note(f"document {ids[row]!r}" if ids else f"row {row:,}")
            raise
        return self._outcome(texts, self._results(found, len(texts)))

    def _call(self, given: Any) -> Any:
        return self.function(given, **{name: getattr(self, name) for name in self.__struct_fields__ if name != "name"})

    def _raising_row(self, engine: Engine, given: Any, error: Exception) -> int:
        """Return a row with which alone the function raises an error of this type, found by halving; -1 if there is
        none."""
        first, rows = 0, len(given)
        while rows:
            half = rows // 2
            for start, count in ((first, half), (first + half, rows - half)) if half else ((first, rows),):
                if isinstance(self._error_of(engine, given, start, count), type(error)):
                    break
            else:
                return -1
            if not half:
                return first
            first, rows = start, count
        return -1

    def _error_of(self, engine: Engine, given: Any, start: int, count: int) -> Exception | None:
        try:
            if self.frame_columns is None:
                part = given.slice(start, count)
            else:
                mask = np.zeros(len(given), bool)
                mask[start : start + count] = True
                part = engine.filter_rows(given, mask)
            self._call(part)
        except Exception as error:
            return error
        return None

    def _results(self, found: Any, rows: int) -> pa.Array:
        """Return what the function returned as one array. Raises StageError if the function did not return one result
        per row."""
        name = self.function.__name__
        if hasattr(found, "to_arrow"):  # a series of cuDF
            found = found.to_arrow()
        if not isinstance(found, list | tuple | pa.Array | pa.ChunkedArray) and getattr(found, "ndim", 0) != 1:
            shape = f" of {found.ndim} dimensions" if hasattr(found, "ndim") else ""
            raise StageError(f"{name}() returned {_article(type(found).__name__)}{shape}. {ONE_EACH}")
        try:
            array = as_one_array(found if isinstance(found, pa.Array | pa.ChunkedArray) else pa.array(found))
        except UNREADABLE as error:
            raise StageError(f"{name}() returned values that no Arrow array holds: {error}. {ONE_EACH}") from None
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if len(array) != rows:
            raise StageError(f"{name}() returned {len(array):,} results for {rows:,} rows. {ONE_EACH}")
        return array

    def _outcome(self, texts: pa.LargeStringArray, results: pa.Array) -> Outcome:
        name, kind = self.function.__name__, _kind_of(results.type)
        if pa.types.is_null(results.type):
            kind = self._result or bool
        wanted = self._result or kind
        if kind is None or (kind is not wanted and not {kind, wanted} <= {*COLUMNS}):
            told = f", but announces {self._result.__name__}" if self._result else ""
            raise StageError(f"{name}() returned {results.type}{told}. {ONE_EACH}")
        if wanted in COLUMNS:
            if self._result is None:
                raise StageError(
                    f"{name}() returned numbers, which need a column. Announce it: write -> {kind.__name__} after the "
                    "parameters of the function"
                )
            return Outcome(columns={name: results})
        if results.null_count:
            raise StageError(
                f"{name}() returned {results.null_count:,} nulls. Return true, false or a text for each row"
            )
        if wanted is bool:
            return Outcome(Verdict.dropping(~np.asarray(results), name))
        new = pc.if_else(texts.is_valid(), results.cast(pa.large_string()), texts)
        return Outcome(text=new, edited=np.asarray(pc.fill_null(pc.not_equal(new, texts), False)))


@overload
def stage(function: Callable[Concatenate[First, Settings], Any], /) -> StageMaker[Settings]: ...
@overload
def stage(
    *, reads: str | Sequence[str]
) -> Callable[[Callable[Concatenate[First, Settings], Any]], StageMaker[Settings]]: ...
def stage(function: Any = None, /, *, reads: str | Sequence[str] | None = None) -> Any:
    """Return the class of a row stage that calls a function. Use it as a decorator.

    function   its first parameter is `texts`, an Arrow array of large strings in which a null is an empty text, or
               `frame`, the frame of the engine with `text` and the columns `reads`. Its keyword-only parameters are the
               settings of the stage: each has an annotation, of a type that a recipe can hold
    reads      names of columns that a function of `frame` needs; `@curation.stage(reads=["url"])`

    The function returns one result per row: an Arrow array, NumPy array, Series or list. Booleans keep the rows that
    are true; the reason of the others is the name of the function. Strings are the new texts; null texts stay null.
    Numbers are a column with the name of the function: announce it by `-> int` (int64) or `-> float` (double). Numbers
    may be null. The result must not depend on how rows are divided into frames. A frame without rows is not passed.

    Calling the class makes a stage for `curation.apply` and `curation.Recipe`. Its kind in recipes is
    `module:function`. The attribute `function` is the function itself, for tests.

        >>> import curation, pandas
        >>> @curation.stage
        ... def long_enough(texts, *, min_characters: int = 100):
        ...     return [len(text) >= min_characters for text in texts.to_pylist()]
        >>> frame = pandas.DataFrame({"text": ["short", "long enough"]})
        >>> curation.apply(frame, long_enough(min_characters=9))["text"].tolist()
        ['long enough']

    Raises RecipeError for a function that cannot be a stage.
    """
    if function is None:
        return partial(class_of, reads=(reads,) if isinstance(reads, str) else tuple(reads or ()))
    return class_of(function, ())


def class_of(function: Any, reads: tuple[str, ...]) -> type[FunctionStage]:
    """Make the class of a stage from a function. Raises RecipeError for a lambda, a coroutine or a generator."""
    if not inspect.isfunction(function) or not function.__name__.isidentifier():
        raise RecipeError(f"curation.stage takes a function with a name, not {function!r}. Write {HOW}")
    name = function.__name__
    for is_kind, kind in ((inspect.iscoroutinefunction, "a coroutine"), (inspect.isgeneratorfunction, "a generator"),
                          (inspect.isasyncgenfunction, "a generator")):  # fmt: skip
        if is_kind(function):
            raise RecipeError(f"{name} is {kind} function. {ONE_EACH}")
    if name in STAGES:
        raise RecipeError(f"{name} is the name of a stage of this package. Give the function another name")
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError as error:
        raise RecipeError(
            f"{name}: an annotation cannot be read: {error}. Import its type above the function"
        ) from None
    takes_frame = _check_parameters(name, list(signature.parameters.values()), reads)
    result = signature.return_annotation if signature.return_annotation in (bool, int, float, str) else None
    if result in COLUMNS and name in TAKEN:
        raise RecipeError(f"{name} may not be the name of a column; {', '.join(TAKEN)} are taken. Rename the function")
    fields = [_field(name, each) for each in signature.parameters.values() if each.kind is each.KEYWORD_ONLY]
    namespace = {
        "__doc__": function.__doc__,
        "__qualname__": function.__qualname__,
        "function": staticmethod(function),
        "_result": result,
        "frame_columns": reads if takes_frame else None,
        "removes": result in (None, bool),
    }
    made = msgspec.defstruct(
        name, fields, bases=(FunctionStage,), module=function.__module__, namespace=namespace, frozen=True,
        kw_only=True, tag=f"{function.__module__}:{function.__qualname__}",
    )  # fmt: skip
    return cast(type[FunctionStage], made)


def _check_parameters(name: str, parameters: Sequence[inspect.Parameter], reads: tuple[str, ...]) -> bool:
    """Return whether the function takes a frame. Raises RecipeError for parameters that a stage cannot have."""
    positional = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    starred = [str(each) for each in parameters if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    if starred:
        raise RecipeError(f"{name} takes {starred[0]}, which names no setting. Name each: {HOW}")
    if positional[:1] not in ([FIRST[0]], [FIRST[1]]):
        found = f"is {positional[0]!r}" if positional else "is missing"
        raise RecipeError(f"{name}: the first parameter {found}; name it texts (Arrow strings) or frame. Write {HOW}")
    if positional[1:]:
        raise RecipeError(f"{name}: the setting {positional[1]} is positional. Write * before it: {HOW}")
    if reads and positional[0] != "frame":
        raise RecipeError(f"{name} takes only texts, but reads {', '.join(reads)}. Name its first parameter frame")
    return positional[0] == "frame"


def _field(name: str, parameter: inspect.Parameter) -> tuple[str, Any] | tuple[str, Any, Any]:
    """Return a setting for `msgspec.defstruct`. Raises RecipeError if a recipe cannot hold values of its type."""
    setting, kind = parameter.name, parameter.annotation
    if setting == "kind" or hasattr(FunctionStage, setting) or setting.startswith("_"):
        raise RecipeError(f"{name}: a setting may not be named {setting!r}, which every stage has. Rename it")
    if kind is parameter.empty:
        raise RecipeError(f"{name}: the setting {setting} has no type. Annotate it, as in {setting}: int = 100. {JSON}")
    try:
        msgspec.json.schema(kind)
    except (TypeError, RuntimeError):
        shown = inspect.formatannotation(kind)
        raise RecipeError(f"{name}: the setting {setting} is {shown}, which a recipe cannot hold. {JSON}") from None
    if parameter.default is parameter.empty:
        return setting, kind
    try:
        default = msgspec.convert(parameter.default, kind)
    except msgspec.ValidationError as error:
        raise RecipeError(f"{name}: the default of {setting} is {parameter.default!r}: {error}") from None
    return setting, kind, msgspec.field(default_factory=partial(deepcopy, default))


def _kind_of(kind: pa.DataType) -> type | None:
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_floating(kind):
        return float
    return str if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view() else None


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"
