# SPDX-License-Identifier: Apache-2.0
"""Device time and memory of the GPU engine's text functions, compared with a device-to-device copy, and the whole job.

    python -m benchmarks.gpu_bench [--input FILE.jsonl] [--megabytes 256] [--job 2GB] [--output FILE.json]

CUDA events around the whole function give its time: transfers of results and gaps between launches count. Separate runs
measure the time of each kernel alone. Speeds are medians of `--repeats` calls after two for warm-up, in MB of text per
second. The copy counts each byte once, as text functions do, although each byte is read and written. Memory is the peak
of allocations, including the column itself and the function's result, in multiples of the text; the limit is 6.

`--job` makes a corpus (`benchmarks.corpus`) as Parquet and tokenises it with the CPU engine alone. Then it runs NFC,
Gopher, exact and near-duplicates, GPT-2 and `.bin/.idx` with the GPU engine. The idle share is the share of the time
without a kernel, by NVML.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cupy as cp
import pyarrow as pa
import pyarrow.parquet as pq
import rmm.statistics

import gpu_pipeline
from benchmarks import corpus
from curation.contract import TEXT
from curation.doctor import generate_documents
from curation.engine import load_engine
from curation.kernels.permutations import constants
from curation.kernels.rewrite import RewriteSteps
from curation.measures import Measure
from curation.reading import probe, read_documents
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from curation.recipes.recipe import convert_recipe
from curation.running.progress import Lines
from curation.running.run import run as run_recipe
from curation.system.steps import Count
from gpu_pipeline import kernels

GOPHER = ("words", "stop_words", "top_4gram_characters", "duplicate_10gram_characters", "duplicate_lines")
STAGES = [
    {"kind": "rewrite", "unicode": "nfc"},
    {"kind": "filter", "rules": "gopher"},
    {"kind": "exact_dedup"},
    {"kind": "fuzzy_dedup"},
]
FILES = 16  # in a job's input
SAMPLE_SECONDS = 0.2


def read_texts(path: Path | None) -> list[str]:
    if path is None:
        return [text for text in generate_documents(20_000)[:-1] if text]
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def column_of(texts: list[str], size: int) -> pa.Table:
    """Return a table of about `size` bytes of text. Each repeated text has a number in front, so no cache helps."""
    chosen, total = [], 0
    for number, text in enumerate(itertools.cycle(texts)):
        chosen.append(text if number < len(texts) else f"{number} {text}")
        total += len(chosen[-1].encode())
        if total >= size:
            return pa.table({TEXT: pa.array(chosen, pa.large_string())})


# Functions


def milliseconds(function: Callable[[], object]) -> float:
    start, stop = cp.cuda.Event(), cp.cuda.Event()
    start.record()
    function()
    stop.record()
    stop.synchronize()
    return cp.cuda.get_elapsed_time(start, stop)


def median_time(function: Callable[[], object], repeats: int) -> float:
    return statistics.median([milliseconds(function) for _ in range(repeats + 2)][2:])


def kernel_times(function: Callable[[], object], repeats: int) -> dict[str, float]:
    """Return the milliseconds of each kernel in one call of `function`, summed over its launches."""
    runs: list[dict[str, float]] = []
    originals = kernels.launch, kernels.launch_blocks

    def timed(launch):
        def wrapper(kernel, *arguments):
            runs[-1][kernel.py_func.__name__] += milliseconds(lambda: launch(kernel, *arguments))

        return wrapper

    kernels.launch, kernels.launch_blocks = map(timed, originals)
    try:
        for _ in range(repeats + 1):
            runs.append(defaultdict(float))
            function()
    finally:
        kernels.launch, kernels.launch_blocks = originals
    return {name: statistics.median(run[name] for run in runs[1:]) for name in runs[-1]}


def peak_bytes(function: Callable[[], object]) -> int:
    """Return the peak bytes that `function` allocates."""
    with rmm.statistics.statistics():
        function()
        return rmm.statistics.get_statistics().peak_bytes


def cases(frame) -> Iterator[tuple[str, Callable[[], object]]]:
    text = frame[TEXT]
    a, b = constants(128)
    few = constants(120)
    yield "rewrite nfc, lines", lambda: gpu_pipeline.rewrite(text, RewriteSteps(unicode="nfc", whitespace="lines"))
    yield "rewrite lower case", lambda: gpu_pipeline.rewrite(text, RewriteSteps(lowercase=True))
    yield "measure words", lambda: gpu_pipeline.measure(text, ("words",))
    yield "measure gopher", lambda: gpu_pipeline.measure(text, GOPHER)
    yield "measure all", lambda: gpu_pipeline.measure(text, [measure.name for measure in Measure])
    yield "hash_text", lambda: gpu_pipeline.hash_text(text)
    yield "signatures 128 x 5 words", lambda: gpu_pipeline.signatures(text, 5, False, a, b)
    yield "band_keys 21 of 6 rows", lambda: gpu_pipeline.band_keys(text, 5, False, a[:126], b[:126], 6)
    yield "band_keys 10 of 12 rows", lambda: gpu_pipeline.band_keys(text, 5, False, *few, 12)
    yield "shingles 5 words", lambda: gpu_pipeline.shingles(text, 5, False)


def copy_of(size: int) -> Callable[[], object]:
    source, target = cp.zeros(size, cp.uint8), cp.empty(size, cp.uint8)
    return lambda: cp.copyto(target, source)


def measure_functions(options: argparse.Namespace) -> dict:
    table = column_of(read_texts(options.input), options.megabytes * 1_000_000)
    frame = gpu_pipeline.from_arrow(table)
    size = int(gpu_pipeline.byte_lengths(frame[TEXT]).sum())
    speed = {"copy": size / 1000 / median_time(copy_of(size), options.repeats)}
    alone, memory = {}, {}
    for name, function in cases(frame):
        speed[name] = size / 1000 / median_time(function, options.repeats)
        alone[name] = {kernel: round(time, 3) for kernel, time in kernel_times(function, options.repeats).items()}
        memory[name] = round(1 + peak_bytes(function) / size, 2)
        kernel_list = ", ".join(f"{kernel} {time} ms" for kernel, time in alone[name].items())
        print(f"{name:<28}{speed[name]:>12.0f} MB/s{memory[name]:>8.2f} texts   {kernel_list}")
    return {
        "documents": table.num_rows,
        "bytes": size,
        "input": str(options.input or "generated"),
        "megabytes_per_second": {name: round(value, 1) for name, value in speed.items()},
        "memory_in_texts": memory,
        "kernel_milliseconds": alone,
    }


# The whole job


class Phases(Lines):
    """Record the seconds of each phase, and the share of them in which the device ran no kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.phases: dict[str, dict[str, float | None]] = {}

    @contextmanager
    def watch(self, label: str, total: int, count: Callable[[], Count], **settings: Any) -> Iterator[None]:
        if settings.get("is_loop"):  # a part of another phase
            with super().watch(label, total, count, **settings):
                yield
            return
        started = time.perf_counter()
        with super().watch(label, total, count, **settings), device_use() as samples:
            yield
        seconds = time.perf_counter() - started
        self.phases[label] = {"seconds": round(seconds, 2), "idle": idle_share(samples)}


@contextmanager
def device_use() -> Iterator[list[int]]:
    """Sample, until the block ends, the percentage of the time in which a kernel ran."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByPciBusId(cp.cuda.Device().pci_bus_id)
    samples: list[int] = []
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


def make_input(folder: Path, size: int) -> int:
    """Write about `size` bytes of JSON Lines as Parquet files; return the bytes of the text."""
    made = folder / "made.jsonl"
    corpus.write_corpus(made, size)
    files = [probe(file) for file in find_files([Input(path=str(made))])]
    total = 0
    (folder / "input").mkdir()
    for number, piece in enumerate(plan_slices(files, size // FILES)):
        found = [documents.table for documents in read_documents(piece, size)]
        if not found:  # no line begins in the last bytes
            continue
        table = pa.concat_tables(found)
        total += int(load_engine("cpu").byte_lengths(load_engine("cpu").from_arrow(table)[TEXT]).sum())
        pq.write_table(table.select([TEXT]), folder / "input" / f"{number:03d}.parquet", compression="zstd")
    made.unlink()
    return total


def measure_job(size: int) -> dict:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        total = make_input(folder, size)

        def timed(engine: str, stages: list[dict]) -> tuple[float, Phases]:
            recipe = convert_recipe({"input": [{"path": str(folder / "input")}], "stages": stages})
            phases, started = Phases(), time.perf_counter()
            run_recipe(recipe, folder / f"{engine}-{len(stages)}", engine=engine, progress=phases)
            return time.perf_counter() - started, phases

        tokenising, _ = timed("cpu", [])
        seconds, phases = timed("gpu", STAGES)
        result = {
            "bytes": total,
            "megabytes_per_second": round(total / 1e6 / seconds, 1),
            "tokenising_alone": round(total / 1e6 / tokenising, 1),
            "share_of_tokenising_alone": round(tokenising / seconds, 3),
            "phases": phases.phases,
        }
    print(json.dumps(result, indent=2))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input", type=Path, help="JSON Lines with a field `text` (default: generated documents)")
    parser.add_argument("--megabytes", type=int, default=256, help="of text for each function; 0 skips all")
    parser.add_argument(
        "--job", type=corpus.parse_size, default=0, metavar="SIZE", help="of the input of the whole job; 0 skips it"
    )
    parser.add_argument("--repeats", type=int, default=5, help="timed calls of each function (default: 5)")
    parser.add_argument("--output", type=Path, help="JSON file for all results")
    options = parser.parse_args()
    result = {"on": gpu_pipeline.describe()}
    if options.megabytes:
        result |= measure_functions(options)
        write(result, options.output)
    if options.job:
        result["job"] = measure_job(options.job)
        write(result, options.output)


def write(result: dict, path: Path | None) -> None:
    if path:
        path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
