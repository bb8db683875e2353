# SPDX-License-Identifier: Apache-2.0
"""Time, memory and recall of `semantic_dedup` on synthetic vectors: `python -m benchmarks.bench_semantic [COUNT ...]`.

    --dimensions N      of the vectors (384)
    --clusters N ...    numbers of clusters; 0: auto (default)
    --equal             all vectors equal
    --near SPREAD       all vectors near one direction, with normal noise of this share in each dimension; pairs have a
                        cosine of about 1 / (1 + SPREAD^2): 0.997 for 0.05
    --folder DIR        for temporary files

The vectors are int8 in clouds of 200 around random directions; a fifth of them are near copies of other ones, at
cosines from 0.9 to 1. Each line is a process of its own: time per vector, its highest memory, and the recall that the
stage measures against brute force. Memory includes the pages of mapped files.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from curation.base.engine import load_engine
from curation.models.vectors import quantised, to_column, vector_hashes
from curation.stages import SemanticDedup
from curation.stages.invoke import decide
from curation.stages.outcome import Corpus, key_column

PARTITION = 20_000


class Stored:
    """Synthetic vectors in files, as the storage of a corpus."""

    def __init__(self, folder: Path, count: int, dimensions: int, equal: bool, near: float) -> None:
        self.folder, self.dimensions = folder, dimensions
        sizes = [min(PARTITION, count - start) for start in range(0, count, PARTITION)]
        self.starts = np.cumsum([0, *sizes])
        for number, size in enumerate(sizes):
            vectors = made(size, dimensions, 0 if equal else number + 1, near)
            if equal:
                vectors[:] = vectors[0]
            np.save(folder / f"{number}.vectors.npy", vectors)
            np.save(folder / f"{number}.keys.npy", vector_hashes(vectors))

    def key_names(self, partition: int) -> Sequence[str]:
        return [key_column(0, "high"), key_column(0, "low")]

    def key_type(self, partition: int, name: str) -> np.dtype:
        return np.dtype(np.uint64)

    def read_keys(self, partition: int, name: str, rows: np.ndarray, out: np.ndarray) -> None:
        keys = np.load(self.folder / f"{partition}.keys.npy", mmap_mode="r")
        out[:] = keys[rows - self.starts[partition], int(name.endswith("low"))]

    def read_texts(self, partition: int, rows: np.ndarray, column: str) -> Iterator[Callable[[], pa.Array]]:
        vectors = np.load(self.folder / f"{partition}.vectors.npy", mmap_mode="r")[rows - self.starts[partition]]
        yield lambda: to_column(vectors)


def made(count: int, dimensions: int, seed: int, near: float) -> np.ndarray:
    """Vectors in clouds, one fifth of them near copies, or all near one direction."""
    rng = np.random.default_rng(seed)
    if near:
        direction = np.random.default_rng(0).normal(size=dimensions)
        return quantised(direction + near * rng.normal(size=(count, dimensions)))[0]
    clouds = rng.normal(size=(count // 200 + 1, dimensions)).astype(np.float32)
    vectors = clouds[rng.integers(len(clouds), size=count)] + rng.normal(size=(count, dimensions)).astype(np.float32)
    copies = rng.choice(count, count // 5, replace=False)
    noise = rng.uniform(0, 0.5, (len(copies), 1)) * rng.normal(size=(len(copies), dimensions))
    vectors[copies] = vectors[rng.integers(count, size=len(copies))] * np.float32(1) + np.float32(1.4) * noise
    return quantised(vectors)[0]


def run(count: int, dimensions: int, clusters: int, equal: bool, near: float, folder: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=folder or None) as name:
        storage = Stored(Path(name), count, dimensions, equal, near)
        stage = SemanticDedup(clusters=clusters or "auto")
        corpus = Corpus(storage, np.arange(count), 0, Path(name) / "stage", workers=2)
        engine = load_engine("cpu")
        before, started = time.process_time(), time.perf_counter()
        decision = decide(stage, engine, corpus)
        seconds, cpu = time.perf_counter() - started, time.process_time() - before
    details = decision.details
    return {
        "vectors": count,
        "clusters": details["clusters"],
        "seconds": round(seconds, 1),
        "us_per_vector": round(seconds / count * 1e6, 1),
        "cpu_us_per_vector": round(cpu / count * 1e6, 1),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "removed": sum(len(drops.row) for drops in decision.drops),
        "compared_per_vector": round(details["pairs_compared"] / count),
        **{f"recall_{name}": value for name, value in details["recall"].items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("counts", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--clusters", type=int, nargs="+", default=[0])
    parser.add_argument("--equal", action="store_true")
    parser.add_argument("--near", type=float, default=0)
    parser.add_argument("--folder", default="")
    options = parser.parse_args()
    if len(options.counts) == len(options.clusters) == 1:
        chosen = options.dimensions, options.clusters[0], options.equal, options.near, options.folder
        print(json.dumps(run(options.counts[0], *chosen)))
        return
    for count in options.counts:
        for clusters in options.clusters:
            command = [sys.executable, "-m", "benchmarks.bench_semantic", str(count), "--clusters", str(clusters)]
            command += [
                "--dimensions",
                str(options.dimensions),
                "--folder",
                options.folder,
                "--near",
                str(options.near),
            ]
            print(subprocess.check_output(command + ["--equal"] * options.equal, text=True).strip(), flush=True)


if __name__ == "__main__":
    main()
