# SPDX-License-Identifier: Apache-2.0
"""`substring_dedup` on the CPU engine: CPU seconds per GB of text, disk and memory.

    python -m benchmarks.bench_substring_dedup FILE.jsonl [FILE.jsonl ...] [--length 200 ...] [--rounds 3]
        [--verify bytes]

The seconds are those of all phases, one task after the other, and of cutting the texts. Files and lengths alternate,
and the lowest of `rounds` times comes first. Text is divided into slices of SLICE_BYTES.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from curation.base.arrays import batches_by_size
from curation.base.contract import TEXT
from curation.base.engine import load_engine
from curation.record.partitions import Partitions, PartitionWriter
from curation.stages import SubstringDedup
from curation.stages.corpus.cutting import cut_texts, cuts_folder, load_cuts
from curation.stages.invoke import decide, run_phase_task
from curation.stages.outcome import BYTES, Corpus

BATCH_BYTES, SLICE_BYTES = 4 << 20, 32 << 20


def read_texts(path: Path) -> list[pa.LargeStringArray]:
    """Return the texts of a JSON Lines file in batches."""
    texts = [orjson.loads(line)[TEXT] for line in path.read_bytes().splitlines()]
    ends = np.cumsum([len(text.encode()) for text in texts])
    return [pa.array(texts[batch], pa.large_string()) for batch in batches_by_size(ends, BATCH_BYTES)]


def write_corpus(folder: Path, batches: Sequence[pa.LargeStringArray]) -> Corpus:
    """Return the corpus of all texts, in slices."""
    slices = list(batches_by_size(np.cumsum([batch.nbytes for batch in batches]), SLICE_BYTES))
    partitions = Partitions(folder, [sum(map(len, batches[own])) for own in slices])
    folder.mkdir()
    for number, own in enumerate(slices):
        with PartitionWriter(partitions.path(number), partitions.keys_path(number)) as writer:
            for batch in batches[own]:
                sizes = pa.compute.binary_length(batch).to_numpy()
                writer.write(pa.table({TEXT: batch}), {BYTES: sizes})
    np.save(folder / "mask.npy", np.ones(len(partitions), bool))
    return partitions.corpus(0, folder / "mask.npy")


def measure(batches: Sequence[pa.LargeStringArray], settings: dict[str, Any]) -> tuple[dict[str, float], float, float]:
    """Return the CPU seconds of each phase and of cutting, the bytes of files, and the share that is cut."""
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        corpus = write_corpus(Path(folder) / "segment", batches)
        stage, engine = SubstringDedup(**settings), load_engine("cpu")

        def run(place: int, tasks: Sequence[int]) -> None:
            started = time.process_time()
            for task in tasks:
                run_phase_task(stage, engine, corpus, place, task)
            seconds[stage.phases()[place].name] = time.process_time() - started

        decision = decide(stage, engine, corpus, run)
        started, first = time.process_time(), 0
        starts = corpus.storage.starts
        for batch in batches:
            number = int(np.searchsorted(starts, first, side="right")) - 1
            cut_texts(batch, load_cuts(cuts_folder(corpus.scratch), number), int(first - starts[number]))
            first += len(batch)
        seconds["texts"] = time.process_time() - started
        found = [path for path in corpus.scratch.rglob("*") if path.suffix in (".bin", ".txt")]
        files = sum(path.stat().st_size for path in found)
    return seconds, files, decision.details["bytes"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--length", type=int, nargs="+", default=[200])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--verify", choices=("hash", "bytes"), default="hash")
    options = parser.parse_args()
    texts = {path: read_texts(path) for path in options.files}
    measure([texts[options.files[0]][0]], {})  # compiles the kernels
    rows: dict[tuple[Path, int], list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for path, batches in texts.items():
            for length in options.length:
                size = sum(batch.nbytes for batch in batches) - 8 * sum(len(batch) + 1 for batch in batches)
                seconds, files, cut = measure(batches, {"length": length, "verify": options.verify})
                row = {name: 1e9 * spent / size for name, spent in seconds.items()}
                rows.setdefault((path, length), []).append(
                    row | {"files": files / size, "cut": cut / size, "MB": size / 1e6}
                )
    for (path, length), found in rows.items():
        total = sorted(sum(value for name, value in row.items() if name not in ("files", "cut", "MB")) for row in found)
        row = found[0]
        print(
            f"{path.name} {row['MB']:.0f} MB, length {length}: {total[0]:.1f} to {total[-1]:.1f} CPU s per GB, "
            f"{row['files']:.2f} bytes of files per byte, {row['cut']:.2%} cut"
        )
        print(
            "   ", ", ".join(f"{name} {value:.1f}" for name, value in row.items() if name not in ("files", "cut", "MB"))
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"load {os.getloadavg()[0]:.0f}; peak of this process with all texts: {peak:,.0f} MB")


if __name__ == "__main__":
    main()
