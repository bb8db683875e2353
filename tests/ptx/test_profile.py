# SPDX-License-Identifier: Apache-2.0
"""A kernel that needs more instructions or memory accesses than recorded is noticed, and the page has the counts."""

import json
from dataclasses import replace

import numpy as np
import pytest

from curation.speeds import DEVICE_RATES
from tests.ptx import profile, workload
from tests.ptx.build import CAPABILITY, other_toolchain, toolchain
from tests.ptx.engine import Device
from tests.ptx.execute import Counts
from tests.ptx.model import batch_speed, ms_of_sums, resident_warps, times_of
from tests.ptx.resources import Resources

RECORDED = json.loads(profile.RECORDED.read_bytes())
MADE = RECORDED["inputs"]["made"]


OTHER = other_toolchain(RECORDED["toolchain"])


@pytest.mark.slow("no kernel of the GPU engine executes more instructions than recorded")
@pytest.mark.skipif(bool(OTHER), reason=OTHER)
def test_counts_are_the_recorded_ones():
    counts, calls = profile.counts_of(workload.made_texts())
    found = profile.changes(counts, MADE["counts"]) + profile.changed_calls(calls, MADE["calls"])
    assert not found, (
        f"counts of {toolchain()} differ from those of {RECORDED['toolchain']}: {found}; if that is intended, "
        "record them with `make ptx-record`"
    )


def test_a_worse_kernel_is_noticed():
    recorded = {name: Counts(**counts) for name, counts in MADE["counts"].items()}
    assert profile.changes(recorded, MADE["counts"]) == []
    counts = recorded["hash_rows"]
    near, far = (replace(counts, sectors=counts.sectors * percent // 100) for percent in (104, 106))
    assert profile.changes({"hash_rows": near}, MADE["counts"]) == []
    (line,) = profile.changes({"hash_rows": far}, MADE["counts"])
    assert line.startswith("hash_rows: sectors was ")
    assert profile.changes({"new_rows": counts}, MADE["counts"]) == ["new_rows: not recorded"]
    (line,) = profile.changes({"hash_rows": replace(counts, atomics=1)}, MADE["counts"])
    assert line == "hash_rows: atomics was 0 and is 1"


def test_another_launch_or_prefix_sum_is_noticed():
    calls = {name: profile.Call(**values) for name, values in MADE["calls"].items()}
    assert profile.changed_calls(calls, MADE["calls"]) == []
    more = {"keys": calls["keys"]._replace(sums=calls["keys"].sums + 1)}
    (line,) = profile.changed_calls(more, MADE["calls"])
    assert line.startswith("keys: was Call(") and profile.changed_calls({"new": calls["keys"]}, MADE["calls"])


def test_prefix_sums_are_counted():
    device = Device(None, CAPABILITY)
    values = np.ones(1000, np.int32)
    np.testing.assert_array_equal(device.prefix_sums(values, np.int32), np.arange(1, 1001))
    assert (device.sums, device.sum_bytes) == (1, 8000)
    device.prefix_sums(values, np.int64)  # converted first: 4 + 8 bytes, then 8 + 8
    assert (device.sums, device.sum_bytes) == (3, 8000 + 28_000)


def test_a_kernel_that_is_never_launched_is_an_error(monkeypatch):
    monkeypatch.setattr(workload, "CALLS", {"hash": workload.CALLS["hash"]})
    with pytest.raises(ValueError, match=r"no call launches .*hash_ngrams, .*: add one to CALLS in tests/ptx"):
        profile.counts_of(["a"])


def test_the_choice_of_an_engine_uses_these_times():
    """The rates of `curation.speeds` are those of the page's table of functions, roughly."""
    found = list(RECORDED["inputs"].values())[-1]
    rows = [row.split(" | ") for row in profile.calls_table(found, RECORDED).splitlines()[2:]]
    speeds = {row[0].removeprefix("| "): float(row[-1].removesuffix(" |")) * 1000 for row in rows}
    calls = ("read JSON Lines", "rewrite", "measure", "hash", "classify", "keys", "hits")
    modelled = [speeds[workload.FUNCTIONS[name]] for name in calls]
    steps = ("parse", "rewrite", "measure", "exact_dedup", "classify", "fuzzy_dedup", "decontaminate")
    assert [DEVICE_RATES[step] for step in steps] == pytest.approx(modelled, rel=0.5)
    assert DEVICE_RATES["tokens"] == pytest.approx(speeds[workload.FUNCTIONS["tokens"]], rel=0.5)


def test_another_release_of_cuda_is_not_compared():
    assert other_toolchain(toolchain()) == ""
    assert other_toolchain(toolchain() | {"nvidia-nvvm": "13.99"}) == ""
    reason = other_toolchain(toolchain() | {"nvidia-nvvm": "12.9.1"})
    assert reason.startswith("recorded with another release of CUDA: ") and "12.9.1" in reason


def test_the_page_has_the_recorded_tables():
    page = profile.PAGE.read_text("utf-8")
    assert all(page.count(mark) == 1 for mark in profile.MARKS)
    assert profile.on_page(page, profile.tables(RECORDED)) == page, "write the page with `make ptx-record`"


@pytest.mark.parametrize(
    ("registers", "shared", "warps"),
    [(16, 0, 64), (32, 0, 64), (33, 0, 48), (40, 0, 48), (64, 0, 32), (118, 0, 16), (128, 0, 16), (255, 0, 8),
     (32, 48 << 10, 16), (32, 1 << 10, 64)],
)  # fmt: skip
def test_warps_of_an_sm(registers, shared, warps):
    assert resident_warps(Resources(registers, 0, shared, 0, 0)) == warps


def test_times_by_hand():
    """10^6 bytes of text, 10^6 warp instructions of 2 machine instructions, 16 warps per SM."""
    counts = Counts(instructions=16_000_000, warp_instructions=1_000_000, longest=9000, loads=1_600_000,
                    sectors=950_400, touched_sectors=150_000)  # fmt: skip
    times = times_of(counts, 1_000_000, Resources(128, 0, 0, 0, 0), machine_per_ptx=2)
    assert times.issue == pytest.approx(2e9 / (132 * 4 * 1.8e9) * 1e3)
    assert times.waits == pytest.approx(1e9 * (8 + 3.5) / (132 * 16 * 1.8e9) * 1e3)
    assert times.l1 == pytest.approx(1.0)
    assert (times.least_memory, times.most_memory) == pytest.approx((1.0, 6.336))
    assert times.longest_thread == pytest.approx(9000 * 11.5 / 1.8e9 * 1e3)
    assert times.per_gb == times.waits
    assert times.batch_speed == pytest.approx(1e3 / times.waits)
    longer = times._replace(longest_thread=2 * times.waits)
    assert longer.batch_speed == pytest.approx(0.268435456 / (2 * times.waits) * 1e3)
    assert ms_of_sums(4.8) == pytest.approx(1)
    launched = 0.268435456 / (0.268435456 * (times.waits + 1) + 0.02) * 1e3
    assert batch_speed([times], 4.8, 4) == pytest.approx(launched)
