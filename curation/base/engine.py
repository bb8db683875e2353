# SPDX-License-Identifier: Apache-2.0
"""Choice of the engine: probe the machine once, then load one engine by name."""

from __future__ import annotations

import atexit
import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
import warnings
from typing import Any, NamedTuple, cast

from curation.base.contract import Engine
from curation.base.errors import ArgumentError, EngineError, installation
from curation.base.host_probe import host_speed
from curation.base.speeds import RunWork, faster_engine

PACKAGES = {"cpu": "cpu_fallback", "gpu": "gpu_pipeline"}
CHOICES = ("auto", *PACKAGES)
FRAME_LIBRARIES = {"pandas": "cpu", "cudf": "gpu"}

STREAM_PER_THREAD = {"pylibcudf": "CUDF_PER_THREAD_STREAM", "cupy": "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM"}  # read once
_late: list[str] = []  # settings of STREAM_PER_THREAD that came after the import of their package

NO_DEVICE = 100  # cuInit returns CUDA_ERROR_NO_DEVICE
MIN_CAPABILITY = (7, 5)
MIN_FREE_BYTES = 2 << 30  # cuDF itself takes half a gigabyte
BROKEN = (ImportError, AttributeError, OSError, RuntimeError, TypeError, ValueError)  # incompatible packages raise them
CHECK_DEVICES = "Check nvidia-smi and CUDA_VISIBLE_DEVICES"
CHECK_MEMORY = (
    "nvidia-smi shows which processes hold it: stop them, choose another GPU with CUDA_VISIBLE_DEVICES, "
    "or use --engine cpu"
)


class EngineChoice(NamedTuple):
    """The name of an engine, "cpu" or "gpu", and the reason for the choice (`engine_reason` of reports)."""

    name: str
    reason: str


def choose_engine(requested: str) -> EngineChoice:
    """Return the engine for a request of "auto", "cpu" or "gpu", and the reason.

    "auto" chooses the GPU if it is usable. `suit_engine` may still choose the CPU for a small run. "gpu" never
    falls back to "cpu".

    Raises EngineError for any other request, and for "gpu" without a usable GPU: the message says what is missing.
    """
    if requested not in CHOICES:
        raise EngineError(f"engine must be one of {', '.join(CHOICES)}, not {requested!r}")
    if requested == "cpu":
        return EngineChoice("cpu", "asked for")
    obstacle = gpu_obstacle()
    if requested == "gpu":
        if obstacle:
            raise EngineError(f"engine gpu was requested, but {obstacle}")
        return EngineChoice("gpu", "asked for")
    return (
        EngineChoice("cpu", f"auto: {obstacle.split('. ')[0]}")
        if obstacle
        else EngineChoice("gpu", "auto: a GPU and cuDF are here")
    )


def suit_engine(work: RunWork) -> EngineChoice:
    """Return the engine that "auto" chooses on a machine with a usable GPU: the GPU only if it is expected to be faster
    for this work. The first call on a machine measures its speed."""
    device = device_name()
    choice = faster_engine(work, device, host_speed(load_engine("gpu"), device))
    return EngineChoice(choice.engine, f"auto: {choice.reason}")


def device_name() -> str:
    """Return the name of the current GPU, on a machine with a usable one."""
    runtime = importlib.import_module("cupy").cuda.runtime
    return str(runtime.getDeviceProperties(runtime.getDevice())["name"].decode())


def gpu_obstacle() -> str:
    """Return why the GPU engine cannot run here and how to fix it; "" if it can.

    The probe starts at the driver and imports cuDF last, so a broken package is not reported as a missing one.
    """
    driver = find_driver()
    if driver.error:
        return driver.error
    if importlib.util.find_spec("cudf") is None:
        return f"cuDF is not installed. {installation(_extra_for(driver))}; the driver runs CUDA {driver.shown}"
    built_for = _cuda_of_cudf()
    if driver.cuda < built_for:
        return (
            f"the driver runs CUDA {driver.shown}, and the installed cuDF is built for CUDA {built_for}. Update the "
            f"driver, or make a new environment. {installation(_extra_for(driver))}"
        )
    _give_cupy_a_cache()
    _warn_of_shared_streams()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # a warning in another package must not rule out the GPU
            importlib.import_module("cudf")
        runtime = importlib.import_module("cupy").cuda.runtime
    except BROKEN as error:
        return (
            f"cuDF is installed but does not load ({type(error).__name__}: {error}). Make a new environment. "
            f"{installation(f'cu{built_for or driver.cuda}')}"
        )
    return _device_obstacle(runtime)


def give_threads_streams() -> None:
    """Set environment variables that give each thread its own stream in cuDF and CuPy.

    Both packages read the variables at import. Call this function before any import that may load one of them:
    `dask.dataframe` and spaCy import CuPy where it is installed.
    """
    for module, name in STREAM_PER_THREAD.items():
        if name not in os.environ:
            os.environ[name] = "1"
            if module in sys.modules:
                _late.append(f"{name}=1")


def _warn_of_shared_streams() -> None:
    """Warn, once, if other code imported cuDF or CuPy before their variables were set."""
    give_threads_streams()
    if _late:
        settings = " and ".join(_late)
        _late.clear()
        warnings.warn(
            "cuDF or CuPy was imported before the GPU engine: its threads share one stream of the GPU and wait for each"
            f" other, with the same results. To work at the same time, set {settings} "
            "before the first import (in a notebook: os.environ in the first cell, then restart the kernel)",
            stacklevel=2,
        )


def _give_cupy_a_cache() -> None:
    """Give CuPy a temporary cache if the home directory is read-only: its import fails without one."""
    if "CUPY_CACHE_DIR" in os.environ:
        return
    try:
        os.makedirs(os.path.expanduser("~/.cupy/kernel_cache"), exist_ok=True)
    except OSError:
        os.environ["CUPY_CACHE_DIR"] = tempfile.mkdtemp(prefix="gpu-pipeline-cupy-")
        atexit.register(shutil.rmtree, os.environ["CUPY_CACHE_DIR"], ignore_errors=True)


def _device_obstacle(runtime: Any) -> str:
    """Do the checks of `gpu_obstacle` that need CuPy's runtime: devices, compute capability, free memory."""
    try:
        if runtime.getDeviceCount() == 0:
            return f"the driver shows no GPU. {CHECK_DEVICES}"
        device = runtime.getDeviceProperties(runtime.getDevice())
        free, total = device_memory(runtime)
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


def device_memory(runtime: Any) -> tuple[int, int]:
    """Return (free, total) bytes of the current device. Unused memory in RMM's pool of this process counts as free,
    although the driver reports it as used. `runtime` is CuPy's module `cupy.cuda.runtime`."""
    free, total = runtime.memGetInfo()
    return free + _kept_bytes(runtime), total


def _kept_bytes(runtime: Any) -> int:
    rmm = sys.modules.get("rmm")
    pool = getattr(rmm.mr.get_current_device_resource(), "pool_handle", None) if rmm else None
    if pool is None:  # RMM has no pool, or one without these attributes
        return 0
    attributes = runtime.cudaMemPoolAttrReservedMemCurrent, runtime.cudaMemPoolAttrUsedMemCurrent
    reserved, used = (int(runtime.memPoolGetAttribute(pool(), each)) for each in attributes)
    return reserved - used


class DriverVersion(NamedTuple):
    """The CUDA version that the NVIDIA driver supports, as CUDA's number (12040 for 12.4), and why the driver is not
    usable ("" if it is)."""

    version: int
    error: str

    @property
    def cuda(self) -> int:
        """The major version, which the extras `cu12` and `cu13` are named after."""
        return self.version // 1000

    @property
    def shown(self) -> str:
        """Major and minor version, as `nvidia-smi` prints them."""
        return f"{self.cuda}.{self.version % 1000 // 10}"


def find_driver() -> DriverVersion:
    """Ask the NVIDIA driver which CUDA version it supports."""
    import ctypes

    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return DriverVersion(
            0, "no NVIDIA driver was found (libcuda.so.1 does not load). Install it, or use --engine cpu"
        )
    code, version = cuda.cuInit(0), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    if code == NO_DEVICE:
        return DriverVersion(version.value, f"the driver shows no GPU. {CHECK_DEVICES}")
    if code:
        return DriverVersion(version.value, f"the NVIDIA driver does not start (cuInit gives {code}). {CHECK_DEVICES}")
    return DriverVersion(version.value, "")


def _extra_for(driver: DriverVersion) -> str:
    return "cu13" if driver.cuda >= 13 else "cu12"


def _cuda_of_cudf() -> int:
    """The major CUDA version of cuDF's wheels; 0 for a conda package, for which conda chooses the version."""
    for version in (13, 12):
        try:
            importlib.metadata.distribution(f"cudf-cu{version}")
        except importlib.metadata.PackageNotFoundError:
            continue
        return version
    return 0


def load_engine(name: str) -> Engine:
    """Import and return the engine module for "cpu" or "gpu". Its import errors are raised: there is no fallback."""
    if name == "gpu":
        _warn_of_shared_streams()
    return cast(Engine, importlib.import_module(PACKAGES[name]))


def engine_of(frame: Any) -> Engine:
    """Return the engine of a pandas, cuDF or Dask frame. Raises ArgumentError for any other object."""
    sample = getattr(frame, "_meta", frame)
    library = _library_of(sample)
    if library not in FRAME_LIBRARIES:
        module, name = type(frame).__module__, type(frame).__name__
        shown = "None" if frame is None else f"a {name}" if module == "builtins" else f"{module}.{name}"
        advice = '. Make one of texts by pandas.DataFrame({"text": texts}), or one of files by curation.read(paths)'
        if hasattr(frame, "collect"):
            advice = ". Call collect() first"
        raise ArgumentError(
            "expected a DataFrame of pandas, cuDF or Dask, or a table of polars, DuckDB or pyarrow, got "
            f"{shown}{advice}"
        )
    return load_engine(FRAME_LIBRARIES[library])


def engine_of_all(*frames: Any) -> Engine:
    """Return the engine of several frames. Raises ArgumentError for frames of different engines."""
    engines = [engine_of(frame) for frame in frames]
    if any(engine is not engines[0] for engine in engines):
        shown = " and ".join(f"a {type(frame).__name__} of {_library_of(frame)}" for frame in frames)
        raise ArgumentError(
            f"expected frames of one engine, got {shown}. Convert one of them: cudf.from_pandas(frame), or "
            "frame.to_pandas()"
        )
    return engines[0]


def _library_of(value: Any) -> str:
    return type(value).__module__.partition(".")[0]
