# SPDX-License-Identifier: Apache-2.0
"""The sample of ids: exact for few documents, bounded for many, and equal however documents are divided."""

import re

import numpy as np
import pytest

from curation.record.repeated_ids import MODULUS, MOST, IdSample


@pytest.mark.parametrize(
    ("documents", "repeated"), [(20, 0), (20, 3), (256, 100), (3_000, 0), (40_000, 9_000), (10**6, 3 * 10**5)]
)
def test_repeated_ids_are_counted_or_estimated(documents: int, repeated: int):
    rng = np.random.default_rng(documents)
    different = rng.integers(0, 2**64, documents - repeated, np.uint64)
    hashes = rng.permutation(np.concatenate([different, different[:repeated]]))
    whole, parts = IdSample(), IdSample()
    whole.add(hashes)
    for part in np.array_split(hashes, 7):
        sample = IdSample()
        sample.add(part)
        parts.add(np.array(sample.hashes, np.uint64), sample.modulus)
    assert (sorted(parts.hashes), parts.modulus) == (sorted(whole.hashes), whole.modulus)
    assert len({*whole.hashes}) <= MOST or whole.modulus == MODULUS
    numbers = [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", whole.warning())[:2]]
    if not repeated:
        assert numbers == []
    elif whole.modulus == 1:
        assert numbers == [repeated, documents - repeated]
    else:
        assert "repeat: about" in whole.warning()
        assert numbers == pytest.approx([repeated, documents - repeated], rel=0.25)


@pytest.mark.parametrize("copies", [3, 10, 50])
def test_many_copies_do_not_spoil_the_estimate(copies: int):
    ids = np.random.default_rng(1).integers(0, 2**64, 5_194, np.uint64)
    once, often = IdSample(), IdSample()
    for _ in range(copies):
        often.add(ids)
    for _ in range(2):
        once.add(ids)
    assert often == once and 128 <= len({*often.hashes}) <= MOST
    [repeated, different] = re.findall(r"about ([\d,]+)", often.warning())
    assert repeated == different and int(repeated.replace(",", "")) == pytest.approx(5_194, rel=0.15)
