# SPDX-License-Identifier: Apache-2.0
"""The corpus phase: corpus stages choose the rows of a segment to keep and the spans to cut. This phase also saves the
index."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from shutil import copyfile
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from curation.base.arrays import load_mapped, save_array, write_array
from curation.base.engine import load_engine
from curation.base.errors import counted
from curation.base.system.files import commit, file_sha256, make_folder, make_folders, remove, sync_folder
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.sealed import read_sealed, write_sealed
from curation.base.system.steps import Count
from curation.reading.slice_table import SliceTable
from curation.record.context import RunContext
from curation.record.folder import CENTROIDS
from curation.record.identity import check_stage_files
from curation.record.jobs import load_job, store_job
from curation.record.kept_ids import ids_of
from curation.record.ledger import SliceTotals
from curation.record.masks import row_batches, write_mask
from curation.record.partitions import Numbering, Partitions
from curation.record.removed import RemovedRows
from curation.record.row_sums import SumsJob, divide_partitions, sum_rows
from curation.record.segment_state import SegmentState
from curation.record.segments import Segment
from curation.record.stored_plan import Stored
from curation.running.tasks.deletion import delete_scratch
from curation.stages import CorpusStage, Stage
from curation.stages.corpus.cutting import StoredCuts, cuts_folder
from curation.stages.corpus.saved_index import DESCRIPTION, FOLDER, index_digests
from curation.stages.corpus.written_columns import WrittenColumns, columns_folder
from curation.stages.invoke import decide, index_of, prepare_stage, run_phase_task, run_phases, saves_index
from curation.stages.outcome import Corpus, Decision, StageCount
from curation.stages.own_code import stage_for_job, stage_from_job

SAVED = -2  # stage k has the key SAVED - k for the tasks that delete its scratch files after its index is saved
ROWS = ("row", "partner", "value")  # arrays of drops, in the order of `RemovedRows`


class StoredDecision(NamedTuple):
    """The decision of a corpus stage, read from its file."""

    removed: list[RemovedRows]
    files: list[Path]  # the files with the row numbers, one for each entry of `removed`
    seconds: float
    details: dict[str, Any]
    copies: Path | None


def save_decision(path: Path, decision: Decision, seconds: float) -> None:
    """Write a decision and its time in seconds: first one file per array of rows, then `path` (JSON) with the rest."""
    facts = {
        "seconds": seconds,
        "details": dict(decision.details),
        "drops": [{"reason": drops.reason, "index": drops.index_folder} for drops in decision.drops],
    }
    for number, drops in enumerate(decision.drops):
        for name in ROWS:
            with commit(_rows_path(path, name, number)) as temporary:
                save_array(temporary, np.asarray(getattr(drops, name)))
    write_sealed(path, facts)


def copies_path(path: Path) -> Path:
    """Return the path of the numbers of copies that a decision asks for: uint16, one per row of the segment."""
    return path.with_suffix(".copies.npy")


def _save_copies(path: Path, corpus: Corpus, copies: np.ndarray) -> None:
    """Write the number of copies of each row of the segment; 0 for rows that are not in the corpus."""
    total = int(corpus.storage.starts[-1])
    with commit(copies_path(path)) as temporary, open(temporary, "wb") as file:
        header = np.lib.format.header_data_from_array_1_0(np.zeros(0, np.uint16)) | {"shape": (total,)}
        np.lib.format.write_array_header_1_0(file, header)
        for low, high in row_batches(0, total):
            first, last = np.searchsorted(corpus.rows, np.array([low, high], corpus.rows.dtype)).tolist()
            batch = np.zeros(high - low, np.uint16)
            batch[corpus.rows[first:last].astype(np.int64) - low] = copies[first:last]
            write_array(file, batch)


def _rows_path(path: Path, name: str, number: int) -> Path:
    return path.with_suffix(f".{name}-{number}.npy")


def load_decision(path: Path, partitions: Partitions, stage: int) -> StoredDecision:
    """Return the decision of the stage number `stage` about the rows of `partitions`. Its arrays are memory-mapped."""
    facts, removed = read_sealed(path), []
    for number, drops in enumerate(facts["drops"]):
        row, kept_row, value = (load_mapped(_rows_path(path, name, number)) for name in ROWS)
        removed.append(RemovedRows(partitions, stage, drops["reason"], row, kept_row, value, drops["index"]))
    files, copies = [_rows_path(path, "row", number) for number in range(len(removed))], copies_path(path)
    return StoredDecision(removed, files, facts["seconds"], facts["details"], copies if copies.exists() else None)


def load_removed(path: Path, stage: int, partitions: Partitions) -> list[RemovedRows]:
    """Return only the removed rows of the decision in a file."""
    return load_decision(path, partitions, stage).removed


def save_index(
    context: RunContext, compared: Mapping[int, Partitions], removed: Sequence[RemovedRows], numbering: Numbering
) -> dict[str, str]:
    """Write `index/`, and return path -> SHA-256. For each `NewIndex.folder`, the last stage with this folder saves an
    index.

    An index has the documents that are kept after the last stage that saves an index. With `NewIndex.has_removed`, it
    has the documents that reached its own stage. An existing index is kept. `compared` has the rows of each corpus
    stage, by its number. `removed` has the removed rows of all stages.
    """
    stages, index_folder = context.plan.recipe.stages, context.folder / FOLDER
    numbers = {index_of(cast(CorpusStage, stage)).folder: k for k, stage in enumerate(stages) if saves_index(stage)}
    if not index_folder.exists():
        work = context.work / FOLDER
        for below, number in sorted(numbers.items()):  # "" first: it holds the other folders
            if (work / below / DESCRIPTION).exists():
                continue
            partitions = compared[number]
            stage = cast(CorpusStage, stages[number])
            index = index_of(stage)
            last = number - 1 if index.has_removed else max(numbers.values())
            lost = [rows.row for rows in removed if rows.partitions is partitions and rows.stage <= last]
            mask = context.work / f"{FOLDER}-{number}.npy"
            write_mask(mask, len(partitions), lost)
            corpus = partitions.corpus(number, mask, workers=context.workers)
            corpus.scratch = context.work / f"saving-{number}"
            _bring_centroids(context, number, stage, corpus)
            run_phases(stage, corpus, partial(_run_phase, context, number, stage, corpus, mask, saving=True), True)
            ids = partial(ids_of, partitions, numbering=numbering)
            index.write(corpus, work / below, ids, stages[:number])
            delete_scratch(context, SAVED - number, corpus.scratch)
        os.replace(work, index_folder)
        sync_folder(context.folder)
    return index_digests(index_folder)


def segment_folder(context: RunContext, number: int) -> Path:
    """Return the folder of a segment's intermediate files."""
    return context.work / f"segment-{number}"


def prepare_stages(context: RunContext, segment: Segment) -> dict[int, Stage]:
    """Return the stages of a segment, prepared for its tasks, by stage number. Each stage with a method `prepare` gets
    a folder for its files."""
    numbers = (*segment.row_stages, *segment.corpus_stages)
    _check_files(context, numbers)
    stages = {number: context.plan.recipe.stages[number] for number in numbers}
    prepared = [number for number, stage in stages.items() if type(stage).prepare is not Stage.prepare]
    folders = [context.work / f"prepared-{number}" for number in prepared]
    make_folders(folders)
    return stages | {
        number: prepare_stage(stages[number], folder) for number, folder in zip(prepared, folders, strict=True)
    }


def _check_files(context: RunContext, numbers: Sequence[int]) -> None:
    recipe = context.plan.recipe
    stage_names = recipe.stage_names
    names = [stage_names[number] for number in numbers]
    check_stage_files(names, [recipe.stages[number] for number in numbers], context.plan.stage_files)


def run_corpus_stages(
    context: RunContext, segment: Segment, prepared: Mapping[int, Stage], totals: SliceTotals,
    counts: list[StageCount],
) -> SegmentState:  # fmt: skip
    """Run the corpus stages of a segment, and write the mask of the kept rows.

    `totals` are the counts of the segment's slices. `counts` has one entry per stage of the recipe; the function fills
    those of the corpus stages. A stage whose decision is stored does not run again.
    """
    partitions = Partitions(segment_folder(context, segment.number), totals.documents)
    partitions.inputs = input_spans(context.plan.slices, totals.slice_documents)
    mask, cuts, columns, copies = context.work / f"barrier-{segment.number}.npy", None, None, None
    documents, sizes = totals.documents.copy(), totals.bytes.copy()
    removed: list[RemovedRows] = []
    decisions: list[StoredDecision] = []
    stages = {number: cast(CorpusStage, prepared[number]) for number in segment.corpus_stages}
    for number, stage in stages.items():
        decisions.append(_decide(context, number, stage, partitions, removed))
        removed += decisions[-1].removed
        copies = decisions[-1].copies
        if stage.cuts_text:  # the last one of its segment
            cuts = cuts_folder(partitions.scratch(number))
        if names := stage.writes():  # such a stage is the last one of its segment, too
            columns = WrittenColumns(columns_folder(partitions.scratch(number)), (*names,))
    if not mask.exists():
        write_mask(mask, len(partitions), [rows.row for rows in removed])
    is_last = segment.last + len(segment.corpus_stages) == len(context.plan.recipe.stages)
    job = SumsJob(
        partitions=partitions,
        removed=[file for decision in decisions for file in decision.files],
        mask=mask,
        cuts=cuts,
        written=(copies or mask) if is_last else None,
        bounds=divide_partitions(partitions.starts),
        folder=context.work / f"sums-{segment.number}",
    )
    sums = sum_rows(context, segment.number, job)
    lost = iter(sums.lost)
    for (number, stage), decision in zip(stages.items(), decisions, strict=True):
        counts[number].documents_in, counts[number].bytes_in = int(documents.sum()), int(sizes.sum())
        for lost_documents, lost_bytes in islice(lost, len(decision.removed)):
            documents -= lost_documents
            sizes -= lost_bytes
        if stage.cuts_text:
            edited, cut_bytes = next(lost)
            counts[number].edited = int(edited.sum())
            sizes -= cut_bytes
        counts[number].documents_out, counts[number].bytes_out = int(documents.sum()), int(sizes.sum())
        _count(counts[number], decision)
    cut_from = StoredCuts(cuts, sums.lost[-1, 1]) if cuts else None
    return SegmentState(partitions, mask, documents, sizes, cut_from, removed, sums, columns, copies)


def _count(count: StageCount, decision: StoredDecision) -> None:
    """Fill the details, seconds and reasons of a stage's count from its decision."""
    count.details, count.seconds = decision.details, decision.seconds
    count.reasons = {rows.reason: len(rows.row) for rows in decision.removed if len(rows.row)}


def decision_path(context: RunContext, stage: int) -> Path:
    """Return the file of a stage's decision."""
    return context.work / f"decision-{stage}.json"


def _decide(
    context: RunContext, number: int, stage: CorpusStage, partitions: Partitions, before: Sequence[RemovedRows]
) -> StoredDecision:
    """Return the decision of a corpus stage about the rows that earlier stages kept; `before` has the removed rows. If
    the file of the decision exists, the stage does not run again."""
    path = decision_path(context, number)
    if not path.exists():
        check_interrupts()
        check_stage_files([context.plan.recipe.stage_names[number]], [stage], context.plan.stage_files)
        compared, removed = len(partitions) - sum(len(rows.row) for rows in before), [0]
        name = context.plan.recipe.stage_names[number]
        context.progress.log(f"{name}: {counted(compared, 'document')} to compare")

        def count() -> Count:
            return Count(0, compared, kept=compared - sum(removed))

        mask = context.work / f"reached-{number}.npy"
        with context.progress.watch(name, 0, count, unit=""):
            started = time.perf_counter()
            write_mask(mask, len(partitions), [rows.row for rows in before])
            corpus = partitions.corpus(number, mask, partitions.inputs, context.workers)
            decision = decide(stage, context.engine, corpus, partial(_run_phase, context, number, stage, corpus, mask))
            removed += [len(drops.row) for drops in decision.drops]
            if decision.copies is not None:
                _save_copies(path, corpus, decision.copies)
            _keep_centroids(context, number, stage, corpus)
            save_decision(path, decision, time.perf_counter() - started)
            del corpus, decision
        remove(mask)
    # Only after the decision is stored: after a kill during the deletion, done-records may lack their files
    delete_scratch(context, number, partitions.scratch(number))
    return load_decision(path, partitions, number)


def _keep_centroids(context: RunContext, number: int, stage: CorpusStage, corpus: Corpus) -> None:
    """Copy the centroids of a stage to the outputs."""
    if centroids := stage.outputs().centroids:
        make_folder(context.folder / CENTROIDS)
        with commit(context.folder / CENTROIDS / f"stage-{number + 1}.npz") as path:
            copyfile(centroids(corpus), path)


def _bring_centroids(context: RunContext, number: int, stage: CorpusStage, corpus: Corpus) -> None:
    """Copy the centroids of a stage from the outputs, if it has any, to the path where the tasks that save its index
    read them."""
    if centroids := stage.outputs().centroids:
        with commit(centroids(corpus)) as path:
            copyfile(context.folder / CENTROIDS / f"stage-{number + 1}.npz", path)


def centroid_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of centroids of a run, by its path in the run folder."""
    return {f"{CENTROIDS}/{path.name}": file_sha256(path) for path in sorted((folder / CENTROIDS).glob("*.npz"))}


class PhaseJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job of the phases of one corpus stage."""

    stage: dict[str, Any]  # the prepared stage as JSON
    number: int  # of the stage in the recipe
    engine: str
    partitions: Partitions
    mask: Path  # .npy (bool) of the rows that reach the stage
    sources: list[tuple[str, int, int]]  # (name, first row, last row + 1) of each input
    scratch: Path
    saving: bool  # whether these are the phases that save the index


def _run_phase(
    context: RunContext, number: int, stage: CorpusStage, corpus: Corpus, mask: Path, place: int, tasks: Sequence[int],
    saving: bool = False,
) -> None:  # fmt: skip
    """Run tasks of the phase number `place` of a stage on the workers of the session."""
    check_interrupts()
    job = PhaseJob(
        stage=stage_for_job(stage),
        number=number,
        engine=context.engine_name,
        partitions=cast(Partitions, corpus.storage),
        mask=mask,
        sources=list(corpus.sources),
        scratch=corpus.scratch,
        saving=saving,
    )
    threads = max(context.workers // len(tasks), 1)
    stored = store_job(job, corpus.scratch)
    context.session.run(partial(run_stored_phase, stored, place, threads), tasks)


def run_stored_phase(stored: Stored, place: int, threads: int, task: int) -> None:
    """Run the task number `task` of a stage's phase number `place`, with `threads` threads. A job's file has the
    stage."""
    check_interrupts()
    job = load_job(PhaseJob, stored)
    corpus = job.partitions.corpus(job.number, job.mask, job.sources, threads)
    corpus.scratch = job.scratch
    stage = cast(CorpusStage, stage_from_job(job.stage))
    run_phase_task(stage, load_engine(job.engine), corpus, place, task, job.saving)


def input_spans(slices: SliceTable, documents: np.ndarray) -> list[tuple[str, int, int]]:
    """Return (name, first row, last row + 1) of each input; the slices of an input are adjacent. `documents` has the
    number of rows of each slice (int64)."""
    ends = np.cumsum(documents).tolist()
    names = (name for task in range(slices.tasks) for name in slices.sources_of_task(task))
    spans: dict[str, tuple[int, int]] = {}
    for name, low, high in zip(names, [0, *ends], ends, strict=False):
        spans[name] = (spans.get(name, (low, 0))[0], high)
    return [(name, low, high) for name, (low, high) in spans.items()]
