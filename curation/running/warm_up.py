# SPDX-License-Identifier: Apache-2.0
"""Compile kernels before a run needs them: apply each stage of its recipe to four documents, in several processes.

Each process compiles the kernels of one part: a stage, or what reads, marks or packs documents. A process waits where
another compiles the kernel that it needs, so there are two processes per processor. The default recipe takes 70 CPU
seconds. A process needs up to 340 MB, of which it shares 100 MB with the others.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.contract import ID, TEXT
from curation.base.engine import load_engine
from curation.base.errors import EngineError, InputError, RecipeError
from curation.base.system.files import write_json
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.memory import count_compilers, read_limits
from curation.base.system.progress import Progress
from curation.base.system.steps import Count
from curation.base.system.system_folders import system_folder
from curation.base.system.terminal import print_line
from curation.kernels.cache import FOLDER, LABEL, is_installed, not_compiling
from curation.reading import read_documents
from curation.reading.source_files import FileRange, Slice, SourceFile
from curation.recipes.recipe import Recipe, load_recipe, shipped_recipes
from curation.stages import STAGES, Decontaminate, Filter, FuzzyDedup, Language, Perplexity, Stage
from curation.stages.base import added_columns

POLL_SECONDS = 0.1  # between two looks for a signal
MAX_BYTES = 16 << 20  # of a stage: with larger models or lists, its kernels are compiled when they are called
LINE = "Line {} of <b>HTML</b>, e\u0301 and 中文字, is not the last one; see https://a.org.\nIs it? Yes!\n\n"
LONG = "".join(map(LINE.format, range(20)))
TEXTS = (LONG, f"{LONG}One more.", None, "")


class Part(NamedTuple):
    """A part of a run: a stage, or the name of one of OTHERS.

    types  Arrow types of the columns of earlier stages
    """

    work: Stage | str
    types: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.work if isinstance(self.work, str) else self.work.kind

    def run(self) -> None:
        """Run the part on a few documents."""
        if isinstance(self.work, str):
            OTHERS[self.work]()
            return
        from curation.frames.frames import SOURCE, apply_unshown

        texts = pa.array(TEXTS, pa.large_string())
        table = {"row": pa.array(range(len(TEXTS))), ID: pa.array("abcd", pa.large_string()), TEXT: texts}
        for name in (*self.work.reads(), SOURCE):
            table[name] = pa.array(["0"] * len(TEXTS)).cast(self.types.get(name, "large_string"))
        apply_unshown(load_engine("cpu").from_arrow(pa.table(table)), self.work)


def _read() -> None:
    with system_folder() as folder:
        path = folder / "texts.jsonl"
        path.write_bytes(b'{"text": "one", "id": "a"}\n{"text": 3}\n\n')
        stat = path.stat()
        file = SourceFile(
            path=str(path), source="texts", format="jsonl", bytes=stat.st_size, modified_ns=stat.st_mtime_ns
        )
        for _ in read_documents(Slice(index=0, ranges=[FileRange(file=file, start=0, stop=stat.st_size)]), 1 << 20):
            pass


def _mark() -> None:
    from curation.tokens.unicode_differences import SweepOutcome, characters_of, documents_with

    documents_with(pa.array(["a"], pa.large_string()), characters_of(SweepOutcome("", "", "", "88F")))


def _pack() -> None:
    from curation.kernels.packing import best_fit

    best_fit(np.array([3, 2, 1], np.int32), 4)


def _files() -> None:
    from curation.models.ngrams import TINY
    from curation.rules.grammar import Rule
    from curation.rules.listed import WAYS, Listed

    with system_folder() as folder:
        model, listed, evaluation = (str(folder / name) for name in ("tiny.arpa", "list", "evaluation.jsonl"))
        Path(model).write_bytes(TINY)
        Path(listed).write_text("a.org\n")
        Path(evaluation).write_bytes(msgspec.json.encode({"text": LONG}))
        rules: list[str | Rule] = [Rule(listed=Listed(file=listed, as_=way), max_count=9) for way in WAYS]
        for stage in (
            Perplexity(model=model), Filter(rules=rules), Decontaminate(evaluation_files=(evaluation,)),
            FuzzyDedup(verify="signature"),
        ):  # fmt: skip
            Part(stage, {}).run()


OTHERS = {"read": _read, "mark": _mark, "pack": _pack, "files": _files}


def parts_of(recipe: Recipe, engine: str) -> list[Part]:
    """Return the parts of a run on an engine ("cpu" or "gpu"). A GPU engine compiles kernels of stages when called."""
    stages = [stage for stage in recipe.stages if type(stage) in STAGES.values() and _is_light(stage)]
    if any(stage.removes for stage in recipe.stages):
        stages.append(Language(normalize=False))  # of `lost_groups`
    formats = recipe.output.formats
    others = ["read", *(["mark"] if formats else []), *(["pack"] if "packed" in formats else [])]
    return [Part(work, added_columns(recipe.stages)) for work in (*(stages if engine == "cpu" else ()), *others)]


def all_parts() -> list[Part]:
    """Return the parts of all shipped recipes, and of the stages that need no settings."""
    parts = [part for name in shipped_recipes() for part in parts_of(load_recipe(name), "cpu")]
    for kind in STAGES.values():
        with suppress(TypeError, ValueError, RecipeError):  # it needs settings
            parts.append(Part(kind(), {}))
    return [*parts, *(Part(name, {}) for name in OTHERS)]


def _is_light(stage: Stage) -> bool:
    with suppress(InputError):  # a file is missing
        return sum(os.path.getsize(path) for path in stage.files() if os.path.exists(path)) <= MAX_BYTES
    return False


def _missing(parts: Sequence[Part]) -> list[Part]:
    """The parts with a kernel that is not compiled. Another part that fails is left to the run."""
    found = []
    for part in parts:
        with not_compiling() as missing, suppress(Exception):
            part.run()
        if missing:
            found.append(part)
    return found


def warm_up(parts: Sequence[Part], workers: int, progress: Progress) -> list[Part]:
    """Compile the missing kernels of parts, show how many parts are ready, and return those that missed some.

    A failure is logged: each kernel is then compiled when it is first called. An interrupt ends the processes.
    """
    marker = FOLDER / "parts" / hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
    if is_installed() or marker.exists():
        return []
    try:
        if missing := _missing(parts):
            _compile(missing, count_compilers(read_limits(), 2 * workers), progress)
        with suppress(OSError):  # the folder cannot be written
            write_json(marker, {})
    except EngineError as error:
        progress.log(f"{error}; it is compiled when it is first called")
    return missing


def _compile(parts: Sequence[Part], workers: int, progress: Progress) -> None:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-c", "from curation.running.warm_up import serve; serve()"]
    done = 0
    with (
        progress.watch(LABEL, len(parts), lambda: Count(done), unit="part", is_even=False),
        subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": path}, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        assert process.stdin and process.stdout
        try:
            with suppress(BrokenPipeError):  # it has ended
                pickle.dump((parts, workers), process.stdin)
            while done < len(parts):
                check_interrupts()
                if select.select([process.stdout], [], [], POLL_SECONDS)[0]:
                    if (answer := process.stdout.readline()) != b"\n":
                        cause = answer.decode().strip() or "the process ended"
                        raise EngineError(f"a kernel could not be compiled: {cause}")
                    done += 1
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def serve() -> None:
    """Run the parts that standard input names, each in a process, and answer each with an empty line or an error."""
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    from curation.frames import frames as frames  # once for all processes

    parts, workers = pickle.load(sys.stdin.buffer)
    load_engine("cpu")
    with ProcessPoolExecutor(min(workers, len(parts)), get_context("fork")) as pool:
        for future in as_completed([pool.submit(part.run) for part in parts]):
            error = future.exception()
            print_line(f"{type(error).__name__}: {' '.join(str(error).split())}" if error else "")
