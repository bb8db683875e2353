# SPDX-License-Identifier: Apache-2.0
"""What a whole job costs per terabyte of text, measured at several sizes.

    python -m benchmarks.cost measure RESULTS.jsonl --folder DIR [--sizes 1GB 4GB 16GB] [--recipes default ...]
    python -m benchmarks.cost table RESULTS.jsonl [--price 0.04]

`measure` runs `curate run` with the CPU engine over generated text (`benchmarks.corpus`) on all processors of this
machine, and appends a line per run to RESULTS.jsonl. DIR needs 3 bytes per byte of the largest size; each run is
deleted. `table` prints core-hours per TB (10^12 bytes of JSON Lines): the lowest and the highest run of each size, and
of 1 TB, extrapolated. The lower end of this is the lowest of all runs. The higher end is the highest of all, times the
growth from the largest size to 1 TB, by the power of the size that fits the medians of all sizes. `--price`, in dollars
per core and hour, adds dollars per trillion tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.corpus import DEFAULT_SOURCE, parse_size, truth_path
from curation.results.report.text import numbers

STAGES: dict[str, list[dict[str, Any]]] = {
    "plain": [
        {"kind": "rewrite", "unicode": "nfc"},
        {"kind": "filter", "rules": [{"set": "gopher"}]},
        {"kind": "exact_dedup"},
        {"kind": "fuzzy_dedup"},
    ],
    "spans": [{"kind": "substring_dedup", "min_kept": 50}],
}
RECIPES = ("default", *STAGES)  # the recipe of that name, or its stages alone with GPT-2 tokens
POLL_SECONDS = 2.0
TERABYTE = 1e12


def arguments(recipe: str, corpus: Path, folder: Path) -> list[str]:
    """Write the recipe file if there is one; return the arguments of `curate run`."""
    inputs = [{"path": str(corpus), "format": "jsonl"}]
    if recipe not in STAGES:
        return [recipe, "--set", f"input={json.dumps(inputs)}"]
    path = folder / f"{recipe}.yaml"
    content = {"input": inputs, "stages": STAGES[recipe], "tokenizer": {"name": "gpt2", "append_eod": True}}
    path.write_text(json.dumps(content))
    return [str(path)]


def measure(recipe: str, corpus: Path, folder: Path) -> dict[str, Any]:
    """Run a recipe over the corpus in a process; return its cost."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    seen, ended = [(0, 0)], threading.Event()

    def watch() -> None:
        while not ended.wait(POLL_SECONDS):
            seen.append(stored(out))

    command = [sys.executable, "-m", "curation", "run", *arguments(recipe, corpus, folder)]
    started, load = time.perf_counter(), os.getloadavg()[0]
    process = subprocess.Popen([*command, "-o", str(out), "--engine", "cpu"], stdout=subprocess.DEVNULL)
    watcher = threading.Thread(target=watch)
    watcher.start()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    ended.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{recipe} over {corpus} ended with exit code {process.returncode}")
    report = json.loads((out / "report.json").read_bytes())
    seen.append(stored(out))
    peak_disk, peak_files = map(max, zip(*seen, strict=True))
    result = {
        "recipe": recipe, "bytes": corpus.stat().st_size, "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "wall_seconds": time.perf_counter() - started, "processors": os.cpu_count(), "load_before": load,
        "peak_memory": usage.ru_maxrss * 1024, "peak_disk": peak_disk,
        "peak_files": peak_files, "left_on_disk": seen[-1][0], "documents": report["documents"]["read"],
        "kept": report["documents"]["kept"], "tokens": numbers(report)["tokens"],
    }  # fmt: skip
    shutil.rmtree(out)
    return result


def stored(folder: Path) -> tuple[int, int]:
    """Return the bytes that the files of a folder take on the disk, and their number. Files may disappear meanwhile."""
    total = count = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(place, name)).st_blocks * 512
                count += 1
    return total, count


def core_hours(run: dict[str, Any]) -> float:
    """Return the core-hours per terabyte of a run."""
    return float(run["cpu_seconds"] / 3600 / run["bytes"] * TERABYTE)


def growth(runs: Sequence[dict[str, Any]]) -> float:
    """Return the power of the size by which the core-hours per byte grow: the slope of a line through the logarithms of
    the sizes and of the median of each; 0 for one size."""
    sizes = sorted({run["bytes"] for run in runs})
    if len(sizes) < 2:
        return 0.0
    medians = [median(core_hours(run) for run in runs if run["bytes"] == size) for size in sizes]
    return float(np.polyfit(np.log(sizes), np.log(medians), 1)[0])


def extrapolated(runs: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Return the core-hours of a terabyte: the lowest of all runs, and the highest times the growth from the largest
    size. Fewer core-hours per byte at a larger size are not extrapolated."""
    found = [core_hours(run) for run in runs]
    largest = max(run["bytes"] for run in runs)
    return min(found), max(found) * max((TERABYTE / largest) ** growth(runs), 1.0)


def table(runs: Sequence[dict[str, Any]], price: float | None) -> Iterator[str]:
    """Yield the lines of the table: a row per recipe and size, and a row for 1 TB."""
    heads = ["recipe", "text", "runs", "core-hours per TB", "wall, min", "memory, GB", "disk, bytes per byte"]
    heads += [f"$ per 10^12 tokens at {price:g} $ per core-hour"] if price is not None else []
    yield f"| {' | '.join(heads)} |"
    yield f"|---|---:|{'---:|' * (len(heads) - 2)}"
    for recipe in dict.fromkeys(run["recipe"] for run in runs):
        own = [run for run in runs if run["recipe"] == recipe]
        largest = max(run["bytes"] for run in own)
        per_token = median(run["tokens"] / run["bytes"] for run in own if run["bytes"] == largest)
        for size in sorted({run["bytes"] for run in own}):
            same = [run for run in own if run["bytes"] == size]
            hours = [core_hours(run) for run in same]
            cells = [
                recipe, f"{size / 1e9:.0f} GB", str(len(same)), spread(hours, 1),
                spread([run["wall_seconds"] / 60 for run in same], 1),
                spread([run["peak_memory"] / 1e9 for run in same], 2),
                spread([run["peak_disk"] / run["bytes"] for run in same], 2),
                *([spread([price * value / per_token for value in hours], 1)] if price is not None else []),
            ]  # fmt: skip
            yield f"| {' | '.join(cells)} |"
        hours = [*extrapolated(own)]
        cells = [recipe, f"1 TB, extrapolated from {largest / 1e9:.0f} GB", "0", spread(hours, 1), "", "", ""]
        cells += [spread([price * value / per_token for value in hours], 1)] if price is not None else []
        yield f"| {' | '.join(cells)} |"


def spread(values: Sequence[float], digits: int) -> str:
    """Return the lowest and the highest value."""
    low, high = f"{min(values):,.{digits}f}", f"{max(values):,.{digits}f}"
    return low if low == high else f"{low} to {high}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "table"])
    parser.add_argument("results", type=Path)
    parser.add_argument("--folder", type=Path, help="for the corpora and the runs")
    parser.add_argument("--sizes", nargs="+", type=parse_size, default=[parse_size("1GB")])
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=RECIPES)
    parser.add_argument("--source", type=Path, default=DEFAULT_SOURCE, help="JSON Lines that give the sentences")
    parser.add_argument("--price", type=float, help="dollars per core and hour")
    options = parser.parse_args()
    if options.what == "measure":
        options.folder.mkdir(parents=True, exist_ok=True)
        for size in options.sizes:
            corpus = options.folder / f"corpus-{size}.jsonl"
            # In a process of its own: Linux counts the memory of a process for the children that it starts.
            make = [sys.executable, "-m", "benchmarks.corpus", str(corpus), "--size", str(size)]
            subprocess.run([*make, "--source", str(options.source)], check=True, stdout=subprocess.DEVNULL)
            for recipe in options.recipes:
                found = measure(recipe, corpus, options.folder)
                with open(options.results, "a", encoding="utf-8") as file:
                    file.write(json.dumps(found) + "\n")
            corpus.unlink()
            truth_path(corpus).unlink()
        return
    runs = [json.loads(line) for line in options.results.read_text("utf-8").splitlines()]
    print("\n".join(table(runs, options.price)))


if __name__ == "__main__":
    main()
