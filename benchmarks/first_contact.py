# SPDX-License-Identifier: Apache-2.0
"""First contact with a bare GPU machine that has no network and is there for a short time.

    python3 benchmarks/first_contact.py one OUT [--limit 600]   unpacks the kit, then probes every interface
    python3 benchmarks/first_contact.py two OUT [--limit 600]   installs wheels, then all checks that need a GPU
    python3 benchmarks/first_contact.py check OUT               the checks alone, in an environment that has everything
    python3 benchmarks/first_contact.py dry OUT                 what needs no device, on the CPU engine
    python3 benchmarks/first_contact.py wheels .whl --installed LIST...   downloads what such a machine lacks

Two steps, since what they need may not travel at once. `--kit` (.kit) has RAPIDS and its unpack.sh, which installs
into SITE, and kernels.bin (benchmarks.compiled_kernels). `--wheels` (.whl) has the other dependencies. `--data` (.data)
has real_2mb.jsonl, if at hand.

Every result is on disk when it is known. All ends SPARE_SECONDS before the limit, and a kill at any second leaves:

    results.jsonl   a line when a part begins and one when it ends, with its result
    summary.txt     the same to read
    bench.json      what the benchmark has measured so far, and its table
    logs.tar.gz     the output of all processes, at most KEPT_SECONDS old
    golden/         gpu.json and gpu.npz, if both engines agree: move them to tests/golden and commit them. A dry run
                    writes dry/ instead, results of the CPU engine, which are of no use

This file needs nothing but Python. Parts that need the device run in one process (benchmarks.probe). After a crash, a
lost device or a part far over its limit, a new process goes on with the next part. Exit code: parts that failed, or 64
for wrong arguments.
"""

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
SPARE_SECONDS = 30  # files come back in this time
STOP_SECONDS = 5  # of these, for the end of processes
GRACE_SECONDS = 15  # of a part over its limit, to stop on its own
LEAST_SECONDS = 3  # with less time a part does not begin
KEPT_SECONDS = 2
MOST_LOG_BYTES = 4 << 20  # of one process; the beginning of a longer log is left out
SHOWN_LINES, SHOWN_CHARACTERS = 15, 300
FIRST_CHECK = "60 documents on both engines"
KERNELS = "kernels.bin"
SANITIZERS = ("memcheck", "racecheck", "synccheck")
SANITIZER_SECONDS = 100
SANITIZER_FOUND = 86  # its exit code if it finds errors
PLATFORMS = tuple(f"manylinux{each}_x86_64" for each in ("_2_28", "_2_27", "_2_24", "_2_17", "2014", "1"))
# Python does not read .pth files of a folder on PYTHONPATH. numba-cuda has one that redirects numba.cuda.
REDIRECT = "try:\n    import _numba_cuda_redirector\nexcept ImportError:\n    pass\n"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader finds the old or the new content."""
    temporary = path.with_name(f"{path.name}.part")
    temporary.write_bytes(content)
    temporary.replace(path)


class Results:
    """The lines of results.jsonl. Processes append to it; each line is one write."""

    def __init__(self, path: Path, start: float) -> None:
        self.path, self.start = path, start

    def add(self, part: str, status: str, **facts: Any) -> None:
        line = json.dumps({"at": round(time.time() - self.start, 2), "part": part, "status": status, **facts}) + "\n"
        with self.path.open("ab", buffering=0) as file:
            file.write(line.encode())

    def lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_bytes().split(b"\n")[:-1]]

    def latest(self) -> dict[str, dict[str, Any]]:
        """The last line of each part."""
        return {line["part"]: line for line in self.lines()}

    def running(self) -> dict[str, Any] | None:
        return next((line for line in self.latest().values() if line["status"] == "begin"), None)

    @contextlib.contextmanager
    def part(self, name: str, limit: float) -> Iterator[dict[str, Any]]:
        """Record the begin and the end of a part. The block fills in `status` and `value`."""
        self.add(name, "begin", limit=round(limit, 1))
        found, begun = {"status": "ok", "value": ""}, time.perf_counter()
        try:
            yield found
        finally:
            self.add(name, found.pop("status"), **found, seconds=round(time.perf_counter() - begun, 2))


def summary_of(results: Results, bench: Path) -> str:
    shown = []
    for name, line in results.latest().items():
        value = f"{line.get('value', '')}".replace("\n", "\n        ")
        seconds = f" ({line['seconds']} s)" if "seconds" in line else f" (since {line['at']} s)"
        shown.append(f"{line['status']:<6}{name}{seconds}: {value}")
    failed = sum(line["status"] == "FAIL" for line in results.latest().values())
    shown.append(f"{failed} parts failed, {time.time() - results.start:.0f} s")
    with contextlib.suppress(OSError, ValueError, KeyError):
        shown += ["", *json.loads(bench.read_bytes())["table"]]
    return "\n".join(shown) + "\n"


def tail(log: Path, lines: int = SHOWN_LINES) -> str:
    return "\n".join(line[:SHOWN_CHARACTERS] for line in log.read_text("utf-8", "replace").splitlines()[-lines:])


class Supervisor:
    """Starts processes, and keeps the files of OUT up to date until the deadline."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.out = options, options.out.resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        start = time.time()
        self.deadline = start + options.limit - SPARE_SECONDS
        self.results = Results(self.out / "results.jsonl", start)
        self.results.path.write_bytes(b"")
        self.logs = Path(tempfile.mkdtemp(prefix="first-contact-"))
        self.kept_at, self.kept, self.size = 0.0, (), -1
        self.environment = dict(os.environ) | {"PYTHONUNBUFFERED": "1", "KVIKIO_COMPAT_MODE": "ON"}
        self.use(ROOT)

    def use(self, folder: Path) -> None:
        """Put a folder in front of the modules of all later processes."""
        self.environment["PYTHONPATH"] = os.pathsep.join(
            [str(folder), *filter(None, [self.environment.get("PYTHONPATH")])]
        )

    def left(self) -> float:
        return self.deadline - time.time()

    def keep(self, now: bool = False) -> None:
        """Write the summary if there is a new result, and the archive of logs if it is old."""
        size = self.results.path.stat().st_size
        if now or size != self.size:
            self.size = size
            write_whole(self.out / "summary.txt", summary_of(self.results, self.out / "bench.json").encode())
        logs = sorted(self.logs.iterdir())
        sizes = tuple(path.stat().st_size for path in logs)
        if now or (sizes != self.kept and time.time() - self.kept_at > KEPT_SECONDS):
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=3) as archive:
                for path in logs:
                    content = path.read_bytes()[-MOST_LOG_BYTES:]
                    member = tarfile.TarInfo(path.name)
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
            write_whole(self.out / "logs.tar.gz", packed.getvalue())
            self.kept, self.kept_at = sizes, time.time()

    def run(self, log: Path, command: list[str], until: float, watched: bool = False) -> int | None:
        """Run a process until a time; returns its exit code, or None if it was stopped. A watched one is also stopped
        if its part is far over its limit."""
        with log.open("ab") as file:
            file.write(f"+ {' '.join(command)}\n".encode())
            file.flush()
            process = subprocess.Popen(
                command, cwd=ROOT, env=self.environment, stdout=file, stderr=subprocess.STDOUT, process_group=0
            )
            try:
                while process.poll() is None:
                    if time.time() > until or (watched and self._is_stuck()):
                        return None
                    self.keep()
                    time.sleep(0.1)
                return process.returncode
            finally:
                stop(process)
                self.keep()

    def _is_stuck(self) -> bool:
        line = self.results.running()
        return line is not None and time.time() > self.results.start + line["at"] + line["limit"] + GRACE_SECONDS

    def command(self, name: str, seconds: float, command: list[str]) -> None:
        """A part that is a process of its own."""
        limit = min(seconds, self.left())
        if limit < LEAST_SECONDS:
            self.results.add(name, "skip", value="no time left")
            return
        with self.results.part(name, limit) as found:
            log = self.logs / f"{re.sub('[^a-z]+', '-', name.lower())}.txt"
            code = self.run(log, command, time.time() + limit)
            found["value"] = tail(log, 1) if code == 0 else tail(log)
            if code != 0:
                reason = f"over its limit of {limit:.0f} s" if code is None else f"exit code {code}"
                found |= {"status": "FAIL", "value": f"{reason}\n{found['value']}"}

    def worker(self, group: str) -> None:
        """The parts of a group in one process; after a crash another one goes on."""
        dry = ["--dry"] if self.options.step == "dry" else []
        command = [
            self.options.python, "-m", "benchmarks.probe", group, str(self.out), "--start", str(self.results.start),
            "--deadline", str(self.deadline), "--kit", str(self.options.kit.resolve()),
            *dry,
        ]  # fmt: skip
        log = self.logs / f"{group}.txt"
        while self.left() > LEAST_SECONDS:
            begun = len(self.results.lines())
            code = self.run(log, command, self.deadline, watched=True)
            line = self.results.running()
            if line:
                end = f"its process ended with code {code}" if code is not None else "stopped: over its limit"
                seconds = round(time.time() - self.results.start - line["at"], 2)
                self.results.add(line["part"], "FAIL", value=f"{end}\n{tail(log)}", seconds=seconds)
            elif code == 0:
                return
            if code is not None and len(self.results.lines()) == begun:
                self.results.add(f"process of {group}", "FAIL", value=f"exit code {code}\n{tail(log)}")
                return

    def close(self) -> int:
        self.keep(now=True)
        print((self.out / "summary.txt").read_text("utf-8"), end="")
        shutil.rmtree(self.logs, ignore_errors=True)
        return sum(line["status"] == "FAIL" for line in self.results.latest().values())


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children."""
    for end, seconds in ((signal.SIGTERM, 1.0), (signal.SIGKILL, STOP_SECONDS)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, end)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


# Steps


def facts(options: argparse.Namespace) -> list[str]:
    commands = "nvidia-smi || echo no nvidia-smi; echo CUDA_HOME=$CUDA_HOME; df -h /tmp; nproc; free -g"
    return ["bash", "-c", f"{commands}; {options.python} --version; {options.python} -m pip list"]


def find_cuda() -> str:
    """The folder of the CUDA toolkit, where numba-cuda looks for libnvvm; empty if there is none."""
    compiler = shutil.which("nvcc")
    folders = [
        os.environ.get("CUDA_HOME", ""),
        "/usr/local/cuda",
        str(Path(compiler).resolve().parents[1]) if compiler else "",
    ]
    return next((each for each in folders if each and (Path(each) / "nvvm/lib64/libnvvm.so").exists()), "")


def use_site(supervisor: Supervisor, site: Path, ours: Path) -> None:
    """Use what is installed in these folders; env.sh of the site may set more variables."""
    if (site / "env.sh").exists():
        shown = subprocess.run(
            ["bash", "-c", f'. "{site}/env.sh" && env -0'], env=supervisor.environment, capture_output=True, check=False
        ).stdout.decode()
        supervisor.environment |= dict(each.split("=", 1) for each in shown.split("\0") if "=" in each)
    supervisor.use(ROOT)
    if ours.exists():
        supervisor.environment["PYTHONPATH"] += f"{os.pathsep}{ours}"


def unpack(supervisor: Supervisor, kit: Path, site: Path) -> None:
    if not (kit / "unpack.sh").exists():
        supervisor.results.add("unpack", "skip", value=f"{kit}/unpack.sh does not exist: probes use installed packages")
        return
    site.mkdir(parents=True, exist_ok=True)
    supervisor.command("unpack", 300, ["bash", str(kit / "unpack.sh"), str(kit)])
    if (kit / KERNELS).exists():
        shutil.copy(kit / KERNELS, site)  # step two may come without the kit, and with sources of another time
    (site / "sitecustomize.py").write_text(REDIRECT)


def install(supervisor: Supervisor, wheels: Path, ours: Path) -> None:
    files = sorted(map(str, wheels.glob("*.whl")))
    if not files:
        supervisor.results.add("install", "skip", value=f"{wheels}/*.whl does not exist: installed packages are used")
        return
    pip = ["-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--upgrade", "--target", str(ours)]
    supervisor.command("install", 200, [supervisor.options.python, *pip, *files])


def sanitize(supervisor: Supervisor) -> None:
    """Let NVIDIA's checker look for wrong accesses, races and wrong barriers while tests compare the engines."""
    program = shutil.which("compute-sanitizer", path=f"{os.environ.get('PATH', '')}:{find_cuda()}/bin")
    bodies = [f"tests/parity/test_{name}.py" for name in ("hash", "minhash", "measures", "tokens", "language")]
    tests = [
        supervisor.options.python,
        *["-m", "pytest", "-W", "default", "-p", "no:cacheprovider", "-q", "-k", "gpu", "--engine", "gpu"],
        *bodies,
    ]
    for tool in SANITIZERS:
        if program is None:
            supervisor.results.add(tool, "skip", value="compute-sanitizer is not installed")
            continue
        settings = ["--tool", tool, "--error-exitcode", str(SANITIZER_FOUND), "--print-limit", "20"]
        supervisor.command(tool, SANITIZER_SECONDS, [program, *settings, *tests])


def run_step(options: argparse.Namespace) -> int:
    site, ours = (Path(os.environ.get(name, f"/tmp/{default}")) for name, default in
                  (("SITE", "rapids-site"), ("OURS", "our-site")))  # fmt: skip
    supervisor = Supervisor(options)
    supervisor.environment |= {"SITE": str(site), "OURS": str(ours)}
    if cuda := find_cuda():
        supervisor.environment["CUDA_HOME"] = cuda
    if options.data.is_dir():
        supervisor.environment["CURATION_TEST_DATA"] = str(options.data.resolve())
    supervisor.command("machine", 60, facts(options))
    if options.step == "one":
        unpack(supervisor, options.kit, site)
    if options.step == "two":
        use_site(supervisor, site, ours)
        install(supervisor, options.wheels, ours)
    if options.step in ("one", "two"):
        use_site(supervisor, site, ours)
    supervisor.worker("probes")
    if options.step != "one":
        supervisor.worker("checks")
        if supervisor.results.latest().get(FIRST_CHECK, {}).get("status") == "FAIL":
            supervisor.environment["CUDA_LAUNCH_BLOCKING"] = "1"  # errors appear at the launch that caused them
            supervisor.worker("blocking")
            del supervisor.environment["CUDA_LAUNCH_BLOCKING"]
    if options.step in ("two", "check"):
        sanitize(supervisor)
        supervisor.worker("tests")
    return supervisor.close()


# What travels


def normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def names_in(path: Path) -> set[str]:
    """Names of packages: of a folder with a kit, or of a file like the output of `pip list` or `pip freeze`."""
    if path.is_dir():
        wheels = (
            wheel["file"] for each in path.glob("MANIFEST-*.json") for wheel in json.loads(each.read_bytes())["wheels"]
        )
        return {re.sub("-cu1[0-9]$", "", normal(wheel.split("-")[0])) for wheel in wheels}
    return {
        normal(found[0]) for line in path.read_text("utf-8").splitlines() if (found := re.findall(r"[\w.-]+", line))
    }


def needed_by(wheel: Path) -> list[str]:
    """Requirements of a wheel, without those of extras."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [each for each in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each)]
        lines = archive.read(name).decode().split("\n\n")[0].splitlines()
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("Requires-Dist:"))
    return [each for each in found if "extra ==" not in each and not re.search("python_version *<|win32|Windows", each)]


def download(folder: Path, installed: Iterable[Path]) -> int:
    """Download the wheels of this project's dependencies that are not installed there, and what they need. Returns 1
    if a dependency has no wheel. What another package needs may have none: of some, only data files are read."""
    import tomllib

    present = set().union(*map(names_in, installed))
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    folder.mkdir(parents=True, exist_ok=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "--python-version",
        "3.12",
    ]
    pip += ["--implementation", "cp", *(word for each in PLATFORMS for word in ("--platform", each)), "-d", str(folder)]
    direct, lacking = {normal(re.split(r"[\[<>=!~ (]", each)[0]) for each in wanted}, []
    while wanted:
        requirement = wanted.pop().partition(";")[0].strip()
        name = normal(re.split(r"[\[<>=!~ (]", requirement)[0])
        if name in present:
            continue
        present.add(name)
        before = set(folder.glob("*.whl"))
        if subprocess.run([*pip, re.sub(r"[()]", "", requirement)], check=False).returncode:
            lacking.append(name)
            print(f"{requirement}: no wheel; needed by {'this project' if name in direct else 'another package'}")
            continue
        made = set(folder.glob("*.whl")) - before or {
            each for each in before if normal(each.name.split("-")[0]) == name
        }
        print(f"{requirement}: {', '.join(f'{each.name} {each.stat().st_size / 2**20:.1f} MiB' for each in made)}")
        wanted += [need for each in made for need in needed_by(each)]
    print(f"{sum(each.stat().st_size for each in folder.glob('*.whl')) / 2**20:.1f} MiB")
    return int(bool(direct & {*lacking}))


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(64, f"{self.format_usage()}{message}\n")


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=("one", "two", "check", "dry", "wheels"))
    parser.add_argument("out", type=Path, help="folder for results, or for wheels")
    parser.add_argument(
        "--limit", type=float, default=600, help="seconds until the machine is taken away (default: 600)"
    )
    parser.add_argument("--kit", type=Path, default=Path(".kit"))
    parser.add_argument("--wheels", type=Path, default=Path(".whl"))
    parser.add_argument("--data", type=Path, default=Path(".data"))
    parser.add_argument("--python", default=sys.executable, help="that runs the parts (default: this one)")
    parser.add_argument("--installed", type=Path, nargs="*", default=[], help="output of `pip list` there, or a kit")
    options = parser.parse_args(arguments)
    if options.limit <= SPARE_SECONDS:
        parser.error(
            f"--limit is {options.limit:g} s; expected more than {SPARE_SECONDS}, which files take to come back"
        )
    return download(options.out, options.installed) if options.step == "wheels" else run_step(options)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
