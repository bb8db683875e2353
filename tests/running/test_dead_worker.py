# SPDX-License-Identifier: Apache-2.0
"""Workers of a cluster that die in the middle of a run change nothing of it. Where none is left, or one piece of work
ends them all, one message says so, and the run can go on."""

import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from curation.base.errors import EngineError, OutOfMemoryError
from curation.base.system import cluster as cluster_module
from curation.base.system.progress import Progress
from curation.recipes.recipe import Recipe, load_recipe
from curation.results.finished.verify import verify
from curation.running.run import run
from tests.models.tiny_files import write_static
from tests.needs import needs
from tests.runs import data_digests, digests, made_texts, recipe_of, records_of
from tests.stages.test_semantic_recipe import made_texts as letters

needs("distributed")

SCHEDULER = "from distributed.cli.dask_scheduler import main; main()"
# Before it renames a file, a worker looks for a mark of the target and kills the process named in it, or itself.
WORKER = """
import os, pathlib, signal
from distributed.cli.dask_worker import main

folder, rename = pathlib.Path(os.environ["MARKS"]), os.replace

def replace(source, target):
    name = "-".join(pathlib.Path(target).parts[-2:])
    for mark in folder.glob(f"{name}-*"):
        victim = int(mark.read_text() or os.getpid())
        mark.unlink()
        os.kill(victim, signal.SIGKILL)
    rename(source, target)
    with open(folder.with_name("renamed"), "a") as file:
        print(name, file=file)

os.replace = replace
main()
"""


class Cluster:
    """A scheduler and its workers, each a process. Workers have one thread and no nanny, which would replace them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.marks, self.file = folder, folder / "marks", folder / "scheduler.json"
        self.marks.mkdir()
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start(SCHEDULER, "--host", "127.0.0.1", "--port", "0")

    def _start(self, code: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code, "--scheduler-file", str(self.file), "--no-dashboard", *options]
        settings = {"MARKS": str(self.marks), "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)

    def provide(self, count: int) -> str:
        """Starts workers until there are so many; gives the address of the scheduler."""
        from distributed import Client

        options = "--no-nanny", "--nthreads", "1", "--local-directory", str(self.folder)
        alive = sum(worker.poll() is None for worker in self.workers)
        self.workers += [self._start(WORKER, *options) for _ in range(count - alive)]
        while not self.file.exists() or not self.file.read_bytes().endswith(b"}"):  # the scheduler writes it in pieces
            assert self.scheduler.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.02)
        address = json.loads(self.file.read_bytes())["address"]
        with Client(address) as client:
            client.wait_for_workers(count, timeout=60)
        return address

    def mark(self, name: str, times: int = 1, victim: str = "") -> None:
        """Has the worker die that is about to write this file, given as FOLDER-NAME, or the process `victim`."""
        for number in range(times):
            (self.marks / f"{name}-{number}").write_text(victim)

    def take_marks(self) -> list[str]:
        """Takes the marks away that nobody came to."""
        left = sorted(self.marks.iterdir())
        for mark in left:
            mark.unlink()
        return [mark.name for mark in left]

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.end()


class Place:
    """Made text, and runs over it in slices of some lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "made.jsonl").write_bytes(records_of(made_texts(400)) + b"not json\n")

    def run(self, name: str, **options: Any) -> Path:
        recipe = recipe_of(self.folder / "made.jsonl", output={"part_documents": 60})
        run(recipe, self.folder / name, engine="cpu", slice_bytes=4000, **options)
        return self.folder / name


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def expected(place: Place) -> dict[str, str]:
    return digests(place.run("whole"))


@pytest.fixture(scope="module")
def survived(cluster: Cluster, place: Place) -> Path:
    """A run that one worker leaves in the middle of a slice, and another one in the middle of an output part."""
    address = cluster.provide(3)
    for name in ("segment-0-000012.arrow", "documents-part-00001.parquet"):
        cluster.mark(name)
    output = place.run("survived", scheduler=address)
    assert cluster.take_marks() == []
    assert [worker.poll() for worker in cluster.workers].count(-signal.SIGKILL) == 2
    return output


@pytest.mark.slow("other workers run the remaining tasks of dead cluster workers")
def test_what_dead_workers_had_to_do_is_redone(expected: dict[str, str], survived: Path):
    found = digests(survived)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.slow("dead cluster workers leave no files")
def test_nothing_else_is_left_of_dead_workers(expected: dict[str, str], survived: Path):
    assert digests(survived).keys() == expected.keys()
    assert verify(survived) == []


@pytest.mark.slow("tasks that dead workers had completed do not run again")
def test_what_dead_workers_had_done_is_not_redone(survived: Path, cluster: Cluster):
    written = Counter((cluster.folder / "renamed").read_text().split())
    records = {name: count for name, count in written.items() if name.startswith("segment-0-") and ".json" in name}
    assert {name: count for name, count in records.items() if count > 1} == {}


ALL_PHASES: list[tuple[str, str, int]] = [  # small tasks, so that each phase has several
    ("curation.stages.near.near_groups", "JOIN_PAIRS", 1), ("curation.stages.corpus.key_ranges", "MIN_GROUP_ROWS", 40),
    ("curation.stages.corpus.key_ranges", "RANGE_KEYS", 90),
    ("curation.stages.vectors.vector_clusters", "OWNER_VECTORS", 60),
    ("curation.record.totals", "TASK_SLICES", 3), ("curation.record.row_sums", "TASK_PARTITIONS", 3),
    ("curation.running.phases.exports", "MANY_SLICES", 5), ("curation.running.phases.finish_phase", "SIZED_SLICES", 3),
]  # fmt: skip

PHASES = {
    "segment-1", "totals-1", "sums-1", "joined_large_00", "groups_start_00", "large_groups", "compared", "recall",
    "count_0",
    "copies", "outputs", "lookups", "finish", "removed-part", "measures-part", "raw-part", "cleaned-part",
    "sorted", "files-keys",
}  # fmt: skip


def set_constants() -> None:
    for module, name, value in ALL_PHASES:
        setattr(importlib.import_module(module), name, value)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A recipe with all kinds of stages that compare documents, and most outputs."""
    folder = tmp_path_factory.mktemp("everything")
    write_static(folder / "model")
    (folder / "letters.jsonl").write_bytes(records_of(letters(150)))
    words = records_of(made_texts(60)).splitlines(keepends=True)
    (folder / "words.jsonl").write_bytes(
        b"".join(line + b"no record\n" * (k % 30 == 0) for k, line in enumerate(words))
    )
    stages = [
        {"kind": "filter", "rules": [{"measure": "words", "min": 4}]},
        {"kind": "exact_dedup"},
        {"kind": "fuzzy_dedup", "threshold": 0.9, "ngram": 1},
        {"kind": "embed", "model": str(folder / "model")},
        {"kind": "semantic_dedup", "threshold": 0.998, "clusters": 1},
        {"kind": "mix", "weights": {"letters": 1, "words": 2}, "documents": 60},
    ]
    output = {"raw": "csv", "cleaned": "jsonl", "index": True, "measures": True, "shuffle": True, "part_documents": 20}
    return recipe_of(folder / "letters.jsonl", folder / "words.jsonl", stages=stages, output=output)


@pytest.fixture(scope="module")
def everything_alone(everything: Recipe, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The outputs of one process, with tasks of the usual sizes."""
    folder = tmp_path_factory.mktemp("alone")
    report = run(everything, folder, engine="cpu", workers=1, progress=False).report
    removed = {stage["kind"]: sum(stage["reasons"].values()) for stage in report["stages"]}
    assert min(removed.pop(kind) for kind in ("filter", "exact_dedup", "fuzzy_dedup", "semantic_dedup")) > 0
    assert report["documents"]["copies"] > 0 and report["documents"]["rejected"] > 0
    assert verify(folder) == []
    return digests(folder)


@pytest.mark.slow("all phases on a cluster write the bytes of one machine")
def test_all_phases_on_a_cluster(
    cluster: Cluster, everything: Recipe, everything_alone: dict[str, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    from distributed import Client

    for module, name, value in ALL_PHASES:
        monkeypatch.setattr(f"{module}.{name}", value)
    address = cluster.provide(2)
    log = cluster.folder / "renamed"
    log.touch()
    before = len(log.read_text().split())
    with Client(address) as client:
        client.run(set_constants)
    options: dict[str, Any] = {"engine": "cpu", "slice_bytes": 5000, "progress": False}
    run(everything, tmp_path / "out", scheduler=address, **options)
    for worker in cluster.workers:  # the next test gets workers with the usual constants
        worker.kill()
        worker.wait()
    assert digests(tmp_path / "out") == everything_alone
    assert {name.rpartition("-")[0] for name in log.read_text().split()[before:]} >= PHASES


@pytest.mark.slow("array tasks whose worker dies in any phase give the same bytes")
def test_all_phases_as_array_tasks(
    everything: Recipe, everything_alone: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for module, name, value in ALL_PHASES:
        monkeypatch.setattr(f"{module}.{name}", value)
    options: dict[str, Any] = {"engine": "cpu", "workers": 1, "slice_bytes": 5000, "progress": False}
    with ThreadPoolExecutor(2) as pool:
        [*pool.map(lambda task: run(everything, tmp_path / "out", array_task=task, **options), ("1/2", "2/2"))]
    assert digests(tmp_path / "out") == everything_alone


@pytest.mark.slow("a slice that ends every worker is named, and the run ends")
def test_a_slice_that_ends_every_worker(cluster: Cluster, place: Place):
    address = cluster.provide(2)
    cluster.mark("segment-0-000003.arrow", times=2)
    with pytest.raises(OutOfMemoryError, match=f"2 workers of {address} died on the same task"):
        place.run("every", scheduler=address)
    assert cluster.take_marks() == []


@pytest.mark.slow("a run whose cluster has no worker left ends with a message and resumes")
def test_no_worker_is_left(cluster: Cluster, place: Place, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster_module, "POLL_SECONDS", 0.5)
    monkeypatch.setattr(cluster_module, "PATIENCE_SECONDS", 1)
    address = cluster.provide(1)
    cluster.mark("segment-0-000009.json")
    with pytest.raises(EngineError, match=f"{address} has had no worker for 1 s. Start workers"):
        place.run("left", scheduler=address)
    assert cluster.take_marks() == []

    address = cluster.provide(1)
    done = [path.name for path in (place.folder / "left/_work/segment-0").glob("*.json")]
    for name in done:
        cluster.mark(f"segment-0-{name}")  # who does again what is done dies of it
    output = place.run("left", scheduler=address)
    assert len(cluster.take_marks()) == len(done) > 0
    assert digests(output) == expected


def test_workers_of_another_version_are_refused(cluster: Cluster, place: Place, monkeypatch: pytest.MonkeyPatch):
    from distributed import versions

    address, real = cluster.provide(1), versions._version_cached
    monkeypatch.setattr(versions, "_version_cached", lambda name: "9.9" if name == "numba" else real(name))
    message = rf"^versions differ: worker tcp://\S+ on \S+ has numba {version('numba')}, here 9.9\. Install"
    with pytest.raises(EngineError, match=message):
        place.run("version", scheduler=address)
    assert not (place.folder / "version" / "documents").exists()


@pytest.mark.slow("Ctrl-C ends a run whose workers do not answer")
def test_ctrl_c_ends_a_run_whose_workers_do_not_answer(cluster: Cluster, place: Place, tmp_path: Path):
    address = cluster.provide(1)
    stages = yaml.safe_dump({"stages": [{"kind": "exact_dedup"}]})
    (tmp_path / "recipe.yaml").write_text(stages)
    path, out = place.folder / "made.jsonl", tmp_path / "out"
    command = [sys.executable, "-m", "curation", "run", "recipe.yaml", "-i", str(path), "-o", str(out)]
    alive = [worker for worker in cluster.workers if worker.poll() is None]
    try:
        with subprocess.Popen(
            [*command, "--engine", "cpu", "--scheduler", address], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as run_process:  # fmt: skip
            assert run_process.stderr
            next(line for line in run_process.stderr if line.startswith("memory:"))  # the workers have been checked
            for worker in alive:
                worker.send_signal(signal.SIGSTOP)
            shown = next(line for line in run_process.stderr if "1 task" in line)
            started = time.monotonic()
            run_process.send_signal(signal.SIGINT)
            shown = run_process.stderr.readline()
            assert shown == "curate: stopping; press again to stop at once\n" and time.monotonic() - started < 0.5
            assert run_process.wait(20) == 130 and time.monotonic() - started < 5
            assert run_process.stderr.read().endswith("curate: interrupted; rerun the same command to resume\n")
    finally:
        for worker in alive:
            worker.send_signal(signal.SIGCONT)
    recipe = load_recipe(tmp_path / "recipe.yaml", input=str(path))
    run(recipe, out, engine="cpu", scheduler=address, progress=False)
    run(recipe, tmp_path / "whole", engine="cpu", progress=False)
    assert data_digests(out) == data_digests(tmp_path / "whole")


def test_the_scheduler_is_gone(cluster: Cluster, place: Place, caplog: pytest.LogCaptureFixture):
    levels = [logging.getLogger(name).level for name in cluster_module.CLIENT_LOGS]
    for name in cluster_module.CLIENT_LOGS:  # some of them pass nothing on to those above
        logging.getLogger(name).addHandler(caplog.handler)
    address = cluster.provide(1)
    caplog.clear()
    cluster.mark("segment-0-000003.arrow", victim=str(cluster.scheduler.pid))
    with pytest.raises(EngineError, match=f"the scheduler at {address} has disappeared"):
        place.run("gone", scheduler=address)
    for name in cluster_module.CLIENT_LOGS:
        logging.getLogger(name).removeHandler(caplog.handler)
    assert [record for record in caplog.records if record.name.startswith("distributed")] == []
    assert [logging.getLogger(name).level for name in cluster_module.CLIENT_LOGS] == levels


def test_no_scheduler_answers(place: Place):
    from dask import config

    address = "tcp://127.0.0.1:1"
    timeout = config.set({"distributed.comm.timeouts.connect": "0.2s"})

    class Lines(Progress):
        def log(self, line: str) -> None:
            lines.append(line)

    lines: list[str] = []
    with timeout, pytest.raises(EngineError, match=f"no scheduler answers at {address}"):
        place.run("nobody", scheduler=address, progress=Lines())
    assert lines == [f"connecting to the scheduler at {address}, for up to 0.2s"]
    assert not (place.folder / "nobody").exists()


def test_the_host_of_a_scheduler_is_not_found(place: Place):
    with pytest.raises(EngineError, match=r"the host nowhere\.invalid of the scheduler tcp://nowhere.* is not found: "):
        place.run("nobody", scheduler="tcp://nowhere.invalid:8786")
    assert not (place.folder / "nobody").exists()
