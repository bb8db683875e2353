# SPDX-License-Identifier: Apache-2.0
"""The constants of MinHash. The constants must never change, since later runs read saved signatures and band keys.

SplitMix64 (Steele, Lea, Flood 2014) generates them and is implemented here: NumPy does not promise equal streams across
versions. A change of hashes, constants or keys needs a new VERSION.
"""

import numpy as np

VERSION = 1
MASK = 2**64 - 1


def _split_mix(state: int) -> int:
    x = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def constants(permutations: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """`a` (odd) and `b` of the permutations x -> (a * x + b) mod 2^32: two uint32 arrays of length `permutations`.

    The high half of output n of SplitMix64, started at `seed`, is a[n / 2] for even n, and b[(n - 1) / 2] for odd n.
    More permutations of the same seed begin with the same constants.
    """
    outputs = [_split_mix(seed + (n + 1) * 0x9E3779B97F4A7C15 & MASK) >> 32 for n in range(2 * permutations)]
    return np.array(outputs[0::2], np.uint32) | np.uint32(1), np.array(outputs[1::2], np.uint32)
