# SPDX-License-Identifier: Apache-2.0
"""Computes the hashes of `rolling_shingles` by masks of 64 bytes and by loops that LLVM compiles to vector code."""

import numpy as np

from cpu_fallback import rolling_shingles
from cpu_fallback.masks import AHEAD, NO_BITS, ONE, append_positions, first_bits, lowest_bit, prefetch, space_masks
from cpu_fallback.vector_scan import hash_words
from curation.kernels.cache import kernel
from curation.kernels.hashing import FMIX_1, combine64, load64, load_tail, mix64
from curation.kernels.minhash import BASE, first_bytes, space_width, swap_bytes

at = np.uint64
MAX_PASSES = 16  # longer n-grams use `rolling_shingles`: here, each word of the n-gram costs one pass over all words


def allocate_words(longest: int) -> tuple[np.ndarray, ...]:
    """Return the arrays that `shingle_hashes` writes, for documents of up to `longest` bytes."""
    return (
        np.empty(longest + 9, np.int64),  # edges: where words start and end, alternating
        np.empty(longest // 2 + 1, np.uint64),  # word_hash
        np.empty(longest // 2 + 1, np.uint64),  # pending: the last bytes of each word
    )


@kernel
def _find_words(data, start, end, pages, records, flags, edges):
    """Write where words start and end; return the number of words."""
    num_edges = 0
    last_visible = next_spaces = NO_BITS
    base = start
    while base < end:
        prefetch(data, base + AHEAD)
        spaces, starts = space_masks(data, base)
        valid = ~NO_BITS if end - base >= 64 else first_bits(end - base)
        spaces |= next_spaces
        next_spaces = NO_BITS
        starts &= valid
        while starts:
            k = lowest_bit(starts)
            starts &= starts - ONE
            width = space_width(data, base + k, pages, records, flags)
            spaces |= first_bits(width) << at(k)
            if k + width > 64:
                next_spaces = first_bits(k + width - 64)
        visible = ~spaces & valid
        num_edges = append_positions(visible ^ (visible << ONE | last_visible), base, edges, num_edges)
        last_visible = visible >> at(63)
        base += 64
    if last_visible:
        edges[at(num_edges)] = end
        num_edges += 1
    return num_edges >> 1


@kernel
def _load_words(data, words, edges, last_block, pending):
    """Write two big-endian numbers for each word. `last_block` is its last whole block of eight bytes, with the blocks
    before it hashed into it; `pending` has the bytes after that block. Eight bytes are read even for a shorter word,
    since a branch on the length cannot be predicted."""
    safe = words  # words with eight readable bytes after them
    while safe > 0 and edges[at(2 * safe - 1)] + 8 > len(data):
        safe -= 1
    for w in range(safe):
        i = edges[at(2 * w)]
        left = edges[at(2 * w + 1)] - i
        whole = NO_BITS - at(left >= 8)
        block = swap_bytes(load64(data, i)) & whole
        i += int(whole & at(8))
        left -= int(whole & at(8))
        while left >= 8:
            block = combine64(ONE, block) * FMIX_1 + swap_bytes(load64(data, i))
            i += 8
            left -= 8
        last_block[at(w)] = block
        pending[at(w)] = first_bytes(load64(data, i), at(left))
    for w in range(safe, words):
        first, end = edges[at(2 * w)], edges[at(2 * w + 1)]
        block = NO_BITS
        i = first
        while end - i >= 8:
            before = combine64(ONE, block) * FMIX_1 if i > first else NO_BITS
            block = before + swap_bytes(load64(data, i))
            i += 8
        last_block[at(w)] = block
        pending[at(w)] = first_bytes(load_tail(data, i, end - i), at(end - i))


@kernel
def _join_words(word_hash, words, ngram, out):
    """Write the hashes of the n-grams of words: their polynomials, one power of BASE per pass."""
    size = min(ngram, words)
    count = words - size + 1
    for k in range(at(count)):
        out[k] = word_hash[k]
    for power in range(at(1), at(size)):
        for k in range(at(count)):
            out[k] = out[k] * BASE + word_hash[k + power]
    for k in range(at(count)):
        out[k] = mix64(out[k])
    return count


@kernel
def shingle_hashes(data, start, end, ngram, by_character, pages, records, flags, scratch, out):
    """Write the hashes of `rolling_shingles.shingle_hashes`; return their number. `scratch` is from
    `allocate_words`."""
    if by_character or ngram > MAX_PASSES:
        return rolling_shingles.shingle_hashes(data, start, end, ngram, by_character, pages, records, flags, out)
    edges, word_hash, pending = scratch
    words = _find_words(data, start, end, pages, records, flags, edges)
    if words == 0:
        return 0
    _load_words(data, words, edges, word_hash, pending)
    hash_words(words, edges, pending, word_hash)
    return _join_words(word_hash, words, ngram, out)
