# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin (`-p tests.hidden`): the packages in HIDDEN, separated by spaces, count as not installed."""

import os
import sys
from typing import Any

NAMES = {*os.environ["HIDDEN"].split()}


class Hiding:
    """A finder of modules that does not find these."""

    def __init__(self, finder: Any) -> None:
        self.finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)

    def find_spec(self, name: str, *arguments: Any) -> Any:
        return None if name.partition(".")[0] in NAMES else self.finder.find_spec(name, *arguments)


# numba-cuda puts itself in the place of `numba.cuda` when Python starts.
sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path if "numba_cuda" not in repr(finder)]
