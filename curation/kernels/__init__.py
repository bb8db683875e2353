# SPDX-License-Identifier: Apache-2.0
"""Functions on one document, in the subset of Python that Numba compiles for CPUs and for CUDA.

Array arguments: `data` is uint8, the UTF-8 bytes of a column; `offsets` is int64 of documents + 1, document k is
data[offsets[k]:offsets[k + 1]]; `start`, `end` are positions in `data`. `out` is written from position `o`.

Compiled code is cached in a folder whose name is a hash of the sources of this package and of `cpu_fallback`, of
`curation/measures.py`, of the versions of Numba and Python, and of the processor. Numba's own cache checks only the
caller's file, so it would keep outdated code after an edit in a callee.
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
    """Whether files can be written there. Numba creates the folder itself: `compiled_before` asks whether it exists."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder if folder.exists() else folder.parent):
            return True
    except OSError:
        return False


def _temporary_folder(wanted: Path) -> Path:
    """A folder for this process and its children, with an unpredictable name: code is loaded from it."""
    advice = "set NUMBA_CACHE_DIR to a writable folder"
    try:
        made = tempfile.mkdtemp(prefix="gpu-pipeline-kernels-")
    except OSError as error:
        raise EngineError(
            f"compiled kernels can be written neither to {wanted} nor to a temporary folder ({error}); {advice}"
        ) from None
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    log.warning(
        "%s is not writable: every start compiles the kernels again, which takes some seconds; %s", wanted, advice
    )
    os.environ["NUMBA_CACHE_DIR"] = f"{made}/{CACHE_KEY}"
    return Path(made) / CACHE_KEY


CACHE_KEY = _cache_key()
_folder = Path(numba.config.CACHE_DIR or _cache_folder())  # the environment variable NUMBA_CACHE_DIR wins
numba.config.CACHE_DIR = str(_folder if _can_be_written(_folder) else _temporary_folder(_folder))


def compiled_before() -> bool:
    """Whether the folder of compiled kernels exists; a first run spends some seconds on compiling."""
    return Path(numba.config.CACHE_DIR).exists()
