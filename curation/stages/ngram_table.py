# SPDX-License-Identifier: Apache-2.0
"""Which n-grams some texts have, and whose they are, as engines look them up."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from curation.kernels.hashing import table_mask
from curation.kernels.ngrams import FREE, fill_table


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


__all__ = ["NgramTable", "table_of"]
