# SPDX-License-Identifier: Apache-2.0
"""Kernels to PTX, and PTX to a library for this machine. Both are stored in a folder of this user for later sessions,
under the digest of everything that they are made from.
"""

import contextlib
import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from difflib import SequenceMatcher
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import curation.kernels
from tests.ptx.emit import emit
from tests.ptx.flow import looks_of, weakenable
from tests.ptx.parse import Kernel, parse

HERE = Path(__file__).parent
RUNTIME = tuple(HERE / name for name in ("runtime.h", "races.h", "counts.h", "arithmetic.h", "scheduler.h"))
CAPABILITY = (9, 0)
FRONT_END = "_compile_pyfunc_with_fixup"  # the compiler that comes with Numba has no such function
KEPT_SECONDS = 30 * 24 * 3600
# Aliasing and overflow are defined as on the device; the hardening of longjmp forbids a change of stacks.
FLAGS = ["-O1", "-w", "-shared", "-fPIC", "-fno-strict-aliasing", "-fwrapv", "-U_FORTIFY_SOURCE"]


def compiler() -> str | None:
    """The path of the system's C compiler, or None."""
    return shutil.which(os.environ.get("CC", "cc"))


def toolchain() -> dict[str, str]:
    """Versions of the packages that make PTX and machine code; "" for those of another CUDA release."""
    found = {}
    for name in ("numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


def other_toolchain(recorded: dict[str, str]) -> str:
    """Why numbers cannot be compared with recorded ones; empty where they can: the same release of CUDA."""
    here = toolchain()
    if all(here[name].split(".")[0] == number.split(".")[0] for name, number in recorded.items()):
        return ""
    return f"recorded with another release of CUDA: {recorded}, here {here}"


def missing() -> str:
    """What keeps the executor from running on this machine; empty if nothing does."""
    if compiler() is None:
        return "a C compiler is not installed: install gcc or clang, or set CC"
    if "numba_cuda" not in sys.modules and importlib.util.find_spec("numba_cuda") is None:  # or a stand-in
        return "numba-cuda is not installed: pip install 'numba-cuda[cu13]<0.31'"
    return ""


@cache
def stored() -> Path:
    """A folder that only this user can write to."""
    folder = Path(tempfile.gettempdir()) / f"curation-ptx-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o022:
        return Path(tempfile.mkdtemp())
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process removed it
            if path.stat().st_mtime < time.time() - KEPT_SECONDS:
                path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
    return folder


def store(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` make the file, unless it is there; other processes see the whole file or none."""
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=stored()) as folder:
            made = Path(folder) / path.name
            write(made)
            made.replace(path)
    return path


def compile_to_ptx(
    function: Callable, signature: tuple, capability: tuple[int, int] = CAPABILITY, lineinfo: bool = False
) -> str:
    """PTX of a kernel, without a device: the compiler asks the current device even where `cc` is given."""
    from numba import cuda
    from numba.cuda import compiler

    device = SimpleNamespace(compute_capability=capability)
    with (
        patch("numba.cuda.dispatcher.get_current_device", lambda: device),
        patch.object(compiler, FRONT_END, _front_end(), create=True),
    ):
        ptx, _ = cuda.compile(
            function, signature, cc=capability, device=False, abi="numba", output="ptx", lineinfo=lineinfo
        )
    return ptx


@cache
def _front_end() -> Callable:
    """Numba's function that makes the LLVM IR of a kernel. It makes that of the last kernel once for all capabilities:
    from 7.5 to 10.0 it is the same, and takes four fifths of the time."""
    from numba.cuda import compiler

    make, made = getattr(compiler, FRONT_END, None), dict[Any, Any]()

    def make_once(function: Callable, signature: tuple, **options: Any) -> Any:
        key = function, signature, str(options | {"cc": None})
        if key not in made:
            made.clear()
            made[key] = make(function, signature, **options)
        return made[key]

    return make_once


@cache
def _digest_of_kernels() -> str:
    """All sources that kernels of the product are compiled from, and the compiler's versions."""
    from numba import cuda

    import gpu_pipeline

    folder = Path(curation.kernels.__file__).parent
    sources = [*sorted(folder.glob("*.py")), *sorted(Path(gpu_pipeline.__file__).parent.rglob("*.py"))]
    own = str("numba_cuda" in Path(cuda.__file__).parts)  # Numba has a compiler of its own, which gives other code
    content = "\0".join(
        [version("numba"), own, str(toolchain()), *(f"{path.name}\0{path.read_text('utf-8')}" for path in sources)]
    )
    return hashlib.sha256(content.encode()).hexdigest()


def ptx_of(kernel, signature: tuple, capability: tuple[int, int] = CAPABILITY) -> str:
    """PTX of a kernel of the product; compiled once for the same sources."""
    function = kernel.py_func
    digest = hashlib.sha256(f"{_digest_of_kernels()} {signature} {capability}".encode()).hexdigest()[:20]
    path = stored() / f"{function.__name__}-{digest}.ptx"
    return store(path, lambda made: made.write_text(compile_to_ptx(function, signature, capability))).read_text()


def source_lines(kernel) -> list[int]:
    """The line of the kernel's file that each instruction of its PTX comes from; that of the call for what the compiler
    inlines. PTX with lines has a few instructions in another order: the most similar sequence is taken."""
    name = kernel.py_func.__name__
    digest = hashlib.sha256(f"{_digest_of_kernels()} {name}".encode()).hexdigest()[:20]
    from gpu_pipeline.kernels.all_kernels import SIGNATURES

    def write(made: Path) -> None:
        made.write_text(compile_to_ptx(kernel.py_func, SIGNATURES[kernel], lineinfo=True))

    line, lines, kept = 0, [], []
    for text in store(stored() / f"{name}-{digest}.lines", write).read_text().splitlines():
        if found := re.match(r"\s*\.loc\s+\d+ (\d+)", text):
            line = int(found[1]) or line
        elif not re.match(r"\s*(\.file|\$L__(tmp|func)|//)", text):
            lines.append(line)
            kept.append(text)
    body = "\n".join(kept).partition("\n.section")[0].partition("\n\t.section")[0]
    marked, own = parse(body).instructions, parse(ptx_of(kernel, SIGNATURES[kernel])).instructions
    opcodes = ([each.opcode for each in instructions] for instructions in (own, marked))
    found = [0] * len(own)
    for first, of_marked, size in SequenceMatcher(None, *opcodes, autojunk=False).get_matching_blocks():
        found[first : first + size] = [lines[each.line - 1] for each in marked[of_marked : of_marked + size]]
    return list(accumulate(found, lambda before, line: line or before))


def build(ptx: str, looks: bool = False, weakened: bool = False) -> tuple[Kernel, ctypes.CDLL]:
    """The kernel of a PTX module, and the library that runs it.

    looks      whether it looks before its atomics
    weakened   whether a launch may weaken an instruction
    """
    kernel = parse(ptx)
    source = emit(kernel, looks_of(kernel) if looks else (), weakenable(kernel) if weakened else ())
    content = "\0".join([source, *FLAGS, *(path.read_text("utf-8") for path in RUNTIME)])
    path = stored() / f"{hashlib.sha256(content.encode()).hexdigest()[:20]}.so"

    def compile_library(made: Path) -> None:
        command = [compiler(), *FLAGS, "-I", str(HERE), "-x", "c", "-", "-o", str(made)]
        finished = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        if finished.returncode:
            raise RuntimeError(f"the C of {kernel.name} does not compile: {finished.stderr[:2000]}")

    return kernel, ctypes.CDLL(str(store(path, compile_library)))
