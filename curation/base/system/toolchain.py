# SPDX-License-Identifier: Apache-2.0
"""The parts that compile a CUDA kernel: driver, toolkit, NVVM and linker. This module checks that their versions fit.

Numba writes PTX with NVVM, and nvJitLink links it to machine code, which the driver loads. Each part reads the output
of parts with the same or an older CUDA version. A driver loads machine code of its major version.
"""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import NamedTuple

from curation.base.engine import find_driver

# Packages of pip and their names for CUDA 12; conda's have no metadata
DISTRIBUTIONS = {
    "toolkit": ("cuda-toolkit", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    "NVVM": ("nvidia-nvvm", "nvidia-cuda-nvcc-cu12"),
    "linker": ("nvidia-nvjitlink", "nvidia-nvjitlink-cu12"),
}
Version = tuple[int, int]


class Toolchain(NamedTuple):
    """Versions as text; "" if a part is missing or its version unknown. `driver` is the CUDA version that the driver
    supports; `driver_release` is the driver's own version."""

    driver: str = ""
    driver_release: str = ""
    toolkit: str = ""
    nvvm: str = ""
    linker: str = ""


def installed(part: str) -> str:
    """Return the version of the first distribution of a part that is installed; "" if none is."""
    for name in DISTRIBUTIONS[part]:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def driver_release() -> str:
    """Return the version of the driver itself; CUDA's interface reports only the CUDA version that it supports."""
    try:
        match = re.search(r"(\d+\.\d+[.\d]*)", Path("/proc/driver/nvidia/version").read_text())
    except OSError:  # WSL has no such file
        match = None
    return match[1] if match else ""


def find_toolchain() -> Toolchain:
    """Return the versions of the parts on this machine and in this Python environment."""
    driver = find_driver()
    shown = driver.shown if driver.version else ""
    return Toolchain(shown, driver_release() if shown else "", *map(installed, DISTRIBUTIONS))


def _version(text: str) -> Version:
    numbers = re.findall(r"\d+", text)
    return int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0


def toolchain_fault(tools: Toolchain) -> str:
    """Return why the parts do not go together, and what to do; "" if they do, as far as they are known."""
    nvvm, linker, driver = tools.nvvm, tools.linker, tools.driver
    if nvvm and linker and _version(nvvm) > _version(linker):
        return (
            f"NVVM {nvvm} writes PTX that the linker {linker} does not read; expected a linker of the same or a later "
            f"version. Install nvidia-nvjitlink>={'.'.join(map(str, _version(nvvm)))}"
        )
    if linker and driver and _version(linker)[0] > _version(driver)[0]:
        return (
            f"the linker {linker} makes machine code for CUDA {_version(linker)[0]}, and the driver runs CUDA "
            f"{driver}. Update the driver, or install packages of CUDA {_version(driver)[0]}"
        )
    if nvvm and driver and not linker and _version(nvvm) > _version(driver):
        return (
            f"without a linker the driver compiles PTX itself, and it reads that of CUDA {driver}; NVVM {nvvm} writes "
            "a later one. Install nvidia-nvjitlink"
        )
    return ""


def toolchain_line(tools: Toolchain) -> str:
    """Return the line of `curate doctor`."""
    if not any(tools):
        return "CUDA toolchain: none; the GPU engine needs NVIDIA's driver; the extra cu13 or cu12 installs the rest"
    driver = f"{tools.driver_release or 'of unknown release'} for CUDA {tools.driver}" if tools.driver else "none"
    parts = {"toolkit": tools.toolkit, "NVVM": tools.nvvm, "linker": tools.linker}
    shown = ", ".join([f"driver {driver}", *(f"{name} {text or 'unknown'}" for name, text in parts.items())])
    if fault := toolchain_fault(tools):
        return f"CUDA toolchain: {shown}: they do not go together: {fault}"
    known = all((tools.driver, tools.nvvm, tools.linker))
    return f"CUDA toolchain: {shown}{': they go together' if known else ''}"
