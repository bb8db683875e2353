# SPDX-License-Identifier: Apache-2.0
"""The n-grams of evaluation items that many documents have, such as n-grams of licences.

Each task counts the documents that have an n-gram and, up to `max_documents` + 1, their different texts. So files and
memory depend only on the evaluation texts: 16 bytes per n-gram found and text counted. n-grams are numbered as in
`leaks.LeakSearch.ngrams`: short questions have the numbers after all n-grams.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from curation.base.arrays import load_mapped, map_file, save_array, write_array
from curation.base.system.files import commit_all

COUNTED_AT_ONCE = 1 << 22  # texts, when the files of tasks are merged
SUFFIXES = (".ngrams", ".texts", ".found")


class Hits(NamedTuple):
    """The n-grams of evaluation items in a document: its row, a hash of its text, whether an earlier document of the
    task has the same text, and the numbers of the n-grams, ascending."""

    row: int
    text: int
    is_copy: bool
    ngrams: np.ndarray


def write_hits(path: Path, size: int, max_documents: int, hits: Iterable[Hits]) -> None:
    """Write what a task finds to files with the name of `path`. The files have pairs of an n-gram and a text with it,
    at most `max_documents` + 1 per n-gram. The files also have, for each n-gram, its number, the number of documents
    with it, and the row of the first of these.

    size   number of n-grams and short questions
    """
    documents, texts, first = np.zeros(size, np.int64), np.zeros(size, np.int32), np.zeros(size, np.int64)
    with commit_all(*(path.with_suffix(suffix) for suffix in SUFFIXES)) as (ngrams_path, texts_path, found_path):
        with open(ngrams_path, "wb") as ngrams_file, open(texts_path, "wb") as texts_file:
            for found in hits:
                fresh = found.ngrams[documents[found.ngrams] == 0]
                first[fresh] = found.row
                documents[found.ngrams] += 1
                if not found.is_copy:
                    counted = found.ngrams[texts[found.ngrams] <= max_documents]
                    texts[counted] += 1
                    write_array(ngrams_file, counted.astype(np.uint64))
                    write_array(texts_file, np.full(len(counted), found.text, np.uint64))
        ngrams = np.flatnonzero(documents)
        save_array(found_path, np.stack([ngrams, documents[ngrams], first[ngrams]]))


class NgramDocuments(NamedTuple):
    """Three arrays with an element per n-gram and short question: how many documents have it, the row of the first one,
    and whether more than `max_documents` different texts have it."""

    documents: np.ndarray
    first: np.ndarray
    is_common: np.ndarray


def count_documents(paths: Sequence[Path], size: int, max_documents: int) -> NgramDocuments:
    """Return the counts over all tasks. `paths` are the names of the tasks' files, in the order of rows."""
    documents, first, is_common = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, bool)
    for path in reversed(paths):
        ngrams, counts, rows = load_mapped(path.with_suffix(".found"))
        documents[ngrams] += counts
        first[ngrams] = rows
    often = np.flatnonzero(documents > max_documents) if max_documents else np.zeros(0, np.int64)
    step = max(COUNTED_AT_ONCE // (max_documents + 1), 1)
    for start in range(0, len(often), step):
        asked = np.zeros(size, bool)
        asked[often[start : start + step]] = True
        pairs = np.zeros((2, 0), np.uint64)
        for path in paths:
            ngrams, texts = (map_file(path.with_suffix(suffix), np.uint64) for suffix in SUFFIXES[:2])
            own = asked[ngrams]
            pairs = _distinct(np.concatenate([pairs, [ngrams[own], texts[own]]], axis=1), max_documents + 1)
        ngrams, texts = np.unique(pairs[0], return_counts=True)
        is_common[ngrams[texts > max_documents]] = True
    return NgramDocuments(documents, first, is_common)


def _distinct(pairs: np.ndarray, limit: int) -> np.ndarray:
    """Return the distinct pairs of an n-gram and a text, at most `limit` pairs per n-gram."""
    ngrams, texts = pairs[:, np.lexsort(pairs[::-1])]
    new = np.append(True, (ngrams[1:] != ngrams[:-1]) | (texts[1:] != texts[:-1]))[: len(ngrams)]
    ngrams, texts = ngrams[new], texts[new]
    rank = np.arange(len(ngrams)) - np.searchsorted(ngrams, ngrams)
    return np.stack([ngrams[rank < limit], texts[rank < limit]])
