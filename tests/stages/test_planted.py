# SPDX-License-Identifier: Apache-2.0
"""`decontaminate` and `check_overlap` find copies of evaluation texts that differ in punctuation or case."""

import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from pydoc_data.topics import topics
from types import ModuleType

import pytest

import curation
from curation.base.engine import PACKAGES
from curation.stages.corpus.similarity import COMPARISONS
from tests.conftest import frame_of
from tests.oracle.minhash import ngrams
from tests.oracle.rewriting import compared
from tests.runs import records_of

ENGINES = {package: name for name, package in PACKAGES.items()}
NGRAM, SPANS, SPAN_WORDS = 13, 200, 24
TYPOGRAPHIC = {'"': "“", "'": "’", "-": "—"}
SWAPPED = str.maketrans(TYPOGRAPHIC | dict(zip("“”‘’—–", "\"\"''--", strict=True)))


def lines_of(span: str, before: str, after: str = "") -> str:
    words = span.split()
    return "\n".join(f"{before}{' '.join(words[at : at + 5])}{after}" for at in range(0, len(words), 5))


def with_commas(span: str) -> str:
    return " ".join(f"{word}," if number % 8 == 0 else word for number, word in enumerate(span.split(), 1))


# Each kind of copy, and the comparisons that find it
COPIES: dict[str, tuple[Callable[[str], str], tuple[str, ...]]] = {
    "commas": (with_commas, ("visible", "folded")),
    "quotes and dashes": (lambda span: span.translate(SWAPPED), ("visible", "folded")),
    "dashes between words": (lambda span: " – ".join(span.split()), ("visible", "folded")),
    "case": (str.swapcase, ("visible", "folded", "lowercase")),
    "quoted": (lambda span: lines_of(span, "> "), ("visible",)),
    "table": (lambda span: lines_of(span, "| ", " |"), ("visible",)),
    "code": (lambda span: " ".join(f"`{word}`" for word in span.split()), ("visible",)),
    "zero width spaces": (lambda span: span.replace(" ", "\u200b \u200b"), ("visible",)),
    "soft hyphens": (lambda span: re.sub(r"(\w\w)(\w\w)", "\\1\u00ad\\2", span), ("visible",)),
}


@cache
def spans() -> list[str]:
    """Different pieces of this Python's documentation with a quote or a dash, and with 13 words or more."""
    words = " ".join(topics[name] for name in sorted(topics)).split()
    found = (" ".join(words[at:to]) for at, to in pairwise(range(0, len(words), SPAN_WORDS)))
    fitting = [span for span in dict.fromkeys(found) if set("\"'-’”—") & {*span} and says_something(span)]
    return fitting[: 2 * SPANS]


def says_something(span: str) -> bool:
    """Whether a span has an n-gram, and different words with many letters."""
    words = compared(span, "visible").split()
    return len(words) >= NGRAM and sum(map(len, {*filter(str.isalpha, words)})) >= 60


@pytest.mark.parametrize("kind", COPIES)
def test_all_planted_copies_are_found(engine: ModuleType, tmp_path: Path, kind: str):
    copied, finding = COPIES[kind]
    items, others = spans()[:SPANS], spans()[SPANS:]
    texts = [f"{other} {copied(item)} {other}" for item, other in zip(items, others, strict=True)]
    quiz, train = tmp_path / "quiz.jsonl", tmp_path / "train.jsonl"
    quiz.write_bytes(records_of(items))
    train.write_bytes(records_of(texts))
    for compare in COMPARISONS:
        setting = {} if compare == "visible" else {"compare": compare}  # it is the default
        wanted = [ngrams(compared(item, compare), NGRAM) for item in items]
        present = [ngrams(compared(text, compare), NGRAM) for text in texts]
        kept = curation.decontaminate(frame_of(engine, texts), quiz, **setting)
        overlap = curation.check_overlap(train, quiz, engine=ENGINES[engine.__name__], workers=1, **setting)
        removed, found = len(texts) - len(kept), overlap.contaminated
        known, seen = set().union(*wanted), set().union(*present)
        assert removed == sum(not known.isdisjoint(text) for text in present)
        assert found == sum(len(item & seen) > 0.8 * len(item) for item in wanted)
        assert (removed == SPANS and found == SPANS) == (compare in finding)
