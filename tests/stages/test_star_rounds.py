# SPDX-License-Identifier: Apache-2.0
"""Components by rounds equal those of slow Python and of one task, for any division, order and kill."""

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.base.system.files import make_folder
from curation.base.system.sealed import write_sealed
from curation.stages import FuzzyDedup
from curation.stages.corpus.key_ranges import Division, write_cells
from curation.stages.near import near_groups, star_rounds
from curation.stages.near.star_rounds import Rounds
from tests.stages.divided import CPU, ORDERS, Order, corpus_of, decide_in_order, write_partitions

Pairs = Sequence[tuple[int, int]]
CHAIN = 100_000


def smallest_by_oracle(rows: int, pairs: Pairs) -> list[int]:
    label = list(range(rows))

    def root(row: int) -> int:
        while label[row] != row:
            label[row] = label[label[row]]
            row = label[row]
        return row

    for left, right in pairs:
        low, high = sorted((root(left), root(right)))
        label[high] = low
    return [root(row) for row in range(rows)]


def join(folder: Path, starts: Sequence[int], pairs: np.ndarray, seed: int = 0, add: int = 0) -> tuple[list[int], int]:
    """The smallest row of the component of each row, and the number of rounds. The tasks of a phase run in random
    order. `add` is added to all rows, to have them beyond 2^31."""
    bounds = np.array(starts, np.int64) + add
    corpus: Any = SimpleNamespace(scratch=folder, storage=SimpleNamespace(starts=bounds))
    make_folder(folder / "division")
    write_sealed(folder / "division" / "division.json", list(Division([*range(len(starts))], 1, 1)))
    chance = random.Random(seed)
    slice_group_of = np.searchsorted(bounds, pairs[0] + add, side="right") - 1
    kind = np.int32 if add == 0 else np.int64

    def pairs_of(_: Any, slice_group: int) -> np.ndarray:
        return (pairs[:, slice_group_of == slice_group] + add).astype(kind)

    rounds = Rounds("made", pairs_of, lambda corpus: True)
    for name, tasks, run in rounds.phases():
        if count := tasks(corpus):
            make_folder(folder / name)
        for task in chance.sample(range(count), count):
            run(CPU, corpus, task)
    assert rounds.have_ended(corpus)
    smallest = np.arange(starts[-1])
    members = set()
    for slice_group in range(len(starts) - 1):
        row, first = rounds.stars(corpus, slice_group) - add
        assert (np.diff(row) > 0).all() and ((row >= starts[slice_group]) & (row < starts[slice_group + 1])).all()
        smallest[row] = first
        members |= {*zip(*(rounds.members(corpus, slice_group) - add).tolist(), strict=True)}
    assert members == {(first, row) for row, first in enumerate(smallest.tolist()) if first != row}
    return smallest.tolist(), len([*folder.glob("made_large_*")])


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_components_equal_those_of_slow_python(data: st.DataObject):
    rows = data.draw(st.integers(2, 30))
    row = st.integers(0, rows - 1)
    pairs = data.draw(st.lists(st.tuples(row, row).filter(lambda pair: pair[0] != pair[1]), max_size=40))
    starts = sorted({0, rows, *data.draw(st.lists(st.integers(1, rows), max_size=3))})
    array = np.array(pairs, np.int64).reshape(-1, 2).T
    for add in (0, 2**31):
        with TemporaryDirectory() as folder:
            found, _ = join(Path(folder), starts, array, data.draw(st.integers(0, 99)), add)
        assert found == smallest_by_oracle(rows, pairs)


def zigzag(count: int) -> np.ndarray:
    """Low and high rows by turns: every other row of the path is smaller than both neighbours."""
    order = np.empty(count, np.int64)
    order[::2] = np.arange((count + 1) // 2)
    order[1::2] = np.arange((count + 1) // 2, count)
    return order


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (np.arange(CHAIN), 18),
        (np.random.default_rng(1).permutation(CHAIN), 14),
        (zigzag(CHAIN), 18),
    ],
    ids=["ascending", "random", "zigzag"],
)
def test_a_chain_takes_as_many_rounds_as_its_length_has_bits(tmp_path: Path, order: np.ndarray, expected: int):
    found, rounds = join(tmp_path, [0, 9, 30_000, 30_001, 99_000, CHAIN], np.stack([order[:-1], order[1:]]))
    assert found == [0] * CHAIN and rounds == expected


# The whole stage

DOCUMENTS = 60
SETTINGS: dict[str, dict[str, Any]] = {
    "first": {},
    "longest": {"keep": "longest"},
    "by input": {"keep": ["second"]},
    "unchecked": {"verify": "none"},
}


def made_partitions(folder: Path, is_chain: bool) -> Any:
    """Documents of four kinds in groups and crowds of three bands; or a chain of documents of which only neighbours
    share a band. A partition has 7."""
    chance = np.random.default_rng(5)
    row = np.arange(DOCUMENTS)
    bands = [row // 2, (row + 1) // 2, row] if is_chain else chance.integers(0, 9, (3, DOCUMENTS))
    keys = {f"band_{band:03d}": (values + is_chain).astype(np.uint64) for band, values in enumerate(bands)}
    kinds = row * 0 if is_chain else chance.integers(0, 4, DOCUMENTS)
    texts = [f"word{kind}" + " " * int(chance.integers(4)) for kind in kinds]
    sizes = [*[7] * (DOCUMENTS // 7), DOCUMENTS % 7]
    return write_partitions(folder / "segment", keys, sizes, texts)


def decided(partitions: Any, order: Order, stage: FuzzyDedup) -> tuple[list[list[int]], dict[str, Any], set[str]]:
    """The removed rows with the kept ones, the details, and the phases that had tasks."""
    corpus = corpus_of(partitions, np.ones(DOCUMENTS, bool), workers=2, sources=[("first", 0, 20), ("second", 20, 60)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("curation.stages.near.near_pairs.SMALL", 3)
        decision = decide_in_order(patch, stage, corpus, order)
    [drops] = decision.drops
    rows = [values.tolist() for values in (drops.row, np.asarray(drops.partner), np.asarray(drops.value))]
    phases = {path.name for path in corpus.scratch.iterdir()}
    shutil.rmtree(corpus.scratch)
    return rows, dict(decision.details), phases


@pytest.mark.slow("groups joined by rounds are the same as those of one task")
@pytest.mark.parametrize(
    ("case", "is_chain"),
    [*((case, False) for case in SETTINGS), ("longest", True)],
)
def test_groups_by_rounds_equal_those_of_one_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, is_chain: bool
):
    stage = FuzzyDedup(bands=3, rows=5, **SETTINGS[case])
    partitions = made_partitions(tmp_path, is_chain)
    rows_and_kept, details, phases = decided(partitions, ORDERS[1], stage)
    assert len(rows_and_kept[0]) > 20 and not any("start" in name for name in phases)
    for limit, rounds, order in [(0, 32, 0), (0, 32, 2), (0, 1, 1), (0, 0, 3), (5, 32, 1)]:
        monkeypatch.setattr(near_groups, "JOIN_PAIRS", limit)
        monkeypatch.setattr(star_rounds, "ROUNDS", rounds)
        found, others, phases = decided(partitions, ORDERS[order], stage)
        assert str(found) == str(rows_and_kept) and others == details  # as text: NaN equals NaN
        assert any("start" in name for name in phases)
        if rounds == 32:
            assert not phases & {"joined", "groups"} and ("representatives" in phases) == (stage.keep != "first")
        elif rounds == 0:  # one task joins what is left
            assert ("groups" if is_chain else "joined") in phases


@pytest.mark.parametrize("limit", [0, 1 << 23])
def test_pairs_that_stars_have_joined_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int):
    """Of the six pairs of four equal documents, three are stars. A fifth one is different: its three other pairs are
    compared."""
    monkeypatch.setattr(near_groups, "JOIN_PAIRS", limit)
    keys = {f"band_{band:03d}": np.ones(5, np.uint64) for band in range(3)}
    partitions = write_partitions(tmp_path / "segment", keys, [1, 2, 2], ["same", "same", "other", "same", "same"])
    corpus = corpus_of(partitions, np.ones(5, bool))
    decision = decide_in_order(monkeypatch, FuzzyDedup(bands=3), corpus, ORDERS[0])
    assert decision.drops[0].row.tolist() == [1, 3, 4] and decision.details["pairs_compared"] == 4 + 3


class Killed(BaseException):
    """What no code of the project catches."""


@pytest.mark.slow("rounds that are killed at each file end in the same groups")
@pytest.mark.parametrize("after", [False, True], ids=["before the file", "after the file"])
def test_rounds_that_are_killed_at_each_file_end_in_the_same_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
):
    stage = FuzzyDedup(bands=3, rows=5, keep="longest")
    partitions = made_partitions(tmp_path, False)
    expected = decided(partitions, ORDERS[1], stage)[:2]
    monkeypatch.setattr(near_groups, "JOIN_PAIRS", 0)
    killed: set[Path] = set()

    def write(path: Path, *arguments: Any) -> None:
        if path in killed:
            return write_cells(path, *arguments)
        killed.add(path)
        if after:
            write_cells(path, *arguments)
        raise Killed

    for module in (star_rounds, near_groups):
        monkeypatch.setattr(module, "write_cells", write)
    while True:
        try:
            found = decided(partitions, ORDERS[1], stage)
            break
        except Killed:
            pass
    assert found[:2] == expected
    folders = {path.parent.name for path in killed}
    assert {"joined_large_00", "joined_small_00", "groups_large_00", "groups_small_00", "representatives"} <= folders
    assert len(killed) > 40
