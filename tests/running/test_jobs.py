# SPDX-License-Identifier: Apache-2.0
"""Tasks share a plan and a job: stored as data, read once per process, and refused where they were changed. Nothing
that grows with the number of slices travels with a task."""

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import msgspec
import numpy as np
import pytest

from curation import __version__
from curation.base.engine import load_engine
from curation.base.errors import IntegrityError
from curation.base.system.sealed import sealed, unsealed
from curation.base.system.sessions import TaskSession
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.slice_table import Columns, SliceTable
from curation.reading.slices import cut_slices
from curation.recipes.recipe import Recipe
from curation.record import jobs
from curation.record.jobs import load_job, run_stored, store_job
from curation.record.partitions import Partitions
from curation.record.stored_plan import Plan, digest_of, keep_plan, read_stored_plan, store_plan
from curation.running.run import run
from tests.runs import data_digests, made_texts, recipe_of, records_of


class Job(msgspec.Struct, frozen=True, kw_only=True):
    folder: Path
    mask: Path | None
    rows: np.ndarray
    partitions: Partitions
    tables: dict[int, Path]


def job_in(folder: Path) -> Job:
    return Job(
        folder=folder,
        mask=None,
        rows=np.array([3, 2**62], np.int64),
        partitions=Partitions(folder / "segment", [2, 5]),
        tables={7: folder / "x"},
    )


def plan_of(folder: Path) -> Plan:
    for name in ("a", "b"):
        (folder / f"{name}.jsonl").write_bytes(b'{"text": "x"}\n' * 3)
    slices = SliceTable.of(cut_slices(find_files([Input(path=str(folder))]), 20))
    return Plan(
        version=__version__, recipe=Recipe(), files=[], slices=slices, stage_files={}, tokenizer={"sha256": "0"}
    )


def test_nothing_that_was_changed_is_loaded(tmp_path: Path):
    stored = store_job(job_in(tmp_path), tmp_path)
    stored.path.write_bytes(stored.path.read_bytes().replace(b"segment", b"elsewhere"))
    with pytest.raises(IntegrityError, match=r"job-\w+\.json has changed"):
        load_job(Job, stored)


def test_threads_that_begin_together_read_a_job_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store_plan(tmp_path / "plan.json", plan_of(tmp_path))
    plan, job = digest_of(tmp_path / "plan.json"), store_job(job_in(tmp_path), tmp_path)
    together, seen, loads = Barrier(8), [], []
    decode = jobs._decode

    def slow(kind: type[Any], value: Any) -> Any:
        if kind is np.ndarray:
            loads.append(1)
            time.sleep(0.05)
        return decode(kind, value)

    monkeypatch.setattr(jobs, "_decode", slow)

    def task(number: int) -> None:
        together.wait()
        run_stored(lambda _, job, at: seen.append((id(job), at)), Job, plan, job, (number,))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(task, range(8)))
    assert len(loads) == 1 and len({job for job, _ in seen}) == 1
    assert sorted(at for _, at in seen) == list(range(8))


def test_a_plan_is_kept_over_the_jobs_of_all_phases(tmp_path: Path):
    """A second copy of it would take a kilobyte per file."""
    plan, path = plan_of(tmp_path), tmp_path / "plan.json"
    store_plan(path, plan)
    stored, seen = digest_of(path), []
    keep_plan(stored, plan)
    for number in range(4):
        job = store_job(job_in(tmp_path / str(number)), tmp_path)
        run_stored(lambda found, *_: seen.append(found is plan), Job, stored, job, (number,))
    assert seen == [True] * 4


def int64(*values: int) -> bytes:
    return np.array(values, "<i8").tobytes()


def columns_of(file: int = 0, start: int = 0, stop: int = 1, ends: bytes = int64(1)) -> Columns:
    number = np.array([file], "<i4").tobytes()
    return Columns(ends=ends, file=number, start=int64(start), stop=int64(stop), edges=bytes(16))


@pytest.mark.parametrize(
    "columns",
    [
        columns_of(ends=int64(0)),
        columns_of(ends=int64(2)),
        columns_of(ends=int64(1, 0)),
        columns_of(file=2),
        columns_of(file=-1),
        columns_of(start=5),
        columns_of(start=-1),
    ],
)
def test_a_forged_plan_is_damaged(columns: Columns, tmp_path: Path):
    path = tmp_path / "_work" / "plan.json"
    store_plan(path, plan_of(tmp_path))
    content = msgspec.json.decode(unsealed(path.read_bytes()))
    forged = msgspec.json.encode(content | {"slices": columns})
    for data, told in ((forged, "its content does not match its digest"), (sealed(forged), "a slice")):
        path.write_bytes(data)
        with pytest.raises(IntegrityError, match=rf"plan\.json is damaged: {told}.* Start over with --force"):
            read_stored_plan(path)


def test_a_slice_of_a_table_equals_the_planned_one(tmp_path: Path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.jsonl").write_bytes(b'{"text": "x"}\n' * (40 if name == "b" else 1))
    (tmp_path / "d.parquet").write_bytes(b"")
    slices = list(cut_slices(find_files([Input(path=str(tmp_path / "*.jsonl"))]), 100))
    table = SliceTable.of(slices)
    assert len(slices) == len(table) == 8 and list(table) == slices
    assert (table[-1], table[2:4]) == (slices[-1], slices[2:4])
    with pytest.raises(IndexError):
        table[8]
    assert table.stored_sizes().tolist() == [14, *[93] * 6, 14]


@pytest.mark.slow("a task is small however many slices there are")
def test_a_task_is_small_however_many_slices_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    corpus = tmp_path / "made.jsonl"
    corpus.write_bytes(records_of(made_texts(300)))
    sent: dict[str, list[int]] = {}
    slices: list[int] = []

    def watched(self: Any, function: Any, items: Any, *done: Any) -> None:
        chosen = list(items)
        name = next((each.__name__ for each in function.args if callable(each)), function.func.__name__)
        sent.setdefault(name, []).append(len(pickle.dumps(function)))
        slices.append(len(chosen))
        run_session(self, function, chosen, *done)

    run_session = TaskSession.run
    monkeypatch.setattr(TaskSession, "run", watched)
    for number, slice_bytes in enumerate((1 << 30, 300)):
        run(recipe_of(corpus), tmp_path / str(number), engine="cpu", slice_bytes=slice_bytes)
    assert slices[0] == 1 and max(slices) > 100
    assert {"run_slice", "write_output_parts", "delete_share"} < {*sent}
    assert all(max(sizes) < 1000 and max(sizes) - min(sizes) < 50 for sizes in sent.values()), sent
    assert data_digests(tmp_path / "0") == data_digests(tmp_path / "1")


class Named(msgspec.Struct):
    name: str


def test_a_job_of_the_same_folder_is_not_taken_for_another(tmp_path: Path):
    plan = Plan(version="1", recipe=Recipe(), files=[], slices=SliceTable.of([]), stage_files={}, tokenizer={})
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
