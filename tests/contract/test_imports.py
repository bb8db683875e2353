# SPDX-License-Identifier: Apache-2.0
"""Imports point one way, engines load only when asked for, and the engines are twins. Read from the source, so that
the GPU engine is checked on machines that cannot import it."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from curation.base.contract import ENGINE_FUNCTIONS
from curation.frames.engine_functions import FUNCTIONS
from tests.leaves import LEAVES, TABLES, files_of

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ("cpu_fallback", "gpu_pipeline")
FRAMES_AND_ENGINES = {"pandas", "cudf", "dask_cudf", "cupy", "cupyx", "pylibcudf", *ENGINES}

# What the files of a folder may not import.
FORBIDDEN = {
    "curation": FRAMES_AND_ENGINES,
    "cpu_fallback": {"cudf", "dask_cudf", "cupy", "cupyx", "pylibcudf", "rmm", "gpu_pipeline"},
    "gpu_pipeline": {"pandas", "cpu_fallback"},
}
# Inside `curation`, what one place alone may import.
RESERVED = {
    "dask": ("base/system/cluster.py", "frames/frames.py", "frames/functions.py"),
    "distributed": "base/system/cluster.py",
    "numba": "kernels/",
    "torch": ("models/", "tokens/", "tools/ablation/", "training/"),
}
# The rooms of `curation`, from the bottom up. A room imports only rooms of the rows below its own.
FLOORS: list[set[str]] = [
    {"base"},
    {"kernels"},
    {"models", "reading", "rules"},
    {"tokens"},
    {"stages", "training"},
    {"recipes"},
    {"record"},
    {"frames", "results"},
    {"running", "tools"},
    {"cli"},
]
ALIASES = {"demo", "engine"}  # modules for notebooks: they import names from a room, and no room imports them
# The rooms of `curation/stages`, in the same order.
STAGE_FLOORS: list[set[str]] = [
    {"outcome"},
    {"text_sizes"},
    {"base"},
    {"words"},
    {"corpus"},
    {"exact", "near", "rows", "shares"},
    {"vectors"},
]
ENGINE_ROOM = "curation.frames.engine_functions"  # from `stages` up, engines load this module alone (decision 0118)
LOAD_BY_NAME = {"__init__.py", "base/engine.py", "stages/own_code.py"}
FOLDERS = ["functions", "kernels", "memory"]  # of the GPU engine, the lowest first; the package itself is above them
SLOW_TO_LOAD = {"dask", "numba", "pandas", "pyarrow", "tiktoken"}


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.fixture(autouse=True, scope="module")
def _free_trees() -> Iterator[None]:
    """The garbage collector would visit their nodes in all later tests."""
    yield
    for function in (parse, nodes_of, modules_imported):
        function.cache_clear()


@cache  # all tests read the same files
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), filename=str(path))


@cache
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    return [*ast.walk(tree)]


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(top-level package, line) of every import, those inside functions and `if TYPE_CHECKING` too."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0], node.lineno


def loads_by_name(tree: ast.AST) -> bool:
    names = {node.id for node in nodes_of(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes_of(tree) if isinstance(node, ast.Attribute)}
    names |= {alias.name for node in nodes_of(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    return bool(names & {"import_module", "__import__"})


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_imports_point_one_way(folder: str):
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {package}"
        for path in sources(folder)
        for package, line in imported(parse(path))
        if package in FORBIDDEN[folder]
    ]
    assert wrong == []


def rooms_imported(tree: ast.Module) -> set[str]:
    """What a file imports of `curation` when it is loaded; not what only a type checker reads."""
    names: set[str] = set()
    loaded = [part for part in tree.body if not isinstance(part, ast.If) or ast.unparse(part.test) != "TYPE_CHECKING"]
    for node in (node for part in loaded for node in nodes_of(part)):
        if isinstance(node, ast.ImportFrom) and node.module == "curation":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("curation."):
            names.add(str(node.module).split(".")[1])
    return names - {"__version__"}


def room_of(path: Path) -> str:
    return path.relative_to(ROOT / "curation").parts[0].removesuffix(".py")


def test_folders_of_the_gpu_engine_import_only_those_below():
    for path in sources("gpu_pipeline"):
        names = re.findall(r"^ *from gpu_pipeline(?:\.(\w+))?", path.read_text("utf-8"), re.M)
        floors = [FOLDERS.index(name) if name in FOLDERS else len(FOLDERS) for name in names]
        floor = FOLDERS.index(path.parent.name) if path.parent.name in FOLDERS else len(FOLDERS)
        assert max(floors, default=0) <= floor, path


def test_every_room_has_a_floor():
    rooms = {room_of(path) for path in sources("curation")}
    assert rooms - {"__init__", "__main__"} - ALIASES <= set().union(*FLOORS)


@pytest.mark.parametrize("floor", range(len(FLOORS)), ids=lambda floor: "-".join(sorted(FLOORS[floor])))
def test_rooms_import_only_rooms_below(floor: int):
    below: set[str] = set().union(*FLOORS[:floor])
    wrong = {
        path.relative_to(ROOT).as_posix(): sorted(names)
        for path in sources("curation")
        if room_of(path) in FLOORS[floor] and (names := rooms_imported(parse(path)) - below - {room_of(path)})
    }
    assert wrong == {}


@pytest.mark.parametrize("floor", range(len(STAGE_FLOORS)), ids=lambda floor: "-".join(sorted(STAGE_FLOORS[floor])))
def test_rooms_of_stages_import_only_rooms_below(floor: int):
    below: set[str] = set().union(*STAGE_FLOORS[:floor])
    wrong = []
    for path in sources("curation/stages"):
        room = path.relative_to(ROOT / "curation/stages").parts[0].removesuffix(".py")
        modules = [name.split(".") for name in modules_imported(path) if name.startswith("curation.stages.")]
        others = {parts[2] for parts in modules} - below - {room}
        if room in STAGE_FLOORS[floor] and others:
            wrong.append((path.name, sorted(others)))
    assert wrong == []


@cache
def modules_imported(path: Path) -> frozenset[str]:
    """The modules of `curation` that a file imports, for type checkers too."""
    names = set()
    for node in (node for node in nodes_of(parse(path)) if isinstance(node, ast.ImportFrom)):
        for alias in node.names:
            child = ROOT / f"{node.module}.{alias.name}".replace(".", "/")
            is_module = child.with_suffix(".py").is_file() or child.is_dir()
            names.add(f"{node.module}.{alias.name}" if is_module else str(node.module))
    return frozenset(names)


@pytest.mark.parametrize("leaf", LEAVES)
def test_only_tables_name_the_modules_of_a_leaf(leaf: str):
    files = files_of(leaf)
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files}
    others = [path for folder in FORBIDDEN for path in sources(folder) if path not in files]
    naming = {path.relative_to(ROOT).as_posix() for path in others if modules_imported(path) & modules}
    assert modules and naming <= {*TABLES}


def circles(arrows: dict[str, set[str]]) -> set[str]:
    """What is left when everything that imports nothing of the rest is taken away, again and again."""
    left = dict(arrows)
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    return {*left}


def test_no_modules_import_each_other_in_a_circle():
    arrows = {
        (name := ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")): {
            *modules_imported(path)
        }
        - {name}
        for path in sources("curation")
    }
    del arrows["curation"]  # names everything public for type checkers
    assert circles(arrows) == set()
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == {"a", "b", "c"}


def test_what_only_a_type_checker_imports_has_no_floor():
    tree = ast.parse("from curation.stages import x\nif TYPE_CHECKING:\n    from curation.recipes.recipe import Recipe")
    assert rooms_imported(tree) == {"stages"}


@pytest.mark.parametrize("package", RESERVED)
def test_reserved_packages_are_imported_in_one_place(package: str):
    places = {
        path.relative_to(ROOT / "curation").as_posix()
        for path in sources("curation")
        if package in dict(imported(parse(path)))
    }
    assert {place for place in places if not place.startswith(RESERVED[package])} == set()


def test_modules_are_loaded_by_name_at_the_edge_only():
    folder = ROOT / "curation"
    places = {path.relative_to(folder).as_posix() for path in sources("curation") if loads_by_name(parse(path))}
    assert places <= LOAD_BY_NAME


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import cudf.core", ["cudf"]),
        ("from pandas import Series", ["pandas"]),
        ("def f():\n    import cupy as cp", ["cupy"]),
        ("if TYPE_CHECKING:\n    import dask.dataframe as dd", ["dask"]),
        ("from . import sibling", []),
    ],
)
def test_every_form_of_import_is_seen(code: str, expected: list[str]):
    assert [package for package, _ in imported(ast.parse(code))] == expected


@pytest.mark.parametrize(
    "code",
    [
        "import importlib\nimportlib.import_module(x)",
        "from importlib import import_module",
        "__import__(x)",
    ],
)
def test_every_form_of_loading_by_name_is_seen(code: str):
    assert loads_by_name(ast.parse(code))
    assert not loads_by_name(ast.parse("from importlib import resources"))


def test_import_curation_loads_nothing_slow():
    code = f"import sys, curation; print(sorted({SLOW_TO_LOAD!r} & sys.modules.keys()))"
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (finished.stdout, finished.stderr) == ("[]\n", "")


def loaded_by_engine(tree: ast.Module) -> set[str]:
    """The modules of `curation` that a file of an engine loads, those inside functions too."""
    loaded = [part for part in tree.body if not isinstance(part, ast.If) or ast.unparse(part.test) != "TYPE_CHECKING"]
    nodes = [node for part in loaded for node in nodes_of(part) if isinstance(node, ast.ImportFrom)]
    return {str(node.module) for node in nodes if str(node.module).startswith("curation.")}


def test_engines_load_nothing_from_stages_up_but_the_functions_on_frames(engine_name: str):
    below: set[str] = set().union(*FLOORS[: FLOORS.index({"stages", "training"})])
    wrong = {
        path.name: found
        for path in sources(engine_name)
        if (found := {name for name in loaded_by_engine(parse(path)) if name.split(".")[1] not in below})
    }
    assert wrong.pop("__init__.py") == wrong.pop("buffers.py") == {ENGINE_ROOM}
    assert wrong == {}


def test_no_module_of_an_engine_has_the_name_of_a_function(engine_name: str):
    """Its import would replace the function in the package."""
    assert {path.stem for path in sources(engine_name)} & FUNCTIONS == set()


def test_the_functions_on_frames_load_no_library():
    code = "import sys; old = {*sys.modules}; import curation.frames.engine_functions; print({*sys.modules} - old)"
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    ours = {"curation", "curation.frames", ENGINE_ROOM}
    assert {name for name in ast.literal_eval(finished.stdout) if "curation" in name} == ours
    assert not SLOW_TO_LOAD & ast.literal_eval(finished.stdout)


# The twins


def functions(tree: ast.AST) -> dict[str, ast.FunctionDef]:
    """The public functions at the top of a module or class."""
    body = getattr(tree, "body", [])
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")}


def signature(node: ast.FunctionDef) -> str:
    """Parameters with their defaults, without annotations and `self`."""
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    for argument in filter(None, every):
        argument.annotation = None
    for positional in (arguments.posonlyargs, arguments.args):
        positional[:] = [argument for argument in positional if argument.arg != "self"]
    return ast.unparse(arguments)


def signatures(tree: ast.AST) -> dict[str, str]:
    return {name: signature(node) for name, node in functions(tree).items()}


def module_signatures(engine: str, name: str) -> dict[str, str]:
    path = ROOT / engine / f"{name}.py"
    assert path.is_file(), f"{engine}/ has no {name}.py, which the contract asks for"
    return signatures(parse(path))


def contract_signatures() -> dict[str, str]:
    tree = parse(ROOT / "curation/base/contract.py")
    protocol = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Engine")
    return signatures(protocol)


@pytest.fixture(params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    if not sources(request.param):
        pytest.skip(f"{request.param}/ has no modules yet")
    return request.param


def test_signatures_are_compared_whole():
    method = "class Engine:\n def f(self, a: int, /, b: str = 'x', *c: int, d: bool = True, **e: int) -> None: ..."
    function = "def f(a, /, b='x', *c, d=True, **e): return a"
    (expected,) = (signatures(node) for node in ast.parse(method).body)
    assert signatures(ast.parse(function)) == expected == {"f": "a, /, b='x', *c, d=True, **e"}


def test_the_contract_says_where_each_function_lives():
    named = [name for names in ENGINE_FUNCTIONS.values() for name in names]
    assert sorted(named) == sorted(contract_signatures())


@pytest.mark.parametrize(("module", "names"), ENGINE_FUNCTIONS.items(), ids=ENGINE_FUNCTIONS)
def test_engines_have_the_signatures_of_the_contract(engine_name: str, module: str, names: tuple[str, ...]):
    contract = contract_signatures()
    actual = module_signatures(engine_name, module)
    assert {name: actual.get(name, "missing") for name in names} == {name: contract[name] for name in names}


@pytest.mark.parametrize("module", ENGINE_FUNCTIONS)
def test_twins_have_the_same_public_functions(module: str):
    """In the modules of the contract. An engine may have other modules, such as its kernels."""
    cpu, gpu = (module_signatures(engine, module) for engine in ENGINES)
    assert cpu == gpu


def kernels_of(package: str) -> set[str]:
    """The modules of `curation.kernels` that a package imports, directly or through others of them."""
    left, found = [path for path in sources(package) if path.parent != ROOT / "curation" / "kernels"], set()
    while left:
        new = {name for name in modules_imported(left.pop()) if name.startswith("curation.kernels.")} - found
        left += [ROOT / f"{name.replace('.', '/')}.py" for name in new]
        found |= new
    return found


def test_kernels_of_one_engine_alone_are_in_its_package():
    cpu, gpu, others = map(kernels_of, (*ENGINES, "curation"))
    assert "curation.kernels.minhash" in cpu & gpu
    assert (cpu ^ gpu) - others == set()
