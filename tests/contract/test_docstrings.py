# SPDX-License-Identifier: Apache-2.0
"""Public methods of the product have docstrings, and so have public functions of the engines.

`make check` refuses other public names without one (D1 of ruff), but ruff knows neither of two rules here. A method
inherits the docstring of the method that it overrides, as `help` does. A function of an engine whose name is in the
contract inherits that of `curation.base.contract.Engine`: twins document only differences.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from curation.base.contract import ENGINE_FUNCTIONS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("curation", "cpu_fallback", "gpu_pipeline")


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))}


@cache
def classes() -> dict[str, list[ast.ClassDef]]:
    found: dict[str, list[ast.ClassDef]] = {}
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


@pytest.fixture(autouse=True, scope="module")
def _free_trees() -> Iterator[None]:
    """The garbage collector would visit their nodes in all later tests."""
    yield
    trees.cache_clear()
    classes.cache_clear()


def functions_in(node: ast.Module | ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def is_public(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Overloads and setters have the docstring of the function or property with their name."""
    others = [ast.unparse(each) for each in function.decorator_list]
    return not function.name.startswith("_") and not any(
        each == "overload" or each.endswith((".overload", ".setter")) for each in others
    )


def bases_of(node: ast.ClassDef) -> list[ast.ClassDef]:
    names = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
    return [found for name in names for found in classes().get(name, []) if found is not node]


def is_documented(node: ast.ClassDef, name: str) -> bool:
    own = [each for each in functions_in(node) if each.name == name]
    return any(ast.get_docstring(each) for each in own) or any(is_documented(base, name) for base in bases_of(node))


def undocumented(path: Path) -> list[str]:
    tree, package = trees()[path], path.relative_to(ROOT).parts[0]
    inherited = () if package == "curation" else ENGINE_FUNCTIONS.get(path.stem, ())
    found = [
        function.name
        for function in functions_in(tree)
        if is_public(function) and function.name not in inherited and not ast.get_docstring(function)
    ]
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            methods = [function.name for function in functions_in(node) if is_public(function)]
            found += [f"{node.name}.{name}" for name in methods if not is_documented(node, name)]
    return [f"{path.relative_to(ROOT)}: {name}" for name in found]


@pytest.mark.parametrize("package", PACKAGES)
def test_public_methods_and_functions_have_docstrings(package: str):
    paths = [path for path in trees() if path.is_relative_to(ROOT / package)]
    public = [path for path in paths if not path.stem.startswith("_") or path.stem in ("__init__", "__main__")]
    assert [name for path in public for name in undocumented(path)] == []
