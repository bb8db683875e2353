# SPDX-License-Identifier: Apache-2.0
"""`line_dedup` on the CPU engine: MB of text per CPU second and disk per unit, and the texts of datatrove.

    python -m benchmarks.bench_line_dedup FILE.jsonl [--rounds 5] [--peer PYTHON]

The time is that of all phases, one task after the other, and of cutting the texts; the lowest of `rounds` speeds comes
first. PYTHON is the interpreter of an environment with datatrove 0.10.1 and spaCy: it removes windows of 1 and 3 lines,
and of 3 sentences, which it gets as lines. White space at the ends of its texts does not count. Its windows are joined
by a space, so that the lines `a b`, `c` equal `a`, `b c`: "joined" are those with the texts of a plain loop that does
the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from curation.base.contract import TEXT
from curation.base.engine import load_engine
from curation.record.partitions import Partitions, PartitionWriter
from curation.stages import LineDedup
from curation.stages.corpus.cutting import cut_texts, cuts_folder, load_cuts
from curation.stages.exact.unit_keys import buffers_of
from curation.stages.invoke import decide
from curation.stages.outcome import BYTES

BATCH_DOCUMENTS = 700
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"window": 3},
    {"compare": "folded"},
    {"unit": "paragraph"},
    {"unit": "sentence", "window": 3},
    {"documents": 3, "keep": "none"},
)
PEER = """
import json, sys, tempfile, time
from datatrove.data import Document
from datatrove.pipeline.dedup import SentDedupConfig, SentenceDedupFilter, SentenceDedupSignature, SentenceFindDedups
from datatrove.utils.hashing import HashConfig
from datatrove.utils.text import TextNormConfig
texts = json.load(open(sys.argv[1]))
off = TextNormConfig(**dict.fromkeys(TextNormConfig.__dataclass_fields__, False))
config = SentDedupConfig(n_sentences=int(sys.argv[2]), split_sentences=False, min_doc_words=0, min_num_sentences=0,
                         norm_config=off, hash_config=HashConfig(precision=64, hash_fc="sha1"))
documents = [Document(text=text, id=str(number)) for number, text in enumerate(texts)]
started = time.process_time()
with tempfile.TemporaryDirectory() as folder:
    SentenceDedupSignature(f"{folder}/a", config=config).run(documents, 0, 1)
    SentenceFindDedups(f"{folder}/a", f"{folder}/b", config=config).run(None, 0, 1)
    kept = {each.id: each.text for each in SentenceDedupFilter(f"{folder}/b", config=config).run(iter(documents), 0, 1)}
seconds = time.process_time() - started
json.dump([seconds, [kept.get(str(number), "") for number in range(len(texts))]], open(sys.argv[3], "w"))
"""


def measure(texts: Sequence[str], folder: Path, settings: dict[str, Any]) -> tuple[list[str], float, int, int]:
    """Return the texts after the stage, its CPU seconds, and the bytes of its files and the units."""
    batches = [
        pa.array(texts[k : k + BATCH_DOCUMENTS], pa.large_string()) for k in range(0, len(texts), BATCH_DOCUMENTS)
    ]
    folder.mkdir()
    partitions = Partitions(folder, [len(batch) for batch in batches])
    for number, batch in enumerate(batches):
        sizes = np.diff(buffers_of(batch).offsets)
        with PartitionWriter(partitions.path(number), partitions.keys_path(number)) as writer:
            writer.write(pa.table({TEXT: batch}), {BYTES: sizes})
    mask = folder / "mask.npy"
    np.save(mask, np.ones(len(texts), bool))
    corpus = partitions.corpus(0, mask)
    started = time.process_time()
    decision = decide(LineDedup(**settings), load_engine("cpu"), corpus)
    cuts = [load_cuts(cuts_folder(corpus.scratch), number) for number in range(len(batches))]
    after = [cut_texts(batch, own, 0) for batch, own in zip(batches, cuts, strict=True)]
    seconds = time.process_time() - started
    size = sum(path.stat().st_size for path in corpus.scratch.rglob("*.bin"))
    return [text for batch in after for text in batch.to_pylist()], seconds, size, decision.details["units"]


def joined_by_space(texts: Sequence[str], window: int) -> list[str]:
    """Return the texts without windows of lines that occurred before, compared as datatrove does."""
    seen: set[str] = set()
    after = []
    for text in texts:
        lines = text.splitlines(keepends=True)
        contents, cut = [line.strip() for line in lines], set()
        for place in range(len(lines) - window + 1):
            key = " ".join(contents[place : place + window])
            if key.strip():
                cut.update(range(place, place + window) if key in seen else ())
                seen.add(key)
        after.append("".join(line for place, line in enumerate(lines) if place not in cut))
    return after


def compare(python: str, texts: Sequence[str], window: int, found: Sequence[str], folder: Path) -> str:
    """Return a line about the texts of datatrove."""
    (folder / "in.json").write_text(json.dumps(list(texts)))
    command = [python, "-c", PEER, str(folder / "in.json"), str(window), str(folder / "out.json")]
    subprocess.run(command, check=True, capture_output=True)
    seconds, peer = json.loads((folder / "out.json").read_text())
    lines = [text.strip().splitlines() for text in peer]
    equal, joined = (
        sum(text.strip().splitlines() == own for text, own in zip(ours, lines, strict=True))
        for ours in (found, joined_by_space(texts, window))
    )
    size = sum(len(text.encode()) for text in texts) / 1e6
    return f"datatrove: {equal} of {len(texts)} texts equal, {joined} joined; {size / seconds:.1f} MB per CPU s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", help="interpreter of an environment with datatrove")
    options = parser.parse_args()
    texts = [orjson.loads(line)[TEXT] for line in options.file.read_bytes().splitlines()]
    size = sum(len(text.encode()) for text in texts) / 1e6

    def rounds(texts: Sequence[str], settings: dict[str, Any], count: int) -> list[str]:
        speeds = []
        for _ in range(count + 1):  # the first one warms up
            with tempfile.TemporaryDirectory() as folder:
                after, seconds, files, units = measure(texts, Path(folder) / "segment", settings)
            speeds.append(size / seconds)
        low, high = min(speeds[1:]), max(speeds[1:])
        print(
            f"{settings}: {low:.0f} to {high:.0f} MB per CPU s, {files / units:.1f} bytes of disk per unit, {units:,}"
        )
        return after

    found = {str(settings): rounds(texts, settings, options.rounds) for settings in SETTINGS}
    if options.peer:
        with tempfile.TemporaryDirectory() as folder:
            for settings in SETTINGS[:2]:
                print(
                    settings,
                    compare(options.peer, texts, settings.get("window", 1), found[str(settings)], Path(folder)),
                )
            spans = [buffers_of(pa.array([text], pa.large_string())).units("sentence").spans.tolist() for text in texts]
            sentences = [
                "\n".join(" ".join(text.encode()[start:stop].decode().split()) for _, start, stop in rows)
                for text, rows in zip(texts, spans, strict=True)
            ]
            flat = [text.replace("\n", " ") for text in sentences]
            after = rounds(flat, {"unit": "sentence", "window": 3}, 1)
            spans = [buffers_of(pa.array([text], pa.large_string())).units("sentence").spans.tolist() for text in after]
            after = [
                "\n".join(text.encode()[start:stop].decode() for _, start, stop in rows)
                for text, rows in zip(after, spans, strict=True)
            ]
            print("sentences as lines", compare(options.peer, sentences, 3, after, Path(folder)))


if __name__ == "__main__":
    main()
