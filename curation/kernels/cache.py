# SPDX-License-Identifier: Apache-2.0
"""The cache of compiled kernels: `@kernel` compiles a function once per version, and every later process loads it.

Numba's own cache compares time and size of the caller's source file. So Numba's cache misses after the file is copied,
and keeps outdated code after an edit in a function that is called. This cache is keyed by content instead:

    KEY     a digest of the sources of `curation/kernels`, `cpu_fallback` and `curation/base/measures.py`, of the
            version of Numba and of the minor version of Python
    GPU_KEY the same of `gpu_pipeline`, so that an edit there compiles no kernel of the CPU engine again
    FOLDER  BASE/KEY-CPU, where CPU is a digest of the name and the features of the processor. BASE is the environment
            variable NUMBA_CACHE_DIR, or else $XDG_CACHE_HOME/gpu-pipeline/kernels (~/.cache by default)
    file    one per function and argument types: a SHA-256, then the compiled code. A damaged file counts as missing

A wheel can hold compiled kernels in INSTALLED (`make wheel`), for processors with the level x86-64-v3. An installed
kernel is used if its KEY equals KEY and FOLDER lacks the kernel. If FOLDER cannot be written, a temporary folder is
FOLDER instead, and SAVED is the folder that cannot be written. The kernels in SAVED are still used. Kernels are loaded
from FOLDER, SAVED and INSTALLED only.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import logging
import os
import pickle
import platform
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding
from numba.core.caching import NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompileResult
from numba.core.environment import Environment, lookup_environment
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from curation.base.errors import EngineError

log = logging.getLogger(__name__)

INSTALLED = Path(__file__).resolve().parent / "compiled"
INSTALLED_KEY = "key"  # the file of INSTALLED that holds the KEY of its kernels
WHEEL_CPU = "x86-64-v3"
WHEEL_FEATURES = tuple(
    "64bit cmov cx8 cx16 fxsr mmx sse sse2 sse3 ssse3 sse4.1 sse4.2 popcnt sahf crc32 avx avx2 bmi bmi2 f16c fma lzcnt "
    "movbe xsave".split()
)


def _content_key(*patterns: str) -> str:
    digest = hashlib.sha256(f"{numba.__version__} {sys.version_info[0]}.{sys.version_info[1]}".encode())
    packages = Path(__file__).resolve().parents[2]
    for source in (path for pattern in patterns for path in sorted(packages.glob(pattern))):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def _processor() -> tuple[str, str]:
    """The name of the processor that kernels are compiled for, and its features."""
    name = numba.config.CPU_NAME or binding.get_host_cpu_name()
    features = numba.config.CPU_FEATURES
    return name, binding.get_host_cpu_features().flatten() if features is None else features


def _can_be_written(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _temporary_folder(wanted: Path) -> Path:
    """Make a folder for this process and its children. The name of the folder is unpredictable, since code is loaded
    from it."""
    advice = "set NUMBA_CACHE_DIR to a writable folder"
    try:
        made = tempfile.mkdtemp(prefix="gpu-pipeline-kernels-")
    except OSError as error:
        raise EngineError(
            f"compiled kernels can be written neither to {wanted} nor to a temporary folder ({error}); {advice}"
        ) from None
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    again = "kernels that it lacks" if any(wanted.glob("*")) else "the kernels"
    log.warning("%s is not writable: every start compiles %s again, which takes seconds; %s", wanted, again, advice)
    os.environ["NUMBA_CACHE_DIR"] = made
    return Path(made)


def _cache_folders() -> tuple[Path, Path | None]:
    default = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "gpu-pipeline" / "kernels"
    base = Path(numba.config.CACHE_DIR or default)  # the environment variable NUMBA_CACHE_DIR wins
    name = f"{KEY}-{hashlib.sha256(repr(_processor()).encode()).hexdigest()[:8]}"
    if _can_be_written(base / name) or is_installed():
        return base / name, None
    return _temporary_folder(base / name) / name, base / name


def is_installed() -> bool:
    """Whether INSTALLED has kernels of this KEY that run on this processor."""
    try:
        has_key = (INSTALLED / INSTALLED_KEY).read_text("utf-8") == KEY
    except OSError:
        return False
    if not has_key or numba.config.CPU_NAME or platform.machine() != "x86_64":
        return False
    features = binding.get_host_cpu_features()
    return all(features.get(name) for name in WHEEL_FEATURES)


KEY = _content_key("curation/kernels/*.py", "curation/base/measures.py", "cpu_fallback/*.py")
GPU_KEY = _content_key("gpu_pipeline/**/*.py")
FOLDER, SAVED = _cache_folders()
numba.config.CACHE_DIR = str(FOLDER / GPU_KEY)  # for the cache of numba-cuda, which has GPU kernels


def keep(path: Path, content: bytes) -> None:
    """Write a file of the cache, whole or not at all. If its folder cannot be written, no error is raised."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:16]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):  # the file system may have become read-only
            temporary.unlink(missing_ok=True)
        log.debug("%s not kept: %s", path.name, error)


class _Loading:
    """The context of a compilation, except that it loads a library as `_LoadedLibrary`."""

    def __init__(self, context: Any, symbols: Sequence[str]) -> None:
        self.context, self.symbols = context, symbols

    def __getattr__(self, name: str) -> Any:
        return getattr(self.context, name)

    def codegen(self) -> Any:
        return self

    def unserialize_library(self, stored: tuple[str, str, tuple[bytes, bytes]]) -> Any:
        return _LoadedLibrary(self.context.codegen(), self.symbols, *stored)


class _LoadedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The compiled code of a kernel, from the cache. The compiler needs its LLVM code only to link it into another
    kernel. To parse this takes longer than the rest of loading, so it waits until then.

    symbols  what the library defines: `_symbols_of`
    kind     "object"
    data     compiled code, LLVM code
    """

    _shared_module: Any

    def __init__(self, codegen: Any, symbols: Sequence[str], name: str, kind: str, data: tuple[bytes, bytes]) -> None:
        assert kind == "object", kind
        super().__init__(codegen, name)
        compiled, self._llvm_code = data
        self.enable_object_caching()
        self._set_compiled_object(compiled)
        codegen._engine._defined_symbols.update(symbols)
        self._finalize_final_module()

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            self._shared_module = binding.parse_bitcode(self._llvm_code)
        return self._shared_module


def _symbols_of(library: Any) -> list[str]:
    module = library._get_module_for_linking()
    groups = module.functions, module.global_variables
    return [each.name for group in groups for each in group if not each.is_declaration]


class _Unpickler(pickle.Unpickler):
    """Makes environments without their modules. Numba imports the module of each function that was inlined, such as
    that of `np.zeros` (0.04 s), for global variables that code without Python objects never reads."""

    def find_class(self, module: str, name: str) -> Any:
        is_environment = (module, name) == ("numba.core.environment", "_rebuild_env")
        return _environment if is_environment else super().find_class(module, name)


def _environment(module: str, constants: list[Any], name: str) -> Environment:
    environment = lookup_environment(name)
    if environment is None:
        environment = Environment({"__name__": module})
        environment.consts[:] = constants
        environment.env_name = name
        Environment._memo[name] = environment
    return environment


class KernelCache(NullCache):  # type: ignore[misc]
    """The cache of one function; it replaces the cache of `njit(cache=True)`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        file = Path(function.__code__.co_filename)
        self.name = f"{file.stem}.{function.__qualname__}"
        if "gpu_pipeline" in (file.parent.name, file.parent.parent.name):
            self.name += f"-{GPU_KEY}"

    @property
    def cache_path(self) -> str:
        """The folder of all kernels; Numba shows it in statistics and messages."""
        return str(FOLDER)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function for the argument types `sig`, or None if no file has it.

        Numba's own cache first registers all functions that a compilation may need (0.25 s). Compiled code needs only
        the run-time library. A compilation registers the functions when it starts.
        """
        rtsys.initialize(target_context)
        for path in self._files(sig):
            try:
                content = path.read_bytes()
            except OSError:
                continue
            if content[:32] == hashlib.sha256(content[32:]).digest():
                symbols, stored = _Unpickler(io.BytesIO(content[32:])).load()
                loaded = CompileResult._rebuild(_Loading(target_context, symbols), *stored)
                return loaded._replace(target_context=target_context)
        return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Write the compiled function. If the folder cannot be written, no error is raised: the next process compiles
        again."""
        assert not cres.lifted and not cres.library.has_dynamic_globals, f"{self.name} cannot be cached"
        content = dumps((_symbols_of(cres.library), cres._reduce()))
        keep(next(self._files(sig)), hashlib.sha256(content).digest() + content)

    def _files(self, sig: Any) -> Iterator[Path]:
        """The files that may hold the function, the preferred one first."""
        name = f"{self.name}-{hashlib.sha256(repr(sig).encode()).hexdigest()[:16]}"
        yield FOLDER / name
        if SAVED:
            yield SAVED / name
        if _HAS_INSTALLED:
            yield INSTALLED / name


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function with Numba on its first call, and cache the result for later processes. The compiled function
    runs without the GIL."""
    dispatcher = numba.njit(nogil=True)(function)
    dispatcher._cache = KernelCache(function)
    dispatcher._compilation_chain_init_hook = _load_no_extensions
    return dispatcher


def _load_no_extensions() -> None:
    """Load no packages that extend Numba before the first call of a kernel, such as awkward (0.3 s). Such packages add
    types that no kernel takes. The compiler loads these packages if it must run."""


_HAS_INSTALLED = is_installed()
