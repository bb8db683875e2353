# SPDX-License-Identifier: Apache-2.0
"""Tables of n-grams: those of evaluation texts, which are looked up on both machines, and those that kept documents
have, document after document. The latter on the host alone: each verdict needs the last."""

import numpy as np
from numba import njit

FREE = np.int32(-1)  # owner of an empty slot


@njit(cache=True, nogil=True)
def _slot_of(keys, owners, mask, key):
    """The slot that holds `key`, or the free one where it belongs (linear probing)."""
    slot = key & mask
    while owners[slot] != FREE and keys[slot] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(cache=True, nogil=True)
def fill_table(hashes, owner, keys, owners):
    """Puts hashes, which all differ, into an empty table."""
    mask = np.uint64(len(keys) - 1)
    for k in range(len(hashes)):
        slot = _slot_of(keys, owners, mask, hashes[k])
        keys[slot], owners[slot] = hashes[k], owner[k]


@njit(cache=True, nogil=True)
def find_ngrams(hashes, count, keys, owners):
    """How many of hashes[:count] are in the table, and the owner of the first one (FREE where there is none)."""
    mask = np.uint64(len(keys) - 1)
    found = 0
    owner = FREE
    for k in range(count):
        slot = _slot_of(keys, owners, mask, hashes[k])
        if owners[slot] != FREE:
            owner = owners[slot] if found == 0 else owner
            found += 1
    return found, owner


@njit(cache=True, nogil=True)
def _commonest(values, count):
    """The value that comes most often in values[:count], the smallest of equals; sorts them."""
    values[:count].sort()
    best = values[0]
    best_run = run = 0
    for k in range(count):
        run = run + 1 if k and values[k] == values[k - 1] else 1
        if run > best_run:
            best, best_run = values[k], run
    return best


@njit(cache=True, nogil=True)
def pass_documents(hashes, offsets, long_enough, first, share, keys, owners, found, kept, value):
    """Decides about documents one after the other; number k of them is document `first + k` of the corpus.

    A document's n-grams are hashes[offsets[k]:offsets[k + 1]], all different. It goes when at least `share` of them
    are in the table, or it is not `long_enough` for any; otherwise its n-grams go into the table. `kept` gets -1 for
    a document that stays, -2 for one without n-grams, else the document that brought most of what was seen; `value`
    the share that was seen. `found` is scratch for as many items as the longest document has n-grams.
    """
    mask = np.uint64(len(keys) - 1)
    for k in range(len(offsets) - 1):
        start, end = offsets[k], offsets[k + 1]
        if not long_enough[k]:
            kept[k], value[k] = -2, 1.0
            continue
        seen = 0
        for i in range(start, end):
            slot = _slot_of(keys, owners, mask, hashes[i])
            if owners[slot] != FREE:
                found[seen] = owners[slot]
                seen += 1
        value[k] = seen / (end - start)
        if value[k] >= share:
            kept[k] = _commonest(found, seen)
            continue
        kept[k] = -1
        for i in range(start, end):
            slot = _slot_of(keys, owners, mask, hashes[i])
            if owners[slot] == FREE:
                keys[slot], owners[slot] = hashes[i], first + k
