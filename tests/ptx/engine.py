# SPDX-License-Identifier: Apache-2.0
"""The GPU engine with its own modules, launches and device code, and no device: NumPy in CuPy's place, pandas in
cuDF's, and the PTX of each kernel run by the executor.
"""

import itertools
import sys
import threading
from types import ModuleType

import numba.cuda
import numpy as np
import pytest

from tests.gpu import stand_ins
from tests.ptx.build import CAPABILITY
from tests.ptx.execute import Counts, executable_of

kernels, token_kernels, SIGNATURES = stand_ins.kernels, stand_ins.token_kernels, stand_ins.SIGNATURES
ORIGINALS = {kernel.py_func.__name__: kernel for kernel in SIGNATURES}
LAUNCHES = kernels.launch, kernels.launch_blocks, kernels.launch_teams
LIBRARY_SUMS = kernels.prefix_sums
LANES, DEVICE_FUNCTIONS = stand_ins.measure_kernels.LANES, stand_ins.device_functions()
OWN = {name: getattr(token_kernels, name) for name in stand_ins.NO_WARPS}


LAUNCHED: set[str] = set()  # the kernels that this process has launched
FEW_BLOCKS = 4  # a device has more of them for no gain; here each takes time


class Device:
    """Runs every launch: the n-th one in the order of seed + n, or in order and counted where `seed` is None."""

    def __init__(self, seed: int | None, capability: tuple[int, int]):
        self.capability = capability
        self.counts: dict[str, Counts] = {}
        self.launches: dict[str, int] = {}
        self.threads: dict[str, int] = {}  # of a block
        self.arrays = 0  # that launches passed
        self.sums, self.sum_bytes = 0, 0  # prefix sums of the library, and the bytes that they read and write
        self._seeds = None if seed is None else itertools.count(seed)
        self._lock = threading.Lock()

    def run(self, name: str, blocks: int, threads: int, arguments: tuple) -> None:
        kernel = ORIGINALS[name]
        LAUNCHED.add(name)
        for argument, kind in zip(arguments, SIGNATURES[kernel], strict=True):
            stand_ins.assert_of_type(argument, kind)
        with self._lock:
            executable = executable_of(kernel, self.capability)
            if self._seeds is None:
                counts = executable.run(blocks, threads, *arguments, counting=True)
                self.counts[name] = self.counts.get(name, Counts()) + counts
                self.launches[name] = self.launches.get(name, 0) + 1
                self.threads[name] = threads
                self.arrays += sum(isinstance(argument, np.ndarray) for argument in arguments)
            else:
                executable.run(blocks, threads, *arguments, seed=next(self._seeds))

    def prefix_sums(self, values: np.ndarray, dtype: type | None = None) -> np.ndarray:
        """In the place of `kernels.prefix_sums`: the same, counted. A new type needs a pass of its own."""
        sums = LIBRARY_SUMS(values, dtype)
        passes = 1 if sums.dtype == values.dtype else 2
        self.sums += passes
        self.sum_bytes += values.nbytes + sums.nbytes * (2 * passes - 1)
        return sums


class ExecutedKernel:
    """In the place of Numba's kernel: `kernel[blocks, threads, stream](*arguments)`."""

    def __init__(self, name: str, device: Device):
        self.name, self.device = name, device
        self.py_func = ORIGINALS[name].py_func

    def __getitem__(self, place: tuple[int, int, stand_ins.Stream]):
        blocks, threads, stream = place
        assert stream is stand_ins.stream_of_thread()
        return lambda *arguments: self.device.run(self.name, blocks, threads, arguments)


def execute_kernels(
    monkeypatch: pytest.MonkeyPatch, seed: int | None, capability: tuple[int, int] = CAPABILITY
) -> Device:
    """Let the executor run what modules over the stand-ins launch; returns the device."""
    device = Device(seed, capability)
    if seed is not None:
        monkeypatch.setattr(kernels, "MIN_BLOCKS", FEW_BLOCKS)
    # The stand-ins replace these, and the compiler reads them.
    for module in stand_ins.KERNEL_MODULES:
        monkeypatch.setattr(module, "cuda", numba.cuda)
    for module in stand_ins.WARP_MODULES:
        monkeypatch.setattr(module, "LANES", LANES)
    for name, number in OWN.items():
        monkeypatch.setattr(token_kernels, name, number)
    for module, name, function in DEVICE_FUNCTIONS:
        monkeypatch.setattr(module, name, function)
    for name, launch in zip(("launch", "launch_blocks", "launch_teams"), LAUNCHES, strict=True):
        monkeypatch.setattr(kernels, name, launch)
    monkeypatch.setattr(kernels, "prefix_sums", device.prefix_sums)
    for name, kernel in ORIGINALS.items():
        module = sys.modules[kernel.py_func.__module__]
        monkeypatch.setattr(module, name, ExecutedKernel(name, device))
    return device


def install_engine(
    monkeypatch: pytest.MonkeyPatch, seed: int | None, capability: tuple[int, int] = CAPABILITY
) -> tuple[ModuleType, Device]:
    """The engine "gpu" for everything that loads it by name, and the device that runs its launches."""
    engine = stand_ins.install_engine(monkeypatch)
    return engine, execute_kernels(monkeypatch, seed, capability)


def facts_of_worker() -> tuple[set[str], set[str], int]:
    """The kernels that this process has loaded, those that it has launched, and the processes that share its device."""
    from gpu_pipeline.memory.device import memory

    return {name for name, _ in stand_ins.LOADED}, LAUNCHED, memory().processes
