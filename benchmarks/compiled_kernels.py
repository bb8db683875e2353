# SPDX-License-Identifier: Apache-2.0
"""Compile all kernels to machine code without a device, and bring them to the caches of a machine with one: those of
the GPU engine, and those of the CPU engine, with which it is compared, for processors with the level x86-64-v3.

    python -m benchmarks.compiled_kernels FILE [--capability 9.0]     writes FILE (`make kernels`)
    python -m benchmarks.compiled_kernels FILE --load                 fills this machine's cache from FILE

Both sides need the same sources, Numba, numba-cuda and minor version of Python: FILE is refused otherwise. It holds
pickles, which run code when they are read: load only a file of your own.
"""

import argparse
import bz2
import multiprocessing
import os
import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

CAPABILITY = (9, 0)


def versions() -> dict[str, str]:
    """Return the versions that must be equal where kernels are compiled and where they are loaded."""
    from curation.kernels.cache import GPU_KEY, KEY

    return {"sources, Numba and Python": f"{KEY} {GPU_KEY}", "numba-cuda": version("numba-cuda")}


@contextmanager
def as_on_device(capability: tuple[int, int]) -> Iterator[None]:
    """Let Numba compile as for a device of this capability."""
    from numba.cuda.cudadrv import devices

    device = SimpleNamespace(compute_capability=capability, id=0)
    with ExitStack() as patches:
        patches.enter_context(patch("numba.cuda.dispatcher.get_current_device", lambda: device))
        patches.enter_context(patch.object(devices, "get_context", lambda *_: SimpleNamespace(device=device)))
        yield


def all_kernels() -> dict[str, tuple[Any, tuple]]:
    """Return name -> (kernel, types of its arguments)."""
    from gpu_pipeline.kernels.all_kernels import SIGNATURES

    return {kernel.py_func.__name__: (kernel, signature) for kernel, signature in SIGNATURES.items()}


def compile_kernel(name: str, capability: tuple[int, int] = CAPABILITY) -> tuple[str, int, bytes]:
    """Return the name, the size of the machine code, and Numba's kernel with this code, pickled."""
    from numba.cuda.dispatcher import _Kernel
    from numba.cuda.serialize import dumps

    kernel, signature = all_kernels()[name]
    with as_on_device(capability):
        compiled = _Kernel(kernel.py_func, signature, **kernel.targetoptions)
        code = compiled._codelibrary.get_cubin()
        compiled._codelibrary._llvm_strs, compiled._codelibrary._ptx_cache = [], {}  # machine code is enough
        return name, len(code.code), dumps(compiled._reduce_states())


def compile_all(capability: tuple[int, int] = CAPABILITY) -> Iterator[tuple[str, int, bytes]]:
    """Yield what `compile_kernel` returns of each kernel, in processes: Numba compiles one kernel at a time."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(len(os.sched_getaffinity(0)), 8), context)
    try:
        for done in as_completed([pool.submit(compile_kernel, name, capability) for name in all_kernels()]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def save(path: Path, capability: tuple[int, int] = CAPABILITY) -> str:
    from curation.stages.warm_up import GROUPS
    from tests.scripts.wheel_kernels import compile_for_others

    host = compile_for_others(list(GROUPS))
    made = {name: kernel for name, _, kernel in compile_all(capability)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bz2.compress(pickle.dumps({"versions": versions(), "kernels": made, "host": host})))
    kinds = f"{len(made)} kernels for {capability[0]}.{capability[1]}, {len(host)} for x86-64-v3"
    return f"{kinds} in {path.stat().st_size >> 10} KiB"


def load(path: Path) -> str:
    """Put the kernels of a file into the cache from which every later process loads them."""
    from llvmlite import binding
    from numba.cuda.dispatcher import _Kernel

    from curation.kernels import cache

    stored = pickle.loads(bz2.decompress(path.read_bytes()))
    if stored["versions"] != versions():
        raise ValueError(
            f"{path}: kernels compiled for {stored['versions']}, this machine has {versions()}. "
            "Compile them again with the same sources and versions"
        )
    kernels = all_kernels()
    for name, content in stored["kernels"].items():
        kernel, signature = kernels[name]
        compiled = _Kernel._rebuild(**pickle.loads(content))
        compiled.target_context = kernel.targetctx  # Numba sets it only when it compiles
        kernel._cache.save_overload(signature, compiled)
    if all(map(binding.get_host_cpu_features().get, cache.WHEEL_FEATURES)):
        cache.FOLDER.mkdir(parents=True, exist_ok=True)
        for name, content in stored["host"].items():
            (cache.FOLDER / name).write_bytes(content)
    return f"{len(stored['kernels'])} of {len(kernels)} kernels loaded"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--capability", default="9.0", help="of the device (default: 9.0)")
    parser.add_argument("--load", action="store_true", help="fill the cache of this machine")
    options = parser.parse_args(arguments)
    major, minor = map(int, options.capability.split("."))
    print(load(options.file) if options.load else save(options.file, (major, minor)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
