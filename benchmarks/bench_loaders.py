# SPDX-License-Identifier: Apache-2.0
"""Loader throughput: tokens per second and memory, compared with nanoGPT's memmap sampling and a list in a DataLoader.

    python -m benchmarks.bench_loaders [--tokens 100000000] [--length 1024] [--batch 16] [--workers 0 2]

Random tokens in the forms of a run; each loader runs in a separate process. Every batch is a LongTensor [batch, length]
and is summed, which reads all of it. Memory is the anonymous pages that the process and its workers allocate after the
data set is opened; shared pages count once. Pages of mapped files do not count: they belong to the page cache, and the
system drops them when it needs memory. Linux only.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY, DOCUMENT_TOKENS = 50257, 700


def write_forms(folder: Path, tokens: int, length: int) -> None:
    """Write the same random documents in all forms, as a run would leave them."""
    from curation.recipes.recipe import Output
    from curation.tokens.forms.writing import write_forms as write
    from curation.tokens.joining import join_parts
    from curation.tokens.tokenization import load_tokenizer

    rng = np.random.default_rng(1)
    lengths = np.full(tokens // DOCUMENT_TOKENS, DOCUMENT_TOKENS, "<i4")
    ids, counts = folder / "part.ids", folder / "part.lengths"
    lengths.tofile(counts)
    with open(ids, "wb") as file:
        for _ in range(0, len(lengths), 10_000):
            rng.integers(0, VOCABULARY, 10_000 * DOCUMENT_TOKENS, dtype=np.uint16).tofile(file)
        file.truncate(int(lengths.sum(dtype=np.int64)) * 2)
    join_parts([(ids, counts)], folder / "pair", np.uint16)
    output = Output(formats=("token_shards", "blocks", "packed"), **_lengths(length))
    write(output, load_tokenizer("gpt2"), {"": [(ids, counts)]}, folder)


def _lengths(length: int) -> dict[str, Any]:
    from curation.tokens.forms import Blocks, Packed

    return {"blocks": Blocks(length=length), "packed": Packed(length=length)}


# One function per loader: endless batches


def blocks(folder: Path, length: int, batch: int, workers: int) -> Iterator[Any]:
    from curation.training import BlockDataset, Loader

    loader = Loader(BlockDataset(folder / "blocks"), batch, workers=workers)
    while True:
        yield from loader


def megatron(folder: Path, length: int, batch: int, workers: int) -> Iterator[Any]:
    from curation.training import Loader, MegatronDataset

    loader = Loader(MegatronDataset(folder / "pair_00000_text_document", length), batch, workers=workers)
    while True:
        yield from loader


def token_shards(folder: Path, length: int, batch: int, workers: int) -> Iterator[Any]:
    from curation.training import Loader, TokenDataset

    loader = Loader(TokenDataset(folder / "token_shards", length), batch, workers=workers)
    while True:
        yield from loader


def packed(folder: Path, length: int, batch: int, workers: int) -> Iterator[Any]:
    from curation.training import Loader, PackedDataset

    loader = Loader(PackedDataset(folder / "packed"), batch, workers=workers)
    while True:
        yield from (found["input_ids"] for found in loader)


def nanogpt(folder: Path, length: int, batch: int, workers: int) -> Iterator[Any]:
    """Yield random windows of a memory-mapped file, like the loop of nanoGPT's train.py: in the training process, with
    a new map for every batch, with replacement, without epochs."""
    import torch

    path = folder / "part.ids"
    while True:
        data = np.memmap(path, np.uint16, "r")
        at = torch.randint(len(data) - length, (batch,))
        yield torch.stack([torch.from_numpy(data[i : i + length].astype(np.int64)) for i in at])


def plain_list(folder: Path, length: int, batch: int, workers: int) -> Iterator[Any]:
    """Yield batches of a list of tensors in a DataLoader with shuffle: all tokens in memory, as int64."""
    import torch
    from torch.utils.data import DataLoader

    ids = np.fromfile(folder / "part.ids", np.uint16)
    rows = list(torch.from_numpy(ids[: len(ids) // length * length].astype(np.int64)).view(-1, length).unbind())
    loader = DataLoader(rows, batch_size=batch, shuffle=True, num_workers=workers)
    while True:
        yield from loader


LOADERS: dict[str, Callable[[Path, int, int, int], Iterator[Any]]] = {
    "BlockDataset": blocks,
    "MegatronDataset": megatron,
    "TokenDataset": token_shards,
    "PackedDataset": packed,
    "nanoGPT memmap": nanogpt,
    "list in DataLoader": plain_list,
}


def anonymous_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith("Pss_Anon:")]
    return int(kilobytes) * 1024


def measure(name: str, folder: Path, length: int, batch: int, workers: int, seconds: float) -> dict[str, float]:
    import psutil
    import torch

    import curation.training  # noqa: F401  loaded before the first measurement of memory

    torch.set_num_threads(1)
    process = psutil.Process()

    def own_bytes() -> int:
        return sum(anonymous_bytes(one.pid) for one in (process, *process.children(recursive=True)))

    before = own_bytes()
    started = time.perf_counter()
    batches = LOADERS[name](folder, length, batch, workers)
    next(batches)
    first = time.perf_counter() - started
    rates, memory = [], 0
    for _ in range(3):
        count, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds / 3:
            count += sum(found.numel() for found in islice(batches, 20) if found.sum() >= 0)
        rates.append(count / (time.perf_counter() - started))
        memory = max(memory, own_bytes() - before)
    return {"tokens_per_second": statistics.median(rates), "bytes": memory, "first_batch_seconds": first}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=100_000_000, help="of the data set (default: 100000000)")
    parser.add_argument("--length", type=int, default=1024, help="tokens of a sample (default: 1024)")
    parser.add_argument("--batch", type=int, default=16, help="samples of a batch (default: 16)")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2], help="of each loader in turn (default: 0 2)")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each loader (default: 6)")
    parser.add_argument("--one", nargs=3, metavar=("LOADER", "FOLDER", "WORKERS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, folder, workers = options.one
        found = measure(name, Path(folder), options.length, options.batch, int(workers), options.seconds)
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_forms(Path(folder), options.tokens, options.length)
        report(options, folder)


def report(options: argparse.Namespace, folder: str) -> None:
    import torch

    print(f"{options.tokens:,} tokens, samples of {options.length}, batches of {options.batch}; {platform.processor()}")
    print(f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}")
    print(f"{'loader':<20}{'workers':>8}{'M tokens/s':>12}{'own MB':>9}{'first batch s':>15}")
    for name in LOADERS:
        for workers in options.workers if name != "nanoGPT memmap" else [0]:
            own = ["--one", name, folder, str(workers), "--length", str(options.length), "--batch", str(options.batch)]
            command = [sys.executable, "-m", "benchmarks.bench_loaders", *own, "--seconds", str(options.seconds)]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            print(
                f"{name:<20}{workers:>8}{found['tokens_per_second'] / 1e6:>12.1f}{found['bytes'] / 1e6:>9.1f}"
                f"{found['first_batch_seconds']:>15.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
