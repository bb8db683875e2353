# SPDX-License-Identifier: Apache-2.0
"""Compiled kernels are kept between processes, and an edit in a function that a kernel calls takes effect."""

import errno
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import pytest
from llvmlite import binding

from curation.kernels import cache

ROOT = Path(__file__).resolve().parents[2]
HASH = """
import numpy as np
from cpu_fallback.kernels import hash_rows
data, out = np.frombuffer(b"some words", np.uint8), np.empty((1, 2), np.uint64)
offsets = np.frombuffer(np.array([0, 10]).tobytes(), np.int64)  # read-only, as those of Arrow
hash_rows(data, offsets, np.ones(1, bool), 0, out)
print(*out[0], sum(hash_rows.stats.cache_hits.values()), hash_rows.py_func.__code__.co_filename)
"""
LINKED = """
import sys
import numba
import numpy as np
from curation.kernels.packing import best_fit
best_fit(np.full(4, 3, np.int32), 8)
modules = "numba.np.arrayobj" in sys.modules
from curation.kernels.hashing import mix64
first = mix64(np.uint64(5))
@numba.njit
def sum_of(count):
    total = np.uint64(0)
    for k in range(count):
        total += mix64(np.uint64(k))
    return total
print(first, sum_of(100), modules, sum(mix64.stats.cache_hits.values()))
"""
EXTENSIONS = """
import sys
from numba.core import entrypoints
print(entrypoints._already_initialized, "awkward" in sys.modules)
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with a copy of the packages, whose processes keep kernels in the folder `cache` next to it."""
    for package in ("curation", "cpu_fallback", "gpu_pipeline", "tests/tools"):
        ignored = shutil.ignore_patterns("__pycache__", "compiled")
        shutil.copytree(ROOT / package, tmp_path / "copy" / package, ignore=ignored)
    return tmp_path / "copy"


def environment_of(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    own = {"PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(folder.parent / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    return kept | own


def output_of(code: str, folder: Path) -> list[str]:
    """The words that a new process prints, with the packages in a folder."""
    command, environment = [sys.executable, "-c", code], environment_of(folder)
    finished = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.split()


def hash_in_new_process(folder: Path) -> tuple[tuple[int, int], bool]:
    """The hash of a text by the packages in a folder, and whether its kernel was compiled before."""
    high, low, hits, source = output_of(HASH, folder)
    assert Path(source) == folder / "cpu_fallback" / "kernels.py"
    return (int(high), int(low)), int(hits) > 0


@pytest.mark.slow("extensions of Numba are loaded only to compile")
def test_extensions_of_numba_are_loaded_to_compile_alone(copy: Path):
    results = [output_of(HASH + EXTENSIONS, copy) for _ in range(2)]
    assert results[0][:2] == results[1][:2]
    assert [(found[2], found[4]) for found in results] == [("0", "True"), ("1", "False")]
    assert results[1][5] == "False"


def test_a_kernel_from_the_cache_links_into_a_new_one(copy: Path):
    """The second process parses the LLVM code of `mix64`, and imports no module of functions that `best_fit` calls."""
    results = [output_of(LINKED, copy) for _ in range(2)]
    assert results[0][:2] == results[1][:2]
    assert [found[2:] for found in results] == [["True", "0"], ["False", "1"]]


@pytest.mark.slow("an edited function is compiled again with every kernel that calls it")
def test_an_edited_callee_takes_effect(copy: Path):
    first, compiled_before = hash_in_new_process(copy)
    assert not compiled_before
    assert hash_in_new_process(copy) == (first, True)
    callee = copy / "curation" / "kernels" / "hashing.py"
    source = callee.read_text("utf-8")
    edited = source.replace("x *= FMIX_2", "x *= FMIX_1", 1)
    assert edited != source
    callee.write_text(edited, "utf-8")
    second, compiled_before = hash_in_new_process(copy)
    assert second != first and not compiled_before
    callee.write_text(source, "utf-8")
    assert hash_in_new_process(copy) == (first, True)


@pytest.mark.slow("a copy of the package with other file times finds its compiled kernels")
def test_a_copy_with_other_file_times_finds_the_kernels(copy: Path):
    expected, _ = hash_in_new_process(copy)
    moved = copy.rename(copy.parent / "moved")
    for source in moved.rglob("*.py"):
        os.utime(source, (1, 1))
    assert hash_in_new_process(moved) == (expected, True)


@pytest.mark.slow("a damaged file of the kernel cache is compiled again")
def test_a_damaged_file_counts_as_missing(copy: Path):
    expected, _ = hash_in_new_process(copy)
    [compiled] = (copy.parent / "cache").rglob("kernels.hash_rows-*")
    content = compiled.read_bytes()
    compiled.write_bytes(content[:2000] + bytes([content[2000] ^ 1]) + content[2001:])
    assert hash_in_new_process(copy) == (expected, False)
    compiled.write_bytes(compiled.read_bytes()[:-1])
    assert hash_in_new_process(copy) == (expected, False)
    assert hash_in_new_process(copy) == (expected, True)


@pytest.mark.slow("kernels compiled into a wheel are used if processor and versions match")
def test_kernels_in_the_package_are_used_where_the_key_agrees(copy: Path):
    """What `make wheel` puts into a wheel, with the kernels of one group."""
    code = "import runpy, curation.stages.warm_up as w; w.GROUPS = {'hashes': w.GROUPS['hashes']}; "
    code += "runpy.run_module('tests.scripts.wheel_kernels', run_name='__main__')"
    subprocess.run([sys.executable, "-c", code], cwd=copy, env=environment_of(copy), check=True)
    installed = copy / "curation" / "kernels" / "compiled"
    shutil.rmtree(copy.parent / "cache", ignore_errors=True)
    expected, found = hash_in_new_process(copy)
    assert found == has_avx2() and (not found or not list((copy.parent / "cache").rglob("kernels.*")))
    (installed / "key").write_text("of other sources")
    assert hash_in_new_process(copy) == (expected, False)


def has_avx2() -> bool:
    return platform.machine() == "x86_64" and bool(binding.get_host_cpu_features().get("avx2"))


@pytest.mark.slow("a run works if no folder for kernels is writable")
@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "NUMBA_CACHE_DIR"])
def test_without_a_folder_to_write_to_kernels_are_compiled_each_time(copy: Path, variable: str):
    (copy.parent / "tmp").mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    environment = kept | {variable: "/dev/null/cache", "PYTHONPATH": str(copy), "TMPDIR": str(copy.parent / "tmp")}
    child = "import subprocess, sys; " + f"subprocess.run([sys.executable, '-c', {HASH!r}], check=True)"
    finished = subprocess.run(
        [sys.executable, "-c", HASH + child], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    own, children = finished.stdout.splitlines()
    assert (own.split()[2], children.split()[2]) == ("0", "1")  # what it starts finds what it has compiled
    [line] = finished.stderr.splitlines()
    assert "/dev/null/cache" in line and "set NUMBA_CACHE_DIR to a writable folder" in line
    assert not list((copy.parent / "tmp").iterdir()) and not list(copy.parent.rglob("kernels.hash_rows-*"))
    environment |= {"TMPDIR": "/dev/null", "HOME": "/dev/null"}
    code = "import tempfile; tempfile._candidate_tempdir_list = lambda: ['/dev/null']; import curation.kernels.cache"
    finished = subprocess.run([sys.executable, "-c", code], cwd=copy, env=environment, capture_output=True, text=True)
    assert "EngineError: compiled kernels can be written neither to /dev/null/cache" in finished.stderr.splitlines()[-1]


@pytest.mark.slow("kernels are compiled in a new cache")
def test_kernels_in_a_folder_that_cannot_be_written_are_used(copy: Path):
    expected, _ = hash_in_new_process(copy)
    refuse = "import tempfile; tempfile.TemporaryFile = lambda *_, **__: exec('raise OSError(30)'); "
    code = refuse + HASH + "from curation.kernels import cache; print(cache.FOLDER != cache.SAVED)"
    high, low, hits, _, is_other = output_of(code, copy)
    assert ((int(high), int(low)), hits, is_other) == (expected, "1", "True")


def test_a_cache_that_becomes_read_only_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(cache, "FOLDER", tmp_path)
    for name in ("mkdir", "unlink"):
        monkeypatch.setattr(Path, name, refuse)
    signature = numba.types.void(numba.types.int64)
    module = SimpleNamespace(functions=(), global_variables=())
    library = SimpleNamespace(has_dynamic_globals=False, _get_module_for_linking=lambda: module)
    compiled = SimpleNamespace(lifted=(), library=library, _reduce=lambda: ())
    cache.KernelCache(refuse).save_overload(signature, compiled)
    assert not list(tmp_path.iterdir())


KEYS = """
from curation.kernels.cache import GPU_KEY, KEY, KernelCache
from gpu_pipeline.functions.items import block_at
print(KEY, GPU_KEY, KernelCache(block_at.py_func).name.endswith(GPU_KEY))
"""


@pytest.mark.slow("the key of compiled kernels covers every source that is compiled in")
def test_every_source_that_is_compiled_in_is_part_of_the_key(copy: Path):
    """The kernels take the numbers of measures and the listed words from `curation.base.measures`."""

    keys = [output_of(KEYS, copy)]
    for name in (
        "curation/base/measures.py",
        "curation/kernels/words.py",
        "cpu_fallback/dedup.py",
        "gpu_pipeline/functions/items.py",
    ):
        with open(copy / name, "a") as file:
            file.write("\n# edited\n")
        keys.append(output_of(KEYS, copy))
    cpu, gpu, in_names = zip(*keys, strict=True)
    assert len({*cpu}) == 4 and cpu[-1] == cpu[-2], "an edit of the GPU engine compiles no kernel of the CPU engine"
    assert len({*gpu}) == 2 and gpu[-1] != gpu[-2] and {*in_names} == {"True"}
