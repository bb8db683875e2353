# SPDX-License-Identifier: Apache-2.0
"""Which memory a kernel writes, in items of how many bytes, and which instructions keep threads apart.

Addresses are followed from parameters and symbols through all registers, whatever the order of the instructions.
"""

import re
from collections import defaultdict
from dataclasses import dataclass

from tests.ptx.parse import Instruction, Kernel

NAME = re.compile(r"%?[A-Za-z_$][\w$]*")
PARAMETER = re.compile(r"_param_(\d+)\]$")
AFTER_LOOK = 24
MEMORY = ("ld", "st", "atom", "red")


@dataclass
class Use:
    """How a kernel accesses what an address leads to."""

    smallest: int = 16  # bytes of an item
    written: bool = False


def _address(instruction: Instruction) -> str:
    return next(operand for operand in instruction.operands if operand.startswith("["))


def _sources(kernel: Kernel) -> dict[str, set[int | str]]:
    """For each register, the parameters (numbers) and symbols (names) that its value may be an address of."""
    sources: dict[str, set[int | str]] = defaultdict(set)
    for symbol in kernel.symbols:
        sources[symbol.name] = {symbol.name}
    steps: list[tuple[list[str], list[str]]] = []  # registers, and what they are computed from
    for instruction in kernel.instructions:
        if instruction.parts[:2] == ["ld", "param"]:
            if found := PARAMETER.search(instruction.operands[-1]):
                sources[instruction.operands[0]].add(int(found[1]))
        elif instruction.parts[0] not in (*MEMORY, "bra", "setp") and len(instruction.operands) > 1:
            target, *rest = instruction.operands
            steps.append((NAME.findall(target), NAME.findall(" ".join(rest))))
    changed = True
    while changed:
        changed = False
        for targets, names in steps:
            reached = set().union(*(sources[name] for name in names if name in sources))
            for target in targets:
                changed |= not reached <= sources[target]
                sources[target] |= reached
    return sources


def _accesses(kernel: Kernel) -> list[tuple[Instruction, set[int | str]]]:
    """The accesses to memory in the order of the text, with what they may access."""
    sources = _sources(kernel)
    return [
        (each, set().union(*(sources[name] for name in NAME.findall(_address(each)) if name in sources)))
        for each in kernel.instructions
        if each.parts[0] in MEMORY and each.parts[1] != "param"
    ]


def uses_of(kernel: Kernel) -> dict[int | str, Use]:
    """By number of the parameter, or by name of the symbol."""
    uses: dict[int | str, Use] = defaultdict(Use)
    for instruction, sources in _accesses(kernel):
        for source in sources:
            uses[source].smallest = min(uses[source].smallest, int(instruction.parts[-1][1:]) // 8)
            uses[source].written |= instruction.parts[0] != "ld"
    return uses


def looks_of(kernel: Kernel) -> set[int]:
    """Loads that look whether an atomic is needed: one of the next AFTER_LOOK instructions changes the same array."""
    accesses = _accesses(kernel)
    atomics = [(each.number, sources) for each, sources in accesses if each.parts[0] in ("atom", "red")]
    return {
        each.number
        for each, sources in accesses
        if each.parts[0] == "ld" and any(0 < n - each.number <= AFTER_LOOK and sources & of for n, of in atomics)
    }


def bounds_of(kernel: Kernel) -> dict[int, int]:
    """Comparisons with a parameter that is a number, such as the size of an array, and the first such parameter."""
    sizes: dict[str, int] = {}
    for each in kernel.instructions:
        if each.parts[:2] == ["ld", "param"] and (found := PARAMETER.search(each.operands[-1])):
            sizes[each.operands[0]] = int(found[1])
    for each in kernel.instructions:
        if each.parts[0] == "cvt" and each.operands[1] in sizes:
            sizes[each.operands[0]] = sizes[each.operands[1]]
    return {
        each.number: next(sizes[operand] for operand in each.operands if operand in sizes)
        for each in kernel.instructions
        if each.parts[0] == "setp" and each.parts[1] in ("lt", "le", "gt", "ge") and sizes.keys() & set(each.operands)
    }


def weakenable(kernel: Kernel) -> dict[int, str]:
    """Instructions that a mutation weakens, and the kind of each."""
    bounds, found = bounds_of(kernel), {}
    for each in kernel.instructions:
        if each.parts[0] in ("atom", "red"):
            found[each.number] = "atomic"
        elif each.parts[0] in ("bar", "barrier"):
            found[each.number] = "barrier"
        elif each.parts[0] in ("membar", "fence"):
            found[each.number] = "fence"
        elif each.number in bounds:
            found[each.number] = "bound"
    return found
