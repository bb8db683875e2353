# SPDX-License-Identifier: Apache-2.0
"""Every test here needs a C compiler and numba-cuda; without them it is skipped, with the name of what is missing."""

import pytest

from tests.ptx.build import missing


@pytest.fixture(autouse=True, scope="session")
def _compilers():
    if missing():
        pytest.skip(missing())
