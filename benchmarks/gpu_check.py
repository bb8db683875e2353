# SPDX-License-Identifier: Apache-2.0
"""All checks and measurements that need a GPU, for a machine that is available for minutes: one JSON line per result.

    python -m benchmarks.gpu_check OUT --english FILE.jsonl [--limit 900] [--parts NAME ...]
    python -m benchmarks.gpu_check OUT --dry

Each part is a process with its own time limit, and all parts end before `--limit` seconds. The lines are printed and
written to OUT/results.jsonl as soon as they are known. Everything else that processes print is in OUT/log.txt. A part
that fails or is killed gives a line with `error` and the end of its output, and the next part starts.

FILE has about 20 MB of English text: inputs are made of its sentences. `--parts` names functions of this file (default:
all, in the order of `parts`). `--dry` runs every part that needs no device: on small inputs, with the CPU engine in
place of the GPU engine. Then no number is one of a GPU.

Exit code: the number of parts with an error.
"""

import argparse
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MIXED = ROOT / "tests" / "data" / "corpus.jsonl.gz"  # 22 languages
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
CPUS = len(os.sched_getaffinity(0))

LEAST_SECONDS = 3  # with less time left, a part does not start
SPARE_SECONDS = 10  # of the limit, for the end of the last part
ERROR_LINES, LINE_CHARACTERS = 12, 300  # of the output of a part that failed
FILES = 16  # of each input
BYTES = {"english": 10**8, "languages": 10**8, "large": 4 * 10**9}  # of each input
DRY_BYTES = 300_000
MEMORY_BYTES, DRY_MEMORY_BYTES = 256 << 20, 40 << 20  # glibc keeps freed memory below 32 MiB
BLOCK_BYTES = 8 << 20
RUNS = (  # recipe, input, fresh processes
    ("default", "english", 3), ("default", "languages", 3), ("fineweb", "english", 1), ("dclm_baseline", "english", 1),
    ("refinedweb", "english", 1),
)  # fmt: skip
SPEEDS = {  # name -> engine, threads in all (0: the program chooses), processes, settings of `output`
    "cpu": ("cpu", 0, 1, {}),
    "4 threads": ("gpu", 4, 1, {}),
    "16 threads": ("gpu", 16, 1, {}),
    "2 processes": ("gpu", 16, 2, {}),
    "4 processes": ("gpu", 16, 4, {}),
    "parquet": ("gpu", 16, 1, {"parquet": "gpu"}),
}
PER_THREAD_STREAM = 2  # CUDA's handle
SPIN = 'extern "C" __global__ void spin(long long ticks) { long long at = clock64(); while (clock64() - at < ticks); }'
SPIN_TICKS = 400_000_000  # 0.2 s at 2 GHz
PARITY = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "parity").glob("test_*.py"))
SANITIZERS = ("memcheck", "racecheck", "synccheck")
SANITIZED = [f"tests/parity/test_{name}.py" for name in ("hash", "minhash", "measures", "tokens", "language")]

Facts = Iterator[dict[str, Any]]


class CheckError(Exception):
    """Results that are not as expected."""


class Place(NamedTuple):
    """Folders for results and for inputs and runs, whether this is a dry run, and the English texts."""

    out: Path
    work: Path
    dry: bool
    english: Path

    @property
    def engine(self) -> str:
        return "cpu" if self.dry else "gpu"


class Part(NamedTuple):
    """A function that yields the facts of each result, and its limit. It runs in a process of its own."""

    run: Callable[..., Facts]
    seconds: float
    arguments: tuple[str, ...] = ()
    device: bool = False  # needs one, also in a dry run
    environment: Mapping[str, str] = {}

    @property
    def name(self) -> str:
        return " ".join((self.run.__name__, *self.arguments))


def parts(dry: bool) -> Iterator[Part]:
    yield Part(facts, 60)
    for huge_pages in ("1", "0"):
        yield Part(host_memory, 60, (huge_pages,), environment={"NUMPY_MADVISE_HUGEPAGE": huge_pages})
    yield Part(device_memory, 60, device=True)
    for recipe, texts, attempts in RUNS:
        for attempt in range(1 if dry else attempts):
            yield Part(whole_run, 200, (recipe, texts, str(attempt + 1)))
    for name in ("cpu", "2 processes") if dry else SPEEDS:
        yield Part(speed, 150, (name,))
    yield Part(streams, 60, device=True)
    yield Part(dask_frames, 90)
    for kind in ("processes", "two_workers"):
        yield Part(cluster_run, 90, (kind,))
    yield Part(functions, 240)
    for function in (nfc, json_lines, parquet_zstd, k_means):
        yield Part(function, 60, device=True)
    yield Part(self_check, 150)
    for path in [*PARITY, "tests/stages", "tests/reading", "tests/running"]:
        yield Part(pytest_run, 150, (path,), device=True)
    for tool in SANITIZERS:
        yield Part(sanitizer, 100, (tool,), device=True)


# Facts and memory


def facts(place: Place) -> Facts:
    """The machine, and the engine's device and versions."""
    yield {
        "cpus": CPUS, "kernel": os.uname().release, "python": sys.version.split()[0],
        "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30,
        "disk_gib": shutil.disk_usage(place.work).free >> 30,
        "huge_pages": HUGE_PAGES.read_text().strip() if HUGE_PAGES.exists() else "",
        "lockable_bytes": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
    }  # fmt: skip
    yield load(place.engine).describe()
    if not place.dry:
        query = "--query-gpu=name,pcie.link.gen.current,pcie.link.width.current"
        shown = subprocess.run(["nvidia-smi", query, "--format=csv"], stdout=subprocess.PIPE, text=True, check=True)
        yield {"bus": shown.stdout.splitlines()}


def load(engine: str) -> Any:
    """Return an engine, with the streams that a run has. Raises EngineError if this machine cannot run it."""
    from curation.base.engine import choose_engine, load_engine

    return load_engine(choose_engine(engine).name)


def milliseconds(action: Callable[[], object], repeats: int = 5) -> float:
    """Return the median time of calls after the first, each with waits for the device, if CuPy is loaded."""
    times = []
    for _ in range(repeats + 1):
        synchronise()
        start = time.perf_counter()
        action()
        synchronise()
        times.append((time.perf_counter() - start) * 1e3)
    return round(statistics.median(times[1:]), 2)


def synchronise() -> None:
    if "cupy" in sys.modules:
        sys.modules["cupy"].cuda.Device().synchronize()


def host_memory(place: Place, _: str) -> Facts:
    """Times and page faults of new and reused host memory, with and without NumPy's huge pages."""
    import numpy as np

    size = DRY_MEMORY_BYTES if place.dry else MEMORY_BYTES
    kept = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    block = kept[:BLOCK_BYTES].copy()
    path = place.work / "bytes"
    path.write_bytes(kept)

    def read(into: Any) -> None:
        with path.open("rb", buffering=0) as file:
            for start in range(0, size, BLOCK_BYTES):
                file.readinto(memoryview(into)[start : start + BLOCK_BYTES])

    def copy(into: Any) -> None:
        for start in range(0, size, BLOCK_BYTES):
            into[start : start + BLOCK_BYTES] = block

    actions = {
        "file into a new array": lambda: read(np.empty(size, np.uint8)), "file into the same array": lambda: read(kept),
        "blocks into a new array": lambda: copy(np.empty(size, np.uint8)),
        "blocks into the same array": lambda: copy(kept), "concatenate one array": lambda: np.concatenate([kept]),
    }  # fmt: skip
    for name, action in actions.items():
        action()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        action()
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        yield {"what": name, "bytes": size, "ms": milliseconds(action, 1 if place.dry else 5), "page_faults": faults}


def device_memory(_: Place) -> Facts:
    """Time to lock memory, and GB/s of copies: up and down, of pageable and page-locked memory, and both at once."""
    import cupy as cp
    import numpy as np

    size = MEMORY_BYTES
    host = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    device, other = cp.asarray(host), cp.zeros(size, cp.uint8)
    start = time.perf_counter()
    locked = [np.frombuffer(cp.cuda.alloc_pinned_memory(size), np.uint8, size) for _ in range(2)]
    allocated = time.perf_counter()
    cp.cuda.runtime.hostRegister(host.ctypes.data, size, 0)
    registered = time.perf_counter()
    cp.cuda.runtime.hostUnregister(host.ctypes.data)
    yield {"what": "allocate page-locked memory", "bytes": 2 * size, "ms": round((allocated - start) * 1e3, 1)}
    yield {"what": "lock memory that is there", "bytes": size, "ms": round((registered - allocated) * 1e3, 1)}
    up, down = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)

    def both() -> None:
        other.set(locked[0], stream=up)
        device.get(out=locked[1], stream=down, blocking=False)

    actions = {
        "down, new array": lambda: device.get(), "down, same array": lambda: device.get(out=host),
        "down, page-locked": lambda: device.get(out=locked[0]), "up, pageable": lambda: other.set(host),
        "up, page-locked": lambda: other.set(locked[0]), "up and down at once, page-locked": both,
        "on the device": lambda: cp.copyto(other, device),
    }  # fmt: skip
    for name, action in actions.items():
        copied = 2 * size if action is both else size
        yield {"what": name, "gb_per_s": round(copied / 1e6 / milliseconds(action), 1)}
    if not all((each == host).all() for each in (locked[0], locked[1], other.get())):
        raise CheckError("copies differ")


# Whole runs


def input_of(place: Place, name: str) -> Path:
    """Return a folder of JSON Lines; the first call writes it: English sentences with a quarter near-duplicates, or
    shuffled text in 22 languages."""
    from benchmarks import corpus, gpu_bench

    folder, unfinished = place.work / name, place.work / f"{name} {os.getpid()}"
    if folder.exists():
        return folder
    unfinished.mkdir()
    size = (DRY_BYTES if place.dry else BYTES[name]) // FILES
    if name == "languages":
        write = partial(write_shuffled, gpu_bench.read_texts(MIXED))
    else:
        write = partial(write_english, corpus.make_pool(gpu_bench.read_texts(place.english), 1))
    with ProcessPoolExecutor(1 if place.dry else CPUS) as pool:
        list(pool.map(write, [size] * FILES, [unfinished / f"{number:02}.jsonl" for number in range(FILES)]))
    return unfinished.rename(folder)


def write_english(pool: Any, size: int, path: Path) -> None:
    from benchmarks import corpus

    corpus.write_corpus(path, size, seed=int(path.stem), pool=pool)
    corpus.truth_path(path).unlink()


def write_shuffled(texts: list[str], size: int, path: Path) -> None:
    """Pieces of up to 12 characters are shuffled, so that few documents are duplicates in any script."""
    chance = random.Random(path.stem)
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < size:
            pieces = re.findall(r"\S{1,12}\s*|\s+", chance.choice(texts))
            chance.shuffle(pieces)
            line = json.dumps({"id": f"{path.stem}-{file.tell()}", "text": "".join(pieces)}, ensure_ascii=False)
            file.write(f"{line}\n")


def digests_after(place: Place, recipe: str, texts: str, *arguments: str) -> dict[str, str]:
    """Run `curate`; return the SHA-256 of each file, without the report and files that name the folder of the run."""
    folder = place.work / "run"
    command = [sys.executable, "-X", "faulthandler", "-m", "curation", "run", recipe, "-i", str(input_of(place, texts))]
    command += ["-o", str(folder), "--force", "--allow-empty", *arguments]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.stem != "report" and "_meta" not in path.parts
    }


def expected_files(place: Place, recipe: str, texts: str) -> dict[str, str]:
    """Return what `digests_after` returns for the CPU engine, which runs once."""
    stored = place.work / f"{recipe} {texts}.json"
    if not stored.exists():
        stored.write_text(json.dumps(digests_after(place, recipe, texts, "--engine", "cpu")))
    return json.loads(stored.read_text())


def whole_run(place: Place, recipe: str, texts: str, _: str) -> Facts:
    """A run in a fresh process leaves the CPU engine's files."""
    expected = expected_files(place, recipe, texts)
    start = time.perf_counter()
    found = digests_after(place, recipe, texts, "--engine", place.engine)
    yield {"seconds": round(time.perf_counter() - start, 2), "files": len(found)}
    check_same(found, expected)


def check_same(found: dict[str, str], expected: dict[str, str]) -> None:
    if differing := sorted({name for name, _ in found.items() ^ expected.items()}):
        raise CheckError(f"not the CPU engine's files: {', '.join(differing)}")


# Speed


def speed(place: Place, name: str) -> Facts:
    """The seconds of each phase in two runs of the same processes: the first one includes the start of CUDA. Each of
    several processes runs its share of the files."""
    engine, threads, processes, output = SPEEDS[name]
    files = sorted(input_of(place, "large").iterdir())
    shares = [files[number::processes] for number in range(processes)]
    size, stored = sum(path.stat().st_size for path in files), place.work / "speed.json"
    workers = threads and max(min(threads, CPUS) // processes, 1)
    run = partial(timed_run, place.engine if engine == "gpu" else "cpu", workers, output)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for attempt in ("first", "second"):
            folders = [place.work / f"{attempt}-{number}" for number in range(processes)]
            start = time.perf_counter()
            found = list(pool.map(run, shares, folders))
            seconds = time.perf_counter() - start
            yield {
                "run": attempt, "bytes": size, "seconds": round(seconds, 2), "mb_per_s": round(size / 1e6 / seconds, 1),
                "phases_of_each_process": [phases for phases, _ in found],
            }  # fmt: skip
            for folder in folders:
                shutil.rmtree(folder)
    if name == "cpu":
        stored.write_text(json.dumps(found[0][1]))
    if processes == 1:
        check_same(found[0][1], json.loads(stored.read_text()))


def timed_run(
    engine: str, workers: int, output: dict[str, str], files: list[Path], folder: Path
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the phases of a run, and the SHA-256 of each `.bin` and `.idx` from the report."""
    import yaml

    import curation
    from benchmarks.gpu_bench import Phases

    recipe = yaml.safe_load((ROOT / "curation" / "recipes" / "default.yaml").read_text())
    recipe["output"] |= output
    phases = Phases(sum(path.stat().st_size for path in files), engine == "gpu")
    found = curation.run(recipe, folder, input=[*map(str, files)], engine=engine, workers=workers, progress=phases)
    outputs = found.report["outputs"].items()
    return phases.phases, {name: digest for name, digest in outputs if name.endswith((".bin", ".idx"))}


# Streams, frames and clusters


def streams(place: Place) -> Facts:
    """The default stream after `curation.read`, and which waits include a kernel on the per-thread stream."""
    import warnings

    import curation

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        curation.read(str(input_of(place, "english")), engine="gpu")
    import cupy as cp
    from cupy_backends.cuda.stream import get_default_stream_ptr

    from gpu_pipeline.memory.device import finish

    pointer = get_default_stream_ptr()
    yield {"default_stream": pointer, "expected": PER_THREAD_STREAM, "warnings": [str(each.message) for each in warned]}
    spin = cp.RawKernel(SPIN, "spin")

    def waits(wait: Callable[[], object]) -> dict[str, float]:
        start = time.perf_counter()
        with cp.cuda.Stream(ptds=True):
            spin((1,), (1,), (SPIN_TICKS,))
        wait()
        waited = time.perf_counter() - start
        synchronise()
        return {"waited_ms": round(waited * 1e3, 1), "kernel_ms": round((time.perf_counter() - start) * 1e3, 1)}

    waits(synchronise)  # loads the kernel
    yield {"wait": "legacy stream", **waits(cp.cuda.Stream(null=True).synchronize)}
    found = waits(finish)
    yield {"wait": "finish", **found}
    if pointer != PER_THREAD_STREAM or found["waited_ms"] < found["kernel_ms"] / 2:
        raise CheckError("expected: the per-thread stream, and that `finish` waits for its kernels")


def dask_frames(place: Place) -> Facts:
    """Functions on a Dask collection of each engine keep the same texts."""
    import curation

    found = {}
    for engine in ("cpu", place.engine):
        frame = curation.read(str(input_of(place, "english")), engine=engine)
        rows = curation.fuzzy_dedup(curation.filter(frame, "gopher_repetition")).compute()
        host = rows.to_pandas() if hasattr(rows, "to_pandas") else rows
        found[engine] = host["text"].tolist()
        yield {"collection": f"{type(frame)}", "frame": f"{type(rows)}", "rows": len(rows)}
    if found["cpu"] != found[place.engine]:
        raise CheckError("not the CPU engine's rows")


def cluster_run(place: Place, kind: str) -> Facts:
    """A whole run on `--scheduler processes`, or on a Dask cluster of two workers, which share the device."""
    expected = expected_files(place, "default", "english")
    with two_workers(place.dry) if kind == "two_workers" else nullcontext("processes") as scheduler:
        found = digests_after(place, "default", "english", "--engine", place.engine, "--scheduler", scheduler)
    yield {"files": len(found)}
    check_same(found, expected)


@contextmanager
def two_workers(dry: bool) -> Iterator[str]:
    """Start a cluster with two workers on one device; LocalCUDACluster itself starts one worker per device."""
    from distributed import Client, LocalCluster

    if dry:
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            yield cluster.scheduler_address
        return
    from dask_cuda import LocalCUDACluster

    with LocalCUDACluster(n_workers=1, threads_per_worker=2, rmm_async=True, enable_cudf_spill=False) as cluster:
        address = cluster.scheduler_address
        command = [sys.executable, "-m", "dask", "cuda", "worker", address, "--nthreads", "2", "--rmm-async"]
        worker = subprocess.Popen(command, stdout=sys.stderr)
        try:
            with Client(cluster) as client:
                client.wait_for_workers(2)
            yield address
        finally:
            worker.terminate()
            worker.wait()


# Functions and libraries


def functions(place: Place) -> Facts:
    """The benchmark of all functions, with the host's profile: OUT/bench.json."""
    from benchmarks import gpu_bench

    arguments = ["--input", str(MIXED), "--repeats", "3", "--output", str(place.out / "bench.json")]
    if gpu_bench.main([*arguments, *["--dry"] * place.dry]):
        raise CheckError("see `failed` in bench.json")
    yield {"megabytes_per_second": json.loads((place.out / "bench.json").read_bytes())["megabytes_per_second"]}


def mixed_table(place: Place) -> Any:
    import pyarrow as pa
    import pyarrow.json as pj

    tables = [pj.read_json(path) for path in sorted(input_of(place, "languages").iterdir())]
    return pa.concat_tables(tables).cast(pa.schema([("id", pa.large_string()), ("text", pa.large_string())]))


def nfc(place: Place) -> Facts:
    """cuDF's normalisation, whose tables are those of this Python's unicodedata."""
    engine = load("gpu")
    from cudf.core.unicode_normalizer import UnicodeNormalizer

    from curation.kernels.rewrite import RewriteSteps

    text, steps = engine.from_arrow(mixed_table(place))["text"], RewriteSteps(unicode="nfc")
    library = UnicodeNormalizer.from_python_unicodedata("NFC")
    found = library.normalize(text).to_arrow().to_pylist()
    ours = engine.rewrite(text, steps)[0].to_arrow().to_pylist()
    yield {
        "texts": len(ours), "different_texts": sum(a != b for a, b in zip(found, ours, strict=True)),
        "library_ms": milliseconds(lambda: library.normalize(text)),
        "ours_ms": milliseconds(lambda: engine.rewrite(text, steps)),
    }  # fmt: skip


def json_lines(place: Place) -> Facts:
    engine = load("gpu")
    import cudf

    from benchmarks.gpu_bench import read_lines

    path = place.work / "joined.jsonl"
    path.write_bytes(b"".join(each.read_bytes() for each in sorted(input_of(place, "languages").iterdir())))
    settings = {"lines": True, "dtype": {"id": "str", "text": "str"}, "on_bad_lines": "recover"}
    yield {
        "library_ms": milliseconds(lambda: cudf.read_json(str(path), **settings)),
        "ours_ms": milliseconds(lambda: read_lines(engine, path)),
    }


def parquet_zstd(place: Place) -> Facts:
    table, engine, cpu = mixed_table(place), load("gpu"), load("cpu")
    frame = engine.from_arrow(table)

    def write(by: Any) -> None:
        with by.parquet_file(place.work / "ours.parquet", table.schema, {"compression": "zstd"}) as file:
            file.write(table)

    yield {
        "library_ms": milliseconds(lambda: frame.to_parquet(str(place.work / "library.parquet"), compression="ZSTD")),
        "ours_ms": milliseconds(lambda: write(engine)), "cpu_engine_ms": milliseconds(lambda: write(cpu)),
    }  # fmt: skip


def k_means(_: Place) -> Facts:
    """100,000 random vectors of 384 numbers, 100 clusters, 20 rounds. The GPU engine calls cuML."""
    import numpy as np

    vectors = np.random.default_rng(0).standard_normal((100_000, 384), np.float32)
    for name in ("gpu", "cpu"):
        fit = partial(load(name).fit_centroids, vectors, 100, 20, 1)
        yield {"engine": name, "ms": milliseconds(fit, repeats=1)}


# Checks


def self_check(place: Place) -> Facts:
    """Compare each function of the engines on generated documents. If all agree, write OUT/golden for tests/golden."""
    from curation.tools import doctor

    check = doctor.self_check(["cpu"] if place.dry else ["cpu", "gpu"], 60 if place.dry else doctor.NUM_DOCUMENTS)
    failed = {name: str(error) for name, error in check.failed.items()}
    yield {"functions": len(check.digests), "failed": failed, "differing": [*check.differing]}
    if failed or check.differing:
        raise CheckError("functions failed or differ; no golden files are written")
    if not place.dry:
        from tests.golden.recording import record_golden

        (place.out / "golden").mkdir(exist_ok=True)
        record_golden(place.out / "golden")


def tests_of(*paths: str) -> list[str]:
    """Return the command of tests on the GPU engine. -W default: libraries may warn."""
    settings = ["-W", "default", "-p", "no:cacheprovider", "-q", "-m", "", "--engine", "gpu", "-k", "gpu"]
    return [sys.executable, "-m", "pytest", *settings, "--tb=short", "--durations=5", *paths]


def pytest_run(_: Place, path: str) -> Facts:
    done = subprocess.run(tests_of(path), stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    yield {"tests": done.stdout.strip().rpartition("\n")[2]}
    done.check_returncode()


def sanitizer(_: Place, tool: str) -> Facts:
    """Look for wrong accesses, races and barriers while tests compare the engines."""
    folder = f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin"
    program = shutil.which("compute-sanitizer", path=f"{os.environ['PATH']}:{folder}")
    if program is None:
        raise CheckError("compute-sanitizer is not installed")
    settings = ["--tool", tool, "--error-exitcode", "86", "--print-limit", "20"]
    subprocess.run([program, *settings, *tests_of(*SANITIZED)], check=True, stdout=sys.stderr)
    yield {"errors": 0}


# Processes


def say(out: Path, part: str, **found: Any) -> None:
    """Write a line to results.jsonl at once, and print it."""
    line = json.dumps({"part": part, "time": time.strftime("%H:%M:%S"), **found}) + "\n"
    with (out / "results.jsonl").open("ab", buffering=0) as file:
        file.write(line.encode())
    sys.__stdout__.write(line)
    sys.__stdout__.flush()


def run_here(part: Part, place: Place) -> None:
    sys.stdout = sys.stderr  # the log; `say` writes to the original one
    for found in part.run(place, *part.arguments):
        say(place.out, part.name, **found)


def run_apart(part: Part, place: Place, limit: float) -> bool:
    """Run a part in a process until its limit; write a line if it fails. Returns whether it succeeded."""
    log = place.out / "log.txt"
    command = [sys.executable, "-P", "-X", "faulthandler", sys.argv[0], str(place.out), "--alone", part.name]
    command += ["--work", str(place.work), "--english", str(place.english), *["--dry"] * place.dry]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with log.open("ab") as output:
        output.write(f"+ {part.name}\n".encode())
        output.flush()
        before = output.tell()
        process = subprocess.Popen(
            command, stderr=output, process_group=0, env=os.environ | {"PYTHONPATH": path} | part.environment
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it has started
            process.wait()
    if code == 0:
        return True
    lines = log.read_bytes()[before:].decode("utf-8", "replace").splitlines()[-ERROR_LINES:]
    error = f"over its limit of {limit:.0f} s" if code is None else f"exit code {code}"
    say(place.out, part.name, error=error, log=[line[:LINE_CHARACTERS] for line in lines])
    return False


def run_all(chosen: list[Part], place: Place, limit: float) -> int:
    """Run parts one after the other; returns how many failed."""
    start, failed = time.monotonic(), []
    for part in chosen:
        left = limit - SPARE_SECONDS - (time.monotonic() - start)
        if place.dry and part.device:
            say(place.out, part.name, skipped="needs a device")
        elif left < LEAST_SECONDS:
            say(place.out, part.name, skipped="no time left")
        elif not run_apart(part, place, min(part.seconds, left)):
            failed.append(part.name)
    say(place.out, "end", seconds=round(time.monotonic() - start, 1), failed=failed)
    return len(failed)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for the results")
    parser.add_argument("--limit", type=float, default=900, help="seconds for all parts (default: 900)")
    parser.add_argument("--parts", nargs="+", metavar="NAME", help="functions of this file (default: all)")
    parser.add_argument("--english", type=Path, help="JSON Lines with about 20 MB of English text")
    parser.add_argument("--dry", action="store_true", help="the CPU engine on small inputs, without a device")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    known = list(parts(options.dry))
    names = {part.run.__name__: None for part in known}
    english = MIXED if options.dry else options.english
    if unknown := {*(options.parts or ())} - {*names}:
        parser.error(f"--parts: {', '.join(sorted(unknown))} is unknown; expected {', '.join(names)}")
    if english is None or not english.is_file():
        parser.error("--english: expected a file of JSON Lines with about 20 MB of English text in `text`, or --dry")
    options.out.mkdir(parents=True, exist_ok=True)
    place = Place(options.out.resolve(), Path(), options.dry, english.resolve())
    if options.alone:
        [part] = [part for part in known if part.name == options.alone]
        run_here(part, place._replace(work=options.work))
        return 0
    chosen = [part for part in known if part.run.__name__ in (options.parts or names)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the part, deletes the folder
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as work:
        return run_all(chosen, place._replace(work=Path(work)), options.limit)


if __name__ == "__main__":
    sys.exit(main())
