# SPDX-License-Identifier: Apache-2.0
"""Runs launches of compiled kernels, and says what was wrong with one."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache

import numpy as np

from tests.ptx.arrays import MIDDLE, Region, addresses_of, parameters_of, regions_of
from tests.ptx.build import build, ptx_of
from tests.ptx.flow import Use, uses_of
from tests.ptx.parse import PtxError

FAULTS = {
    1: "accesses {size} bytes outside all memory it was given, at {place}",
    2: "accesses {size} bytes at {place}, which is not a multiple of {size}",
    3: "accesses {place}, which is not in the state space of the instruction or must not be written",
    4: "divides by zero",
    5: "waits at this barrier, and other threads of its block at another one",
    6: "exchanges values with a lane that is not in the mask, has ended or waits elsewhere",
    7: "waits here for ever: other threads of its block have ended or wait elsewhere",
    8: "is still running after {patience:,} basic blocks of the launch",
    9: "executes a trap",
    10: "accesses {place}, which thread {other_thread} of block {other_block} accesses too, and no barrier is between",
    11: "writes {place} by an address that was not followed to its array",
}
RACE = 10
UNWATCHED, EXEMPT = -1, -2  # grains of regions that are only read, and of those whose races are declared
# What threads of a launch access without an order, and why that is right. LOOKS: kernels that load a word, and change
# it by an atomic only if that is needed. SAME_VALUE: arguments to which all threads store one value.
SET_ONCE = "a bit is only set, a slot leaves EMPTY once: an old value costs an atomic that changes nothing"
LOOKS = {
    "repeat_words_small": SET_ONCE,
    "repeat_words_medium": SET_ONCE,
    "repeat_words_large": SET_ONCE,
    "claim_ngrams": SET_ONCE,
    "prepare_ngrams": SET_ONCE,
    "repeat_long_items": SET_ONCE,
    "note_visits": "the number only falls: an old one costs an atomic that changes nothing",
    "join_rows": "a label only falls: an old one costs another launch, and the last launch changes none",
    "note_seen": "a thread looks at a bit that no other thread changes",
}
SAME_VALUE = {
    "check_bytes": {"sound": "each thread stores False, and none reads it"},
    "note_failing_runs": {"failing": "each thread stores 1, and none reads it"},
    "find_unspaced": {"divided": "each thread stores True, and none reads it"},
    "claim_ngrams": {"any_repeats": "each thread stores 1, and none reads it"},
    "compare_pieces": {"edited": "each thread stores True; one that reads False compares what it need not"},
    "look_up_tokens": dict.fromkeys(("flags", "too_long"), "each thread stores 1, and none reads it"),
    "note_seen": {"changed": "each thread stores True, and none reads it"},
    "join_rows": {"changed": "each thread stores 1, and none reads it"},
    "split_strings": {"broken": "each thread stores 1, and none reads it"},
}
RESIDENT = 3  # blocks
LONGEST_TURN = 64
PATIENCE = 1 << 32


class KernelError(Exception):
    """A kernel did what a device forbids, or would do without a message."""


@dataclass(frozen=True)
class Counts:
    """Counts of one launch; `runtime.h` says what each is."""

    instructions: int = 0
    warp_instructions: int = 0
    longest: int = 0
    loads: int = 0
    stores: int = 0
    requests: int = 0
    sectors: int = 0
    touched_sectors: int = 0
    shared: int = 0
    local: int = 0
    atomics: int = 0
    most_atomics_at_one_address: int = 0
    barriers: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        """Counts of two launches, one after the other."""
        largest = ("longest", "most_atomics_at_one_address")
        pairs = {field.name: (getattr(self, field.name), getattr(other, field.name)) for field in fields(self)}
        return Counts(**{name: max(pair) if name in largest else sum(pair) for name, pair in pairs.items()})


def _structure(name: str, members: Sequence[tuple[str, type]]) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(members)})


_u64 = ctypes.c_uint64
_i64, _pointer = ctypes.c_int64, ctypes.c_void_p
_Region = _structure(
    "Region",
    [("first", _u64), ("size", _u64), ("host", _pointer), ("space", _i64), ("grain", _i64), ("traces", _pointer)],
)
_OTHER = ("other_block", "other_thread", "other_instruction")
_Fault = _structure(
    "Fault", [(name, _u64) for name in ("kind", "instruction", "block", "thread", "address", "size", "region", *_OTHER)]
)
_Counts = _structure("Counts", [(field.name, _u64) for field in fields(Counts)])
_SETTINGS = (
    "blocks",
    "threads",
    "dynamic_shared",
    "resident",
    "seed",
    "longest_turn",
    "patience",
    "counting",
    "weakened",
    "form",
)
_Launch = _structure(
    "Launch",
    [
        ("parameters", ctypes.POINTER(_u64)),
        ("regions", ctypes.POINTER(_Region)),
        ("num_regions", _u64),
        *((name, _u64) for name in _SETTINGS),
        ("counts", _Counts),
        ("fault", _Fault),
    ],
)
GLOBAL = 1  # SPACE_GLOBAL
MOST_STACKS = 12_000  # of all kernels; a process may have 65,530 mappings, and a stack is two


class Stacks:
    """Kernels whose libraries keep stacks, with their number, the latest last."""

    def __init__(self) -> None:
        self.of_kernel: dict[Executable, int] = {}

    def use(self, executable: "Executable", count: int) -> None:
        """Release stacks of other kernels until `count` more fit."""
        count = max(count, self.of_kernel.pop(executable, 0))
        while self.of_kernel and sum(self.of_kernel.values()) + count > MOST_STACKS:
            oldest = next(iter(self.of_kernel))
            del self.of_kernel[oldest]
            oldest.library.release_slots()
        self.of_kernel[executable] = count


STACKS = Stacks()


class Executable:
    """A kernel that this machine can run."""

    def __init__(self, ptx: str, arguments: Sequence[str] = (), name: str = "", weakened: bool = False):
        self.kernel, self.library = build(ptx, name in LOOKS, weakened)
        self.arguments = arguments  # names for messages
        self.name = name or self.kernel.name
        self.exempt = SAME_VALUE.get(name, {})
        self.uses = uses_of(self.kernel)
        self.constants = [ctypes.create_string_buffer(symbol.content, symbol.size) for symbol in self.kernel.symbols]

    def run(
        self,
        blocks: int,
        threads: int,
        *arguments: np.ndarray | int,
        seed: int = 0,
        counting: bool = False,
        dynamic_shared: int = 0,
        patience: int = PATIENCE,
        races: bool = True,
        weakened: int = 0,
        form: int = 0,
    ) -> Counts:
        """Run a launch in the order of `seed`, or in order and with counts; raises KernelError, without `races` not for
        accesses that nothing orders."""
        regions = regions_of(arguments)
        first_number = len(self.constants) + 1
        parameters = parameters_of(arguments, regions, first_number)
        if len(parameters) != self.kernel.parameters:
            raise PtxError(f"the kernel has {self.kernel.parameters} parameters, the arguments give {len(parameters)}")
        hosts = [_Region()]
        for symbol, buffer in zip(self.kernel.symbols, self.constants, strict=True):
            grain = self._grain([symbol.name]) if races and symbol.space == "shared" else EXEMPT
            hosts.append(_Region(host=ctypes.addressof(buffer), grain=grain))
        addresses = addresses_of(arguments)
        for r in regions:
            exempt = not races or any(self.arguments[k] in self.exempt for k in r.arguments if self.exempt)
            grain = EXEMPT if exempt else self._grain([addresses[k] for k in r.arguments])
            hosts.append(_Region(MIDDLE + r.misfit, r.end - r.start, r.start, GLOBAL, grain))
        launch = _Launch(
            parameters=(_u64 * len(parameters))(*parameters),
            regions=(_Region * len(hosts))(*hosts),
            num_regions=len(hosts),
            blocks=blocks,
            threads=threads,
            dynamic_shared=dynamic_shared,
            resident=1 if counting else RESIDENT,
            seed=seed,
            longest_turn=0 if counting else LONGEST_TURN,
            patience=patience,
            counting=counting,
            weakened=weakened,
            form=form,
        )
        STACKS.use(self, launch.resident * threads)
        self.library.run_launch(ctypes.byref(launch))
        if launch.fault.kind:
            raise KernelError(self._message(launch, regions, first_number))
        return Counts(**{field.name: getattr(launch.counts, field.name) for field in fields(Counts)})

    def reached(self) -> np.ndarray:
        """For each instruction, what launches reached since the last reset to 0: bit k, a case where its weakening in
        form k changes something. For executables that may be weakened."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * len(self.kernel.instructions)).in_dll(self.library, "reached"))

    def _grain(self, sources: Sequence[int | str]) -> int:
        """The binary logarithm of the smallest item in memory that these lead to; UNWATCHED if it is only read."""
        uses = [self.uses.get(source, Use()) for source in sources]
        return min(use.smallest for use in uses).bit_length() - 1 if any(use.written for use in uses) else UNWATCHED

    def _message(self, launch: ctypes.Structure, regions: list[Region], first_number: int) -> str:
        fault = launch.fault
        instruction = self.kernel.instructions[fault.instruction]
        said = FAULTS[fault.kind].format(
            size=fault.size, place=self._place(fault, regions, first_number), patience=launch.patience,
            other_thread=fault.other_thread, other_block=fault.other_block,
        )  # fmt: skip
        message = (
            f"thread {fault.thread} of block {fault.block} {said}; line {instruction.line} of the PTX of {self.name}: "
            f"{instruction.text}"
        )
        if fault.kind != RACE:
            return message
        other = self.kernel.instructions[fault.other_instruction]
        return f"{message} and line {other.line}: {other.text}"

    def _place(self, fault: ctypes.Structure, regions: list[Region], first_number: int) -> str:
        """The address as a byte of an argument or a symbol."""
        offset = (fault.address & (1 << 40) - 1) - MIDDLE
        number = fault.region - first_number
        if 0 <= number < len(regions):
            region = regions[number]
            names = [self.arguments[k] if self.arguments else f"argument {k}" for k in region.arguments]
            return f"byte {offset - region.misfit:,} of {' and '.join(names)} ({region.end - region.start:,} bytes)"
        if 1 <= fault.region < first_number:
            symbol = self.kernel.symbols[fault.region - 1]
            return f"byte {offset:,} of the {symbol.space} array {symbol.name} ({symbol.size:,} bytes)"
        return f"address {fault.address:#x}, in no array"


@cache
def executable_of(kernel, capability: tuple[int, int], weakened: bool = False) -> Executable:
    """A kernel of the product, compiled for this capability; `weakened`: launches may weaken an instruction."""
    from tests.ptx.engine import SIGNATURES

    function = kernel.py_func
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return Executable(ptx_of(kernel, SIGNATURES[kernel], capability), names, function.__name__, weakened)
