# SPDX-License-Identifier: Apache-2.0
"""Tables of the n-grams of evaluation texts and their owners: for look-ups by the engines, and as a file for tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from curation.kernels.hashing import table_mask
from curation.kernels.ngrams import FREE, fill_table
from curation.system.files import commit

TABLES_AT_ONCE = 8  # kept per process


@dataclass(frozen=True, eq=False)
class NgramTable:
    """The n-grams of evaluation texts as a hash table: open addressing, a power of two of slots."""

    names: tuple[str, ...]  # of the evaluation inputs
    keys: np.ndarray  # uint64, one per slot
    owners: np.ndarray  # int32, one per slot: index into `names`, FREE for an empty slot
    digest: str  # SHA-256 of names, n-grams and owners


def table_of(names: Sequence[str], hashes: np.ndarray, owner: np.ndarray) -> NgramTable:
    """The table of n-gram hashes (uint64, distinct); `owner` (int32, as long) has the index into `names` of each."""
    slots = int(table_mask(len(hashes))) + 1
    keys, owners = np.zeros(slots, np.uint64), np.full(slots, FREE, np.int32)
    fill_table(hashes, owner, keys, owners)
    digest = hashlib.sha256(msgspec.json.encode(names) + hashes.tobytes() + owner.tobytes())
    return NgramTable(tuple(names), keys, owners, digest.hexdigest())


def save_table(path: Path, table: NgramTable) -> None:
    """Write the table to `path` as `.npz`, sorted by hash."""
    used = np.flatnonzero(table.owners != FREE)
    used = used[np.argsort(table.keys[used])]
    with commit(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, names=np.array(table.names), hashes=table.keys[used], owner=table.owners[used])


@lru_cache(maxsize=TABLES_AT_ONCE)
def load_table(path: Path) -> NgramTable:
    """The table that `save_table` wrote, read once per process; the content of a path never changes."""
    with np.load(path) as stored:
        return table_of(stored["names"].tolist(), stored["hashes"], stored["owner"])
