# SPDX-License-Identifier: Apache-2.0
"""The index of `substring_dedup` on the CPU engine: its size, and CPU seconds per GB of text with it.

    python -m benchmarks.bench_span_index FILE.jsonl [FILE.jsonl ...] [--length 200 ...] [--rounds 3]

The documents are shuffled. The first half is saved as an index, the second half is cut with it and without it, and the
cuts with it must equal those of one run over both. The lowest of `rounds` times comes first.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.bench_substring_dedup import read_texts, write_corpus
from curation.base.engine import load_engine
from curation.stages import SubstringDedup
from curation.stages.corpus.cutting import cuts_folder, load_cuts
from curation.stages.invoke import decide, run_phase_task, run_phases

BATCH = 1000  # documents


def spans_of(folder: Path, texts: list[str], stage: SubstringDedup) -> tuple[np.ndarray, float]:
    """Return the spans (row, start, stop) that the stage cuts, and the CPU seconds of its phases."""
    corpus = write_corpus(folder, batches_of(texts))
    started = time.process_time()
    decide(stage, load_engine("cpu"), corpus)
    seconds = time.process_time() - started
    found = []
    for number, first in enumerate(corpus.storage.starts[:-1].tolist()):
        cuts = load_cuts(cuts_folder(corpus.scratch), number)
        found.append(np.stack([cuts.row + first, cuts.start, cuts.stop], 1))
    return np.concatenate(found), seconds


def batches_of(texts: list[str]) -> list[pa.LargeStringArray]:
    """Return texts in batches."""
    return [pa.array(texts[start : start + BATCH], pa.large_string()) for start in range(0, len(texts), BATCH)]


def save(folder: Path, texts: list[str], stage: SubstringDedup) -> float:
    """Save the index of texts in `folder / "index"`; return the CPU seconds."""
    corpus, engine = write_corpus(folder / "old", batches_of(texts)), load_engine("cpu")

    def work(place: int, tasks: Sequence[int]) -> None:
        for task in tasks:
            run_phase_task(stage, engine, corpus, place, task, saving=True)

    started = time.process_time()
    run_phases(stage, corpus, work, saving=True)
    index = stage.new_index()
    index.write(corpus, folder / "index" / index.folder, lambda rows: pa.array(rows).cast(pa.large_string()), ())
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--length", type=int, nargs="+", default=[200])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for path in options.files:
        texts = [text for batch in read_texts(path) for text in batch.to_pylist()]
        random.Random(1).shuffle(texts)
        old, new = texts[: len(texts) // 2], texts[len(texts) // 2 :]
        sizes = [sum(len(text.encode()) for text in half) for half in (old, new)]
        for length in options.length:
            times: dict[str, list[float]] = {"saving": [], "with it": [], "without it": []}
            for _ in range(options.rounds):
                with tempfile.TemporaryDirectory() as name:
                    folder, stage = Path(name), SubstringDedup(length=length)
                    times["saving"].append(save(folder, old, stage) / sizes[0])
                    known = SubstringDedup(length=length, index=str(folder / "index"))
                    found, seconds = spans_of(folder / "new", new, known)
                    times["with it"].append(seconds / sizes[1])
                    times["without it"].append(spans_of(folder / "alone", new, stage)[1] / sizes[1])
                    whole = spans_of(folder / "both", texts, stage)[0]
                    whole = whole[whole[:, 0] >= len(old)] - [len(old), 0, 0]
                    assert np.array_equal(found, whole)
                    files = {file.name: file.stat().st_size for file in (folder / "index" / "spans").iterdir()}
            more = sum(files.values()) - files["texts.bin"]
            shown = [f"{name} {1e9 * min(each):.1f} to {1e9 * max(each):.1f}" for name, each in times.items()]
            print(
                f"{path.name}, length {length}: {more / sizes[0]:.2f} bytes per byte besides the texts; CPU s per GB: "
                f"{', '.join(shown)}; {(found[:, 2] - found[:, 1]).sum() / sizes[1]:.1%} of the second half cut"
            )
    print(f"load {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
