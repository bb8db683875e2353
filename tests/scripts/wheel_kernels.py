# SPDX-License-Identifier: Apache-2.0
"""Compile kernels into the package for a wheel: `python -m tests.scripts.wheel_kernels`, called by `make wheel`.

They are compiled for x86-64-v3 (AVX2: most servers since 2013), whatever this machine has. The cache uses them where
processor, Numba, Python and sources agree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from curation.base.system.memory import read_processors
from curation.base.system.progress import ProgressLines
from curation.base.system.terminal import print_line
from curation.kernels.cache import INSTALLED, INSTALLED_KEY, KEY, WHEEL_CPU, WHEEL_FEATURES
from curation.stages.warm_up import GROUPS, warm_up

MODULE = "tests.scripts.wheel_kernels"  # `__name__` is `__main__` if Python runs it


def compile_for_others(groups: Sequence[str]) -> dict[str, bytes]:
    """Compile groups of kernels for x86-64-v3, and return the files of their cache: name -> content."""
    with TemporaryDirectory() as folder:
        cpu = {"NUMBA_CPU_NAME": WHEEL_CPU, "NUMBA_CPU_FEATURES": ",".join(f"+{name}" for name in WHEEL_FEATURES)}
        command = [sys.executable, "-m", MODULE, *groups]
        subprocess.run(command, env=os.environ | cpu | {"NUMBA_CACHE_DIR": folder}, check=True)
        [made] = Path(folder).iterdir()
        return {path.name: path.read_bytes() for path in made.iterdir() if path.is_file()}


def compile_for_wheel(groups: Sequence[str]) -> Path:
    """Compile groups of kernels into INSTALLED, in place of what is there, and return that folder."""
    files = compile_for_others(groups)
    shutil.rmtree(INSTALLED, ignore_errors=True)
    INSTALLED.mkdir()
    for name, content in (files | {INSTALLED_KEY: KEY.encode()}).items():
        (INSTALLED / name).write_bytes(content)
    return INSTALLED


if __name__ == "__main__":
    if sys.argv[1:]:
        warm_up(sys.argv[1:], ProgressLines(), read_processors())
    else:
        print_line(compile_for_wheel(list(GROUPS)))
