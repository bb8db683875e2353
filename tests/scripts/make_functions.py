# SPDX-License-Identifier: Apache-2.0
"""Write the functions of the stages from their structures: `stage_functions.py`, and the names in `curation`.

    python -m tests.scripts.make_functions

Editors, type checkers and `help()` read code, so the code is written once and checked in; a test compares it.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from curation.recipes.schema import field_texts
from curation.stages import STAGES, CorpusStage, Stage
from curation.stages.base import Function

PACKAGE = Path(__file__).resolve().parents[2] / "curation"
FUNCTIONS, NAMES, STUB = "frames/stage_functions.py", "__init__.py", "__init__.pyi"
HEADER = "# SPDX-License-Identifier: Apache-2.0\n# Written by `make functions`. Do not edit.\n"
AS_IT_IS = "# fmt: off\n# ruff: noqa: B006, E501\n"
WIDTH = 120
PARAMETER = 21  # columns of a name in a docstring
LIST = re.compile(r"(?:str \| )?(?:list\[str\]|tuple\[str, \.\.\.\])( \| dict\[str, str\])?")
IMPORTS = """\
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

from curation.base.measures import Measure
from curation.frames.duplicates import Duplicates, find_duplicates
from curation.frames.frames import AnyFrame, apply
from curation.reading.inputs import FilesInput
from curation.recipes.keywords import stage_of, takes
from curation.rules.decide import Rule
"""
ERRORS = "Raises RecipeError for a wrong setting,{more} and the errors of `curation.apply`."
DETAILS = "True: return `curation.Duplicates`, with the groups and the pairs, instead of the frame alone"


def functions_text(stages: Mapping[str, type[Stage]] = STAGES) -> str:
    """Return the code of the functions of stages: kind -> class."""
    classes = sorted(stage.__name__ for stage in stages.values())
    imported = f"from curation.stages import (\n{_listed(classes)})\n"
    exported = f"__all__ = [\n{_listed(map(json.dumps, sorted(stages)))}]\n"
    bodies = [_function(kind, stage) for kind, stage in stages.items()]
    about = '"""The stages as functions on frames: lazy on Dask frames, immediate on pandas and cuDF frames."""\n\n'
    return HEADER + AS_IT_IS + about + IMPORTS + imported + "\n\n" + "\n\n".join(bodies) + "\n\n" + exported


def names_text(text: str, stages: Mapping[str, type[Stage]] = STAGES) -> str:
    """Return the text of `curation/__init__.py` with the names of stages and of their functions."""
    for home, names in (
        ("curation.frames.stage_functions", sorted(stages)),
        ("curation.stages", sorted(stage.__name__ for stage in stages.values())),
    ):
        entry = f'    "{home}": (\n' + _listed(map(json.dumps, names), 8) + "    ),\n"
        text = re.sub(rf'    "{re.escape(home)}": \([^)]*\),\n', entry, text)
    return text


def stub_text(homes: Mapping[str, Iterable[str]]) -> str:
    """Return the stub of `curation`, which type checkers read: module -> names."""
    lines = [f"from {home} import {name} as {name}\n" for home, names in sorted(homes.items()) for name in names]
    return f"{HEADER}\n{''.join(lines)}\n__version__: str\n__all__: list[str]\n_HOMES: dict[str, tuple[str, ...]]\n"


def _listed(names: Iterable[str], indent: int = 4) -> str:
    return "".join(f"{' ' * indent}{name},\n" for name in names)


# One function


def _function(kind: str, stage: type[Stage]) -> str:
    """Return the code of a function, with its overloads."""
    function, name = _declared(stage), stage.__name__
    fields = {field.name: field for field in msgspec.structs.fields(stage) if field.name != "name"}
    second = function.second or next((field.name for field in fields.values() if field.required), "stage")
    parameters = {
        field.encode_name: _annotation(stage, function, name) + _default(field) for name, field in fields.items()
    }
    annotation, equals, default = parameters.pop(second, "None = None").partition(" = ")
    kinds = f"{name} | {annotation}" if annotation == "None" else f"{annotation} | {name}"

    def head(details: str, returned: str) -> str:
        lines = ["frame: AnyFrame", f"{second}: {kinds}{equals}{default}", "*"]
        lines += [f"{name}: {text}" for name, text in parameters.items()]
        lines += [f"details: {details}"] * function.details + ['text_column: str = "text"']
        return f"def {kind}(\n{_listed(lines)}) -> {returned}:"

    text, whole = "", f"stage_of({name}, {second}, locals())"
    if not function.details:
        text += f"@takes({name})\n{head('', 'AnyFrame')}\n{_docstring(stage, function, second)}"
        return f"{text}    return apply(frame, {whole}, text_column=text_column)\n"
    for details, returned in (("Literal[False] = False", "AnyFrame"), ("Literal[True]", "Duplicates")):
        text += f"@overload\n{head(details, returned)} ...\n"
    text += f"@takes({name})\n{head('bool = False', 'AnyFrame | Duplicates')}\n{_docstring(stage, function, second)}"
    found = "find_duplicates(frame, chosen, text_column) if details else apply(frame, chosen, text_column=text_column)"
    return f"{text}    chosen = {whole}\n    return {found}\n"


def _declared(stage: type[Stage]) -> Function:
    found = vars(stage).get("function")
    if not isinstance(found, Function):
        raise TypeError(f"{stage.__name__} has no class variable `function`, a curation.stages.base.Function. Add it")
    return found


def _annotation(stage: type[Stage], function: Function, name: str) -> str:
    """Return the types of a setting: with any sequence of strings for a list, and one string for a list of one."""
    declared = inspect.get_annotations(stage)[name]
    text = function.types.get(name) or (declared if isinstance(declared, str) else inspect.formatannotation(declared))
    if found := LIST.fullmatch(text):
        text = f"str | Sequence[str]{found[1] or ''}"
    return text.replace("dict[str, ", "Mapping[str, ")


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return "" if field.required else f" = {_literal(tuple(value) if isinstance(value, list) else value)}"


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    return repr(value)


def _docstring(stage: type[Stage], function: Function, second: str) -> str:
    """Return the docstring: what the function returns, the parameters, then the rest."""
    text = inspect.cleandoc(function.doc)
    returns, _, rest = text.partition("\n\n")
    blocks = [block for block in rest.split("\n\n") if not block.startswith("Raises ")]
    raises = [block for block in text.split("\n\n") if block.startswith("Raises ")]
    more = " ".join(raises[0].split()).removeprefix("Raises ").removesuffix(".") if raises else ""
    if issubclass(stage, CorpusStage) and "On a Dask frame" not in rest:
        blocks.insert(0, "On a Dask frame the call reads all text, as `curation.apply` describes.")
    errors = textwrap.fill(ERRORS.format(more=f" {more}," if more else ""), WIDTH - 4)
    whole = "\n\n".join([returns, _parameters(stage, function, second), *map(_example, blocks), errors])
    quotes = 'r"""' if "\\" in whole else '"""'
    return textwrap.indent(f'{quotes}{whole}\n"""\n', "    ")


def _example(block: str) -> str:
    """Return a paragraph; lines of an example are indented, and follow an import."""
    if not block.lstrip().startswith(">>>"):
        return block
    lines = textwrap.dedent(block)
    return textwrap.indent(lines if "import" in lines[:10] else f">>> import curation, pandas\n{lines}", "    ")


def _parameters(stage: type[Stage], function: Function, second: str) -> str:
    whole = f"a whole `curation.{stage.__name__}` in place of the keywords, which are its fields"
    described = field_texts(inspect.getdoc(stage) or "").get(second)
    texts = {second: f"{described}. Or {whole}" if described else whole}
    if function.details:
        texts["details"] = DETAILS
    texts["frame, text_column"] = "as in `curation.apply`"
    indent = " " * PARAMETER
    return "\n".join(
        textwrap.fill(f"{name:<{PARAMETER}}{text}", WIDTH - 4, subsequent_indent=indent, break_on_hyphens=False)
        for name, text in texts.items()
    )


def written() -> dict[str, str]:
    """Return the generated files of the package: path in it -> text."""
    names = names_text((PACKAGE / NAMES).read_text("utf-8"))
    homes = ast.literal_eval(names[names.index("{", names.index("_HOMES =")) : names.index("_HOME_OF")])
    return {FUNCTIONS: functions_text(), NAMES: names, STUB: stub_text(homes)}


if __name__ == "__main__":
    for path, text in written().items():
        (PACKAGE / path).write_text(text, "utf-8")
