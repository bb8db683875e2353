# SPDX-License-Identifier: Apache-2.0
"""Compiled kernels are kept between processes, and an edit in a function that a kernel calls takes effect."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HASH = """
import numpy as np
from cpu_fallback.kernels import hash_rows
data, out = np.frombuffer(b"some words", np.uint8), np.empty((1, 2), np.uint64)
hash_rows(data, np.array([0, 10]), np.ones(1, bool), 0, out)
print(*out[0], sum(hash_rows.stats.cache_hits.values()), hash_rows.py_func.__code__.co_filename)
"""


def hash_in_new_process(folder: Path) -> tuple[tuple[int, int], bool]:
    """The hash of a text by the packages in a folder, and whether its kernel was compiled before."""
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment = kept | {
        "PYTHONPATH": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-c", HASH]
    finished = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    high, low, hits, source = finished.stdout.split()
    assert Path(source) == folder / "cpu_fallback" / "kernels.py"
    return (int(high), int(low)), int(hits) > 0


def test_an_edited_callee_takes_effect(tmp_path: Path):
    for package in ("curation", "cpu_fallback"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    first, compiled_before = hash_in_new_process(tmp_path)
    assert not compiled_before
    assert hash_in_new_process(tmp_path) == (first, True)
    callee = tmp_path / "curation" / "kernels" / "hashing.py"
    source = callee.read_text("utf-8")
    edited = source.replace("x *= FMIX_2", "x *= FMIX_1", 1)
    assert edited != source
    callee.write_text(edited, "utf-8")
    second, compiled_before = hash_in_new_process(tmp_path)
    assert second != first and not compiled_before
    callee.write_text(source, "utf-8")
    assert hash_in_new_process(tmp_path) == (first, True)


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "NUMBA_CACHE_DIR"])
def test_without_a_folder_to_write_to_kernels_are_compiled_each_time(tmp_path: Path, variable: str):
    for package in ("curation", "cpu_fallback"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tmp").mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    environment = kept | {variable: "/dev/null/cache", "PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")}
    child = "import subprocess, sys; " + f"subprocess.run([sys.executable, '-c', {HASH!r}], check=True)"
    finished = subprocess.run(
        [sys.executable, "-c", HASH + child], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    own, childs = finished.stdout.splitlines()
    assert (own.split()[2], childs.split()[2]) == ("0", "1")  # what it starts finds what it has compiled
    [line] = finished.stderr.splitlines()
    assert "/dev/null/cache" in line and "set NUMBA_CACHE_DIR to a writable folder" in line
    assert not list((tmp_path / "tmp").iterdir()) and not list(tmp_path.rglob("*.nbi"))
    environment |= {"TMPDIR": "/dev/null", "HOME": "/dev/null"}
    code = "import tempfile; tempfile._candidate_tempdir_list = lambda: ['/dev/null']; import curation.kernels"
    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert "EngineError: compiled kernels can be written neither to /dev/null/cache" in finished.stderr.splitlines()[-1]


KEY = "from curation.kernels import CACHE_KEY; print(CACHE_KEY)"


def test_every_source_that_is_compiled_in_is_part_of_the_key(tmp_path: Path):
    """The kernels take the numbers of measures and the listed words from `curation.measures`."""

    def key() -> str:
        command = [sys.executable, "-c", KEY]
        environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout

    for package in ("curation", "cpu_fallback"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    keys = {key()}
    for name in ("curation/measures.py", "curation/kernels/words.py", "cpu_fallback/dedup.py"):
        with open(tmp_path / name, "a") as file:
            file.write("\n# edited\n")
        keys.add(key())
    assert len(keys) == 4
