# SPDX-License-Identifier: Apache-2.0
"""Rough estimates of how long each engine takes for an input. "auto" chooses the engine by them.

Both engines write on the host. The time of decisions, which is the same for both, is left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# MB of text per second of one processor, measured (docs/performance.md; language and decontaminate 2026-11-22;
# substring_dedup 2026-11-24, records and verdicts of 20 MB of prose, under load)
HOST_RATES = {
    "read": 898,
    "rewrite": 763,
    "measure": 172,
    "filter": 172,
    "exact_dedup": 3383,
    "fuzzy_dedup": 328,
    "substring_dedup": 88,
    "language": 94,
    "classify": 94,
    "decontaminate": 261,
    "tokens": 302,
    "write": 271,
    "encode": 271,
}
OTHER_RATE = 276  # intermediate files, digests, joining of tokens (benchmarks/LOG.md, profile of the whole job)
# MB of text per second of one processor while a GPU computes: reading a file into memory, NFC of text in 22 languages,
# copying results into memory. That of "rewrite" is `normalize_spans`, which gets a 400th of the text, measured under
# load on a machine without a GPU (2026-11-29); the others were measured with one H100, and include Python (docs/gpu.md)
FEED_RATES = {"parse": 600, "rewrite": 11_600, "tokens": 1_900, "substring_dedup": 460}
WITH_PYTHON = ("parse", "tokens", "substring_dedup")
# MB of text per second of the kernels of one H200: the lower end of a model. tests/ptx/test_profile.py checks that
# these are the numbers of tests/ptx/model.py
DEVICE_RATES = {
    "parse": 36_000,
    "rewrite": 59_000,
    "measure": 35_800,
    "filter": 35_800,
    "exact_dedup": 134_000,
    "fuzzy_dedup": 73_400,
    "language": 21_200,
    "classify": 21_200,
    "decontaminate": 108_000,
    "substring_dedup": 10_000,
    "tokens": 24_700,
    "encode": 5_000,  # assumed
}
# Milliseconds of Python per batch, by the same model: launches, their arrays, operations of CuPy, and waits. Threads of
# a process share one interpreter, so these times add up.
BATCH_MILLISECONDS = {
    "parse": 0.722,
    "rewrite": 5.53,
    "measure": 4.37,
    "filter": 4.37,
    "exact_dedup": 0.306,
    "fuzzy_dedup": 0.966,
    "language": 2.2,
    "classify": 2.2,
    "decontaminate": 2.18,
    "substring_dedup": 2.62,
    "tokens": 1.76,
}
# Assumed: it brings the modelled times of steps that are not in WITH_PYTHON near the calls on an H100 (docs/gpu.md).
# The times of Python in the model come from another machine, so no factor could be measured.
PYTHON_FACTOR = 10
# Most processes per GPU with `--scheduler processes`. Not measured. One process launches kernels one after the other,
# so several launch more. Each has a CUDA context and cuDF in memory.
PROCESSES_PER_DEVICE = 4
DOCUMENT_BYTES = 1_500  # assumed size of a document: the mean of tests/data/corpus.jsonl.gz
# Maximum bytes and documents of a batch, as in `gpu_pipeline.session` and `gpu_pipeline.json_lines`
BATCH_LIMITS = 256 << 20, (256 << 20) // 160
# The same for tokens: a row group of `documents/`, and a task of the write phase, one of at least TASKS
ROW_GROUP_LIMITS, TASK_LIMITS, TASKS = (16 << 20, 20_000), (128 << 20, 1_000_000), 64
SPAN_BATCH_LIMITS = 8 << 20, 1 << 16  # `curation.stages.exact.span_blocks`
# Device memory that a batch reserves: bytes per byte of its text, and at least (`gpu_pipeline.memory.device`)
BATCH_SHARE, MIN_RESERVED = 16, 128 << 20
# Bytes over the bus per byte of text, of the recipe `default` without `fuzzy_dedup`, both ways: tests/ptx/traffic.json
TRANSFERS = 3.7
# Further transfers of a step: an encoded file has half of the text's bytes; n-gram hashes go to files and back; records
# go to the host, and back for their verdicts
MORE_TRANSFERS = {"encode": 0.5, "fuzzy_dedup": 1.9, "substring_dedup": 2.5}
START_SECONDS = {"cpu": 1.2, "gpu": 15.0}  # imports and first use of kernels; of the GPU assumed
# Rows of benchmarks.gpu_bench, which measures a device
BENCHMARK_ROWS = {
    "rewrite": "rewrite nfc, lines",
    "measure": "measure gopher",
    "filter": "measure gopher",
    "exact_dedup": "hash_text",
    "fuzzy_dedup": "band_keys 21 of 6 rows",
    "substring_dedup": "records of spans",
    "tokens": "tokenize gpt2",
}
COMPRESSED_EXPANSION = 3.0  # text bytes per stored byte; assumed


class HostSpeed(NamedTuple):
    """The speed of a machine, which `curation.base.host_probe` measures. The defaults are those of the model.

    compute  of one processor, relative to that of the machine of HOST_RATES
    copy     MB per second of one processor, from memory into other memory; measured under load (2026-11-23)
    bus      MB per second between the memory of the host and of the device; assumed
    """

    compute: float = 1.0
    copy: float = 11_500.0
    bus: float = 25_000.0


MODELLED = HostSpeed()


class RunWork(NamedTuple):
    """The work of a run.

    bytes        of text, about; inputs of unknown size count as 0
    steps        kinds of its stages; "parse" if a GPU parses the JSON Lines, "tokens" if it tokenizes, "write" for
                 `documents/`, "encode" for `documents/` with `output.parquet: gpu`
    processors   of the host
    on_host      steps that run on the host with either engine: "tokens" of tokenizers that the GPU engine lacks
    document     mean bytes of a document
    processes    Python processes that share a device
    """

    bytes: int
    steps: Sequence[str]
    processors: int
    on_host: Sequence[str] = ()
    document: int = DOCUMENT_BYTES
    processes: int = 1


class FasterEngine(NamedTuple):
    """The faster engine, and the reason in one line."""

    engine: str
    reason: str


def cache_folder() -> Path:
    """Return the folder of measurements of this machine."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "gpu-pipeline"


def benchmark_file() -> Path:
    """Return the path where `benchmarks.gpu_bench` saves its measurements on this machine."""
    return cache_folder() / "gpu_bench.json"


def text_bytes(stored: int, expansion: float, compressed: bool) -> int:
    """Return the estimated text bytes of a file of `stored` bytes. `expansion`: bytes of text per uncompressed byte."""
    if stored < 0:  # unknown
        return 0
    return int(stored * (COMPRESSED_EXPANSION if compressed else expansion))


def measured_rates(device: str) -> dict[str, float]:
    """Return the rates of this device from `benchmark_file`; {} if the file is missing, damaged or from another
    device."""
    try:
        benchmark = json.loads(benchmark_file().read_bytes())
        if benchmark["dry"] or benchmark["on"]["device"] != device:
            return {}
        rates = benchmark["megabytes_per_second"]
        known = {step: float(rates[row]) for step, row in BENCHMARK_ROWS.items() if row in rates}
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return {step: rate for step, rate in known.items() if rate > 0}


class PartSeconds(NamedTuple):
    """Seconds of each part of a run after its start, if the part ran alone. The parts are the host with all its
    processors, and for one device its bus, its kernels, and the Python that launches them."""

    host: float
    bus: float = 0.0
    device: float = 0.0
    python: float = 0.0

    def at_most(self, devices: int = 1) -> float:
        """Return the seconds of a run whose parts do not overlap."""
        return self.host + (self.bus + self.device + self.python) / devices

    def at_least(self, devices: int = 1) -> float:
        """Return the seconds of a run whose parts all overlap: those of the longest part."""
        return max(self.host, self.bus / devices, self.device / devices, self.python / devices)


def device_bytes(work: RunWork) -> int:
    """Return the bytes of device memory that a worker reserves for a batch of the first stages."""
    most_bytes, most_documents = BATCH_LIMITS
    batch = min(most_bytes, most_documents * work.document, work.bytes)
    return max(BATCH_SHARE * batch, MIN_RESERVED)


def python_seconds(work: RunWork, steps: Sequence[str]) -> float:
    """Return the seconds of Python that launch the kernels of these steps."""
    seconds = 0.0
    for step in steps:
        if step in BATCH_MILLISECONDS:
            batches = work.bytes / _step_bytes(step, work, steps)
            factor = 1 if step in WITH_PYTHON else PYTHON_FACTOR
            seconds += batches * factor * BATCH_MILLISECONDS[step] / 1e3
    return seconds


def _step_bytes(step: str, work: RunWork, steps: Sequence[str]) -> float:
    """Return the text of a batch of a step. If a device encodes `documents/`, each row group is tokenised alone."""

    def most(limits: tuple[int, int]) -> float:
        return min(limits[0], limits[1] * work.document)

    if step == "tokens":
        task = 0.0 if "encode" in steps else min(most(TASK_LIMITS), work.bytes / TASKS)
        return max(most(ROW_GROUP_LIMITS), task)
    return most(SPAN_BATCH_LIMITS if step == "substring_dedup" else BATCH_LIMITS)


def engine_times(
    engine: str, work: RunWork, measured: dict[str, float] | None = None, speed: HostSpeed = MODELLED
) -> PartSeconds:
    """Return the seconds of reading, stages, tokens and writing on an engine, on a machine with a speed."""
    megabytes = work.bytes / 1e6
    on_device = [step for step in work.steps if engine == "gpu" and step in DEVICE_RATES]
    on_host = [step for step in (*work.steps, *work.on_host) if step not in on_device and step in HOST_RATES]
    rates_of_host = [OTHER_RATE, *(HOST_RATES[step] for step in on_host)]
    rates_of_host += [FEED_RATES[step] for step in on_device if step in FEED_RATES]
    rates_of_host += [] if "parse" in on_device else [HOST_RATES["read"]]
    host = sum(megabytes / rate for rate in rates_of_host) / speed.compute
    if not on_device:
        return PartSeconds(host / work.processors)
    rates = DEVICE_RATES | (measured or {})
    moved = megabytes * (TRANSFERS + sum(MORE_TRANSFERS.get(step, 0) for step in on_device))
    host += moved / speed.copy
    device = sum(megabytes / rates[step] for step in on_device)
    python = python_seconds(work, on_device) / speed.compute
    return PartSeconds(host / work.processors, moved / speed.bus, device, python / work.processes)


def engine_seconds(
    engine: str, work: RunWork, measured: dict[str, float] | None = None, speed: HostSpeed = MODELLED
) -> float:
    """Return the maximum seconds of a run on an engine: with its start, and without any overlap."""
    return START_SECONDS[engine] + engine_times(engine, work, measured, speed).at_most()


def faster_engine(work: RunWork, device: str, speed: HostSpeed | None = None) -> FasterEngine:
    """Return which engine is faster for this work: the CPU engine, or the GPU engine on this device. `speed`: that of
    this machine, if it was measured."""
    measured = measured_rates(device)
    seconds = {name: engine_seconds(name, work, measured, speed or MODELLED) for name in ("cpu", "gpu")}
    name = min(seconds, key=seconds.__getitem__)
    rates = "measured" if measured else "modelled"
    machine = "this machine" if speed else "another machine"
    host = f"the CPU engine on {work.processors} processor{'s' * (work.processors != 1)}"
    gigabytes = work.bytes / 1e9
    return FasterEngine(
        name,
        f"about {gigabytes:.{1 if gigabytes >= 1 else 3}f} GB of text take {seconds['cpu']:,.0f} s for {host} and "
        f"{seconds['gpu']:,.0f} s with {device}, start included, by {rates} rates of the GPU and {machine}",
    )
