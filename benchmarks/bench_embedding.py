# SPDX-License-Identifier: Apache-2.0
"""`embed` and `semantic_dedup` beside a script on sentence-transformers and scikit-learn (`plain_semantic.py`).

    python -m benchmarks.bench_embedding CORPUS.jsonl --model FOLDER [--rounds N] [--threads N] [--only text,vectors]
                                         [--vectors FILE.npy] [--probe N]

Both do the same job: vectors of the first window of each text, pairs with a cosine of 0.95 or more inside clusters of
about 1,000, and one document of each group. `text` begins with the texts, `vectors` with stored vectors: those of FILE
(float32), or those that the job on texts stored. Each measurement is a whole process with the same number of threads;
rounds alternate, and every second one is reversed. The script needs sentence-transformers and scikit-learn in this
environment. `floor` is the time of the matrix products of the encoder alone, in PyTorch, for the tokens that it reads.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curation.models.vectors import unit_vectors

ROOT = Path(__file__).resolve().parents[1]
THRESHOLD = 0.95
FLOOR_TOKENS = 512  # of a batch, as of `embed`


def timed(command: list[str], threads: int) -> tuple[float, float]:
    """Run a process; return its CPU seconds and its wall seconds."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, str(threads)) | {"HF_HUB_OFFLINE": "1"}
    before, started = os.times(), time.perf_counter()
    subprocess.run(command, check=True, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)
    after, wall = os.times(), time.perf_counter() - started
    return after[2] + after[3] - before[2] - before[3], wall


def our_command(source: Path, out: Path, model: str, threads: int, probe: int, with_text: bool) -> list[str]:
    dedup = {"kind": "semantic_dedup", "threshold": THRESHOLD, "probe": probe}
    stages = [{"kind": "embed", "model": model, "windows": 1}] if with_text else []
    given: dict[str, Any] = {"path": str(source)} | ({} if with_text else {"columns": ["embedding"]})
    recipe = {"input": [given], "stages": [*stages, dedup], "output": {"formats": []}}
    path = out.with_suffix(".yaml")
    path.write_text(json.dumps(recipe))
    command = [sys.executable, "-m", "curation", "run", str(path), "--output", str(out), "--engine", "cpu"]
    return [*command, "--workers", str(threads)]


def plain_command(source: Path, out: Path, model: str, threads: int) -> list[str]:
    script = str(Path(__file__).with_name("plain_semantic.py"))
    return [sys.executable, script, str(source), str(out), "--model", model, "--threads", str(threads)]


def kept_of(out: Path, ids: list[str]) -> set[int]:
    """Return the rows that a result keeps."""
    if out.suffix == ".json":
        return set(json.loads(out.read_text())["kept"])
    places = {name: place for place, name in enumerate(ids)}
    return {places[name] for name in pq.read_table(out / "documents", columns=["id"])["id"].to_pylist()}


def floor(model: str, corpus: Path) -> tuple[float, int]:
    """Return the CPU seconds of the matrix products for the first windows of a corpus, and their tokens."""
    import torch

    from curation.models.encoders import load_encoder, one_thread

    config = json.loads((Path(model) / "config.json").read_text())
    texts = [json.loads(line)["text"] for line in corpus.read_bytes().splitlines()]
    tokens = sum(map(len, load_encoder(model, False).windows(texts, 1).ids))
    width, inner = config["hidden_size"], config["intermediate_size"]
    shapes = [(width, 3 * width), (width, width), (width, inner), (inner, width)] * config["num_hidden_layers"]
    maps = [(torch.randn(FLOOR_TOKENS, rows), torch.randn(columns, rows)) for rows, columns in shapes]
    times = []
    with one_thread(), torch.inference_mode():
        for _ in range(7):
            before = time.process_time()
            for given, weights in maps:
                torch.nn.functional.linear(given, weights)
            times.append(time.process_time() - before)
    return statistics.median(times) * tokens / FLOOR_TOKENS, tokens


def compare(name: str, sides: dict[str, list[str]], outs: dict[str, Path], ids: list[str], options: Any) -> None:
    import shutil

    found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    for number in range(options.rounds):
        for side in list(sides) if number % 2 == 0 else list(sides)[::-1]:
            shutil.rmtree(outs[side], ignore_errors=True)
            found[side].append(timed(sides[side], options.threads))
            print(f"{name} {side}: {found[side][-1][0]:.1f} CPU s, {found[side][-1][1]:.1f} s wall", flush=True)
    ratios = sorted(theirs[0] / ours[0] for ours, theirs in zip(*found.values(), strict=True))
    kept = [kept_of(outs[side], ids) for side in sides]
    print(
        f"{name}: plain takes {ratios[0]:.2f} to {ratios[-1]:.2f} times the CPU time; both remove "
        f"{len(ids) - len(kept[0] | kept[1])} of {len(ids)} documents, only ours {len(kept[1] - kept[0])}, only plain "
        f"{len(kept[0] - kept[1])}; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--probe", type=int, default=4)
    parser.add_argument("--only", default="text,vectors")
    parser.add_argument("--vectors", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "text" in options.only:
            outs = {"ours": folder / "ours", "plain": folder / "plain.json"}
            sides = {
                "ours": our_command(options.corpus, outs["ours"], options.model, options.threads, options.probe, True),
                "plain": plain_command(options.corpus, outs["plain"], options.model, options.threads),
            }
            ids = [json.loads(line)["id"] for line in options.corpus.read_bytes().splitlines()]
            compare("text", sides, outs, ids, options)
            seconds, tokens = floor(options.model, options.corpus)
            print(f"floor: {seconds:.1f} CPU s of matrix products for {tokens:,} tokens", flush=True)
        if "vectors" in options.only:
            stored, wide = vectors_of(options, folder)
            outs = {"ours": folder / "ours-vectors", "plain": folder / "plain-vectors.json"}
            sides = {
                "ours": our_command(stored, outs["ours"], "", options.threads, options.probe, False),
                "plain": plain_command(wide, outs["plain"], "", options.threads),
            }
            compare("vectors", sides, outs, pq.read_table(stored, columns=["id"])["id"].to_pylist(), options)


def vectors_of(options: Any, folder: Path) -> tuple[Path, Path]:
    """Write stored vectors as `embed` stores them, and as floats; return both files."""
    from curation.models.vectors import from_column, quantised, to_column

    stored, wide = folder / "stored.parquet", folder / "wide.npy"
    if options.vectors:
        vectors = quantised(np.load(options.vectors))[0]
    else:
        from benchmarks.semantic_recall import embedded

        embedded(options.corpus, options.model, 1, folder)
        table = pq.read_table(folder / "embedded" / "documents", columns=["embedding"])
        vectors = from_column(table["embedding"], "embedding")[0]
    ids = pa.array([str(number) for number in range(len(vectors))])
    pq.write_table(pa.table({"id": ids, "text": ids, "embedding": to_column(vectors)}), stored)
    np.save(wide, unit_vectors(vectors))
    return stored, wide


if __name__ == "__main__":
    main()
