# SPDX-License-Identifier: Apache-2.0
"""Hashes strings of n characters: polynomials of their code points modulo 2^64, equal on all engines."""

import numpy as np

from curation.kernels.cache import kernel
from curation.kernels.hashing import GOLDEN, mix64
from curation.kernels.utf8 import decode

MULTIPLIER = GOLDEN  # odd


@kernel
def first_power(size):
    """Return the factor by which the hash of a string of `size` characters multiplies its first character."""
    power = np.uint64(1)
    for _ in range(size - 1):
        power *= MULTIPLIER
    return power


@kernel
def hash_string(data, i, size):
    """The hash of the `size` characters from byte `i`."""
    hashed = np.uint64(0)
    for _ in range(size):
        code_point, width = decode(data, i)
        hashed = hashed * MULTIPLIER + np.uint64(code_point)
        i += width
    return mix64(hashed)
