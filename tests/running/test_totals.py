# SPDX-License-Identifier: Apache-2.0
"""Tasks add up the records of many slices: a run with such tasks, killed in the middle or not, has the same outputs."""

from pathlib import Path
from typing import Any

import pytest

from curation.record import row_sums, totals
from curation.results.finished.verify import verify
from curation.running.phases.finish_phase import finish
from curation.running.run import run
from tests.runs import digests, made_texts, recipe_of, records_of

STAGES = [
    {"kind": "filter", "rules": [{"measure": "words", "min": 12}]},
    {"kind": "exact_dedup"},
    {"kind": "filter", "rules": [{"measure": "characters", "min": 60}]},
    {"kind": "fuzzy_dedup", "threshold": 0.5},
]
OUTPUT = {"measures": True, "cleaned": "jsonl", "part_documents": 30}
TIMES = {"seconds", "work_seconds", "peak_memory_bytes", "digest", "report_html", "numbers", "batch_bytes"}


class Stopped(BaseException):
    """What no code of the project catches."""


def facts(report: dict[str, Any]) -> dict[str, Any]:
    """A report without what differs between two equal runs."""
    kept = {name: value for name, value in report.items() if name not in TIMES}
    kept["outputs"] = {name: digest for name, digest in kept["outputs"].items() if "/_meta/" not in name}
    kept["stages"] = [{name: value for name, value in stage.items() if name != "seconds"} for stage in kept["stages"]]
    return kept


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "made.jsonl"
    lines = records_of(made_texts(160)).splitlines(keepends=True)
    path.write_bytes(b"".join(line + (b"not json\n" if number % 40 == 0 else b"") for number, line in enumerate(lines)))
    return path


@pytest.mark.parametrize(
    "scheduler",
    [
        "threads",
        pytest.param(
            "processes", marks=pytest.mark.slow("a run on processes writes the same report as one on threads")
        ),
    ],
)
def test_any_division_has_the_same_report(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: str
):
    recipe = recipe_of(source, stages=STAGES, output=OUTPUT)
    options: dict[str, Any] = {"engine": "cpu", "workers": 2, "slice_bytes": 4000}
    expected = facts(run(recipe, tmp_path / "whole", **options).report)
    assert expected["documents"]["rejected"] == 4 and expected["documents"]["kept"] > 20
    monkeypatch.setattr(totals, "TASK_SLICES", 3)
    monkeypatch.setattr(row_sums, "TASK_PARTITIONS", 3)
    report = run(recipe, tmp_path / "out", **options | {"scheduler": scheduler}).report
    assert facts(report) == expected
    assert verify(tmp_path / "out") == []


@pytest.mark.slow("a run stopped while it counts resumes with the same report")
@pytest.mark.parametrize("kind", ["records", "sizes", "rejected", "measures"])
def test_runs_stopped_in_the_middle_of_a_phase(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    """The tasks that are done are not repeated."""
    monkeypatch.setattr(totals, "TASK_SLICES", 2)
    monkeypatch.setattr(row_sums, "TASK_PARTITIONS", 2)
    recipe = recipe_of(source, stages=STAGES, output=OUTPUT)
    options: dict[str, Any] = {"engine": "cpu", "workers": 1, "slice_bytes": 4000, "progress": False}
    run(recipe, tmp_path / "whole", **options)
    places = {
        "records": (totals, "_add_up"),
        "sizes": (row_sums, "_most_copies"),
        "rejected": (finish.__globals__, "write_rejected"),
        "measures": (finish.__globals__, "write_measures"),
    }
    place, name = places[kind]
    real = place[name] if isinstance(place, dict) else getattr(place, name)
    calls: list[int] = []

    def patch(stop_at: int) -> None:
        def call(*given: Any) -> Any:
            calls.append(1)
            if len(calls) == stop_at:
                raise Stopped
            return real(*given)

        if isinstance(place, dict):
            monkeypatch.setitem(place, name, call)
        else:
            monkeypatch.setattr(place, name, call)

    patch(-1)
    run(recipe, tmp_path / "counted", **options)
    total = len(calls)
    for stop_at in sorted({1, total}):
        calls.clear()
        patch(stop_at)
        with pytest.raises(Stopped):
            run(recipe, tmp_path / f"{stop_at}", **options)
        calls.clear()
        patch(-1)
        run(recipe, tmp_path / f"{stop_at}", **options)
        assert 1 <= len(calls) <= total - stop_at + 1  # another task may end before the run stops
        assert digests(tmp_path / f"{stop_at}") == digests(tmp_path / "whole")
    assert total >= (4 if kind in ("records", "sizes") else 1)
