# SPDX-License-Identifier: Apache-2.0
"""Weakens each atomic, barrier, fence and bound of the kernels, one at a time, and lists what no launch notices.

    python -m tests.ptx.mutations [KERNEL ...]

An atomic becomes a load and a store, a barrier or a fence nothing, and a bound is off by one. A bound is a comparison
with a number that is a parameter of the kernel, such as the size of an array. Each instruction of the PTX counts: a
compiler writes several for one line of Python, some of them for cases that no launch has.

The launches are those of the calls of `workload`, repeated from the memory before each. A mutation is killed if the
executor finds a fault in one of them, or if a byte differs that every order of threads leaves the same.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.corpus import NASTY
from tests.ptx import engine, workload
from tests.ptx.arrays import regions_of
from tests.ptx.build import CAPABILITY
from tests.ptx.execute import Executable, KernelError, executable_of
from tests.ptx.flow import weakenable
from tests.ptx.parse import Instruction

SEEDS = (1, 2)  # orders of threads in which a launch is repeated
MOST_LAUNCHES = 2  # of a kernel by one call
PATIENCE = 1 << 25  # basic blocks; launches here need fewer
KINDS = ("atomic", "barrier", "fence", "bound")


class Launch:
    """The memory before a launch, and how to repeat it."""

    def __init__(self, blocks: int, threads: int, arguments: tuple):
        self.blocks, self.threads = blocks, threads
        self.arguments = list(arguments)
        self.memory: list[np.ndarray] = []
        self.views: dict[int, tuple[int, int]] = {}  # of each array: its region, and the distance to its start
        for number, region in enumerate(regions_of(arguments)):
            owner = np.zeros(region.misfit + region.end - region.start, np.uint8)
            for k in region.arguments:
                array = arguments[k]
                place = region.misfit + (array.ctypes.data - region.start if array.size else 0)
                self.views[k] = number, place
                self.view(owner, k, place)[...] = array
            self.memory.append(owner)

    def view(self, owner: np.ndarray, k: int, place: int) -> np.ndarray:
        array = self.arguments[k]
        return np.ndarray(array.shape, array.dtype, owner, place, array.strides)

    def run(self, executable: Executable, seed: int, weakened: int = 0) -> tuple[list[np.ndarray], int]:
        """The memory afterwards, and how many times the weakened instruction ran."""
        memory = [owner.copy() for owner in self.memory]
        arguments = list(self.arguments)
        for k, (number, place) in self.views.items():
            arguments[k] = self.view(memory[number], k, place)
        settings = {"seed": seed, "weakened": weakened, "patience": PATIENCE}
        return memory, executable.run(self.blocks, self.threads, *arguments, **settings).loads


class Expected(NamedTuple):
    launch: Launch
    memory: list[np.ndarray]  # after it
    stable: list[np.ndarray]  # bytes that are the same in every order


def recorded(calls: Sequence[str], texts: Sequence[str], kernels: Sequence[str]) -> dict[str, list[Launch]]:
    """The first launches of each kernel by each call."""
    found: dict[str, list[Launch]] = {name: [] for name in kernels}
    with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory() as folder:
        loaded, device = engine.install_engine(monkeypatch, 1)
        run, of_call = device.run, Counter()

        def record(name: str, blocks: int, threads: int, arguments: tuple) -> None:
            if name in found and of_call[name] < MOST_LAUNCHES:
                of_call[name] += 1
                found[name].append(Launch(blocks, threads, arguments))
            run(name, blocks, threads, arguments)

        monkeypatch.setattr(device, "run", record)
        for call in calls:
            of_call.clear()
            workload.CALLS[call](loaded, texts, Path(folder))
    return found


def expectation(executable: Executable, launch: Launch) -> Expected:
    memory, *others = (launch.run(executable, seed)[0] for seed in SEEDS)
    stable = [np.logical_and.reduce([each == other[k] for other in others]) for k, each in enumerate(memory)]
    return Expected(launch, memory, stable)


def outcome_of(executable: Executable, expected: Sequence[Expected], number: int) -> tuple[str, str]:
    """Whether a launch shows that the instruction is weakened, and what it shows."""
    runs = 0
    for each in expected:
        for seed in SEEDS:
            try:
                memory, count = each.launch.run(executable, seed, number + 1)
            except KernelError as error:
                return "killed", str(error)
            pairs = zip(memory, each.memory, each.stable, strict=True)
            if any(((found != wanted) & stable).any() for found, wanted, stable in pairs):
                return "killed", "another result"
            if count == 0:
                break
            runs += count
    return ("survived", "") if runs else ("not reached", "no launch executes it")


class Mutation(NamedTuple):
    kernel: str
    kind: str
    instruction: Instruction
    outcome: str
    shown: str


def mutations_of(name: str, launches: Sequence[Launch], kinds: Sequence[str] = KINDS) -> Iterator[Mutation]:
    """Weaken the kernel's instructions of these kinds."""
    executable = executable_of(engine.ORIGINALS[name], CAPABILITY, True)
    expected = [expectation(executable, launch) for launch in launches]
    expected.sort(key=lambda each: sum(memory.size for memory in each.memory))
    for number, kind in weakenable(executable.kernel).items():
        if kind in kinds:
            instruction = executable.kernel.instructions[number]
            yield Mutation(name, kind, instruction, *outcome_of(executable, expected, number))


def texts() -> list[str]:
    return [*workload.made_texts(10, 3), *(text for text in NASTY if len(text) < 3000), workload.several_pieces()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="only these")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only these instructions")
    options = parser.parse_args()
    names = options.kernels or list(engine.ORIGINALS)
    launches = recorded(list(workload.CALLS), texts(), names)
    counts: Counter[tuple[str, str]] = Counter()
    for name in names:
        of_kernel: Counter[str] = Counter()
        for each in mutations_of(name, launches[name], options.kind or KINDS):
            of_kernel[each.outcome] += 1
            counts[each.kind, each.outcome] += 1
            if each.outcome != "killed":
                print(f"{each.outcome}: {name}, {each.kind}, line {each.instruction.line}: {each.instruction.text}")
        print(f"{name}: {dict(of_kernel)}", flush=True)
    for kind in KINDS:
        print(f"{kind}: " + ", ".join(f"{counts[kind, each]} {each}" for each in ("killed", "not reached", "survived")))


if __name__ == "__main__":
    main()
