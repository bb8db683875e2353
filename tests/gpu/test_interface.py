# SPDX-License-Identifier: Apache-2.0
"""Every call of the GPU's libraries has parameters that the real functions take, and stand-ins take no others."""

import ast
import collections
import contextlib
import logging
import re
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import gpu_pipeline
from benchmarks import gpu_bench
from tests.gpu import interface, stand_ins
from tests.gpu.test_vectors import KMeans
from tests.needs import REMEDIES

ROOT = Path(gpu_pipeline.__file__).parents[1]
OTHERS = (
    int, str, bytes, list, dict, set, collections.deque, re, re.Pattern, logging, logging.Logger, threading,
    threading.Condition, contextlib.ExitStack, np, np.ndarray, pa, pa.Array, pa.Table, pa.Schema, pa.Buffer, pa.types,
)  # fmt: skip
ON_THE_HOST = ((".close", 0, ()), (".max", 0, ("initial",)))  # a context, a file; an array of NumPy
OWN = re.compile(r"^ *(?:def|class) (\w+)|^(\w+) = ", re.MULTILINE)


def methods() -> dict[str, list[str]]:
    """The names with the parameters of each method."""
    found: dict[str, list[str]] = {}
    for owner, names in interface.METHODS.items():
        for name in names:
            found.setdefault("." + name, []).append(f"{owner}.{name}")
    return found


@cache
def other_methods() -> set[str]:
    """Names of methods and functions of Python, NumPy, Arrow, Dask and this project."""
    texts = [path.read_text("utf-8") for name in ("curation", "gpu_pipeline") for path in (ROOT / name).rglob("*.py")]
    own = {name for text in texts for match in OWN.findall(text) for name in match}
    libraries = {"b64encode", "finalize", "get_ident", "pairwise", "replace", "_replace", "scale", "wait_for_workers"}
    return own | libraries | {name for each in OTHERS for name in dir(each)}


def faults(calls: list[interface.Call]) -> list[str]:
    """What the real functions would refuse."""
    known, others, recorded, found = methods(), other_methods(), interface.recorded(), []
    for call in calls:
        names = known.get(call.name, []) if call.name[0] == "." else [call.name]
        if not names and call.name[1:] in others:
            continue
        if not names or any(name not in recorded for name in names):
            found.append(f"{call.place}: {call.name} is not in interface.json")
        elif call.arguments is not None and not any(takes(recorded[name], call) for name in names):
            if (call.name, *call[2:]) in ON_THE_HOST:
                continue
            found.append(f"{call.place}: {call.name}{recorded[names[0]]} does not take {call[2:]}")
    return found


def takes(parameters: str | None, call: interface.Call) -> bool:
    try:
        interface.signature_of(parameters or "(*args, **kwargs)").bind(
            *[None] * call.arguments, **dict.fromkeys(call.keywords)
        )
    except TypeError:
        return False
    return True


def test_the_real_functions_take_every_call():
    calls = interface.calls()
    assert len({call.name for call in calls}) > 100
    assert faults(calls) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("import cupy as cp\ncp.lexsort([1])", "cupy.lexsort is not in interface.json"),
        ("import cupy as cp\ncp.zeros(3, like=None)", "cupy.zeros(shape, dtype=None, order='C') does not take"),
        ("import cudf\ncudf.concat(a, sort=True, copy=False)", "cudf.concat"),
        ("from cuml.cluster import KMeans\nKMeans(8)", "cuml.cluster.KMeans(*, n_clusters=8"),
        ("import rmm\nrmm.mr.PoolMemoryResource()", "rmm.mr.PoolMemoryResource(upstream_mr"),
        ("import cupy\ndef f():\n  r = cupy.cuda.runtime\n  r.memGetInfo(1)", "cupy.cuda.runtime.memGetInfo()"),
        ("import cupy\ncupy.cuda.runtime.freeAll", "cupy.cuda.runtime.freeAll is not in"),
        ("frame.to_arrow(index=False)", ".to_arrow(preserve_index=None) does not take"),
        ("import numpy as np\nnp.zeros_like(a, b, c, d, e, f)", "cupy.zeros_like(a, dtype=None"),
        ("frame.drop_rows()", ".drop_rows is not in interface.json"),
    ],
)
def test_a_call_that_the_real_function_refuses_is_a_fault(text, fault):
    (found,) = faults(interface.calls_in(text, "made.py"))
    assert fault in found


def shapes(text: str) -> list[ast.expr]:
    """The shapes that functions such as `empty_like` are given."""
    likes = (
        node for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_like")
    )  # fmt: skip
    return [keyword.value for node in likes for keyword in node.keywords if keyword.arg == "shape"]


def test_the_shape_of_an_array_like_another_is_a_tuple():
    """For a shape of 0 CuPy 14.2 returns an array as long as the other one, over no memory: kernels wrote anywhere."""
    found = [each for path in sorted((ROOT / "gpu_pipeline").rglob("*.py")) for each in shapes(path.read_text("utf-8"))]
    assert found
    assert all(isinstance(each, ast.Tuple) for each in found)
    assert not isinstance(shapes("np.zeros_like(a, shape=n)")[0], ast.Tuple)


def test_the_stand_in_of_cupy_has_what_is_recorded_and_no_more(monkeypatch):
    stand_ins.install(monkeypatch)
    cupy = sys.modules["cupy"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'like'"):
        cupy.zeros(3, like=None)
    assert not hasattr(cupy, "lexsort")
    with pytest.raises(TypeError, match="missing a required argument"):
        sys.modules["cudf"].concat()


def test_the_stand_in_of_k_means_has_the_real_parameters():
    stand_in = interface.inspect.signature(KMeans).parameters.values()
    real = interface.signature_of(interface.recorded()["cuml.cluster.KMeans"]).parameters.values()
    assert [(each.name, each.kind, each.default) for each in stand_in] == [
        (each.name, each.kind, eval(each.default)) for each in real
    ]


def test_libcudf_takes_the_calls_of_the_benchmark(monkeypatch):
    functions = {
        name.rpartition(".")[2]: interface.guarded(name, lambda *given: given) for name in interface.BENCHMARKED
    }
    for name in ("pylibcudf", "pylibcudf.nvtext"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(deduplicate=SimpleNamespace(**functions)))
    assert gpu_bench.suffix_array("column") == ("column", ("column", 200), 200)


@pytest.mark.skipif(
    any(interface.package(name) is None for name in (*interface.READ, "cupy")),
    reason=f"cudf is not installed: {REMEDIES['cudf']}",
)
def test_recorded_parameters_are_those_of_the_installed_libraries():
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.interface", "check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"run `python -m tests.gpu.interface`: {done.stderr}"
