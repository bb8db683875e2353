# SPDX-License-Identifier: Apache-2.0
"""Per-document functions in the Numba subset that both machines compile.

The compiled code is cached in a folder keyed by the sources of this package, the lists of measures and words that it
takes its numbers from, Numba's version and the processor:
Numba's own cache looks at the caller's file only and would keep an old result after an edit in a callee.
"""

import hashlib
import os
import platform
from pathlib import Path

import numba

__all__ = ["CACHE_KEY", "compiled_before"]


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line for line in lines if line.startswith("model name")), platform.machine())


def _cache_key() -> str:
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parent
    engine = root.parent.parent / "cpu_fallback"
    for source in [*sorted(root.glob("*.py")), root.parent / "measures.py", *sorted(engine.glob("*.py"))]:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    digest.update(f"{numba.__version__} {platform.python_version()} {_cpu_name()}".encode())
    return digest.hexdigest()[:16]


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gpu-pipeline" / "kernels" / CACHE_KEY


CACHE_KEY = _cache_key()
if not numba.config.CACHE_DIR:  # the variable NUMBA_CACHE_DIR wins
    numba.config.CACHE_DIR = str(_cache_folder())


def compiled_before() -> bool:
    """Whether the folder of compiled kernels exists; a first run spends some seconds on them."""
    return Path(numba.config.CACHE_DIR).exists()
