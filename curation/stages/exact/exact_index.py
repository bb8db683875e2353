# SPDX-License-Identifier: Apache-2.0
"""The saved index of `exact_dedup`, in the folder `exact` of a run's `index`: hashes of the texts of kept documents.

    index.json, ids.arrow   as in `saved_index.py`
    high.bin, low.bin       the halves of the 128-bit hashes (uint64), ascending by both
    documents.bin           the document of each hash (int32, from 2^31 documents on int64)

An index has 20 bytes per document, and the ids. A task looks up the hashes of its group of slices through memory maps.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from curation.base.arrays import batches_of, map_file, positions_of
from curation.base.contract import position_type
from curation.base.errors import RecipeError
from curation.stages.corpus.index_tasks import Band
from curation.stages.corpus.saved_index import DESCRIPTION, IndexMatches, SavedIndex, missing_index
from curation.stages.outcome import Corpus

FOLDER = "exact"
HIGH, LOW, DOCUMENTS = "high.bin", "low.bin", "documents.bin"
HASHES = Band(("high", "low"), (HIGH, LOW), DOCUMENTS)


def open_exact_index(folder: str) -> SavedIndex:
    """Return the index of exact duplicates in the folder `index` of a run. Raises RecipeError if the index is
    missing."""
    path = Path(folder) / FOLDER
    if not (path / DESCRIPTION).is_file():
        raise RecipeError(missing_index(folder, "exact_dedup", FOLDER))
    return SavedIndex(path)


def find_equal(part: Corpus, index: SavedIndex) -> IndexMatches:
    """Return the documents of `part` whose hash is in the index, with the value 1."""
    high, low = (map_file(index.folder / name, np.uint64) for name in (HIGH, LOW))
    documents = map_file(index.folder / DOCUMENTS, position_type(index.documents))
    found = []
    for batch in batches_of(len(part.rows)):
        positions = np.arange(batch.start, batch.stop)
        keys = [part.column(name, positions) for name in HASHES.columns]
        order = np.argsort(keys[0])  # adjacent keys are in the same memory pages
        place = np.full(len(order), -1, np.int64)
        place[order] = _places(high, low, keys[0][order], keys[1][order])
        equal = positions_of(place >= 0)
        found.append((batch.start + equal, index.checked(documents[place[equal]], DOCUMENTS)))
    position = np.concatenate([np.zeros(0, np.int64), *(rows for rows, _ in found)])
    number = np.concatenate([np.zeros(0, np.int64), *(numbers for _, numbers in found)])
    details = {"documents": index.documents, "equal": len(position)}
    return IndexMatches(position, number, np.ones(len(position)), details)


def _places(high: np.ndarray, low: np.ndarray, wanted_high: np.ndarray, wanted_low: np.ndarray) -> np.ndarray:
    """Return the position of each wanted hash among the ascending hashes of the index; -1 for a hash that the index
    lacks."""
    first = np.searchsorted(high, wanted_high, side="left")
    count = np.searchsorted(high, wanted_high, side="right") - first
    place = np.full(len(wanted_high), -1, np.int64)
    for step in range(int(count.max(initial=0))):  # more than one step only if different texts have equal first 64 bits
        chosen = np.flatnonzero((count > step) & (place < 0))
        equal = chosen[low[first[chosen] + step] == wanted_low[chosen]]
        place[equal] = first[equal] + step
    return place
