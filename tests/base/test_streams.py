# SPDX-License-Identifier: Apache-2.0
"""Each thread gets its own stream on a GPU: the variables for it are set before any import that loads CuPy. A module
in CuPy's place notes its variable when it is imported."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from curation.base.engine import STREAM_PER_THREAD

NOTES = f"""
import os
from types import SimpleNamespace

print("CuPy reads", os.environ.get("{STREAM_PER_THREAD["cupy"]}"))
ndarray, cuda = type("ndarray", (), {{}}), SimpleNamespace(runtime=None)
"""
DRIVER = """
import sys, warnings
from contextlib import suppress
from curation.base import engine

engine.find_driver = lambda: engine.DriverVersion(13020, "")
engine._device_obstacle = lambda runtime: ""
warnings.showwarning = lambda message, *_, **__: print("warns:", message) if "stream" in str(message) else None
import curation
"""
CPU_AS_GPU = 'engine.PACKAGES["gpu"] = "cpu_fallback"\n'
LATER = 'assert "cupy" in sys.modules\nengine.load_engine("gpu")\n'
READS_MODEL = """
from curation.stages.rows import named_entities
named_entities.model_files = named_entities.check_torch = lambda *_: None
with suppress(curation.RecipeError):
    named_entities.check_model("folder", ["person"])
"""
DOORS = {
    "read on the CPU": 'curation.read("texts.jsonl", engine="cpu")',
    "names of spaCy": READS_MODEL,
    "the package": "import gpu_pipeline\nwith suppress(Exception):\n    gpu_pipeline.describe",
    "read": 'curation.read("texts.jsonl", engine="gpu")',
    "read, auto": 'curation.read("texts.jsonl")',
    "run": 'curation.run({"stages": [], "output": {"formats": []}}, "out", input="texts.jsonl", engine="gpu")',
}
FAST = ("read on the CPU", "names of spaCy", "the package")


def output_of(folder: Path, code: str, **variables: str) -> list[str]:
    """The lines that Python prints, without the variables of streams unless they are given."""
    (folder / "texts.jsonl").write_text('{"text": "one"}\n')
    environment = {name: value for name, value in os.environ.items() if name not in STREAM_PER_THREAD.values()}
    environment |= {"PYTHONPATH": os.pathsep.join([str(folder / "modules"), *sys.path])} | variables
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A folder in which the modules of packages that import CuPy are made up."""
    for name, code in {"cupy": NOTES, "cudf": "import cupy", "spacy": "import cupy\nraise ImportError"}.items():
        (tmp_path / "modules" / name).mkdir(parents=True)
        (tmp_path / "modules" / name / "__init__.py").write_text(code)
    return tmp_path


@pytest.mark.parametrize(
    "door",
    [
        pytest.param(
            door, marks=[] if door in FAST else pytest.mark.slow("variables of streams are set before CuPy is imported")
        )
        for door in DOORS
    ],
)
def test_cupy_reads_the_variable(modules: Path, door: str):
    """Nobody is warned, then or later, since no user has imported it."""
    as_gpu = "" if door == "the package" else CPU_AS_GPU
    lines = output_of(modules, f"{DRIVER}{as_gpu}{DOORS[door]}\n{CPU_AS_GPU}{LATER}")
    assert [line for line in lines if line.startswith(("CuPy", "warns"))] == ["CuPy reads 1"]


@pytest.mark.parametrize("door", ["read on the CPU", "read"])
def test_a_user_who_imported_cupy_first_is_warned_once(modules: Path, door: str):
    lines = output_of(modules, f"import cupy\n{DRIVER}{CPU_AS_GPU}{DOORS[door]}\n{LATER}")
    found = [line for line in lines if line.startswith(("CuPy", "warns"))]
    assert found[0] == "CuPy reads None"
    assert len(found) == 2 and "set CUPY_CUDA_PER_THREAD_DEFAULT_STREAM=1 before the first import" in found[1]


@pytest.mark.skipif(not (find_spec("cupy") and find_spec("cudf")), reason="the wheels of CuPy and cuDF are missing")
def test_the_real_cupy_takes_the_stream_of_its_thread(tmp_path: Path):
    """Without a driver, `read` fails after the imports: CuPy has read its variable."""
    code = f"""{DRIVER}
with suppress(Exception):
    curation.read("texts.jsonl", engine="gpu")
from cupy_backends.cuda import stream
print("stream", stream.get_default_stream_ptr())
"""
    lines = output_of(tmp_path, code, RAPIDS_NO_INITIALIZE="1")
    assert [line for line in lines if line.startswith(("stream", "warns"))] == ["stream 2"]
