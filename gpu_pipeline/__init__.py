# SPDX-License-Identifier: Apache-2.0
"""The engine for NVIDIA GPUs: cuDF frames and CUDA kernels. It satisfies `curation.base.contract.Engine`.

Its functions take frames and texts, and return integers and frames. CUDA kernels are in `kernels`, functions that they
share in `functions` and in `curation.kernels`, and copies between host and device in `memory`. The package decides
nothing about documents, and knows neither recipes, stages, runs nor the other engine. Functions are loaded on first
use. So `gpu_pipeline.kernels` can be imported, compiled and linked on a machine without cuDF. Functions on frames, such
as `filter`, are those of `curation` (docs/engine_functions.md).
"""

from importlib import import_module

from curation.base.contract import ENGINE_FUNCTIONS
from curation.base.engine import give_threads_streams
from curation.base.errors import EngineError, installation
from curation.frames.engine_functions import FUNCTIONS, function_of, with_frames

give_threads_streams()  # before a module of this package imports CuPy or cuDF

RAPIDS = ("cudf", "cuml", "cupy", "dask_cudf", "pylibcudf", "rmm")

_HOMES = {function: module for module, functions in ENGINE_FUNCTIONS.items() for function in functions}

__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        return function_of(__name__, name)
    try:
        function = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return with_frames(function, import_module("cudf").Series) if name in FUNCTIONS else function
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in RAPIDS:
            raise
        raise EngineError(
            f"gpu_pipeline.{name} needs {error.name}, which is not installed: "
            f"{installation('cu13')}; cu12 for a driver of CUDA 12. `curate doctor` shows the driver; "
            "cpu_fallback has the same functions"
        ) from None


def __dir__() -> list[str]:
    return [*globals(), *_HOMES, *FUNCTIONS]
