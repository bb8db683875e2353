# SPDX-License-Identifier: Apache-2.0
"""A benchmark corpus of any size: recombined real sentences, with planted duplicates that are recorded.

    python -m benchmarks.corpus OUT.jsonl [--size 100MB] [--seed 1] [--source FILE.jsonl]

Writes OUT.jsonl (`id`, `text`, `source`) and OUT.truth.jsonl, one line per planted duplicate: `id`, `of`, `kind`
(exact or near), `edit_rate`, `edits` (words replaced), `jaccard` (of word 5-grams). The same seed, size and sentences
give the same bytes. Speed: about 120 MB/s on one core, in constant memory.

Two originals share at most one sentence. Position k of a document takes sentences from class k only, and document
(a, b) takes number a k + b modulo a prime in this class. Two documents are therefore two lines over a finite field,
which meet once. Sentences have at most 40 words, and documents at least 170. The pool ensures that no two sentences
share a 5-gram. Hence the Jaccard similarity of two originals is below 0.2. Every document ends with three made-up
names, because real text never runs out of new words: without them, a tokenizer's cache would answer everything.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

DATA = Path(os.environ.get("CURATION_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data")
DEFAULT_SOURCE = DATA / "real_20mb.jsonl"
CLASSES = 48  # maximum of sentences in a document
MIN_SENTENCES = 8
MEDIAN_SENTENCES = 18
PARAGRAPH = 6
MIN_WORDS, MAX_WORDS = 5, 40  # of a sentence
MIN_DOCUMENT_WORDS = 170
DUPLICATE_EVERY = 4  # documents: 25 % are planted
EDIT_RATES = (0.0, 0.0, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)  # of words; 0.0 is an exact copy
BLOCK = 2048  # documents planned at once

SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
SYLLABLES = [first + second for first in "bdfgklmnprstvwyz" for second in ("a", "er", "in", "o")]


class Pool(NamedTuple):
    """Sentences, escaped as in a JSON string, `prime` of them for each of CLASSES positions; and their word counts."""

    sentences: list[bytes]
    words: np.ndarray
    prime: int


def read_texts(source: Path | None) -> Iterator[str]:
    """Yield the texts of a JSON Lines file, or of the demo's documents if there is no such file."""
    if source is not None and source.is_file():
        with open(source, "rb") as file:
            yield from (orjson.loads(line)["text"] for line in file)
        return
    from curation.tools.demo import collect_documents

    yield from (document["text"] for document in collect_documents(12_000_000, 40_000_000))


def make_pool(texts: Iterable[str], seed: int) -> Pool:
    """Return sentences of MIN_WORDS to MAX_WORDS words, in seeded order. No two of them share a word 5-gram."""
    seen: set[int] = set()
    chosen: list[bytes] = []
    for text in texts:
        for sentence in SENTENCE_END.split(text):
            words = sentence.split()
            if not MIN_WORDS <= len(words) <= MAX_WORDS:
                continue
            lower = [word.lower() for word in words]
            grams = [hash(tuple(lower[k : k + 5])) for k in range(len(words) - 4)]
            if seen.isdisjoint(grams) and len(set(grams)) == len(grams):
                seen.update(grams)
                chosen.append(orjson.dumps(" ".join(words))[1:-1])
    chosen.sort()  # Python seeds the hashes of str per process, so the order must not depend on them
    random.Random(seed).shuffle(chosen)
    prime = next((n for n in range(len(chosen) // CLASSES, 1, -1) if _is_prime(n)), 0)
    if prime < 3:
        raise SystemExit(f"the source has only {len(chosen)} usable sentences; give more text with --source")
    chosen = chosen[: prime * CLASSES]
    return Pool(chosen, np.array([sentence.count(b" ") + 1 for sentence in chosen]), prime)


def _is_prime(n: int) -> bool:
    return all(n % k for k in range(2, int(n**0.5) + 1))


def mix(values: np.ndarray, salt: int) -> np.ndarray:
    """Return SplitMix64 of the numbers: the same on every machine and with every NumPy."""
    with np.errstate(over="ignore"):
        x = (values.astype(np.uint64) + np.uint64(salt % 2**32 + 1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


class Originals:
    """Original number n as a list of pieces (sentences with the white space after them), for any n in constant time."""

    def __init__(self, pool: Pool, seed: int) -> None:
        self.pool, self.seed = pool, seed
        # Quantiles of a log-normal length. Another version of NumPy may draw other random numbers.
        spread = np.exp(0.55 * np.sqrt(2) * _erfinv(np.linspace(-0.998, 0.998, 1024)))
        self.lengths = np.clip(np.rint(MEDIAN_SENTENCES * spread), MIN_SENTENCES, CLASSES).astype(np.int64)
        self.classes = np.arange(CLASSES, dtype=np.int64)
        gaps = [b"\\n\\n" if k % PARAGRAPH == PARAGRAPH - 1 else b" " for k in range(CLASSES)]
        self.pieces = [sentence + gaps[k // pool.prime] for k, sentence in enumerate(pool.sentences)]

    @property
    def capacity(self) -> int:
        return self.pool.prime**2

    def plan(self, numbers: np.ndarray) -> tuple[list[list[int]], list[int], list[int]]:
        """Return for each original: CLASSES sentences, the number of them to use, and a 64-bit number for its names."""
        prime = self.pool.prime
        place = (numbers * 48271 + self.seed) % self.capacity  # neighbours have different slopes
        slope, start = np.divmod(place, prime)
        index = (slope[:, None] * self.classes + start[:, None]) % prime + self.classes * prime
        noise = mix(numbers, self.seed)
        enough = (np.cumsum(self.pool.words[index], axis=1) < MIN_DOCUMENT_WORDS).sum(axis=1) + 1
        count = np.minimum(np.maximum(self.lengths[(noise & np.uint64(1023)).astype(np.int64)], enough), CLASSES)
        return index.tolist(), count.tolist(), noise.tolist()

    def build(self, index: list[int], count: int, noise: int) -> list[bytes]:
        pieces = self.pieces
        return [*[pieces[k] for k in index[:count]], byline(noise)]


def _erfinv(y: np.ndarray) -> np.ndarray:
    """Winitzki's approximation; its error of 0.2 % is small enough for lengths of documents."""
    log = np.log(1 - y * y)
    half = 2 / (np.pi * 0.147) + log / 2
    return np.sign(y) * np.sqrt(np.sqrt(half * half - log / 0.147) - half)


def byline(noise: int) -> bytes:
    parts = [SYLLABLES[(noise >> (6 * k + 4)) & 63] for k in range(9)]
    names = ["".join(parts[k : k + 3]).capitalize() for k in (0, 3, 6)]
    return f"Told by {names[0]} {names[1]} of {names[2]}.".encode()


def edit(pieces: list[bytes], rate: float, rng: random.Random) -> tuple[list[bytes], int, float]:
    """Return `pieces` with words replaced, the number of replaced words, and the Jaccard similarity of word 5-grams."""
    counts = [piece.rstrip().count(b" ") + 1 for piece in pieces]
    total = sum(counts)
    chosen = sorted(rng.sample(range(total), max(1, round(rate * total))))
    result, piece, before = list(pieces), 0, 0
    touched, last = 0, -1
    for position in chosen:
        while position >= before + counts[piece]:
            before += counts[piece]
            piece += 1
        words = result[piece].split(b" ")
        old = words[position - before]
        new = "".join(SYLLABLES[rng.randrange(64)] for _ in range(3)).encode()
        words[position - before] = new + (b"\\n\\n" if old.endswith(b"\\n\\n") else b"")
        result[piece] = b" ".join(words)
        first, stop = max(position - 4, last + 1), min(position, total - 5)
        touched += max(0, stop - first + 1)
        last = max(last, stop)
    grams = total - 4
    return result, len(chosen), (grams - touched) / (grams + touched)


def documents(originals: Originals, seed: int) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Yield JSON lines without end, each with its truth if it is a planted duplicate, else None."""
    made = line = 0
    while True:
        numbers = np.arange(line, line + BLOCK)
        noise = mix(numbers, seed + 7919)
        planted = (noise % np.uint64(DUPLICATE_EVERY) == 0) & (numbers >= DUPLICATE_EVERY)
        fresh = int(BLOCK - planted.sum())
        if made + fresh > originals.capacity:
            raise SystemExit(f"the sentences make only {originals.capacity:,} documents; give more text with --source")
        taken = np.where(planted, 0, np.cumsum(~planted) - 1 + made)
        copied = (noise >> np.uint64(8)).astype(np.int64) % np.maximum(np.cumsum(~planted) + made, 1)
        index, count, names = originals.plan(np.where(planted, np.abs(copied), taken))
        of = np.where(planted, np.abs(copied), taken).tolist()
        for k, is_copy in enumerate(planted.tolist()):
            pieces = originals.build(index[k], count[k], names[k])
            truth = None
            name = f"copy-{line + k:09d}" if is_copy else f"doc-{of[k]:09d}"
            if is_copy:
                rng = random.Random(int(noise[k]))
                rate = EDIT_RATES[rng.randrange(len(EDIT_RATES))]
                edits, jaccard = 0, 1.0
                if rate:
                    pieces, edits, jaccard = edit(pieces, rate, rng)
                truth = {
                    "id": name,
                    "of": f"doc-{of[k]:09d}",
                    "kind": "near" if edits else "exact",
                    "edit_rate": rate,
                    "edits": edits,
                    "jaccard": round(jaccard, 6),
                }
            yield b'{"id":"%b","text":"%b","source":"bench"}\n' % (name.encode(), b"".join(pieces)), truth
        made += fresh
        line += BLOCK


def write_corpus(
    path: str | Path, num_bytes: int = 100_000_000, seed: int = 1, source: Path | None = DEFAULT_SOURCE,
    pool: Pool | None = None,
) -> dict[str, int]:  # fmt: skip
    """Write the corpus and `<path minus .jsonl>.truth.jsonl`; return counts. `num_bytes`: size of the JSON Lines."""
    path = Path(path)
    originals = Originals(pool or make_pool(read_texts(source), 1), seed)
    count = size = planted = 0
    with open(path, "wb", buffering=1 << 20) as out, open(truth_path(path), "wb") as truths:
        for line, truth in documents(originals, seed):
            out.write(line)
            count += 1
            size += len(line)
            if truth:
                truths.write(orjson.dumps(truth) + b"\n")
                planted += 1
            if size >= num_bytes:
                break
    return {"documents": count, "bytes": size, "planted": planted, "sentences": len(originals.pool.sentences)}


def truth_path(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".jsonl") + ".truth.jsonl")


def parse_size(text: str) -> int:
    """Return the bytes of `100MB`, `1.5GB` or `2000000`."""
    number, unit = re.fullmatch(r"([0-9.]+)\s*([KMG]?)B?", text.upper()).groups()
    return int(float(number) * {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}[unit])


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a benchmark corpus with planted duplicates.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--size", default="100MB", type=parse_size, help="of the JSON Lines (default: 100MB)")
    parser.add_argument("--seed", default=1, type=int, help="another seed gives another corpus (default: 1)")
    parser.add_argument("--source", default=DEFAULT_SOURCE, type=Path, help="JSON Lines that give the sentences")
    options = parser.parse_args()
    print(json.dumps(write_corpus(options.path, options.size, options.seed, options.source)))


if __name__ == "__main__":
    main()
