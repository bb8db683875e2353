# SPDX-License-Identifier: Apache-2.0
"""Processes that share only a folder finish one run: the same bytes for any number of them, with kills, pauses and late
comers."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from curation import __version__
from curation.contract import Engine
from curation.errors import EngineError, InputError, OutputError
from curation.running import map_phase, pieces
from curation.running.array_tasks import parse_array_task
from curation.running.pieces import NAMED, decode_phase, published
from curation.running.run import RunResult, run
from curation.running.stored_plan import Stored
from curation.running.verify import verify
from curation.system import leases as leases_module
from curation.system.leases import Leases
from tests.runs import STAGES, data_digests, digests, made_texts, recipe_of, records_of

CHAIN = [*STAGES, {"kind": "fuzzy_dedup"}]
OUTPUT = {"part_documents": 60, "cleaned": "jsonl", "formats": ["megatron", "blocks"], "blocks": {"length": 64}}


class Place:
    """Made text, and runs over it in slices of some lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "made.jsonl").write_bytes(records_of(made_texts(150)) + b"not json\n")

    def run(self, name: str, **options: Any) -> RunResult:
        recipe = recipe_of(self.folder / "made.jsonl", stages=CHAIN, output=OUTPUT)
        options = {"slice_bytes": 4000, "progress": False, "workers": 1} | options
        return run(recipe, self.folder / name, engine="cpu", **options)

    def begin(self, pool: ThreadPoolExecutor, name: str, task: str) -> "Future[RunResult]":
        """Starts a task of an array in a thread."""
        return pool.submit(partial(self.run, name, array_task=task, lease_seconds=30))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def expected(place: Place) -> dict[str, str]:
    place.run("whole")
    return digests(place.folder / "whole")


class Pause:
    """Stops the first thread that is about to rename a file of this name, as a signal stops a process: its leases are
    not renewed, and are expired at once."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name, self.reached, self.resumed = name, threading.Event(), threading.Event()
        self.made: list[Leases] = []
        begin = Leases.__enter__

        def entered(leases: Leases) -> Leases:
            self.made.append(leases)
            return begin(leases)

        monkeypatch.setattr(Leases, "__enter__", entered)
        for function in ("replace", "rename"):
            monkeypatch.setattr(os, function, partial(self._move, getattr(os, function)))

    def _move(self, move: Callable[..., None], source: Any, target: Any) -> None:
        if not self.reached.is_set() and re.fullmatch(self.name, "/".join(Path(target).parts[-2:])):
            (leases,) = self.made
            with leases._lock:  # the thread that renews waits
                for lease in leases._held:
                    os.utime(lease.path, (0, 0))
                self.reached.set()
                assert self.resumed.wait(30)
        move(source, target)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_array_tasks_writes_the_same_bytes(count: int, place: Place, expected: dict[str, str]):
    name = f"tasks-{count}"
    with ThreadPoolExecutor(count) as pool:
        tasks = [place.begin(pool, name, f"{number}/{count}") for number in range(1, count + 1)]
        finished = [task.result() for task in tasks]
    assert [result.already_complete for result in finished].count(False) == 1
    assert digests(place.folder / name) == expected and verify(place.folder / name) == []
    assert place.run(name, array_task="7/9").already_complete  # comes after the end


@pytest.mark.parametrize(
    "name",
    [
        "segment-0/000001.arrow",
        "segment-0/000001.json",
        "runs/.*",
        "similarity/000000",
        "_work/decision-3.npz",
        "_work/barrier-0.npy",
        "documents/part-00000.parquet",
        "tokens/.*.bin",
        "tokens/.*.idx",
        "blocks/.*",
        "removed/part-00000.parquet",
        "cleaned/part-00000.jsonl",
        "array/report-0.json",
        "[^/]*/report.html",
        "[^/]*/report.json",
    ],
)
def test_a_paused_process_that_wakes_up_after_the_end_changes_nothing(
    name: str, place: Place, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    """Another one has taken over what it held, its part as the driver too, and has finished the run."""
    pause, folder = Pause(name, monkeypatch), f"paused-{name.replace('/', '-')}"
    with ThreadPoolExecutor(2) as pool:
        paused = place.begin(pool, folder, "1/2")
        assert pause.reached.wait(30), f"no file {name}"
        other = place.begin(pool, folder, "2/2")
        assert not other.result(30).already_complete or "report" in name
        before = digests(place.folder / folder)
        pause.resumed.set()
        paused.result(30)
    assert before == digests(place.folder / folder) == expected
    assert verify(place.folder / folder) == []
