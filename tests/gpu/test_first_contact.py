# SPDX-License-Identifier: Apache-2.0
"""The scripts for a new GPU machine run as far as possible without a device, and say that there is none."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from benchmarks import gpu_bench, probe
from curation.engine import gpu_obstacle

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "first_contact.sh"

pytestmark = pytest.mark.skipif(not gpu_obstacle(), reason="a GPU is here: run benchmarks/first_contact.sh")


def first_contact(tmp_path: Path, *arguments: str, python: str = "true") -> subprocess.CompletedProcess[str]:
    """Run the script with a stand-in for Python, which records its arguments."""
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls.txt\n{python}\n')
    fake.chmod(0o755)
    settings = {"PYTHON": str(fake), "KIT": str(tmp_path / "kit"), "SITE": str(tmp_path / "site")}
    settings |= {"WHEELS": str(tmp_path / "wheels"), "OURS": str(tmp_path / "ours"), "DATA": str(tmp_path)}
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments], env=os.environ | settings, capture_output=True, text=True, check=False
    )


def test_probes_without_a_device(monkeypatch, tmp_path, capsys):
    """Each probe that needs a device is skipped, those of the host run."""
    kept = [each for each in probe.PROBES if "compile" not in each.name]  # another test compiles all kernels
    monkeypatch.setattr(probe, "PROBES", kept)
    assert probe.main(["--dry", "--output", str(tmp_path / "probe.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("no device: ")
    found = json.loads((tmp_path / "probe.json").read_bytes())["probes"]
    assert found["machine"]["status"] == "ok" and found["import numba"]["status"] == "ok"
    assert {found[each.name]["status"] for each in kept if each.device} == {"skip"}
    assert probe.main([]) >= 1


def fails():
    raise AssertionError("other rows")


def test_a_failed_probe_does_not_stop_the_next(monkeypatch, capsys):
    monkeypatch.setattr(probe, "no_device", lambda: "")
    probes = [
        probe.Probe("one", (), True, fails),
        probe.Probe("two", ("no_such_module",), True, fails),
        probe.Probe("three", (), True, lambda: 3),
    ]
    monkeypatch.setattr(probe, "PROBES", probes)
    assert probe.main([]) == 1
    lines = [line.rsplit(" (", 1)[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "FAIL one: AssertionError: other rows",
        "skip two: no_such_module: ModuleNotFoundError: No module named 'no_such_module'",
        "ok   three: 3",
    ]


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
    assert {"copy", "measure all", "tokenize gpt2"} <= set(found["megabytes_per_second"])
    assert all(phase["mb_per_second"] > 0 and phase["idle"] is None for phase in found["job"]["phases"].values())


def test_step_one_without_a_kit(tmp_path):
    finished = first_contact(tmp_path, "one", str(tmp_path / "out"))
    assert finished.returncode == 0, finished.stderr
    assert f"no kit: {tmp_path}/kit/unpack.sh does not exist" in finished.stdout
    assert "-m benchmarks.probe --output" in (tmp_path / "calls.txt").read_text()
    assert "no device: nvidia-smi" in (tmp_path / "out" / "machine.txt").read_text()


def test_step_one_unpacks_the_kit(tmp_path):
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "unpack.sh").write_text('echo "export KIT_READY=yes" >"$SITE/env.sh"\n')
    finished = first_contact(tmp_path, "one", str(tmp_path / "out"), python=f"echo $KIT_READY >>{tmp_path}/seen.txt")
    assert finished.returncode == 0, finished.stderr
    assert "ok      unpack" in finished.stdout
    assert "yes" in (tmp_path / "seen.txt").read_text()
    assert "_numba_cuda_redirector" in (tmp_path / "site" / "sitecustomize.py").read_text()


def test_failed_parts_are_counted(tmp_path):
    finished = first_contact(tmp_path, "dry", str(tmp_path / "out"), python="echo no such module; exit 3")
    assert finished.returncode == 3  # machine, probe and benchmark
    assert "FAILED  probe (code 3, " in finished.stdout and "        no such module" in finished.stdout
    assert "3 parts failed" in (tmp_path / "out" / "summary.txt").read_text()


def test_a_wrong_step_is_refused(tmp_path):
    finished = first_contact(tmp_path, "three", str(tmp_path / "out"))
    assert finished.returncode == 64 and "usage: first_contact.sh one|two|dry OUT" in finished.stderr
    assert not (tmp_path / "out").exists()
