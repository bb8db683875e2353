# SPDX-License-Identifier: Apache-2.0
"""Finds and hashes items (words or characters) of many documents at once; work is divided by bytes instead of
documents.

Masks have one bit per byte of the text. Each uint32 covers 32 bytes; the first uint32 begins at byte `origin`, a
multiple of 32. `blocks` is the text as little-endian uint64, without a last partial number, since CUDA loads only
aligned numbers.
"""

import numpy as np

from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.hashing import GOLDEN, combine64, eight_bytes, load_tail, mix64
from curation.kernels.minhash import add_item, first_bytes, space_width, swap_bytes
from curation.kernels.words import HIGH_BITS, finish_word, mark_spaces

at = np.uint64  # unsigned indices need no test for negatives

LAST_BIT = np.uint32(31)
# Moves bit 0 of byte k to bit 56 + k; no two bits of a product meet, so nothing carries.
GATHER = np.uint64(0x0102040810204080)


@kernel
def block_at(data, blocks, i):
    """The bytes data[i:i + 8] for `i` a multiple of 8; zeros beyond the end."""
    if i + 8 <= data.size:
        return blocks[at(i >> 3)]
    return load_tail(data, i, max(data.size - i, 0))


@kernel
def is_solid(data, i, pages, records, flags):
    """Whether the character that starts at `i` is not white space. No character of four bytes is white space. The bytes
    of null rows may have any value; these bytes are read too, but their items are not used.
    """
    lead = utf8.byte_at(data, i)
    if lead >= 0xF0 or i + utf8.lead_width(lead) > data.size:
        return True
    return space_width(data, i, pages, records, flags) == 0


@kernel
def solid_bits(data, blocks, i, pages, records, flags):
    """Return a bit (0 to 7) for each byte of the block at `i` whose character is not white space."""
    block = block_at(data, blocks, i)
    if block & HIGH_BITS == np.uint64(0):
        return int((mark_spaces(block) >> np.uint64(7)) * GATHER >> np.uint64(56)) ^ 0xFF
    solid = True
    if i > 0 and int(block & np.uint64(0xC0)) == 0x80:  # a character that starts in the block before
        solid = is_solid(data, utf8.start_of(data, max(i - 3, 0), i), pages, records, flags)
    bits = 0
    for k in range(min(8, data.size - i)):
        if int(block >> np.uint64(8 * k) & np.uint64(0xC0)) != 0x80:
            solid = is_solid(data, i + k, pages, records, flags)
        bits |= int(solid) << k
    return bits


@kernel
def lead_bits(data, blocks, i):
    """Return a bit (0 to 7) for each byte of the block at `i` that starts a character."""
    block = block_at(data, blocks, i)
    following = block & ~(block << np.uint64(1)) & HIGH_BITS
    return int((following >> np.uint64(7)) * GATHER >> np.uint64(56)) ^ 0xFF


@kernel
def bits_below(bit):
    """The bits 0 to `bit` - 1 (`bit` from 0 to 31)."""
    return np.uint32((1 << bit) - 1)


@kernel
def hash_word(data, blocks, start, end):
    """The hash of the word data[start:end], as the CPU engine computes it."""
    state = np.uint64(0)
    i = start
    block = eight_bytes(data, blocks, i, end)
    while i + 8 <= end:
        state = combine64(state + np.uint64(1), swap_bytes(block))
        i += 8
        block = eight_bytes(data, blocks, i, end)
    return finish_word(state, first_bytes(block, np.uint64(end - i)), end - start)


@kernel
def hash_character(data, i):
    """The hash of the character at `i`, as the CPU engine computes it."""
    if i + utf8.lead_width(utf8.byte_at(data, i)) > data.size:  # under a null
        return np.uint64(0)
    return mix64(np.uint64(utf8.decode(data, i)[0]) + GOLDEN)


@kernel
def hash_ngram(hashes, first, k, ngram):
    """Return the hash of the n-gram that starts at item `k`, and whether there is one. The hash is that of the CPU
    engine.

    hashes   uint64, of the items of all documents
    first    bool, items + 1: whether a document starts at the item

    A document with fewer items than `ngram` has one n-gram, itself.
    """
    value = hashes[at(k)]
    size = 1
    while size < ngram and not first[at(k + size)]:
        value = add_item(value, hashes[at(k + size)])
        size += 1
    return mix64(value), size == ngram or first[at(k)]
