# SPDX-License-Identifier: Apache-2.0
"""Near-duplicates on the CPU engine: MB/s of each step, the stage on hostile corpora, and other tools.

    python -m benchmarks.bench_fuzzy FILE.jsonl [--rows 1000000] [--peers PYTHON]

Prints tables. Hostile corpora ("attacks") grow from 10,000 to 1,000,000 documents. MB are 10^6 bytes of UTF-8 text, and
seconds are processor time. Memory is the sum of the corpus's rows, the mask of the corpus phase, and the peak of the
decision's allocations (tracemalloc, which counts NumPy's arrays). Mapped files and the batch of text in memory do not
count. PYTHON is the interpreter of an environment with datasketch 2.0.0 and rensa 0.5.0. These tools and the stage
run by turns, three times each, and the best time counts.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from curation.base.contract import TEXT
from curation.base.engine import load_engine
from curation.base.system.files import numbered_path
from curation.kernels.permutations import constants
from curation.record.partitions import Partitions, PartitionWriter
from curation.stages import FuzzyDedup
from curation.stages.invoke import decide
from curation.stages.outcome import BYTES, Corpus, key_column

BATCH_DOCUMENTS = 10_000
PIECE_DOCUMENTS = 100_000


def cpu_seconds(function: Callable[[], object], repeats: int = 3) -> float:
    """Return the lowest processor time of `repeats` calls, after one call for warm-up."""
    function()
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        function()
        best = min(best, time.process_time() - started)
    return best


def peak_bytes(function: Callable[[], object]) -> int:
    """Return the peak bytes of the NumPy arrays and Python objects that `function` allocates."""
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def write_corpus(folder: Path, stage: FuzzyDedup, texts: Iterator[list[str]], forged: int) -> Corpus:
    """Write the partitions that a segment would leave before the stage. `forged`: if not 0, all documents share this
    number of bands, and no others."""
    engine = load_engine("cpu")
    counts: list[int] = []
    files = ExitStack()
    for number, batch in enumerate(texts):
        table = pa.table({TEXT: pa.array(batch, pa.large_string())})
        frame = engine.from_arrow(table)
        keys = stage.keys(engine, frame)
        if forged:
            low = number * BATCH_DOCUMENTS
            unique = np.arange(low + 1, low + 1 + len(batch), dtype=np.uint64)
            keys = {name: np.ones_like(unique) if band < forged else unique for band, name in enumerate(keys)}
        columns = {key_column(0, name): values for name, values in keys.items()}
        columns[BYTES] = engine.byte_lengths(frame[TEXT])
        if number * BATCH_DOCUMENTS % PIECE_DOCUMENTS == 0:
            files.close()
            paths = (numbered_path(folder, len(counts), suffix) for suffix in (".arrow", ".keys.arrow"))
            part = files.enter_context(PartitionWriter(*paths))
            counts.append(0)
        part.write(table, columns)
        counts[-1] += len(batch)
    files.close()
    parts = Partitions(folder, counts)
    return parts.corpus(0, np.arange(len(parts)))


def identical(count: int) -> Iterator[list[str]]:
    text = " ".join(f"word{k}" for k in range(60))
    for start in range(0, count, BATCH_DOCUMENTS):
        yield [text] * min(BATCH_DOCUMENTS, count - start)


def different(count: int) -> Iterator[list[str]]:
    for start in range(0, count, BATCH_DOCUMENTS):
        stop = min(start + BATCH_DOCUMENTS, count)
        yield [" ".join(f"w{row}x{k}" for k in range(40)) for row in range(start, stop)]


def chain(count: int) -> Iterator[list[str]]:
    """Yield windows of 104 words, 8 apart, over an endless text: of 100 5-grams, neighbours share 92, J = 0.852."""
    for start in range(0, count, BATCH_DOCUMENTS):
        stop = min(start + BATCH_DOCUMENTS, count)
        yield [" ".join(map(str, range(8 * row, 8 * row + 104))) for row in range(start, stop)]


ATTACKS = {"identical": identical, "one band": different, "all bands": different, "chain": chain}


def attack(name: str, count: int) -> tuple[float, float, int, dict[str, object]]:
    """Return microseconds and bytes per document of the stage's decision, the number removed, and the details."""
    folder = Path(tempfile.mkdtemp())
    try:
        stage = FuzzyDedup()
        corpus = write_corpus(
            folder, stage, ATTACKS[name](count), {"one band": 1, "all bands": stage.banding[0]}.get(name, 0)
        )
        engine = load_engine("cpu")
        started = time.process_time()
        found = decide(stage, engine, corpus)
        seconds = time.process_time() - started
        memory = peak_bytes(lambda: decide(stage, engine, corpus))
        memory += corpus.rows.nbytes + count  # the mask has one byte per document
        return 1e6 * seconds / count, memory / count, len(found.dropped), dict(found.details)
    finally:
        shutil.rmtree(folder)


def print_attacks(largest: int) -> None:
    sizes = [size for size in (10_000, 31_600, 100_000, 316_000, 1_000_000) if size <= largest]
    attack("chain", 1000)  # compiles
    print("| documents | attack | µs per document | bytes per document | removed | compared | released |")
    print("|---|---|---|---|---|---|---|")
    for name in ATTACKS:
        for size in sizes:
            micros, memory, removed, details = attack(name, size)
            compared, released = details["pairs_compared"], details["released"]
            counts = f"{removed:,} | {compared:,} | {released:,}"
            print(f"| {size:,} | {name} | {micros:.1f} | {memory:.0f} | {counts} |", flush=True)


def print_parts(texts: Sequence[str]) -> None:
    engine, stage = load_engine("cpu"), FuzzyDedup()
    text = engine.from_arrow(pa.table({TEXT: pa.array(texts, pa.large_string())}))[TEXT]
    size = int(engine.byte_lengths(text).sum()) / 1e6
    bands, rows = stage.banding
    a, b = constants(128)
    used = a[: bands * rows], b[: bands * rows]
    lower, _ = engine.rewrite(text, stage.settings.steps)
    timed = {
        "lower case": lambda: engine.rewrite(text, stage.settings.steps),
        "signatures, 128 permutations": lambda: engine.signatures(lower, 5, False, a, b),
        f"band keys, {bands} x {rows}": lambda: engine.band_keys(lower, 5, False, *used, rows),
        "sorted distinct n-grams": lambda: engine.shingles(lower, 5, False),
        "whole stage": lambda: whole_stage(texts),
    }
    print("| step | MB/s |\n|---|---|")
    for name, function in timed.items():
        print(f"| {name} | {size / cpu_seconds(function):.0f} |", flush=True)


def whole_stage(texts: Sequence[str]) -> int:
    """Do what a run does for the stage: keys, partitions on disk, decision. Return the number of removed documents."""
    folder = Path(tempfile.mkdtemp())
    try:
        stage = FuzzyDedup()
        batches = (list(texts[k : k + BATCH_DOCUMENTS]) for k in range(0, len(texts), BATCH_DOCUMENTS))
        return len(decide(stage, load_engine("cpu"), write_corpus(folder, stage, batches, 0)).dropped)
    finally:
        shutil.rmtree(folder)


PEERS = {
    "datasketch 2.0.0, 128 permutations, LSH 0.8": """
from datasketch import MinHash, MinHashLSH
def run(texts):
    lsh, removed = MinHashLSH(threshold=0.8, num_perm=128), 0
    for row, text in enumerate(texts):
        words = text.lower().split()
        grams = {" ".join(words[k : k + 5]).encode() for k in range(max(len(words) - 4, 1))}
        sketch = MinHash(num_perm=128)
        sketch.update_batch(list(grams))
        if lsh.query(sketch):
            removed += 1
        else:
            lsh.insert(row, sketch)
    return removed
""",
    "rensa 0.5.0, 128 permutations, 16 bands, verified": """
from rensa import RMinHash, RMinHashLSH
def run(texts):
    lsh, kept, removed = RMinHashLSH(threshold=0.8, num_perm=128, num_bands=16), {}, 0
    for row, text in enumerate(texts):
        words = text.lower().split()
        grams = {" ".join(words[k : k + 5]) for k in range(max(len(words) - 4, 1))}
        sketch = RMinHash(num_perm=128, seed=42)
        sketch.update(list(grams))
        if any(kept[other].jaccard(sketch) >= 0.8 for other in lsh.query(sketch)):
            removed += 1
        else:
            kept[row] = sketch
            lsh.insert(row, sketch)
    return removed
""",
}
DRIVER = """
import json, sys, time
texts = [json.loads(line)["text"] for line in open(sys.argv[1], encoding="utf-8")]
started = time.process_time()
removed = run(texts)
print(json.dumps([time.process_time() - started, removed]))
"""


def print_peers(path: str, texts: Sequence[str], python: str) -> None:
    size = sum(len(text.encode()) for text in texts) / 1e6
    best: dict[str, tuple[float, int]] = {}
    whole_stage(texts)
    for _ in range(3):
        started = time.process_time()
        removed = whole_stage(texts)
        measured = {"ours, 21 x 6, checked exactly": (time.process_time() - started, removed)}
        for name, code in PEERS.items():
            command = [python, "-c", code + DRIVER, path]
            measured[name] = tuple(orjson.loads(subprocess.run(command, check=True, capture_output=True).stdout))
        best = {name: min(found, best.get(name, found)) for name, found in measured.items()}
    print("| texts in memory -> removed documents | MB/s | removed |\n|---|---|---|")
    for name, (seconds, removed) in best.items():
        print(f"| {name} | {size / seconds:.1f} | {removed} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="JSON Lines with a field `text`")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the largest hostile corpus; 0 skips all")
    parser.add_argument("--peers", default="", help="Python interpreter with datasketch and rensa")
    arguments = parser.parse_args()
    with open(arguments.file, "rb") as file:
        texts = [orjson.loads(line)["text"] for line in file]
    print_parts(texts)
    if arguments.rows:
        print_attacks(arguments.rows)
    if arguments.peers:
        print_peers(arguments.file, texts, arguments.peers)


if __name__ == "__main__":
    main()
