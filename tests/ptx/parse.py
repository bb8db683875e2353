# SPDX-License-Identifier: Apache-2.0
"""PTX text as structures: the symbols of a module, and the registers and instructions of its one kernel.

Only what the compiler of Numba writes is read; anything else is an error that quotes the line.
"""

import re
from dataclasses import dataclass, field

COMMENT = re.compile(r"//.*")
ENTRY = re.compile(r"^\.visible \.entry (\w+)\($", re.M)
PARAMETER = re.compile(r"\.param\s+\.\w+\s+(?:\.ptr\s+(?:\.\w+\s+)?\.align\s+\d+\s+)?\w+_param_(\d+),?")
SYMBOL = re.compile(
    r"(?:\.(?:visible|extern|weak)\s+)*\.(?P<space>const|global|shared|local)\s+\.align\s+(?P<align>\d+)\s+"
    r"\.b8\s+(?P<name>[\w$]+)\[(?P<size>\d*)\](?:\s*=\s*\{(?P<bytes>[^}]*)\})?;"
)
UNUSED_SYMBOL = re.compile(r"\.common \.global \.align 8 \.u64 \w+;")  # Numba's environments: no kernel reads one
REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+%(\w+)(?:<(\d+)>)?;")
LABEL = re.compile(r"(\$\w+):")
INSTRUCTION = re.compile(r"(?:@(?P<negated>!?)%(?P<guard>\w+)\s+)?(?P<opcode>[a-z][\w.:]*)(?:\s+(?P<operands>.+))?;")
OPERAND_COMMA = re.compile(r",\s*(?![^{]*\})")  # not within {...}
IGNORED = (".pragma", ".loc ", ".file ", ".version", ".target", ".address_size", ".maxntid", ".minnctapersm")


class PtxError(Exception):
    """PTX that the executor cannot run."""


@dataclass
class Symbol:
    """An array in a state space; `content` is its initial bytes."""

    name: str
    space: str
    align: int
    size: int
    content: bytes = b""


@dataclass
class Registers:
    """Declared registers: `count` of them are called name0, name1, ...; 0 stands for one register called `name`."""

    type: str
    name: str
    count: int

    @property
    def names(self) -> list[str]:
        return [f"{self.name}{k}" for k in range(self.count)] if self.count else [self.name]


@dataclass
class Instruction:
    number: int  # position in the kernel; faults and counts name it
    line: int  # of the PTX text, from 1
    text: str
    opcode: str
    operands: list[str]
    guard: str = ""  # predicate register
    negated: bool = False

    @property
    def parts(self) -> list[str]:
        return self.opcode.split(".")


@dataclass
class Label:
    name: str


@dataclass
class Scope:
    """The start or the end of a block with registers of its own."""

    opens: bool


@dataclass
class Kernel:
    name: str
    parameters: int
    symbols: list[Symbol] = field(default_factory=list)
    body: list[Instruction | Label | Registers | Scope] = field(default_factory=list)

    @property
    def instructions(self) -> list[Instruction]:
        return [item for item in self.body if isinstance(item, Instruction)]


def parse_symbol(line: str) -> Symbol | None:
    found = SYMBOL.fullmatch(line)
    if not found:
        return None
    content = bytes(int(number) for number in (found["bytes"] or "").split(",") if number.strip())
    return Symbol(found["name"], found["space"], int(found["align"]), int(found["size"] or 0), content)


def parse_instruction(line: str, number: int, line_number: int) -> Instruction:
    found = INSTRUCTION.fullmatch(line)
    if not found:
        raise PtxError(f"line {line_number} is not an instruction: {line!r}")
    operands = [operand.strip() for operand in OPERAND_COMMA.split(found["operands"])] if found["operands"] else []
    return Instruction(
        number, line_number, line, found["opcode"], operands, found["guard"] or "", found["negated"] == "!"
    )


def _parse_body_line(kernel: Kernel, line: str, line_number: int) -> None:
    if line in ("{", "}"):
        kernel.body.append(Scope(line == "{"))
    elif found := REGISTERS.fullmatch(line):
        kernel.body.append(Registers(found[1], found[2], int(found[3] or 0)))
    elif found := LABEL.fullmatch(line):
        kernel.body.append(Label(found[1]))
    elif symbol := parse_symbol(line):
        kernel.symbols.append(symbol)
    elif line.startswith("."):
        raise PtxError(f"line {line_number} has an unknown directive: {line!r}")
    else:
        kernel.body.append(parse_instruction(line, len(kernel.instructions), line_number))


def parse(ptx: str) -> Kernel:
    """The one kernel of a module."""
    entries = ENTRY.findall(ptx)
    if len(entries) != 1:
        raise PtxError(f"the module has {len(entries)} kernels, expected one")
    kernel = Kernel(entries[0], len(PARAMETER.findall(ptx)))
    in_body = False
    for line_number, raw in enumerate(ptx.splitlines(), 1):
        line = COMMENT.sub("", raw).strip()
        if not line or line.startswith(IGNORED):
            continue
        if in_body:
            _parse_body_line(kernel, line, line_number)
        elif line == "{":
            in_body = True
        elif symbol := parse_symbol(line):
            kernel.symbols.append(symbol)
        elif not (UNUSED_SYMBOL.fullmatch(line) or ENTRY.fullmatch(line) or PARAMETER.fullmatch(line) or line == ")"):
            raise PtxError(f"line {line_number} has an unknown directive: {line!r}")
    kernel.body.pop()  # the brace that closes the kernel
    return kernel
