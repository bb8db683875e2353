# SPDX-License-Identifier: Apache-2.0
"""The selector: one message for everything that keeps the GPU engine from running, and no silent fallback."""

import ctypes
import os
import re
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import dask.dataframe as dd
import pandas as pd
import pytest

import cpu_fallback
from curation.base import engine
from curation.base.engine import choose_engine, engine_of, gpu_obstacle, load_engine, suit_engine
from curation.base.errors import EngineError
from curation.base.speeds import MODELLED, RunWork

GIB = 1 << 30
PAGE = (Path(__file__).parents[2] / "docs/installing_gpu.md").read_text("utf-8")
ROWS = PAGE.partition("| message |")[2].partition("\n\n")[0].splitlines()
ON_THE_PAGE = [text for row in ROWS for text in re.findall(r"`([^`]+)`", row.split("|")[1])]


class Machine:
    """A machine as the selector sees it; all is well until a test breaks something."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver: int | None = 13000
        self.init_code = 0
        self.packages = {"cudf-cu13"}
        self.devices = 1
        self.capability = (9, 0)
        self.free = 130 * GIB
        self.device_error = ""
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(ctypes, "CDLL", self.load)
        monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: self.packages or None)
        monkeypatch.setattr(engine.importlib.metadata, "distribution", self.distribution)
        monkeypatch.setitem(sys.modules, "cudf", SimpleNamespace())
        monkeypatch.delitem(sys.modules, "rmm", raising=False)
        for variable in engine.STREAM_PER_THREAD.values():
            monkeypatch.setenv(variable, "1")
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=self)))

    def load(self, name: str) -> SimpleNamespace:
        assert name == "libcuda.so.1"
        if self.driver is None:
            raise OSError("libcuda.so.1: cannot open shared object file")

        def write_version(place) -> int:
            place._obj.value = self.driver
            return 0

        return SimpleNamespace(cuInit=lambda flags: self.init_code, cuDriverGetVersion=write_version)

    def distribution(self, name: str) -> str:
        if name not in self.packages:
            raise engine.importlib.metadata.PackageNotFoundError(name)
        return name

    def getDeviceCount(self) -> int:  # noqa: N802 - CUDA's names
        if self.device_error:
            raise RuntimeError(self.device_error)
        return self.devices

    def getDevice(self) -> int:  # noqa: N802
        return 0

    def getDeviceProperties(self, number: int) -> dict:  # noqa: N802
        return {"name": b"Made GPU", "major": self.capability[0], "minor": self.capability[1]}

    def memGetInfo(self) -> tuple[int, int]:  # noqa: N802
        return self.free, 140 * GIB

    def break_cudf(self, error: Exception) -> None:
        def import_module(name: str):
            raise error

        self.monkeypatch.setattr(engine.importlib, "import_module", import_module)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_a_machine_with_everything(machine: Machine):
    assert gpu_obstacle() == ""
    assert choose_engine("gpu") == ("gpu", "asked for")
    assert choose_engine("auto") == ("gpu", "auto: a GPU and cuDF are here")
    assert choose_engine("cpu") == ("cpu", "asked for")


def test_threads_get_a_stream_of_their_own(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    """The variables are set before cuDF and CuPy are imported, which read them then."""
    seen = []
    monkeypatch.setattr(os, "environ", {"HOME": os.environ["HOME"], "CUDF_PER_THREAD_STREAM": "0"})
    monkeypatch.setattr(engine, "STREAM_PER_THREAD", dict(zip("ab", engine.STREAM_PER_THREAD.values(), strict=True)))
    imported = engine.importlib.import_module
    monkeypatch.setattr(
        engine.importlib, "import_module", lambda name: seen.append((name, dict(os.environ))) or imported(name)
    )
    assert gpu_obstacle() == ""
    name, variables = seen[0]
    assert name == "cudf" and variables["CUPY_CUDA_PER_THREAD_DEFAULT_STREAM"] == "1"
    assert variables["CUDF_PER_THREAD_STREAM"] == "0"  # what the user has set is kept


@pytest.mark.parametrize("start", [gpu_obstacle, lambda: engine.load_engine("gpu")])
def test_an_import_of_cudf_before_the_engine_is_one_warning(machine, monkeypatch, start):
    """Such as that of `dask_cudf` in a notebook."""
    monkeypatch.setitem(engine.PACKAGES, "gpu", "cpu_fallback")
    for variable in engine.STREAM_PER_THREAD.values():
        monkeypatch.delenv(variable)
    with pytest.warns(
        UserWarning, match=r"imported before the GPU engine.* set CUPY_CUDA_PER_THREAD_DEFAULT_STREAM=1 "
    ) as found:
        start()
    assert len(found) == 1
    start()  # warnings are errors in tests


def test_auto_asks_how_much_work_there_is(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    asked: list[object] = []
    monkeypatch.setitem(engine.PACKAGES, "gpu", "cpu_fallback")
    monkeypatch.setattr(engine, "host_speed", lambda *given: asked.append(given) or MODELLED)
    small, large = (suit_engine(RunWork(size, ("filter",), 4)) for size in (10**6, 10**12))
    assert (small.name, large.name) == ("cpu", "gpu") and asked == [(cpu_fallback, "Made GPU")] * 2
    assert small.reason.startswith("auto: about 0.001 GB of text take 1 s for the CPU engine on 4 processors and 15 s")
    assert "with Made GPU" in large.reason and large.reason.endswith("rates of the GPU and this machine")


class Pool:
    """RMM's resource over a pool of the driver."""

    def pool_handle(self) -> int:
        return 77


def test_memory_that_a_pool_keeps_unused_is_free(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    def attribute(pool: int, number: int) -> int:
        assert pool == 77
        return {5: 100 * GIB, 7: 60 * GIB}[number]

    machine.free = 1 * GIB
    machine.cudaMemPoolAttrReservedMemCurrent, machine.cudaMemPoolAttrUsedMemCurrent = 5, 7
    machine.memPoolGetAttribute = attribute
    resource = SimpleNamespace(get_current_device_resource=Pool)
    assert "1,024 of 143,360 MiB of Made GPU are free" in gpu_obstacle()
    monkeypatch.setitem(sys.modules, "rmm", SimpleNamespace(mr=resource))
    assert engine.device_memory(machine) == (41 * GIB, 140 * GIB)
    assert gpu_obstacle() == ""
    resource.get_current_device_resource = object  # a resource without a pool
    assert engine.device_memory(machine) == (1 * GIB, 140 * GIB)


def test_wheels_for_an_older_cuda_run_on_a_newer_driver(machine: Machine):
    machine.packages = {"cudf-cu12"}
    assert gpu_obstacle() == ""
    machine.driver, machine.packages = 12040, {"cudf"}  # conda's
    assert gpu_obstacle() == ""


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            {"driver": None},
            "no NVIDIA driver was found (libcuda.so.1 does not load). Install it, or use --engine cpu",
        ),
        ({"init_code": 100}, "the driver shows no GPU. Check nvidia-smi and CUDA_VISIBLE_DEVICES"),
        (
            {"init_code": 803},
            "the NVIDIA driver does not start (cuInit gives 803). Check nvidia-smi and CUDA_VISIBLE_DEVICES",
        ),
        (
            {"packages": set()},
            "cuDF is not installed. pip install 'gpu-pipeline[cu13]', or '.[cu13]' in a clone; "
            "the driver runs CUDA 13.0",
        ),
        (
            {"packages": set(), "driver": 12080},
            "cuDF is not installed. pip install 'gpu-pipeline[cu12]', or '.[cu12]' in a clone; "
            "the driver runs CUDA 12.8",
        ),
        (
            {"driver": 12080},
            "the driver runs CUDA 12.8, and the installed cuDF is built for CUDA 13. Update the driver, or make "
            "a new environment. pip install 'gpu-pipeline[cu12]', or '.[cu12]' in a clone",
        ),
        ({"devices": 0}, "the driver shows no GPU. Check nvidia-smi and CUDA_VISIBLE_DEVICES"),
        (
            {"device_error": "cudaErrorInsufficientDriver: too old"},
            "CUDA does not start: cudaErrorInsufficientDriver: too old. Check nvidia-smi and CUDA_VISIBLE_DEVICES",
        ),
        ({"capability": (7, 0)}, "Made GPU has compute capability 7.0, cuDF needs 7.5. Use --engine cpu"),
        (
            {"free": 300 << 20},
            "300 of 143,360 MiB of Made GPU are free, which is too little. nvidia-smi shows which processes hold it: "
            "stop them, choose another GPU with CUDA_VISIBLE_DEVICES, or use --engine cpu",
        ),
        (
            {"device_error": "cudaErrorMemoryAllocation: out of memory"},
            "the GPU's memory is full. nvidia-smi shows which processes hold it: stop them, choose another GPU with "
            "CUDA_VISIBLE_DEVICES, or use --engine cpu",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_missing_is_said_once(machine: Machine, broken: dict, message: str):
    for name, value in broken.items():
        setattr(machine, name, value)
    assert gpu_obstacle() == message
    assert any(known in message for known in ON_THE_PAGE), "docs/installing_gpu.md does not have the message"
    with pytest.raises(EngineError) as caught:
        choose_engine("gpu")
    assert str(caught.value) == f"engine gpu was requested, but {message}"
    assert choose_engine("auto") == ("cpu", f"auto: {message.split('. ')[0]}")


@pytest.mark.parametrize("error", [ImportError("libcudf.so: no such file"), AttributeError("row_stack"), OSError("no")])
def test_a_broken_package_is_not_a_missing_one(machine: Machine, error: Exception):
    machine.break_cudf(error)
    assert gpu_obstacle() == (
        f"cuDF is installed but does not load ({type(error).__name__}: {error}). Make a new environment. "
        "pip install 'gpu-pipeline[cu13]', or '.[cu13]' in a clone"
    )


@pytest.mark.filterwarnings("error")
def test_warnings_of_other_packages_are_no_obstacle(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    modules = dict(sys.modules)

    def import_module(name: str):
        warnings.warn("the 'generic' unit is deprecated", DeprecationWarning, stacklevel=2)
        return modules[name]

    monkeypatch.setattr(engine.importlib, "import_module", import_module)
    with pytest.warns(DeprecationWarning, match="generic"):
        assert gpu_obstacle() == ""


def test_cupy_gets_a_folder_where_the_home_directory_takes_none(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("CUPY_CACHE_DIR", "left as it is")
    assert gpu_obstacle() == ""
    assert os.environ["CUPY_CACHE_DIR"] == "left as it is"
    monkeypatch.delenv("CUPY_CACHE_DIR")
    (tmp_path / "home").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(engine.tempfile, "mkdtemp", lambda prefix: str(tmp_path / prefix))
    assert gpu_obstacle() == ""
    assert os.environ["CUPY_CACHE_DIR"] == str(tmp_path / "gpu-pipeline-cupy-")


def test_an_error_of_our_own_is_no_obstacle(machine: Machine):
    machine.break_cudf(KeyError("a bug"))
    with pytest.raises(KeyError):
        gpu_obstacle()


def test_unknown_engine():
    with pytest.raises(EngineError, match="engine must be one of auto, cpu, gpu, not 'tpu'"):
        choose_engine("tpu")


def test_engines_are_known_by_the_library_of_a_frame(monkeypatch: pytest.MonkeyPatch):
    frame = pd.DataFrame({"text": ["a"]})
    assert engine_of(frame) is engine_of(dd.from_pandas(frame)) is load_engine("cpu")
    made = type("DataFrame", (), {"__module__": "cudf.core.dataframe"})()
    lazy = type("DataFrame", (), {"__module__": "dask_cudf._expr.collection", "_meta": made})()
    monkeypatch.setattr(engine, "load_engine", lambda name: name)
    assert engine_of(made) == engine_of(lazy) == "gpu"
    with pytest.raises(TypeError, match="expected a DataFrame of pandas, cuDF or Dask"):
        engine_of([])
