# SPDX-License-Identifier: Apache-2.0
"""Trace the work of a device during one call. PyTorch's profiler collects the events of CUDA's tracing (CUPTI).

The events are those of the profiler's JSON file: its categories `kernel`, `gpu_memcpy`, `gpu_memset`, `cuda_runtime`
and `cuda_driver`, with times in microseconds.
"""

import json
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
DEMANGLED_NAME = re.compile(r"gpu_pipeline::\w+::(\w+)")
NUMBA_NAME = re.compile(r"gpu_pipeline(\d+)(\w+)")  # module and function follow, each with its length in front


class Trace(NamedTuple):
    """One call. Times in milliseconds."""

    wall: float
    busy: float  # while the device did something
    waiting: float  # while the host waited for the device
    kernels: dict[str, float]  # of this project
    other_kernels: int  # launches of other ones, such as CuPy's
    launches: int
    synchronisations: int
    copies: int
    copied_bytes: int

    def facts(self) -> dict[str, float]:
        return {
            "launches": self.launches - self.other_kernels, "launches of libraries": self.other_kernels,
            "synchronisations": self.synchronisations, "copies": self.copies, "copied, MB": self.copied_bytes / 1e6,
            "Python, ms": self.wall - self.waiting, "idle share": 1 - min(self.busy / self.wall, 1.0),
        }  # fmt: skip


def kernel_name(symbol: str) -> str:
    """Return the name of a kernel of this project, or "" for another one: `gpu_pipeline::kernels::hash_rows[abi:v2]...`
    or `_ZN12gpu_pipeline7kernels9hash_rowsB...`."""
    if found := DEMANGLED_NAME.search(symbol):
        return found[1]
    found = NUMBA_NAME.search(symbol)
    if not found:
        return ""
    rest = found[2][int(found[1]) :]
    length = re.match(r"\d+", rest)
    return rest[length.end() :][: int(length[0])] if length else ""


def covered(events: Iterable[dict[str, Any]]) -> float:
    """Return the milliseconds in which at least one of the events lasts."""
    total, end = 0.0, float("-inf")
    for event in sorted(events, key=lambda event: event["ts"]):
        stop = event["ts"] + event["dur"]
        total += max(0.0, stop - max(event["ts"], end))
        end = max(end, stop)
    return total / 1e3


def summarise(events: Iterable[dict[str, Any]], wall: float) -> Trace:
    kinds = defaultdict(list)
    for event in events:
        if "dur" in event:
            kinds[event.get("cat", "")].append(event)
    kernels: dict[str, float] = defaultdict(float)
    for event in kinds["kernel"]:
        kernels[kernel_name(event["name"])] += event["dur"] / 1e3
    others = sum(not kernel_name(event["name"]) for event in kinds["kernel"])
    kernels.pop("", None)
    copies = kinds["gpu_memcpy"]
    calls = [event for kind in CALLS for event in kinds[kind]]
    # A copy that is not asynchronous waits, too.
    waits = [event for event in calls if re.search(r"Synchronize|Memcpy(?!.*Async)", event["name"])]
    return Trace(
        wall, covered(event for kind in ON_DEVICE for event in kinds[kind]), covered(waits), dict(kernels), others,
        len(kinds["kernel"]), len(waits), len(copies), sum(event.get("args", {}).get("bytes", 0) for event in copies),
    )  # fmt: skip


def traced(function: Callable[[], object]) -> Trace | None:
    """Trace a call, or return None without PyTorch for CUDA."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        wall = (time.perf_counter() - start) * 1e3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        return summarise(json.loads(path.read_bytes())["traceEvents"], wall)
