# SPDX-License-Identifier: Apache-2.0
"""`substring_dedup` with an index in processes of any kind: the same bytes, and after stops and kills too."""

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from curation.recipes.recipe import convert_recipe
from curation.results.finished.verify import verify
from curation.running.run import run
from curation.stages.exact import span_blocks
from tests.needs import needs
from tests.runs import digests, records_of
from tests.stages.test_substring_dedup import SPANS, made_pages

INDEX = {"formats": [], "index": True}


class Place:
    """An index of some pages, and runs over others that use it and save one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, pages in (("old", made_pages(12, 5)), ("new", made_pages(25))):
            (folder / f"{name}.jsonl").write_bytes(records_of(pages))
        self.run("old", "old", SPANS)

    def run(self, name: str, source: str = "new", stage: dict[str, Any] | None = None, **options: Any) -> None:
        stage = stage or SPANS | {"verify": "bytes", "min_kept": 5, "index": str(self.folder / "old/index")}
        recipe = {"input": [{"path": str(self.folder / f"{source}.jsonl")}], "stages": [stage], "output": INDEX}
        options = {"workers": 1, "slice_bytes": 2500, "progress": False} | options
        run(convert_recipe(recipe), self.folder / name, engine="cpu", **options)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_blocks, "BLOCK_RECORDS", 60)
        made = Place(tmp_path_factory.mktemp("spans"))
        made.run("whole")
    return made


@pytest.fixture(scope="module")
def expected(place: Place) -> dict[str, str]:
    assert verify(place.folder / "whole") == []  # also loads the types of a report, which msgspec cannot in two threads
    return digests(place.folder / "whole")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_blocks, "BLOCK_RECORDS", 60)
    monkeypatch.setattr("curation.stages.corpus.key_ranges.MIN_GROUP_ROWS", 20)


@pytest.mark.slow("array tasks cut the same spans")
def test_array_tasks_write_the_same_bytes(place: Place, expected: dict[str, str]):
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda task: place.run("tasks", array_task=f"{task}/3", lease_seconds=30), (1, 2, 3)))
    assert digests(place.folder / "tasks") == expected and verify(place.folder / "tasks") == []


@pytest.mark.slow("spans that are cut on a Dask cluster give the same bytes")
def test_a_dask_cluster_writes_the_same_bytes(place: Place, expected: dict[str, str]):
    distributed = needs("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None, silence_logs=False,
        protocol="tcp://", host="127.0.0.1",
    ) as cluster:  # fmt: skip
        place.run("dask", workers=0, scheduler=cluster.scheduler_address)
    assert digests(place.folder / "dask") == expected


class Stopped(BaseException):
    """What no code of the project catches."""


@pytest.mark.slow("an index of spans survives a stop at each rename")
def test_a_run_that_stops_at_each_rename_of_an_index(place: Place, expected: dict[str, str], monkeypatch):
    """One run, which stops again after each file of the stage and of the index that it writes."""
    real, seen = os.replace, set[str]()

    def replace(source: Any, target: Any) -> None:
        real(source, target)
        name = os.path.relpath(target, place.folder / "stopped")
        if name not in seen and any(part in name for part in ("stage-0", "saving-0", "index")):
            seen.add(name)
            raise Stopped

    monkeypatch.setattr(os, "replace", replace)
    for _ in itertools.count():
        with suppress(Stopped):
            place.run("stopped")
            break
    names = " ".join(seen)
    for folder in ("anchors/", "windows_compared/", "cuts/", "frequent/", "saving-0/joined/", "saving-0/files/"):
        assert folder in names, folder
    assert len(seen) > 60 and digests(place.folder / "stopped") == expected
