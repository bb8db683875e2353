# SPDX-License-Identifier: Apache-2.0
"""Shapes of data whose runs are measured: the resident memory of a whole run beside what the run announces.

A test of shapes is a table of `Shape` and one call of `measure` and `assert_bounded` for each.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

PER_BYTE = 20  # bytes of memory per byte of the largest document (docs/scale.md)
ALLOWED = 1.2
UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
ANNOUNCED = re.compile(r"memory: .*?about ([0-9.,]+) (kB|MB|GB) of")
# VmHWM is of this program alone. `ru_maxrss` begins with the peak of the process that started it.
CHILD = """
import sys
from curation.cli import main
code = main(sys.argv[1:])
with open("/proc/self/status") as status:
    print("peak", next(line for line in status if line.startswith("VmHWM")).split()[1])
sys.exit(code)
"""


class Shape(NamedTuple):
    """An input and a recipe for it.

    make     writes the input to a folder and returns the recipe, without its name and output
    kept     number of documents that the run keeps
    longest  bytes of the text of the largest document, as it is read
    factor   bytes of memory per byte of the largest document, if the run announces another one than PER_BYTE
    """

    make: Callable[[Path], dict[str, Any]]
    kept: int
    longest: int
    factor: float = PER_BYTE


class Measured(NamedTuple):
    """A run: its bytes announced and at most resident, its report, and what it printed."""

    announced: float
    peak: int
    report: dict[str, Any]
    printed: str


def measure(folder: Path, shape: Shape) -> Measured:
    """Run a shape in `folder` with one worker, in a process of its own, and read its memory."""
    recipe = {"name": "shape", "output": {"formats": []}} | shape.make(folder)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    command = ["run", folder / "recipe.yaml", "-o", folder / "out", "--engine", "cpu", "--workers", 1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, command)], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    number, unit = ANNOUNCED.search(done.stderr).groups()
    return Measured(
        announced=float(number.replace(",", "")) * UNITS[unit],
        peak=int(done.stdout.split()[-1]) << 10,
        report=json.loads((folder / "out" / "report.json").read_bytes()),
        printed=done.stderr,
    )


def assert_bounded(folder: Path, shape: Shape) -> Measured:
    """Run a shape. Its documents are kept, and its memory is at most 1.2 times what the run and docs/scale.md announce:
    the announced memory and that of the largest document."""
    found = measure(folder, shape)
    bound = ALLOWED * (found.announced + shape.factor * shape.longest)
    shown = f"{found.peak / 1e6:,.0f} MB resident, {found.announced / 1e6:,.0f} announced, bound {bound / 1e6:,.0f}"
    assert found.report["documents"]["kept"] == shape.kept, (found.report["documents"], shown)
    assert found.peak <= bound, shown
    return found
