# SPDX-License-Identifier: Apache-2.0
"""Every test here needs Numba's CUDA compiler and a C compiler; without them it is skipped, with the name of what is
missing."""

import importlib.util

import pytest

from tests.ptx.build import compiler

NEEDS = {
    "a C compiler is not installed: install gcc or clang, or set CC": lambda: compiler() is not None,
    "numba-cuda is not installed: pip install 'numba-cuda[cu13]<0.31'": lambda: bool(
        importlib.util.find_spec("numba_cuda")
    ),
}
MISSING = [reason for reason, found in NEEDS.items() if not found()]


@pytest.fixture(autouse=True, scope="session")
def _compilers():
    if MISSING:
        pytest.skip(MISSING[0])
