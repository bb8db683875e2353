# SPDX-License-Identifier: Apache-2.0
"""The benchmark of a device finds every launch, and has a modelled time for each kernel that it measures."""

import argparse
import json
import time

import pytest

pytest.importorskip("gpu_pipeline.kernels.core")

from benchmarks import gpu_bench
from tests.ptx.engine import install_engine


class Clock(gpu_bench.DeviceClock):
    """Times of the host in place of a device's."""

    milliseconds = gpu_bench.HostClock.milliseconds
    peak_bytes = gpu_bench.HostClock.peak_bytes
    copy_of = gpu_bench.HostClock.copy_of
    of_libraries = gpu_bench.HostClock.of_libraries

    def trace(self, function):
        return None


@pytest.mark.slow("the benchmark of a device times all kinds of launches")
def test_launches_of_all_kinds_are_timed(monkeypatch, tmp_path):
    """`measure` has kernels of threads, of blocks and of teams; JSON Lines have kernels of their own."""
    engine, device = install_engine(monkeypatch, 1)
    monkeypatch.setattr(gpu_bench, "repeated", lambda texts, size: texts)
    monkeypatch.setattr(gpu_bench, "read_processors", lambda: 1)
    monkeypatch.setattr("gpu_pipeline.json_lines.MIN_BYTES", 0)
    launched = set()
    run = device.run
    monkeypatch.setattr(device, "run", lambda name, *arguments: (launched.add(name), run(name, *arguments))[1])

    def cases(engine, frame, path):
        yield "measure all", lambda: engine.measure(frame["text"], ("words", "top_2gram_characters", "duplicate_lines"))
        yield "read JSON Lines", lambda: gpu_bench.read_lines(engine, path)

    monkeypatch.setattr(gpu_bench, "cases", cases)
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": f"some words of line {k}\n" * 3}) + "\n" for k in range(4)))
    options = argparse.Namespace(
        input=texts, megabytes=1, repeats=1, dry=False, output=tmp_path / "bench.json", facts={"dry": False}
    )
    begun = time.perf_counter()
    found = gpu_bench.measure_functions(options, engine, Clock())
    most = (time.perf_counter() - begun) * 1e3
    timed = {name for times in found["kernel_milliseconds"].values() for name in times}
    assert timed == launched and {"repeat_words_small", "scan_lines", "mark_text"} <= timed
    assert all(0 < value < most for times in found["kernel_milliseconds"].values() for value in times.values())
    rows = [line.strip("| ").split(" | ") for line in found["table"][2:]]
    assert {row[1] for row in rows} == {"GB/s", *(f"{name}, GB/s" for name in timed)}
    assert all(len(row) == 4 and float(row[2]) > 0 and float(row[3]) > 0 for row in rows)
    assert json.loads(options.output.read_bytes())["table"] == found["table"]
