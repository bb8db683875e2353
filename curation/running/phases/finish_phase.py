# SPDX-License-Identifier: Apache-2.0
"""The last phase of tasks: Megatron pairs, other forms, `removed/`, `rejected.jsonl`, `measures/`, `scores/`,
`raw/` and `cleaned/`, each file with its digest.

The content of each file is fixed beforehand, from counts and sizes. So the files do not depend on each other, and tasks
write them in parallel. One task writes several small pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from curation.base.arrays import Ends, cut_counts, load_mapped, save_array
from curation.base.engine import load_engine
from curation.base.system.files import commit, make_folder, numbered_path
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.sealed import read_sealed, write_sealed
from curation.recipes.exports import is_one_file
from curation.record.context import RunContext
from curation.record.documents import encoding_engine
from curation.record.jobs import URLS
from curation.record.kept_ids import KeptIds
from curation.record.locations import LocationTable
from curation.record.measure_files import FOLDER as MEASURES
from curation.record.measure_files import write_measures
from curation.record.partitions import Numbering, Partitions
from curation.record.phase import run_tasks
from curation.record.records import Decoder, TaskCounts
from curation.record.removed import RemovedFile, RemovedStore, look_up_ids, lost_by_language, write_rejected
from curation.record.removed_texts import AddedColumns
from curation.record.scores import kept_stages
from curation.record.stored_plan import urls_of
from curation.running.phases.corpus_phase import load_removed
from curation.running.phases.document_shards import DocumentShard, write_shard
from curation.running.phases.exports import CleanedFile, RawFiles, plan_raw, slices_of, write_cleaned_file, write_raw
from curation.running.phases.scores import FILE_BYTES, ScoresFiles, plan_scores, write_scores
from curation.stages.corpus.key_ranges import read_cell, write_cells
from curation.tokens.joining import PlannedPair, write_pair
from curation.tokens.token_files import Joined, write_form_of, write_shuffled
from curation.tokens.tokenization import load_tokenizer

if TYPE_CHECKING:
    from curation.recipes.recipe import Recipe
    from curation.record.ledger import SliceTotals
    from curation.record.segment_state import SegmentState
    from curation.record.segments import Segment
    from curation.record.stored_plan import Plan
    from curation.running.phases.write_phase import OutputPart
    from curation.stages.outcome import StageCount

NO_COUNTS = TaskCounts(0, 0, 0)
RECORDS: Decoder[dict[str, Any]] = Decoder(dict, lambda record: NO_COUNTS, removes=False)
ITEMS = "items.bin"
SIZED_SLICES = 64  # slices of a task that measures removed texts
SHARED_STEPS, SHARED_BYTES = 64, 1 << 20  # maximum pairs and bytes of a task; one pair may be larger


class RemovedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job of tasks about removed rows. With the plan, it has everything to write any file of `removed/`."""

    docs: np.ndarray  # int64: first doc of each slice
    segments: list[Path]
    decisions: list[tuple[Path, int, Partitions]]  # file of each decision, number of the stage, rows of the segment
    kept_ids: list[Path]  # folders with the ids of kept documents, one per decision and reason
    lines_before: np.ndarray  # int64: `LocationTable.before`
    has_locations: np.ndarray  # int64, 0 or 1: `LocationTable.has_locations`

    def store(self, plan: Plan) -> RemovedStore:
        """Open the removed rows."""
        duplicates = [rows for decision in self.decisions for rows in load_removed(*decision)]
        recipe, numbering = plan.recipe, Numbering(plan.slices, self.docs)
        locations = LocationTable(self.segments[0], plan.slices, self.lines_before, self.has_locations)
        added = AddedColumns.of(plan.slices.carried, recipe.stages) if recipe.output.keeps_removed_text else None
        return RemovedStore(recipe.stage_names, numbering, self.segments, duplicates, locations, added)


class FinishJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job of the last phase."""

    removed: RemovedJob
    folder: Path  # of the run
    outputs: Path  # folder of the token ids
    has_rejected: np.ndarray  # int64, 0 or 1 per task of the first segment; empty without rejected records
    parts: list[tuple[int, str]]  # number and input of each output part
    work: Path
    engine: str
    batch_bytes: int


class Lookup(NamedTuple):
    """A task that looks up the ids of kept documents, or measures the texts of removed rows."""

    kept_ids: int  # index in `RemovedJob.kept_ids`; -1: measure texts
    task: int


def store_items(folder: Path, items: Sequence[Any]) -> None:
    """Write the items of a phase to a file. Each task reads its item by the number of the task."""
    make_folder(folder)
    data = (np.frombuffer(msgspec.json.encode(item), np.uint8) for item in items)
    write_cells(folder / ITEMS, ([values] for values in data), len(items))


def read_item(folder: Path, number: int, kind: Any) -> Any:
    """Return the item with this number from the file of `store_items`, as the type `kind`."""
    return msgspec.json.decode(read_cell(folder / ITEMS, number), type=kind)


class LookupJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job of the tasks that `Lookup` describes."""

    removed: RemovedJob
    work: Path


def look_up(plan: Plan, job: LookupJob, number: int) -> TaskCounts:
    """Run a task that `Lookup` describes: write ids of kept documents, or sizes of removed texts."""
    item = read_item(job.work, number, Lookup)
    store = job.removed.store(plan)
    if item.kept_ids >= 0:
        asked = store.duplicates[item.kept_ids]
        look_up_ids(KeptIds(job.removed.kept_ids[item.kept_ids]), item.task, asked, store.numbering)
    else:
        first = item.task * SIZED_SLICES
        last = min(first + SIZED_SLICES, plan.slices.tasks)
        sizes = [store.sizes(number) for number in range(first, last)]
        with commit(sizes_path(job.work, item.task)) as path:
            save_array(path, np.concatenate(sizes))
    write_sealed(numbered_path(job.work, number, ".json"), {})
    return NO_COUNTS


def sizes_path(work: Path, task: int) -> Path:
    """Return the file with the sizes of the removed texts of some slices."""
    return numbered_path(work / "sizes", task, ".npy")


class Step(NamedTuple):
    """A file or folder that the last phase writes: its kind, the data to write it, and its size for the order of
    tasks."""

    kind: str  # a key of ITEM_TYPES
    item: Any
    size: int = 1


ITEM_TYPES: dict[str, Any] = {
    "pair": tuple[str, str, str, PlannedPair], "form": str,
    "shuffled": tuple[str, str, list[int], list[tuple[int, int]]],
    "removed": RemovedFile, "rejected": str, "measures": RemovedFile, "scores": ScoresFiles,
    "raw": RawFiles, "cleaned": CleanedFile, "documents": DocumentShard,
}  # fmt: skip


def finish(plan: Plan, job: FinishJob, number: int, urls: Sequence[str] = ()) -> TaskCounts:
    """Write the files of a task of the last phase, then the done-record with their digests. `urls` is the result of
    `urls_of_task`."""
    steps = read_item(job.work, number, list[Step])
    records = [_write_step(plan, job, step, urls) for step in steps]
    write_sealed(numbered_path(job.work, number, ".json"), {"steps": records})
    return NO_COUNTS


def _write_step(plan: Plan, job: FinishJob, step: Step, urls: Sequence[str]) -> dict[str, Any]:
    """Write the file or folder that a step describes, and return its record."""
    check_interrupts()
    recipe, (kind, content, _) = plan.recipe, step
    item = msgspec.convert(content, ITEM_TYPES[kind])
    record: dict[str, Any] = {"kind": kind}
    match kind:
        case "pair":
            source, split, dtype, planned = item
            info = write_pair(planned, np.dtype(dtype), sweeps=False)  # the run sweeps its folder once
            record |= {"source": source, "split": split, "pairs": [msgspec.to_builtins(info)]}
        case "shuffled":
            source, split, parts, shards = item
            infos, digests = write_shuffled(recipe, job.outputs, parts, source, split, job.folder, job.parts, shards)
            record |= {"source": source, "split": split, "pairs": msgspec.to_builtins(infos), "digests": digests}
        case "documents":
            record["digests"] = write_shard(recipe, job.outputs, job.folder, item)
        case "form":
            write_form_of(recipe, job.outputs, job.parts, job.folder, item)
        case "removed":
            store = job.removed.store(plan)
            kept_ids = [KeptIds(folder) for folder in job.removed.kept_ids]
            name = f"removed/{item.name}"
            encoder = encoding_engine(recipe.output, job.engine)
            record["digests"] = {name: store.write(job.folder / "removed", item, kept_ids, encoder)}
            stages = dict(zip(recipe.stage_names, recipe.stages, strict=True))
            record["lost"] = lost_by_language(job.folder / name, stages)
        case "rejected":
            numbering = Numbering(plan.slices, job.removed.docs)
            places = job.removed.segments[0], numbering, job.removed.lines_before
            record["digests"] = {item: write_rejected(job.folder / item, *places, job.has_rejected)}
        case "measures":
            numbering = Numbering(plan.slices, job.removed.docs)
            record["digests"] = write_measures(job.folder / MEASURES, item, recipe, numbering, job.removed.segments)
        case "scores":
            record["digests"] = write_scores(job.folder, item, job.removed.segments[item.segment], plan.slices.tasks)
        case "raw":
            engine, docs = load_engine(job.engine), job.removed.docs
            record["digests"] = write_raw(plan, job.folder, item, engine, job.batch_bytes, docs, urls)
        case "cleaned":
            record["digests"] = write_cleaned_file(recipe.output, job.folder, item, recipe.split_inputs)
    return record


def urls_of_task(plan: Plan, job: FinishJob, number: int) -> tuple[str, ...]:
    """Return the URLs that a task of the last phase reads, including their secrets; empty if none has a secret."""
    return _urls_of(plan, read_item(job.work, number, list[Step]))


URLS[finish] = urls_of_task


def _urls_of(plan: Plan, steps: Sequence[Step]) -> tuple[str, ...]:
    step = steps[0]  # steps that share a task are pairs, which read no input
    if step.kind != "raw":
        return ()
    return urls_of(slices_of(plan, msgspec.convert(step.item, RawFiles)))


def run_lookups(context: RunContext, job: RemovedJob, items: Sequence[Lookup]) -> None:
    """Run the tasks that `items` describe, before the last phase."""
    work = context.work / "lookups"
    if items:
        sizes = np.ones(len(items), np.int64)
        lookup_job = LookupJob(removed=job, work=work)
        store_items(work, items)
        run_tasks(context, "ids of kept documents", look_up, lookup_job, work, sizes, RECORDS)


def removed_sizes(context: RunContext) -> Iterator[np.ndarray]:
    """Yield the sizes of removed texts, in the order of `doc`."""
    for task in range(sized_tasks(context.plan.slices.tasks)):
        yield load_mapped(sizes_path(context.work / "lookups", task))


def run_steps(context: RunContext, job: FinishJob, steps: Sequence[Step]) -> Iterator[dict[str, Any]]:
    """Write the files of the last phase, the largest first. Return the records in the order of `steps`."""
    order = sorted(range(len(steps)), key=lambda place: (-steps[place].size, place))
    chosen = list(_tasks(steps[place] for place in order))
    sizes = [sum(step.size for step in task) for task in chosen]
    store_items(job.work, chosen)

    def arguments(number: int) -> tuple[Any, ...]:
        return (urls,) if (urls := _urls_of(context.plan, chosen[number])) else ()

    run_tasks(context, "finish", finish, job, job.work, sizes, RECORDS, arguments)
    records: list[dict[str, Any]] = [{} for _ in steps]
    paths = (numbered_path(job.work, number, ".json") for number in range(len(chosen)))
    for place, record in zip(order, (each for path in paths for each in read_sealed(path)["steps"]), strict=True):
        records[place] = record
    return iter(records)


def _tasks(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Yield the steps of each task, in order. Small pairs share a task."""
    task: list[Step] = []
    for step in steps:
        is_pair = step.kind in ("pair", "shuffled")
        if task and not (
            is_pair and len(task) < SHARED_STEPS and sum(each.size for each in task) + step.size <= SHARED_BYTES
        ):
            yield task
            task = []
        task.append(step)
        if not is_pair:
            yield task
            task = []
    if task:
        yield task


def sized_tasks(partitions: int) -> int:
    """Return the number of tasks that measure the removed texts of this many partitions."""
    return -(-partitions // SIZED_SLICES)


def pair_steps(recipe: Recipe, joined: Joined, tokens: int, shards: Sequence[DocumentShard]) -> list[Step]:
    """Return the steps that write the pairs of an input and a split. `tokens` is the number of tokens of the input,
    `shards` are the files of shuffled `documents/`."""
    if joined.pairs is None:
        firsts = [(shard.number, shard.first) for shard in shards if shard.split == joined.split]
        return [Step("shuffled", (joined.source, joined.split, joined.parts, firsts), 3 * tokens)]
    dtype = load_tokenizer(recipe.tokenizer).dtype.str
    return [Step("pair", (joined.source, joined.split, dtype, pair), pair.size()) for pair in joined.pairs]


def removed_steps(files: Sequence[RemovedFile], kind: str = "removed") -> list[Step]:
    """Return one step per file; its size is estimated from the rows."""
    return [Step(kind, file, 100 * file.rows) for file in files]


def scores_steps(context: RunContext, segments: Sequence[Segment], counts: Sequence[StageCount]) -> Iterator[Step]:
    """Yield one step per file of `scores/`, for stages whose scores are kept."""
    recipe = context.plan.recipe
    for segment in segments:
        for number in kept_stages(recipe, segment.row_stages):
            files = plan_scores(recipe.stages[number], number, segment.number, counts[number].documents_in)
            yield from (Step("scores", each, FILE_BYTES * (each.stop - each.first)) for each in files)


def rejected_step(rejected: int) -> Step:
    """Return the step that writes `rejected.jsonl` with `rejected` records."""
    return Step("rejected", "rejected.jsonl", 1000 * rejected)


def raw_steps(context: RunContext, segment: Path, totals: SliceTotals) -> list[Step]:
    """Return the steps that write `raw/`. `totals` are the counts of the first segment, whose folder is `segment`."""
    output = context.plan.recipe.output
    planned = plan_raw(output, segment, totals) if output.raw else ()
    return [Step("raw", files, 300 * sum(files.rows)) for files in planned]


def cleaned_steps(
    context: RunContext, state: SegmentState, parts: Sequence[OutputPart], records: Sequence[Mapping[str, Any]]
) -> list[Step]:
    """Return the steps that write `cleaned/`. Its files have rows of consecutive output parts."""
    output = context.plan.recipe.output
    if not output.cleaned:
        return []
    firsts = np.cumsum([0, *(record["documents"] for record in records)])
    if is_one_file(output.cleaned):
        return [Step("cleaned", CleanedFile(0, 0, 0, int(firsts[-1])), 100 * int(firsts[-1]))]
    runs = (
        (record["documents"], record["bytes"], partial(_sizes_of, state, part))
        for part, record in zip(parts, records, strict=False)  # an empty result has a record without a part
    )
    steps, first = [], 0
    for number, count in enumerate(cut_counts(runs, output.part_bytes, output.part_documents)):
        part = int(np.searchsorted(firsts, first, side="right")) - 1
        steps.append(Step("cleaned", CleanedFile(number, part, first - int(firsts[part]), count), 100 * count))
        first += count
    return steps or [Step("cleaned", CleanedFile(0, 0, 0, 0))]


def _sizes_of(state: SegmentState, part: OutputPart) -> Ends:
    """Return the running sums of the text sizes of an output part."""
    return state.sums.ends_of(part.start, part.stop, part.copy if state.copies else 0)
