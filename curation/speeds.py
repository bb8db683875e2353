# SPDX-License-Identifier: Apache-2.0
"""How long each engine takes for an input, roughly: for the choice "auto" between them.

Both engines read and write on the host. Times that are the same for both, such as those of decisions, are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# MB of text per second of one processor, measured (docs/performance.md; language and decontaminate 2026-11-22)
HOST_RATES = {
    "read": 898,
    "rewrite": 763,
    "measure": 172,
    "filter": 172,
    "exact_dedup": 3383,
    "fuzzy_dedup": 328,
    "language": 94,
    "classify": 94,
    "decontaminate": 261,
    "tokens": 302,
    "write": 271,
}
# MB of text per second of one H200: the table of functions in docs/gpu.md, modelled
DEVICE_RATES = {
    "rewrite": 147_000,
    "measure": 56_700,
    "filter": 56_700,
    "exact_dedup": 383_000,
    "fuzzy_dedup": 146_000,
    "language": 63_400,
    "classify": 63_400,
    "decontaminate": 242_000,
    "tokens": 93_200,
}
TRANSFER_RATE = 10_000  # MB/s of memory that is not pinned; assumed
TRANSFERS = 3  # of the text: up to the first stage, down after rewriting, up for the tokens
START_SECONDS = {"cpu": 1.2, "gpu": 15.0}  # imports and first use of kernels; of the GPU assumed
# Rows of benchmarks.gpu_bench, which measures a device
BENCHMARK_ROWS = {
    "rewrite": "rewrite nfc, lines",
    "measure": "measure gopher",
    "filter": "measure gopher",
    "exact_dedup": "hash_text",
    "fuzzy_dedup": "band_keys 21 of 6 rows",
    "tokens": "tokenize gpt2",
}
EXPANSION = {"jsonl": 1.0, "parquet": 2.5}  # text bytes per stored byte; assumed
COMPRESSED_EXPANSION = 3.0


class Work(NamedTuple):
    """The work of a run.

    bytes        of text, about; inputs of unknown size count as 0
    steps        kinds of its stages, and "tokens" if a device makes them
    processors   of the host
    on_host      steps that the host takes with either engine: "tokens" of other tokenizers
    """

    bytes: int
    steps: Sequence[str]
    processors: int
    on_host: Sequence[str] = ()


class Verdict(NamedTuple):
    """The faster engine, and why in one line."""

    engine: str
    reason: str


def benchmark_file() -> Path:
    """Where `benchmarks.gpu_bench` keeps what it measured on this machine."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "gpu-pipeline" / "gpu_bench.json"


def text_bytes(stored: int, file_format: str, compressed: bool) -> int:
    """Return about how much text a file holds."""
    if stored < 0:  # unknown
        return 0
    return int(stored * (COMPRESSED_EXPANSION if compressed else EXPANSION.get(file_format, 1.0)))


def measured_rates(device: str) -> dict[str, float]:
    """Return the rates of this device from `benchmark_file`; none if it is missing, damaged or of another device."""
    try:
        found = json.loads(benchmark_file().read_bytes())
        if found["dry"] or found["on"]["device"] != device:
            return {}
        rates = found["megabytes_per_second"]
        known = {step: float(rates[row]) for step, row in BENCHMARK_ROWS.items() if row in rates}
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return {step: rate for step, rate in known.items() if rate > 0}


def engine_seconds(engine: str, work: Work, measured: dict[str, float] | None = None) -> float:
    """Return the seconds of a run on an engine: start, reading, stages, tokens and writing."""
    megabytes = work.bytes / 1e6
    on_device = [step for step in work.steps if engine == "gpu" and step in DEVICE_RATES]
    on_host = [step for step in work.steps if step not in on_device and step in HOST_RATES]
    host = sum(megabytes / HOST_RATES[step] for step in ("read", *on_host, *work.on_host, "write"))
    rates = DEVICE_RATES | (measured or {})
    device = sum(megabytes / rates[step] for step in on_device)
    transfers = megabytes * TRANSFERS / TRANSFER_RATE if on_device else 0
    return START_SECONDS[engine] + host / work.processors + device + transfers


def faster_engine(work: Work, device: str) -> Verdict:
    """Compare a device that the GPU engine can use with the CPU engine."""
    measured = measured_rates(device)
    seconds = {name: engine_seconds(name, work, measured) for name in ("cpu", "gpu")}
    name = min(seconds, key=seconds.__getitem__)
    rates = "measured" if measured else "modelled"
    host = f"the CPU engine on {work.processors} processor{'s' * (work.processors != 1)}"
    gigabytes = work.bytes / 1e9
    return Verdict(
        name,
        f"about {gigabytes:.{1 if gigabytes >= 1 else 3}f} GB of text take {seconds['cpu']:,.0f} s for {host} and "
        f"{seconds['gpu']:,.0f} s with {device}, start included, by {rates} rates",
    )
