# SPDX-License-Identifier: Apache-2.0
"""The n-gram of an evaluation text that a document contains, and the file and item that hold it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from curation.arrays import load_arrays
from curation.contract import TEXT, Engine
from curation.kernels.ngram_table import TABLES_AT_ONCE, NgramTable
from curation.system.files import commit

NOTES = {"ngram": "large_string", "evaluation_file": "string", "evaluation_item": "int64"}  # columns of `removed/`
PIECE_WORDS = 64  # a text is searched in pieces, then the first piece that matches word by word
WINDOW = 1 << 20  # characters of a long text that are searched at once
OVERLAP = 1 << 14  # of two windows


class EvaluationItems(NamedTuple):
    """The first place of each n-gram among evaluation texts: 20 bytes per n-gram.

    files         names of the files
    hashes        uint64, ascending and distinct: the n-grams
    file_number   int32: index into `files` of each n-gram
    item          int64: number of the record in that file, from 1
    """

    files: tuple[str, ...]
    hashes: np.ndarray
    file_number: np.ndarray
    item: np.ndarray

    def save(self, path: Path) -> None:
        """Write the places to `path` as `.npz`."""
        with commit(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, files=np.array(self.files), hashes=self.hashes, file_number=self.file_number, item=self.item)


@lru_cache(maxsize=TABLES_AT_ONCE)
def load_items(path: Path) -> EvaluationItems:
    """Return the places that `save` wrote, read once per process."""
    stored = load_arrays(path)
    return EvaluationItems(tuple(stored["files"].tolist()), stored["hashes"], stored["file_number"], stored["item"])


def first_matches(
    engine: Engine, texts: Sequence[str], table: NgramTable, items: EvaluationItems, ngram: int
) -> dict[str, pa.Array]:
    """Return NOTES for texts that match the table: the first n-gram of each that matches, and its place. An n-gram of
    more than OVERLAP characters may be null."""
    windows = [_first_window(engine, text, table, ngram) for text in texts]
    found = _first_pieces(engine, [_pieces(text, ngram, PIECE_WORDS) for text in windows], table, ngram)
    found = _first_pieces(engine, [_pieces(text, ngram, 1) for text in found], table, ngram)
    hashes, offsets = engine.shingles(_texts(engine, found), ngram, False)
    matched = np.diff(offsets) > 0
    places = np.zeros(len(texts), np.int64)
    places[matched] = np.searchsorted(items.hashes, hashes[offsets[:-1][matched]])
    file = pa.array(items.files, pa.string()).take(pa.array(items.file_number[places], mask=~matched))
    return {
        "ngram": pa.array([text or None for text in found], pa.large_string()),
        "evaluation_file": file,
        "evaluation_item": pa.array(items.item[places], mask=~matched),
    }


def _texts(engine: Engine, texts: Sequence[str]) -> pa.Array:
    return engine.from_arrow(pa.table({TEXT: pa.array(texts, pa.large_string())}))[TEXT]


def _first_window(engine: Engine, text: str, table: NgramTable, ngram: int) -> str:
    """The first part of a long text that matches; short texts are returned whole."""
    for start in range(0, len(text) if len(text) > WINDOW else 0, WINDOW - OVERLAP):
        window = text[start : start + WINDOW]
        if engine.ngram_hits(_texts(engine, [window]), table, ngram)[0][0]:
            return window
    return text[:WINDOW]


def _pieces(text: str, ngram: int, step: int) -> list[str]:
    """A text in pieces of `step` n-grams, with words joined by a space."""
    words = text.split()
    last = max(len(words) - ngram + 1, 1)
    return [" ".join(words[k : min(k + step, last) + ngram - 1]) for k in range(0, last, step)]


def _first_pieces(engine: Engine, pieces: Sequence[Sequence[str]], table: NgramTable, ngram: int) -> list[str]:
    """The first piece of each text that matches; "" if none does."""
    hits, _ = engine.ngram_hits(_texts(engine, [piece for group in pieces for piece in group]), table, ngram)
    first, found = 0, []
    for group in pieces:
        at = np.flatnonzero(hits[first : first + len(group)])
        found.append(group[at[0]] if len(at) else "")
        first += len(group)
    return found
