# SPDX-License-Identifier: Apache-2.0
"""Per-document functions in the Numba subset that both machines compile.

The compiled code is cached in a folder keyed by the sources of this package, the lists of measures and words that it
takes its numbers from, Numba's version and the processor:
Numba's own cache looks at the caller's file only and would keep an old result after an edit in a callee.
"""

import atexit
import hashlib
import logging
import os
import platform
import shutil
import tempfile
from pathlib import Path

import numba

from curation.errors import EngineError

log = logging.getLogger(__name__)

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
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "gpu-pipeline" / "kernels" / CACHE_KEY


def _can_be_written(folder: Path) -> bool:
    """The folder itself is left to Numba to make: whether it is there tells whether kernels were compiled before."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder if folder.exists() else folder.parent):
            return True
    except OSError:
        return False


def _temporary_folder(wanted: Path) -> Path:
    """For this process and those that it starts. Not at a place that others know: code is loaded from it."""
    advice = "set NUMBA_CACHE_DIR to a folder that can be written"
    try:
        made = tempfile.mkdtemp(prefix="gpu-pipeline-kernels-")
    except OSError as error:
        raise EngineError(
            f"compiled kernels can be written neither to {wanted} nor elsewhere ({error}); {advice}"
        ) from None
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    log.warning(
        "%s cannot be written: kernels are compiled anew each time, which takes some seconds; %s", wanted, advice
    )
    os.environ["NUMBA_CACHE_DIR"] = f"{made}/{CACHE_KEY}"
    return Path(made) / CACHE_KEY


CACHE_KEY = _cache_key()
_folder = Path(numba.config.CACHE_DIR or _cache_folder())  # the variable NUMBA_CACHE_DIR wins
numba.config.CACHE_DIR = str(_folder if _can_be_written(_folder) else _temporary_folder(_folder))


def compiled_before() -> bool:
    """Whether the folder of compiled kernels exists; a first run spends some seconds on them."""
    return Path(numba.config.CACHE_DIR).exists()
