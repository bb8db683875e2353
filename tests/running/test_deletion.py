# SPDX-License-Identifier: Apache-2.0
"""Folders of a run are deleted by tasks, and a run that is killed meanwhile is resumed without work on documents."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from curation.results.finished.verify import verify
from curation.running import phase_loop
from curation.running.run import run
from curation.running.tasks import deletion
from curation.running.tasks.deletion import delete_share
from tests.runs import digests, made_texts, recipe_of, records_of

STAGES = [{"kind": "exact_dedup"}, {"kind": "fuzzy_dedup", "threshold": 0.5}]


@pytest.mark.parametrize("shares", [1, 2, 7])
def test_shares_delete_each_file_once(shares: int, tmp_path: Path):
    (tmp_path / "below").mkdir()
    for number in range(50):
        (tmp_path / f"{number:06d}.arrow").touch()
    left = [50]
    for share in reversed(range(shares)):
        delete_share(0, (share, tmp_path, share, shares))
        left.append(len([*tmp_path.glob("*.arrow")]))
    assert left[-1] == 0 and sorted({*left}, reverse=True) == left  # each share has deleted some
    assert (tmp_path / "below").is_dir()
    delete_share(0, (0, tmp_path / "missing", 0, shares))


class Stopped(BaseException):
    """What no code of the project catches."""


class Unlinks:
    """Counts the files that tasks delete, and stops the run at one of them."""

    def __init__(self, stop_at: int = -1) -> None:
        self.seen: list[str] = []
        self.stop_at = stop_at
        self.real: Callable[[Any], None] = os.unlink

    def __call__(self, path: Any) -> None:
        if len(self.seen) == self.stop_at:
            raise Stopped
        self.seen.append(Path(path).name)
        self.real(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @property
    def unlink(self) -> Callable[[Any], None]:
        return self


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "made.jsonl"
    path.write_bytes(records_of(made_texts(60)) + b"not json\n")
    return path


@pytest.mark.slow("runs that are stopped while they delete files resume")
@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_runs_stopped_while_files_are_deleted(
    scheduler: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    recipe = recipe_of(source, stages=STAGES)
    options: dict[str, Any] = {"engine": "cpu", "workers": 2, "slice_bytes": 4000}
    monkeypatch.setattr(deletion, "os", whole := Unlinks())
    run(recipe, tmp_path / "whole", **options)
    expected, total = digests(tmp_path / "whole"), len(whole.seen)
    assert total > 60 and not (tmp_path / "whole" / "_work").exists()
    places = {0, 3, total // 3, total // 2, total - 1} if scheduler == "threads" else {total // 2}
    for stop_at in sorted(places):
        output = tmp_path / f"{scheduler}-{stop_at}"
        monkeypatch.setattr(deletion, "os", Unlinks(stop_at))
        with pytest.raises(Stopped):
            run(recipe, output, **options)
        assert not (output / "report.json").exists()
        monkeypatch.setattr(deletion, "os", os)
        finished = [] if (output / "_work" / "report.json").exists() else ["again"]
        ran: list[str] = []
        real = phase_loop.run_corpus_stages

        def counted(*given: Any, ran: list[str] = ran, real: Any = real) -> Any:
            ran.append("again")
            return real(*given)

        monkeypatch.setattr(phase_loop, "run_corpus_stages", counted)
        run(recipe, output, **options | {"scheduler": scheduler})
        monkeypatch.setattr(phase_loop, "run_corpus_stages", real)
        assert ran == finished
        assert digests(output) == expected and verify(output) == []
        assert not (output / "_work").exists()
