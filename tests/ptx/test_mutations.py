# SPDX-License-Identifier: Apache-2.0
"""The program that weakens instructions, on a few kernels."""

import numpy as np
import pytest

from tests.ptx import mutations, workload
from tests.ptx.build import compile_to_ptx
from tests.ptx.execute import Executable
from tests.ptx.flow import weakenable
from tests.ptx.test_executor import I64, THREADS, reverse

SAMPLE = {"mark_rows": "keys", "sign_pieces": "keys", "join_rows": "overlap"}
ONE_PIECE = ["a b c d e f g"]
TEXTS = [*ONE_PIECE, *workload.made_texts(3), workload.several_pieces()]


@pytest.fixture(scope="module")
def launches():
    return mutations.recorded([mutations.call_of(name, TEXTS) for name in set(SAMPLE.values())], list(SAMPLE))


@pytest.mark.parametrize("name", SAMPLE)
def test_weakened_atomics_are_noticed(launches, name):
    """Some copies that the compiler wrote of an instruction are for cases that no launch has."""
    outcomes = {each.outcome for each in mutations.mutations_of(name, launches[name], ["atomic"])}
    assert "killed" in outcomes and "survived" not in outcomes


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
