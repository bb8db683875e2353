# SPDX-License-Identifier: Apache-2.0
"""Every parity body with `--engine gpu`, on NumPy and pandas in place of a device, with kernels as Python functions.
`tests/ptx` runs the same on the device code."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ptx.build import missing

pytest.importorskip("gpu_pipeline.kernels.core")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not missing(), reason="tests/ptx runs the parity bodies on the device code")
def test_parity():
    plugin = ["-p", "tests.gpu.plugin", "--engine", "gpu"]
    # A cluster of GPUs has no stand-in here. The kernels of o200k pass words above 2**63 to compiled functions, which
    # take a Python integer for an int64.
    others = ["-k", "not processes and not o200k"]
    command = [sys.executable, "-m", "pytest", "-q", *plugin, *others, "tests/parity"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-5000:]
    assert " passed" in finished.stdout and "failed" not in finished.stdout
