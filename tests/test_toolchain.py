# SPDX-License-Identifier: Apache-2.0
"""`curate doctor` says whether driver, toolkit, NVVM and linker go together."""

import importlib.metadata

import pytest

from curation.base.engine import DriverVersion
from curation.base.system import toolchain
from curation.base.system.toolchain import Toolchain, find_toolchain, toolchain_fault, toolchain_line

GOOD = Toolchain("13.0", "580.95.05", "13.5.0", "13.5.37", "13.5.37")


def test_parts_that_go_together():
    assert toolchain_line(GOOD) == (
        "CUDA toolchain: driver 580.95.05 for CUDA 13.0, toolkit 13.5.0, NVVM 13.5.37, linker 13.5.37: they go together"
    )
    assert toolchain_fault(GOOD._replace(nvvm="12.9.1")) == ""  # PTX of an older version


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"linker": "13.3.1"}, "NVVM 13.5.37 writes PTX that the linker 13.3.1 does not read"),
        ({"driver": "12.8"}, "makes machine code for CUDA 13, and the driver runs CUDA 12.8. Update the driver, or"),
        ({"linker": ""}, "without a linker the driver compiles PTX itself, and it reads that of CUDA 13.0"),
    ],
)
def test_parts_that_do_not(changed, fault):
    found = GOOD._replace(**changed)
    assert fault in toolchain_fault(found)
    assert "they do not go together: " in toolchain_line(found) and fault in toolchain_line(found)


def test_what_is_not_known_is_no_fault():
    assert toolchain_fault(Toolchain("13.0", "", "", "", "")) == ""
    assert toolchain_line(Toolchain("13.0")).endswith(
        "driver of unknown release for CUDA 13.0, toolkit unknown, NVVM unknown, linker unknown"
    )
    without = GOOD._replace(driver="", driver_release="")
    assert toolchain_line(without).startswith("CUDA toolchain: driver none, toolkit 13.5.0")
    assert "together" not in toolchain_line(without)
    assert toolchain_line(Toolchain()) == (
        "CUDA toolchain: none; the GPU engine needs NVIDIA's driver; the extra cu13 or cu12 installs the rest"
    )


def test_parts_are_found_by_their_packages(monkeypatch):
    packages = {"nvidia-cuda-runtime-cu12": "12.9.1", "nvidia-nvjitlink-cu12": "12.9.2"}

    def version(name):
        if name not in packages:
            raise importlib.metadata.PackageNotFoundError(name)
        return packages[name]

    monkeypatch.setattr(toolchain.importlib.metadata, "version", version)
    monkeypatch.setattr(toolchain, "find_driver", lambda: DriverVersion(12080, ""))
    monkeypatch.setattr(toolchain, "driver_release", lambda: "570.1")
    assert find_toolchain() == ("12.8", "570.1", "12.9.1", "", "12.9.2")
    monkeypatch.setattr(toolchain, "find_driver", lambda: DriverVersion(0, "no NVIDIA driver was found"))
    assert find_toolchain()[:2] == ("", "")
