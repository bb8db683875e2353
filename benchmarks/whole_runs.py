# SPDX-License-Identifier: Apache-2.0
"""Times of whole runs on GPUs, by the model of `curation.base.speeds`: the table in docs/gpu.md.

Usage: python -m benchmarks.whole_runs [--record]

No device is needed, and nothing is measured.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from curation.base.speeds import DOCUMENT_BYTES, RunWork, engine_times

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gpu.md"
START, END = "<!-- whole-runs -->\n", "\n<!-- /whole-runs -->"
STEPS = ("parse", "rewrite", "filter", "exact_dedup", "fuzzy_dedup", "tokens")
OUTPUTS = {
    "documents, tokens": (*STEPS, "write"),
    "documents by the GPU, tokens": (*STEPS, "encode"),
    "tokens": STEPS,
}
MACHINES = ((16, 1), (64, 1), (64, 4))  # processors, GPUs
SHORT_DOCUMENT = 100  # bytes
SIZE = 10  # GB of a run


def table() -> str:
    """Return the table in Markdown."""
    head = ["output", "CPUs", "GPUs", "CPU, GB/s", "GPU, GB/s", "host, GB/s"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rows() -> Iterator[list[str]]:
    texts = {output: (steps, DOCUMENT_BYTES) for output, steps in OUTPUTS.items()}
    texts[f"tokens, {SHORT_DOCUMENT}-byte documents"] = STEPS, SHORT_DOCUMENT
    for output, (steps, document) in texts.items():
        for processors, devices in MACHINES:
            work = RunWork(SIZE * 10**9, steps, processors, document=document)
            cpu, gpu = engine_times("cpu", work).at_most(), engine_times("gpu", work)
            most, least = gpu.at_most(devices), gpu.at_least(devices)
            speed = f"{SIZE / most:.1f} to {SIZE / least:.1f}"
            yield [output, str(processors), str(devices), f"{SIZE / cpu:.1f}", speed, f"{SIZE / gpu.host:.1f}"]


def recorded() -> str:
    """Return the table of the page."""
    return PAGE.read_text("utf-8").split(START)[1].split(END)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the table to docs/gpu.md")
    print(table())
    if parser.parse_args().record:
        PAGE.write_text(PAGE.read_text("utf-8").replace(recorded(), table()), "utf-8")


if __name__ == "__main__":
    main()
