# SPDX-License-Identifier: Apache-2.0
"""Hash tables of n-grams: of evaluation texts, looked up on CPU and GPU; and of kept documents, on the host only.

For kept documents, the host decides about one document after the other, since each decision depends on those before.
"""

import numpy as np

from curation.kernels.cache import kernel

FREE = np.int32(-1)  # owner of an empty slot


@kernel
def slot_of(keys, owners, mask, key):
    """The slot that holds `key`, or the free slot for it (linear probing)."""
    slot = key & mask
    while owners[slot] != FREE and keys[slot] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@kernel
def fill_table(hashes, owner, keys, owners):
    """Insert distinct hashes (uint64) and their owners (int32) into an empty table: `owners` is FREE everywhere."""
    mask = np.uint64(len(keys) - 1)
    for k in range(len(hashes)):
        slot = slot_of(keys, owners, mask, hashes[k])
        keys[slot], owners[slot] = hashes[k], owner[k]


@kernel
def _commonest(values, count):
    """Return the most frequent of values[:count], the smallest of ties; sort these values in place."""
    values[:count].sort()
    best = values[0]
    longest = length = 0
    for k in range(count):
        length = length + 1 if k and values[k] == values[k - 1] else 1
        if length > longest:
            best, longest = values[k], length
    return best


@kernel
def _probe(keys, owners, key):
    """The slot that holds `key`, or the free slot for it, in a table of any size. The hash is scaled to the size of the
    table."""
    slots = np.uint64(len(keys))
    slot = (key >> np.uint64(32)) * slots >> np.uint64(32)
    while owners[slot] != FREE and keys[slot] != key:
        slot += np.uint64(1)
        if slot == slots:
            slot = np.uint64(0)
    return slot


@kernel
def pass_documents(hashes, offsets, long_enough, rows, share, keys, owners, seen_owners, kept, value):
    """Decide about documents one after the other, and return the number of n-grams that were added to the table.

    hashes, offsets   uint64 n-grams; int64, documents + 1: hashes[offsets[k]:offsets[k + 1]] are distinct
    long_enough       bool, documents: whether the document has n-grams
    rows              int32, documents: the owner of the n-grams of each
    share             a document with at least this share of its n-grams in the table is removed; the n-grams of other
                      documents are added to the table
    keys, owners      the table: uint64 and int32, one per slot, more slots than n-grams; FREE marks an empty slot
    seen_owners       int32 scratch, as long as the n-grams of the longest document
    kept              result, int32: -1 for a kept document, else the owner of most of the n-grams seen
    value             result, float64: share of the n-grams seen, 0 for a document without n-grams
    """
    added = 0
    for k in range(len(offsets) - 1):
        start, end = offsets[k], offsets[k + 1]
        if not long_enough[k]:
            kept[k], value[k] = -1, 0.0
            continue
        seen = 0
        for i in range(start, end):
            slot = _probe(keys, owners, hashes[i])
            if owners[slot] != FREE:
                seen_owners[seen] = owners[slot]
                seen += 1
        value[k] = seen / (end - start)
        if value[k] >= share:
            kept[k] = _commonest(seen_owners, seen)
            continue
        kept[k], owner = -1, rows[k]
        for i in range(start, end):
            slot = _probe(keys, owners, hashes[i])
            if owners[slot] == FREE:
                keys[slot], owners[slot] = hashes[i], owner
                added += 1
    return added
