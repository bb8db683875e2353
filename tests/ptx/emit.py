# SPDX-License-Identifier: Apache-2.0
"""A kernel as C: one function that runs one thread, to be compiled with `runtime.h`.

Registers become local variables, labels stay labels, and each instruction becomes one statement. `reach` checks every
access to memory, and `meet` waits for other threads. An instruction that is not listed here is an error that quotes it.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import replace

from tests.ptx.parse import Instruction, Kernel, Label, PtxError, Registers, Scope

TYPES = {f"{kind}{bits}": f"{'' if kind == 's' else 'u'}int{bits}_t" for kind in "bus" for bits in (8, 16, 32, 64)}
TYPES["pred"] = "uint8_t"
SPECIAL = {
    "%tid.x": "t->thread",
    "%ctaid.x": "t->block->number",
    "%ntid.x": "launch->threads",
    "%nctaid.x": "launch->blocks",
    "%laneid": "(t->thread % 32)",
    "%dynamic_smem_size": "launch->dynamic_shared",
    **{f"%{name}.{axis}": "0" for name in ("tid", "ctaid") for axis in "yz"},
    **{f"%{name}.{axis}": "1" for name in ("ntid", "nctaid") for axis in "yz"},
}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
SPACES = ("global", "shared", "local", "const")
# Orders and cache hints; threads here run one at a time, so every access is ordered.
ACCESS_HINTS = {"nc", "volatile", "relaxed", "acquire", "release", "acq_rel", "gpu", "cta", "sys", "weak"}
STRONG = {"volatile", "relaxed", "acquire", "release"}

# Results as unsigned 64-bit arithmetic, which is right modulo the width of the type; T is the type.
EXPRESSIONS = {
    "add": "(uint64_t){0} + (uint64_t){1}",
    "sub": "(uint64_t){0} - (uint64_t){1}",
    "neg": "0 - (uint64_t){0}",
    "abs": "(T){0} < 0 ? 0 - (uint64_t){0} : (uint64_t){0}",
    "mul.lo": "(uint64_t){0} * (uint64_t){1}",
    "mad.lo": "(uint64_t){0} * (uint64_t){1} + (uint64_t){2}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "min": "(T){0} < (T){1} ? (T){0} : (T){1}",
    "max": "(T){0} > (T){1} ? (T){0} : (T){1}",
    "selp": "{2} ? (T){0} : (T){1}",
    "popc": "__builtin_popcountll((T){0})",
    "clz": "leading_zeros((T){0}, BITS)",
    "brev": "reversed_bits((T){0}, BITS)",
    "prmt": "permuted_bytes({0}, {1}, {2})",
    "lop3": "logic_of_three({0}, {1}, {2}, {3})",
    "bfi": "inserted_bits((T){0}, (T){1}, {2}, {3}, BITS)",
    "shf.l.wrap": "funnel_left({0}, {1}, {2} & 31)",
    "shf.l.clamp": "funnel_left({0}, {1}, {2} < 32 ? {2} : 32)",
    "shf.r.wrap": "funnel_right({0}, {1}, {2} & 31)",
    "shf.r.clamp": "funnel_right({0}, {1}, {2} < 32 ? {2} : 32)",
}
ATOMICS = {
    "add": "(uint64_t)old + (uint64_t){0}",
    "min": "(T){0} < old ? (T){0} : old",
    "max": "(T){0} > old ? (T){0} : old",
    "and": "old & {0}",
    "or": "old | {0}",
    "xor": "old ^ {0}",
    "exch": "{0}",
    "inc": "old >= (T){0} ? 0 : old + 1",
    "dec": "old == 0 || old > (T){0} ? (T){0} : old - 1",
    "cas": "old == (T){0} ? (T){1} : old",
}


def unknown(instruction: Instruction) -> PtxError:
    return PtxError(f"unknown opcode {instruction.opcode!r} in line {instruction.line}: {instruction.text}")


def bits_of(type_name: str) -> int:
    return 1 if type_name == "pred" else int(type_name[1:])


class Emitter:
    """Writes the C of one kernel."""

    def __init__(self, kernel: Kernel, looks: Collection[int], weakened: Collection[int]):
        self.kernel = kernel
        self.weakened = weakened  # instructions that a launch may ask to weaken, one of them
        self.looks = looks  # loads that may meet atomics of other threads
        # A symbol's address is that of its region; regions of symbols precede those of arguments, 0 is no region.
        self.regions = {symbol.name: number for number, symbol in enumerate(kernel.symbols, 1)}
        declared = (item for item in kernel.body if isinstance(item, Registers))
        self.registers = {name for item in declared for name in item.names}
        self.block_sizes: list[int] = []  # instructions of each basic block

    # Operands

    def value(self, operand: str) -> str:
        if operand in SPECIAL:
            return f"((uint32_t){SPECIAL[operand]})"
        if operand[:1] == "%" and operand[1:] in self.registers:
            return f"r_{operand[1:]}"
        if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)U?", operand):
            number = int(operand.rstrip("U"), 0)
            return f"{number & (1 << 64) - 1}ULL" if number < -(2**31) or number >= 2**31 else f"{number}"
        if operand in self.regions:
            return f"(({self.regions[operand]}ULL << REGION_SHIFT) + MIDDLE)"
        raise PtxError(f"unknown operand {operand!r}")

    def address(self, operand: str) -> str:
        found = re.fullmatch(r"\[([%a-zA-Z_][\w$]*)(?:\+(-?\d+))?\]", operand)
        if not found:
            raise PtxError(f"unknown address {operand!r}")
        return f"(uint64_t){self.value(found[1])} + {found[2] or 0}"

    def reach(self, instruction: Instruction, operand: str, size: int, kind: str) -> str:
        """A checked host pointer for the address."""
        space = next((part for part in instruction.parts[1:] if part in SPACES), "generic")
        return f"reach(t, {instruction.number}, {self.address(operand)}, {size}, {kind}, SPACE_{space.upper()})"

    def weak(self, instruction: Instruction) -> str:
        """An atomic as a load and a store, a barrier as nothing, a bound off by one or as one of its answers."""
        parts = instruction.parts
        if parts[0] in ("atom", "red"):
            _, place, value, kept = self._exchange(instruction)
            kind = TYPES[parts[-1]]
            size = bits_of(parts[-1]) // 8
            read, written = (self.reach(instruction, place, size, f"KIND_{access}") for access in ("LOAD", "STORE"))
            return f"const {kind} old = *({kind} *){read}; *({kind} *){written} = ({kind})({value}); {kept}"
        if parts[0] == "setp":
            target = self.value(instruction.operands[0])
            return f"if (launch->form == 0) {{ {self.off_by_one(instruction)} }} else {target} = launch->form == 1;"
        if "red" in parts:
            return f"{self.value(instruction.operands[0])} = {self.value(instruction.operands[2])};"
        return ""

    def off_by_one(self, bound: Instruction) -> str:
        other = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt"}[bound.parts[1]]
        return self.compare(replace(bound, opcode=bound.opcode.replace(bound.parts[1], other, 1)))

    def reaching(self, instruction: Instruction) -> str:
        """The instruction, and a note of the forms in which its weakening would change something here."""
        reached, statement = f"reached[{instruction.number}]", self.statement(instruction)
        if instruction.parts[0] != "setp":
            return f"{reached} |= 1; {statement}"
        target = self.value(instruction.operands[0])
        return (
            f"{self.off_by_one(instruction)} const int other = {target}; {statement} "
            f"{reached} |= (other != {target}) | (!{target}) << 1 | (!!{target}) << 2;"
        )

    # Instructions. Each method returns C statements.

    def arithmetic(self, instruction: Instruction, key: str) -> str:
        type_name = instruction.parts[-1]
        target, *sources = instruction.operands
        values = [f"({self.value(source)} != 0)" if type_name == "pred" else self.value(source) for source in sources]
        expression = EXPRESSIONS[key].format(*values)
        expression = expression.replace("(T)", f"({TYPES[type_name]})").replace("BITS", str(bits_of(type_name)))
        return f"{self.value(target)} = ({TYPES[type_name]})({expression});"

    def negate_bits(self, instruction: Instruction) -> str:
        target, source = map(self.value, instruction.operands)
        return f"{target} = {'!' if instruction.parts[-1] == 'pred' else '~'}{source};"

    def multiply_wide(self, instruction: Instruction) -> str:
        """mul.wide and mad.wide: operands of 16 or 32 bits, a result of twice the width."""
        narrow = TYPES[instruction.parts[-1]]
        target, a, b, *c = map(self.value, instruction.operands)
        return f"{target} = (uint64_t)((int64_t)({narrow}){a} * (int64_t)({narrow}){b}){''.join(f' + {x}' for x in c)};"

    def multiply_high(self, instruction: Instruction) -> str:
        name = TYPES[instruction.parts[-1]]
        wide = "__int128" if name[0] == "i" else "unsigned __int128"
        target, a, b = map(self.value, instruction.operands)
        return f"{target} = ({name})((({wide})({name}){a} * ({name}){b}) >> {bits_of(instruction.parts[-1])});"

    def divide(self, instruction: Instruction) -> str:
        """div and rem; the device's results for a divisor of 0 are undefined, and here it is a fault."""
        operation, type_name = instruction.parts
        target, a, b = map(self.value, instruction.operands)
        suffix = "signed" if type_name[0] == "s" else "unsigned"
        cast = TYPES[type_name]
        name = {"div": "quotient", "rem": "remainder"}[operation]
        return f"{target} = ({cast}){name}_{suffix}(t, {instruction.number}, ({cast}){a}, ({cast}){b});"

    def shift(self, instruction: Instruction) -> str:
        """A count of the width or more gives 0, or copies of the sign."""
        operation, type_name = instruction.parts
        target, a, b = map(self.value, instruction.operands)
        bits, cast = bits_of(type_name), TYPES[type_name]
        if operation == "shl":
            shifted = f"(uint32_t){b} < {bits} ? (uint64_t){a} << {b} : 0"
        elif type_name[0] == "s":
            shifted = f"({cast}){a} >> ((uint32_t){b} < {bits} ? {b} : {bits - 1})"
        else:
            shifted = f"(uint32_t){b} < {bits} ? ({cast}){a} >> {b} : 0"
        return f"{target} = ({cast})({shifted});"

    def extract_bits(self, instruction: Instruction) -> str:
        type_name = instruction.parts[-1]
        target, *sources = map(self.value, instruction.operands)
        signed = int(type_name[0] == "s")
        return f"{target} = extracted_bits({', '.join(sources)}, {bits_of(type_name)}, {signed});"

    def find_bit(self, instruction: Instruction) -> str:
        """bfind of unsigned types: the position of the highest bit; `shiftamt` counts from the top."""
        type_name = instruction.parts[-1]
        if type_name[0] != "u":
            raise unknown(instruction)
        target, source = map(self.value, instruction.operands)
        bits = bits_of(type_name)
        zeros = f"leading_zeros(({TYPES[type_name]}){source}, {bits})"
        found = zeros if "shiftamt" in instruction.parts else f"{bits - 1} - {zeros}"
        return f"{target} = {source} ? {found} : 0xFFFFFFFFu;"

    def compare(self, instruction: Instruction) -> str:
        if len(instruction.parts) != 3 or instruction.parts[1] not in COMPARISONS:
            raise unknown(instruction)
        _, comparison, type_name = instruction.parts
        target, a, b = map(self.value, instruction.operands)
        return f"{target} = ({TYPES[type_name]}){a} {COMPARISONS[comparison]} ({TYPES[type_name]}){b};"

    def move(self, instruction: Instruction) -> str:
        """mov: a value, parts of one register to several, or several to parts of one."""
        target, source = instruction.operands
        bits = bits_of(instruction.parts[-1])
        if target.startswith("{"):
            names = [name.strip() for name in target[1:-1].split(",")]
            width = bits // len(names)
            whole = self.value(source)
            return "".join(
                f"{self.value(name)} = (uint{width}_t)({whole} >> {k * width});"
                for k, name in enumerate(names)
                if name != "_"
            )
        if source.startswith("{"):
            names = [name.strip() for name in source[1:-1].split(",")]
            width = bits // len(names)
            pieces = [f"(uint64_t)(uint{width}_t){self.value(name)} << {k * width}" for k, name in enumerate(names)]
            return f"{self.value(target)} = {' | '.join(pieces)};"
        return f"{self.value(target)} = {self.value(source)}{' != 0' if bits == 1 else ''};"

    def convert(self, instruction: Instruction) -> str:
        if len(instruction.parts) != 3:
            raise unknown(instruction)
        _, to, source_type = instruction.parts
        target, source = map(self.value, instruction.operands)
        return f"{target} = ({TYPES[to]})({TYPES[source_type]}){source};"

    def convert_address(self, instruction: Instruction) -> str:
        """cvta: an address is the same in all state spaces here."""
        target, source = map(self.value, instruction.operands)
        return f"{target} = {source};"

    def _vector(self, instruction: Instruction, operand: str) -> tuple[str, list[str]]:
        """The C type of an element, and the registers or values of an access."""
        hints = set(instruction.parts[1:-1]) - {*SPACES, *ACCESS_HINTS}
        names = [name.strip() for name in operand.strip("{}").split(",")]
        if hints - {"v2", "v4"} or len(names) != next((int(hint[1]) for hint in hints), 1):
            raise unknown(instruction)
        return TYPES[instruction.parts[-1]], names

    def _strong(self, instruction: Instruction) -> bool:
        """Whether it may meet atomics of other threads."""
        return instruction.number in self.looks or not STRONG.isdisjoint(instruction.parts)

    def load(self, instruction: Instruction) -> str:
        target, source = instruction.operands
        if instruction.parts[1] == "param":
            number = re.search(r"_param_(\d+)\]$", source)
            if not number:
                raise PtxError(f"unknown parameter {source!r} in line {instruction.line}")
            return f"{self.value(target)} = ({TYPES[instruction.parts[-1]]})launch->parameters[{number[1]}];"
        kind, names = self._vector(instruction, target)
        size = bits_of(instruction.parts[-1]) // 8 * len(names)
        reached = self.reach(
            instruction, source, size, "KIND_STRONG_LOAD" if self._strong(instruction) else "KIND_LOAD"
        )
        read = "".join(f"{self.value(name)} = from[{k}];" for k, name in enumerate(names))
        return f"{{ const {kind} *from = {reached}; {read} }}"

    def store(self, instruction: Instruction) -> str:
        target, source = instruction.operands
        kind, names = self._vector(instruction, source)
        size = bits_of(instruction.parts[-1]) // 8 * len(names)
        reached = self.reach(
            instruction, target, size, "KIND_STRONG_STORE" if self._strong(instruction) else "KIND_STORE"
        )
        written = "".join(f"to[{k}] = ({kind}){self.value(name)};" for k, name in enumerate(names))
        return f"{{ {kind} *to = {reached}; {written} }}"

    def atomic(self, instruction: Instruction) -> str:
        """atom and red: read, compute and write without a pause between."""
        kind, place, new, kept = self._exchange(instruction)
        reached = self.reach(instruction, place, bits_of(instruction.parts[-1]) // 8, "KIND_ATOMIC")
        return f"{{ {kind} *place = {reached}; const {kind} old = *place; *place = ({kind})({new}); {kept} }}"

    def _exchange(self, instruction: Instruction) -> tuple[str, str, str, str]:
        """Of an atomic: the C type, the address, the new value, and what keeps the old one."""
        operation, type_name = instruction.parts[-2:]
        if operation not in ATOMICS or set(instruction.parts[1:-2]) - {*SPACES, *ACCESS_HINTS}:
            raise unknown(instruction)
        operands = instruction.operands if instruction.parts[0] == "atom" else ["_", *instruction.operands]
        target, place, *values = operands
        kind = TYPES[type_name]
        new = ATOMICS[operation].format(*map(self.value, values)).replace("(T)", f"({kind})")
        kept = "" if target == "_" else f"{self.value(target)} = old;"
        return kind, place, new, kept

    def barrier(self, instruction: Instruction) -> str:
        """bar.sync of all threads of the block, or bar.red with a predicate."""
        names = [part for part in instruction.parts if part not in ("cta", "aligned")]
        n = instruction.number
        if names in (["bar", "sync"], ["barrier", "sync"]) and instruction.operands == ["0"]:
            return f"meet_block(t, {n}, 0);"
        if names[:2] == ["bar", "red"] and len(instruction.operands) == 3 and instruction.operands[1] == "0":
            target, _, predicate = instruction.operands
            return f"meet_block(t, {n}, {self.value(predicate)}); {self.value(target)} = t->result_{names[2]};"
        if instruction.opcode == "bar.warp.sync":
            return f"meet_warp(t, {n}, {self.value(instruction.operands[0])}, WARP_SYNC, 0, 0, 0);"
        raise unknown(instruction)

    def warp(self, instruction: Instruction) -> str:
        """shfl, vote and match: lanes of a warp exchange values."""
        operation = "_".join(part.upper() for part in instruction.parts[:-1] if part != "sync")
        known = ("SHFL_UP", "SHFL_DOWN", "SHFL_IDX", "SHFL_BFLY", "VOTE_ALL", "VOTE_ANY", "VOTE_BALLOT", "MATCH_ANY")
        if operation not in known or "sync" not in instruction.parts:
            raise unknown(instruction)
        target, *sources, mask = instruction.operands
        target, _, flag = target.partition("|")
        values = [*map(self.value, sources), "0", "0"][:3]
        read = f"{self.value(target)} = t->result;" + (f"{self.value(flag)} = t->flag;" if flag else "")
        return f"meet_warp(t, {instruction.number}, {self.value(mask)}, {operation}, {', '.join(values)}); {read}"

    def branch(self, instruction: Instruction) -> str:
        return f"goto {label_name(instruction.operands[0])};"

    def end(self, instruction: Instruction) -> str:
        return "return;"

    def trap(self, instruction: Instruction) -> str:
        return f"fail(t, {instruction.number}, FAULT_TRAP, 0, 0);"

    def fence(self, instruction: Instruction) -> str:
        return "pause_thread(t);"

    def statement(self, instruction: Instruction) -> str:
        parts = instruction.parts
        for length in (3, 2, 1):
            key = ".".join(parts[:length])
            if key in EXPRESSIONS and len(parts) == length + 1 and parts[-1] in TYPES:
                return self.arithmetic(instruction, key)
        methods: dict[str, Callable[[Instruction], str]] = {
            "not": self.negate_bits,
            "mul.wide": self.multiply_wide,
            "mad.wide": self.multiply_wide,
            "mul.hi": self.multiply_high,
            **dict.fromkeys(("div", "rem"), self.divide),
            **dict.fromkeys(("shl", "shr"), self.shift),
            "bfe": self.extract_bits,
            "bfind": self.find_bit,
            "setp": self.compare,
            "mov": self.move,
            "cvt": self.convert,
            "cvta": self.convert_address,
            "ld": self.load,
            "st": self.store,
            **dict.fromkeys(("atom", "red"), self.atomic),
            **dict.fromkeys(("bar", "barrier"), self.barrier),
            **dict.fromkeys(("shfl", "vote", "match"), self.warp),
            "bra": self.branch,
            **dict.fromkeys(("ret", "exit"), self.end),
            "trap": self.trap,
            **dict.fromkeys(("membar", "fence"), self.fence),
        }
        method = methods.get(".".join(parts[:2])) or methods.get(parts[0])
        if method is None:
            raise unknown(instruction)
        try:
            return method(instruction)
        except (KeyError, ValueError) as error:  # a type or a number of operands that the method does not have
            raise unknown(instruction) from error

    # The kernel

    def body(self) -> list[str]:
        lines: list[str] = []
        run: list[str] = []  # statements since the last label or branch

        def close_run() -> None:
            if run:
                lines.append(f"VISIT({len(self.block_sizes)});")
                lines.extend(run)
                self.block_sizes.append(len(run))
                run.clear()

        for item in self.kernel.body:
            if isinstance(item, Instruction):
                guard = f"if ({'!' * item.negated}r_{item.guard}) " if item.guard else ""
                statement = self.statement(item)
                if item.number in self.weakened:
                    weak, statement = self.weak(item), self.reaching(item)
                    statement = f"if (launch->weakened == {item.number + 1}) {{ {weak} }} else {{ {statement} }}"
                run.append(f"{guard}{{ {statement} }}")
                if item.parts[0] in ("bra", "ret", "exit"):
                    close_run()
                continue
            close_run()
            if isinstance(item, Label):
                lines.append(f"{label_name(item.name)}:;")
            elif isinstance(item, Scope):
                lines.append("{" if item.opens else "}")
            elif isinstance(item, Registers):
                lines.append(f"{TYPES[item.type]} " + ", ".join(f"r_{name} = 0" for name in item.names) + ";")
        close_run()
        return lines

    def source(self) -> str:
        lines = self.body()
        symbols = ", ".join(
            f"{{SPACE_{symbol.space.upper()}, {symbol.size}, {symbol.align}}}" for symbol in self.kernel.symbols
        )
        return "\n".join(
            [
                f"#define NUM_SYMBOLS {len(self.kernel.symbols)}",
                f"#define NUM_INSTRUCTIONS {len(self.kernel.instructions)}",
                f"#define NUM_BLOCKS {len(self.block_sizes)}",
                '#include "runtime.h"',
                f"const Symbol symbols[] = {{{symbols or '{0}'}}};",
                f"const uint32_t block_sizes[] = {{{', '.join(map(str, self.block_sizes))}}};",
                *(["uint8_t reached[NUM_INSTRUCTIONS];"] if self.weakened else []),
                "void run_thread(Thread *t)\n{",
                *lines,
                "}",
                "",
            ]
        )


def label_name(name: str) -> str:
    return name.replace("$", "label_")


def emit(kernel: Kernel, looks: Collection[int] = (), weakened: Collection[int] = ()) -> str:
    return Emitter(kernel, looks, weakened).source()
