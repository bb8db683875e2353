# SPDX-License-Identifier: Apache-2.0
"""The benchmark of a device runs without one as a dry run, and says what a trace and the model say."""

import json

import pytest

from benchmarks import device_trace, gpu_bench
from curation.base.engine import gpu_obstacle

pytestmark = pytest.mark.skipif(not gpu_obstacle(), reason="a GPU is here: run `make gpu-check`")


def test_the_benchmark_without_a_device(tmp_path, capsys):
    assert gpu_bench.main(["--megabytes", "1"]) == 1
    assert capsys.readouterr().out.startswith("no device: ")


def test_the_dry_benchmark(monkeypatch, tmp_path, capsys):
    """Lengths are those of the input, every phase has a speed, and batches are stated."""
    texts = ["a short text", "x y " * 500, "one long document of words " * 4000]
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    monkeypatch.setattr(gpu_bench, "DRY_JOB_BYTES", 300_000)
    assert gpu_bench.main(["--dry", "--input", str(source), "--output", str(tmp_path / "bench.json")]) == 0
    assert "no number below is one of a GPU" in capsys.readouterr().out
    found = json.loads((tmp_path / "bench.json").read_bytes())
    assert found["dry"] and found["length"]["100 %"] >= len(texts[2]) and found["input"] == str(source)
    assert all(batches["bytes"] > 0 and batches["batches"] > 0 for batches in found["batches"].values())
    assert {"copy", "measure all", "tokenize gpt2", "read JSON Lines"} <= set(found["megabytes_per_second"])
    assert all(phase["mb_per_second"] > 0 and phase["idle"] is None for phase in found["job"]["phases"].values())
    assert "CPU engine (dry run)" in found["table"][0] and "| measured |" not in found["table"][0]


SYMBOL = "_ZN12gpu_pipeline7kernels9hash_rowsB2v1B38c8tJTIcFHzwl2ILiXkcBV0KBSgP9CGZpAgA_3dE5ArrayIhLi1E1C7mutableE"


def event(kind: str, name: str, at: float, lasts: float, **arguments: int) -> dict:
    return {"ph": "X", "cat": kind, "name": name, "ts": at, "dur": lasts, "args": arguments}


def test_what_a_trace_says():
    """Two kernels, of which one overlaps a copy: 50 of 100 µs busy, 30 waiting."""
    trace = device_trace.summarise([
        event("kernel", SYMBOL, 0, 20),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 10, 20, bytes=4096),
        event("kernel", "cupy_cumsum_kernel", 60, 20),
        event("cuda_runtime", "cudaStreamSynchronize", 30, 20),
        event("cuda_runtime", "cudaMemcpy", 60, 10),
        event("cuda_runtime", "cudaMemcpyAsync", 70, 10),
        event("cuda_driver", "cuLaunchKernel", 0, 5),
        {"ph": "i", "name": "no duration"},
    ], 0.1)  # fmt: skip
    assert trace.kernels == {"hash_rows": 0.02}
    assert trace.facts() == pytest.approx({
        "launches": 1, "launches of libraries": 1, "synchronisations": 2, "copies": 1, "copied, MB": 0.004096,
        "Python, ms": 0.07, "idle share": 0.5,
    })  # fmt: skip


def test_the_table_compares_with_the_model():
    """Of a kernel and of a function; "-" where the model has nothing."""
    pytest.importorskip("gpu_pipeline.kernels.all_kernels")
    model = gpu_bench.model_of(256_000_000)
    expected = model.kernel("hash_rows")
    trace = device_trace.Trace(2.0, 1.0, 0.5, {"hash_rows": 2 * expected}, 3, 4, 5, 6, 7_000_000)
    rows = gpu_bench.compare("hash_text", 256_000_000, 100_000, trace.kernels | {"unknown": 1.0}, trace, model)
    found = {row[1]: row[2:] for row in rows}
    measured, modelled = map(float, found["hash_rows, GB/s"])
    assert measured == pytest.approx(modelled / 2, rel=0.02)
    assert found["unknown, GB/s"] == ("256", "-") and found["copies"] == ("6", "-")
    assert found["launches"][:2] == ("1", str(model.calls["hash"].launches))
    assert found["synchronisations"][1] == str(model.calls["hash"].waits) and found["GB/s"][0] == "100"
    assert found["idle share"][1] != "-" and found["Python, ms"][1] != "-"
    assert set(gpu_bench.MODELLED.values()) <= set(model.calls)
