# SPDX-License-Identifier: Apache-2.0
"""Speed of gpu-pipeline on this machine: MB of text per second for each stage, on one core and on several.

    python -m benchmarks.bench [--size 100MB] [--repeats 5] [--workers 2] [--json FILE] [--keep FOLDER]

Every repetition is a separate process over a separate corpus (another seed of `benchmarks/corpus.py`). One core and
several cores take turns, so noise of the machine affects both. One core means one worker in a process that is bound to
one core. Kernels are compiled and run once before the clock starts; the time for compiling is reported separately.
Tokenizers start with an empty cache. The tables show medians; a MB is 10^6 bytes of UTF-8 text.

MB per CPU second counts user and system time of all threads. Compare this number on a busy machine.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks import corpus
from curation.base.system.memory import configure_allocators

PACKAGES = ("numpy", "numba", "pandas", "pyarrow", "dask", "orjson", "isal", "gigatoken", "tiktoken")
GZIP_FILES = 4
WARM_BYTES = 2_000_000
GZIP_BYTES = 40_000_000  # of JSON Lines, before compression; more only takes longer

STAGES = {
    "read": "JSON Lines read",
    "gzip": "JSON Lines, gzip, read",
    "rewrite": "rewrite (NFC, collapse white space)",
    "gopher": "Gopher measures + decision",
    "hash": "exact hash (murmur3 128)",
    "bands": "near-duplicate keys (128 permutations)",
    "tokenise": "tokenise + pack (GPT-2)",
    "write": "write documents (Parquet, zstd 1)",
}
JOBS = {
    "job": "whole job: read, NFC, Gopher, exact, tokenise, write",
    "job_near": "whole job with near-duplicates",
}


# One measurement: this process, one repetition


def cpu_seconds() -> tuple[float, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime, usage.ru_stime


class Clock:
    """Wall and CPU seconds of a `with` block."""

    def __enter__(self) -> Clock:
        self.before = (*cpu_seconds(), time.perf_counter())
        return self

    def __exit__(self, *_: object) -> None:
        user, system, wall = self.before
        now_user, now_system = cpu_seconds()
        self.result = {
            "wall": time.perf_counter() - wall,
            "user": now_user - user,
            "system": now_system - system,
        }


def measure_stages(path: Path, folder: Path, workers: int) -> dict[str, dict[str, float]]:
    """Return seconds and text bytes of every stage over one corpus file."""
    import numpy as np
    import pyarrow as pa

    from curation.base.contract import TEXT
    from curation.base.engine import load_engine
    from curation.base.parquet import TableWriter
    from curation.reading import probe
    from curation.reading.inputs import Input
    from curation.reading.paths import find_files
    from curation.reading.slices import plan_slices
    from curation.record.documents import DOCUMENT_SCHEMA, ROW_GROUP_DOCUMENTS, document_options
    from curation.record.partitions import with_ids
    from curation.stages import ExactDedup, Filter, Rewrite
    from curation.tokens.tokenization import Tokenizer, TokenizerSpec
    from curation.tokens.vocabularies import load_vocabulary

    engine = load_engine("cpu")
    batch_bytes = engine.batch_bytes(workers)
    slices = plan_slices(
        [probe(file) for file in find_files([Input(path=str(path))])],
        max(path.stat().st_size // (4 * workers), 1 << 20),
    )
    results: dict[str, dict[str, float]] = {}

    def read(piece: Any) -> int:
        return sum(int(engine.byte_lengths(b.frame[TEXT]).sum()) for b in engine.read_slice(piece, batch_bytes))

    with engine.open_session(workers, "threads") as session:

        def timed(name: str, function: Callable[[Any], Any], items: Sequence[Any], size: int) -> list[Any]:
            with Clock() as clock:
                found = session.map(function, items)
            results[name] = clock.result | {"bytes": size or sum(found)}
            return found

        timed("read", read, slices, 0)
        packed = path.with_suffix(".gz.d")
        if packed.is_dir():
            timed(
                "gzip", read, plan_slices([probe(file) for file in find_files([Input(path=str(packed))])], 1 << 30), 0
            )
        frames = [batch.frame for piece in slices for batch in engine.read_slice(piece, batch_bytes)]
        arrays = [engine.to_arrow(frame[[TEXT]]).column(0).combine_chunks() for frame in frames]
        arrays = [a.chunk(0) if isinstance(a, pa.ChunkedArray) else a for a in arrays]
        size = sum(int(engine.byte_lengths(frame[TEXT]).sum()) for frame in frames)

        clean = Rewrite(unicode="nfc", whitespace="collapse")
        timed("rewrite", lambda frame: clean.apply(engine, frame).edited, frames, size)
        gopher = Filter(rules="gopher")
        timed("gopher", lambda frame: gopher.apply(engine, frame), frames, size)
        exact = ExactDedup()
        timed("hash", lambda frame: exact.keys(engine, frame), frames, size)
        near = near_stage()
        if near is not None:
            timed("bands", lambda frame: near.keys(engine, frame), frames, size)
        tokenizer = Tokenizer(TokenizerSpec(name="gpt2"), load_vocabulary("gpt2"))
        tokens = timed("tokenise", lambda array: len(tokenizer.pack(array).ids), arrays, size)
        results["tokenise"]["tokens"] = int(np.sum(tokens))

        def write(number: int) -> None:
            table = with_ids(engine.to_arrow(frames[number]), slices[0].source, 0).cast(DOCUMENT_SCHEMA)
            path, options = folder / f"{number}.parquet", document_options(DOCUMENT_SCHEMA)
            with TableWriter(path, DOCUMENT_SCHEMA, options) as writer:
                for first in range(0, len(table), ROW_GROUP_DOCUMENTS):
                    writer.write(table.slice(first, ROW_GROUP_DOCUMENTS))

        timed("write", write, range(len(frames)), size)
    return results


def near_stage() -> Any:
    """Return the near-duplicate stage with its defaults; None in a version without it."""
    import curation.stages

    stage = getattr(curation.stages, "FuzzyDedup", None)
    return stage() if stage else None


def job_recipe(path: Path, near: bool) -> Any:
    from curation.reading.inputs import Input
    from curation.recipes.recipe import Recipe
    from curation.stages import ExactDedup, Filter, Rewrite

    stages = [Rewrite(unicode="nfc"), Filter(rules="gopher"), ExactDedup()]
    return Recipe(input=[Input(path=str(path))], stages=stages + ([near_stage()] if near else []))


def measure_job(path: Path, folder: Path, workers: int, near: bool) -> dict[str, Any]:
    """Run the whole job over `path`; return its seconds, counts and choice of memory."""
    from curation.base.system.progress import Progress
    from curation.running.run import run

    said: list[str] = []

    class Kept(Progress):
        def log(self, line: str) -> None:
            said.append(line)

    recipe = job_recipe(path, near)
    with Clock() as clock:
        report = run(recipe, folder / "job", engine="cpu", force=True, workers=workers, progress=Kept()).report
    stages = {stage["name"]: stage["seconds"] for stage in report["stages"]}
    return clock.result | {
        "bytes": report["stages"][0]["bytes_in"],
        "work_seconds": report["work_seconds"] | stages,
        "documents": report["documents"],
        "tokens": report["tokens"]["count"],
        "memory": next(line for line in said if line.startswith("memory: ")),
    }


def child(options: argparse.Namespace) -> None:
    """Run the measurement that the parent asks for, and print one line of JSON."""
    if options.workers == 1:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before any library starts threads
    configure_allocators()  # as `curate` does
    path, warm = options.child
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        with Clock() as start:
            measure_stages(warm, Path(folder), options.workers)
        results: dict[str, Any] = {"start": start.result}
        if options.what == "stages":
            results["stages"] = measure_stages(path, Path(folder), options.workers)
        elif options.what in JOBS:
            near = options.what == "job_near"
            measure_job(warm, Path(folder), options.workers, near)
            results["stages"] = {options.what: measure_job(path, Path(folder), options.workers, near)}
    results["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(results))


# All measurements


def run_child(path: Path, warm: Path, what: str, workers: int, **environment: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.bench", "--child", str(path), str(warm)]
    command += ["--what", what, "--workers", str(workers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=os.environ | environment)
    return json.loads(done.stdout.splitlines()[-1])


def write_corpora(folder: Path, size: int, repeats: int, source: Path) -> list[Path]:
    """Write the corpus for warm-up, then one per repetition: other sequences of the same sentences, other names."""
    pool = corpus.make_pool(corpus.read_texts(source), 1)
    paths = []
    for number in range(repeats + 1):
        path = folder / f"corpus-{number}.jsonl"
        corpus.write_corpus(path, size if number else WARM_BYTES, 1000 + number, pool=pool)
        corpus.truth_path(path).unlink()
        compress(path)
        paths.append(path)
    return paths


def compress(path: Path) -> None:
    """Write the first GZIP_BYTES of the file as GZIP_FILES gzip files of level 6 in `<name>.gz.d`."""
    packed = path.with_suffix(".gz.d")
    packed.mkdir()
    with open(path, "rb") as file:
        for number in range(GZIP_FILES):
            lines = file.readlines(min(GZIP_BYTES, path.stat().st_size) // GZIP_FILES)
            (packed / f"{number}.jsonl.gz").write_bytes(gzip.compress(b"".join(lines), 6))


def measure_all(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    warm, *paths = write_corpora(folder, options.size, options.repeats, options.source)
    compiled = run_child(warm, warm, "start", 1, NUMBA_CACHE_DIR=str(folder / "numba"))["start"]
    run_child(warm, warm, "start", 1)  # compiles into the usual folder, unless an earlier run has
    loaded = run_child(warm, warm, "start", 1)["start"]
    wanted = ["stages", "job", *(["job_near"] if near_stage() else [])]
    found: dict[int, list[dict[str, Any]]] = {1: [], options.workers: []}
    peaks: dict[str, int] = {}
    for path in paths:
        for what in wanted:
            for workers in found:
                result = run_child(path, warm, what, workers)
                found[workers].append(result["stages"])
                key = f"{what}, {workers} workers"
                peaks[key] = max(peaks.get(key, 0), result["peak_bytes"])
    return {
        "compile_seconds": round(compiled["user"] + compiled["system"] - loaded["user"] - loaded["system"], 1),
        "peak_bytes": peaks,
        "results": {workers: summarise(runs) for workers, runs in found.items()},
    }


def summarise(runs: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the medians over the repetitions, for each stage."""
    table: dict[str, dict[str, Any]] = {}
    for name in [*STAGES, *JOBS]:
        rows = [run[name] for run in runs if name in run]
        if rows:
            middle = {key: statistics.median(row[key] for row in rows) for key in ("wall", "user", "system", "bytes")}
            cpu = statistics.median((row["user"] + row["system"]) * 1e6 / row["bytes"] for row in rows)
            wall = statistics.median(row["wall"] * 1e6 / row["bytes"] for row in rows)
            table[name] = {key: round(value, 4) for key, value in middle.items()}
            table[name] |= {"mb_per_cpu_second": round(1 / cpu, 1), "mb_per_second": round(1 / wall, 1)}
            last, kept = rows[-1], ("work_seconds", "tokens", "documents", "memory")
            table[name] |= {key: last[key] for key in kept if key in last}
    return table


def machine() -> dict[str, Any]:
    """Return the date, processor, memory, load and versions on which the numbers depend."""
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "load": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": dict(installed()),
    }


def cpu_model() -> str:
    """Return the name of the processor with family and model, because virtual machines cut the name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(reversed([[part.strip() for part in line.split(":", 1)] for line in lines if ":" in line]))
    return f"{fields.get('model name', platform.machine())} (family {fields.get('cpu family')}, {fields.get('model')})"


def installed() -> Iterator[tuple[str, str]]:
    for package in ("gpu-pipeline", *PACKAGES):
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "absent"


def show(report: dict[str, Any], workers: int) -> None:
    about = report["machine"]
    print(f"{about['date']}  {about['cpu']}, {about['cores']} cores, {about['memory_gb']} GB, load {about['load']}")
    print(f"Python {about['python']}, " + ", ".join(f"{name} {text}" for name, text in about["versions"].items()))
    print(f"{report['size'] / 1e6:,.0f} MB of JSON Lines, median of {report['repeats']}; MB of text per second\n")
    one, many = report["results"][1], report["results"][workers]
    print(f"| {'stage':52} | per CPU s | 1 core | {workers} cores | scaling |")
    print(f"|{'-' * 54}|----------:|-------:|--------:|--------:|")
    for name, label in (STAGES | JOBS).items():
        if name in one:
            scaling = many[name]["mb_per_second"] / one[name]["mb_per_second"]
            numbers = (one[name]["mb_per_cpu_second"], one[name]["mb_per_second"], many[name]["mb_per_second"])
            print(f"| {label:52} | {numbers[0]:9.1f} | {numbers[1]:6.1f} | {numbers[2]:7.1f} | {scaling:7.2f} |")
    if about["load"] > 0.5:
        print(f"\nOther work shared the cores (load {about['load']}): trust only the column per CPU s.")
    print(f"\nCompiling all kernels of these stages once: {report['compile_seconds']} CPU seconds")
    for name, size in report["peak_bytes"].items():
        print(f"Peak memory, {name}: {size / 1e6:,.0f} MB")
    for count, results in report["results"].items():
        print(f"Chosen for the job with {count} workers: {results['job']['memory']}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure every stage and the whole job on this machine.")
    parser.add_argument("--size", default="100MB", type=corpus.parse_size, help="of a corpus (default: 100MB)")
    parser.add_argument("--repeats", default=5, type=int, help="repetitions, each with another corpus (default: 5)")
    parser.add_argument("--workers", default=2, type=int, help="of the runs on several cores (default: 2)")
    parser.add_argument("--source", default=corpus.DEFAULT_SOURCE, type=Path, help="JSON Lines that give the sentences")
    parser.add_argument("--json", type=Path, help="file for all results")
    parser.add_argument("--keep", type=Path, help="folder to work in; the corpora remain there")
    parser.add_argument("--child", nargs=2, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--what", default="stages", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    about = machine()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        report = measure_all(options.keep, options)
    else:
        with tempfile.TemporaryDirectory() as folder:
            report = measure_all(Path(folder), options)
    report = {"machine": about, "size": options.size, "repeats": options.repeats} | report
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    show(report, options.workers)


if __name__ == "__main__":
    main()
