# SPDX-License-Identifier: Apache-2.0
"""A kernel that needs more instructions or memory accesses than recorded is noticed, and the page has the counts."""

import json
from dataclasses import replace

import numpy as np
import pytest

from curation.base.speeds import BATCH_MILLISECONDS, DEVICE_RATES
from tests.ptx import profile, workload
from tests.ptx.build import CAPABILITY, other_toolchain, toolchain
from tests.ptx.engine import Device
from tests.ptx.execute import Counts
from tests.ptx.model import Times, batch_speeds, ms_of_sums, python_ms, resident_warps, times_of
from tests.ptx.operations import TALLY, DeviceArray
from tests.ptx.resources import Resources

RECORDED = json.loads(profile.RECORDED.read_bytes())
MADE = RECORDED["inputs"]["made"]


OTHER = other_toolchain(RECORDED["toolchain"])


@pytest.mark.slow("no kernel of the GPU engine executes more instructions than recorded")
@pytest.mark.skipif(bool(OTHER), reason=OTHER)
def test_counts_are_the_recorded_ones():
    """Of kernels, and of what each function and a whole run ask of a device."""
    counts, calls, threads = profile.counts_of(workload.made_texts())
    found = profile.changes(counts, MADE["counts"]) + profile.changed_calls(calls, MADE["calls"])
    assert threads == MADE["threads"]
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


@pytest.mark.slow("the profile of the device code names kernels that no call launches")
def test_a_kernel_that_is_never_launched_is_an_error(monkeypatch):
    monkeypatch.setattr(workload, "CALLS", {"hash": workload.CALLS["hash"]})
    with pytest.raises(ValueError, match=r"no call launches .*hash_ngrams, .*: add one to CALLS in tests/ptx"):
        profile.counts_of(["a"])


def test_operations_and_waits_of_the_engine_are_tallied():
    """Those of CuPy, and no views; pandas and tests do not count."""
    values = np.arange(6).view(DeviceArray)
    engine = {"__file__": "/gpu_pipeline/made.py"}

    def tallied(line):
        TALLY.reset()
        exec(compile(line, "/gpu_pipeline/made.py", "exec"), engine | {"values": values, "np": np})
        return TALLY.operations, TALLY.waits

    assert tallied("values + 1 < 4") == (2, 0)
    assert tallied("values[2:].reshape(2, 2)") == tallied("values[-1]") == (0, 0)
    assert tallied("int(values[-1])") == (0, 1) and tallied("values[1:].sum().item()") == (1, 1)
    assert tallied("values[values > 2]") == (2, 1) and tallied("np.flatnonzero(values)") == (1, 1)
    assert tallied("values[1:3] = 0") == tallied("np.concatenate([values, values])") == (1, 0)
    assert tallied("values.astype(values.dtype, copy=False)") == (0, 0) and tallied("values.astype('u1')") == (1, 0)
    TALLY.reset()
    assert int(values[1:].sum()) and TALLY.operations == TALLY.waits == 0


STEP_CALLS = {
    "parse": "read JSON Lines", "rewrite": "rewrite", "measure": "measure", "filter": "measure",
    "exact_dedup": "hash", "language": "classify", "classify": "classify", "fuzzy_dedup": "keys",
    "decontaminate": "hits", "substring_dedup": "windows", "tokens": "tokens",
}  # fmt: skip


def test_the_choice_of_an_engine_uses_this_model():
    """The rates of `curation.base.speeds` are those of the page's table of functions, lower end."""
    found = RECORDED["inputs"][profile.ON_PAGE]
    speeds = profile.speeds_of(found, RECORDED)
    assert set(DEVICE_RATES) - {"encode"} == set(BATCH_MILLISECONDS) == set(STEP_CALLS)
    for step, name in STEP_CALLS.items():
        assert DEVICE_RATES[step] == pytest.approx(speeds[name].kernels * 1000, rel=0.01), step
        python = profile.Call(**found["calls"][name]).python_ms
        assert BATCH_MILLISECONDS[step] == pytest.approx(python, rel=0.01), step


def test_a_run_asks_for_no_more_than_its_functions():
    """The modelled functions together ask for nearly what a whole run asks for."""
    calls = {name: profile.Call(**values) for name, values in RECORDED["inputs"][profile.ON_PAGE]["calls"].items()}
    steps = [calls[STEP_CALLS[step]] for step in ("parse", "rewrite", "filter", "exact_dedup")]
    assert calls[workload.JOB].python_ms == pytest.approx(sum(call.python_ms for call in steps), rel=0.25)


def test_another_release_of_cuda_is_not_compared():
    assert other_toolchain(toolchain()) == ""
    assert other_toolchain(toolchain() | {"nvidia-nvvm": "13.99"}) == ""
    reason = other_toolchain(toolchain() | {"nvidia-nvvm": "12.9.1"})
    assert reason.startswith("recorded with another release of CUDA: ") and "12.9.1" in reason


def test_the_pages_have_the_recorded_tables():
    for mark, content in profile.tables(RECORDED).items():
        page = profile.PAGES[mark].read_text("utf-8")
        assert page.count(f"<!-- {mark} -->") == page.count(f"<!-- /{mark} -->") == 1
        assert profile.on_page(page, mark, content) == page, "write the pages with `make ptx-record`"


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "warps"),
    [(16, 0, 128, 64), (32, 0, 128, 64), (33, 0, 128, 48), (64, 0, 128, 32), (118, 0, 128, 16), (255, 0, 128, 8),
     (32, 48 << 10, 128, 16), (32, 1 << 10, 128, 64), (16, 0, 32, 32), (116, 12_996, 32, 17), (116, 47_940, 64, 8),
     (130, 38_980, 256, 8), (16, 0, 1024, 64)],
)  # fmt: skip
def test_warps_of_an_sm(registers, shared, threads, warps):
    assert resident_warps(Resources(registers, 0, shared, 0, 0), threads) == warps


def test_times_by_hand():
    """10^6 bytes of text, 10^6 warp instructions of 2 machine instructions, 16 warps per SM."""
    counts = Counts(instructions=16_000_000, warp_instructions=1_000_000, longest=9000, loads=1_600_000,
                    sectors=950_400, touched_sectors=150_000)  # fmt: skip
    times = times_of(counts, 1_000_000, Resources(128, 0, 0, 0, 0), 128, machine_per_ptx=2)
    assert times.issue == pytest.approx(2e9 / (132 * 2 * 1.8e9) * 1e3)
    assert times.waits == pytest.approx(1e9 * (8 + 3.5) / (132 * 16 * 1.8e9) * 1e3)
    assert times.l1 == pytest.approx(1.0)
    assert (times.least_memory, times.most_memory) == pytest.approx((4.8 / 4.3, 30.4128 / 4.3))
    assert times.longest_thread == pytest.approx(9000 * 11.5 / 1.8e9 * 1e3)
    assert (times.cached, times.per_gb) == (times.issue, times.most_memory)
    assert times.batch_ms(2, 10**8) == pytest.approx(0.2)
    assert times._replace(longest_thread=0.3).batch_ms(2, 10**8) == 0.3
    assert ms_of_sums(4.3) == pytest.approx(1)


def test_speeds_by_hand():
    assert python_ms(2, 10, 3, 4) == pytest.approx(0.0132 + 0.036 + 0.0558 + 0.08)
    times = Times(1, 0, 0, 0, 2, 0)
    batch = 10**8  # kernels take 0.1 to 0.2 ms, prefix sums 0.1 ms
    assert batch_speeds([times], 4.3, 0.05, batch) == pytest.approx((0.1 / 0.35e-3, 0.1 / 0.2e-3, 0.1 / 0.3e-3))
    assert batch_speeds([times], 4.3, 1, batch).highest == pytest.approx(100)
