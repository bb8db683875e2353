# SPDX-License-Identifier: Apache-2.0
"""Stages that a cell of a notebook defines by `@curation.stage`.

Tasks find a stage by its kind, here `__main__:NAME`. The threads of this process find the class in `__main__`. Worker
processes receive the function through a pipe when this process starts them. The folder of a run stores only the SHA-256
of the source, so no file of the folder can bring code into a run.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import CodeType
from typing import Any

from curation.base.errors import RecipeError
from curation.stages.base import Stage

MAIN = "__main__"
GLOBAL = "global "  # prefix of the name of a global value that a stage uses
CURE = "Move the stage to a module: %%writefile mystages.py in its cell, then import it"
PLAIN = (bool, int, float, str, bytes, type(None), list, tuple, dict, set, frozenset)  # types of the global values


def is_of_cell(stage_class: type[Stage]) -> bool:
    """Return whether a function of `__main__` defines the stage."""
    return stage_class.__module__ == MAIN and hasattr(stage_class, "function")


def sources_of(stage_class: Any) -> dict[str, str]:
    """Return the SHA-256, by name, of the source of the stage's function ("cell NAME"), of the functions of `__main__`
    that it calls, and of the plain global values that all these use. Raises RecipeError if the source cannot be
    read."""
    if stage_class.sent_sources:
        return dict(stage_class.sent_sources)
    try:
        sources = dict(_sources(f"cell {stage_class.__name__}", stage_class.function, set()))
    except (OSError, TypeError):
        raise RecipeError(f"{stage_class.__name__}: the source of the function cannot be read. {CURE}") from None
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sources.items()}


def _sources(label: str, function: Any, seen: set[str]) -> Iterator[tuple[str, str]]:
    yield label, textwrap.dedent(inspect.getsource(function))
    for name in sorted(_names_in(function.__code__) & function.__globals__.keys() - seen):
        seen.add(name)
        value = function.__globals__[name]
        if inspect.isfunction(value) and value.__module__ == MAIN:
            yield from _sources(f"function {name}", value, seen)
        elif isinstance(value, PLAIN):
            members = sorted(map(repr, value)) if isinstance(value, set | frozenset) else value
            yield f"{GLOBAL}{name}", f"{name} = {members!r}"


def _names_in(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names}.union(*map(_names_in, inner))


def check_cell(stage: Stage) -> None:
    """Raise RecipeError if the cell of a stage has run again since the stage was made."""
    if getattr(sys.modules[MAIN], type(stage).__name__, None) is not type(stage):
        raise RecipeError(f"{stage.kind}: its cell has run again since the stage was made. Make the recipe again")


def refuse_cells(stages: Sequence[Stage], where: str) -> None:
    """Raise RecipeError for a stage of a cell if other programs run the tasks. `where` names these programs."""
    for stage in stages:
        if is_of_cell(type(stage)):
            raise RecipeError(f"{stage.kind} is defined in a notebook, and {where} cannot have its code. {CURE}")


def sender(stages: Sequence[Stage]) -> Callable[[], Callable[[], None] | None]:
    """Return a function that makes the initializer of worker processes. The initializer defines the stages of cells in
    a worker; it is None without such stages. Stages are pickled only when processes start, so a run with threads may
    use functions that cannot be pickled."""
    return partial(_installer, [type(stage) for stage in stages if is_of_cell(type(stage))])


def _installer(classes: Sequence[Any]) -> Callable[[], None] | None:
    if not classes:
        return None
    import cloudpickle

    sent = []
    for each in classes:
        try:
            data = cloudpickle.dumps(each.function)
        except Exception as error:  # pickling an object that the function uses may raise any error
            raise RecipeError(
                f"{each.__name__}: the function cannot be sent to worker processes: {error}. Give "
                f'scheduler="threads", or make what it uses inside the function. {CURE}'
            ) from None
        sent.append((data, each.frame_columns, sources_of(each)))
    return partial(_install, sent)


def _install(sent: Sequence[tuple[bytes, tuple[str, ...] | None, dict[str, str]]]) -> None:
    """Define stages in `__main__` of a worker process, as in the notebook that started the process."""
    from curation.stages.own_functions import class_of

    for data, columns, sources in sent:
        made: Any = class_of(pickle.loads(data), columns or ())
        made.sent_sources = sources
        setattr(sys.modules[MAIN], made.__name__, made)
