# SPDX-License-Identifier: Apache-2.0
"""The selector: looks at the machine once and loads one engine by name."""

from __future__ import annotations

import atexit
import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
import warnings
from typing import Any, NamedTuple, cast

from curation.contract import Engine
from curation.errors import EngineError

PACKAGES = {"cpu": "cpu_fallback", "gpu": "gpu_pipeline"}
CHOICES = ("auto", *PACKAGES)
FRAME_LIBRARIES = {"pandas": "cpu", "cudf": "gpu"}

NO_DEVICE = 100  # of cuInit: CUDA_ERROR_NO_DEVICE
MIN_CAPABILITY = (7, 5)
MIN_FREE_BYTES = 2 << 30  # cuDF itself takes half a gigabyte
BROKEN = (ImportError, AttributeError, OSError, RuntimeError, TypeError, ValueError)  # of packages that do not fit
CHECK_DEVICES = "Check nvidia-smi and CUDA_VISIBLE_DEVICES"
CHECK_MEMORY = (
    "nvidia-smi shows which processes hold it: stop them, choose another GPU with CUDA_VISIBLE_DEVICES, "
    "or use --engine cpu"
)


class Choice(NamedTuple):
    name: str
    reason: str


def choose_engine(wanted: str) -> Choice:
    """The engine for a wish of "auto", "cpu" or "gpu", and why.

    "gpu" never becomes "cpu": EngineError says what is missing. "auto" takes the CPU where there is no usable GPU.
    """
    if wanted not in CHOICES:
        raise EngineError(f"engine must be one of {', '.join(CHOICES)}, not {wanted!r}")
    if wanted == "cpu":
        return Choice("cpu", "asked for")
    obstacle = gpu_obstacle()
    if wanted == "gpu":
        if obstacle:
            raise EngineError(f"engine gpu was asked for, but {obstacle}")
        return Choice("gpu", "asked for")
    return (
        Choice("cpu", f"auto: {obstacle.split('. ')[0]}")
        if obstacle
        else Choice("gpu", "auto: a GPU and cuDF are here")
    )


def gpu_obstacle() -> str:
    """What keeps the GPU engine from running here, and what to do; "" where nothing does. Looks from the driver upwards
    and imports cuDF last: a package that is there but broken is an obstacle of its own, not a missing one."""
    driver = _driver()
    if driver.error:
        return driver.error
    if importlib.util.find_spec("cudf") is None:
        return f"cuDF is not installed. Install gpu-pipeline[{_extra_for(driver)}]; the driver runs CUDA {driver.shown}"
    built_for = _cuda_of_cudf()
    if driver.cuda < built_for:
        return (
            f"the driver runs CUDA {driver.shown}, and the installed cuDF is built for CUDA {built_for}. Update the "
            f"driver, or install gpu-pipeline[{_extra_for(driver)}] in a new environment"
        )
    _give_cupy_a_cache()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # of other packages' code: no reason to do without a GPU
            importlib.import_module("cudf")
        runtime = importlib.import_module("cupy").cuda.runtime
    except BROKEN as error:
        return (
            f"cuDF is installed but does not load ({type(error).__name__}: {error}). Install gpu-pipeline[cu"
            f"{built_for or driver.cuda}] in a new environment"
        )
    return _device_obstacle(runtime)


def _give_cupy_a_cache() -> None:
    """CuPy makes a folder in the home directory while it is imported, and does not load where it cannot."""
    if "CUPY_CACHE_DIR" in os.environ:
        return
    try:
        os.makedirs(os.path.expanduser("~/.cupy/kernel_cache"), exist_ok=True)
    except OSError:
        os.environ["CUPY_CACHE_DIR"] = tempfile.mkdtemp(prefix="gpu-pipeline-cupy-")
        atexit.register(shutil.rmtree, os.environ["CUPY_CACHE_DIR"], ignore_errors=True)


def _device_obstacle(runtime: Any) -> str:
    """As `gpu_obstacle`, of CuPy's runtime."""
    try:
        if runtime.getDeviceCount() == 0:
            return f"the driver shows no GPU. {CHECK_DEVICES}"
        device = runtime.getDeviceProperties(runtime.getDevice())
        free, total = runtime.memGetInfo()
    except RuntimeError as error:
        if "cudaErrorMemoryAllocation" in str(error):
            return f"the GPU's memory is full. {CHECK_MEMORY}"
        return f"CUDA does not start: {error}. {CHECK_DEVICES}"
    name, capability = device["name"].decode(), (device["major"], device["minor"])
    if capability < MIN_CAPABILITY:
        return f"{name} has compute capability {capability[0]}.{capability[1]}, cuDF needs 7.5. Use --engine cpu"
    if free < MIN_FREE_BYTES:
        return f"{free >> 20:,} of {total >> 20:,} MiB of {name} are free, which is too little. {CHECK_MEMORY}"
    return ""


class _Driver(NamedTuple):
    """CUDA's version of the NVIDIA driver as its own number (12040 for 12.4), or why there is none."""

    version: int
    error: str

    @property
    def cuda(self) -> int:
        return self.version // 1000

    @property
    def shown(self) -> str:
        return f"{self.cuda}.{self.version % 1000 // 10}"


def _driver() -> _Driver:
    import ctypes

    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return _Driver(0, "no NVIDIA driver was found (libcuda.so.1 does not load). Install it, or use --engine cpu")
    code, version = cuda.cuInit(0), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    if code == NO_DEVICE:
        return _Driver(version.value, f"the driver shows no GPU. {CHECK_DEVICES}")
    if code:
        return _Driver(version.value, f"the NVIDIA driver does not start (cuInit gives {code}). {CHECK_DEVICES}")
    return _Driver(version.value, "")


def _extra_for(driver: _Driver) -> str:
    return "cu13" if driver.cuda >= 13 else "cu12"


def _cuda_of_cudf() -> int:
    """The CUDA version that cuDF's wheels are built for; 0 for a package of conda, which chooses its own."""
    for version in (13, 12):
        try:
            importlib.metadata.distribution(f"cudf-cu{version}")
        except importlib.metadata.PackageNotFoundError:
            continue
        return version
    return 0


def load_engine(name: str) -> Engine:
    """The engine module "cpu" or "gpu". It is imported without a guard: an error in it is an error, not a reason to
    fall back."""
    return cast(Engine, importlib.import_module(PACKAGES[name]))


def engine_of(frame: Any) -> Engine:
    """The engine that a pandas, cuDF or Dask frame belongs to."""
    sample = getattr(frame, "_meta", frame)
    library = type(sample).__module__.split(".")[0]
    if library not in FRAME_LIBRARIES:
        raise TypeError(
            f"expected a pandas, cuDF or Dask DataFrame, got {type(frame).__module__}.{type(frame).__name__}"
        )
    return load_engine(FRAME_LIBRARIES[library])
