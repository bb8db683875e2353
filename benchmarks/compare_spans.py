# SPDX-License-Identifier: Apache-2.0
"""`substring_dedup` against a suffix array, and against other rules for repeated text.

    python -m benchmarks.compare_spans FILE.jsonl [FILE.jsonl ...] [--length 200] [--peers FOLDER] [--tokens]

For each rule: the share of bytes that it cuts; how much of what `substring_dedup` cuts it finds; the bytes that it cuts
and `substring_dedup` keeps, as a share of all; and the distinct windows of `length` bytes of which no copy is left. The
suffix array and text-dedup run in an environment of their own (`peer_spans.py`). `--tokens` needs tiktoken.
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

from benchmarks import peer_spans
from benchmarks.bench_peers import DEFAULT_PEERS, install
from benchmarks.bench_substring_dedup import read_texts, write_corpus
from curation.base.engine import load_engine
from curation.stages import LineDedup, SubstringDedup
from curation.stages.base import CorpusStage
from curation.stages.corpus.cutting import cuts_folder, load_cuts
from curation.stages.corpus.key_ranges import slice_group, slice_group_count
from curation.stages.exact.span_blocks import LEVELS, blocks_of, repeated_mask
from curation.stages.invoke import decide
from curation.stages.outcome import Corpus

PEER = "text-dedup"
OTHERS: dict[str, CorpusStage] = {
    "500 bytes, gaps of 50 joined (Dolma 3)": SubstringDedup(length=500, join=50),
    "three sentences seen before (C4)": LineDedup(unit="sentence", window=3),
    "lines seen before (Dolma)": LineDedup(),
}


def cut_mask(stage: CorpusStage, folder: Path, batches: Sequence[Any]) -> tuple[np.ndarray, Corpus]:
    """Return whether a stage cuts each byte of the texts, and the corpus with the stage's files."""
    corpus = write_corpus(folder, batches)
    decide(stage, load_engine("cpu"), corpus)
    ends = np.cumsum(corpus.byte_lengths())
    mask = np.zeros(int(ends[-1]), bool)
    for number, first in enumerate(corpus.storage.starts[:-1].tolist()):
        for row, start, stop in zip(*load_cuts(cuts_folder(corpus.scratch), number), strict=True):
            place = int(ends[first + row - 1]) if first + row else 0
            mask[place + start : place + stop] = True
    return mask, corpus


def repeated_bytes(corpus: Corpus, length: int) -> np.ndarray:
    """Return whether each byte is in a repeated window, before spans shrink to characters."""
    masks = []
    for group in range(slice_group_count(corpus)):
        part = slice_group(corpus, group)
        for blocks in zip(*(blocks_of(corpus, level, group) for level in LEVELS), strict=True):
            size = int(part.of(part.rows[blocks[0].first : blocks[0].last]).byte_lengths().sum())
            masks.append(repeated_mask(corpus, blocks, size, length))
    return np.concatenate(masks).astype(bool)


def token_masks(texts: Sequence[str], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return whether each byte is in `count` tokens of GPT-2 that occurred before, and in those that occur twice."""
    import tiktoken

    encoding = tiktoken.get_encoding("gpt2")
    ids = [np.array(encoding.encode_ordinary(text), np.uint64) for text in texts]
    ends = np.cumsum([len(own) for own in ids])
    tokens = np.concatenate(ids)
    hashes = np.zeros(len(tokens) - count + 1, np.uint64)
    for place in range(count):
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + tokens[place : place + len(hashes)]
    inside = np.ones(len(hashes), bool)
    for end in ends.tolist():
        inside[max(end - count + 1, 0) : end] = False
    at = np.flatnonzero(inside)
    _, first, counts = np.unique(hashes[at], return_index=True, return_counts=True)
    _, group = np.unique(hashes[at], return_inverse=True)
    sizes = np.array([len(encoding.decode_single_token_bytes(token)) for token in range(encoding.n_vocab)])
    later = peer_spans.covered(np.setdiff1d(at, at[first]), len(tokens), count)
    twice = peer_spans.covered(at[counts[group] > 1], len(tokens), count)
    return tuple(np.repeat(mask, sizes[tokens.astype(np.int64)]) for mask in (later, twice))  # type: ignore[return-value]


def compare(path: Path, length: int, python: str, tokens: bool) -> None:
    batches = read_texts(path)
    texts = [text for batch in batches for text in batch.to_pylist()]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = time.process_time()
        ours, corpus = cut_mask(SubstringDedup(length=length), folder / "ours", batches)
        seconds, repeated = time.process_time() - started, repeated_bytes(corpus, length)
        result = subprocess.run(
            [python, str(Path(peer_spans.__file__)), str(path), str(length), name], check=True, stdout=subprocess.PIPE
        )
        facts = json.loads(result.stdout.splitlines()[-1])
        masks = {rule: np.load(folder / f"{rule}.npy") for rule in ("first", "all", "across", "text_dedup")}
        differ = int((masks.pop("first") != repeated).sum())
        print(
            f"{path.name}: {len(texts):,} documents, {len(ours):,} bytes, length {length}: {ours.mean():.2%} cut; "
            f"{differ:,} bytes differ from the suffix array, which took {facts['seconds'] * 1e9 / len(ours):.0f} CPU s "
            f"per GB, here with reading and writing {seconds * 1e9 / len(ours):.0f}"
        )
        print(f"  windows of which no copy is left: {facts['lost']['first']:.2%}")
        for rule, stage in OTHERS.items():
            masks[rule] = cut_mask(stage, folder / rule, batches)[0]
        if tokens:
            masks["50 tokens of GPT-2, first copy kept"], masks["50 tokens of GPT-2, all copies"] = token_masks(
                texts, 50
            )
        for rule, mask in masks.items():
            lost = f", windows without a copy {facts['lost'][rule]:.2%}" if rule in facts["lost"] else ""
            print(
                f"  {rule}: {mask.mean():.2%} cut, {(mask & ours).sum() / max(ours.sum(), 1):.1%} of ours found, "
                f"{(mask & ~ours).mean():.2%} of all bytes cut that are kept here{lost}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--length", type=int, default=200)
    parser.add_argument("--peers", type=Path, default=DEFAULT_PEERS)
    parser.add_argument("--tokens", action="store_true")
    options = parser.parse_args()
    if problem := install(PEER, options.peers):
        raise SystemExit(f"{PEER} {problem}")
    for path in options.files:
        compare(path, options.length, str(options.peers / PEER / "bin/python"), options.tokens)


if __name__ == "__main__":
    main()
