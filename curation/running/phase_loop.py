# SPDX-License-Identifier: Apache-2.0
"""The loop over the phases of a run: segments, outputs and report. This module reads no text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from curation.base.errors import IntegrityError
from curation.base.system.files import make_folder
from curation.reading.inputs import entries_by_name
from curation.record.context import RunContext
from curation.record.documents import document_schema
from curation.record.kept_ids import ids_of
from curation.record.large_shares import warn_of_cuts
from curation.record.ledger import SliceRecord, SliceTotals, check_ledger
from curation.record.locations import LocationTable
from curation.record.measured_rows import ReachedRows
from curation.record.partitions import Numbering, Partitions
from curation.record.phase import run_tasks
from curation.record.records import Decoder
from curation.record.removed import RemovedFile, RemovedRows, plan_kept_ids, plan_removed
from curation.record.segment_state import SegmentState
from curation.record.segments import Segment, cut_segments
from curation.record.stored_plan import urls_of
from curation.record.totals import add_records
from curation.results.report.lost_by_input import LostByInput, largest
from curation.results.report.measured_sample import sample_measures
from curation.results.report.report import build, check_minima
from curation.results.report.samples import Sampler
from curation.running.phases.corpus_phase import (
    centroid_digests,
    decision_path,
    prepare_stages,
    run_corpus_stages,
    save_index,
    segment_folder,
)
from curation.running.phases.document_shards import plan_shards
from curation.running.phases.finish_phase import (
    FinishJob,
    Lookup,
    RemovedJob,
    Step,
    cleaned_steps,
    pair_steps,
    raw_steps,
    rejected_step,
    removed_sizes,
    removed_steps,
    run_lookups,
    run_steps,
    scores_steps,
    sized_tasks,
)
from curation.running.phases.map_phase import SliceJob, run_slice, slice_counts
from curation.running.phases.write_phase import (
    OutputJob,
    OutputPart,
    cut_output_parts,
    divide_parts,
    part_counts,
    write_empty_documents,
    write_output_parts,
)
from curation.stages import RowStage, Stage
from curation.stages.base import CorpusStage
from curation.stages.measured_rules import measured_rules
from curation.stages.outcome import StageCount
from curation.stages.own_code import stage_for_job
from curation.stages.rows.language import UNLABELLED
from curation.tokens.forms.stored import written_manifest
from curation.tokens.megatron import PairInfo, TrainingPair
from curation.tokens.samples import write_sample
from curation.tokens.token_files import Joined, Written, check_tokens, plan_tokens, remove_other_pairs

SLICE_RECORDS = Decoder(lambda content: msgspec.convert(content, SliceRecord), slice_counts, removes=True)
PART_RECORDS: Decoder[list[dict[str, Any]]] = Decoder(lambda content: content["parts"], part_counts, removes=False)


def run_phases(context: RunContext) -> dict[str, Any]:
    """Run all phases after the plan, and return the content of the report."""
    recipe = context.plan.recipe
    counts = [
        StageCount(
            kind=stage.kind,
            name=name,
            removes=stage.removes,
            compares=isinstance(stage, CorpusStage),
            finds_duplicates=isinstance(stage, CorpusStage) and stage.finds_duplicates,
            unit=stage.shown_rules().unit if isinstance(stage, RowStage) else "",
        )
        for stage, name in zip(recipe.stages, recipe.stage_names, strict=True)
    ]
    segments = cut_segments(recipe.stages)
    state: SegmentState | None = None
    removed: list[RemovedRows] = []
    decisions: list[tuple[Path, int, Partitions]] = []
    lost = LostByInput()
    first: SliceTotals | None = None
    docs = np.zeros(0, np.int64)  # of the first row of each slice
    measured = np.zeros(context.plan.slices.tasks, np.int64)  # rows in measures/ from each partition
    filters: list[ReachedRows] = []
    for segment in segments:
        prepared = prepare_stages(context, segment)
        _run_segment(context, segment, prepared, state, docs)
        row_counts = [counts[k] for k in segment.row_stages]
        totals = add_records(context, segment.number, segment_folder(context, segment.number), row_counts)
        measured += totals.measured
        filters += [
            ReachedRows(number, segment_folder(context, segment.number), reached)
            for number, reached in zip(segment.row_stages, totals.reached, strict=True)
            if measured_rules(recipe.stages[number])
        ]
        lost.add_rules(totals)
        if first is None:
            first = totals
            docs = np.cumsum(first.rows) - first.rows
            check_minima(recipe.input, recipe.budget, totals.slices, totals.records)
        state = run_corpus_stages(context, segment, prepared, totals, counts)
        removed += state.removed
        lost.add_duplicates(context.plan, state)
        if state.cuts:
            lost.add_spans(counts[segment.corpus_stages[-1]].name, state.cuts, state)
        decisions += [(decision_path(context, k), k, state.partitions) for k in segment.corpus_stages]
    assert state is not None and first is not None
    numbering = Numbering(context.plan.slices, docs)
    _name_groups(counts, removed, numbering)
    folders = [segment_folder(context, segment.number) for segment in segments]
    parts, part_records = _write_documents(context, state, numbering)
    locations = LocationTable.of(folders[0], numbering.slices, first)
    removed_job = RemovedJob(
        docs=docs,
        segments=folders,
        decisions=decisions,
        kept_ids=[],
        lines_before=locations.before,
        has_locations=locations.has_locations.astype(np.int64),
    )
    files = _plan_removed(context, removed_job, removed, numbering, first.read - state.documents)
    steps = [*removed_steps(files[1]), rejected_step(sum(record.rejected for record in first.records))]
    steps += removed_steps(plan_removed(measured), "measures") if recipe.output.measures else []
    steps += scores_steps(context, segments, counts)
    steps += raw_steps(context, folders[0], first)
    tokens, digests = _finish(context, files[0], first, steps, state, parts, part_records, lost)
    digests |= centroid_digests(context.folder)
    if recipe.output.sample.batches:
        digests |= write_sample(recipe.output.sample, context.folder, recipe.seed)
    if recipe.output.index:
        context.progress.log("saving the index")
        compared = {number: partitions for _, number, partitions in decisions}
        digests |= save_index(context, compared, removed, numbering)
    planned = sum(part.documents for part in parts)  # the ledger compares it with the documents that were written
    copies = planned - int(state.documents.sum())
    texts = Sampler(context, folders, numbering, locations, removed, state)
    shown = texts.collect(counts)
    output_records = {
        "parts": part_records,
        "tokens": tokens,
        "copies": copies,
        "texts": shown,
        "measured": sample_measures(recipe, filters, counts, shown, numbering.offsets),
        "untokenised": _untokenised(part_records, numbering, locations),
        "lost": [
            *warn_of_cuts(lost.cuts, dict(zip(recipe.stage_names, recipe.stages, strict=True))),
            *lost.large_groups,
            *texts.warn_of_lost_groups(counts, lost.groups(part_records)),
        ],
        "largest": {"sources": largest(lost.removed), "languages": largest(lost.of_languages)},
        "unlabelled": lost.of_languages.get(UNLABELLED, {}),
    }
    return _conclude(context, counts, first, output_records, digests)


def _untokenised(
    records: Sequence[dict[str, Any]], numbering: Numbering, locations: LocationTable
) -> list[dict[str, Any]]:
    """Return the first documents of each part that get no tokens, because their text contains a special token."""
    found = []
    for doc, token in (entry for record in records for entry in record.get("untokenised_names", ())):
        number = int(np.searchsorted(numbering.offsets, doc, side="right")) - 1
        place = locations.columns(number, np.array([doc - numbering.offset(number)]))
        names = {name: column[0].as_py() for name, column in place.items()}
        source = numbering.slice_of(number, doc - numbering.offset(number)).source
        found.append({"source": source, **names, "doc": doc, "token": token})
    return found


def _name_groups(counts: Sequence[StageCount], removed: Sequence[RemovedRows], numbering: Numbering) -> None:
    """Replace row numbers by document ids in the largest groups that stages report."""
    for duplicates in removed:
        groups: list[dict[str, Any]] = (
            [] if duplicates.index_folder else counts[duplicates.stage].details.get("largest_groups", [])
        )
        rows = np.array([group["row"] for group in groups], np.int64)
        for group, id_ in zip(groups, ids_of(duplicates.partitions, rows, numbering).to_pylist(), strict=True):
            del group["row"]
            group["id"] = id_


def _run_segment(
    context: RunContext, segment: Segment, prepared: Mapping[int, Stage], state: SegmentState | None, docs: np.ndarray
) -> None:
    slices = context.plan.slices
    job = SliceJob(
        segment=segment,
        engine=context.engine_name,
        batch_bytes=context.batch_bytes,
        folder=segment_folder(context, segment.number),
        before=None if state is None else state.partitions.folder,
        starts=np.zeros(0, np.int64) if state is None else state.partitions.starts,
        docs=docs,
        mask=None if state is None else state.mask,
        cuts=None if state is None else state.cuts,
        columns=None if state is None else state.columns,
        stages={number: stage_for_job(stage) for number, stage in prepared.items()},
        reused={number: scores for number, scores in context.reused.stages.items() if number in segment.row_stages},
    )
    stage_names = context.plan.recipe.stage_names
    names = [stage_names[k] for k in segment.row_stages]
    label = " + ".join([*([] if state else ["read"]), *names]) or "keys"

    def arguments(number: int) -> tuple[Any, ...]:
        urls = urls_of(slices.of_task(number)) if state is None else ()
        return (urls,) if urls else ()

    run_tasks(context, label, run_slice, job, job.folder, slices.task_sizes(), SLICE_RECORDS, arguments)


def _outputs_folder(context: RunContext) -> Path:
    return context.work / "outputs"


def _write_documents(
    context: RunContext, state: SegmentState, numbering: Numbering
) -> tuple[list[OutputPart], list[dict[str, Any]]]:
    """Write `documents/` if the recipe wants it, and token ids to the work folder. Return the planned parts and their
    records."""
    output = context.plan.recipe.output
    copies = {name: entry.copies for name, entry in entries_by_name(context.plan.recipe.input).items()}
    parts = cut_output_parts(state, output, copies)
    job = OutputJob(
        docs=numbering.docs,
        partitions=state.partitions,
        mask=state.mask,
        copies=state.copies,
        output_parts=parts,
        tasks=divide_parts(parts),
        work=_outputs_folder(context),
        documents=context.folder / "documents",
        engine=context.engine_name,
    )
    label = " + ".join(["write"] * bool(output.documents) + ["tokenise"] * bool(output.formats))
    sizes = np.add.reduceat([*(part.documents for part in parts), 0], job.tasks[:-1])
    written = [*run_tasks(context, label, write_output_parts, job, job.work, sizes, PART_RECORDS)]
    if [len(task) for task in written] != np.diff(job.tasks).tolist():
        raise IntegrityError(f"{job.work} has parts that another version has cut. Run again with --force")
    records = [record for task in written for record in task]
    if not records:
        schema = document_schema(
            context.plan.slices.carried,
            context.plan.recipe.stages,
            splits=bool(output.splits),
            types=context.plan.recipe.column_types,
        )
        empty_part = write_empty_documents(job.documents if output.documents else None, schema)
        records = [empty_part | dict.fromkeys(("documents", "bytes", "tokens"), 0)]
    return parts, records


def _plan_removed(
    context: RunContext, job: RemovedJob, removed: Sequence[RemovedRows], numbering: Numbering, counts: np.ndarray
) -> tuple[RemovedJob, list[RemovedFile]]:
    """Run tasks that look up the ids of kept documents and measure removed texts. Return the job and the files of
    `removed/`. `counts` has the number of removed rows of each slice."""
    planned = plan_kept_ids(context.work / "kept-ids", removed)
    folders = [kept_ids.folder for kept_ids, _ in planned]
    job = msgspec.structs.replace(job, kept_ids=folders)
    lookups = [
        Lookup(folders.index(folder), task)
        for folder in dict.fromkeys(folders)
        for task in range(len(planned[folders.index(folder)][0]))
    ]
    with_text = context.plan.recipe.output.keeps_removed_text
    if with_text:
        lookups += [Lookup(-1, task) for task in range(sized_tasks(numbering.slices.tasks))]
    run_lookups(context, job, lookups)
    return job, plan_removed(counts, removed_sizes(context) if with_text else None)


def _finish(
    context: RunContext, removed: RemovedJob, totals: SliceTotals, others: Sequence[Step], state: SegmentState,
    parts: Sequence[OutputPart], records: Sequence[dict[str, Any]], lost: LostByInput,
) -> tuple[Written, dict[str, str]]:  # fmt: skip
    """Write the `.bin/.idx` pairs, the other token forms, the files of the steps `others`, and `cleaned/`. Return the
    token outputs, and path -> SHA-256 of all other files. The languages of removed documents are added to `lost`."""
    recipe, work = context.plan.recipe, _outputs_folder(context)
    numbered = [(part.number, part.source) for part in parts]
    forms = [form.name for form in recipe.output.chosen()]
    joined: list[Joined] = []
    if recipe.output.formats:
        check_tokens(recipe, work, numbered, records)
        joined = list(plan_tokens(recipe, work, numbered, context.folder))
    if joined:
        make_folder(context.folder / "tokens")
    tokens = Counter[str]()
    for record in records:
        tokens[record.get("source", "")] += record["tokens"]
    shards = plan_shards(recipe, work, [part.number for part in parts]) if recipe.output.shuffles_documents else []
    steps = [step for each in joined for step in pair_steps(recipe, each, tokens[each.source], shards)]
    steps += [Step("documents", shard, 1000 * shard.rows) for shard in shards]
    steps += [Step("form", name, 2 * tokens.total()) for name in forms]
    steps += [*others, *cleaned_steps(context, state, parts, records)]
    has_rejected = totals.has_rejected.any()
    job = FinishJob(
        removed=removed,
        folder=context.folder,
        outputs=work,
        has_rejected=totals.has_rejected.astype(np.int64) if has_rejected else np.zeros(0, np.int64),
        parts=numbered,
        work=context.work / "finish",
        engine=context.engine_name,
        batch_bytes=context.batch_bytes,
    )
    pairs: list[TrainingPair] = []
    digests: dict[str, str] = {}
    for record in run_steps(context, job, steps):
        digests |= record.get("digests", {})
        lost.add_languages(record.get("lost", []))
        for info in msgspec.convert(record.get("pairs", []), list[PairInfo]):
            prefix = context.folder / "tokens" / Path(info.prefix).name  # the folder may have moved meanwhile
            pairs.append(
                TrainingPair(record["source"], record["split"], msgspec.structs.replace(info, prefix=str(prefix)))
            )
    found = Counter((pair.source, pair.split) for pair in pairs)
    for each in joined:
        remove_other_pairs(recipe, context.folder, each.source, each.split, found[each.source, each.split])
    manifests = {name: written_manifest(context.folder / name) for name in forms}
    return Written(pairs, manifests), digests


def _conclude(
    context: RunContext,
    counts: list[StageCount],
    totals: SliceTotals,
    output_records: dict[str, Any],
    digests: dict[str, str],
) -> dict[str, Any]:
    """Add up the counts, check the ledger, and write `tokens/_meta/`; return the content of the report."""
    records = totals.records
    documents = {
        "read": sum(record.documents_read for record in records),
        "copies": output_records["copies"],
        "kept": sum(record["documents"] for record in output_records["parts"]),
        "removed": sum(sum(count.reasons.values()) for count in counts),
        "rejected": sum(record.rejected for record in records),
        "edited": sum(count.edited for count in counts),
        "repaired": sum(record.repaired for record in records),
    }
    check_ledger(documents, counts)
    if not context.plan.recipe.report.samples:
        for count in counts:
            count.hide_texts()
    content = build(context, documents, counts, totals, output_records, digests)
    return content | ({"reused_from": context.reused.folder} if context.reused.folder else {})
