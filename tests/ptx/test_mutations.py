# SPDX-License-Identifier: Apache-2.0
"""The program that weakens instructions, on a few kernels."""

from collections import Counter

import numpy as np
import pytest

from tests.ptx import mutations, workload
from tests.ptx.build import compile_to_ptx
from tests.ptx.execute import Executable
from tests.ptx.flow import weakenable
from tests.ptx.test_executor import I64, THREADS, reverse

ONE_PIECE = ["a b c d e f g"]
TEXTS = [*ONE_PIECE, *workload.made_texts(3), workload.several_pieces()]
# Kernels of a call, and how many mutations of a kind must be noticed. In sign_pieces both atomics are minima that a
# plain store passed every test in place of, as long as no text had several pieces.
SAMPLE = [
    ("sign_pieces", "keys", "atomic", 2), ("sign_pieces", "keys", "bound", 1), ("mark_rows", "keys", "atomic", 1),
    ("mark_rows", "keys", "bound", 3), ("join_rows", "overlap", "atomic", 1),
]  # fmt: skip
CALLS = {name: call for name, call, _, _ in SAMPLE}


@pytest.fixture(scope="module")
def launches():
    return mutations.recorded([mutations.call_of(name, TEXTS) for name in sorted({*CALLS.values()})], list(CALLS))


@pytest.mark.parametrize(("name", "call", "kind", "killed"), SAMPLE)
def test_weakened_instructions_are_noticed(launches, name, call, kind, killed):
    """Some copies that the compiler wrote of an instruction are for cases that no launch has."""
    outcomes = Counter(each.outcome for each in mutations.mutations_of(name, launches[name], [kind]))
    assert outcomes["killed"] >= killed and outcomes["survived"] == 0


def test_barriers_between_documents_are_noticed():
    """One block counts lines of several documents in the same shared memory."""
    starts = np.array([0, 40, 41, 41, 140])
    hashes = np.random.default_rng(2).integers(1, 60, 140).astype(np.uint64)
    arguments = np.array([3, 0, 2, 1]), starts, hashes, np.full(140, 5, np.int32), 0, np.zeros((2, 4), np.int32)
    launch = mutations.Launch(1, 64, arguments)
    found = [each.outcome for each in mutations.mutations_of("repeat_items_small", [launch], ["barrier"])]
    assert found == ["killed", "killed"]


def test_what_no_text_shows_survives():
    """Documents of one piece: no other block changes the row."""
    launches = mutations.recorded([mutations.call_of("keys", ONE_PIECE)], ["sign_pieces"])["sign_pieces"]
    outcomes = {each.outcome for each in mutations.mutations_of("sign_pieces", launches, ["atomic"])}
    assert "survived" in outcomes and "killed" not in outcomes


def test_a_bound_that_is_off_by_one_is_noticed(launches):
    found = list(mutations.mutations_of("mark_rows", launches["mark_rows"], ["bound"]))
    off_by_one = [each for each in found if each.kind == "bound off by one" and each.outcome == "killed"]
    assert off_by_one and all("outside all memory" in each.shown for each in off_by_one)
    assert "bound always true" in {each.kind for each in found if each.outcome == "killed"}


def test_a_removed_barrier_is_noticed():
    executable = Executable(compile_to_ptx(reverse, (I64, I64)), weakened=True)
    (number,) = (number for number, kind in weakenable(executable.kernel).items() if kind == "barrier")
    launch = mutations.Launch(1, THREADS, (np.arange(THREADS), np.zeros(THREADS, np.int64)))
    outcome, shown = mutations.Cases(executable, [launch]).outcome_of(number)
    assert outcome == "killed" and "no barrier is between" in shown


def outcomes_of(name, *lines, kind="bound off by one"):
    found = [mutations.Mutation(name, kind, line, "start", "survived", "") for line in lines]
    return [each.outcome for each in mutations.with_reasons(found)]


def test_a_reason_that_another_bound_has_does_not_count():
    assert outcomes_of("mark_items", "if i < start:") == ["not needed"]
    assert outcomes_of("mark_items", "if i < start:", "if i < start and k:") == ["survived", "survived"]
    assert outcomes_of("mark_runs", "if i < start:") == ["survived"]
    assert outcomes_of("mark_items", "if start < i:") == ["survived"]
    assert outcomes_of("mark_items", "if i < start:", kind="bound never true") == ["survived"]


def test_bounds_that_are_killed_have_no_number():
    killed = mutations.Mutation("mark_items", "bound off by one", "if i < start and k:", "start", "killed", "")
    open_one = killed._replace(line="if i < start:", outcome="not reached")
    assert [each.outcome for each in mutations.with_reasons([killed, open_one])] == ["killed", "not needed"]
