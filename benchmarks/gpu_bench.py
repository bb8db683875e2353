# SPDX-License-Identifier: Apache-2.0
"""Device time and memory of the GPU engine's text functions, compared with a device-to-device copy, and the whole job.

    python -m benchmarks.gpu_bench [--input FILE.jsonl] [--megabytes 256] [--job 2GB] [--output FILE.json] [--dry]

Texts are those of `--input` with their lengths, all of them, repeated with a number in front as often as needed.
Without it they are those of shared/data/real_20mb.jsonl, or generated. The result states percentiles of the lengths and
the batches that the engine would cut.

CUDA events around the whole function give its time: transfers of results and gaps between launches count. Speeds are
medians of `--repeats` calls after two for warm-up, in MB of text per second. The copy counts each byte once, as text
functions do, although each byte is read and written. Memory is the peak of allocations, including the column itself and
the function's result, in multiples of the text.

One more call of each function is traced (`benchmarks.device_trace`): time of each kernel, launches, synchronisations,
copies, time of Python, idle share. Without PyTorch, CUDA events around each launch time the kernels, which adds the
delay of a launch to each, and the rest is left out. The table compares all this with the lower end of
`tests/ptx/model.py`, where that has the quantity; its last column is for an H200. The model counted the texts
of `tests/data/corpus.jsonl.gz`: with other texts the ratio has their difference, too. A last call is profiled: its
slowest functions on the host are in the result.

`--job` writes texts as Parquet and tokenises them with the CPU engine alone. Then it runs NFC, Gopher, exact and
near-duplicates, GPT-2 and `.bin/.idx` with the GPU engine. It gives the seconds of each phase, its MB of input per
second, and its idle share: the share of the time without a kernel, by NVML.

Records of repeated spans are timed from texts on the host to records and verdicts there, as the stage works. Beside
them is libcudf's suffix array of the same column and its duplicates, which are on the device before and after. It knows
nothing of other columns, and finds strings across two documents.

Without a device it says so and ends. `--dry` runs everything with the CPU engine on a little text instead: no number is
one of a GPU.
"""

import argparse
import cProfile
import gzip
import itertools
import json
import pstats
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import corpus, device_trace
from benchmarks.device_trace import Trace
from curation.base.arrays import batches_by_size
from curation.base.contract import TEXT, Engine
from curation.base.engine import gpu_obstacle, load_engine
from curation.base.measures import Measure
from curation.base.speeds import benchmark_file
from curation.base.system.files import write_json
from curation.base.system.memory import read_processors
from curation.base.system.progress import ProgressLines
from curation.base.system.steps import Count
from curation.kernels.permutations import constants
from curation.kernels.rewrite import RewriteSteps
from curation.kernels.spans import CLOSER, new_memory
from curation.models.fasttext import load_classifier
from curation.models.ngrams import tiny_model
from curation.reading import probe
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from curation.recipes.recipe import convert_recipe
from curation.running.run import run as run_recipe
from curation.stages.exact.span_blocks import PASS_RECORDS, PIECE_BYTES, pieces_at_once, text_buffers
from curation.stages.exact.unit_keys import TextBuffers
from curation.tokens.tokenization import load_tokenizer
from curation.tools.doctor import generate_documents

GOPHER = ("words", "stop_words", "top_4gram_characters", "duplicate_10gram_characters", "duplicate_lines")
STAGES = [
    {"kind": "rewrite", "unicode": "nfc"},
    {"kind": "filter", "rules": "gopher"},
    {"kind": "exact_dedup"},
    {"kind": "fuzzy_dedup"},
]
FILES = 16  # in a job's input
DRY_MEGABYTES, DRY_JOB_BYTES = 1, 2_000_000
PERCENTILES = (5, 50, 95, 100)
TOKENIZER = "gpt2"
SPAN_BYTES = 200  # `length` of substring_dedup
ALL_STEPS = RewriteSteps("nfkc", "brackets_line", "strip_all", "basic", True, "lines")
# Functions that the model has, and its name for each (tests/ptx/workload.py)
MODELLED = {
    "read JSON Lines": "read JSON Lines", "rewrite every step": "rewrite", "measure all": "measure",
    "hash_text": "hash", "classify language": "classify", "score_text": "score", "band_keys 21 of 6 rows": "keys",
    "tokenize gpt2": "tokens", "records of spans": "windows",
}  # fmt: skip
HEADER = ("function", "quantity", "measured", "modelled for an H200")
DRY_HEADER = ("function", "quantity", "CPU engine (dry run)", *HEADER[3:])
SAMPLE_SECONDS = 0.2
SLOWEST = 12  # functions of a profile


def read_texts(path: Path | None) -> list[str]:
    if path is None:
        return [text for text in generate_documents(20_000) if text]
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [text for line in lines if (text := json.loads(line)["text"])]


def repeated(texts: list[str], size: int) -> Iterator[str]:
    """Yield about `size` bytes of text. A repeated text has a number in front, so that no cache helps."""
    total = 0
    for number, text in enumerate(itertools.cycle(texts)):
        chosen = text if number < len(texts) else f"{number} {text}"
        yield chosen
        total += len(chosen.encode())
        if total >= size:
            return


def shape_of(lengths: np.ndarray) -> dict[str, Any]:
    """Documents, bytes, and percentiles of the lengths in bytes."""
    percentiles = {f"{share} %": int(np.percentile(lengths, share)) for share in PERCENTILES}
    return {"documents": len(lengths), "bytes": int(lengths.sum()), "length": percentiles}


def batches_of(engine: Engine, size: int) -> dict[str, dict[str, int]]:
    """The batches that the engine cuts from an input of `size` bytes, by number of workers."""
    sizes = {workers: engine.batch_bytes(workers) for workers in sorted({1, read_processors()})}
    return {f"{workers} workers": {"bytes": each, "batches": -(-size // each)} for workers, each in sizes.items()}


class DeviceClock:
    """Times and memory on the device."""

    def milliseconds(self, function: Callable[[], object]) -> float:
        import cupy as cp

        start, stop = cp.cuda.Event(), cp.cuda.Event()
        start.record()
        function()
        stop.record()
        stop.synchronize()
        return cp.cuda.get_elapsed_time(start, stop)

    def trace(self, function: Callable[[], object]) -> Trace | None:
        """Return what the device did in one call, or None without PyTorch."""
        try:
            return device_trace.traced(function)
        except Exception as error:  # the other numbers count without it
            print(f"no trace: {type(error).__name__}: {error}")
            return None

    def kernel_times(self, function: Callable[[], object], repeats: int) -> dict[str, float]:
        """Return the milliseconds of each kernel in one call of `function`, summed over its launches."""
        from gpu_pipeline.kernels import core

        runs: list[dict[str, float]] = []
        launch = core._launch  # all kinds of launches end here

        def timed(kernel, *arguments):
            runs[-1][kernel.py_func.__name__] += self.milliseconds(lambda: launch(kernel, *arguments))

        core._launch = timed
        try:
            for _ in range(repeats + 1):
                runs.append(defaultdict(float))
                function()
        finally:
            core._launch = launch
        return {name: statistics.median(run[name] for run in runs[1:]) for name in runs[-1]}

    def peak_bytes(self, function: Callable[[], object]) -> int:
        """Return the peak bytes that `function` allocates."""
        import rmm.statistics

        with rmm.statistics.statistics():
            function()
            return rmm.statistics.get_statistics().peak_bytes

    def of_libraries(self, text: Any) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield what libraries of the device do in place of a function of the engine."""
        column, _ = text.to_pylibcudf()
        yield "libcudf's suffix array", lambda: suffix_array(column)

    def copy_of(self, size: int) -> Callable[[], object]:
        import cupy as cp

        source, target = cp.zeros(size, cp.uint8), cp.empty(size, cp.uint8)
        return lambda: cp.copyto(target, source)


class HostClock:
    """The same on the host: times by the clock, no kernels, no memory."""

    def milliseconds(self, function: Callable[[], object]) -> float:
        start = time.perf_counter()
        function()
        return (time.perf_counter() - start) * 1e3

    def trace(self, function: Callable[[], object]) -> Trace | None:
        return None

    def kernel_times(self, function: Callable[[], object], repeats: int) -> dict[str, float]:
        return {}

    def peak_bytes(self, function: Callable[[], object]) -> int:
        return 0

    def of_libraries(self, text: Any) -> Iterator[tuple[str, Callable[[], object]]]:
        return iter(())

    def copy_of(self, size: int) -> Callable[[], object]:
        source, target = np.zeros(size, np.uint8), np.empty(size, np.uint8)
        return lambda: np.copyto(target, source)


def median_time(clock: DeviceClock | HostClock, function: Callable[[], object], repeats: int) -> float:
    return statistics.median([clock.milliseconds(function) for _ in range(repeats + 2)][2:])


def host_seconds(function: Callable[[], object]) -> dict[str, float]:
    """Where the host spends a call: seconds in the bodies of the slowest functions, copies and waits among them."""
    profile = cProfile.Profile()
    profile.runcall(function)
    bodies = pstats.Stats(profile).stats.items()
    slowest = sorted(((facts[2], place) for place, facts in bodies), reverse=True)[:SLOWEST]
    return {f"{Path(file).name}:{line} {name}": round(seconds, 4) for seconds, (file, line, name) in slowest}


def read_lines(engine: Engine, path: Path) -> list:
    files = [probe(file) for file in find_files([Input(path=str(path))])]
    pieces = plan_slices(files, 1 << 62)
    return [batch for piece in pieces for batch in engine.read_slice(piece, engine.batch_bytes(1))]


def cases(engine: Engine, frame, path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    text = frame[TEXT]
    a, b = constants(128)
    few = constants(120)
    yield "read JSON Lines", lambda: read_lines(engine, path)
    yield "rewrite every step", lambda: engine.rewrite(text, ALL_STEPS)
    yield "rewrite nfc, lines", lambda: engine.rewrite(text, RewriteSteps(unicode="nfc", whitespace="lines"))
    yield "rewrite lower case", lambda: engine.rewrite(text, RewriteSteps(lowercase=True))
    yield "measure words", lambda: engine.measure(text, ("words",))
    yield "measure gopher", lambda: engine.measure(text, GOPHER)
    yield "measure all", lambda: engine.measure(text, [measure.name for measure in Measure])
    yield "hash_text", lambda: engine.hash_text(text)
    yield "classify language", lambda: engine.classify(text, load_classifier(""), 2000)
    yield "score_text", lambda: engine.score_text(text, tiny_model())
    yield "signatures 128 x 5 words", lambda: engine.signatures(text, 5, False, a, b)
    yield "band_keys 21 of 6 rows", lambda: engine.band_keys(text, 5, False, a[:126], b[:126], 6)
    yield "band_keys 10 of 12 rows", lambda: engine.band_keys(text, 5, False, *few, 12)
    yield "shingles 5 words", lambda: engine.shingles(text, 5, False)
    yield f"tokenize {TOKENIZER}", lambda: engine.tokenize(text, load_tokenizer(TOKENIZER))
    yield "records of spans", partial(span_records, engine, text_buffers(engine.to_arrow(frame).column(TEXT).chunk(0)))


def span_records(engine: Engine, buffers: TextBuffers) -> int:
    """Make the records of all three levels, as tasks of `substring_dedup` do; return how many windows have one."""
    memory, anchors, places = new_memory(), [], []
    ends = buffers.offsets[1:] - buffers.offsets[0]
    for texts in batches_by_size(ends, pieces_at_once(engine) * PIECE_BYTES):
        offsets = buffers.offsets[texts.start : texts.stop + 1]
        records, found, _ = engine.anchor_records(buffers.data, offsets, SPAN_BYTES, memory)
        anchors.append(records)
        places.append(found)
    found, records = np.concatenate(places), np.concatenate(anchors)
    for closer in (engine.node_records, engine.window_records):
        parts = (records[start : start + PASS_RECORDS] for start in range(0, len(records), PASS_RECORDS))
        verdicts = np.concatenate([engine.judge_records(part, True) for part in parts])
        records, found = closer(buffers.data, found[verdicts == CLOSER], SPAN_BYTES)
    engine.judge_records(records[:PASS_RECORDS], True)
    return len(records)


def suffix_array(column) -> object:
    """The strings of SPAN_BYTES or more that occur twice in a column, by libcudf."""
    from pylibcudf.nvtext import deduplicate

    return deduplicate.resolve_duplicates(column, deduplicate.build_suffix_array(column, SPAN_BYTES), SPAN_BYTES)


# The model beside it


class Model:
    """What the model of `tests/ptx` says of a function or a kernel on `size` bytes of text: the lower end of speeds."""

    def __init__(self, size: int) -> None:
        from tests.ptx import model, profile

        recorded = json.loads(profile.RECORDED.read_bytes())
        found = recorded["inputs"][profile.ON_PAGE]
        self.calls = {name: profile.Call(**values) for name, values in found["calls"].items()}
        self.size, self.text_bytes, self.model = size, found["bytes"], model
        self.times = profile.kernel_times(found, recorded)

    def kernel(self, name: str) -> float | None:
        """Milliseconds of all launches of a kernel in a call."""
        times = self.times.get(name)
        return times.batch_ms(times.per_gb, self.size) if times else None

    def function(self, name: str) -> dict[str, float]:
        call = self.calls.get(MODELLED.get(name, ""))
        if call is None:
            return {}
        times = [self.times[kernel] for kernel in call.kernels]
        speeds = self.model.batch_speeds(times, call.sum_bytes / self.text_bytes, call.python_ms, self.size)
        return {
            "GB/s": speeds.lowest, "launches": call.launches, "synchronisations": call.waits,
            "Python, ms": call.python_ms, "idle share": 1 - speeds.lowest / speeds.kernels,
        }  # fmt: skip


def model_of(size: int) -> Model | None:
    try:
        return Model(size)
    except Exception as error:  # the measurement counts, the model does not
        print(f"no model: {type(error).__name__}: {error}")
        return None


def compare(
    name: str, size: int, rate: float, kernels: dict[str, float], trace: Trace | None, model: Model | None
) -> list[tuple[str, ...]]:
    """Return rows of the table for one function; `rate` in MB/s."""
    measured = {"GB/s": rate / 1e3} | (trace.facts() if trace else {})
    modelled = model.function(name) if model else {}
    pairs = [(quantity, value, modelled.get(quantity)) for quantity, value in measured.items()]
    for kernel, milliseconds in kernels.items():
        expected = model.kernel(kernel) if model else None
        pairs.append((f"{kernel}, GB/s", size / 1e6 / milliseconds, size / 1e6 / expected if expected else None))
    return [
        (name, quantity, f"{value:.4g}", f"{expected:.4g}" if expected else "-") for quantity, value, expected in pairs
    ]


def table(rows: Sequence[Sequence[str]], dry: bool) -> list[str]:
    """Return the lines of a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (DRY_HEADER if dry else HEADER, ["---"] * 2 + ["---:"] * 2, *rows)]


def measure_functions(options: argparse.Namespace, engine: Engine, clock: DeviceClock | HostClock) -> dict:
    texts = list(repeated(read_texts(options.input), options.megabytes * 1_000_000))
    frame = engine.from_arrow(pa.table({TEXT: pa.array(texts, pa.large_string())}))
    shape = shape_of(engine.byte_lengths(frame[TEXT]))
    size = shape["bytes"]
    shape |= {"input": str(options.input or "generated"), "batches": batches_of(engine, size)}
    print(f"one column: {json.dumps(shape)}")
    speed = {"copy": size / 1000 / median_time(clock, clock.copy_of(size), options.repeats)}
    alone, memory, traces, host, model, rows = {}, {}, {}, {}, model_of(size), []
    found = shape | {
        "megabytes_per_second": speed, "memory_in_texts": memory, "kernel_milliseconds": alone, "traces": traces,
        "host_seconds": host,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "texts.jsonl")
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps({"id": str(k), "text": text}) + "\n" for k, text in enumerate(texts))
        for name, function in itertools.chain(cases(engine, frame, path), clock.of_libraries(frame[TEXT])):
            try:
                rate = size / 1000 / median_time(clock, function, options.repeats)
                trace = clock.trace(function)
                kernels = (trace and trace.kernels) or clock.kernel_times(function, options.repeats)
                memory[name] = round(1 + clock.peak_bytes(function) / size, 2)
                host[name] = host_seconds(function)
            except Exception as error:  # the other functions are still measured
                found.setdefault("failed", {})[name] = f"{type(error).__name__}: {error}"
                print(f"FAILED {name}: {error}")
                continue
            speed[name] = round(rate, 1)
            alone[name] = {kernel: round(time, 4) for kernel, time in kernels.items()}
            traces[name] = trace.facts() if trace else {}
            rows += compare(name, size, rate, kernels, trace, model)
            found["table"] = table(rows, options.dry)
            print(*found["table"][-len(kernels) - len(traces[name]) - 1 :], sep="\n", flush=True)
            write(options.facts | found, options.output)
    return found


# The whole job


class Phases(ProgressLines):
    """Record the seconds of each phase, its speed, and the share of the time in which the device ran no kernel."""

    def __init__(self, size: int, device: bool) -> None:
        super().__init__()
        self.size, self.device = size, device
        self.phases: dict[str, dict[str, float | None]] = {}

    @contextmanager
    def watch(self, label: str, total: int, count: Callable[[], Count], **settings: Any) -> Iterator[None]:
        if settings.get("is_loop"):  # a part of another phase
            with super().watch(label, total, count, **settings):
                yield
            return
        started = time.perf_counter()
        with super().watch(label, total, count, **settings), device_use(self.device) as samples:
            yield
        seconds = time.perf_counter() - started
        speed = round(self.size / 1e6 / seconds, 1)
        self.phases[label] = {"seconds": round(seconds, 2), "mb_per_second": speed, "idle": idle_share(samples)}


@contextmanager
def device_use(device: bool) -> Iterator[list[int]]:
    """Sample, until the block ends, the percentage of the time in which a kernel ran; nothing without a device."""
    samples: list[int] = []
    if not device:
        yield samples
        return
    import cupy as cp
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByPciBusId(cp.cuda.Device().pci_bus_id)
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(SAMPLE_SECONDS):
            samples.append(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()


def idle_share(samples: list[int]) -> float | None:
    return round(1 - statistics.fmean(samples) / 100, 3) if samples else None


def make_input(folder: Path, texts: list[str], size: int) -> dict[str, Any]:
    """Write about `size` bytes of text as FILES Parquet files; return what `shape_of` says of them."""
    folder.mkdir()
    chosen = list(repeated(texts, size))
    lengths = np.array([len(text.encode()) for text in chosen])
    files = (np.cumsum(lengths) - lengths) * FILES // int(lengths.sum())
    for number in range(FILES):
        first, last = np.searchsorted(files, (number, number + 1))
        table = pa.table({TEXT: pa.array(chosen[first:last], pa.large_string())})
        pq.write_table(table, folder / f"{number:03d}.parquet", compression="zstd")
    return shape_of(lengths)


def measure_job(texts: list[str], size: int, engine: str) -> dict:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shape = make_input(folder / "input", texts, size)
        megabytes = shape["bytes"] / 1e6

        def timed(engine: str, stages: list[dict]) -> tuple[float, Phases]:
            recipe = convert_recipe({"input": [{"path": str(folder / "input")}], "stages": stages})
            phases, started = Phases(shape["bytes"], engine == "gpu"), time.perf_counter()
            run_recipe(recipe, folder / f"{engine}-{len(stages)}", engine=engine, progress=phases)
            return time.perf_counter() - started, phases

        tokenising, _ = timed("cpu", [])
        seconds, phases = timed(engine, STAGES)
        result = shape | {
            "batches": batches_of(load_engine(engine), shape["bytes"]),
            "megabytes_per_second": round(megabytes / seconds, 1),
            "tokenising_alone": round(megabytes / tokenising, 1),
            "share_of_tokenising_alone": round(tokenising / seconds, 3),
            "phases": phases.phases,
        }
    print(json.dumps(result, indent=2))
    return result


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input", type=Path, help="JSON Lines with a field `text`, plain or .gz")
    parser.add_argument("--megabytes", type=int, default=256, help="of text for each function; 0 skips all")
    parser.add_argument(
        "--job", type=corpus.parse_size, default=0, metavar="SIZE", help="of the input of the whole job; 0 skips it"
    )
    parser.add_argument("--repeats", type=int, default=5, help="timed calls of each function (default: 5)")
    parser.add_argument("--output", type=Path, help="JSON file for all results")
    parser.add_argument("--dry", action="store_true", help="the CPU engine on a little text, without a device")
    options = parser.parse_args(arguments)
    if options.input is None and corpus.DEFAULT_SOURCE.is_file():
        options.input = corpus.DEFAULT_SOURCE
    obstacle = "" if options.dry else gpu_obstacle()
    if obstacle:
        print(f"no device: {obstacle}. --dry runs the CPU engine instead.")
        return 1
    name, clock = ("cpu", HostClock()) if options.dry else ("gpu", DeviceClock())
    if options.dry:
        print("dry: the CPU engine on a little text; no number below is one of a GPU")
        options.megabytes, options.job, options.repeats = DRY_MEGABYTES, DRY_JOB_BYTES, 1
    engine = load_engine(name)
    result: dict[str, Any] = {"dry": options.dry, "on": engine.describe()}
    if options.megabytes:
        options.facts = result
        result |= measure_functions(options, engine, clock)
        write(result, options.output)
        if not options.dry:
            benchmark_file().parent.mkdir(parents=True, exist_ok=True)
            write(result, benchmark_file())  # "auto" chooses engines by it
    if options.job:
        result["job"] = measure_job(read_texts(options.input), options.job, name)
        write(result, options.output)
    return int("failed" in result)


def write(result: dict, path: Path | None) -> None:
    if path:
        write_json(path, result, indent=True)


if __name__ == "__main__":
    sys.exit(main())
