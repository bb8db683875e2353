# SPDX-License-Identifier: Apache-2.0
"""Each thing that the GPU engine builds on, one line each: what works, what fails, what cannot be tried here.

    python -m benchmarks.probe [--dry] [--output FILE.json]

Needs neither pytest nor the CPU engine's compiled kernels, so it is the first thing to run on a new machine. A failure
does not stop the next probe. A probe is skipped, with the reason, if what it needs is missing. Exit code: the number
of failed probes, or 1 without a device. `--dry` accepts a machine without a device: only what runs there counts.
"""

import argparse
import ctypes
import importlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 20_000
TEXTS = pa.array(["", "a b", None, "ä" * 500] * (ROWS // 4), pa.large_string())
TRANSFER_BYTES = 1 << 28
CAPABILITY = (9, 0)  # that kernels are compiled for without a device
SHOWN_ERROR = 300


class Probe(NamedTuple):
    """A probe: its name, the modules it needs, whether it needs a device, and what returns the value to show."""

    name: str
    modules: tuple[str, ...]
    device: bool
    run: Callable[[], Any]


def driver_code() -> tuple[int, int]:
    """(what cuInit returns, the CUDA version that the driver supports); raises OSError without a driver."""
    cuda, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    code = cuda.cuInit(0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    return code, version.value


def no_device() -> str:
    """Why there is no device; empty if there is one."""
    try:
        code, _ = driver_code()
    except OSError as error:
        return f"no NVIDIA driver: {error}"
    return f"the driver finds no device: cuInit returns {code}" if code else ""


def missing_module(names: tuple[str, ...]) -> str:
    """The first of these modules that does not load, with the error; empty if all load."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # an incompatible package raises anything
            return f"{name}: {type(error).__name__}: {error}"
    return ""


# Host


def machine() -> dict[str, Any]:
    return {"python": platform.python_version(), "cpus": os.cpu_count(), "platform": platform.platform()}


def version_of(name: str) -> str:
    module = importlib.import_module(name)
    return f"{getattr(module, '__version__', '?')} {module.__file__}"


def compile_kernels() -> str:
    """Compile every kernel to PTX as for a device, and link it."""
    from types import SimpleNamespace
    from unittest.mock import patch

    from cuda.bindings import nvjitlink
    from numba import cuda

    from gpu_pipeline import (
        document_kernels,
        json_kernels,
        kernels,
        rewrite_kernels,
        rewrite_masks,
        text_kernels,
        token_kernels,
    )

    device = SimpleNamespace(compute_capability=CAPABILITY)
    sizes = []
    modules = kernels, text_kernels, document_kernels, rewrite_masks, rewrite_kernels, token_kernels, json_kernels
    for kernel, signature in (each for module in modules for each in module.SIGNATURES.items()):
        with patch("numba.cuda.dispatcher.get_current_device", lambda: device):
            ptx, _ = cuda.compile(
                kernel.py_func, signature, cc=CAPABILITY, device=False, abi="numba", output="ptx"
            )  # fmt: skip
        handle = nvjitlink.create(1, ["-arch=sm_{}{}".format(*CAPABILITY)])
        try:
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx.encode(), len(ptx), kernel.py_func.__name__)
            nvjitlink.complete(handle)
            sizes.append(nvjitlink.get_linked_cubin_size(handle))
        finally:
            nvjitlink.destroy(handle)
    return f"{len(sizes)} kernels, {sum(sizes) >> 10} KiB of machine code"


# Device


def device_facts() -> dict[str, Any]:
    import cupy as cp

    facts, runtime = cp.cuda.runtime.getDeviceProperties(0), cp.cuda.runtime
    pools = runtime.deviceGetAttribute(runtime.cudaDevAttrMemoryPoolsSupported, 0)
    free, total = runtime.memGetInfo()
    return {
        "name": facts["name"].decode(), "capability": f"{facts['major']}.{facts['minor']}",
        "multiprocessors": facts["multiProcessorCount"], "l2_mib": facts["l2CacheSize"] >> 20,
        "free_gib": round(free / 2**30, 1), "total_gib": round(total / 2**30, 1), "pools": pools,
        "devices": runtime.getDeviceCount(),
    }  # fmt: skip


def memory_resource() -> str:
    import cupy as cp
    import rmm

    from curation.engine import device_memory
    from gpu_pipeline.device import memory

    memory()
    cp.empty(TRANSFER_BYTES, cp.uint8)  # given back to the pool at once
    kept = device_memory(cp.cuda.runtime)[0] - cp.cuda.runtime.memGetInfo()[0]
    return f"{type(rmm.mr.get_current_device_resource()).__name__}, {kept >> 20} MiB kept and free"


def string_columns() -> list[Any]:
    """What `gpu_pipeline.buffers` expects of a column, of one without rows, and of one without values."""
    import cudf

    found = []
    for texts in (TEXTS, TEXTS[:0], pa.nulls(5, pa.large_string())):
        column, _ = cudf.Series.from_arrow(texts).to_pylibcudf()
        children = [column.children()[k].type().id() for k in range(column.num_children())]
        found.append((column.size(), column.offset(), children, type(column.data()).__name__))
    return found


def column_operations() -> str:
    import cudf
    import cupy as cp

    series = cudf.Series.from_arrow(TEXTS)
    assert series.to_arrow().equals(TEXTS), "to_arrow differs"
    assert series.null_count == ROWS // 4 and int(series.notna().values.sum()) == ROWS - ROWS // 4, "wrong nulls"
    assert series.take(cp.asarray([3, 1])).to_arrow().to_pylist() == ["ä" * 500, "a b"], "take differs"
    assert series.fillna("").null_count == 0, "fillna leaves nulls"
    assert len(cudf.DataFrame({"t": series})[np.arange(ROWS) % 2 == 0]) == ROWS // 2, "a mask selects other rows"
    return "to_arrow, notna, take, fillna, mask"


def parquet_groups() -> str:
    import cudf

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/x.parquet"
        pq.write_table(pa.table({"text": TEXTS}), path, compression="zstd", row_group_size=4000)
        settings = {"use_pandas_metadata": False, "ignore_missing_columns": False}
        frame = cudf.read_parquet([path], columns=["text"], row_groups=[[1, 2]], **settings)
        assert frame["text"].to_arrow().equals(TEXTS[4000:12000]), "other rows"
    return f"{len(frame)} rows of 2 row groups, zstd"


def parquet_file() -> str:
    """A file of documents from the device, as pyarrow reads it."""
    from curation.run_folder.documents import DOCUMENT_SCHEMA, PARQUET_OPTIONS
    from gpu_pipeline import parquet_file

    long = ["x" * (40 << 20), None, ""]
    rows = {"doc": [*range(3)], "id": ["a", "b", None], "source": ["s"] * 3, "text": long}
    table = pa.table(rows, DOCUMENT_SCHEMA)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.parquet")
        with parquet_file(path, DOCUMENT_SCHEMA, PARQUET_OPTIONS) as file:
            for _ in range(4):
                file.write(table)
        found = pq.read_table(path)
        assert found.schema.equals(DOCUMENT_SCHEMA), f"other types: {found.schema}"
        assert found.equals(pa.concat_tables([table] * 4)), "other rows"
        return f"{path.stat().st_size} bytes, {pq.read_metadata(path).num_row_groups} row groups"


def rate(action: Callable[[], object], amount: float) -> float:
    """`amount` per second of the second of two calls, with waits for the device."""
    import cupy as cp

    for _ in range(2):
        cp.cuda.Device().synchronize()
        start = time.perf_counter()
        action()
        cp.cuda.Device().synchronize()
    return amount / (time.perf_counter() - start)


def transfers() -> dict[str, float]:
    """GB/s of pageable and pinned memory up and down, and of a copy on the device, which reads and writes."""
    import cupy as cp

    host = np.ones(TRANSFER_BYTES, np.uint8)
    pinned = np.frombuffer(cp.cuda.alloc_pinned_memory(TRANSFER_BYTES), np.uint8, TRANSFER_BYTES)
    device, target = cp.asarray(host), cp.empty(TRANSFER_BYTES, np.uint8)
    actions = {
        "up": lambda: cp.asarray(host), "down": lambda: cp.asnumpy(device), "up, pinned": lambda: device.set(pinned),
        "down, pinned": lambda: device.get(out=pinned), "copy": lambda: cp.copyto(target, device),
    }  # fmt: skip
    return {name: round(rate(action, TRANSFER_BYTES / 1e9), 1) for name, action in actions.items()}


def column_transfers() -> dict[str, float]:
    import cudf

    texts = pa.array(["x" * 3000] * (TRANSFER_BYTES // 3000), pa.large_string())
    column = cudf.Series.from_arrow(texts)
    actions = {"up": lambda: cudf.Series.from_arrow(texts), "down": column.to_arrow}
    return {name: round(rate(action, TRANSFER_BYTES / 1e9), 1) for name, action in actions.items()}


def primitives() -> dict[str, float]:
    """Billions of items per second of what kernels are joined by."""
    import cupy as cp

    size = 1 << 26
    keys = cp.asarray(np.random.default_rng(0).integers(0, 2**62, size, np.uint64))
    numbers = (keys & np.uint64(1)).astype(np.int64)
    actions = {
        "stable argsort": lambda: cp.argsort(keys, kind="stable"), "cumsum": numbers.cumsum,
        "flatnonzero": lambda: cp.flatnonzero(numbers), "gather": lambda: keys[numbers],
    }  # fmt: skip
    return {name: round(rate(action, size / 1e9), 2) for name, action in actions.items()}


def first_kernel() -> list[bool]:
    import cupy as cp

    from gpu_pipeline import text_kernels
    from gpu_pipeline.buffers import eight_byte_blocks

    data = cp.asarray(np.frombuffer(b"good\xff", np.uint8))
    offsets = cp.asarray(np.array([0, 4, 5], np.int64))
    sound = text_kernels.sound_documents(data, eight_byte_blocks(data), offsets, cp.ones(2, bool))
    assert sound.tolist() == [True, False], f"UTF-8 is {sound.tolist()}, expected [True, False]"
    return sound.tolist()


def first_tokens() -> str:
    """Tokens of a few texts; the engine itself compares them with tiktoken."""
    from curation.packing.tokenization import load_tokenizer
    from gpu_pipeline import from_arrow, tokenize

    texts = ["It's 2026.\n\n  Done!", "", "中文没有空格 " * 40, "x" * 600, "antidisestablishmentarianism" * 4]
    tokenizer = load_tokenizer("gpt2")
    ids, lengths = tokenize(from_arrow(pa.table({"text": pa.array(texts, pa.large_string())}))["text"], tokenizer)
    expected = tokenizer.pack(pa.array(texts, pa.large_string()))
    assert np.array_equal(ids, expected.ids) and np.array_equal(lengths, expected.lengths), "other ids than the host's"
    return f"{len(ids)} ids"


NUMBA, CUDF = ("numba", "numba_cuda"), ("cupy", "cudf", "pylibcudf", "rmm")
PROBES = [
    Probe("machine", (), False, machine),
    Probe("driver: cuInit, CUDA", (), True, driver_code),
    *(Probe(f"import {name}", (), False, lambda name=name: version_of(name)) for name in (*NUMBA, *CUDF, "dask_cuda")),
    Probe("compile and link all kernels", (*NUMBA, "numba.cuda"), False, compile_kernels),
    Probe("device", ("cupy",), True, device_facts),
    Probe("pool of the driver", ("rmm",), True, memory_resource),
    Probe("string columns", CUDF, True, string_columns),
    Probe("operations on columns", CUDF, True, column_operations),
    Probe("Parquet row groups", CUDF, True, parquet_groups),
    Probe("Parquet from the device", (*NUMBA, *CUDF), True, parquet_file),
    Probe("transfers, GB/s", ("cupy",), True, transfers),
    Probe("transfers of columns, GB/s", CUDF, True, column_transfers),
    Probe("primitives, 10^9 items/s", ("cupy",), True, primitives),
    Probe("first kernel", (*NUMBA, *CUDF), True, first_kernel),
    Probe("the same kernel again", (*NUMBA, *CUDF), True, first_kernel),
    Probe("first tokens", (*NUMBA, *CUDF), True, first_tokens),
]


def result_of(probe: Probe, obstacle: str, dry: bool) -> tuple[str, str]:
    """("ok", value), ("FAIL", error) or ("skip", reason)."""
    if probe.device and obstacle:
        return "skip", obstacle
    lacking = missing_module(probe.modules)
    if lacking:
        return "skip", lacking
    try:
        return "ok", str(probe.run())
    except ImportError as error:
        return "skip" if dry else "FAIL", str(error)
    except Exception as error:  # the report shows any error
        return "FAIL", f"{type(error).__name__}: {error}"[:SHOWN_ERROR]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="accept a machine without a device")
    parser.add_argument("--output", type=Path, help="JSON file for the results")
    options = parser.parse_args(arguments)
    obstacle = no_device()
    if obstacle:
        print(f"no device: {obstacle}", flush=True)
    results = {}
    for probe in PROBES:
        start = time.perf_counter()
        status, shown = result_of(probe, obstacle, options.dry)
        results[probe.name] = {"status": status, "value": shown, "seconds": round(time.perf_counter() - start, 2)}
        print(f"{status:<5}{probe.name}: {shown} ({results[probe.name]['seconds']} s)", flush=True)
    if options.output:
        options.output.write_text(json.dumps({"no_device": obstacle, "probes": results}, indent=2) + "\n")
    failed = sum(result["status"] == "FAIL" for result in results.values())
    return max(failed, int(bool(obstacle) and not options.dry))


if __name__ == "__main__":
    sys.exit(main())
