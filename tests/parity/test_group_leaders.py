# SPDX-License-Identifier: Apache-2.0
"""`group_leaders` equals a dictionary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

# Sorting or joining through float64 or int64 would confuse these.
EDGES = (0, 1, 2**31, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1)
LOWEST, HIGHEST = -(2**63), 2**63 - 1


def expected_leaders(keys: np.ndarray, rank: np.ndarray) -> list[int]:
    """For each row the position of the smallest rank with the same key."""
    rows = [tuple(map(int, row)) for row in keys]
    leaders: dict[tuple[int, ...], int] = {}
    for position, key in enumerate(rows):
        if key not in leaders or int(rank[position]) < int(rank[leaders[key]]):
            leaders[key] = position
    return [leaders[key] for key in rows]


def assert_leaders(engine, keys: np.ndarray, rank: np.ndarray) -> None:
    untouched = keys.copy(), rank.copy()
    leaders = engine.group_leaders(keys, rank)
    assert isinstance(leaders, np.ndarray)
    assert (leaders.dtype, leaders.shape) == (np.int32, rank.shape)
    assert leaders.tolist() == expected_leaders(keys, rank)
    assert engine.group_leaders(keys).tolist() == expected_leaders(keys, np.arange(len(keys)))
    assert np.array_equal(keys, untouched[0])
    assert np.array_equal(rank, untouched[1])


def random_rank(random: np.random.Generator, rows: int) -> np.ndarray:
    return random.permutation(rows).astype(np.int64) * 3 - rows


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 1000])
class TestShapes:
    def test_all_equal(self, engine, rows, width):
        keys = np.full((rows, width), 2**64 - 1, np.uint64)
        assert_leaders(engine, keys, random_rank(np.random.default_rng(1), rows))

    def test_all_different(self, engine, rows, width):
        keys = np.arange(rows * width, dtype=np.uint64).reshape(rows, width) + np.uint64(2**63)
        assert_leaders(engine, keys, random_rank(np.random.default_rng(2), rows))

    def test_random_groups(self, engine, rows, width):
        random = np.random.default_rng(3)
        keys = random.choice(np.array(EDGES, np.uint64), (rows, width))
        assert_leaders(engine, keys, random_rank(random, rows))

    def test_rank_in_order_of_rows(self, engine, rows, width):
        keys = np.random.default_rng(4).integers(0, 5, (rows, width), np.uint64)
        assert_leaders(engine, keys, np.arange(rows, dtype=np.int64))
        assert_leaders(engine, keys, np.arange(rows, dtype=np.int64)[::-1].copy())


def test_keys_that_share_all_columns_but_one(engine):
    keys = np.array([[7, 1, 9], [7, 2, 9], [8, 1, 9], [7, 1, 8], [7, 1, 9], [1, 7, 9]], np.uint64)
    rank = np.array([5, 4, 3, 2, 1, 0], np.int64)
    assert engine.group_leaders(keys, rank).tolist() == [4, 1, 2, 3, 4, 5]


def test_of_equal_ranks_the_first_row_leads(engine):
    keys = np.array([[1], [2], [1], [2], [1], [3]], np.uint64)
    rank = np.array([5, 4, HIGHEST, 4, 5, LOWEST], np.int64)
    assert engine.group_leaders(keys, rank).tolist() == [0, 1, 0, 1, 0, 5]


def test_neighbours_beyond_float64_stay_apart(engine):
    keys = np.array([[2**53], [2**53 + 1], [2**64 - 1], [2**64 - 2], [2**53]], np.uint64)
    rank = np.array([HIGHEST, HIGHEST - 1, LOWEST + 1, LOWEST, HIGHEST - 2], np.int64)
    assert engine.group_leaders(keys, rank).tolist() == [4, 1, 2, 3, 4]


def test_columns_that_are_not_contiguous(engine):
    wide = np.random.default_rng(5).integers(0, 3, (60, 4), np.uint64)
    rank = random_rank(np.random.default_rng(6), 60)
    assert_leaders(engine, wide[:, 1:3], rank)
    assert_leaders(engine, np.asfortranarray(wide), rank)


@pytest.mark.parametrize("workers", [2, 3, 50])
@pytest.mark.parametrize("different", [1, 1000, 10**9])
def test_workers_share_the_keys(engine, workers, different, monkeypatch):
    monkeypatch.setattr("cpu_fallback.dedup.KEYS_PER_THREAD", 1000)
    random = np.random.default_rng(7)
    keys = random.integers(0, different, (20_000, 1), np.uint64)
    rank = random_rank(random, len(keys))
    for ranks in (rank, None):
        shared = engine.group_leaders(keys, ranks, workers)
        np.testing.assert_array_equal(shared, engine.group_leaders(keys, ranks), strict=True)
    assert shared[:300].tolist() == [int(np.argmax(keys[:, 0] == key)) for key in keys[:300, 0]]


@given(data=st.data(), width=st.integers(1, 3))
def test_generated_keys(engine, data, width):
    ranks = data.draw(st.lists(st.integers(LOWEST, HIGHEST), unique=True, max_size=30))
    row = st.tuples(*[st.sampled_from(EDGES[:4] + EDGES[-3:])] * width)
    keys = data.draw(st.lists(row, min_size=len(ranks), max_size=len(ranks)))
    assert_leaders(engine, np.array(keys, np.uint64).reshape(-1, width), np.array(ranks, np.int64))
