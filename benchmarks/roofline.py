# SPDX-License-Identifier: Apache-2.0
"""Speed of each stage as a share of the bandwidth of this machine's memory and disk.

    python -m benchmarks.roofline [--size 200MB] [--folder DIR]

Copies, reads and writes 256 MiB, then runs the stages of `benchmarks.bench` over a corpus, on one core. A stage moves
the bytes that it has to read and write: the text, once, and its result. The best of REPEATS counts, for the bandwidth
and for the stages.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import bench, corpus

BLOCK = 256 << 20  # larger than the caches of most processors
CHUNK = 8 << 20
REPEATS = 5


class Moved(NamedTuple):
    """Bytes that a stage moves: per byte of text, and per document."""

    per_byte: float
    per_document: float
    what: str


MOVED = {
    "read": Moved(2.06, 0, "lines in, texts out"),
    "rewrite": Moved(2, 0, "text in, text out"),
    "gopher": Moved(1, 8 * 40, "text in, measures out"),
    "hash": Moved(1, 16, "text in, hashes out"),
    "bands": Moved(3, 8 * 21, "text in, lower case out and in, keys out"),
    "tokenise": Moved(1.5, 4, "text in, two bytes per token out"),
    "write": Moved(1.5, 40, "text in, half of it out"),
}


def best(function: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the seconds of the fastest of `repeats` calls."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def in_threads(function: Callable[[int], object], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(function, range(threads)))


def memory_bandwidth(threads: int) -> dict[str, float]:
    """Return bytes per second of reading and of copying (read + written bytes), each thread on a separate share."""
    shares = np.array_split(np.ones(BLOCK // 8, np.uint64), threads)
    copies = [np.zeros_like(share) for share in shares]
    return {
        "read": BLOCK / best(lambda: in_threads(lambda k: shares[k].max(), threads)),
        "copy": 2 * BLOCK / best(lambda: in_threads(lambda k: np.copyto(copies[k], shares[k]), threads)),
    }


def disk_bandwidth(folder: Path) -> dict[str, float]:
    """Return bytes per second of a new file: into the page cache, onto the disk, out of the cache, off the disk."""
    path = folder / "roofline.bin"
    data = mmap.mmap(-1, CHUNK)  # on a page boundary, as unbuffered reads require
    data.write(os.urandom(CHUNK))

    def write(sync: bool) -> None:
        path.unlink(missing_ok=True)
        with open(path, "wb", buffering=0) as file:
            for _ in range(BLOCK // CHUNK):
                file.write(data)
            if sync:
                os.fsync(file.fileno())

    def read(flags: int) -> None:
        handle = os.open(path, os.O_RDONLY | flags)
        while os.readv(handle, [data]):
            pass
        os.close(handle)

    found = {"write, cached": BLOCK / best(lambda: write(False)), "write, synced": BLOCK / best(lambda: write(True))}
    found["read, cached"] = BLOCK / best(lambda: read(0))
    with contextlib.suppress(OSError):  # a file system in memory has no unbuffered reads
        found["read, from the disk"] = BLOCK / best(lambda: read(os.O_DIRECT))
    path.unlink()
    return found


def counted_bytes() -> dict[str, int]:
    """Return the bytes that this process has read and written by system calls, and those that reached the disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(number) for name, number in (line.split(": ") for line in lines)}


def shown(rates: dict[str, float]) -> str:
    return ", ".join(f"{name} {rate / 1e9:.1f} GB/s" for name, rate in rates.items())


def show_stages(path: Path, folder: Path, roof: float) -> None:
    with open(path, "rb") as file:
        documents = sum(1 for _ in file)
    runs = [bench.measure_stages(path, folder, 1) for _ in range(REPEATS)]
    print(f"\n| {'stage, one core':38} | text MB/s | moved MB/s | of a copy | moves |")
    print(f"|{'-' * 40}|---:|---:|---:|---|")
    for name, moved in MOVED.items():
        seconds = min(run[name]["user"] + run[name]["system"] for run in runs)
        size = runs[0][name]["bytes"]
        rate = (size * moved.per_byte + documents * moved.per_document) / seconds
        text = f"{size / seconds / 1e6:,.0f} | {rate / 1e6:,.0f} | {rate / roof:.1%}"
        print(f"| {bench.STAGES[name]:38} | {text} | {moved.what} |")


def show_job(path: Path, folder: Path, workers: int) -> None:
    before = counted_bytes()
    job = bench.measure_job(path, folder, workers, near=True)
    after = counted_bytes()
    print(f"\nWhole job with near-duplicates, {workers} workers: {job['bytes'] / job['wall'] / 1e6:,.1f} MB/s of text")
    for name, label in (
        ("rchar", "read by system calls (maps not counted)"), ("wchar", "written by system calls"),
        ("read_bytes", "read from the disk"), ("write_bytes", "to be written to the disk"),
    ):  # fmt: skip
        print(f"    {(after[name] - before[name]) / job['bytes']:.2f} bytes per byte of text {label}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the stages with the memory and the disk of this machine.")
    parser.add_argument("--size", default="200MB", type=corpus.parse_size, help="of the corpus (default: 200MB)")
    parser.add_argument("--source", default=corpus.DEFAULT_SOURCE, type=Path, help="JSON Lines that give the sentences")
    parser.add_argument("--folder", type=Path, help="folder on the disk to measure (default: temporary files)")
    options = parser.parse_args()
    about, cores = bench.machine(), len(os.sched_getaffinity(0))
    print(f"{about['date']}  {about['cpu']}, {cores} cores, {about['memory_gb']} GB, load {about['load']}")
    roofs = {threads: memory_bandwidth(threads) for threads in sorted({1, cores})}
    for threads, found in roofs.items():
        print(
            f"memory, {threads} threads: " + ", ".join(f"{name} {rate / 1e9:.1f} GB/s" for name, rate in found.items())
        )
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        print("disk: " + shown(disk_bandwidth(folder)))
        path = folder / "corpus.jsonl"
        corpus.write_corpus(path, options.size, 1, pool=corpus.make_pool(corpus.read_texts(options.source), 1))
        bench.measure_job(path, folder, cores, near=True)  # loads libraries and kernels
        show_stages(path, folder, roofs[1]["copy"])
        show_job(path, folder, cores)


if __name__ == "__main__":
    main()
