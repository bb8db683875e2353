# SPDX-License-Identifier: Apache-2.0
"""The instructions that kernels execute are within 3 % of the record of `benchmarks/instructions.py`."""

import json
import os
from importlib.metadata import version

import pytest

from benchmarks.instructions import LIBRARIES, RECORD, cannot_count, compare, count_instructions

RECORDED = json.loads(RECORD.read_text())


@pytest.mark.slow("no kernel of the CPU engine executes more instructions than recorded")
def test_counts_are_those_recorded():
    if not os.environ.get("CI"):
        pytest.skip("takes 20 to 60 s; make bench-instructions runs it")
    if reason := cannot_count():
        pytest.skip(reason)
    if RECORDED["versions"] != {name: version(name) for name in LIBRARIES}:
        pytest.skip(f"counts are recorded for {RECORDED['versions']}")
    assert compare(count_instructions(), RECORDED["counts"]) == []


def test_changes_of_more_than_three_percent_are_named():
    recorded = {"same": 1000, "slower": 1000, "faster": 1000, "gone": 1}
    counts = {"same": 1029, "slower": 1031, "faster": 969, "new": 1}
    assert compare(counts, recorded) == [
        "faster: 969 instructions, -3.1% of the 1,000 recorded",
        "gone: recorded, but not counted",
        "new: not recorded",
        "slower: 1,031 instructions, +3.1% of the 1,000 recorded",
    ]
