# SPDX-License-Identifier: Apache-2.0
"""Corpus stages: which rows of a segment are left, which spans are cut, and the saved index of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import orjson

from curation.arrays import positions_of, save_array
from curation.contract import Engine, Session
from curation.files import commit, make_folder, remove
from curation.interrupts import check as check_interrupts
from curation.reading.source_files import Slice
from curation.recipe import Recipe, saves_index
from curation.running.intermediate import Numbering, Parts
from curation.running.ledger import SliceRecord
from curation.running.map_phase import CUT, Segment, cuts_in
from curation.running.plan import (
    Plan,
    Stored,
    check_stage_files,
)
from curation.running.progress import Progress
from curation.running.removed import RemovedRows, ids_of
from curation.running.run_folder import WORK
from curation.stages import CorpusStage, Stage
from curation.stages.base import decided, prepared
from curation.stages.outcome import Cuts, Decision, StageCount
from curation.stages.saved_index import FOLDER, index_digests


class Decided(NamedTuple):
    """What a corpus stage decided, as its file has it."""

    removed: list[RemovedRows]
    cuts: Cuts | None
    seconds: float
    details: dict[str, Any]

    @property
    def rows(self) -> np.ndarray:
        """The rows that were removed."""
        rows = [found.row for found in self.removed]
        return rows[0] if len(rows) == 1 else np.concatenate([np.zeros(0, np.int64), *rows])


def save_decision(path: Path, decision: Decision, seconds: float) -> None:
    facts = {
        "seconds": seconds,
        "details": dict(decision.details),
        "drops": [{"reason": found.reason, "index": found.index_folder} for found in decision.drops],
    }
    arrays: dict[str, Any] = {
        f"{name}_{number}": np.asarray(getattr(found, name))
        for number, found in enumerate(decision.drops)
        for name in ("row", "value", "partner")
    }
    if decision.cuts:
        arrays |= {f"{CUT}{name}": values for name, values in decision.cuts._asdict().items()}
    with commit(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, facts=np.array(orjson.dumps(facts).decode()), **arrays)


def load_decision(path: Path, parts: Parts, stage: int) -> Decided:
    with np.load(path) as stored:
        facts = orjson.loads(str(stored["facts"]))
        removed = [
            RemovedRows(
                parts, stage, found["reason"], stored[f"row_{number}"], stored[f"partner_{number}"],
                stored[f"value_{number}"], found["index"],
            )
            for number, found in enumerate(facts["drops"])
        ]  # fmt: skip
        return Decided(removed, cuts_in(stored), facts["seconds"], facts["details"])


def save_index(
    folder: Path,
    recipe: Recipe,
    engine: Engine,
    removed: Sequence[RemovedRows],
    numbering: Numbering,
    workers: int,
) -> dict[str, str]:
    """Writes `index/` of what the last stage that has one kept, unless it is there; gives path -> sha256."""
    number = max(k for k, stage in enumerate(recipe.stages) if saves_index(stage))
    parts = next(found.parts for found in removed if found.stage == number)
    alive = np.ones(len(parts), bool)
    for found in removed:
        if found.parts is parts and found.stage <= number:
            alive[found.row] = False
    stage = cast(CorpusStage, recipe.stages[number])
    if not (folder / FOLDER).exists():
        corpus = parts.corpus(number, np.flatnonzero(alive), workers=workers)
        work = folder / "_work" / FOLDER
        stage.write_index(engine, corpus, folder / FOLDER, work, lambda rows: ids_of(parts, rows, numbering))
    return index_digests(folder / FOLDER)


class RunContext(NamedTuple):
    """Everything the phases share."""

    plan: Plan
    stored_plan: Stored
    folder: Path
    engine: Engine
    engine_name: str
    session: Session
    progress: Progress
    workers: int
    batch_bytes: int

    @property
    def work(self) -> Path:
        return self.folder / WORK


class SegmentState(NamedTuple):
    """Where the chain stands after a segment: its parts, the rows that its barrier left, and what it removed."""

    parts: Parts
    alive: np.ndarray
    mask: Path
    cuts: Path | None
    removed: list[RemovedRows]


def segment_folder(run_: RunContext, number: int) -> Path:
    return run_.work / f"segment-{number}"


def prepare_stages(run_: RunContext, segment: Segment) -> dict[int, Stage]:
    """The stages of a segment as its tasks use them, by number; each has a folder of its own."""
    numbers = (*segment.row_stages, *segment.corpus_stages)
    _check_files(run_, numbers)
    found = {}
    for number in numbers:
        folder = run_.work / f"prepared-{number}"
        make_folder(folder)
        found[number] = prepared(run_.plan.recipe.stages[number], folder)
    return found


def _check_files(run_: RunContext, numbers: Sequence[int]) -> None:
    recipe = run_.plan.recipe
    names = [recipe.stage_names[number] for number in numbers]
    check_stage_files(names, [recipe.stages[number] for number in numbers], run_.plan.stage_files)


def run_corpus_stages(
    run_: RunContext, segment: Segment, prepared: Mapping[int, Stage], records: list[SliceRecord],
    counts: list[StageCount],
) -> SegmentState:  # fmt: skip
    """The corpus stages of a segment: which of all its rows are left, and what went because of what."""
    parts = Parts(segment_folder(run_, segment.number), [record.documents for record in records])
    mask, cuts = run_.work / f"barrier-{segment.number}.npy", None
    alive = np.ones(len(parts), bool)
    removed = []
    for number in segment.corpus_stages:
        found = _decide(run_, number, cast(CorpusStage, prepared[number]), parts, alive)
        _count(counts[number], found, alive, parts.byte_lengths())  # read anew: 8 bytes per document less meanwhile
        alive[found.rows] = False
        removed += found.removed
        if found.cuts:  # the last stage of its segment
            cuts = _decision_path(run_, number)
    if not mask.exists():
        with commit(mask) as path:
            save_array(path, alive)
    return SegmentState(parts, alive, mask, cuts, removed)


def _count(count: StageCount, found: Decided, alive: np.ndarray, sizes: np.ndarray) -> None:
    """What a decision does to the rows that are `alive`, of these `sizes` in bytes."""
    count.details, count.seconds = found.details, found.seconds
    count.documents_in, count.bytes_in = int(np.count_nonzero(alive)), int(sizes.sum(where=alive))
    count.documents_out = count.documents_in - len(found.rows)
    count.bytes_out = count.bytes_in - int(sizes[found.rows].sum())
    count.reasons = {each.reason: len(each.row) for each in found.removed if len(each.row)}
    if found.cuts:
        count.edited = len(np.unique(found.cuts.row))
        count.bytes_out -= int((found.cuts.stop - found.cuts.start).sum())


def _decision_path(run_: RunContext, stage: int) -> Path:
    return run_.work / f"decision-{stage}.npz"


def _decide(run_: RunContext, number: int, stage: CorpusStage, parts: Parts, alive: np.ndarray) -> Decided:
    """The decision of a corpus stage about the rows that are `alive`; its file is its done-record."""
    path = _decision_path(run_, number)
    if not path.exists():
        check_interrupts()
        _check_files(run_, [number])
        started = time.perf_counter()
        run_.progress.say(f"{run_.plan.recipe.stage_names[number]}: {int(alive.sum()):,} documents")
        sources = input_spans(run_.plan.slices, parts)
        corpus = parts.corpus(number, positions_of(alive), sources, run_.workers)
        found = decided(stage, run_.engine, corpus)
        save_decision(path, found, time.perf_counter() - started)
        del corpus, found  # up to 20 bytes per document, while the next stage decides
    remove(parts.scratch(number))  # not before the decision is stored: a kill meanwhile leaves records without files
    return load_decision(path, parts, number)


def input_spans(slices: Sequence[Slice], parts: Parts) -> list[tuple[str, int, int]]:
    """(name, first row, row after the last) of each input; its slices stand together."""
    spans: dict[str, tuple[int, int]] = {}
    for piece in slices:
        first = spans.get(piece.source, (int(parts.starts[piece.index]), 0))[0]
        spans[piece.source] = (first, int(parts.starts[piece.index + 1]))
    return [(name, low, high) for name, (low, high) in spans.items()]
