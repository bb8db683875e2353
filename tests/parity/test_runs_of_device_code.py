# SPDX-License-Identifier: Apache-2.0
"""Whole runs of published recipes on real documents, with the device code of every kernel (`tests/ptx`) and several
threads, leave the bytes that one thread of the CPU engine leaves."""

import gzip
import sys
import threading
from pathlib import Path

import orjson
import pytest

from curation.base import engine as selector
from curation.recipes.recipe import load_recipe
from curation.running.run import run
from tests.needs import needs
from tests.ptx.build import missing
from tests.runs import data_digests, records_of, rejected_rows

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "nothing is missing")
CORPUS = Path(__file__).parents[1] / "data" / "corpus.jsonl.gz"
SLICE_BYTES = 150_000


def write_input(path: Path, step: int) -> Path:
    """Each second (2) or third (3) of the real documents, copies and near-duplicates of some of them,
    and a line that is no record."""
    with gzip.open(CORPUS) as file:
        texts = [orjson.loads(line)["text"] for line in file][::step]
    copied = texts[: len(texts) // 10]
    near = [text[: len(text) * 9 // 10] + " end" for text in copied]
    path.write_bytes(records_of([*texts, *copied, *near]) + b"no record\n")
    return path


def assert_the_same_files(folder: Path, expected: Path) -> None:
    found, wanted = data_digests(folder), data_digests(expected)
    assert wanted and {name: found.get(name) for name in wanted} == wanted and found.keys() == wanted.keys()
    assert rejected_rows(folder) == rejected_rows(expected)


@pytest.mark.slow(
    "whole runs of published recipes with the kernels' device code are byte-identical to the CPU engine's"
)
@pytest.mark.parametrize("name", ["default", "fineweb", "refinedweb", "dclm_baseline"])
def test_recipes_on_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str):
    """Every kernel that the run launches was loaded before its first task."""
    recipe = load_recipe(name, input=str(write_input(tmp_path / "in.jsonl", 2)))
    expected = run(recipe, tmp_path / "cpu", engine="cpu", workers=1, slice_bytes=SLICE_BYTES).report["documents"]
    assert min(expected["kept"], expected["removed"], expected["rejected"]) > 0
    from tests.gpu import stand_ins
    from tests.ptx import engine

    threads, execute = set(), engine.Device.run
    monkeypatch.setattr(engine.Device, "run", lambda *launch: threads.add(threading.get_ident()) or execute(*launch))
    monkeypatch.setattr(engine, "LAUNCHED", set())
    monkeypatch.setattr(selector, "gpu_obstacle", lambda: "")
    engine.install_engine(monkeypatch, 1)
    monkeypatch.setattr(sys.modules["gpu_pipeline.json_lines"], "MIN_BYTES", 1 << 10)
    report = run(recipe, tmp_path / "gpu", engine="gpu", workers=4, scheduler="threads", slice_bytes=SLICE_BYTES).report
    assert_the_same_files(tmp_path / "gpu", tmp_path / "cpu")
    assert report["engine"] == "gpu" and len(threads) > 1
    assert "scan_lines" in engine.LAUNCHED and {kernel for kernel, _ in stand_ins.LOADED} >= engine.LAUNCHED


@pytest.mark.slow("a run with the kernels' device code on two workers of a Dask cluster is byte-identical to the CPU's")
def test_the_default_recipe_on_a_dask_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    needs("distributed")
    import dask
    import distributed

    recipe = load_recipe("default", input=str(write_input(tmp_path / "in.jsonl", 3)))
    run(recipe, tmp_path / "cpu", engine="cpu", workers=1, slice_bytes=60_000)
    from tests.ptx import engine

    monkeypatch.setattr(selector, "gpu_obstacle", lambda: "")
    engine.install_engine(monkeypatch, 1)
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "300s"}),  # of a busy machine
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, dashboard_address=None, preload="tests.ptx.plugin"
        ) as cluster,
    ):
        report = run(recipe, tmp_path / "gpu", engine="gpu", scheduler=cluster.scheduler_address, slice_bytes=60_000)
        facts = cluster.get_client().run(engine.facts_of_worker)
    assert_the_same_files(tmp_path / "gpu", tmp_path / "cpu")
    assert report.report["engine"] == "gpu" and len(facts) == 2
    for loaded, launched, processes in facts.values():
        assert launched and launched <= loaded and processes == 2
