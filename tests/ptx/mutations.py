# SPDX-License-Identifier: Apache-2.0
"""Weakens each atomic, barrier, fence and bound of the kernels, one at a time, and lists what no launch notices.

    python -m tests.ptx.mutations [KERNEL ...]

An atomic becomes a load and a store, and a barrier or a fence nothing. A bound is off by one, then always true, then
never. It is a comparison with a number that is a parameter of the kernel, such as the size of an array. Each
instruction of the PTX counts: a compiler writes several for one line of Python, some of them for cases that no launch
has. A mutation is reached if a launch executes it; that of a bound, if it gives another answer there.

The launches are those of the calls of `workload`, repeated from the memory before each. A mutation is killed if the
executor finds a fault in one of them, or if a byte differs that several orders of threads leave the same.

The program ends with 1 if a mutation is neither killed nor not needed for a reason of REASONS or NOT_NEEDED, or if a
reason there has another number of them than it was written for.
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

from curation.base.contract import TEXT
from curation.base.measures import Measure
from curation.kernels.expressions import CL100K, GPT2, O200K
from curation.kernels.permutations import constants
from curation.kernels.spans import new_memory
from curation.kernels.units import UNITS
from curation.kernels.word_breaks import PIECES, SCRIPTS, TABLE
from curation.models.fasttext import load_classifier
from curation.rules.columns import Texts
from curation.rules.listed import Listed, count_stop_words
from curation.tokens.tokenization import Tokenizer, TokenizerSpec
from tests.conftest import frame_of
from tests.corpus import NASTY
from tests.ptx import engine, workload
from tests.ptx.arrays import regions_of
from tests.ptx.build import CAPABILITY, source_lines
from tests.ptx.execute import Executable, KernelError, executable_of
from tests.ptx.flow import bounds_of, weakenable
from tests.ptx.test_json_lines import BLOCKS, LIMITED
from tests.ptx.test_measures import CUTS
from tests.ptx.test_models import WITHOUT_HASH
from tests.ptx.test_text import arrays_of, byte_documents
from tests.ptx.test_tokens import CONTRACTIONS
from tests.ptx.workload import shifted_column
from tests.reading.test_jsonl import BAD, GOOD
from tests.tokens.byte_pairs import tokenizer_of

FEW_BLOCKS = 2
ORDERS = (1, 2, 3, 4)  # of threads, that have to leave a byte the same
SEEDS = ORDERS[:2]  # in which a launch with a weakened instruction is repeated
MOST_LAUNCHES = 2  # of a kernel by one call
PATIENCE = 1 << 25  # basic blocks; launches here need fewer
# Why a weakened atomic or barrier changes nothing: by kernel, kind, and line of the kernel that it comes from; and how
# many there are at most.
OWN_LOOP = "the compiler has a loop of its own for n = 1, in which nothing is counted"
NOT_NEEDED = {
    ("repeat_words_small", "atomic", "count_document("): (
        1,
        "followers: a block of one warp has one lane that adds; larger blocks have more",
    ),
    ("claim_ngrams", "atomic", "cuda.atomic.add(lowest, base + other, cuda.popc(same))"): (1, OWN_LOOP),
    ("claim_ngrams", "atomic", "cuda.atomic.add(lowest, base + other, 1)"): (1, OWN_LOOP),
}


class Reason(NamedTuple):
    """Why no launch shows that bounds are weakened.

    pattern   of "kind, parameter: line of the kernel"
    numbers   how many mutations of each kernel have it and are not killed. Where the number is another one, the reason
              does not count: it was not written for one of them.
    """

    pattern: str
    why: str
    numbers: dict[str, int]


REASONS = [
    Reason(
        r"(off by one|always true), ((\w+): .*\b\3\[[\w\[\]]* ?:|hashes: first, count =)",
        "the slice fits in its array, with whose size the compiler compares its ends",
        {"sign_pieces": 6, "repeat_words_small": 4, "repeat_words_medium": 4, "repeat_words_large": 14,
         "repeat_items_small": 4, "claim_ngrams": 8, "find_tops": 2, "prepare_ngrams": 6, "note_visits": 2,
         "note_seen": 6, "add_duplicates": 6, "add_covered": 4, "write_long_tops": 2, "repeat_long_items": 4},
    ),
    Reason(
        r", (form_)?(data|blocks): .*(block|_bits\(|_word\(|hash_span|lane_bytes|find_token|elif by_char|solid\[)",
        "eight bytes at the end of the text are read as a block or one by one, with zeros beyond it",
        {"mark_bytes": 2, "hash_items": 3, "mark_text": 3, "count_classes": 1, "measure_pieces": 3, "hash_pieces": 1,
         "mark_word_cases": 1, "check_bytes": 1, "mark_runs_of_unstable": 1, "copy_pieces": 1,
         "compare_pieces": 1, "mark_steps": 2,
         "mark_bounds": 1, "write_text": 1, "find_ids": 1, "mark_json": 1, "split_strings": 2, "mark_tokens": 1,
         "find_unspaced": 1, "mark_word_ends": 2, "write_words": 2, "count_in_lists": 1},
    ),
    Reason(
        r"(off by one|always true), data: note_ending\(",
        "eight bytes at the end of the text are read as one number or one by one",
        {"count_in_lists": 2},
    ),
    Reason(
        r"(off by one|never true), data: end = kernels\.end_of_item",
        "a word ends before the limit, which is the size of the text",
        {"count_in_lists": 2},
    ),
    Reason(
        r", endings: (k \+=|note_word)",
        "a table has all endings or none: the compiler has a loop for several",
        {"count_in_lists": 5},
    ),
    Reason(
        r"(off by one|never true), data: .*(8 \* k|i) < data\.size",
        "zeros beyond the text have no bits",
        {"mark_word_cases": 2, "mark_classes": 1, "mark_json": 2, "write_words": 1},
    ),
    Reason(
        r"always true, (low|middle|high|borders): .*(_starts\(|count_runs|case_word)",
        "a window beyond the last word is cut by a border",
        {"mark_runs": 4, "mark_gpt2": 1, "mark_cl100k": 3, "mark_cases": 3, "mark_o200k": 3},
    ),
    Reason(
        r", (offsets|item_starts): ",
        "a launch has documents",
        {"count_urls": 2, "measure_lines": 4, "check_bytes": 2, "mark_runs_of_unstable": 2, "find_lines": 2,
         "mark_sentence_starts": 2, "find_unspaced": 2},
    ),
    Reason(
        r"(off by one|never true), starts: def hash_(nodes|windows)",
        "a launch has places",
        {"hash_nodes": 2, "hash_windows": 2},
    ),
    Reason(
        r"(off by one|never true), (pieces|ranks): (def cut_spans|count = min\(firsts)",
        "a launch has spans",
        {"cut_spans": 4},
    ),
    Reason(
        r"off by one, start: if i < start",
        "equal ones leave no bit out",
        {"mark_items": 1},
    ),
    Reason(
        r"(off by one|never true), end: .*(end < i \+ 32|i < end)",
        "what is beyond the batch follows all its own, and is left out later",
        {"mark_items": 2, "mark_steps": 2, "mark_bounds": 2},
    ),
    Reason(
        r"off by one, bits: while c < bits",
        "the mask after this one is of bytes that no document has",
        {"count_urls": 1},
    ),
    Reason(
        r"(off by one|never true), entries: while g < entries",
        "a thread beyond has no functions",
        {"enter_functions": 2},
    ),
    Reason(
        r"off by one, max_characters: .*(prefix_end|> max_characters)",
        "a text of so many bytes keeps all of them",
        {"hash_rows": 1, "find_prefixes": 1},
    ),
    Reason(
        r"never true, longest: .*find_token",
        "a longer pre-token is looked up, and not found",
        {"find_ids": 1},
    ),
    Reason(
        r"(off by one|never true), data: .*(written_before|escaped_bytes|escape)\(",
        "an escape that a character replaces is whole: the end of its string is in the text",
        {"scan_lines": 8, "copy_texts": 4, "copy_ids": 2},
    ),
    Reason(
        r"never true, most_bytes: stop = end_of_item",
        "a longer token is read to its end in vain: a test of `look_up_tokens` counts the instructions",
        {"look_up_tokens": 1},
    ),
    Reason(
        r", (n|measure|ngram|size): ",
        "a number of the host: the compiler asks for a sign or a value that it never has",
        {"repeat_items_small": 2, "claim_ngrams": 1, "find_tops": 1, "prepare_ngrams": 4, "leave_chunks": 2,
         "compose_functions": 2, "add_duplicates": 2, "add_covered": 2, "repeat_long_items": 2, "hash_strings": 2,
         "hash_chunks": 2},
    ),
]  # fmt: skip
SHORT_RUNS = "。".join("㐀" * size for size in range(1, 13)) * 3  # each character is a word
RUN_OF_WORDS = 4  # more rows than a warp's queue has room for
LONGEST_TOKEN = "ÃÂ" * 32  # of GPT-2
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


def reason_of(bound: Mutation) -> Reason | None:
    """The first reason whose pattern it has, unless it is killed."""
    if bound.outcome == "killed" or not bound.size:
        return None
    described = f"{bound.kind}, {bound.size}: {bound.line}"
    return next((each for each in REASONS if re.search(each.pattern, described)), None)


def with_reasons(found: Sequence[Mutation]) -> Iterator[Mutation]:
    """All mutations of a kernel. Those that are not killed for a reason that is known are not needed."""
    used: Counter[tuple[str, str, str]] = Counter()
    numbers = Counter(reason.why for each in found if (reason := reason_of(each)))
    for each in found:
        if reason := reason_of(each):
            number, expected = numbers[reason.why], reason.numbers.get(each.kernel, 0)
            if number == expected:
                each = each._replace(outcome="not needed", shown=reason.why)
            else:
                each = each._replace(shown=f"{number} instead of {expected} have the reason: {reason.why}")
        most, why = NOT_NEEDED.get(each.reason, (0, ""))
        if each.outcome in ("survived", "not reached") and used[each.reason] < most:
            used[each.reason] += 1
            each = each._replace(outcome="not needed", shown=why)
        yield each


def texts() -> list[str]:
    made = [*workload.made_texts(10, 3), workload.several_pieces()]
    made += [
        " ".join(f"{workload.UNKNOWN_WORD}{k}" for k in range(40)),
        "<b>text</b>" * 40,
        "a </s> b </s> c",
        LONGEST_TOKEN,
    ]
    made.append("\n".join(["long line " * 300] * 30))
    made.append("\n".join(["• a…", "* b...", '- "c"', "d: e", "{f}"] * 40))
    return [*made, *CUTS, *(text for text in NASTY if len(text) < 3000)]


def all_calls() -> list[Call]:
    """Calls with many texts, and with short ones alone: their ends are those of the arrays."""
    calls = [call_of(name, texts()) for name in workload.CALLS]
    calls += [call_of(name, [text]) for name in OF_TEXT for text in ENDS]
    calls.append(lambda loaded, folder: workload.classified_by_words(loaded, texts(), folder, RUN_OF_WORDS))
    calls.append(call_of("classify by words", WITHOUT_HASH))
    calls += [partial(windows_of, size) for size in SIZES]
    calls += [
        with_first_ids,
        by_characters,
        under_nulls,
        checked_bytes,
        with_many_permutations,
        lines_above_the_limit,
        with_few_span_threads,
        *(in_batches(name) for name in OF_TEXT if name not in BY_TABLES),
    ]
    calls += [partial(tokens_at_the_end, pattern, text) for pattern in (GPT2, CL100K, O200K) for text in CONTRACTIONS]
    calls += [partial(words_at_the_end, text) for text in (*ENDS, *workload.UNSPACED, SHORT_RUNS)]
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
        loaded.classify(text, load_classifier(""), 1)
        for unit in UNITS:
            loaded.split_units(text, unit, True)
        loaded.split_words(text, SCRIPTS)
        count_stop_words(Texts(loaded, lambda text=text: text, len(text)), {0: Listed(words=("a",), as_="stop_word")})


def checked_bytes(loaded: ModuleType, folder: Path) -> None:
    """Documents that are no UTF-8, some of them nulls."""
    sys.modules["gpu_pipeline.kernels.text_kernels"].sound_documents(*arrays_of(byte_documents(1), range(0, 100, 7), 0))


def with_many_permutations(loaded: ModuleType, folder: Path) -> None:
    """More than a block has threads."""
    loaded.band_keys(frame_of(loaded, texts())[TEXT], workload.NGRAM, False, *constants(300), 6)


def tokens_at_the_end(pattern: int, text: str, loaded: ModuleType, folder: Path) -> None:
    """Tokens of a text that ends where the array does."""
    loaded.tokenize(frame_of(loaded, [text])[TEXT], tokenizer_of(pattern))


def words_at_the_end(text: str, loaded: ModuleType, folder: Path) -> None:
    """Words of a text that ends where the array does."""
    for words in (SCRIPTS, TABLE, PIECES):
        loaded.split_words(frame_of(loaded, [text])[TEXT], words)


def with_few_span_threads(loaded: ModuleType, folder: Path) -> None:
    """More pieces of spans than threads."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(sys.modules["gpu_pipeline.kernels.word_break_kernels"], "SPAN_THREADS", 3)
        words_at_the_end(SHORT_RUNS, loaded, folder)


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


def lines_above_the_limit(loaded: ModuleType, folder: Path) -> None:
    workload.find_lines(*LIMITED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="only these")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only these instructions")
    options = parser.parse_args()
    names = options.kernels or list(engine.ORIGINALS)
    launches = recorded(all_calls(), names)
    kinds = options.kind or KINDS
    counts: Counter[tuple[str, str]] = Counter()
    used: set[tuple[str, ...]] = set()
    for name in names:
        found = list(with_reasons([*mutations_of(name, launches[name], kinds)]))
        for each in found:
            counts[each.kind, each.outcome] += 1
            if each.outcome == "not needed":
                used |= {each.reason, (name, "bound", each.shown)}
            elif each.outcome != "killed":
                size, shown = (
                    f"{text}{part}" if part else "" for text, part in ((", ", each.size), ("; ", each.shown))
                )
                print(f"{each.outcome}: {name}, {each.kind}{size}, {each.copies} times: {each.line}{shown}")
        of_kernel = Counter(each.outcome for each in found)
        print(f"{name}: " + ", ".join(f"{of_kernel[each]} {each}" for each in OUTCOMES), flush=True)
    for kind in dict.fromkeys(kind for kind, _ in counts):
        print(f"{kind}: " + ", ".join(f"{counts[kind, each]} {each}" for each in OUTCOMES))
    known = {*NOT_NEEDED, *((name, "bound", reason.why) for reason in REASONS for name in reason.numbers)}
    unused = [key for key in known - used if key[0] in names and key[1] in kinds]
    for key in unused:
        print(f"now killed, not there, or of another number: {key}")
    open_ones = sum(number for (_, outcome), number in counts.items() if outcome in ("survived", "not reached"))
    sys.exit(int(bool(unused or open_ones)))


if __name__ == "__main__":
    main()
