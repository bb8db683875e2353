# SPDX-License-Identifier: Apache-2.0
"""Bytes of text between host and device in a run, and a run whose device is lost, on a made device."""

import gc
import inspect
import sys

import numpy as np
import pytest

import cpu_fallback
from curation.base import engine as selector
from curation.base.errors import DeviceLostError
from curation.reading import lines
from curation.running.run import run
from tests.gpu import stand_ins
from tests.runs import kept_rows, recipe_of, records_of, removed_rows

TEXTS = [f"document {k} " + "and more words " * (k % 4) for k in range(24)]
STAGES = [{"kind": "filter", "rules": [{"measure": "words", "min": 4}]}, {"kind": "exact_dedup"}]
REMOVED = TEXTS[::4]  # two words each
BATCH = 300


class Bus:
    """The bytes of text that cross it."""

    def __init__(self):
        self.up, self.down, self.batches = [], [], 0


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(selector, "gpu_obstacle", lambda: "")
    made = stand_ins.install_engine(monkeypatch)
    monkeypatch.setattr(made, "batch_bytes", lambda workers: BATCH)
    for name in ("measure", "hash_text"):  # kernels are slow here
        work = sys.modules["gpu_pipeline.memory.device"].on_device()(getattr(cpu_fallback, name))
        monkeypatch.setattr(made, name, work)
    return made


@pytest.fixture
def bus(gpu, monkeypatch):
    bus, buffers = Bus(), sys.modules["gpu_pipeline.memory.buffers"]

    def up(*parts):
        bus.up += [part.size for part in parts if part.dtype == np.uint8]  # without offsets
        return np.concatenate(parts)

    monkeypatch.setattr(buffers, "upload", up)
    reading = inspect.unwrap(gpu.read_slice).__globals__
    string_array = reading["string_array"]

    def down(column):
        array = string_array(column)
        bus.down += [sum(len(text.encode()) for text in array.to_pylist() if text)] * (column.name == "text")
        return array

    monkeypatch.setitem(reading, "string_array", down)
    from_arrow = reading["from_arrow"]

    def noted(table):
        gc.collect()
        frames = [each for each in gc.get_objects() if issubclass(type(each), stand_ins.DataFrame)]
        assert not any("text" in frame.columns for frame in frames)  # of the batch before
        bus.batches += 1
        return from_arrow(table)

    monkeypatch.setitem(reading, "from_arrow", noted)
    return bus


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "made.jsonl"
    path.write_bytes(records_of(TEXTS))
    return lambda samples: recipe_of(
        path, stages=STAGES, output={"formats": [], "removed": "ids"}, report={"samples": samples}
    )


@pytest.mark.parametrize(
    "samples",
    [0, pytest.param(1, marks=pytest.mark.slow("removed texts that a report shows cross from the device once"))],
)
def test_text_crosses_once_up_and_once_down_if_kept(bus, recipe, tmp_path, monkeypatch, samples):
    monkeypatch.setattr("curation.record.candidates.GROUP_SAMPLES", 0)  # removed texts for warnings: 200 per reason
    report = run(recipe(samples), tmp_path / "out", engine="gpu", workers=1).report
    size, removed = sum(map(len, TEXTS)), sum(map(len, REMOVED))
    assert (report["documents"]["kept"], report["batch_bytes"]) == (len(TEXTS) - len(REMOVED), BATCH)
    assert bus.batches > 3 and sum(bus.up) == size
    kept = size - removed
    if samples:  # a removed text per batch at most
        assert kept < sum(bus.down) <= kept + bus.batches * max(map(len, REMOVED)) < size
    else:
        assert sum(bus.down) == kept


@pytest.mark.slow("lines parsed on the device leave no batch in its memory")
def test_lines_parsed_on_the_device_leave_no_batch_behind(bus, gpu, recipe, tmp_path, monkeypatch):
    reading = inspect.unwrap(gpu.read_slice).__globals__

    def parse(*arguments):
        for found in lines.parse_block(*arguments):
            yield found._replace(table=reading["from_arrow"](found.table))
            del found

    monkeypatch.setattr(lines, "LINES_AT_ONCE", 2)
    monkeypatch.setitem(reading, "parse_block", parse)
    report = run(recipe(0), tmp_path / "out", engine="gpu", workers=1).report
    assert report["documents"]["kept"] == len(TEXTS) - len(REMOVED) and bus.batches > 3


@pytest.mark.parametrize("after", [0, 2])
def test_a_run_whose_device_is_lost_resumes_on_the_cpu(gpu, recipe, tmp_path, monkeypatch, after):
    """The done slices are kept, and the result is that of the CPU engine alone."""
    calls = []
    measure = gpu.measure
    settings = {"workers": 1, "slice_bytes": 500}

    def fail(*arguments):
        calls.append(arguments)
        if len(calls) > after:
            raise RuntimeError("cudaErrorECCUncorrectable: uncorrectable ECC error encountered")
        return measure(*arguments)

    device = sys.modules["gpu_pipeline.memory.device"]
    monkeypatch.setattr(gpu, "measure", device.on_device()(fail))
    with pytest.raises(DeviceLostError, match=r"the GPU failed during the run .* --engine cpu to resume"):
        run(recipe(0), tmp_path / "out", engine="gpu", **settings)
    assert device.memory().used == 0
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/_work/segment-0").glob("0*.json")}
    assert len(done) == after // 2
    report = run(recipe(0), tmp_path / "out", engine="cpu", **settings).report
    expected = run(recipe(0), tmp_path / "cpu", engine="cpu", **settings).report
    assert report["engine"] == "cpu" and not report["warnings"]
    assert (kept_rows(tmp_path / "out"), removed_rows(tmp_path / "out")) == (
        kept_rows(tmp_path / "cpu"),
        removed_rows(tmp_path / "cpu"),
    )
    assert report["documents_digest"] == expected["documents_digest"]
    assert len(kept_rows(tmp_path / "out")) == len(TEXTS) - len(REMOVED)
