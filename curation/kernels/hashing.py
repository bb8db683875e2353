# SPDX-License-Identifier: Apache-2.0
"""Hashes: murmur3_x64_128 for identity, cheap 64-bit mixing for tables inside one document. Hashes are uint64."""

import numpy as np

from curation.kernels.cache import kernel

at = np.uint64  # unsigned indices need no test for negatives

MURMUR_C1 = np.uint64(0x87C37B91114253D5)
MURMUR_C2 = np.uint64(0x4CF5AD432745937F)
FMIX_1 = np.uint64(0xFF51AFD7ED558CCD)
FMIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
PAIR_MULTIPLIER = np.uint32(0x9E3779B1)


@kernel
def mix64(x):
    """The 64-bit finaliser of MurmurHash3 of a uint64: every input bit affects every output bit."""
    x ^= x >> np.uint64(33)
    x *= FMIX_1
    x ^= x >> np.uint64(33)
    x *= FMIX_2
    x ^= x >> np.uint64(33)
    return x


@kernel
def unmix64(x):
    """The uint64 whose `mix64` is `x`."""
    x ^= x >> np.uint64(33)
    x *= np.uint64(0x9CB4B2F8129337DB)  # 1 / FMIX_2 modulo 2^64
    x ^= x >> np.uint64(33)
    x *= np.uint64(0x4F74430C22A54005)  # 1 / FMIX_1
    x ^= x >> np.uint64(33)
    return x


@kernel
def combine64(left, right):
    """Return a hash of two uint64 that depends on their order. This hash is cheaper than `mix64`, and good enough for
    tables of one document."""
    x = left * FMIX_1 + right
    x ^= x >> np.uint64(32)
    x *= GOLDEN
    x ^= x >> np.uint64(29)
    return x


@kernel
def load64(data, i):
    """The eight bytes data[i:i + 8] as a little-endian uint64.

    The load is written byte by byte, since CUDA has no unaligned loads. On x86, LLVM merges the bytes into one load if
    the index is unsigned; a signed index may be negative, which costs a check per byte.
    """
    j = np.uint64(i)
    return (
        np.uint64(data[j])
        | np.uint64(data[j + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[j + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[j + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[j + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[j + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[j + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[j + np.uint64(7)]) << np.uint64(56)
    )


@kernel
def store64(out, i, value):
    """Write a uint64 to out[i:i + 8], little-endian."""
    j = np.uint64(i)
    out[j] = np.uint8(value)
    out[j + np.uint64(1)] = np.uint8(value >> np.uint64(8))
    out[j + np.uint64(2)] = np.uint8(value >> np.uint64(16))
    out[j + np.uint64(3)] = np.uint8(value >> np.uint64(24))
    out[j + np.uint64(4)] = np.uint8(value >> np.uint64(32))
    out[j + np.uint64(5)] = np.uint8(value >> np.uint64(40))
    out[j + np.uint64(6)] = np.uint8(value >> np.uint64(48))
    out[j + np.uint64(7)] = np.uint8(value >> np.uint64(56))


@kernel
def load_tail(data, i, count):
    """The `count` (0 to 8) bytes from `i` as a little-endian uint64, zero above."""
    value = np.uint64(0)
    for k in range(count):
        value |= np.uint64(data[i + k]) << np.uint64(8 * k)
    return value


@kernel
def eight_bytes(data, blocks, i, end):
    """Return a block whose first bytes are data[i:min(end, i + 8)]; the bytes after them are unspecified."""
    j = i >> 3
    if j + 1 >= blocks.size:
        return load_tail(data, i, min(end - i, 8))
    bits = np.uint64(i & 7) * np.uint64(8)
    # Two shifts, since one shift by 64 is undefined.
    return blocks[at(j)] >> bits | blocks[at(j + 1)] << np.uint64(1) << (np.uint64(63) - bits)


@kernel
def _rotate(x, bits):
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@kernel
def _scramble_first(k):
    return _rotate(k * MURMUR_C1, 31) * MURMUR_C2


@kernel
def _scramble_second(k):
    return _rotate(k * MURMUR_C2, 33) * MURMUR_C1


@kernel
def murmur3_x64_128(data, start, end):
    """MurmurHash3_x64_128, seed 0 (Appleby, smhasher), of data[start:end]: both halves as uint64."""
    h1 = np.uint64(0)
    h2 = np.uint64(0)
    i = start
    while i + 16 <= end:
        h1 ^= _scramble_first(load64(data, i))
        h1 = (_rotate(h1, 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
        h2 ^= _scramble_second(load64(data, i + 8))
        h2 = (_rotate(h2, 31) + h1) * np.uint64(5) + np.uint64(0x38495AB5)
        i += 16
    if end - i > 8:
        h2 ^= _scramble_second(load_tail(data, i + 8, end - i - 8))
        h1 ^= _scramble_first(load64(data, i))
    else:
        h1 ^= _scramble_first(load_tail(data, i, end - i))
    h1 ^= np.uint64(end - start)
    h2 ^= np.uint64(end - start)
    h1 += h2
    h2 += h1
    h1 = mix64(h1)
    h2 = mix64(h2)
    h1 += h2
    h2 += h1
    return h1, h2


@kernel
def slot_of_pair(key, shift):
    """The first slot (uint32) of a key (uint32) in a table of 2^(32 - shift) slots."""
    return np.uint32(np.uint32(key * PAIR_MULTIPLIER) >> shift)


@kernel
def table_mask(items):
    """Index mask (uint64) of the smallest power of two, 4 or more, that is at least twice `items`."""
    size = np.uint64(4)
    while size < np.uint64(2) * np.uint64(items):
        size *= np.uint64(2)
    return size - np.uint64(1)
