# SPDX-License-Identifier: Apache-2.0
"""Tables of n-grams. Engines look up the owner of an n-gram in a table: an evaluation set that contains the n-gram."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from curation.kernels.hashing import table_mask
from curation.kernels.ngrams import FREE, fill_table

TABLES_AT_ONCE = 8  # tables cached per process


@dataclass(frozen=True, eq=False)
class NgramTable:
    """The n-grams of evaluation texts as a hash table: open addressing, a power of two of slots."""

    names: tuple[str, ...]  # of the evaluation inputs
    keys: np.ndarray  # uint64, one per slot
    owners: np.ndarray  # int32, one per slot: index into `names`, FREE for an empty slot
    digest: str  # SHA-256 of names, n-grams and owners


def table_of(names: Sequence[str], hashes: np.ndarray, owner: np.ndarray) -> NgramTable:
    """Return the table of distinct n-gram hashes (uint64). `owner` (int32) has for each hash the index of its owner in
    `names`."""
    slots = int(table_mask(len(hashes))) + 1
    keys, owners = np.zeros(slots, np.uint64), np.full(slots, FREE, np.int32)
    fill_table(hashes, owner, keys, owners)
    digest = hashlib.sha256(msgspec.json.encode(names) + hashes.tobytes() + owner.tobytes())
    return NgramTable(tuple(names), keys, owners, digest.hexdigest())
