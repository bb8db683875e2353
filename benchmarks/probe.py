# SPDX-License-Identifier: Apache-2.0
"""Parts of a first contact that run in one process: each thing that the GPU engine builds on, then checks and tests.

    python -m benchmarks.probe GROUP OUT [--dry] [--kit FOLDER] [--start TIME --deadline TIME]

`benchmarks/first_contact.py` starts it. Groups: "probes", "checks", "blocking", "tests". A part is recorded when it
begins and when it ends (`Results`); one that has ended in OUT is not repeated. A failure does not stop the next part.
A part is skipped, with the reason, if what it needs is missing. After a part that loses the device the process ends
with the code LOST, since CUDA works again only in a new one. `--dry`: parts that need a device are skipped, and checks
run on the CPU engine.
"""

import argparse
import ctypes
import importlib
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import compiled_kernels
from benchmarks.first_contact import FIRST_CHECK, KERNELS, LEAST_SECONDS, ROOT, Results

ROWS = 20_000
TEXTS = pa.array(["", "a b", None, "ä" * 500] * (ROWS // 4), pa.large_string())
TRANSFER_BYTES = 1 << 28
SHOWN_ERROR = 600
LOST = 75  # exit code
MOST_SHARE = 0.6  # of the time that remains: a slow part leaves some to the next
PARENT_DIES = 1  # of prctl
JOB = "500MB"


class Place(NamedTuple):
    """Where parts run: folders, results, whether a device is wanted, and the end of all."""

    out: Path
    kit: Path
    dry: bool
    results: Results
    deadline: float


class Part(NamedTuple):
    """A part: its name, the seconds that it may take, the modules that it needs, whether it needs a device, and what
    returns the value to show."""

    name: str
    seconds: float
    modules: tuple[str, ...]
    device: bool
    run: Callable[[Place], Any]


class OutOfTime(KeyboardInterrupt):
    """A part is over its limit. pytest ends its session at a KeyboardInterrupt, and shows the failures until then."""


class ChecksError(Exception):
    """Checks that failed."""


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


def is_lost() -> bool:
    """Whether this process cannot use the device any more."""
    if "cupy" not in sys.modules:
        return False
    try:
        sys.modules["cupy"].cuda.Device().synchronize()
    except Exception:
        return True
    return False


def missing_module(names: tuple[str, ...]) -> str:
    """The first of these modules that does not load, with the error; empty if all load."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # an incompatible package raises anything
            return f"{name}: {type(error).__name__}: {error}"
    return ""


# Host


def machine(_: Place) -> dict[str, Any]:
    return {"python": platform.python_version(), "cpus": os.cpu_count(), "platform": platform.platform()}


def version_of(name: str) -> str:
    module = importlib.import_module(name)
    return f"{getattr(module, '__version__', '?')} {module.__file__}"


# Device


def device_facts(_: Place) -> dict[str, Any]:
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


def memory_resource(_: Place) -> str:
    import cupy as cp
    import rmm

    from curation.base.engine import device_memory
    from gpu_pipeline.device import memory

    memory()
    cp.empty(TRANSFER_BYTES, cp.uint8)  # given back to the pool at once
    kept = device_memory(cp.cuda.runtime)[0] - cp.cuda.runtime.memGetInfo()[0]
    return f"{type(rmm.mr.get_current_device_resource()).__name__}, {kept >> 20} MiB kept and free"


def string_columns(_: Place) -> list[Any]:
    """What `gpu_pipeline.buffers` expects of a column, of one without rows, and of one without values."""
    import cudf

    found = []
    for texts in (TEXTS, TEXTS[:0], pa.nulls(5, pa.large_string())):
        column, _ = cudf.Series.from_arrow(texts).to_pylibcudf()
        children = [column.children()[k].type().id() for k in range(column.num_children())]
        found.append((column.size(), column.offset(), children, type(column.data()).__name__))
    return found


def column_operations(_: Place) -> str:
    import cudf
    import cupy as cp

    series = cudf.Series.from_arrow(TEXTS)
    assert series.to_arrow().equals(TEXTS), "to_arrow differs"
    assert series.null_count == ROWS // 4 and int(series.notna().values.sum()) == ROWS - ROWS // 4, "wrong nulls"
    assert series.take(cp.asarray([3, 1])).to_arrow().to_pylist() == ["ä" * 500, "a b"], "take differs"
    assert series.fillna("").null_count == 0, "fillna leaves nulls"
    assert len(cudf.DataFrame({"t": series})[np.arange(ROWS) % 2 == 0]) == ROWS // 2, "a mask selects other rows"
    return "to_arrow, notna, take, fillna, mask"


def parquet_groups(_: Place) -> str:
    import cudf

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/x.parquet"
        pq.write_table(pa.table({"text": TEXTS}), path, compression="zstd", row_group_size=4000)
        settings = {"use_pandas_metadata": False, "ignore_missing_columns": False}
        frame = cudf.read_parquet([path], columns=["text"], row_groups=[[1, 2]], **settings)
        assert frame["text"].to_arrow().equals(TEXTS[4000:12000]), "other rows"
    return f"{len(frame)} rows of 2 row groups, zstd"


def parquet_file(_: Place) -> str:
    """A file of documents from the device, as pyarrow reads it."""
    from curation.base.parquet import file_schema, in_file_types
    from curation.record.documents import DOCUMENT_SCHEMA, document_options
    from gpu_pipeline import parquet_file

    long = ["x" * (40 << 20), None, ""]
    rows = {"doc": [*range(3)], "id": ["a", "b", None], "source": ["s"] * 3, "text": long}
    table = pa.table(rows, DOCUMENT_SCHEMA)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.parquet")
        with parquet_file(path, DOCUMENT_SCHEMA, document_options(DOCUMENT_SCHEMA)) as file:
            for _ in range(4):
                file.write(table)
        found = pq.read_table(path)
        assert found.schema.equals(file_schema(DOCUMENT_SCHEMA)), f"other types: {found.schema}"
        assert found.equals(pa.concat_tables([in_file_types(table)] * 4)), "other rows"
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


def transfers(_: Place) -> dict[str, float]:
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


def column_transfers(_: Place) -> dict[str, float]:
    import cudf

    texts = pa.array(["x" * 3000] * (TRANSFER_BYTES // 3000), pa.large_string())
    column = cudf.Series.from_arrow(texts)
    actions = {"up": lambda: cudf.Series.from_arrow(texts), "down": column.to_arrow}
    return {name: round(rate(action, TRANSFER_BYTES / 1e9), 1) for name, action in actions.items()}


def primitives(_: Place) -> dict[str, float]:
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


def first_kernel(_: Place) -> list[bool]:
    import cupy as cp

    from gpu_pipeline import text_kernels
    from gpu_pipeline.buffers import eight_byte_blocks

    data = cp.asarray(np.frombuffer(b"good\xff", np.uint8))
    offsets = cp.asarray(np.array([0, 4, 5], np.int64))
    sound = text_kernels.sound_documents(data, eight_byte_blocks(data), offsets, cp.ones(2, bool))
    assert sound.tolist() == [True, False], f"UTF-8 is {sound.tolist()}, expected [True, False]"
    return sound.tolist()


def first_tokens(_: Place) -> str:
    """Tokens of a few texts; the engine itself compares them with tiktoken."""
    from curation.tokens.tokenization import load_tokenizer
    from gpu_pipeline import from_arrow, tokenize

    texts = ["It's 2026.\n\n  Done!", "", "中文没有空格 " * 40, "x" * 600, "antidisestablishmentarianism" * 4]
    tokenizer = load_tokenizer("gpt2")
    ids, lengths = tokenize(from_arrow(pa.table({"text": pa.array(texts, pa.large_string())}))["text"], tokenizer)
    expected = tokenizer.pack(pa.array(texts, pa.large_string()))
    assert np.array_equal(ids, expected.ids) and np.array_equal(lengths, expected.lengths), "other ids than the host's"
    return f"{len(ids)} ids"


# Kernels, checks and tests


def load_kernels(place: Place) -> str:
    with compiled_kernels.as_on_device(compiled_kernels.CAPABILITY) if place.dry else nullcontext():
        kept = Path(os.environ.get("SITE", ""), KERNELS)
        return compiled_kernels.load(place.kit / KERNELS if (place.kit / KERNELS).exists() else kept)


def compile_kernels(_: Place) -> str:
    """Compile every kernel to PTX as for a device, and link it."""
    sizes, total = [], len(compiled_kernels.all_kernels())
    for name, size, _ in compiled_kernels.compile_all():
        sizes.append(size)
        print(f"{len(sizes)} of {total}: {name}, {size} bytes", flush=True)
    assert len(sizes) == total
    return f"{total} kernels, {sum(sizes) >> 10} KiB of machine code"


def compare_engines(count: int) -> Callable[[Place], str]:
    def run(place: Place) -> str:
        from curation.tools.doctor import self_check

        check = self_check(["cpu"] if place.dry else ["cpu", "gpu"], count)
        for error in check.failed.values():
            print(error, flush=True)
        if check.failed or check.differing:
            raise ChecksError(f"failed: {', '.join(check.failed)}; different: {', '.join(check.differing)}")
        return f"{len(check.digests)} functions"

    return run


def golden(place: Place) -> str:
    """Record results, if the checks before have found none that differ."""
    from tests.golden.recording import record_golden

    checks = [line["status"] for name, line in place.results.latest().items() if name in CHECKED]
    if checks != ["ok"] * len(CHECKED):
        raise ChecksError("not recorded: see the checks above")
    folder = place.out / ("dry" if place.dry else "golden")
    folder.mkdir(exist_ok=True)
    record_golden(folder, "cpu" if place.dry else "gpu")
    return ", ".join(sorted(path.name for path in folder.iterdir()))


def benchmark(place: Place) -> str:
    from benchmarks import gpu_bench

    given = ["--input", str(ROOT / "tests/data/corpus.jsonl.gz")]  # of the model
    dry = ["--dry"] if place.dry else []
    code = gpu_bench.main(["--job", JOB, *given, *dry, "--output", str(place.out / "bench.json")])
    assert code == 0, "see `failed` in bench.json"
    return "see bench.json"


class Failures:
    """A pytest plugin that records each failed test at once."""

    def __init__(self, results: Results) -> None:
        self.results, self.counts = results, {"passed": 0, "failed": 0, "skipped": 0}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1
        if report.outcome == "failed":
            message = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
            self.results.add(report.nodeid, "FAIL", value=message[:SHOWN_ERROR])


def tests_of(*paths: str) -> Callable[[Place], str]:
    """Tests of the GPU engine. -W default: installed libraries may print warnings that this project does not cause."""

    def run(place: Place) -> str:
        import pytest

        plugin = Failures(place.results)
        settings = ["-W", "default", "-p", "no:cacheprovider", "-q", "-m", "", "--engine", "gpu", "-k", "gpu"]
        code = pytest.main([*settings, "--durations=5", "--continue-on-collection-errors", *paths], [plugin])
        counts = ", ".join(f"{count} {outcome}" for outcome, count in plugin.counts.items())
        if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return counts
        raise ChecksError(f"{pytest.ExitCode(code).name}: {counts}")

    return run


def test_parts(paths: list[str], seconds: float) -> list[Part]:
    return [Part(path, seconds, ("pytest",), True, tests_of(path)) for path in paths]


NUMBA, CUDF, OURS = ("numba", "numba_cuda"), ("cupy", "cudf", "pylibcudf", "rmm"), ("curation.base.engine",)
ENGINE = (*NUMBA, *CUDF, *OURS)
SECOND_CHECK = "2,500 documents on both engines"
CHECKED = (FIRST_CHECK, SECOND_CHECK)
PARITY = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests/parity").glob("test_*.py"))
NEXT = ["tests/stages/test_language.py", "tests/stages/test_rewrite.py", "tests/stages/test_redact.py"]
OTHERS = ["rules", "packing", "library", "phases", "running", "reading", "stages", "models", "tasks"]
GROUPS = {
    # What needs no compiler comes first.
    "probes": [
        Part("driver: cuInit, CUDA", 60, (), True, lambda _: driver_code()),
        Part("device", 60, ("cupy",), True, device_facts),
        Part("transfers, GB/s", 60, ("cupy",), True, transfers),
        Part("machine", 60, (), False, machine),
        *(Part(f"import {name}", 60, (), False, lambda _, name=name: version_of(name))
          for name in (*CUDF, *NUMBA, "dask_cuda")),
        Part("string columns", 60, CUDF, True, string_columns),
        Part("operations on columns", 60, CUDF, True, column_operations),
        Part("transfers of columns, GB/s", 60, CUDF, True, column_transfers),
        Part("Parquet row groups", 60, CUDF, True, parquet_groups),
        Part("pool of the driver", 60, ("rmm", *OURS), True, memory_resource),
        Part("Parquet from the device", 60, ENGINE, True, parquet_file),
        Part("primitives, 10^9 items/s", 60, ("cupy",), True, primitives),
        Part("load compiled kernels", 60, (*NUMBA, *OURS), False, load_kernels),
        Part("first kernel", 60, ENGINE, True, first_kernel),
        Part("the same kernel again", 60, ENGINE, True, first_kernel),
        Part("first tokens", 60, (*ENGINE, "gigatoken"), True, first_tokens),
    ],
    "checks": [
        Part(FIRST_CHECK, 200, OURS, False, compare_engines(60)),
        Part(SECOND_CHECK, 100, OURS, False, compare_engines(2500)),
        Part("golden results", 100, OURS, False, golden),
        Part("benchmark", 240, OURS, False, benchmark),
        Part("compile and link all kernels", 120, (*NUMBA, *OURS), False, compile_kernels),
        *test_parts(PARITY + NEXT, 100),
    ],
    "blocking": [Part("60 documents, one launch after the other", 100, ENGINE, True, compare_engines(60))],
    "tests": test_parts([f"tests/{name}" for name in OTHERS], 200),
}  # fmt: skip


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the block after so many seconds, unless it is in a call of C."""

    def stop(*_: Any) -> None:
        raise OutOfTime(f"over its limit of {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_part(part: Part, place: Place, obstacle: str) -> bool:
    """Run a part and record it; returns whether it failed."""
    limit = min(part.seconds, (place.deadline - time.time()) * MOST_SHARE)
    if limit < LEAST_SECONDS:
        place.results.add(part.name, "skip", value="no time left")
        return False
    with place.results.part(part.name, limit) as found:
        try:
            with time_limit(limit):
                lacking = (obstacle if part.device else "") or missing_module(part.modules)
                found |= {"status": "skip", "value": lacking} if lacking else {"value": part.run(place)}
        except (ImportError, FileNotFoundError) as error:
            found |= {"status": "skip" if place.dry else "FAIL", "value": str(error)}
        except (Exception, OutOfTime) as error:  # the report shows any error
            traceback.print_exc()
            found |= {"status": "FAIL", "value": f"{type(error).__name__}: {error}"[:SHOWN_ERROR]}
        print(f"{found['status']:<5}{part.name}: {found['value']}", flush=True)
        return found["status"] == "FAIL"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dry", action="store_true", help="accept a machine without a device")
    parser.add_argument("--kit", type=Path, default=Path(".kit"))
    parser.add_argument("--start", type=float, default=time.time(), help="of all parts, in seconds since 1970")
    parser.add_argument("--deadline", type=float, default=time.time() + 3600, help="likewise")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    results = Results(options.out / "results.jsonl", options.start)
    place = Place(options.out, options.kit, options.dry, results, options.deadline)
    obstacle = no_device()
    if obstacle and not options.dry and options.group == "probes":
        results.add("a device", "FAIL", value=obstacle)
    for part in GROUPS[options.group]:
        if part.name in results.latest():
            continue
        needed = part._replace(device=part.device or (not options.dry and options.group == "checks"))
        if run_part(needed, place, obstacle) and is_lost():
            return LOST
    return 0


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PARENT_DIES, signal.SIGKILL)
    sys.exit(main())
