# SPDX-License-Identifier: Apache-2.0
"""The benchmarks call the package as it is: each measurement of `bench_peers` runs on a few documents."""

import gzip
import json
from pathlib import Path

import pytest

from benchmarks import cost
from benchmarks.bench_peers import COMPARISONS, WORKS, Place, measure

RUN = {"wall_seconds": 60.0, "peak_memory": 5e8, "peak_disk": 2e9, "tokens": 2e8}
OURS = sorted({comparison.ours.work for comparison in COMPARISONS.values()})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("benchmarks") / "corpus.jsonl"
    lines = [json.dumps({"id": str(k), "text": f"Text {k} says that the sea and the sky are blue."}) for k in range(30)]
    path.write_text("\n".join(lines) + "\n")
    path.with_name("corpus.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    return path


@pytest.mark.parametrize("name", OURS)
def test_a_measurement_runs_and_has_its_times(corpus: Path, tmp_path: Path, name: str):
    found = measure(WORKS[name], corpus, tmp_path / "work", Place(corpus, corpus, tmp_path, tmp_path / "gpt2.json"))
    assert found["user"] >= 0 and found["system"] >= 0
    if "kept" in found:
        assert found["kept"] in range(31)


def runs_of(recipe: str, seconds_of_size: dict[float, tuple[float, ...]]) -> list[dict[str, float | str]]:
    return [
        {**RUN, "recipe": recipe, "bytes": size, "cpu_seconds": seconds}
        for size, own in seconds_of_size.items()
        for seconds in own
    ]


def test_core_hours_of_a_terabyte_repeat_the_growth_of_the_sizes():
    level = runs_of("default", {1e9: (36.0, 18.0), 4e9: (108.0,)})
    assert [cost.core_hours(run) for run in level] == pytest.approx([10, 5, 7.5])
    assert cost.growth(level) == pytest.approx(0)
    assert cost.extrapolated(level) == pytest.approx((5, 10))
    growing = runs_of("plain", {1e9: (36.0,), 1e10: (720.0,)})  # twice as much per byte at ten times the size
    assert cost.extrapolated(growing) == pytest.approx((10, 80))
    shrinking = runs_of("spans", {1e9: (36.0,), 1e10: (180.0,)})
    assert cost.extrapolated(shrinking) == pytest.approx((5, 10))


def test_the_table_of_cost_has_a_row_per_size_and_one_for_a_terabyte():
    runs = runs_of("default", {1e9: (36.0, 18.0), 4e9: (108.0,)})
    heads, _, *rows = cost.table(runs, 0.04)
    assert heads.endswith("| $ per 10^12 tokens at 0.04 $ per core-hour |")
    assert (
        rows[0] == "| default | 1 GB | 2 | 5.0 to 10.0 | 1.0 | 0.50 | 2.00 | 4.0 to 8.0 |"
    )  # tokens: those of the largest size
    assert rows[2] == "| default | 1 TB, extrapolated from 4 GB | 0 | 5.0 to 10.0 |  |  |  | 4.0 to 8.0 |"
    assert "$" not in next(cost.table(runs, None))


def test_a_run_is_measured_in_a_process(corpus: Path, tmp_path: Path):
    found = cost.measure("spans", corpus, tmp_path)
    assert (found["recipe"], found["bytes"], found["documents"]) == ("spans", corpus.stat().st_size, 30)
    assert found["cpu_seconds"] > 0 and found["peak_memory"] > 1e7 and found["peak_disk"] >= found["left_on_disk"] > 0
    assert not (tmp_path / "out").exists()
