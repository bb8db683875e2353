# SPDX-License-Identifier: Apache-2.0
"""The share of the words of a text that are in the user's list."""

from __future__ import annotations

import itertools
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from curation.base.contract import TEXT, Engine, Text
from curation.base.engine import load_engine
from curation.base.errors import InputError
from curation.base.system.files import known_sha256
from curation.kernels.ngram_table import NgramTable, table_of
from curation.stages.corpus.similarity import COMPARISONS
from curation.stages.words import split_words

COLUMN = "listed_words"
LISTS_KEPT = 4  # in memory
OPENINGS = ("", "(", "[", '"', "'", "“", "‘", "*")  # a word may begin with one of these, and end with one of CLOSINGS
CLOSINGS = (
    "", ".", ",", "!", "?", ":", ";", ")", "]", '"', "'", "”", "’", "*", "…", "...", "!!", "!!!", "??", "?!", ".)",
    "!)", "?)", "),", ").", '."', ',"', '!"', '?"', '".', '",', ".”", ",”", "!”", "?”", "'s", "’s",
)  # fmt: skip

WordList = str | tuple[str, ...]


def check_listed_words(words: WordList) -> None:
    """Raise ValueError if an entry of a list is not a single word."""
    for word in words if isinstance(words, tuple) else ():
        if len(word.split()) != 1:
            raise ValueError(f"listed_words: {word!r} is not one word. For phrases, use a filter rule with matches")


def list_files(words: WordList) -> dict[str, str]:
    """Return the file of a list and its SHA-256; no file if the words themselves are given."""
    return {words: known_sha256(words)} if isinstance(words, str) and words else {}


def word_rates(engine: Engine, text: Text, words: WordList, kind: str) -> np.ndarray:
    """Return the number of listed words per word of each text, float64; 0 for a text without words. `kind` is the
    setting `words` of a stage."""
    text = split_words(engine, text, kind)
    lowered, _ = engine.rewrite(text, COMPARISONS["lowercase"])
    hits, _ = engine.ngram_hits(lowered, load_words(words), 1)
    return np.divide(hits, np.maximum(engine.measure(text, ("words",))["words"], 1))


def load_words(words: WordList) -> NgramTable:
    """Return the table of the hashes of all forms of the listed words. Raises InputError for a file without words, or
    with several words in a line."""
    return _load(words, "".join(list_files(words).values()))


@lru_cache(LISTS_KEPT)
def _load(words: WordList, digest: str) -> NgramTable:
    listed = list(words) if isinstance(words, tuple) else _read(words)
    forms = [
        " ".join(f"{first}{word}{last}" for first, last in itertools.product(OPENINGS, CLOSINGS)) for word in listed
    ]
    engine = load_engine("cpu")
    text = engine.from_arrow(pa.table({TEXT: pa.array(forms, pa.large_string())}))[TEXT]
    lowered, _ = engine.rewrite(text, COMPARISONS["lowercase"])
    hashes = np.unique(engine.shingles(lowered, 1, False)[0])
    return table_of((COLUMN,), hashes, np.zeros(len(hashes), np.int32))


def _read(path: str) -> list[str]:
    try:
        lines = Path(path).read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"listed_words: {path} is not UTF-8") from None
    words = [line.strip() for line in lines if line.strip()]
    if not words:
        raise InputError(f"listed_words: {path} has no words, expected one per line")
    for number, line in enumerate(lines, 1):
        if len(line.split()) > 1:
            raise InputError(
                f"listed_words: line {number} of {path} has several words: {line.strip()!r}. Give one per line"
            )
    return words
