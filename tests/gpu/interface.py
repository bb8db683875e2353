# SPDX-License-Identifier: Apache-2.0
"""The interface of the GPU's libraries: what `gpu_pipeline` calls, and the parameters of the real functions.

`interface.json` has the parameters, read from the wheels. `python -m tests.gpu.interface` writes it again in an
environment with the wheels of `cu13`. It needs no device: sources and stubs are read, CuPy and Numba imported.
"""

import ast
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, wraps
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import gpu_pipeline

FILE = Path(__file__).with_suffix(".json")
LIBRARIES = ("cudf", "cuml", "cupy", "dask_cuda", "pylibcudf", "rmm", "cuda.bindings", "numba.cuda")
READ = ("cudf", "cuml", "dask_cuda", "pylibcudf", "rmm")  # not imported: they need libraries of 2 GB
DISPATCHED = ("concatenate", "diff", "empty_like", "maximum", "ones_like", "searchsorted", "zeros_like")
OF_NUMBA = ("as_cuda_array", "jit", "per_thread_default_stream")  # the others are for kernels, which a test compiles

_COLUMN, _PARQUET = "pylibcudf.Column", "pylibcudf.io.parquet"
_OPTIONS = f"{_PARQUET}.ChunkedParquetWriterOptionsBuilder"
METHODS = {  # of objects that the libraries return; other libraries may have methods of these names
    "cudf.DataFrame": ("copy", "sort_values", "to_arrow"),
    "cudf.Series": ("fillna", "notna", "take", "to_frame", "to_pylibcudf"),
    "cuml.cluster.KMeans": ("fit",),
    "cupy.cuda.Event": ("record",),
    "cupy.cuda.MemoryPointer": ("copy_from_host_async", "copy_to_host_async"),
    "cupy.cuda.Stream": ("synchronize",),
    "cupy.ndarray": (
        "all", "any", "argmax", "argsort", "astype", "copy", "cumsum", "fill", "max", "reshape", "sum", "view",
    ),
    _COLUMN: ("children", "data", "num_children", "offset", "size", "type"),
    _OPTIONS: (
        "build", "compression", "key_value_metadata", "max_page_size_bytes", "metadata", "row_group_size_bytes",
        "row_group_size_rows", "stats_level",
    ),
    f"{_PARQUET}.ChunkedParquetWriter": ("close", "write"),
    f"{_PARQUET}.ChunkedParquetWriterOptions": ("set_dictionary_policy",),
    "numba.cuda.dispatcher.CUDADispatcher": ("compile",),
    "numba.cuda.dispatcher._Kernel": ("bind",),
    "pylibcudf.DataType": ("id",),
    "pylibcudf.io.types.ColumnInMetadata": ("set_name", "set_nullability"),
}  # fmt: skip


FRAMES = {  # what `curation` uses of the frames of a caller
    "cudf.DataFrame": ("attrs", "columns", "copy", "head", "iloc", "index", "reset_index", "take"),
    "cudf.Series": ("count", "dtype", "iloc", "index", "isna", "name", "rename", "to_arrow", "to_frame", "to_numpy"),
}

# What `benchmarks.gpu_bench` calls beside the engine
BENCHMARKED = tuple(f"pylibcudf.nvtext.deduplicate.{name}" for name in ("build_suffix_array", "resolve_duplicates"))


class Call(NamedTuple):
    """A use of a name of a library, such as `cupy.zeros`, or of a method, such as `.to_arrow`."""

    name: str
    place: str
    arguments: int | None  # by position; None: not called, or called with unpacked ones
    keywords: tuple[str, ...] = ()


# What `gpu_pipeline` calls


def calls() -> list[Call]:
    """Return every use of a name of the libraries and every call of a method in `gpu_pipeline`."""
    found: list[Call] = []
    for path in sorted(Path(gpu_pipeline.__file__).parent.rglob("*.py")):
        found += calls_in(path.read_text("utf-8"), path.name)
    return found


def calls_in(text: str, file: str) -> list[Call]:
    """As `calls`, of one module."""
    found: list[Call] = []
    if "import cupy" in text:
        _scope(ast.parse(text), {}, file, found)
    else:  # NumPy hands these to CuPy if the arrays are CuPy's
        _scope(ast.parse(text), {"np": "cupy"}, file, found)
        found = [each for each in found if not each.name.startswith("cupy.") or each.name[5:] in DISPATCHED]
    numba = "numba.cuda."
    return [each for each in found if not each.name.startswith(numba) or each.name.removeprefix(numba) in OF_NUMBA]


def _scope(scope: ast.AST, aliases: dict[str, str], file: str, found: list[Call]) -> None:
    aliases, functions, nodes = dict(aliases), [], []
    todo = [*ast.iter_child_nodes(scope)]
    while todo:  # in the order of the text, without the bodies of functions
        node = todo.pop(0)
        inside = isinstance(node, ast.FunctionDef | ast.Lambda)
        (functions if inside else nodes).append(node)
        todo = ([] if inside else [*ast.iter_child_nodes(node)]) + todo
        todo += getattr(node, "decorator_list", []) if inside else []
    for node in nodes:
        aliases.update(_named(node, aliases))
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Call):
            name = _dotted(node.func, aliases)
            if name is None and isinstance(node.func, ast.Attribute) and not _is_of_others(node.func.value):
                name = "." + node.func.attr
            if name:
                unpacked = any(isinstance(each, ast.Starred) for each in node.args)
                unpacked |= any(each.arg is None for each in node.keywords)
                keywords = tuple(each.arg for each in node.keywords if each.arg)
                found.append(Call(name, f"{file}:{node.lineno}", None if unpacked else len(node.args), keywords))
        elif isinstance(node, ast.Attribute) and id(node) not in inner | called and (name := _dotted(node, aliases)):
            found.append(Call(name, f"{file}:{node.lineno}", None))
    for function in functions:
        _scope(function, aliases, file, found)


def _named(node: ast.AST, aliases: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The names that a statement gives to parts of the libraries."""
    if isinstance(node, ast.Import):
        names = [(each.asname or each.name, each.name) for each in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [(each.asname or each.name, f"{node.module}.{each.name}") for each in node.names]
    elif isinstance(node, ast.Assign):
        target, value = node.targets[0], node.value
        pairs = zip(target.elts, value.elts, strict=True) if _are_tuples(target, value) else [(target, value)]
        names = [(each.id, _dotted(given, aliases) or "") for each, given in pairs if isinstance(each, ast.Name)]
    else:
        return
    yield from (
        (name, full) for name, full in names if (full + ".").startswith(tuple(f"{each}." for each in LIBRARIES))
    )


def _are_tuples(target: ast.AST, value: ast.AST) -> bool:
    return isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)


def _dotted(node: ast.AST, aliases: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    above = _dotted(node.value, aliases) if isinstance(node, ast.Attribute) else None
    return above and f"{above}.{node.attr}"


def _is_of_others(node: ast.AST) -> bool:
    """Whether a call is one of NumPy, Arrow or a module of this project, by its name in the code."""
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id in ("np", "pa", "self"))


# The real parameters


def signature_of(text: str) -> inspect.Signature:
    """Return the signature of "(a, b=..., *, c=...)"; defaults are text."""
    given = ast.parse(f"def f{text}: pass").body[0].args
    first = len(given.posonlyargs) + len(given.args) - len(given.defaults)
    kind = inspect.Parameter
    found = []
    for k, each in enumerate([*given.posonlyargs, *given.args]):
        default = ast.unparse(given.defaults[k - first]) if k >= first else kind.empty
        by = kind.POSITIONAL_ONLY if k < len(given.posonlyargs) else kind.POSITIONAL_OR_KEYWORD
        found.append(kind(each.arg, by, default=default))
    if given.vararg:
        found.append(kind(given.vararg.arg, kind.VAR_POSITIONAL))
    for each, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found.append(kind(each.arg, kind.KEYWORD_ONLY, default=ast.unparse(value) if value else kind.empty))
    if given.kwarg:
        found.append(kind(given.kwarg.arg, kind.VAR_KEYWORD))
    return inspect.Signature(found)


@cache
def recorded() -> dict[str, str | None]:
    """Return the parameters of each name, "(a, b=1)"; None for what is not called."""
    return json.loads(FILE.read_text("utf-8"))["parameters"]


def guarded(name: str, stand_in: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in that refuses the arguments that the real function refuses, by their number and names."""
    signature = signature_of(recorded()[name])

    @wraps(stand_in, updated=())
    def run(*arguments: Any, **settings: Any) -> Any:
        signature.bind(*arguments, **settings)
        return stand_in(*arguments, **settings)

    return run


def needed() -> set[str]:
    """The names whose parameters `interface.json` must have."""
    used = {call.name for call in calls() if call.name[0] != "."}
    listed = [*METHODS.items(), *FRAMES.items()]
    return {*used, *BENCHMARKED} | {f"{owner}.{method}" for owner, methods in listed for method in methods}


def real_parameters(name: str) -> str | None:
    """Return the parameters of a name from the wheels. LookupError: there is no such name."""
    return _read(name) if name.partition(".")[0] in READ else _imported(name)


def _imported(name: str) -> str | None:
    module, attributes = name, []
    while module not in sys.modules:
        try:
            importlib.import_module(module)
        except ImportError:
            module, _, last = module.rpartition(".")
            attributes.insert(0, last)
    value: Any = sys.modules[module]
    for attribute in attributes:
        owner, value = value, getattr(value, attribute, None)
        if value is None and not hasattr(owner, attribute):
            raise LookupError(name)
    if not callable(value) or (isinstance(value, type) and issubclass(value, np.generic | int)):
        return None
    found = re.match(r"[\w.]+(\(.*\))", (value.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " "))
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        text = found[1] if found else ""
    if not text:
        return None
    return _plain(re.sub(r"\\", "", text), is_method=inspect.ismethoddescriptor(value) or "(self" in text)


def _plain(text: str, is_method: bool) -> str:
    """Parameters without types, and without `self`."""
    text = re.sub(r"<[^<>]*>", "None", text)  # a default that has no literal
    text = re.sub(r"\b(?:[A-Za-z_]\w*[ *]+)+(?=\w+ *[,=)])", "", text)  # types of C
    given = ast.parse(f"def f{text[: text.rindex(')') + 1]}: pass").body[0].args
    return _parameters(given, is_method)


def _parameters(given: ast.arguments, is_method: bool) -> str:
    for each in [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]:
        if each is not None:
            each.annotation = None
    names = given.posonlyargs or given.args
    if is_method and names and names[0].arg in ("self", "cls"):
        del names[0]
    return f"({ast.unparse(given)})"


def _read(name: str) -> str | None:
    top, *rest = name.split(".")
    folder = package(top)
    assert folder is not None, f"{top} is not installed"
    return _in_module(folder, rest)


def package(name: str) -> Path | None:
    """Return the folder of an installed package; a stand-in in `sys.modules` is ignored."""
    spec = PathFinder.find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def _in_module(path: Path, names: list[str]) -> str | None:
    """The parameters of `names` in the module at a path without its ending."""
    if not names:
        return None
    files = [
        *(path.with_name(path.name + end) for end in (".pyi", ".py", ".pyx")),
        *(path / f"__init__.{e}" for e in ("pyi", "py")),
    ]
    for file in (file for file in files if file.is_file()):
        found = _in_file(file, names)
        if found is not Missing:
            return found
    below = path / names[0]
    if below.is_dir() or any(below.with_name(below.name + end).is_file() for end in (".pyi", ".py", ".pyx")):
        return _in_module(below, names[1:])
    raise LookupError(f"{'.'.join(names)} in {path}")


class Missing:
    """A file does not have a name."""


def _in_file(file: Path, names: list[str]) -> Any:
    text = file.read_text("utf-8")
    if file.suffix == ".pyx":
        return _in_cython(text, names)
    tree = ast.parse(text)
    for node in reversed(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name == names[0]:
            return _parameters(node.args, is_method=False)
        if isinstance(node, ast.ClassDef) and node.name == names[0]:
            return _in_class(file, node, names[1:])
        if isinstance(node, ast.Assign | ast.AnnAssign) and names == _targets(node):
            return None
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                above = _module_path(file, node) if (each.asname or each.name) == names[0] else None
                if above is not None and above != file.parent:  # else a module below
                    return _in_module(above, [each.name, *names[1:]])
    return Missing


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [each.id for each in targets if isinstance(each, ast.Name)]


def _module_path(file: Path, node: ast.ImportFrom) -> Path | None:
    parts = (node.module or "").split(".") if node.module else []
    if node.level:
        return file.parents[node.level - 1].joinpath(*parts)
    folder = package(parts[0]) if parts[0] in READ else None
    return folder and folder.joinpath(*parts[1:])


def _in_class(file: Path, owner: ast.ClassDef, names: list[str]) -> Any:
    wanted = names[0] if names else "__init__"
    for node in reversed(owner.body):
        if isinstance(node, ast.FunctionDef) and node.name == wanted:
            is_static = any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)
            return _parameters(node.args, is_method=not is_static)
        if isinstance(node, ast.Assign | ast.AnnAssign) and wanted in _targets(node):
            return None
    for base in (each.id for each in owner.bases if isinstance(each, ast.Name)):
        with suppress(LookupError):
            found = _in_file(file, [base, *(names or ["__init__"])])
            if found is not Missing:
                return found
    return Missing if names else "()"


def _in_cython(text: str, names: list[str]) -> Any:
    """A class of Cython, and its methods."""
    start = re.search(
        rf"^(?:cdef )?class {names[0]}\b.*?(?=^\S|\Z)(?:^\S.*?(?=^\S|\Z))*?", text, re.MULTILINE | re.DOTALL
    )
    if not start:
        return Missing
    body = text[start.start() :]
    body = body[: (re.search(r"\n(?:cdef )?class ", body) or re.search(r"\Z", body)).start()]
    found = re.search(rf"def {names[1] if len(names) > 1 else '__init__'}(\(.*?\))(?: -> [^:]*)?:\n", body, re.DOTALL)
    return _plain(found[1], is_method=True) if found else Missing


def main() -> None:
    """Write `interface.json`, or with "check" end with the names whose parameters differ."""
    found = {name: real_parameters(name) for name in sorted(needed())}
    if sys.argv[1:] != ["check"]:
        FILE.write_text(json.dumps({"wheels": "26.10", "parameters": found}, indent=1) + "\n", "utf-8")
    differing = [
        f"{name}{text}, not {recorded().get(name)}" for name, text in found.items() if recorded().get(name) != text
    ]
    sys.exit("\n".join(differing) or 0)


if __name__ == "__main__":
    main()
