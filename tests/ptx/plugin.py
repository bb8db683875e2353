# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin (`-p tests.ptx.plugin`): the engine "gpu" runs the PTX of its kernels, in the orders that follow from
PTX_SEED."""

import os

import pytest

from curation.base import engine
from tests.ptx.engine import install_engine

monkeypatch = pytest.MonkeyPatch()
monkeypatch.setattr(engine, "gpu_obstacle", lambda: "")  # before conftest.py imports it
install_engine(monkeypatch, int(os.environ.get("PTX_SEED", "1")))
