# SPDX-License-Identifier: Apache-2.0
"""The library's functions have the settings of their stages, and editors and type checkers see them."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import dask.dataframe
import msgspec
import numpy as np
import pyarrow as pa
import pytest

import curation
import curation.frames.functions
from curation.reading.source_files import CarriedColumn
from curation.stages import STAGES
from curation.stages.base import PATH, Function
from curation.stages.rows.text_edits import Replacement
from tests.scripts import make_functions

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = {kind: getattr(curation, kind) for kind in STAGES}
DETAILED = ("exact_dedup", "fuzzy_dedup", "semantic_dedup")
PATHS = {
    ("exact_dedup", "index"),
    ("fuzzy_dedup", "index"),
    ("language", "model"),
    ("redact", "model"),
    ("semantic_dedup", "centroids"),
    ("semantic_dedup", "index"),
    ("line_dedup", "index"),
    ("substring_dedup", "index"),
}  # settings that may be a `pathlib.Path` too
WIDER = dict.fromkeys((list[str], tuple[str, ...], str | list[str], str | tuple[str, ...]), str | Sequence[str])
WIDER[tuple[Replacement, ...]] = Mapping[str, str] | Sequence[Mapping[str, str]]
WIDER[dict[str, float]] = Mapping[str, float]
WIDER[tuple[tuple[float, float], ...]] = Sequence[Sequence[float]]
WIDER[list[str] | dict[str, str]] = str | Sequence[str] | Mapping[str, str]
WIDER[list[str] | dict[str, str | CarriedColumn]] = str | Sequence[str] | Mapping[str, str | CarriedColumn]
WIDER[str | list[str] | dict[str, str]] = str | Sequence[str] | Mapping[str, str]
WIDER[str | dict[str, str]] = str | Mapping[str, str]


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    found = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return tuple(found) if isinstance(found, list) else found


def type_of(function: str, field: msgspec.structs.FieldInfo) -> Any:
    return str | os.PathLike[str] if (function, field.name) in PATHS else WIDER.get(field.type, field.type)


def settings_of(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """(default, type) of every keyword, in order."""
    types = typing.get_type_hints(function, localns={"dd": dask.dataframe})
    parameters = inspect.signature(function).parameters.values()
    return {each.name: (each.default, types[each.name]) for each in parameters if each.kind is each.KEYWORD_ONLY}


@pytest.mark.parametrize("kind", STAGES)
def test_a_function_has_the_settings_of_its_stage(kind: str):
    function = FUNCTIONS[kind]
    first = list(inspect.signature(function).parameters)[1]
    fields = [field for field in msgspec.structs.fields(STAGES[kind]) if field.name not in ("name", first)]
    expected = {field.encode_name: (default_of(field), type_of(kind, field)) for field in fields}
    found = settings_of(function)
    if kind in DETAILED:
        expected["details"] = (False, bool)
    assert list(found) == [*expected, "text_column"]
    assert found == expected | {"text_column": ("text", str)}


@pytest.mark.parametrize("kind", STAGES)
def test_a_function_takes_a_whole_stage(kind: str):
    first = list(inspect.signature(FUNCTIONS[kind]).parameters)[1]
    types = typing.get_type_hints(FUNCTIONS[kind])
    expected = types["frame"] | curation.Duplicates if kind in DETAILED else types["frame"]
    assert STAGES[kind] in typing.get_args(types[first]) and types["return"] == expected


def test_the_first_signature_of_detailed_functions_is_the_whole_one():
    for kind in DETAILED:
        whole, detailed = (inspect.signature(each).parameters for each in typing.get_overloads(undecorated(kind)))
        names = [*inspect.signature(FUNCTIONS[kind]).parameters]
        assert [*whole] == [*detailed] == names
        assert {name: whole[name].default for name in names} == {
            name: inspect.signature(FUNCTIONS[kind]).parameters[name].default for name in names
        }


def undecorated(kind: str) -> Callable[..., Any]:
    return inspect.unwrap(FUNCTIONS[kind])


def test_read_has_the_settings_of_an_input():
    fields = {field.name: field for field in msgspec.structs.fields(curation.FilesInput)}
    names = [name for name in fields if name in curation.frames.functions.READ_SETTINGS]
    found = settings_of(curation.read)
    assert list(found) == ["engine", "slice_bytes", "errors", *names]
    assert {name: found[name] for name in names} == {
        name: (default_of(fields[name]), type_of("read", fields[name])) for name in names
    }


@pytest.mark.parametrize("name", [*STAGES, "read"])
def test_help_shows_what_settings_mean(name: str):
    function = getattr(curation, name)
    kind = STAGES.get(name, curation.FilesInput)
    assert inspect.cleandoc(kind.__doc__ or "") in (function.__doc__ or "")
    assert (function.__doc__ or "").count("On a Dask frame") <= 1


WORKED_ON = {
    "frame", "left", "measures", "recipe", "paths", "inputs", "labels", "train", "index", "folder", "a", "name", "text",
    "content", "spec", "path", "corpus", "function", "edges", "task", "raw",
}  # fmt: skip


def test_at_most_two_arguments_are_positional():
    """What a function works on, then its rules, model, column, stage or output; all others are keywords."""
    found = {name: getattr(curation, name) for name in curation.__all__}
    for name in (name for name, each in found.items() if inspect.isfunction(each) and name != "Input"):
        parameters = inspect.signature(found[name]).parameters.values()
        first, *others = (each.name for each in parameters if each.kind < each.VAR_POSITIONAL)
        assert first in WORKED_ON and len(others) <= 1, name
        keywords = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
        assert len(keywords) + len(others) + 1 == len(parameters) and not {"output", "rules", "model"} & {first}, name
        assert not {"output", "rules"} & {*keywords}, f"{name} takes it second"
        assert ("text_column" in keywords) == (
            first == "frame" and name not in ("neighbours", "pca")
        ) or name == "read", name


def test_what_type_checkers_see_is_what_is_loaded():
    names: dict[str, Any] = {}
    exec((ROOT / "curation" / "__init__.pyi").read_text("utf-8"), names)
    assert {name for name in names if not name.startswith("__")} == {*curation._HOME_OF}
    assert {name: names[name] for name in curation._HOME_OF} == {
        name: getattr(curation, name) for name in curation._HOME_OF
    }


# The generator


@pytest.mark.parametrize(("path", "text"), make_functions.written().items(), ids=lambda value: value[:30])
def test_generated_code_is_that_of_the_structures(path: str, text: str):
    assert (ROOT / "curation" / path).read_text("utf-8") == text, "run `make functions`"


class Shout(curation.RowStage, frozen=True, kw_only=True, tag="shout"):
    """Write texts in upper case.

    marks     signs at the end
    codes     languages
    """

    function: ClassVar[Function] = Function(
        """Return the frame with louder texts.

            >>> frame = pandas.DataFrame({"text": ["a"]})
            >>> curation.stages.stage_functions.shout(frame, 2)["text"].tolist()
            ['A!!']

        Raises InputError for a whisper.
        """,
        types={"sign": PATH},
    )

    marks: int
    codes: tuple[str, ...] = ()
    sign: str = '"'

    def apply(self, engine: Any, frame: Any) -> Any:
        texts = [text.upper() + "!" * self.marks for text in frame["text"]]
        return curation.Outcome(text=pa.array(texts), edited=np.ones(len(texts), bool))


SHOUT = '''\
@takes(Shout)
def shout(
    frame: AnyFrame,
    marks: int | Shout,
    *,
    codes: str | Sequence[str] = (),
    sign: str | os.PathLike[str] = "\\"",
    text_column: str = "text",
) -> AnyFrame:
    """Return the frame with louder texts.

    marks                signs at the end. Or a whole `curation.Shout` in place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["a"]})
        >>> curation.stages.stage_functions.shout(frame, 2)["text"].tolist()
        ['A!!']

    Raises RecipeError for a wrong setting, InputError for a whisper, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Shout, marks, locals()), text_column=text_column)
'''


def test_a_new_stage_needs_no_more_than_its_class(monkeypatch: pytest.MonkeyPatch):
    text = make_functions.functions_text({"shout": Shout})
    assert SHOUT in text
    monkeypatch.setattr(curation.stages, "Shout", Shout, raising=False)
    module = ModuleType("stage_functions")
    exec(text, vars(module))
    monkeypatch.setattr(curation.stages, "stage_functions", module, raising=False)
    [found] = doctest.DocTestFinder().find(module.shout, "shout", globs={})
    assert doctest.DocTestRunner().run(found) == doctest.TestResults(0, 3)
    named = make_functions.names_text((ROOT / "curation" / "__init__.py").read_text("utf-8"), {"shout": Shout})
    assert re.findall(r'^        "[Ss]hout",$', named, re.M) == ['        "shout",', '        "Shout",']
    assert "from curation.stages import Shout as Shout\n" in make_functions.stub_text({"curation.stages": ["Shout"]})


def test_a_stage_without_a_function_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(Shout, "function")
    with pytest.raises(TypeError, match="Shout has no class variable `function`"):
        make_functions.functions_text({"shout": Shout})


SCRIPT = """\
import curation

frame = curation.read("a.jsonl", columns=["url"])
reveal_type(curation.rewrite(frame, unicode="nfc", text_column="body"))
reveal_type(curation.apply(frame, curation.ExactDedup()))
curation.rewrite(frame, unicod="nfc")
curation.fuzzy_dedup(frame, threshold="high")
curation.exact_dedup("text")
curation.apply(frame, curation.ExactDedup)
curation.reed("a.jsonl")
reveal_type(curation.fuzzy_dedup(frame, ngram=2, details=True))
@curation.stage
def long_enough(texts: object, *, least: int = 2) -> list[bool]: return []
@curation.stage(reads=["url"])
def has_url(frame: object, *, least: int = 2) -> list[bool]: return []
curation.apply(frame, long_enough(least=5))
reveal_type(has_url(least=5))
long_enough(least="5")
has_url(most=5)
long_enough.function
"""
# Of other packages only what the revealed types need is followed, which halves the time.
SETTINGS = """\
[mypy]
strict = true
ignore_missing_imports = true
follow_imports = skip
[mypy-curation.*,dask.*,msgspec.*]
follow_imports = silent
"""
SEEN = {
    4: 'Revealed type is "dask.dataframe',
    5: 'Revealed type is "dask.dataframe',
    6: 'Unexpected keyword argument "unicod" for "rewrite"',
    7: 'No overload variant of "fuzzy_dedup" matches argument types "DataFrame", "str"',
    8: 'No overload variant of "exact_dedup" matches argument type "str"',
    11: 'Revealed type is "tuple[Any, Any, Any, fallback=curation.frames.duplicates.Duplicates]"',
    10: 'Module has no attribute "reed"',
    17: 'Revealed type is "curation.stages.base.RowStage"',
    18: 'Argument "least" to "__call__" of "StageMaker" has incompatible type "str"; expected "int"',
    19: 'Unexpected keyword argument "most" for "__call__" of "StageMaker"',
    9: 'Argument 2 to "apply" has incompatible type "type[ExactDedup]"; expected "Stage"',
}


@pytest.mark.slow("a type checker sees public functions' signatures")
def test_a_type_checker_sees_signatures(tmp_path: Path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed: pip install '.[dev]'")
    assert (ROOT / "curation" / "py.typed").is_file()
    (tmp_path / "user.py").write_text(SCRIPT)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "mypy", "user.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    finished = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    told = finished.stdout.splitlines()
    for line, message in SEEN.items():
        assert any(entry.startswith(f"user.py:{line}: ") and message in entry for entry in told), finished.stdout
    assert f"Found {len(SEEN) - 4} errors" in finished.stdout
