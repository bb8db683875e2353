# SPDX-License-Identifier: Apache-2.0
"""Which n-grams some texts have, and whose they are, as engines look them up, and as a file that tasks share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from curation.files import commit
from curation.kernels.hashing import table_mask
from curation.kernels.ngrams import FREE, fill_table

TABLES_AT_ONCE = 8  # that a process keeps


@dataclass(frozen=True, eq=False)
class NgramTable:
    """The n-grams of evaluation texts: `keys` (uint64) and `owners` (int32: a number in `names`, `FREE` in an empty
    slot), as `curation.kernels.ngrams` has them."""

    names: tuple[str, ...]
    keys: np.ndarray
    owners: np.ndarray
    digest: str  # SHA-256 of the n-grams and of what they belong to


def table_of(names: Sequence[str], hashes: np.ndarray, owner: np.ndarray) -> NgramTable:
    """The table of hashes (uint64, all different) that belong to `names[owner]` (int32)."""
    slots = int(table_mask(len(hashes))) + 1
    keys, owners = np.zeros(slots, np.uint64), np.full(slots, FREE, np.int32)
    fill_table(hashes, owner, keys, owners)
    told = hashlib.sha256(msgspec.json.encode(names) + hashes.tobytes() + owner.tobytes())
    return NgramTable(tuple(names), keys, owners, told.hexdigest())


def save_table(path: Path, table: NgramTable) -> None:
    used = np.flatnonzero(table.owners != FREE)
    used = used[np.argsort(table.keys[used])]
    with commit(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, names=np.array(table.names), hashes=table.keys[used], owner=table.owners[used])


@lru_cache(maxsize=TABLES_AT_ONCE)
def load_table(path: Path) -> NgramTable:
    """What `save_table` wrote, once per process; a path stands for one content for good."""
    with np.load(path) as stored:
        return table_of(stored["names"].tolist(), stored["hashes"], stored["owner"])


__all__ = ["TABLES_AT_ONCE", "NgramTable", "load_table", "save_table", "table_of"]
