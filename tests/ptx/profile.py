# SPDX-License-Identifier: Apache-2.0
"""Counts of every kernel on stated inputs, its registers, and the tables of the page.

    python -m tests.ptx.profile [--record]

Runs the kernels of all functions on the made texts and on the real ones of tests/data, compares the results with the
CPU engine's, and prints the tables. `--record` writes the counts to `recorded.json`, with which a test compares later
ones, and the tables to docs/gpu.md and docs/measurements/gpu_counts.md. These have the counts of the real texts, which
no kernel was tuned to.
"""

import argparse
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.corpus import PROJECT, real_documents
from tests.ptx import workload
from tests.ptx.build import CAPABILITY, ptx_of, toolchain
from tests.ptx.engine import ORIGINALS, SIGNATURES, Device, install_engine
from tests.ptx.execute import Counts, executable_of
from tests.ptx.model import (
    ASSUMPTIONS,
    BATCH_BYTES,
    GB,
    SECTOR_BYTES,
    TOKEN_BATCH_BYTES,
    WINDOW_BATCH_BYTES,
    Speeds,
    Times,
    batch_speeds,
    python_ms,
    resident_warps,
    times_of,
)
from tests.ptx.operations import TALLY, tally_arrays
from tests.ptx.resources import CAPABILITIES, Resources, link_to_cubin, reported

RECORDED = Path(__file__).with_name("recorded.json")
DOCS = PROJECT / "docs"
PAGES = {"functions": DOCS / "gpu.md", "kernels": DOCS / "measurements" / "gpu_counts.md"}  # by mark
ON_PAGE = "corpus"
CALL_BYTES = {"tokens": TOKEN_BATCH_BYTES, "windows": WINDOW_BATCH_BYTES}  # of a batch, by the call's first word
TOLERANCE = 0.05


def inputs() -> dict[str, list[str]]:
    return {"made": workload.made_texts(), ON_PAGE: real_documents()}


class Call(NamedTuple):
    """What a function of the engine asks of a device."""

    kernels: dict[str, int]  # launches
    arrays: int  # that these pass
    operations: int  # of CuPy
    waits: int  # of the host
    sums: int  # passes of prefix sums
    sum_bytes: int  # that these read and write

    @property
    def launches(self) -> int:
        return sum(self.kernels.values())

    @property
    def python_ms(self) -> float:
        return python_ms(self.launches, self.arrays, self.operations, self.waits)


def reset(device: Device) -> None:
    device.counts, device.launches = {}, {}
    device.arrays = device.sums = device.sum_bytes = 0
    TALLY.reset()


def call_of(device: Device) -> Call:
    """What was asked since the last reset."""
    return Call(device.launches, device.arrays, TALLY.operations, TALLY.waits, device.sums, device.sum_bytes)


def counts_of(texts: Sequence[str]) -> tuple[dict[str, Counts], dict[str, Call], dict[str, int]]:
    """Counts of each kernel in the first call that launches it, each call, and threads per block of each kernel. The
    results are those of the CPU engine."""
    found: dict[str, Counts] = {}
    calls: dict[str, Call] = {}
    with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory() as folder:
        tally_arrays(monkeypatch)
        engine, device = install_engine(monkeypatch, None)
        for name in workload.CALLS:
            reset(device)
            results = workload.CALLS[name](engine, texts, Path(folder))
            found = device.counts | found
            calls[name] = call_of(device)
            workload.assert_equal(name, results, texts, Path(folder))
        reset(device)
        workload.run_job(monkeypatch, texts, Path(folder))
        calls[workload.JOB] = call_of(device)
    never = set(ORIGINALS) - set(found)
    if never:
        raise ValueError(f"no call launches {', '.join(sorted(never))}: add one to CALLS in tests/ptx/workload.py")
    return {name: found[name] for name in ORIGINALS}, calls, {name: device.threads[name] for name in ORIGINALS}


def resources(capability: tuple[int, int]) -> dict[str, Resources]:
    ptx = {name: ptx_of(kernel, SIGNATURES[kernel], capability) for name, kernel in ORIGINALS.items()}
    return {name: reported(*link_to_cubin(text.encode(), capability)) for name, text in ptx.items()}


def recorded_counts(texts: Sequence[str]) -> dict[str, Any]:
    counts, calls, threads = counts_of(texts)
    return {
        "documents": len(texts),
        "bytes": sum(len(text.encode()) for text in texts),
        "longest": max(len(text.encode()) for text in texts),
        "counts": {kernel: asdict(each) for kernel, each in counts.items()},
        "calls": {name: call._asdict() for name, call in calls.items()},
        "threads": threads,
    }


def profile() -> dict[str, Any]:
    return {
        "toolchain": toolchain(),
        "inputs": {name: recorded_counts(texts) for name, texts in inputs().items()},
        "ptx_instructions": {
            name: len(executable_of(kernel, CAPABILITY).kernel.instructions) for name, kernel in ORIGINALS.items()
        },
        "resources": {
            "{}.{}".format(*capability): {name: list(found) for name, found in resources(capability).items()}
            for capability in CAPABILITIES
        },
    }


def changed_calls(found: dict[str, Call], recorded: dict[str, dict[str, Any]]) -> list[str]:
    """Calls whose launches or prefix sums differ from the recorded ones."""
    calls = {name: Call(**values) for name, values in recorded.items()}
    return [f"{name}: was {calls.get(name)} and is {call}" for name, call in found.items() if call != calls.get(name)]


def changes(found: dict[str, Counts], recorded: dict[str, dict[str, int]]) -> list[str]:
    """Kernels that are new, and counts that differ from the recorded ones by more than TOLERANCE."""
    pairs = [
        (name, field, value, recorded[name][field])
        for name, counts in found.items()
        if name in recorded
        for field, value in asdict(counts).items()
    ]
    return [f"{name}: not recorded" for name in found if name not in recorded] + [
        f"{name}: {field} was {before:,} and is {value:,}"
        for name, field, value, before in pairs
        if abs(value - before) > TOLERANCE * before
    ]


# Tables


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def short(number: float) -> str:
    """Two digits or more."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def counts_table(found: dict[str, Any]) -> str:
    rows = []
    for name, values in found["counts"].items():
        counts, size = Counts(**values), found["bytes"]
        rows.append([
            f"`{name}`",
            short(counts.instructions / size),
            short(counts.instructions / (32 * counts.warp_instructions) * 100) + " %",
            f"{counts.longest:,}",
            short((counts.loads + counts.stores) / size),
            short(counts.sectors / max(counts.requests, 1)),
            short(SECTOR_BYTES * counts.sectors / size),
            f"{counts.atomics:,}",
            f"{counts.most_atomics_at_one_address:,}",
        ])  # fmt: skip
    return table(
        ["kernel", "PTX instructions per byte", "lanes at work", "PTX instructions of the longest thread",
         "accesses per byte", "sectors per request", "sector bytes per byte", "atomics", "at one address"],
        rows,
    )  # fmt: skip


def machine_ratio(name: str, recorded: dict[str, Any]) -> float:
    code = Resources(*recorded["resources"]["{}.{}".format(*CAPABILITY)][name])
    return code.instructions / recorded["ptx_instructions"][name]


def kernel_times(found: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Times]:
    return {
        name: times_of(
            Counts(**values),
            found["bytes"],
            Resources(*recorded["resources"]["{}.{}".format(*CAPABILITY)][name]),
            found["threads"][name],
            machine_ratio(name, recorded),
        )
        for name, values in found["counts"].items()
    }


def speeds_of(found: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Speeds]:
    """Speeds of each function."""
    all_times, speeds = kernel_times(found, recorded), {}
    for name in workload.FUNCTIONS:
        call = Call(**found["calls"][name])
        times = [all_times[kernel] for kernel in call.kernels]
        batch_bytes = CALL_BYTES.get(name.partition(" ")[0], BATCH_BYTES)
        speeds[name] = batch_speeds(times, call.sum_bytes / found["bytes"], call.python_ms, batch_bytes)
    return speeds


def calls_table(found: dict[str, Any], recorded: dict[str, Any]) -> str:
    """The speed of each function: its kernels, prefix sums and Python."""
    rows = []
    for name, speeds in speeds_of(found, recorded).items():
        call = Call(**found["calls"][name])
        asked = call.launches, call.arrays, call.operations, call.waits
        rows.append([
            workload.FUNCTIONS[name], *(f"{count:,}" for count in asked), short(call.python_ms),
            short(call.sum_bytes / found["bytes"]), f"{short(speeds.lowest)} to {short(speeds.highest)}",
        ])  # fmt: skip
    return table(
        ["function", "launches", "arrays", "operations of CuPy", "waits", "Python, ms per batch",
         "prefix sums, bytes per byte", "GB/s"],
        rows,
    )  # fmt: skip


def job_line(found: dict[str, Any]) -> str:
    """What a job asks of a device for one batch."""
    call = Call(**found["calls"][workload.JOB])
    return (
        f"A run with one batch ({workload.JOB_SETTINGS}) makes {call.launches:,} launches with {call.arrays:,} arrays, "
        f"{call.operations:,} operations of CuPy and {call.waits:,} waits: {short(call.python_ms)} ms of Python."
    )


def times_table(found: dict[str, Any], recorded: dict[str, Any]) -> str:
    rows = []
    for name, times in kernel_times(found, recorded).items():
        code = Resources(*recorded["resources"]["{}.{}".format(*CAPABILITY)][name])
        threads, machine = found["threads"][name], machine_ratio(name, recorded)
        speeds = (BATCH_BYTES / GB / times.batch_ms(end) * 1e3 for end in (times.per_gb, times.cached))
        rows.append([
            f"`{name}`", str(threads), str(resident_warps(code, threads)), short(machine),
            *map(short, (times.issue, times.waits, times.l1)),
            f"{short(times.least_memory)} to {short(times.most_memory)}", short(times.longest_thread),
            " to ".join(map(short, speeds)),
        ])  # fmt: skip
    return table(
        ["kernel", "threads of a block", "warps of an SM", "machine instructions per PTX instruction", "issue", "waits",
         "L1", "memory", "longest thread, ms", f"GB/s of a batch of {BATCH_BYTES >> 20} MiB"],
        rows,
    )  # fmt: skip


def resources_table(recorded: dict[str, Any]) -> str:
    rows = []
    for name in ORIGINALS:
        found = [Resources(*each[name]) for each in recorded["resources"].values()]
        memory = [", ".join(dict.fromkeys(str(getattr(each, field)) for each in found)) for field in
                  ("stack", "local", "shared")]  # fmt: skip
        rows.append([f"`{name}`", *(str(each.registers) for each in found), *memory, f"{found[2].instructions:,}"])
    header = ["kernel", *(f"registers, {capability}" for capability in recorded["resources"])]
    return table([*header, "stack", "local bytes", "shared bytes", "machine instructions, 9.0"], rows)


def tables(recorded: dict[str, Any]) -> dict[str, str]:
    """Return the generated text of the pages: name of a mark -> the text after it."""
    found = recorded["inputs"][ON_PAGE]
    tools = ", ".join(f"{package} {number}" for package, number in recorded["toolchain"].items())
    about = (
        f"Input: {found['documents']:,} real documents in 22 languages (`tests/data/corpus.jsonl.gz`), "
        f"{found['bytes']:,} bytes, the longest of {found['longest']:,} bytes. Each function ran once: "
        f"{workload.SETTINGS}. PTX for compute capability 9.0 by {tools}."
    )
    kernels = counts_table(found), ASSUMPTIONS, times_table(found, recorded), resources_table(recorded)
    return {
        "functions": "\n\n".join([calls_table(found, recorded), job_line(found)]),
        "kernels": "\n\n".join([about, *kernels]),
    }


def on_page(page: str, mark: str, content: str) -> str:
    """The page with `content` between the marks."""
    first, last = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    return re.sub(f"(?s)(?<={first}\n).*?(?=\n{last})", lambda _: content, page)


def write_pages(recorded: dict[str, Any]) -> None:
    for mark, content in tables(recorded).items():
        PAGES[mark].write_text(on_page(PAGES[mark].read_text("utf-8"), mark, content), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write recorded.json and the tables")
    record = parser.parse_args().record
    found = profile()
    print("\n\n".join(tables(found).values()))
    if record:
        RECORDED.write_text(json.dumps(found, indent=1) + "\n")
        write_pages(found)


if __name__ == "__main__":
    main()
