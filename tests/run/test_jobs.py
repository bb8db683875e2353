# SPDX-License-Identifier: Apache-2.0
"""What tasks share is written once: nothing that grows with the number of slices travels with a task."""

import pickle
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from curation.engine import load_engine
from curation.recipe import Recipe
from curation.running.map_phase import run_stored, store_job
from curation.running.plan import Plan, digest_of, store_plan
from curation.running.run import run
from tests.run.runs import data_digests, made_texts, recipe_of, records_of


def test_a_task_is_small_however_many_slices_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from cpu_fallback.session import DaskSession

    corpus = tmp_path / "made.jsonl"
    corpus.write_bytes(records_of(made_texts(300)))
    sent: list[int] = []
    slices: list[int] = []

    def watched(self: Any, function: Any, items: Any) -> list[Any]:
        sent.append(len(pickle.dumps(function)))
        slices.append(len(items))
        return mapped(self, function, items)

    mapped = DaskSession.map
    monkeypatch.setattr(DaskSession, "map", watched)
    for number, slice_bytes in enumerate((1 << 30, 300)):
        run(recipe_of(corpus), tmp_path / str(number), engine="cpu", slice_bytes=slice_bytes)
    assert slices[0] == 1 and slices[2] > 100
    assert max(sent) < 1000 and max(sent) - min(sent) < 100
    assert data_digests(tmp_path / "0") == data_digests(tmp_path / "1")


class Named(msgspec.Struct):
    name: str


def test_a_job_of_the_same_folder_is_not_taken_for_another(tmp_path: Path):
    plan = Plan(version="1", recipe=Recipe(), files=[], slices=[], stage_files={}, tokenizer={})
    store_plan(tmp_path / "plan.json", plan)
    seen: list[tuple[str, int]] = []
    for name in ("first", "second", "first"):
        task = (Named, digest_of(tmp_path / "plan.json"), store_job(Named(name), tmp_path / "work"), (len(seen),))
        run_stored(lambda _, job, number: seen.append((job.name, number)), *task)
    assert seen == [("first", 0), ("second", 1), ("first", 2)]
    assert len(list((tmp_path / "work").iterdir())) == 2


def test_tasks_are_begun_in_their_order():
    """The last ones may be the smallest, so that no worker waits long."""
    begun: list[int] = []
    with load_engine("cpu").open_session(1, "threads") as session:
        assert session.map(lambda number: begun.append(number) or -number, range(1100)) == [-k for k in range(1100)]
    assert begun == list(range(1100))


def test_no_task_outlives_its_session():
    """The folder of a run is let go then, and another run may begin in it."""
    ended: list[int] = []
    begun = threading.Event()

    def task(number: int) -> None:
        if number == 0:
            begun.wait(10)
            raise OSError("no space left on device")
        begun.set()
        time.sleep(0.3)
        ended.append(number)

    with pytest.raises(OSError, match="no space left"), load_engine("cpu").open_session(2, "threads") as session:
        session.map(task, range(2))
    assert ended == [1]
