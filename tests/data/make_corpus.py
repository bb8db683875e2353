# SPDX-License-Identifier: Apache-2.0
"""Write the corpus of the tests, corpus.jsonl.gz and pairs.jsonl.gz, into this folder.

    python tests/data/make_corpus.py django-5.2.8-py3-none-any.whl

English is the documentation of the standard library that runs this script, the rest are Django's translations. The
same Python and the same wheel give the same bytes. README.md says what is planted.
"""

import gettext
import gzip
import hashlib
import io
import json
import random
import sys
import sysconfig
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from curation.tools.demo import _documented
from tests.oracle.minhash import jaccard, ngrams

LANGUAGES = (
    "ar", "ast", "bn", "de", "el", "es", "fa", "fr", "he", "hi", "hy", "ja", "ka", "ko", "ml", "ru", "ta", "te", "th",
    "vi", "zh_Hans",
)  # fmt: skip
MESSAGES = 20  # per translated document
MIN_CHARACTERS, MAX_CHARACTERS = 500, 20_000
ENGLISH_BYTES = 1_000_000
COPIED_WORDS = 80, 400  # of the documents that are copied
EXACT, NEAR = 60, 420
MIN_SIMILARITY = 0.5  # of the pairs that are stored
Document = dict[str, Any]


def english_documents() -> Iterator[Document]:
    """Help topics and docstrings of the standard library, drawn by the hash of their names."""
    found = list(_documented(Path(sysconfig.get_path("stdlib")), "stdlib"))
    size = 0
    for document in sorted(found, key=lambda document: hashlib.sha256(document["id"].encode()).digest()):
        if size < ENGLISH_BYTES and MIN_CHARACTERS <= len(document["text"]) <= MAX_CHARACTERS:
            size += len(document["text"].encode())
            yield {"id": document["id"], "text": document["text"], "source": "python", "language": "en"}


def translated_documents(wheel: str) -> Iterator[Document]:
    """Messages of four words or more of each catalogue, MESSAGES to a document, one to a line."""
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(name for name in archive.namelist() if name.endswith("/django.mo")):
            *_, part, _, language, _, _ = name.split("/")
            catalogue = gettext.GNUTranslations(io.BytesIO(archive.read(name)))._catalog
            messages = [text for key, text in catalogue.items() if isinstance(key, str) and len(key.split()) >= 4]
            for first in range(0, len(messages) if language in LANGUAGES else 0, MESSAGES):
                text = "\n".join(messages[first : first + MESSAGES])
                if len(text) >= MIN_CHARACTERS // 2:
                    number = f"django/{part}/{language}/{first // MESSAGES}"
                    yield {"id": number, "text": text, "source": "django", "language": language}


def edited(chance: random.Random, text: str) -> str:
    """The text with words replaced, left out or doubled, one in 12 to 400."""
    words = text.split(" ")
    for _ in range(max(1, round(len(words) * chance.choice((0.0025, 0.005, 0.01, 0.02, 0.04, 0.08))))):
        place = chance.randrange(len(words))
        word = chance.choice(words)
        words[place : place + 1] = chance.choice(([word], [], [words[place], word]))
    return " ".join(words)


def planted_documents(chance: random.Random, originals: list[Document]) -> Iterator[Document]:
    """Copies of some originals: most have one, some have many."""
    low, high = COPIED_WORDS
    chosen = [each for each in originals if each["language"] == "en" and low <= len(each["text"].split()) <= high]
    ways: list[tuple[str, int, Callable[[str], str]]] = [
        ("exact", EXACT, str),
        ("near", NEAR, lambda text: edited(chance, text)),
    ]
    for kind, count, copied in ways:
        for number in range(count):
            original = chosen[int(len(chosen) * chance.random() ** 2)]
            yield original | {
                "id": f"{kind}/{number}",
                "text": copied(original["text"]),
                "kind": kind,
                "of": original["id"],
            }


def alike_pairs(documents: list[Document]) -> Iterator[Document]:
    """All pairs of MIN_SIMILARITY by the Jaccard of lower-case word 5-grams, found by the n-grams that they share."""
    grams = [ngrams(document["text"].lower(), 5) for document in documents]
    holders: dict[Any, list[int]] = defaultdict(list)
    for number, found in enumerate(grams):
        for gram in found:
            holders[gram].append(number)
    shared = Counter(pair for numbers in holders.values() for pair in combinations(numbers, 2))
    for (left, right), count in sorted(shared.items()):
        if count >= MIN_SIMILARITY * max(len(grams[left]), len(grams[right])):
            similarity = jaccard(grams[left], grams[right])
            if similarity >= MIN_SIMILARITY:
                yield {"a": documents[left]["id"], "b": documents[right]["id"], "j": round(similarity, 6)}


def write(name: str, records: list[Document]) -> None:
    lines = b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)
    (HERE / name).write_bytes(gzip.compress(lines, 9, mtime=0))
    print(f"{name}: {len(records):,} records, {len(lines):,} bytes")  # noqa: T201


def main(wheel: str) -> None:
    chance = random.Random(1)
    originals = [*english_documents(), *translated_documents(wheel)]
    documents = [*originals, *planted_documents(chance, originals)]
    chance.shuffle(documents)
    write("corpus.jsonl.gz", documents)
    write("pairs.jsonl.gz", list(alike_pairs(documents)))


if __name__ == "__main__":
    main(sys.argv[1])
