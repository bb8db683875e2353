# SPDX-License-Identifier: Apache-2.0
"""The pipelines of a Python script, read from its syntax tree. Nothing of the script is run or imported.

A value is known if it is a literal, a name to which the script assigns one literal, or made of these, as
`f"{BASE}/output"`. Any other value is `Unread`. A pipeline is a list, a name of a list, or a call of a function of the
script that only returns a list.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from typing import Any

from curation.base.errors import RecipeError
from curation.recipes.imported.entries import Entry, Made, Unread

PIPELINE = "pipeline"
MAX_DEPTH = 50  # depth of nested values, and of names that stand for names


def pipelines_of(text: str, where: str) -> list[list[Made | str]]:
    """Return the lists of steps in a script, in their order. A step that is no call is given as its source text.

    Raises RecipeError for a file that is not Python, or has no pipeline.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on escapes in strings of the script
            tree = ast.parse(text)
        _unaliased(tree)
        names = _assigned(tree)
        found = [[_step(node, names) for node in part] for part in _lists(tree, names)]
    except SyntaxError as error:
        place = f" (line {error.lineno})" if error.lineno else ""
        raise RecipeError(f"{where} is not Python: {error.msg}{place}") from None
    except (ValueError, RecursionError, MemoryError):  # NUL, nested too deeply
        raise RecipeError(
            f"{where} is not a Python script that can be read: it has NUL or is nested too deeply"
        ) from None
    found = [part for part in found if part]
    if not found:
        raise RecipeError(
            f"{where} has no pipeline of datatrove: expected pipeline=[JsonlReader(...), ...] of an executor"
        )
    return found


def _unaliased(tree: ast.Module) -> None:
    """Replace each alias of `import A as B` by the original name."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    own = {alias.asname: alias.name for node in imports for alias in node.names if alias.asname}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = own.get(node.id, node.id)


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the names that the script assigns exactly once -> their expressions."""
    values: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            values.setdefault(node.target.id, []).append(node.value)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            values.setdefault(node.id, [])
        elif isinstance(node, ast.arg):
            values.setdefault(node.arg, []).append(None)  # a parameter hides the name
        elif isinstance(node, ast.AugAssign | ast.For) and isinstance(node.target, ast.Name):
            values.setdefault(node.target.id, []).append(None)
    return {name: found[0] for name, found in values.items() if len(found) == 1 and found[0] is not None}


def _lists(tree: ast.Module, names: dict[str, ast.expr]) -> Iterator[list[ast.expr]]:
    """Yield the elements of each list that is a pipeline, in the order of the script, each list once."""
    calls = sorted((node for node in ast.walk(tree) if isinstance(node, ast.Call)), key=lambda node: node.lineno)
    seen: set[int] = set()
    for call in calls:
        given = [word.value for word in call.keywords if word.arg == PIPELINE]
        if not given and _called(call).endswith("Executor"):
            given = call.args[:1]
        for value in given:
            node = _returned(_target(value, names), tree, names)
            if id(node) not in seen and not (isinstance(node, ast.Constant) and node.value is None):
                seen.add(id(node))
                yield [*_elements(node, names)]


def _returned(node: ast.expr, tree: ast.Module, names: dict[str, ast.expr]) -> ast.expr:
    """Return the expression that a call returns, if the script has one function of this name, without parameters and
    with one `return`."""
    if not isinstance(node, ast.Call) or node.args or node.keywords:
        return node
    own = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name == ast.unparse(node.func)]
    returns = [each.value for each in ast.walk(own[0]) if isinstance(each, ast.Return)] if len(own) == 1 else []
    return _target(returns[0], names) if len(returns) == 1 and returns[0] is not None else node


def _elements(node: ast.expr, names: dict[str, ast.expr]) -> Iterator[ast.expr]:
    """Yield the elements of a list, or of lists that `+` joins. Any other expression is one element."""
    node = _target(node, names)
    if isinstance(node, ast.List | ast.Tuple):
        for element in node.elts:
            yield from _elements(element.value, names) if isinstance(element, ast.Starred) else (element,)
    elif isinstance(node, ast.BinOp):
        yield from _elements(node.left, names)
        yield from _elements(node.right, names)
    else:
        yield node


def _target(node: ast.expr, names: dict[str, ast.expr]) -> ast.expr:
    for _ in range(MAX_DEPTH):
        if not isinstance(node, ast.Name) or node.id not in names:
            return node
        node = names[node.id]
    return node


def _called(call: ast.Call) -> str:
    """Return the last part of the name that is called; for `Class.method(...)` this is `Class`."""
    return ast.unparse(call.func).rpartition(".")[2]


def _step(node: ast.expr, names: dict[str, ast.expr]) -> Made | str:
    found = _value(node, names, 0)
    return found if isinstance(found, Made) else ast.unparse(node)


def _value(node: ast.expr, names: dict[str, ast.expr], depth: int) -> Any:
    """Return the value of an expression, or Unread if only a run would give it."""
    node = _target(node, names)
    if depth > MAX_DEPTH:
        return Unread(ast.unparse(node))
    match node:
        case ast.Constant():
            return node.value
        case ast.List() | ast.Tuple() | ast.Set():
            return [_value(element, names, depth + 1) for element in node.elts]
        case ast.Dict() if all(isinstance(key, ast.Constant) for key in node.keys):
            return {
                key.value: _value(value, names, depth + 1)
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant)
            }
        case ast.UnaryOp(op=ast.USub()):
            operand = _value(node.operand, names, depth + 1)
            return -operand if isinstance(operand, int | float) else Unread(ast.unparse(node))
        case ast.JoinedStr():
            return _joined(node, [_value(part, names, depth + 1) for part in _parts(node)])
        case ast.BinOp(op=ast.Add()):
            return _joined(node, [_value(side, names, depth + 1) for side in (node.left, node.right)])
        case ast.Call():
            keywords = {word.arg: _value(word.value, names, depth + 1) for word in node.keywords if word.arg}
            positional = [_value(value, names, depth + 1) for value in node.args]
            return Made(_called(node), keywords, positional, node.lineno)
    return Unread(ast.unparse(node))


def _parts(node: ast.JoinedStr) -> list[ast.expr]:
    return [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]


def _joined(node: ast.expr, parts: list[Any]) -> Any:
    """Return the text that joins parts of an f-string; all parts must be text or numbers."""
    if isinstance(node, ast.JoinedStr):
        plain = all(not isinstance(part, ast.FormattedValue) or part.format_spec is None for part in node.values)
    else:
        plain = all(isinstance(part, str) for part in parts)
    if plain and all(isinstance(part, str | int | float) for part in parts):
        return "".join(map(str, parts))
    return Unread(ast.unparse(node))


def as_entry(step: Made | str, parameters: dict[str, tuple[str, ...]]) -> Entry:
    """Return the entry of a step. `parameters` names the positional parameters of each class."""
    if isinstance(step, str):
        return Entry(step, "", {})
    known = parameters.get(step.name, ())
    names = [*known, *(f"argument {number + 1}" for number in range(len(known), len(step.positional)))]
    named = dict(zip(names, step.positional, strict=False))
    return Entry(step.name, f"line {step.line}", named | step)
