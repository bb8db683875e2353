# SPDX-License-Identifier: Apache-2.0
"""A corpus by another rule than `benchmarks.corpus`: paragraphs of the documentation of this Python installation.

    python -m benchmarks.paragraphs PATH [--size 100MB] [--seed 1]

The text is what `curate demo` reads: docstrings, licences and descriptions of packages, with lists, code and tables.
The first pass writes the real documents. Each later pass draws paragraphs at random and replaces one word in twelve by
a word from elsewhere, so that documents of different passes are no near-duplicates. No speed was tuned on this text.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path

import orjson

from benchmarks.corpus import parse_size

REAL_BYTES = 12_000_000
REPLACED = 1 / 12
WORD = re.compile(r"\S+")


def documents(seed: int) -> Iterator[tuple[str, str]]:
    """Yield (id, text) without end: the real documents, then documents of altered paragraphs."""
    from curation.tools.demo import collect_documents

    texts = []
    for document in collect_documents(REAL_BYTES, REAL_BYTES):
        texts.append(document["text"])
        yield document["id"], document["text"]
    paragraphs = [part for text in texts for part in text.split("\n\n") if part.strip()]
    words = WORD.findall(" ".join(texts))
    lengths = [text.count("\n\n") + 1 for text in texts]
    chance = random.Random(seed)
    number = 0
    while True:
        parts = chance.choices(paragraphs, k=chance.choice(lengths))
        yield (
            f"made-{number:08d}",
            WORD.sub(lambda at: chance.choice(words) if chance.random() < REPLACED else at[0], "\n\n".join(parts)),
        )
        number += 1


def write_corpus(path: Path, num_bytes: int, seed: int = 1) -> int:
    """Write JSON Lines of about `num_bytes`, and return the number of documents."""
    size = count = 0
    with open(path, "wb") as file:
        for name, text in documents(seed):
            size += file.write(orjson.dumps({"id": name, "text": text}, option=orjson.OPT_APPEND_NEWLINE))
            count += 1
            if size >= num_bytes:
                return count
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a benchmark corpus of paragraphs of documentation.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--size", default="100MB", type=parse_size, help="of the JSON Lines (default: 100MB)")
    parser.add_argument("--seed", default=1, type=int, help="another seed gives another corpus (default: 1)")
    options = parser.parse_args()
    print(f"{write_corpus(options.path, options.size, options.seed):,} documents")


if __name__ == "__main__":
    main()
