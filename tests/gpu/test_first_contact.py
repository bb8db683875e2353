# SPDX-License-Identifier: Apache-2.0
"""The programs for a new GPU machine run as far as possible without a device, and say that there is none. What they
know is on disk, whenever they are killed."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from benchmarks import device_trace, first_contact, gpu_bench, probe
from benchmarks.first_contact import Results
from curation.base.engine import gpu_obstacle

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "benchmarks" / "first_contact.py"
MOST_FILES = 8  # that come back from such a machine

pytestmark = pytest.mark.skipif(not gpu_obstacle(), reason="a GPU is here: run benchmarks/first_contact.py")

# In Python's place: parts of 0.03 s, of which one ends its process, and some never end.
WORKER = f"""#!{sys.executable}
import os, sys, time
if "benchmarks.probe" not in sys.argv:
    print(sys.argv)
    raise SystemExit(5 * ("pip" in sys.argv))
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from benchmarks.first_contact import Results
results = Results(Path(sys.argv[4], "results.jsonl"), float(sys.argv[6]))
for number in range(12):
    name = sys.argv[3] + str(number)
    if name in results.latest():
        continue
    with results.part(name, 0.1 if number == 4 else 5) as found:
        print(name, "x" * 100_000, flush=True)
        time.sleep(0.03 + 60 * (number in {{STUCK}}))
        if number == 2:
            os._exit(9)
        found["value"] = number
"""


def stand_in(tmp_path: Path, stuck: str = "()") -> str:
    fake = tmp_path / "python"
    fake.write_text(WORKER.replace("{STUCK}", stuck))
    fake.chmod(0o755)
    return str(fake)


def started(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """The program with a stand-in for Python."""
    settings = {"SITE": str(tmp_path / "site"), "OURS": str(tmp_path / "ours"), "TMPDIR": str(tmp_path)}
    folders = [item for name in ("kit", "wheels", "data") for item in (f"--{name}", str(tmp_path / name))]
    command = [sys.executable, "-S", "-E", str(PROGRAM), *arguments, *folders, "--python", stand_in(tmp_path)]
    return subprocess.Popen(
        command, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )


def results_of(out: Path) -> dict[str, dict]:
    return Results(out / "results.jsonl", 0).latest()


def assert_whole(out: Path) -> None:
    """Every file can be read, and all come back."""
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) <= MOST_FILES
    assert {"results.jsonl", "summary.txt", "logs.tar.gz"} <= {path.name for path in files}
    assert results_of(out)["machine"]["status"]
    assert "parts failed" in (out / "summary.txt").read_text()
    with tarfile.open(out / "logs.tar.gz") as archive:
        assert all(archive.extractfile(member).read() for member in archive)


def test_after_a_crash_the_next_part_runs_in_a_new_process(tmp_path):
    out = tmp_path / "out"
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "unpack.sh").write_text('echo "export KIT_READY=yes" >"$SITE/env.sh"\n')
    (tmp_path / "kit" / "kernels.bin").write_bytes(b"code")
    program = started(tmp_path, "one", str(out))
    shown, _ = program.communicate(timeout=60)
    found = results_of(out)
    assert {name: line["status"] for name, line in found.items() if name.startswith("probes")} == {
        f"probes{number}": "FAIL" if number == 2 else "ok" for number in range(12)
    }
    assert found["probes2"]["value"].startswith("its process ended with code 9\n")
    assert found["machine"]["value"].startswith("exit code 5\n") and program.returncode == 2
    assert found["unpack"]["status"] == "ok" and "ok    unpack (" in shown
    assert (tmp_path / "site" / "kernels.bin").read_bytes() == b"code"
    assert "_numba_cuda_redirector" in (tmp_path / "site" / "sitecustomize.py").read_text()
    assert_whole(out)


def ran_with_stuck_part(tmp_path: Path, monkeypatch, number: int, *arguments: str) -> dict[str, dict]:
    monkeypatch.setenv("SITE", str(tmp_path / "site"))
    python = stand_in(tmp_path, stuck=f"({number},)")
    first_contact.main(["one", str(tmp_path / "out"), "--kit", str(tmp_path), "--python", python, *arguments])
    assert_whole(tmp_path / "out")
    return results_of(tmp_path / "out")


def test_a_part_that_never_ends_is_stopped_and_the_next_one_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(first_contact, "GRACE_SECONDS", 0.2)
    found = ran_with_stuck_part(tmp_path, monkeypatch, 4)
    assert found["probes4"]["value"].startswith("stopped: over its limit\n") and found["probes4"]["seconds"] < 10
    assert found["probes5"]["status"] == "ok"


def test_all_ends_before_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(first_contact, "LEAST_SECONDS", 0.1)
    begun = time.time()
    found = ran_with_stuck_part(tmp_path, monkeypatch, 1, "--limit", "32")
    assert time.time() - begun < 32 - first_contact.SPARE_SECONDS + first_contact.STOP_SECONDS
    assert "probes2" not in found and "begin" not in {line["status"] for line in found.values()}


def kill_after(folder: Path, seconds: float) -> None:
    folder.mkdir()
    program = started(folder, "one", str(folder / "out"))
    while not (folder / "out" / "logs.tar.gz").exists():  # it exists within the first second
        time.sleep(0.01)
    time.sleep(seconds)
    os.killpg(program.pid, signal.SIGKILL)
    program.communicate()
    assert_whole(folder / "out")


@pytest.mark.parametrize(
    "kills",
    [2, pytest.param(30, marks=pytest.mark.slow("a first contact that is killed at any time leaves whole files"))],
)
def test_killed_at_any_time(tmp_path, kills):
    for number in range(kills):
        kill_after(tmp_path / str(number), number * 0.03)


def test_variables_of_the_site(tmp_path, monkeypatch):
    (tmp_path / "env.sh").write_text(f"export PYTHONPATH={tmp_path} KIT_READY='a b'\n")
    options = first_contact.argparse.Namespace(out=tmp_path / "out", limit=60)
    supervisor = first_contact.Supervisor(options)
    (tmp_path / "ours").mkdir()
    first_contact.use_site(supervisor, tmp_path, tmp_path / "ours")
    assert supervisor.environment["KIT_READY"] == "a b"
    assert supervisor.environment["PYTHONPATH"].split(os.pathsep) == [str(ROOT), str(tmp_path), str(tmp_path / "ours")]


def test_errors_that_the_sanitizer_finds(tmp_path, monkeypatch):
    fake = tmp_path / "compute-sanitizer"
    fake.write_text('#!/bin/sh\necho "$@"\n[ "$2" != racecheck ] || { echo "========= ERROR SUMMARY: 1"; exit 86; }\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    options = first_contact.argparse.Namespace(out=tmp_path / "out", limit=60, python=sys.executable)
    supervisor = first_contact.Supervisor(options)
    first_contact.sanitize(supervisor)
    found = results_of(tmp_path / "out")
    assert [found[tool]["status"] for tool in first_contact.SANITIZERS] == ["ok", "FAIL", "ok"]
    assert found["racecheck"]["value"].startswith("exit code 86\n")
    assert "tests/parity/test_minhash.py" in found["racecheck"]["value"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["three", "out"], "invalid choice: 'three'"),
        (["one"], "required: out"),
        (["one", "out", "--limit", "30"], "--limit is 30 s; expected more than 30, which files take to come back"),
        (["one", "out", "--limit", "soon"], "invalid float value: 'soon'"),
    ],
)
def test_wrong_arguments(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        first_contact.main(arguments)
    assert ended.value.code == 64 and message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def made_wheel(folder: Path, name: str, *needs: str) -> None:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        lines = "\n".join(f"Requires-Dist: {need}" for need in needs)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Name: {name}\n{lines}\n\nRequires-Dist: no_header\n")


def test_wheels_that_a_machine_lacks(tmp_path, monkeypatch, capsys):
    """What is there, in its packages or in the kit, is not downloaded, nor what only extras and old versions need."""
    needs = {"awkward": ("awkward_cpp==57", "numpy>=1", 'x; extra == "dev"', 'y; python_version < "3.10"'), "isal": ()}
    asked = []

    def download(command, check):
        name = first_contact.re.split("[=<>]", command[-1])[0]
        asked.append(name)
        if name != "awkward_cpp":
            made_wheel(tmp_path / "wheels", name.replace("-", "_"), *needs.get(name, ()))
        return subprocess.CompletedProcess(command, int(name == "awkward_cpp"))

    monkeypatch.setattr(first_contact.subprocess, "run", download)
    (tmp_path / "there.txt").write_text("Package Version\n------- -------\nnumpy 2.5.2\nPyYAML 6.0\n")
    (tmp_path / "kit").mkdir()
    wheels = [{"file": "dask-2026.7.1-py3-none-any.whl"}, {"file": "pandas-3.0.6-cp312.whl"}]
    (tmp_path / "kit" / "MANIFEST-cudf.json").write_text(json.dumps({"wheels": wheels}))
    installed = ["--installed", str(tmp_path / "there.txt"), str(tmp_path / "kit")]
    assert first_contact.main(["wheels", str(tmp_path / "wheels"), *installed]) == 0
    assert {"awkward", "awkward_cpp", "isal", "gigatoken", "msgspec"} <= set(asked)
    assert not {"numpy", "dask", "pandas", "pyyaml", "x", "y", "no_header"} & set(asked)
    shown = capsys.readouterr().out
    assert shown.endswith(" MiB\n") and "awkward_cpp==57: no wheel; needed by another package\n" in shown


# Probes


def ran(
    tmp_path: Path, monkeypatch, parts: list[probe.Part], obstacle: str = "", dry: bool = False
) -> dict[str, tuple]:
    monkeypatch.setattr(probe, "no_device", lambda: obstacle)
    monkeypatch.setitem(probe.GROUPS, "probes", parts)
    assert probe.main(["probes", str(tmp_path), "--kit", str(tmp_path), *["--dry"] * dry]) == 0
    return {name: (line["status"], line["value"]) for name, line in results_of(tmp_path).items()}


def fails(_):
    raise AssertionError("other rows")


def endless(_):
    while True:
        time.sleep(0.01)


def test_a_failed_part_does_not_stop_the_next(tmp_path, monkeypatch):
    found = ran(tmp_path, monkeypatch, [
        probe.Part("one", 60, (), True, fails),
        probe.Part("two", 60, ("no_such_module",), True, fails),
        probe.Part("three", 0.05, (), True, endless),
        probe.Part("four", 60, (), True, lambda _: 4),
    ])  # fmt: skip
    monkeypatch.setattr(probe, "LEAST_SECONDS", 0)
    assert found == {
        "one": ("FAIL", "AssertionError: other rows"),
        "two": ("skip", "no_such_module: ModuleNotFoundError: No module named 'no_such_module'"),
        "three": ("skip", "no time left"),
        "four": ("ok", 4),
    }
    assert ran(tmp_path / "again", monkeypatch, [probe.Part("three", 0.05, (), True, endless)]) == {
        "three": ("FAIL", "OutOfTime: over its limit of 0 s")
    }
    again = [probe.Part("one", 60, (), True, lambda _: 1)]
    assert ran(tmp_path, monkeypatch, again)["one"][0] == "FAIL"  # what has ended is not repeated


def test_probes_without_a_device(tmp_path, monkeypatch):
    """Each probe that needs a device is skipped, those of the host run. The lack of a device is a failure, unless it is
    expected."""
    parts = [part for part in probe.GROUPS["probes"] if "kernels" not in part.name]
    found = ran(tmp_path, monkeypatch, parts, "no NVIDIA driver", dry=True)
    assert found["machine"][0] == "ok" and found["import numba"][0] == "ok"
    assert {found[part.name] for part in parts if part.device} == {("skip", "no NVIDIA driver")}
    assert "a device" not in found
    found = ran(tmp_path / "again", monkeypatch, [], "no NVIDIA driver")
    assert found == {"a device": ("FAIL", "no NVIDIA driver")}


def test_probes_of_the_device_come_before_what_is_compiled():
    names = [part.name for part in probe.GROUPS["probes"]]
    compiling = {"load compiled kernels", "first kernel", "the same kernel again", "first tokens"}
    assert set(names[-4:]) == compiling and names[:3] == ["driver: cuInit, CUDA", "device", "transfers, GB/s"]
    checks = [part.name for part in probe.GROUPS["checks"]]
    assert checks[:4] == [*probe.CHECKED, "golden results", "benchmark"]


def test_golden_results_need_engines_that_agree(tmp_path, monkeypatch):
    parts = [
        probe.Part(probe.CHECKED[0], 60, (), False, lambda _: "30 functions"),
        probe.Part(probe.CHECKED[1], 60, (), False, fails),
        probe.Part("golden results", 60, (), False, probe.golden),
    ]
    found = ran(tmp_path, monkeypatch, parts, dry=True)
    assert found["golden results"] == ("FAIL", "ChecksError: not recorded: see the checks above")
    assert not (tmp_path / "dry").exists() and not (tmp_path / "golden").exists()


def test_failed_tests_are_recorded_at_once(tmp_path, monkeypatch):
    (tmp_path / "test_it.py").write_text("def test_gpu():\n    assert 1 == 2\ndef test_gpu_too(): pass\n")
    results = Results(tmp_path / "results.jsonl", time.time())
    plugin = probe.Failures(results)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", os.devnull, str(tmp_path)], [plugin])
    assert plugin.counts == {"passed": 1, "failed": 1, "skipped": 0}
    assert results.lines()[0]["value"].startswith("assert 1 == 2")


# The benchmark


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
    pytest.importorskip("gpu_pipeline.all_kernels")
    model = gpu_bench.model_of(256_000_000)
    expected = model.kernel("hash_rows")
    trace = device_trace.Trace(2.0, 1.0, 0.5, {"hash_rows": 2 * expected}, 3, 4, 5, 6, 7_000_000)
    rows = gpu_bench.compare("hash_text", 256_000_000, 100_000, trace.kernels | {"unknown": 1.0}, trace, model)
    found = {row[1]: row[2:] for row in rows}
    assert found["hash_rows, GB/s"][2] == "0.50"
    assert found["unknown, GB/s"] == ("256", "-", "-") and found["copies"] == ("6", "-", "-")
    assert found["launches"][:2] == ("1", str(model.calls["hash"].launches))
    assert found["synchronisations"][1] == str(model.calls["hash"].waits) and found["GB/s"][0] == "100"
    assert found["idle share"][1] != "-" and found["Python, ms"][1] != "-"
    assert set(gpu_bench.MODELLED.values()) <= set(model.calls)
