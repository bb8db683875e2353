# SPDX-License-Identifier: Apache-2.0
"""The arguments of a run: their checks, and the number of workers that fits the memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from curation.base.contract import Engine
from curation.base.engine import EngineChoice, load_engine
from curation.base.errors import ArgumentError, EngineError, OutputError, installation, near_or_nothing
from curation.base.speeds import RunWork, text_bytes
from curation.base.system.addresses import address_fault
from curation.base.system.memory import (
    DOCUMENT_FACTOR,
    Resources,
    choose,
    choose_for_device,
    read_limits,
    read_processors,
)
from curation.base.system.progress import Progress
from curation.reading.formats import format_of
from curation.reading.source_files import ReadOptions, SourceFile
from curation.recipes.recipe import Recipe
from curation.running.planning.plan import Preflight
from curation.tokens.tokenization import Tokenizer

LOCAL = ("auto", "threads", "processes")
MAX_SLICE_BYTES = 32 << 20


class Call(NamedTuple):
    """The arguments of a run. `started` is the time of `perf_counter` at its start; `reuse` is checked later."""

    recipe: Recipe
    folder: Path
    checked: Preflight
    choice: EngineChoice
    workers: int
    scheduler: str
    slice_bytes: int
    force: bool
    force_disk: bool
    progress: Progress
    started: float
    reuse: str | Path = ""

    @property
    def engine(self) -> Engine:
        """The engine of the run, loaded on first use."""
        return load_engine(self.choice.name)


def check_session(workers: int, scheduler: str, slice_bytes: int) -> None:
    """Raise EngineError for settings of a session that cannot be used."""
    for name, number in (("workers", workers), ("slice_bytes", slice_bytes)):
        if not isinstance(number, int):
            raise ArgumentError(f"{name} must be a whole number, 0 (chosen for this machine) or more, not {number!r}")
        if not 0 <= number <= sys.maxsize:
            raise EngineError(f"{name} must be 0 (chosen for this machine) or more, and fit 64 bits, not {number}")
    if scheduler in LOCAL:
        return
    if ":" not in scheduler:
        raise EngineError(
            f"scheduler must be {', '.join(LOCAL)} or an address such as tcp://HOST:PORT, not {scheduler!r}"
            f"{near_or_nothing(scheduler, LOCAL)}"
        )
    if fault := address_fault(scheduler):
        raise EngineError(f"scheduler {scheduler}: {fault}")
    if find_spec("distributed") is None:
        raise EngineError(f"scheduler {scheduler} needs Dask's distributed: {installation('distributed')}")


def work_of(recipe: Recipe, files: Sequence[SourceFile], tokenizer: Tokenizer | None, workers: int) -> RunWork:
    """Return the work by which "auto" chooses the engine: the estimated size of the text, and the steps of the run."""
    documents = ["encode" if recipe.output.parquet == "gpu" else "write"] if recipe.output.documents else []
    steps = [stage.kind for stage in recipe.stages] + documents
    if all(format_of(file).is_plain_lines(file) and not file.compression for file in files):
        steps.append("parse")
    tokens = [] if tokenizer is None else ["tokens"]
    on_host = tokens if tokenizer and tokenizer.device_note else []
    size = sum(text_bytes(file.bytes, format_of(file).expansion[0], bool(file.compression)) for file in files)
    return RunWork(size, [*steps, *(tokens if not on_host else [])], workers or read_processors(), on_host)


def check_alone(scheduler: str, force: bool) -> None:
    """Raise EngineError for settings that an array task cannot have."""
    if scheduler not in ("auto", "threads"):
        raise EngineError(f"an array task runs its tasks on threads, not on scheduler {scheduler!r}. Leave it out")
    if force:
        raise EngineError("an array task cannot have force: others may already write to the folder. Give a new output")


def check_shared(folder: Path) -> None:
    """Raise OutputError if the parent of an array's output folder is missing. Otherwise a machine without the shared
    file system would create the folder on its own disk, and do the whole run alone."""
    if not folder.parent.is_dir():
        raise OutputError(
            f"{folder.parent} does not exist on {os.uname().nodename}. The processes of an array share the output "
            f"folder {folder}: mount its file system on every machine, or create {folder.parent} for one machine"
        )


def find_resources(engine: Engine, name: str, workers: int, scheduler: str, files: int) -> Resources:
    """Choose workers, batches and slices: all processors, or fewer if the memory of this machine is short.

    The memory of a cluster's machines is not checked here.
    """
    count = workers or read_processors()
    batch = engine.batch_bytes(count)
    if name != "cpu":
        limits = read_limits() if scheduler in LOCAL else []
        return choose_for_device(limits, count, batch, MAX_SLICE_BYTES, fixed_workers=workers > 0)
    if scheduler not in LOCAL:
        return Resources(count, batch, MAX_SLICE_BYTES)
    return choose(
        read_limits(), count, batch, MAX_SLICE_BYTES,
        files=files, fixed_workers=workers > 0, scheduler=scheduler,
    )  # fmt: skip


def document_bytes(entries: Iterable[ReadOptions]) -> int:
    """Return how many bytes of memory one long document may take in addition to the need of a run. It is 0 unless an
    input raises `max_document_bytes`. The number of workers is not lowered for it, since few documents are so long."""
    largest = max((entry.max_document_bytes for entry in entries), default=0)
    return DOCUMENT_FACTOR * largest if largest > ReadOptions().max_document_bytes else 0
