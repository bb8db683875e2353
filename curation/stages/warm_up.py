# SPDX-License-Identifier: Apache-2.0
"""Compile kernels before a run needs them: in groups, one process per processor.

A group calls functions of the CPU engine on a few texts, with the argument types of a run. A marker in the folder of
compiled kernels records a finished group. All groups take about 50 CPU seconds, the longest alone 12 s. A process needs
at most 340 MB, and compiled code is not shared between the groups that one process compiles.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from curation.base.contract import TEXT, Engine, Text
from curation.base.errors import EngineError, InputError
from curation.base.system.files import write_json
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.locks import locked
from curation.base.system.memory import count_compilers, read_limits, read_processors
from curation.base.system.progress import Progress, ProgressLines, notebook_progress
from curation.base.system.steps import Count, shown_by
from curation.base.system.system_folders import system_folder
from curation.kernels.cache import FOLDER, SAVED, is_installed
from curation.stages.base import CorpusStage

if TYPE_CHECKING:
    from curation.recipes.recipe import Recipe
    from curation.stages import Stage

POLL_SECONDS = 0.1  # between two looks for a signal
MARKERS = "groups"
TEXTS = ("The first text, of one line.", "Zwei Zeilen\nmit e\u0301, 中文 and <b>HTML</b>.", None, "")
NGRAM, PERMUTATIONS, BAND_ROWS = 2, 12, 3
LABEL = "compiling kernels, once per version"


def _text(engine: Engine, texts: Sequence[str | None] = TEXTS) -> Text:
    return engine.from_arrow(pa.table({TEXT: pa.array(texts, pa.large_string())}))[TEXT]


def _json_lines(engine: Engine) -> None:
    from curation.reading import read_documents
    from curation.reading.source_files import FileRange, Slice, SourceFile

    with system_folder() as folder:
        path = folder / "texts.jsonl"
        path.write_bytes(b'{"text": "one", "id": "a"}\n{"text": 3}\n\n')
        stat = path.stat()
        file = SourceFile(
            path=str(path), source="texts", format="jsonl", bytes=stat.st_size, modified_ns=stat.st_mtime_ns
        )
        for _ in read_documents(Slice(index=0, ranges=[FileRange(file=file, start=0, stop=stat.st_size)]), 1 << 20):
            pass


def _utf8(engine: Engine) -> None:
    from curation.reading.documents import strings, valid_utf8

    valid_utf8(pa.array(TEXTS, pa.large_string()))
    strings([b"text"])


def _rewrite(engine: Engine) -> None:
    from curation.kernels.rewrite import RewriteSteps

    for steps in (RewriteSteps(unicode="nfc"), RewriteSteps(lowercase=True)):
        engine.rewrite(_text(engine), steps)


def _measures(engine: Engine) -> None:
    engine.measure(_text(engine), ("words", "duplicate_5gram_characters"))
    engine.measure(_text(engine, ("a", "b")), ("words", "max_word_characters"))  # of short texts


def _words(engine: Engine) -> None:
    from curation.kernels.word_breaks import SCRIPTS, TABLE

    for words in (SCRIPTS, TABLE):
        engine.split_words(_text(engine), words)


def _scripts(engine: Engine) -> None:
    from curation.base.arrays import text_buffers
    from curation.kernels.scripts import letter_counts
    from curation.kernels.word_breaks import allocate_span, count_listed
    from curation.kernels.word_lists import load_word_lists

    texts, counts = text_buffers(pa.array(TEXTS, pa.large_string())), np.zeros((len(TEXTS), 2), np.int64)
    letter_counts(*texts)
    count_listed(*texts, 1, tuple(load_word_lists()), allocate_span(), counts)


def _units(engine: Engine) -> None:
    from curation.kernels.units import UNITS, count_repeats

    for unit in UNITS:
        units = engine.split_units(_text(engine), unit, True)
    engine.join_units(_text(engine), units, np.ones(len(units.frame), bool))
    count_repeats(np.zeros((len(units.frame), 2), np.uint64), units.counts)


def _hashes(engine: Engine) -> None:
    engine.hash_text(_text(engine))


def _unit_spans(engine: Engine) -> None:
    from curation.kernels.units import UNITS, stripped
    from curation.stages.exact.unit_keys import buffers_of

    buffers = buffers_of(pa.array(TEXTS, pa.large_string()))
    for unit in UNITS:
        stripped(buffers.data, buffers.units(unit).spans)


def _span_records(engine: Engine) -> None:
    from curation.kernels.spans import new_memory

    data, offsets = np.frombuffer(b"0123456789" * 40, np.uint8), np.array([0, 200, 400])
    records, places, _ = engine.anchor_records(data, offsets, 32, new_memory())
    engine.node_records(data, places, 32)
    engine.judge_records(records, True)
    engine.window_records(data, places, 32)


def _span_masks(engine: Engine) -> None:
    from curation.kernels.span_keys import span_keys
    from curation.kernels.span_matches import matching_spans
    from curation.kernels.spans import fill_spans, spans_of_mask

    mask, found = np.zeros(80, np.uint8), np.array([[0, 40], [42, 80]])
    fill_spans(mask, *found.T)
    spans_of_mask(mask, np.array([0, 41, 80]), 2, 0)
    span_keys(mask, found[:, 0], found[:, 1], 32)
    no_places = np.zeros(1, np.int64), np.zeros(1, np.int64)
    matching_spans(mask, np.zeros((1, 3), np.int64), 32, *no_places, np.frombuffer(bytes(8), np.uint64), mask)


def _leaders(engine: Engine) -> None:
    keys = np.arange(6, dtype=np.uint64)[:, None]
    engine.group_leaders(keys)
    engine.group_leaders(keys, np.arange(6))


def _constants() -> tuple[np.ndarray, np.ndarray]:
    from curation.kernels.permutations import constants

    return constants(PERMUTATIONS)


def _band_keys(engine: Engine) -> None:
    engine.band_keys(_text(engine), NGRAM, False, *_constants(), BAND_ROWS)


def _signatures(engine: Engine) -> None:
    engine.signatures(_text(engine), NGRAM, False, *_constants())


def _shingles(engine: Engine) -> None:
    engine.shingles(_text(engine), NGRAM, False)


def _pairs(engine: Engine) -> None:
    hashes, one = np.arange(4, dtype=np.uint64), np.array([1])
    engine.intersection_sizes(hashes, np.array([0, 2, 4]), one - 1, one)
    engine.connected_components(one - 1, one, 2)


def _file_ranges(engine: Engine) -> None:
    from curation.kernels.files import read_ranges

    one = np.array([1])
    with open(__file__, "rb", buffering=0) as file:
        read_ranges(file.fileno(), one, one, np.empty(8, np.uint64).view(np.uint8))


def _ngram_table(engine: Engine) -> None:
    from curation.kernels.ngram_table import table_of

    table = table_of(("a",), np.arange(1, 4, dtype=np.uint64), np.zeros(3, np.int32))
    engine.ngram_hits(_text(engine), table, NGRAM)


def _ngram_dedup(engine: Engine) -> None:
    from curation.kernels.ngrams import FREE, pass_documents

    hashes, offsets = np.arange(4, dtype=np.uint64), np.array([0, 2, 4])
    keys, owners = np.empty(16, np.uint64), np.full(16, FREE, np.int32)
    rows, kept, value = np.arange(2, dtype=np.int32), np.empty(2, np.int32), np.empty(2, np.float64)
    pass_documents(hashes, offsets, np.ones(2, bool), rows, 0.5, keys, owners, np.empty(2, np.int32), kept, value)


def _language(engine: Engine) -> None:
    from curation.models.fasttext import load_classifier

    with contextlib.suppress(InputError):  # without the package of the model, no recipe can need the kernels
        engine.classify(engine.spread_windows(_text(engine), 2, 2000), load_classifier(""), 2000)


def _language_model(engine: Engine) -> None:
    from curation.models.ngrams import tiny_model

    engine.score_text(_text(engine), tiny_model())


def _packing(engine: Engine) -> None:
    from curation.kernels.packing import best_fit

    best_fit(np.array([3, 2, 1], np.int32), 4)


def _listed(engine: Engine) -> None:
    from curation.tokens.unicode_differences import SweepOutcome, characters_of, documents_with

    documents_with(pa.array(["a"], pa.large_string()), characters_of(SweepOutcome("", "", "", "88F")))


def _lists(engine: Engine) -> None:
    from curation.rules.columns import Texts
    from curation.rules.listed import STOP_WORD, WAYS, Listed, count_listed, count_stop_words

    with system_folder() as folder:
        path = folder / "list"
        path.write_text("a.org\n")
        for way in WAYS:
            count_listed(pa.chunked_array([TEXTS], pa.large_string()), Listed(file=str(path), as_=way))
        texts = Texts(engine, lambda: _text(engine), len(TEXTS))
        count_stop_words(texts, {0: Listed(file=str(path), as_=STOP_WORD)})


GROUPS: dict[str, Callable[[Engine], None]] = {  # the longest first
    "measures": _measures,
    "rewrite": _rewrite,
    "json_lines": _json_lines,
    "language": _language,
    "band_keys": _band_keys,
    "shingles": _shingles,
    "signatures": _signatures,
    "ngram_table": _ngram_table,
    "pairs": _pairs,
    "leaders": _leaders,
    "unit_spans": _unit_spans,
    "span_records": _span_records,
    "span_masks": _span_masks,
    "hashes": _hashes,
    "ngram_dedup": _ngram_dedup,
    "words": _words,
    "language_model": _language_model,
    "packing": _packing,
    "utf8": _utf8,
    "file_ranges": _file_ranges,
    "listed": _listed,
    "lists": _lists,
    "scripts": _scripts,
    "units": _units,
}
HOST_GROUPS = (
    "json_lines",
    "unit_spans",
    "span_masks",
    "utf8",
    "ngram_dedup",
    "words",
    "packing",
    "file_ranges",
    "listed",
    "lists",
    "scripts",
)  # the GPU engine uses only these


def stage_groups(stages: Sequence[Stage], engine: str) -> list[str]:
    """Return the groups of kernels that stages use on an engine ("cpu" or "gpu"), in the order of GROUPS."""
    wanted = {group for stage in stages for group in stage.kernels()}
    return [name for name in GROUPS if name in wanted and (engine == "cpu" or name in HOST_GROUPS)]


def recipe_groups(recipe: Recipe, engine: str) -> list[str]:
    """Return the groups of kernels that a recipe uses on an engine ("cpu" or "gpu"), in the order of GROUPS."""
    wanted = {*stage_groups(recipe.stages, engine), "utf8", "json_lines"}
    if recipe.output.formats:
        wanted.add("listed")
    if "packed" in recipe.output.formats:
        wanted.add("packing")
    if any(isinstance(stage, CorpusStage) for stage in recipe.stages):
        wanted.add("file_ranges")
    if any(stage.removes for stage in recipe.stages):
        wanted.add("language")  # of `lost_groups`
    return [name for name in GROUPS if name in wanted]


def missing_groups(groups: Sequence[str]) -> list[str]:
    """Return the groups that neither this installation nor an earlier process has compiled."""
    return [] if is_installed() else [name for name in groups if not _is_compiled(name)]


def _is_compiled(group: str) -> bool:
    return _marker(group).exists() or (SAVED is not None and (SAVED / MARKERS / _marker(group).name).exists())


def _marker(group: str) -> Path:
    return FOLDER / MARKERS / f"{group}.json"


def warm_up_recipe(recipe: Recipe, engine: str, workers: int, progress: Progress) -> None:
    """Compile the missing kernels of a recipe, before the run opens its session.

    A failure is logged: each kernel is then compiled when it is first called, and the run reports what is wrong.
    """
    _warm_up(recipe_groups(recipe, engine), workers, progress)


def warm_up_groups(groups: Sequence[str], workers: int) -> None:
    """Compile the missing groups of this machine, without a display. A failure is left to the first call."""
    _warm_up(groups, workers, Progress())


def warm_up_stage(stage: Stage, engine: Engine) -> None:
    """Compile the missing kernels of one stage on frames of the CPU engine. A notebook shows one line, other programs
    lines on standard error."""
    missing = missing_groups(stage_groups([stage], "cpu"))
    if missing and engine.describe()["engine"] == "cpu":
        progress = notebook_progress(ProgressLines())
        with shown_by(progress):
            _warm_up(missing, read_processors(), progress)


def _warm_up(groups: Sequence[str], workers: int, progress: Progress) -> None:
    if missing := missing_groups(groups):
        try:
            warm_up(missing, progress, count_compilers(read_limits(), workers))
        except EngineError as error:
            progress.log(f"{error}; it is compiled when it is first called")


def warm_up(groups: Sequence[str], progress: Progress, workers: int) -> None:
    """Compile the groups that are missing, in at most `workers` processes, and show how many are ready.

    EngineError if a group cannot be compiled; an interrupt ends the processes. Without the warm-up a kernel is compiled
    when it is first called.
    """
    missing = missing_groups(groups)
    if not missing:
        return
    queue: SimpleQueue[str] = SimpleQueue()
    for group in missing:
        queue.put(group)
    count = max(1, min(workers, len(missing)))

    def compiled() -> Count:
        return Count(len(missing) - len(missing_groups(missing)))

    with (
        progress.watch(LABEL, len(missing), compiled, unit="group", is_even=False),  # 0.1 to 18 s of processor time
        contextlib.ExitStack() as processes,
        ThreadPoolExecutor(count) as pool,
    ):
        compilers: list[subprocess.Popen[str]] = []
        try:
            while len(compilers) < count:
                compilers.append(processes.enter_context(_compiler()))
            unfinished = {pool.submit(_feed, compiler, queue) for compiler in compilers}
            while unfinished:
                finished, unfinished = wait(unfinished, POLL_SECONDS, return_when=FIRST_COMPLETED)
                check_interrupts()
                for future in finished:
                    future.result()
        except BaseException:  # the threads of the pool wait for answers
            for compiler in compilers:
                compiler.kill()
            raise


@contextlib.contextmanager
def _compiler() -> Iterator[subprocess.Popen[str]]:
    """A process that compiles the groups whose names it reads, and answers each with an empty line or an error."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-c", "from curation.stages.warm_up import serve; serve()"]
    with subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": path}, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()  # it has answered for every group that is complete


def _feed(compiler: subprocess.Popen[str], queue: SimpleQueue[str]) -> None:
    assert compiler.stdin and compiler.stdout
    with compiler.stdin:
        while True:
            try:
                group = queue.get_nowait()
            except Empty:
                return
            compiler.stdin.write(f"{group}\n")
            compiler.stdin.flush()
            answer = compiler.stdout.readline()
            if answer != "\n":
                raise EngineError(f"the kernels of {group} could not be compiled: {answer.strip() or 'process ended'}")


def serve() -> None:
    """Compile the groups named on standard input, one per line; for the processes of `warm_up`."""
    from curation.base.engine import load_engine

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    engine = load_engine("cpu")
    for line in sys.stdin:
        try:
            _compile(line.strip(), engine)
            answers.write("\n")
        except Exception as error:  # the parent raises it
            answers.write(f"{type(error).__name__}: {' '.join(str(error).split())}\n")


def _compile(group: str, engine: Engine) -> None:
    """Compile a group unless another process does so at the same time or has done so."""
    with _locked(group):
        if missing_groups([group]):
            GROUPS[group](engine)
            with contextlib.suppress(OSError):  # the folder cannot be written: kernels are compiled when called
                write_json(_marker(group), {})


@contextlib.contextmanager
def _locked(group: str) -> Iterator[None]:
    """Hold the lock of a group; some network file systems have no locks, and two processes may compile it there."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            _marker(group).parent.mkdir(parents=True, exist_ok=True)
            path = _marker(group).with_suffix(".lock")
            stack.enter_context(locked(path, fcntl.LOCK_EX, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        yield
