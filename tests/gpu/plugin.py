# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin (`-p tests.gpu.plugin`): the engine "gpu" over NumPy and pandas on a machine without a GPU."""

import pytest

from curation.base import engine
from tests.gpu.stand_ins import install_engine

monkeypatch = pytest.MonkeyPatch()
monkeypatch.setattr(engine, "gpu_obstacle", lambda: "")  # before conftest.py imports it
install_engine(monkeypatch)
