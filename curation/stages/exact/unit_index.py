# SPDX-License-Identifier: Apache-2.0
"""The saved index of `line_dedup`, in the folder `units` of a run's `index`: the keys of the units of kept documents.

    index.json      as in `saved_index.py`, without ids
    keys.bin        each key once (uint64), ascending
    documents.bin   how many documents have it (uint16), at most MAX_DOCUMENTS

An index has 10 bytes per distinct unit. The texts are those that reached the stage, so the index also has the units
that the stage cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from curation.base.arrays import map_file, write_array
from curation.base.contract import Engine
from curation.base.errors import RecipeError
from curation.stages.base import Phase
from curation.stages.corpus.index_tasks import JOINED, index_files
from curation.stages.corpus.key_ranges import division_of, once
from curation.stages.corpus.saved_index import DESCRIPTION, SavedIndex, missing_index
from curation.stages.exact.unit_blocks import MAX_DOCUMENTS, all_blocks, block_phases, read_range
from curation.stages.exact.unit_keys import UnitSettings
from curation.stages.outcome import Corpus

FOLDER = "units"
KEYS, DOCUMENTS = "keys.bin", "documents.bin"


def open_unit_index(folder: str) -> SavedIndex:
    """Return the index of units in the folder `index` of a run. Raises RecipeError if the index is missing."""
    path = Path(folder) / FOLDER
    if not (path / DESCRIPTION).is_file():
        raise RecipeError(missing_index(folder, "line_dedup", FOLDER))
    return SavedIndex(path)


def unit_index_phases(compared: UnitSettings) -> Sequence[Phase]:
    """Return the phases of `block_phases`, and a phase that joins the blocks into an index."""
    return (*block_phases(compared, counted=True), Phase(JOINED, once, _join_blocks, durable=True))


def _join_blocks(engine: Engine, corpus: Corpus, task: int) -> None:
    """Write the keys of all blocks, ascending, and how many documents have each."""
    blocks = all_blocks(corpus)
    with index_files(corpus, [KEYS, DOCUMENTS]) as paths, ExitStack() as stack:
        key_file, document_file = (stack.enter_context(open(path, "wb")) for path in paths)
        for number in range(division_of(corpus).ranges):
            found = read_range(blocks, number, counted=True)
            order = np.argsort(found.keys)
            keys = found.keys[order]
            starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
            write_array(key_file, keys[starts])
            if len(keys):
                documents = np.add.reduceat(found.documents[order], starts, dtype=np.int64)  # type: ignore[index]
                write_array(document_file, np.minimum(documents, MAX_DOCUMENTS).astype(np.uint16))


def known_documents(index: SavedIndex, keys: np.ndarray) -> np.ndarray:
    """Return how many documents of the index have each key, int64; 0 for keys that it lacks."""
    known = map_file(index.folder / KEYS, np.uint64)
    counts = map_file(index.folder / DOCUMENTS, np.uint16)
    out = np.zeros(len(keys), np.int64)
    if len(known):
        order = np.argsort(keys)  # adjacent keys are in the same memory pages
        place = np.minimum(np.searchsorted(known, keys[order]), len(known) - 1)
        out[order] = np.where(known[place] == keys[order], counts[place], 0)
    return out
