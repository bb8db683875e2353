# SPDX-License-Identifier: Apache-2.0
"""Weakens each atomic, barrier, fence and bound of the kernels, one at a time, and lists what no launch notices.

    python -m tests.ptx.mutations [KERNEL ...]

An atomic becomes a load and a store, and a barrier or a fence nothing. A bound is off by one, then always true, then
never. It is a comparison with a number that is a parameter of the kernel, such as the size of an array. Each
instruction of the PTX counts: a compiler writes several for one line of Python, some of them for cases that no launch
has. A mutation is reached if a launch executes it; that of a bound, if it gives another answer there.

The launches are those of the calls of `workload`, repeated from the memory before each. A mutation is killed if the
executor finds a fault in one of them, or if a byte differs that several orders of threads leave the same.
"""

import argparse
import copy
import linecache
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from numba import types

from curation.contract import TEXT
from curation.kernels.expressions import GPT2
from curation.kernels.permutations import constants
from curation.kernels.spans import new_memory
from curation.kernels.units import UNITS
from curation.measures import Measure
from curation.packing.tokenization import Tokenizer, TokenizerSpec
from tests.conftest import frame_of
from tests.corpus import NASTY
from tests.packing.byte_pairs import tokenizer_of
from tests.ptx import engine, workload
from tests.ptx.arrays import regions_of
from tests.ptx.build import CAPABILITY, source_lines
from tests.ptx.execute import Executable, KernelError, executable_of
from tests.ptx.flow import bounds_of, weakenable
from tests.ptx.test_json_lines import BLOCKS
from tests.ptx.test_measures import CUTS
from tests.ptx.workload import shifted_column
from tests.reading.test_jsonl import BAD, GOOD

FEW_BLOCKS = 2
ORDERS = (1, 2, 3, 4)  # of threads, that have to leave a byte the same
SEEDS = ORDERS[:2]  # in which a launch with a weakened instruction is repeated
MOST_LAUNCHES = 2  # of a kernel by one call
PATIENCE = 1 << 25  # basic blocks; launches here need fewer
# Why a weakened atomic or barrier changes nothing: by kernel, kind, and line of the kernel that it comes from; and how
# many there are at most.
NOT_NEEDED = {
    ("repeat_words_small", "atomic", "count_document("): (
        1,
        "followers: a block of one warp has one lane that adds; larger blocks have more",
    ),
}
SLICE = "the slice fits in its array, with whose size the compiler compares its ends"
# Why no launch shows that a bound is weakened: its parameter, the line of the kernel, and the reason
FAMILIES = [
    ("(form_)?(data|blocks)", r"block|_bits\(|_word\(|hash_span|lane_bytes|find_token|elif by_character|solid\[",
     "eight bytes at the end of the text are read as a block or one by one, with zeros beyond it"),
    ("data", r"(8 \* k|i) < data\.size", "zeros beyond the text have no bits"),
    ("low|middle|high|borders", r"_starts\(|count_runs|case_word", "a window beyond the last word is cut by a border"),
    ("offsets|item_starts", "", "a launch has documents"),
    ("starts", r"def hash_(nodes|windows)", "a launch has places"),
    ("start", "if i < start", "equal ones leave no bit out"),
    ("end", r"end < i \+ 32|i < end", "what is beyond the batch follows all its own, and is left out later"),
    ("bits", r"while c < bits", "the mask after this one is of bytes that no document has"),
    ("entries", r"while g < entries", "a thread beyond has no functions"),
    ("max_characters", "prefix_end", "a text of so many bytes keeps all of them"),
    ("longest", "find_token", "a longer pre-token is looked up, and not found"),
    ("n|measure|ngram|size", r"", "a number of the host: the compiler asks for a sign or a value that it never has"),
]  # fmt: skip
RUN_OF_WORDS = 4  # more rows than a warp's queue has room for
# Texts whose end a kernel could read beyond, and names of calls with each of them
ENDS = [
    "", "a", "a " * 16, "a" * 31, "a" * 32, "a" * 33, "é" * 16, "漢" * 11, "😀" * 8, "x\r", "x" * 31 + "\r\n",
    "a b\r\n\r\n", "<", "<b", "a <b>", "<b>" * 11, "ΟΔΟΣ", "ΟΔΟΣ" + "\u0301" * 20, "e\u0301", "½", "x" * 30 + "½", "가",
    "\u1100\u1161", "\u0344", "http://", "see www.", "www.a", "https://e.org", "..", "...", "a…", "- x", "• x", "* x",
    "it's", "it'", "I'LL", "1234567", "  a", "a  ", "\n \n", "?!\n", "\t", "\x00", "\x85", "\u2028", "a\u2028",
    "word word word word word word",
]  # fmt: skip
BY_TABLES = "hits", "overlap"  # CPU work between kernels
OTHERS = ("read", "read JSON Lines", "measure long documents", "overlap")
OF_TEXT = [name for name in workload.CALLS if name not in OTHERS]
SIZES = range(32, 42)  # of texts, in bytes: their windows end at each byte of a chunk
OUTCOMES = ("killed", "not needed", "not reached", "survived")
ORDER = ("killed", "survived", "not reached")  # of copies
KINDS = ("atomic", "barrier", "fence", "bound")
FORMS = {"bound": ("bound off by one", "bound always true", "bound never true")}


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

    def run(self, executable: Executable, seed: int, weakened: int = 0, form: int = 0) -> list[np.ndarray]:
        """The memory afterwards."""
        memory = [owner.copy() for owner in self.memory]
        arguments = list(self.arguments)
        for k, (number, place) in self.views.items():
            arguments[k] = self.view(memory[number], k, place)
        settings = {"seed": seed, "weakened": weakened, "form": form, "patience": PATIENCE}
        executable.run(self.blocks, self.threads, *arguments, **settings)
        return memory

    def digest(self) -> tuple:
        """The same for the same launches."""
        numbers = [each for each in self.arguments if not isinstance(each, np.ndarray)]
        shapes = [(k, *place, self.arguments[k].shape) for k, place in self.views.items()]
        return self.blocks, self.threads, *numbers, *shapes, *(hash(owner.tobytes()) for owner in self.memory)

    def with_blocks(self, blocks: int) -> "Launch":
        other = copy.copy(self)
        other.blocks = blocks
        return other


class Case:
    """A launch, what it reaches, and the memory after it.

    like   the launch with another number of blocks, if any
    """

    def __init__(self, executable: Executable, launch: Launch, like: "Case | None" = None):
        self.executable, self.launch, self.like = executable, launch, like
        executable.reached()[:] = 0
        self.first = launch.run(executable, ORDERS[0])
        self.reached = executable.reached().copy()

    @cached_property
    def stable(self) -> list[np.ndarray]:
        """Bytes that are the same in every order."""
        others = [self.launch.run(self.executable, seed) for seed in ORDERS[1:]]
        return [np.logical_and.reduce([each == other[k] for other in others]) for k, each in enumerate(self.first)]

    def differs(self, memory: Sequence[np.ndarray]) -> bool:
        pairs = zip(memory, self.first, self.stable, strict=True)
        return any(((found != wanted) & stable).any() for found, wanted, stable in pairs)

    @cached_property
    def is_possible(self) -> bool:
        """Whether the kernel allows this number of blocks."""
        return self.like is None or not self.like.differs(self.first)

    def fault_of(self, number: int, form: int) -> str:
        """What shows that the instruction is weakened; "" if nothing does."""
        for seed in SEEDS:
            try:
                if self.differs(self.launch.run(self.executable, seed, number + 1, form)):
                    return "another result"
            except KernelError as error:
                return str(error)
        return ""


Call = Callable[[ModuleType, Path], Any]


def recorded(calls: Iterable[Call], kernels: Sequence[str]) -> dict[str, list[Launch]]:
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
            call(loaded, Path(folder))
    return found


class Cases:
    """The launches of a kernel, the smallest first; then those with few blocks that take several items each, and with
    idle blocks more."""

    def __init__(self, executable: Executable, launches: Sequence[Launch]):
        self.executable = executable
        different = {launch.digest(): launch for launch in launches}.values()
        ordered = sorted(different, key=lambda launch: sum(memory.size for memory in launch.memory))
        self.recorded = [Case(executable, launch) for launch in ordered]

    @cached_property
    def other_grids(self) -> list[Case]:
        pairs = [(each, blocks) for each in self.recorded for blocks in (FEW_BLOCKS, each.launch.blocks + FEW_BLOCKS)]
        return [Case(self.executable, each.launch.with_blocks(blocks), each) for each, blocks in pairs]

    def outcome_of(self, number: int, form: int = 0) -> tuple[str, str]:
        """Whether a launch shows that the instruction is weakened, and what it shows."""
        reached = False
        for cases in ("recorded", "other_grids"):
            for case in getattr(self, cases):
                if case.reached[number] >> form & 1 and case.is_possible:
                    reached = True
                    if fault := case.fault_of(number, form):
                        return "killed", fault
        return ("survived", "") if reached else ("not reached", "no launch reaches it")


class Mutation(NamedTuple):
    """A weakened instruction. A bound is one of the kernel's source: all copies that the compiler wrote of it."""

    kernel: str
    kind: str
    line: str  # of the kernel
    size: str  # a bound's parameter
    outcome: str
    shown: str
    copies: int = 1

    @property
    def reason(self) -> tuple[str, str, str]:
        """Its key in NOT_NEEDED."""
        return self.kernel, self.kind.partition(" ")[0], self.line


def parameter_names(kernel) -> list[str]:
    """The argument of each parameter of the PTX: an array has several."""
    names = kernel.py_func.__code__.co_varnames
    counts = [5 + 2 * kind.ndim if isinstance(kind, types.Array) else 1 for kind in engine.SIGNATURES[kernel]]
    return [name for name, count in zip(names, counts, strict=False) for _ in range(count)]


def instructions_of(name: str, launches: Sequence[Launch], kinds: Sequence[str] = KINDS) -> Iterator[Mutation]:
    """Weaken the kernel's instructions of these kinds."""
    kernel = engine.ORIGINALS[name]
    executable = executable_of(kernel, CAPABILITY, True)
    bounds, names, weak = bounds_of(executable.kernel), parameter_names(kernel), weakenable(executable.kernel)
    cases = Cases(executable, launches) if weak else None
    lines, file = source_lines(kernel), kernel.py_func.__code__.co_filename
    for number, kind in weak.items():
        if kind in kinds:
            size = names[bounds[number]] if number in bounds else ""
            line = linecache.getline(file, lines[number]).strip()
            for form, shown in enumerate(FORMS.get(kind, (kind,))):
                yield Mutation(name, shown, line, size, *cases.outcome_of(number, form))


def mutations_of(name: str, launches: Sequence[Launch], kinds: Sequence[str] = KINDS) -> Iterator[Mutation]:
    """As `instructions_of`, copies of a bound together: killed if one is, not reached if none is reached."""
    bounds: dict[tuple[str, ...], list[Mutation]] = {}
    for each in instructions_of(name, launches, kinds):
        if each.size:
            bounds.setdefault(each[1:4], []).append(each)
        else:
            yield each
    for copies in bounds.values():
        yield min(copies, key=lambda each: ORDER.index(each.outcome))._replace(copies=len(copies))


def reason_of_bound(size: str, line: str) -> str:
    """Why no launch shows that a bound is weakened; "" where that is open."""
    if re.search(rf"\b{size}\[[\w\[\]]* ?:", line):
        return SLICE
    return next((why for sizes, of, why in FAMILIES if re.fullmatch(sizes, size) and re.search(of, line)), "")


def with_reasons(found: Iterable[Mutation]) -> Iterator[Mutation]:
    """Those that are not killed for a reason that is known are not needed."""
    used: Counter[tuple[str, str, str]] = Counter()
    for each in found:
        if each.size and each.outcome != "killed" and (why := reason_of_bound(each.size, each.line)):
            each = each._replace(outcome="not needed", shown=why)
        most, why = NOT_NEEDED.get(each.reason, (0, ""))
        if each.outcome in ("survived", "not reached") and used[each.reason] < most:
            used[each.reason] += 1
            each = each._replace(outcome="not needed", shown=why)
        yield each


def texts() -> list[str]:
    made = [*workload.made_texts(10, 3), workload.several_pieces()]
    made += [" ".join(f"{workload.UNKNOWN_WORD}{k}" for k in range(40)), "<b>text</b>" * 40, "a </s> b </s> c"]
    made.append("\n".join(["long line " * 300] * 30))
    made.append("\n".join(["• a…", "* b...", '- "c"', "d: e", "{f}"] * 40))
    return [*made, *CUTS, *(text for text in NASTY if len(text) < 3000)]


def all_calls() -> list[Call]:
    """Calls with many texts, and with short ones alone: their ends are those of the arrays."""
    calls = [call_of(name, texts()) for name in workload.CALLS]
    calls += [call_of(name, [text]) for name in OF_TEXT for text in ENDS]
    calls.append(lambda loaded, folder: workload.classified_by_words(loaded, texts(), folder, RUN_OF_WORDS))
    calls += [partial(windows_of, size) for size in SIZES]
    calls += [
        with_first_ids,
        by_characters,
        under_nulls,
        *(in_batches(name) for name in OF_TEXT if name not in BY_TABLES),
    ]
    return [*calls, *(partial(lines_of, raw) for raw in (b"\n".join([*GOOD, *BAD]), *GOOD, *BAD, *BLOCKS))]


def call_of(name: str, of_texts: Sequence[str]) -> Call:
    return lambda loaded, folder: workload.CALLS[name](loaded, of_texts, folder)


def with_first_ids(loaded: ModuleType, folder: Path) -> None:
    """Tokens after an id that begins each document."""
    tokenizer = tokenizer_of(GPT2)
    gpt2 = tokenizer._source._replace(bos=tokenizer.eod)
    loaded.tokenize(frame_of(loaded, texts())[TEXT], Tokenizer(TokenizerSpec(name="gpt2", prepend_bos=True), gpt2))


def by_characters(loaded: ModuleType, folder: Path) -> None:
    """Items that are characters, alone, in bands of one row; and hashes of the first characters."""
    text = frame_of(loaded, texts())[TEXT]
    loaded.shingles(text, 1, True)
    loaded.band_keys(text, workload.NGRAM, True, *constants(3), 1)
    loaded.hash_text(text, 9)


def under_nulls(loaded: ModuleType, folder: Path) -> None:
    """Bytes of a null that end within a character, at the end of the column."""
    for last in (b"a\xe2", b"\xe2\x80", b"a\xf0\x9f", b"\xc3"):
        column = shifted_column([text.encode() for text in ENDS] + [last], (len(ENDS),), 3)
        text = loaded.from_arrow(pa.table({TEXT: column}))[TEXT]
        loaded.measure(text, [measure.name for measure in Measure])
        for by_character in (False, True):
            loaded.shingles(text, 2, by_character)
        loaded.rewrite(text, workload.ALL_STEPS)
        for unit in UNITS:
            loaded.split_units(text, unit, True)


def in_batches(name: str) -> Call:
    """A call of several batches: their documents begin and end within eight bytes of others'."""

    def run(loaded: ModuleType, folder: Path) -> None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            columns = sys.modules["gpu_pipeline.columns"]
            monkeypatch.setattr(columns, "MIN_SCRATCH_BYTES", 5000)
            monkeypatch.setattr(columns, "SCRATCH_SHARE", 0)
            workload.CALLS[name](loaded, ENDS, folder)

    return run


def windows_of(size: int, loaded: ModuleType, folder: Path) -> None:
    """Records of windows of 32 bytes in a few texts, the first of so many bytes, with periods and copies."""
    raw = [("abcdefghijklmnop qrstuvwxyz" * 9)[:size], "ab" * size, "xyz " * 3, ENDS[-1] * 3, "c" + "ab" * size]
    data, offsets = np.frombuffer("".join(raw).encode(), np.uint8), np.cumsum([0, *map(len, raw)])
    records, places, _ = loaded.anchor_records(data, offsets, 32, new_memory())
    loaded.node_records(data, places, 32)
    loaded.window_records(data, places[:3].copy(), 32)
    loaded.judge_records(records, True)


def lines_of(raw: bytes, loaded: ModuleType, folder: Path) -> None:
    workload.find_lines(raw)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="only these")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only these instructions")
    options = parser.parse_args()
    names = options.kernels or list(engine.ORIGINALS)
    launches = recorded(all_calls(), names)
    kinds = options.kind or KINDS
    counts: Counter[tuple[str, str]] = Counter()
    used: set[tuple[str, str, str]] = set()
    for name in names:
        found = list(with_reasons(mutations_of(name, launches[name], kinds)))
        for each in found:
            counts[each.kind, each.outcome] += 1
            used |= {each.reason} if each.outcome == "not needed" else set()
            if each.outcome not in ("killed", "not needed"):
                size = f", {each.size}" if each.size else ""
                print(f"{each.outcome}: {name}, {each.kind}{size}, {each.copies} times: {each.line}")
        of_kernel = Counter(each.outcome for each in found)
        print(f"{name}: " + ", ".join(f"{of_kernel[each]} {each}" for each in OUTCOMES), flush=True)
    for kind in dict.fromkeys(kind for kind, _ in counts):
        print(f"{kind}: " + ", ".join(f"{counts[kind, each]} {each}" for each in OUTCOMES))
    for key in NOT_NEEDED.keys() - used:
        if key[0] in names and key[1] in kinds:
            print(f"now killed, or not there: {key}: remove it from NOT_NEEDED")


if __name__ == "__main__":
    main()
