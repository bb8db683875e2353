# SPDX-License-Identifier: Apache-2.0
"""Equal keys are found the same way however a corpus is divided into tasks."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.stages import ExactDedup
from curation.stages.corpus import key_ranges
from curation.stages.corpus.key_ranges import divide
from curation.stages.invoke import run_phase_task, run_phases
from tests.stages.divided import CPU, ORDERS, corpus_of, decide_in_order, write_partitions

# Few different keys, 0 and the largest ones among them.
KEYS = st.lists(st.tuples(st.sampled_from([0, 1, 2**64 - 1, 2**63]), st.integers(0, 2), st.booleans()), max_size=40)


@settings(max_examples=6, deadline=None)
@given(KEYS, st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_exact_duplicates_equal_a_dictionary(rows: list[tuple[int, int, bool]], cuts: list[int]):
    counts = []
    for cut in cuts:
        counts.append(min(cut, len(rows) - sum(counts)))
    counts.append(len(rows) - sum(counts))
    firsts: dict[tuple[int, int], int] = {}
    expected = [
        (row, firsts[key])
        for row, key in enumerate((high, low) for high, low, _ in rows)
        if rows[row][2] and firsts.setdefault(key, row) != row
    ]
    keys = {name: np.array([row[k] for row in rows], np.uint64) for k, name in enumerate(("high", "low"))}
    for order in ORDERS:
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            partitions = write_partitions(Path(folder) / "segment", keys, counts)
            corpus = corpus_of(partitions, np.array([row[2] for row in rows], bool))
            [drops] = decide_in_order(patch, ExactDedup(), corpus, order).drops
            assert list(zip(drops.row.tolist(), drops.partner.tolist(), strict=True)) == expected


def test_a_resumed_run_keeps_its_division(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    keys = {name: np.arange(60, dtype=np.uint64) // 3 for name in ("high", "low")}
    partitions = write_partitions(tmp_path / "segment", keys, [20, 20, 20])
    monkeypatch.setattr(key_ranges, "MIN_GROUP_ROWS", 5)
    monkeypatch.setattr(key_ranges, "RANGE_KEYS", 10)

    class Killed(BaseException):
        pass

    ran: list[tuple[int, int]] = []

    def run_until(last: int):
        def run(place: int, tasks: list[int]) -> None:
            for task in tasks:
                if len(ran) == last:
                    raise Killed
                ran.append((place, task))
                run_phase_task(ExactDedup(), CPU, corpus, place, task)

        return run

    for last, workers in ((2, 1), (4, 7), (10**6, 2)):
        corpus = corpus_of(partitions, np.ones(60, bool), workers=workers)
        try:
            run_phases(ExactDedup(), corpus, run_until(last))
        except Killed:
            continue
    assert len(ran) == len(set(ran)) == 1 + 2 + 2 + 2  # the division, slice groups, reducers, slice groups
    assert ExactDedup().decide(CPU, corpus).drops[0].row.tolist() == [k for k in range(60) if k % 3]


@pytest.mark.parametrize("rows", [0, 1, 100, 70_000, 10_000_000])
def test_divisions_cover_all_partitions_once(rows: int):
    counts = [0, *[rows // 50] * 50, rows - rows // 50 * 50, 0]
    starts = np.concatenate([[0], np.cumsum(counts)])
    for workers in (1, 64):
        division = divide(starts, 21, workers)
        assert division.slice_groups[0] == 0 and division.slice_groups[-1] == len(counts)
        assert division.slice_groups == sorted(set(division.slice_groups))
        assert [cell for k in range(division.reducers) for cell in division.cells(k, 21)] == [
            *range(21 * division.ranges)
        ]
