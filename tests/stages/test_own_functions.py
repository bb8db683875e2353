# SPDX-License-Identifier: Apache-2.0
"""`@curation.stage`: what a function may be, and what it may return."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import curation
from curation.base.errors import RecipeError, StageError
from curation.running.run import run
from curation.stages.invoke import apply_stage
from curation.stages.own_code import stage_for_job, stage_from_job
from tests.runs import recipe_of, records_of

TEXTS = ["one", None, "three", ""]
FRAME = pd.DataFrame({"text": TEXTS, "n": [1, 2, 3, 4]}, index=[7, 5, 3, 1])


@curation.stage
def longer(texts, *, least: int = 2, words: list[str] = ["a"], mode: Literal["x", "y"] = "x", cap: float | None = None):  # noqa: B006
    """Keep long texts."""
    return [len(text) >= least for text in texts.to_pylist()]


@curation.stage
def size(texts) -> int:
    return [len(text) for text in texts.to_pylist()]


def returning(result: Any, annotation: Any = None) -> Any:
    """A stage of a function that returns this, or what a call returns."""

    def found(texts: Any) -> Any:
        return result() if callable(result) else result

    found.__annotations__ = {} if annotation is None else {"return": annotation}
    return curation.stage(found)()


FORMS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "Arrow": pa.array,
    "chunks": lambda values: pa.chunked_array([values[:1], values[1:]]),
    "NumPy": np.array,
    "Series": lambda values: pd.Series(values, index=list("dcba")),
}


@pytest.mark.parametrize("form", FORMS)
def test_results_of_every_form(form: str):
    kept = curation.apply(FRAME, returning(FORMS[form]([True, False, True, False])))
    assert kept["n"].tolist() == [1, 3] and kept.index.tolist() == [7, 3]
    texts = curation.apply(FRAME, returning(FORMS[form](["a", "b", "three", "d"])))["text"]
    assert texts.dropna().tolist() == ["a", "three", "d"] and texts.isna().tolist() == [False, True, False, False]
    for kind, values, dtype in ((int, [1, 2, 3, 4], "int64"), (float, [0.5, 1.0, 2.0, 3.0], "float64")):
        column = curation.apply(FRAME, returning(FORMS[form](values), kind))["found"]
        assert column.tolist() == values and column.dtype == dtype


def test_nulls_of_numbers_are_kept_and_types_are_those_announced():
    assert curation.apply(FRAME, returning([1, None, 3, 4], int))["found"].isna().tolist() == [
        False,
        True,
        False,
        False,
    ]
    assert curation.apply(FRAME, returning([1, 2, 3, 4], float))["found"].dtype == "float64"
    assert curation.apply(FRAME, returning(np.array([1, 2, 3, 4], np.uint8), int))["found"].dtype == "int64"
    assert curation.apply(FRAME, returning(pd.Series([1, np.nan, 3, 4]), int))["found"].tolist()[2:] == [3, 4]
    assert curation.apply(FRAME, returning([None] * 4, int))["found"].isna().all()
    assert curation.apply(FRAME, returning(pd.Series(["a", "b", "a", "b"], dtype="category")))["text"][3] == "a"


def test_edits_are_counted_and_null_texts_are_not(tmp_path: Path):
    (tmp_path / "in.jsonl").write_bytes(records_of(["one", "two", "three"]))
    recipe = recipe_of(tmp_path / "in.jsonl", stages=[], output={"formats": []})
    recipe = curation.Recipe(input=recipe.input, stages=[size(), longer(least=4)], output=recipe.output)
    report = run(recipe, tmp_path / "out", engine="cpu").report
    assert [stage["removes"] for stage in report["stages"]] == [False, True]
    assert report["documents"]["kept"] == 1 and report["stages"][1]["reasons"] == {"longer": 2}


def test_a_stage_of_a_function():
    stage = longer(least=3, name="long")
    assert (stage.kind, stage.least, stage.name) == ("tests.stages.test_own_functions:longer", 3, "long")
    assert longer.__doc__ == "Keep long texts." and longer.function(pa.array(["abc"]), least=4) == [False]
    assert stage_from_job(stage_for_job(stage)) == stage and stage != longer()
    assert longer().words == ["a"] and longer().words is not longer().words
    assert [curation.apply(FRAME, each)["n"].tolist() for each in (stage, longer(least=0))] == [[1, 3], [1, 2, 3, 4]]
    lazy = curation.apply(dd.from_pandas(FRAME.sort_index(), npartitions=2), size())
    assert lazy.dtypes["size"] == "int64" and lazy.compute()["size"].tolist() == [0, 5, 0, 3]
    assert curation.apply(FRAME[:0], size())["size"].dtype == "int64"


def test_a_function_of_a_frame_gets_what_it_reads():
    seen: list[list[str]] = []

    @curation.stage(reads="n")
    def odd(frame):
        seen.append(list(frame.columns))
        return frame["n"] % 2 == 1

    frame = FRAME.assign(other=1).sort_index()
    assert curation.apply(frame, odd())["n"].tolist() == [3, 1]
    assert seen == [["text", "n"]] and odd().reads() == ("n",)
    lazy = curation.apply(dd.from_pandas(frame, npartitions=2), odd())
    assert lazy.compute(scheduler="threads")["n"].tolist() == [3, 1]
    with pytest.raises(curation.InputError, match=r"odd.* reads the column 'n', which the frame lacks"):
        curation.apply(FRAME[["text"]], odd())


def test_both_engines_apply_functions(engine: Any):
    texts = pa.array(TEXTS, pa.large_string())
    frame = engine.from_arrow(pa.table({"row": [0, 1, 2, 3], "text": texts}))
    kept, outcome = apply_stage(engine, frame, longer(least=4))
    assert engine.to_arrow(kept).column("text").to_pylist() == ["three"]
    assert outcome.verdict is not None and outcome.verdict.counts() == {"longer": 3}
    edited, _ = apply_stage(engine, frame, returning(["a", "b", "c", "d"]))
    assert engine.to_arrow(edited).column("text").to_pylist() == ["a", None, "c", "d"]
    sized, _ = apply_stage(engine, frame, size())
    assert engine.to_arrow(sized).column("size").to_pylist() == [3, 0, 5, 0]


# Results that are wrong

ONE_EACH = "Return one boolean, number or string per row"
WRONG: dict[str, tuple[Any, Any, str]] = {
    "too few": ([True], None, rf"found\(\) returned 1 results for 4 rows. {ONE_EACH}"),
    "one": (True, None, r"found\(\) returned a bool. Return one"),
    "nothing": (None, None, r"found\(\) returned a NoneType. Return one"),
    "a string": ("abcd", None, r"found\(\) returned a str. Return one"),
    "an iterator": (lambda: iter([True] * 4), None, r"found\(\) returned a list_iterator. Return one"),
    "a matrix": (np.zeros((4, 2)), float, r"found\(\) returned a ndarray of 2 dimensions. Return one"),
    "a frame": (FRAME, float, r"found\(\) returned a DataFrame of 2 dimensions"),
    "a number": (np.float64(1), float, r"found\(\) returned a float64 of 0 dimensions"),
    "mixed": ([True, "a", 1, 2], None, r"found\(\) returned values that no Arrow array holds"),
    "null booleans": ([True, None, True, True], None, r"found\(\) returned 1 nulls. Return true, false or a text"),
    "null texts": (["a", "b", None, "d"], None, r"found\(\) returned 1 nulls"),
    "nulls": ([None] * 4, None, r"found\(\) returned 4 nulls"),
    "numbers": ([1, 2, 3, 4], None, "numbers, which need a column. Announce it: write -> int after the parameters"),
    "fractions": ([0.5] * 4, None, "write -> float after"),
    "lists": ([[1]] * 4, None, r"found\(\) returned list<item: int64>. Return one"),
    "numbers for booleans": ([1, 0, 1, 0], bool, r"found\(\) returned int64, but announces bool"),
    "strings for numbers": (["1"] * 4, int, r"found\(\) returned string, but announces int"),
    "booleans for strings": ([True] * 4, str, r"found\(\) returned bool, but announces str"),
    "fractions for integers": ([1.5] * 4, int, "column found cannot be int64: Float value 1.5"),
    "too large": (np.full(4, 2**64 - 1, np.uint64), int, "column found cannot be int64"),
    "an error": (lambda: {}["key"], None, "KeyError: 'key'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_results_end_in_one_message(case: str):
    result, annotation, told = WRONG[case]
    label = r"the stage tests.stages.test_own_functions:returning.<locals>.found \(tests\..*found\): "
    with pytest.raises(StageError, match=label + ".*" + told) as error:
        curation.apply(FRAME, returning(result, annotation))
    assert "\n" not in str(error.value) and (case != "an error" or isinstance(error.value.__cause__, KeyError))


# Functions that cannot be stages

HOW = r"Write def keep\(texts, \*, min_characters: int = 100\) -> bool"
DEFINITIONS = {
    "no parameter": ("def f(): ...", f"f: the first parameter is missing; name it texts .* or frame. {HOW}"),
    "keyword texts": ("def f(*, texts: str): ...", "f: the first parameter is missing"),
    "another name": ("def f(text): ...", "f: the first parameter is 'text'; name it texts"),
    "positional": ("def f(texts, least: int = 2): ...", r"f: the setting least is positional. Write \* before it"),
    "keywords": ("def f(texts, **rest): ...", r"f takes \*\*rest, which names no setting"),
    "arguments": ("def f(texts, *rest): ...", r"f takes \*rest, which names no setting"),
    "no type": (
        "def f(texts, *, least=2): ...",
        "f: the setting least has no type. Annotate it, as in least: int = 100",
    ),
    "a path": (
        "def f(texts, *, table: Path): ...",
        "f: the setting table is pathlib.*Path, which a recipe cannot hold",
    ),
    "a function": (
        "def f(texts, *, call: Callable): ...",
        "f: the setting call is .*Callable, which a recipe cannot hold",
    ),
    "a wrong default": (
        "def f(texts, *, least: int = 'x'): ...",
        "f: the default of least is 'x': Expected `int`, got `str`",
    ),
    "an unknown type": (
        "def f(texts, *, least: Gone = 1): ...",
        "f: an annotation cannot be read: name 'Gone' is not def",
    ),
    "kind": ("def f(texts, *, kind: str): ...", "f: a setting may not be named 'kind', which every stage has"),
    "a method": ("def f(texts, *, files: str): ...", "f: a setting may not be named 'files'"),
    "name": ("def f(texts, *, name: str = ''): ...", "f: a setting may not be named 'name'"),
    "private": ("def f(texts, *, _a: int = 1): ...", "f: a setting may not be named '_a'"),
    "a shipped kind": ("def filter(texts): ...", "filter is the name of a stage of this package"),
    "a reserved column": ("def source(texts) -> int: ...", "source may not be the name of a column; doc, row, id"),
    "a coroutine": ("async def f(texts): ...", f"f is a coroutine function. {ONE_EACH}"),
    "a generator": ("def f(texts):\n    yield 1", "f is a generator function"),
    "an asynchronous generator": ("async def f(texts):\n    yield 1", "f is a generator function"),
    "a lambda": ("f = lambda texts: texts", f"takes a function with a name, not <function <lambda>.*{HOW}"),
    "a class": ("class f: ...", "takes a function with a name, not <class"),
    "a builtin": ("f = len", "takes a function with a name, not <built-in function len>"),
    "a partial": ("f = functools.partial(print)", "takes a function with a name, not functools.partial"),
}


@pytest.mark.parametrize("case", DEFINITIONS)
def test_functions_that_cannot_be_stages_are_refused_at_once(case: str):
    code, told = DEFINITIONS[case]
    names: dict[str, Any] = {"Path": Path, "Callable": Callable, "functools": functools, "__name__": "made"}
    exec(code.replace("Gone", "'Gone'"), names)
    [function] = [names[name] for name in ("f", "filter", "source") if name in names]
    with pytest.raises(RecipeError, match=told) as error:
        curation.stage(function)
    assert "\n" not in str(error.value)


def test_columns_are_for_functions_of_frames():
    with pytest.raises(RecipeError, match="f takes only texts, but reads url"):

        @curation.stage(reads=["url"])
        def f(texts): ...


def test_settings_in_python_have_the_types_of_the_function():
    for settings, told in (
        ({"least": "2"}, r"longer: Expected `int`, got `str` - at `\$.least`"),
        ({"mode": "z"}, r"longer: Invalid enum value 'z' - at `\$.mode`"),
    ):
        with pytest.raises(ValueError, match=told):
            longer(**settings)
    with pytest.raises(TypeError, match="Unexpected keyword argument 'most'"):
        longer(most=2)
    with pytest.raises(RecipeError, match="expected a stage, not the class longer"):
        curation.apply(FRAME, longer)


def test_a_function_inside_a_function_is_for_frames_alone(tmp_path: Path):
    stage = returning([True] * 4)
    assert len(curation.apply(FRAME, stage)) == 4
    recipe = recipe_of(tmp_path / "in.jsonl", stages=[stage])
    with pytest.raises(
        RecipeError, match=r"returning.<locals>.found is defined inside a function, .* Move it to its mod"
    ):
        run(recipe, tmp_path / "out", engine="cpu")
