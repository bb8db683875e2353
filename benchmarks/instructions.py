# SPDX-License-Identifier: Apache-2.0
"""Instructions that each kernel executes on a small made text, counted by Valgrind and held within 3 % of a record.

    python -m benchmarks.instructions [--record]

A count does not depend on other work of the machine, as times do: two runs differ by at most 0.3 %. Kernels are
compiled for x86-64-v3, because Valgrind has no AVX-512. A kernel runs on N and on 2 N documents, and the difference is
counted: it has neither the start of the process nor the work per call. The exit code is 1 for a count outside of the
bounds, and 2 where nothing can be counted.

Counts are not times: they do not see cache misses and mispredicted branches.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import mmap
import os
import platform
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

RECORD = Path(__file__).with_suffix(".json")
TOLERANCE = 0.03
DOCUMENTS = 40
SIZES = (DOCUMENTS, 2 * DOCUMENTS)
SEED = 20261122
LIBRARIES = ("numba", "llvmlite")  # another version may emit other code
CHILD = "--child"
DUMP_AT, START, STOP, ZERO = 0x43540003, 0x43540004, 0x43540005, 0x43540001  # requests of Callgrind's header
# mov %rdi,%rax; xor %edx,%edx; rotations of %rdi that only Valgrind notices; xchg %rbx,%rbx; mov %rdx,%rax; ret
CLIENT_REQUEST = bytes.fromhex("4889f831d248c1c70348c1c70d48c1c73d48c1c7334887db4889d0c3")
COMMON = ["the", "of", "and", "to", "in", "a", "is", "that", "be", "with", "for", "it", "as", "was", "on", "are", "by"]
CONSONANTS, VOWELS = "bcdfghklmnprstvw", "aeiou"


def made_texts(count: int) -> list[str]:
    """Return texts of 300 words or so: common and rare words, lines, paragraphs, and some letters beyond ASCII."""
    chance = random.Random(SEED)

    def syllable() -> str:
        return chance.choice(CONSONANTS) + chance.choice(VOWELS) + chance.choice(("", "", "n", "r", "s"))

    rare = ["".join(syllable() for _ in range(chance.randrange(1, 5))) for _ in range(3000)] + ["naïve", "über", "漢字"]
    texts = []
    for _ in range(count):
        words = []
        for _ in range(chance.randrange(150, 450)):
            word = chance.choice(COMMON) if chance.random() < 0.4 else rare[int(len(rare) * chance.random() ** 3)]
            end = chance.random()
            words.append(word + (".\n\n" if end < 0.01 else ".\n" if end < 0.03 else ". " if end < 0.08 else " "))
        texts.append("".join(words))
    return texts


def kernels() -> dict[str, Callable[[int], Any]]:
    """Return name -> a function that runs a kernel on the first N documents."""
    import numpy as np
    import pyarrow as pa

    from cpu_fallback import text as functions
    from cpu_fallback.dedup import intersection_sizes
    from cpu_fallback.io import from_arrow
    from cpu_fallback.kernels import find_leaders
    from curation.base.measures import Measure
    from curation.kernels import jsonl
    from curation.kernels.ngrams import FREE, pass_documents
    from curation.kernels.permutations import constants
    from curation.kernels.rewrite import RewriteSteps
    from curation.rules.decide import expand_rules

    texts = made_texts(2 * DOCUMENTS)

    def column(texts: list[str]) -> Any:
        return from_arrow(pa.table({"text": pa.array(texts, pa.large_string())}))["text"]

    columns, repeated = ({n: column(texts[:n] * times) for n in SIZES} for times in (1, 20))
    lines = {n: b"".join(json.dumps({"text": text, "id": "a"}).encode() + b"\n" for text in texts[:n]) for n in SIZES}
    shingles = {n: functions.shingles(columns[n], 5, False) for n in SIZES}
    gopher = tuple(dict.fromkeys(name for rule in expand_rules("gopher") for name in rule.measures))
    every = tuple(measure.name for measure in Measure)
    a, b = constants(128)

    def parse(n: int) -> None:
        data, count = np.frombuffer(lines[n], np.uint8), n
        keys = [np.frombuffer(name, np.uint8) for name in (b"text", b"id")]
        starts, offsets = np.empty(count + 1, np.int64), (np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64))
        texts, ids = np.empty(len(data), np.uint8), np.empty(len(data), np.uint8)
        status, valid = np.empty(count, np.uint8), np.empty(count, np.bool_)
        jsonl.parse_lines(data, 0, len(data), *keys, starts, status, texts, offsets[0], ids, offsets[1], valid)

    def pass_all(n: int) -> None:
        hashes, offsets = shingles[n]
        keys, reducers = np.empty(1 << 17, np.uint64), np.full(1 << 17, FREE, np.int32)
        kept, value, places = np.empty(n, np.int32), np.empty(n), np.empty(np.diff(offsets).max(), np.int32)
        rows = np.arange(n, dtype=np.int32)
        pass_documents(hashes, offsets, np.ones(n, bool), rows, 0.9, keys, reducers, places, kept, value)

    def compare(n: int) -> None:
        left = np.arange(n - 1)
        intersection_sizes(*shingles[n], left, left + 1)

    def lead(n: int) -> None:
        keys = np.arange(500 * n, dtype=np.uint64)[:, None] // np.uint64(3)
        slots, leaders = np.full(750 * n + 1, -1, np.int32), np.empty(500 * n, np.uint32)
        find_leaders(keys, np.zeros(0, np.int64), slots, leaders)

    return {
        "read JSON Lines": parse,
        "check of NFC, 20 times": lambda n: functions.rewrite(repeated[n], RewriteSteps(unicode="nfc")),
        "rewrite: lower case, white space": lambda n: functions.rewrite(
            columns[n], RewriteSteps(lowercase=True, whitespace="collapse")
        ),
        "measures of gopher": lambda n: functions.measure(columns[n], gopher),
        "all measures": lambda n: functions.measure(columns[n], every),
        "hashes of texts": lambda n: functions.hash_text(columns[n]),
        "band keys": lambda n: functions.band_keys(columns[n], 5, False, a[:126], b[:126], 9),
        "n-grams of words": lambda n: functions.shingles(columns[n], 5, False),
        "n-grams of characters": lambda n: functions.shingles(columns[n], 20, True),
        "common n-grams of pairs": compare,
        "n-grams seen before": pass_all,
        "leaders of groups": lead,
    }


def run_child() -> None:
    """Run each kernel on both sizes, and let Callgrind write its counts after each. Outside of Valgrind: only run."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(CLIENT_REQUEST)
    code = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(ctypes.addressof(ctypes.c_char.from_buffer(page)))

    def request(number: int, text: bytes = b"") -> None:
        name = ctypes.create_string_buffer(text)
        arguments = (ctypes.c_uint64 * 6)(number, ctypes.addressof(name))
        code(ctypes.addressof(arguments))

    made = kernels()
    for run in made.values():
        for n in SIZES:
            run(n)
    gc.disable()
    request(START)
    for name, run in made.items():
        run(DOCUMENTS)  # Callgrind translates the code of the first call
        for n in SIZES:
            request(ZERO)
            run(n)
            request(DUMP_AT, f"{name}={n}".encode())
    request(STOP)


def count_instructions() -> dict[str, int]:
    """Return kernel -> instructions for DOCUMENTS documents."""
    from curation.kernels.cache import WHEEL_CPU, WHEEL_FEATURES

    cpu = {"NUMBA_CPU_NAME": WHEEL_CPU, "NUMBA_CPU_FEATURES": ",".join(f"+{name}" for name in WHEEL_FEATURES)}
    fixed = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment = os.environ | cpu | fixed
    command = [sys.executable, "-m", "benchmarks.instructions", CHILD]
    subprocess.run(command, env=environment, check=True)  # compiles the kernels that are missing
    with TemporaryDirectory() as folder:
        options = ["--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counts"]
        subprocess.run(["valgrind", "--quiet", *options, *command], env=environment, check=True)
        found = dict(_counts(Path(folder)))
    return {name: found[name, SIZES[1]] - found[name, SIZES[0]] for name, _ in found}


def _counts(folder: Path) -> Iterator[tuple[tuple[str, int], int]]:
    """Yield ((kernel, documents), instructions) from the files that Callgrind wrote, in their order."""
    for path in sorted(folder.glob("counts.*"), key=lambda path: int(path.suffix[1:])):
        text = path.read_text()
        name = re.search(r"^desc: Trigger: Client Request: (.+)=(\d+)$", text, re.MULTILINE)
        total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
        if name and total:
            yield (name[1], int(name[2])), int(total[1])


def cannot_count() -> str:
    """Return the reason why this machine cannot compare counts with the record; "" if it can."""
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        return "counts are recorded for x86-64 and Linux"
    if not shutil.which("valgrind"):
        return "valgrind is not installed (Debian: apt-get install valgrind)"
    from llvmlite import binding

    from curation.kernels.cache import WHEEL_CPU, WHEEL_FEATURES

    if not all(map(binding.get_host_cpu_features().get, WHEEL_FEATURES)):
        return f"this processor is not of the level {WHEEL_CPU}"
    return ""


def compare(counts: Mapping[str, int], recorded: Mapping[str, int]) -> list[str]:
    """Return a message for each kernel whose count is more than 3 % above or below its record, or without a record."""
    faults = [f"{name}: not recorded" for name in counts if name not in recorded]
    faults += [f"{name}: recorded, but not counted" for name in recorded if name not in counts]
    for name in counts.keys() & recorded.keys():
        change = counts[name] / recorded[name] - 1
        if abs(change) > TOLERANCE:
            faults.append(f"{name}: {counts[name]:,} instructions, {change:+.1%} of the {recorded[name]:,} recorded")
    return sorted(faults)


def main() -> int:
    parser = argparse.ArgumentParser(description="Count the instructions of kernels, and compare with the record.")
    parser.add_argument("--record", action="store_true", help=f"write the counts to {RECORD.name}")
    options = parser.parse_args()
    versions = {name: version(name) for name in LIBRARIES}
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"versions": versions, "counts": {}}
    reason = cannot_count()
    if not reason and not options.record and record["versions"] != versions:
        reason = f"the record is of {record['versions']}, this is {versions}. Record again with --record"
    if reason:
        print(f"no instructions counted: {reason}")
        return 2
    counts = count_instructions()
    size = sum(len(text.encode()) for text in made_texts(2 * DOCUMENTS)[DOCUMENTS:])
    for name, count in counts.items():
        change = f"{count / record['counts'][name] - 1:>+9.2%}" if name in record["counts"] else ""
        print(f"{name:34}{count:>14,}{count / size:>9.2f} per byte{change}")
    if options.record:
        RECORD.write_text(json.dumps({"versions": versions, "counts": counts}, indent=1) + "\n")
        return 0
    faults = compare(counts, record["counts"])
    for fault in faults:
        print(f"FAILED {fault}")
    if faults:
        print("Repair the kernel; or, if the change is intended, record it: python -m benchmarks.instructions --record")
    return 1 if faults else 0


if __name__ == "__main__":
    if sys.argv[1:] == [CHILD]:
        run_child()
    else:
        sys.exit(main())
