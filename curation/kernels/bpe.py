# SPDX-License-Identifier: Apache-2.0
"""Finds the ids of pre-tokens: by a table of the vocabulary's tokens, or by merges of pairs if the table lacks the
pre-token.

A token of up to 15 bytes is its own key of 16 bytes, with its length in the last byte. The key of a longer token is a
hash and its length; then its bytes are compared too. A pair of ids and the id of the merged token share one number of
64 bits, so a look-up reads one place.
"""

from typing import Any, NamedTuple

import numpy as np

from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.hashing import combine64, eight_bytes, mix64

at = np.uint64

KEY_BYTES = 15
LENGTH_SHIFT = np.uint64(56)
LONG = np.uint64(0xFF) << LENGTH_SHIFT  # used instead of a length
ID_BITS = 21
MAX_IDS = 1 << ID_BITS
LEFT, RIGHT = np.uint64(2 * ID_BITS), np.uint64(ID_BITS)
ID_MASK = np.uint64(MAX_IDS - 1)
NO_ENTRY = np.uint64(0xFFFFFFFFFFFFFFFF)
MISSING = -1
NO_PAIR = 0x7FFFFFFF  # above every id


class TokenTable(NamedTuple):
    """The tokens of a vocabulary by their bytes.

    keys     uint64, two per slot; the second is 0 in a free one. The number of slots is a power of two
    ids      int32 per slot
    data     uint8: the bytes of all tokens, by id
    offsets  int32, ids + 1, in `data`
    longest  bytes of the longest token
    """

    keys: Any
    ids: Any
    data: Any
    offsets: Any
    longest: int


@kernel
def _first_bytes(block, count):
    """The block with zeros after its first `count` bytes (0 to 8)."""
    if count >= 8:
        return block
    return block & (np.uint64(1) << np.uint64(8 * count)) - np.uint64(1)


@kernel
def token_key(data, blocks, start, end):
    """Two uint64 for the bytes data[start:end], at least one."""
    size = end - start
    first = _first_bytes(eight_bytes(data, blocks, start, end), size)
    if size <= KEY_BYTES:
        second = np.uint64(0)
        if size > 8:
            second = _first_bytes(eight_bytes(data, blocks, start + 8, end), size - 8)
        return first, second | np.uint64(size) << LENGTH_SHIFT
    i = start + 8
    while i < end:
        first = combine64(first + np.uint64(1), _first_bytes(eight_bytes(data, blocks, i, end), end - i))
        i += 8
    return first, LONG | np.uint64(size)


@kernel
def first_slot(first, second, slots):
    """The slot (uint64) where the search for a key starts."""
    return mix64(first ^ mix64(second)) & np.uint64(slots - 1)


@kernel
def find_token(data, blocks, start, end, table):
    """The id of the bytes data[start:end], or MISSING."""
    if end - start > table.longest:
        return MISSING
    first, second = token_key(data, blocks, start, end)
    slots = table.ids.size
    slot = first_slot(first, second, slots)
    while table.keys[slot << np.uint64(1) | np.uint64(1)] != np.uint64(0):
        if table.keys[slot << np.uint64(1)] == first and table.keys[slot << np.uint64(1) | np.uint64(1)] == second:
            token = int(table.ids[slot])
            if end - start <= KEY_BYTES or _is_token(data, start, end, table, token):
                return token
        slot = slot + np.uint64(1) & np.uint64(slots - 1)
    return MISSING


@kernel
def _is_token(data, start, end, table, number):
    offset = np.int64(table.offsets[at(number)])
    for k in range(end - start):
        if data[at(start + k)] != table.data[at(offset + k)]:
            return False
    return True


@kernel
def fill_tokens(blocks, table):
    """Put every token with bytes into the table; `blocks` is `table.data` as uint64 (CPU only)."""
    slots = table.ids.size
    for number in range(table.offsets.size - 1):
        start, end = np.int64(table.offsets[number]), np.int64(table.offsets[number + 1])
        if start < end:
            first, second = token_key(table.data, blocks, start, end)
            slot = first_slot(first, second, slots)
            while table.keys[slot << np.uint64(1) | np.uint64(1)] != np.uint64(0):
                slot = slot + np.uint64(1) & np.uint64(slots - 1)
            table.keys[slot << np.uint64(1)] = first
            table.keys[slot << np.uint64(1) | np.uint64(1)] = second
            table.ids[slot] = number


@kernel
def _pair_slot(left, right, slots):
    key = np.uint64(left) << RIGHT | np.uint64(right)
    return mix64(key) & np.uint64(slots - 1), key


@kernel
def find_pair(pairs, left, right):
    """The id of the token that two tokens merge to, or NO_PAIR."""
    slot, key = _pair_slot(left, right, pairs.size)
    entry = pairs[slot]
    while entry != NO_ENTRY:
        if entry >> RIGHT == key:
            return np.int32(entry & ID_MASK)
        slot = slot + np.uint64(1) & np.uint64(pairs.size - 1)
        entry = pairs[slot]
    return np.int32(NO_PAIR)


@kernel
def fill_pairs(left, right, merged, pairs):
    """Put pairs of ids and their merged ids into a table of free slots (CPU only)."""
    for k in range(left.size):
        slot, key = _pair_slot(left[k], right[k], pairs.size)
        while pairs[slot] != NO_ENTRY:
            slot = slot + np.uint64(1) & np.uint64(pairs.size - 1)
        pairs[slot] = key << RIGHT | np.uint64(merged[k])


@kernel
def merge_pairs(data, start, size, byte_ids, pairs, ids, merges, base, step):
    """Merge the bytes data[start:start + size]: at each step the pair with the smallest merged id, the leftmost of
    these. Return the number of ids.

    byte_ids  int32: the id of each byte
    ids       int32 scratch: the ids are at base, base + step, ...
    merges    int32 scratch with the same layout: the id to which this id and the next one merge
    """
    for k in range(size):
        ids[base + k * step] = byte_ids[at(utf8.byte_at(data, start + k))]
    for k in range(size - 1):
        merges[base + k * step] = find_pair(pairs, ids[base + k * step], ids[base + (k + 1) * step])
    while True:
        best, lowest = 0, np.int32(NO_PAIR)
        for k in range(size - 1):
            merged = merges[base + k * step]
            if merged < lowest:
                best, lowest = k, merged
        if lowest == NO_PAIR:
            return size
        size -= 1
        ids[base + best * step] = lowest
        for k in range(best + 1, size):
            ids[base + k * step] = ids[base + (k + 1) * step]
            merges[base + k * step] = merges[base + (k + 1) * step]
        if best + 1 < size:
            merges[base + best * step] = find_pair(pairs, lowest, ids[base + (best + 1) * step])
        if best > 0:
            merges[base + (best - 1) * step] = find_pair(pairs, ids[base + (best - 1) * step], lowest)


@kernel
def find_merged(data, offsets, byte_ids, pairs):
    """Return whether the bytes of each token merge to exactly this token (CPU only); True for an id without bytes."""
    merged = np.ones(offsets.size - 1, np.bool_)
    longest = np.diff(offsets).max()
    ids, merges = np.empty(longest, np.int32), np.empty(longest, np.int32)
    for number in range(merged.size):
        start, size = np.int64(offsets[number]), np.int64(offsets[number + 1] - offsets[number])
        if size > 0:
            count = merge_pairs(data, start, size, byte_ids, pairs, ids, merges, 0, 1)
            merged[number] = count == 1 and ids[0] == number
    return merged
