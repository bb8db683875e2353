# SPDX-License-Identifier: Apache-2.0
"""The engine "auto" is chosen by the size of the input and its stages, from modelled or measured rates."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from benchmarks import whole_runs
from curation.base import speeds
from curation.base.speeds import HostSpeed, RunWork, engine_times, faster_engine, measured_rates, text_bytes
from curation.running.planning.arguments import work_of

ROOT = Path(__file__).resolve().parents[2]
STEPS = ("parse", "rewrite", "filter", "exact_dedup", "fuzzy_dedup", "tokens", "write")
LABELLED = (*STEPS, "language")
DEVICE = "Made GPU"


@pytest.fixture
def benchmark(tmp_path, monkeypatch):
    """Writes a file as benchmarks.gpu_bench does."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def write(content):
        speeds.benchmark_file().parent.mkdir(exist_ok=True)
        speeds.benchmark_file().write_text(content if isinstance(content, str) else json.dumps(content))

    return write


def test_small_inputs_go_to_the_cpu_and_large_ones_to_the_gpu(benchmark):
    assert faster_engine(RunWork(10**8, STEPS, 16), DEVICE) == (
        "cpu",
        "about 0.100 GB of text take 1 s for the CPU engine on 16 processors and 15 s with Made GPU, start included, "
        "by modelled rates of the GPU and another machine",
    )
    assert faster_engine(RunWork(10**11, STEPS, 4), DEVICE).engine == "gpu"


def test_more_processors_move_the_limit():
    assert [faster_engine(RunWork(4 * 10**9, STEPS, count), DEVICE).engine for count in (1, 64)] == ["gpu", "cpu"]


def test_a_measured_machine_moves_the_limit():
    work, slow, fast = RunWork(10**10, STEPS, 8), HostSpeed(0.2), HostSpeed(4.0)
    assert [faster_engine(work, DEVICE, speed).engine for speed in (slow, None, fast)] == ["gpu", "cpu", "cpu"]
    assert faster_engine(work, DEVICE, fast).reason.endswith("by modelled rates of the GPU and this machine")
    times = [
        engine_times("gpu", work, None, HostSpeed(1, copy, bus)) for copy, bus in ((1e4, 1e4), (1e3, 1e4), (1e4, 1e3))
    ]
    assert times[1].host > times[0].host == times[2].host and times[2].bus == 10 * times[0].bus == 10 * times[1].bus


def test_processes_divide_the_time_of_python():
    one, two = (engine_times("gpu", RunWork(10**10, STEPS, 16, processes=count)) for count in (1, 2))
    assert two == one._replace(python=one.python / 2)


def test_stages_of_the_host_are_no_reason_for_a_gpu():
    assert faster_engine(RunWork(10**12, ("redact", "select", "write"), 2), DEVICE).engine == "cpu"
    assert faster_engine(RunWork(10**12, ("write",), 2, ("tokens",)), DEVICE).engine == "cpu"
    assert faster_engine(RunWork(10**12, ("tokens",), 2), DEVICE).engine == "gpu"


def gigabytes_needed(processors: int, bound: str, steps: Sequence[str]) -> float | None:
    """Return from how much text on the GPU engine is faster, by a bound of its time; None: for no amount."""
    low, high = 0.001, 10_000.0

    def is_faster(gigabytes: float) -> bool:
        work = RunWork(int(gigabytes * 1e9), steps, processors)
        start = speeds.START_SECONDS["gpu"] - speeds.START_SECONDS["cpu"]
        return start + getattr(engine_times("gpu", work), bound)() < engine_times("cpu", work).at_most()

    if not is_faster(high):
        return None
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if is_faster(middle) else (middle, high)
    return high


def test_the_page_has_the_amounts_from_which_a_gpu_is_faster():
    page = (ROOT / "docs" / "installing_gpu.md").read_text("utf-8")
    for bound, steps, amounts, text in (
        ("at_least", STEPS, [2.3, 4.6, 9.1, 18], "than 2.3 GB (2 processors), 4.6 GB (4), 9.1 GB (8) or 18 GB (16)"),
        ("at_most", STEPS, [2.6, 6.2, 19], "than 2.6 GB (2 processors), 6.2 GB (4) or 19 GB (8) | faster; on 16 "),
        ("at_least", LABELLED, [1.2, 2.4, 4.8, 9.7], "2.4 GB (4), 4.8 GB (8) or 9.7 GB (16)"),
        ("at_most", LABELLED, [1.3, 2.9, 7.2, 27], "than 1.3 GB (2 processors), 2.9 GB (4), 7.2 GB (8) or 27 GB (16)"),
    ):  # fmt: skip
        found = [gigabytes_needed(count, bound, steps) for count in (2, 4, 8, 16)]
        assert found == [pytest.approx(each, rel=0.03) for each in amounts] + [None] * (4 - len(amounts))
        assert text in page


def test_measured_rates_win_where_the_device_is_the_same(benchmark):
    found = {"dry": False, "on": {"device": DEVICE}, "megabytes_per_second": {"measure gopher": 5.0, "copy": 9.0}}
    benchmark(found)
    assert measured_rates(DEVICE) == {"measure": 5.0, "filter": 5.0}
    verdict = faster_engine(RunWork(10**12, ("filter",), 1), DEVICE)
    assert verdict.engine == "cpu" and verdict.reason.endswith("by measured rates of the GPU and another machine")
    assert measured_rates("Other GPU") == {}
    benchmark(found | {"dry": True})
    assert measured_rates(DEVICE) == {}


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"dry": false, "on": {"device": "Made GPU"}, "megabytes_per_second": {"hash_text": "x"}}'],
)
def test_a_damaged_benchmark_is_no_benchmark(benchmark, content):
    benchmark(content)
    assert measured_rates(DEVICE) == {}


def test_a_rate_of_zero_is_not_used(benchmark):
    benchmark({"dry": False, "on": {"device": DEVICE}, "megabytes_per_second": {"hash_text": 0}})
    assert measured_rates(DEVICE) == {}


def test_text_of_stored_bytes():
    assert text_bytes(100, 1.0, False) == 100
    assert text_bytes(100, 1.0, True) == 300
    assert text_bytes(100, 2.5, False) == 250
    assert text_bytes(-1, 1.0, True) == 0


def test_work_of_a_recipe(tmp_path):
    from curation.recipes.recipe import convert_recipe
    from curation.running.planning.plan import preflight

    (tmp_path / "a.jsonl").write_text('{"text": "a b"}\n' * 10)
    recipe = {"input": [{"path": str(tmp_path / "a.jsonl")}], "stages": [{"kind": "exact_dedup"}]}
    found = convert_recipe(recipe)
    files, tokenizer, _ = preflight(found, tmp_path / "out")
    assert work_of(found, files, tokenizer, 3)[:4] == (160, ["exact_dedup", "write", "parse", "tokens"], 3, [])
    found = convert_recipe(recipe | {"output": {"formats": []}})
    assert work_of(found, files, None, 3)[:4] == (160, ["exact_dedup", "write", "parse"], 3, [])
    tokens_alone = convert_recipe(recipe | {"output": {"documents": False}})
    assert work_of(tokens_alone, files, tokenizer, 3).steps == ["exact_dedup", "parse", "tokens"]
    for changed in ({"columns": ["url"]}, {"compression": "gzip"}, {"text_column": "a.b"}, {"format": "csv"}):
        others = [msgspec.structs.replace(file, **changed) for file in files]
        assert "parse" not in work_of(found, others, None, 3).steps
    tokenizer = SimpleNamespace(device_note="it has no flat form")
    assert work_of(convert_recipe(recipe), files, tokenizer, 3)[:4] == (
        160,
        ["exact_dedup", "write", "parse"],
        3,
        ["tokens"],
    )


@pytest.mark.parametrize(("scheduler", "asked"), [("threads", 1), ("processes", 2), ("tcp://host:1", 0)])
def test_a_run_asks_for_its_work_and_reports_why(tmp_path, monkeypatch, scheduler, asked):
    from curation.base.engine import EngineChoice
    from curation.recipes.recipe import convert_recipe
    from curation.running import run as runs

    (tmp_path / "a.jsonl").write_text('{"text": "a b"}\n' * 10)
    found = []
    monkeypatch.setattr(runs, "choose_engine", lambda requested: EngineChoice("gpu", "auto: a GPU and cuDF are here"))
    monkeypatch.setattr(
        runs, "suit_engine", lambda work: found.append(work) or EngineChoice("cpu", "auto: it is small")
    )
    monkeypatch.setattr(runs, "drive", lambda call: {"engine_reason": call.choice.reason})
    recipe = convert_recipe({"input": [{"path": str(tmp_path / "a.jsonl")}], "output": {"formats": []}})
    result = runs.run(recipe, tmp_path / "out", scheduler=scheduler, workers=2, progress=False)
    assert found == ([RunWork(160, ["write", "parse"], 2, [], processes=asked)] if asked else [])
    reason = "auto: it is small" if asked else "auto: a GPU and cuDF are here"
    assert result.report["engine_reason"] == reason


def test_the_page_has_the_modelled_whole_runs():
    """`python -m benchmarks.whole_runs --record` writes them."""
    assert whole_runs.recorded() == whole_runs.table()
