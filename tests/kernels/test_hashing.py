# SPDX-License-Identifier: Apache-2.0
"""The inverse of the mix of 64 bits."""

import numpy as np

from curation.kernels.hashing import mix64, unmix64


def test_a_mixed_number_is_found_again():
    numbers = np.concatenate(
        [np.arange(100, dtype=np.uint64), np.random.default_rng(1).integers(0, 2**64, 100, np.uint64)]
    )
    mixed = [mix64(number) for number in numbers]
    assert mix64.py_func(numbers.copy()).tolist() == mixed
    assert unmix64.py_func(np.array(mixed, np.uint64)).tolist() == numbers.tolist()
    assert [unmix64(np.uint64(number)) for number in mixed] == numbers.tolist()
