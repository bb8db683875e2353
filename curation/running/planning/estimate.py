# SPDX-License-Identifier: Apache-2.0
"""The estimate of a run before it starts: the content of its files, the documents that its stages remove, and the time,
memory and disk space that it needs. `curate plan` prints it.

Processor time is measured on the sample of `curation.running.planning.survey`: reading, row stages, keys, compression
and tokens. Everything else uses fixed rates, measured with the default recipe on 20 MB (2026-11-22, one core of a
shared AMD EPYC):

    start                       1.2 s    imports, compiled kernels and tokenizer from their caches
    decision with phases        12 ns    per byte of text (`fuzzy_dedup`: 7 to 14)
    decision without phases      1 ns    per byte of text (`exact_dedup`: 0.5 to 0.7)
    joining, digests, removed/   4 ns    per byte of text

The time on the sample is divided by the number of processors. Decisions keep one processor busy. The upper bound is
HIGH times the sum, for a shared machine, a cold disk and a small sample. The lower bound is LOW times the least work.
This is the work of a run whose first comparing stage keeps almost no document. It counts only the share of a processor
that the sample had. With `DeviceTime`, the lower bound is at most the model's time of the CPU engine, since under load
the sample is slower than the run. Compiling kernels, once per version, takes 15 s more on two idle cores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from curation.base.engine import choose_engine, device_name, load_engine
from curation.base.errors import counted
from curation.base.host_probe import stored_speed
from curation.base.speeds import (
    BATCH_LIMITS,
    MODELLED,
    START_SECONDS,
    HostSpeed,
    RunWork,
    device_bytes,
    engine_seconds,
    engine_times,
    measured_rates,
)
from curation.base.system.files import local_output, unsynced_folder
from curation.base.system.html_table import html_table
from curation.base.system.memory import Resources, choose_for_device, read_limits, read_processors
from curation.base.system.progress import Progress
from curation.reading.formats import probe_all
from curation.reading.inputs import is_hub
from curation.reading.paths import find_files
from curation.reading.source_files import SourceFile
from curation.recipes.recipe import Recipe, as_builtins, check_readable
from curation.running.planning.arguments import MAX_SLICE_BYTES, check_session, document_bytes, find_resources, work_of
from curation.running.planning.disk import DiskNeed, disk_need
from curation.running.planning.frame_inputs import frames_as_files, recipe_of
from curation.running.planning.plan import check_stages
from curation.running.planning.survey import kept_share, survey_inputs
from curation.running.planning.survey_numbers import FileKind, Sampled, StageSurvey, Survey
from curation.stages import CorpusStage
from curation.stages.rows.language import unlabelled_line
from curation.stages.warm_up import warm_up_recipe
from curation.tokens.forms.writing import check_forms
from curation.tokens.tokenization import Tokenizer, load_tokenizer
from curation.tokens.tokenizer_notes import special_tokens_line

PHASES_SECONDS, DECISION_SECONDS, REST_SECONDS = 12e-9, 1e-9, 4e-9  # per byte of text
LOW, HIGH = 0.7, 2.0
UNSEEN = "a sample cannot show it"
DOCUMENT_BYTES = 40  # memory per document in a corpus phase


class GroupEstimate(msgspec.Struct, kw_only=True):
    """A group of documents with the same value in a column, for which a filter has its own rules.

    removed_between   bounds of the share that is removed
    """

    column: str
    group: str
    documents: int
    removed: int
    removed_between: tuple[float, float]


class StageEstimate(msgspec.Struct, kw_only=True):
    """A stage of the recipe and what it does to the documents of the sample, scaled to all documents.

    explained             the lines that `Stage.explain` returns
    documents_in, documents_out, edited   documents; null for a corpus stage, whose effect a sample cannot show
    reasons               reason -> documents removed
    removed_between       bounds of the share of documents that the stage removes; both are equal if all were read
    groups                the groups in the sample, by column; in a column, the group with the most documents is first
    unlabelled            a sentence about the documents without a language label; "" if all have one
    """

    name: str
    kind: str
    explained: list[str]
    documents_in: int | None = None
    documents_out: int | None = None
    edited: int | None = None
    reasons: dict[str, int] = {}
    removed_between: tuple[float, float] = (0.0, 0.0)
    groups: list[GroupEstimate] = []
    unlabelled: str = ""


class MemoryNeed(msgspec.Struct, kw_only=True):
    """The host memory that a run needs (bytes), and the tightest limit with its free bytes; "" and -1 if none is known.

    engine         "cpu" or "gpu": the engine that needs the memory
    workers        tasks at once of this engine
    device_batch   bytes of a batch on this machine's GPU, or the maximum without a GPU; 0 with "cpu"
    document       additional bytes that one document may take, if `max_document_bytes` is raised; else 0
    """

    needed: int
    engine: str = "cpu"
    workers: int = 0
    limit: str = ""
    free: int = -1
    device_batch: int = 0
    document: int = 0


class DeviceTime(msgspec.Struct, kw_only=True):
    """The time of both engines by the model of `curation.base.speeds`, which assumes that all documents are kept.

    seconds      of the GPU engine: the lower bound if host, bus, kernels and Python overlap, the upper bound if they do
                 not
    start        seconds of the start in both bounds, assumed
    device       the device of this machine, if `benchmarks.gpu_bench` measured its rates; else "", and the times are
                 for an H200
    cpu_seconds  of the CPU engine, with its start
    processors   of the host, for both engines
    faster       "cpu" or "gpu" if both bounds agree; "" otherwise: "auto" then takes the CPU engine
    most         the part that takes most of the GPU engine's upper bound
    memory       bytes of device memory that each worker reserves at once, assumed
    obstacle     why the GPU engine cannot run on this machine; "" if it can
    """

    seconds: tuple[float, float]
    start: float
    device: str
    cpu_seconds: float
    processors: int
    faster: str
    most: str
    memory: int
    obstacle: str


class Estimate(msgspec.Struct, kw_only=True):
    """The estimate of a run.

    recipe       the recipe with all defaults
    files, bytes number of files and their stored size, exact; streamed data sets have no size
    kinds        kinds of files with their columns, the largest first
    documents, text_bytes   documents read and bytes of their text, estimated
    documents_between       lower and upper bound of the documents read; both are equal if they were counted
    sample       the sample
    stages       the stages of the recipe
    kept         documents left after all row stages, with copies; stages that compare documents may remove more
    tokens       tokens of the output, if stages that compare documents remove none; 0 without tokens
    tokens_between   lower and upper bound of the tokens
    special_tokens   names and ids of the special tokens, and which of them are written; "" without tokens
    seconds      lower and upper bound of the wall time with the CPU engine on `processors`, measured on the sample.
                 With `device_time`, the lower bound is at most the CPU engine's modelled time on them
    processors   number of processors of this machine that the workers use
    processor_share  share of a processor that the sample got when it was measured; 1 on an idle machine
    device_time  the time of both engines by a model; null without a usable GPU, unless `engine` is "gpu"
    workers      tasks at once
    memory, disk the need of the run, and the free memory and disk space
    not_counted  inputs that were not sampled: streamed data sets, URLs without a size
    warnings     columns that are null in the whole sample, and groups of `mix` that the sample lacks
    """

    recipe: dict[str, Any]
    files: int
    bytes: int
    kinds: list[FileKind]
    documents: int
    text_bytes: int
    documents_between: tuple[int, int]
    sample: Sampled
    stages: list[StageEstimate]
    kept: int
    tokens: int
    tokens_between: tuple[int, int]
    special_tokens: str
    seconds: tuple[float, float]
    workers: int
    memory: MemoryNeed
    disk: DiskNeed
    not_counted: list[str]
    warnings: list[str]
    processor_share: float = 1.0
    processors: int = 0
    device_time: DeviceTime | None = None

    def __repr__(self) -> str:
        most = "at most " if self._comparing else ""
        tokens = f", {most}{counted(self.tokens, 'token')}" if self.tokens else ""
        low, high = self.seconds
        return (
            f"<estimate of {self.recipe['name'] or 'a recipe'}: {counted(self.files, 'file')}, "
            f"{counted(self.documents, 'document')}, {most}{self.kept:,} kept{tokens}; {low:.3g} to {high:.3g} s, "
            f"{self.memory.needed / 1e9:.2g} GB of memory, {self.disk.needed / 1e9:.2g} GB of disk>"
        )

    def _repr_html_(self) -> str:
        names = ("documents_in", "documents_out", "edited")
        rows = [
            (
                stage.name,
                *([UNSEEN, "", ""] if stage.documents_in is None else [getattr(stage, name) for name in names]),
            )
            for stage in self.stages
        ]
        comparing = ", ".join(self._comparing)
        note = f"kept and tokens: less what {comparing} may remove" if comparing else ""
        header = ("stage", "documents", "kept", "edited")
        return html_table(repr(self)[1:-1], header, rows, note, warnings=self.warnings)

    @property
    def _comparing(self) -> list[str]:
        """The names of the stages that compare documents. A sample cannot show what they remove."""
        return [stage.name for stage in self.stages if stage.documents_in is None]


def estimate(
    recipe: Any,
    output: str | Path = ".",
    *,
    input: Any = None,
    engine: str = "auto",
    workers: int = 0,
    progress: Progress | None = None,
) -> Estimate:
    """Return the estimate of `run(recipe, output)` with the CPU engine; write nothing.

    recipe, input   as in `curation.run`; frames are written to a temporary folder for the time of the call
    output    output folder, existing or not. The estimate has the free space of its disk, and counts the files that an
              unfinished run has left there
    engine    "gpu" adds the modelled time of both engines, "auto" (default) only on a machine with a usable GPU, "cpu"
              never
    workers   tasks at once, and processors of the model; 0 (default) as `run` chooses. The measured time counts no more
              than the processors of this machine
    progress  shows that kernels are compiled; None (default) shows nothing

    All files are checked as a run checks them. At most 200 places and 4 MB of text are read, in about 2 s once kernels
    are compiled. The sample depends on `seed` of the recipe.

        >>> import curation
        >>> found = curation.estimate("recipe.yaml")
        >>> found.documents
        4

    Raises RecipeError, InputError, TokenizerError and StageError as a run does before and during its first documents,
    and EngineError for another `engine`.
    """
    recipe, frames = recipe_of(recipe, input)
    folder = local_output(output).resolve()
    if not frames:
        return _estimate(recipe, folder, engine, workers, progress)
    with unsynced_folder() as work, frames_as_files(recipe, frames, work) as recipe:
        return _estimate(recipe, folder, engine, workers, progress)


def _estimate(recipe: Recipe, folder: Path, engine: str, workers: int, progress: Progress | None) -> Estimate:
    files, tokenizer = check_inputs(recipe, folder)
    check_session(workers, "auto", 0)
    choice = choose_engine("auto" if engine == "gpu" else engine)
    device = device_name() if choice.name == "gpu" else ""
    cpu, all_processors = load_engine("cpu"), read_processors()
    warm_up_recipe(recipe, "cpu", min(workers or all_processors, all_processors), progress or Progress())
    survey = survey_inputs(recipe, files, cpu, tokenizer)
    resources = find_resources(cpu, "cpu", workers, "auto", len(files))
    processors = min(resources.workers, all_processors)
    share = kept_share(recipe, survey)
    seconds, model, planned = _seconds(recipe, survey, processors, share), None, "cpu"
    if device or engine == "gpu":
        work = _work(recipe, files, tokenizer, survey, workers)
        model = _device_time(work, device, choice.reason)
        seconds = min(seconds[0], _modelled_cpu(work._replace(processors=processors), _speed(device))), seconds[1]
        planned = "gpu" if engine == "gpu" else model.faster or "cpu"
    return Estimate(
        recipe=as_builtins(recipe),
        files=len(files),
        bytes=size_of(files),
        kinds=survey.kinds,
        documents=round(survey.documents),
        text_bytes=round(survey.text_bytes),
        documents_between=survey.documents_between,
        sample=survey.sampled,
        stages=_stages(recipe, survey),
        kept=round(survey.kept_documents * share),
        tokens=round(survey.tokens * share),
        tokens_between=(math.floor(survey.tokens_between[0] * share), math.ceil(survey.tokens_between[1] * share)),
        special_tokens=special_tokens_line(tokenizer) if tokenizer else "",
        seconds=seconds,
        workers=resources.workers,
        processors=processors,
        memory=_memory(_device_resources(workers, device) if planned == "gpu" else resources, planned, survey, recipe),
        disk=disk_need(recipe, survey, tokenizer, folder),
        not_counted=survey.not_counted,
        warnings=survey.warnings,
        processor_share=round(survey.processor_share, 2),
        device_time=model,
    )


def check_inputs(recipe: Recipe, folder: Path | None = None) -> tuple[list[SourceFile], Tokenizer | None]:
    """Return the files of a recipe with their text columns, and its tokenizer; the tokenizer is None if the recipe
    writes no tokens.

    Files in `folder`, the output of the run, are left out. Raises the errors of a run before it starts.
    """
    check_readable(recipe)
    check_stages(recipe)
    left_out = "" if folder in (None, Path.cwd()) else str(folder)
    files = probe_all(find_files(recipe.input, left_out), lambda file: is_hub(file.path))
    tokenizer = load_tokenizer(recipe.tokenizer) if recipe.output.formats else None
    if tokenizer:
        check_forms(recipe.output, tokenizer)
    return files, tokenizer


def size_of(files: Sequence[SourceFile]) -> int:
    """Return the total stored bytes of files; files of unknown size count as 0."""
    return sum(max(file.bytes, 0) for file in files)


def _stages(recipe: Recipe, survey: Survey) -> list[StageEstimate]:
    estimates = []
    for stage, sampled in zip(recipe.stages, survey.stages, strict=True):
        entry = StageEstimate(name=sampled.name, kind=sampled.kind, explained=stage.explain())
        if not isinstance(stage, CorpusStage):
            entry.documents_in, entry.documents_out = round(sampled.documents_in), round(sampled.documents_out)
            entry.edited = round(sampled.edited)
            entry.reasons = {name: round(count) for name, count in sampled.reasons.items()}
            entry.removed_between = sampled.between.get((), (0.0, 0.0))
            entry.groups = _groups(sampled)
        if sampled.unlabelled:
            kept = sampled.unlabelled - sum(sampled.lost.values())
            about = "" if survey.sampled.is_whole else "about "
            entry.unlabelled = about + unlabelled_line(sampled.documents_in, sampled.unlabelled, kept, sampled.lost)
        estimates.append(entry)
    return estimates


def _groups(sampled: StageSurvey) -> list[GroupEstimate]:
    found = [
        GroupEstimate(
            column=column, group=group, documents=round(documents), removed=round(removed),
            removed_between=sampled.between[column, group],
        )
        for (column, group), (documents, removed) in sampled.by_group.items()
    ]  # fmt: skip
    return sorted(found, key=lambda entry: (entry.column, -entry.documents, entry.group))


def _seconds(recipe: Recipe, survey: Survey, processors: int, share: float) -> tuple[float, float]:
    written = {name: share * survey.seconds[name] for name in ("write", "tokenize")}
    shared, alone = sum((survey.seconds | written).values()), REST_SECONDS * survey.kept_bytes
    least, least_alone = shared, 0.0
    for number, stage in enumerate(recipe.stages):
        if isinstance(stage, CorpusStage):
            if least == shared and (stage.finds_duplicates or stage.cuts_text):  # it may keep a single document
                least = survey.seconds["read"] + sum(entry.seconds for entry in survey.stages[: number + 1])
                least_alone = survey.text_bytes * DECISION_SECONDS
            alone += survey.text_bytes * (PHASES_SECONDS if stage.phases() else DECISION_SECONDS)
    start = START_SECONDS["cpu"]
    low = start + survey.processor_share * least / processors + (alone if least == shared else least_alone)
    return round(LOW * low, 1), round(HIGH * (start + shared / processors + alone), 1)


def _work(
    recipe: Recipe, files: list[SourceFile], tokenizer: Tokenizer | None, survey: Survey, workers: int
) -> RunWork:
    """Return the work of the run for the model of times, with the bytes and documents that the sample shows."""
    size, documents = round(survey.text_bytes), max(round(survey.documents), 1)
    return work_of(recipe, files, tokenizer, workers)._replace(bytes=size, document=max(size // documents, 1))


def _speed(device: str) -> HostSpeed:
    return stored_speed(device) or MODELLED


def _modelled_cpu(work: RunWork, speed: HostSpeed) -> float:
    return round(engine_seconds("cpu", work, speed=speed), 1)


def _device_time(work: RunWork, device: str, reason: str) -> DeviceTime:
    measured, speed = measured_rates(device), _speed(device)
    times, start = engine_times("gpu", work, measured, speed), START_SECONDS["gpu"]
    low, high = start + times.at_least(), start + times.at_most()
    cpu = _modelled_cpu(work, speed)
    return DeviceTime(
        seconds=(round(low, 1), round(high, 1)),
        start=start,
        device=device if measured else "",
        cpu_seconds=cpu,
        processors=work.processors,
        faster="gpu" if high < cpu else "cpu" if low > cpu else "",
        most=max({"start": start, **times._asdict()}.items(), key=lambda pair: pair[1])[0],
        memory=device_bytes(work),
        obstacle="" if device else reason.removeprefix("auto: "),
    )


def _device_resources(workers: int, device: str) -> Resources:
    """Return the resources of a run on the GPU engine. Without a usable GPU, the engine's largest batches are
    assumed."""
    count = workers or read_processors()
    batch = load_engine("gpu").batch_bytes(count) if device else BATCH_LIMITS[0]
    return choose_for_device(read_limits(), count, batch, MAX_SLICE_BYTES, fixed_workers=workers > 0)


def _memory(resources: Resources, engine: str, survey: Survey, recipe: Recipe) -> MemoryNeed:
    found = MemoryNeed(
        needed=resources.needed_bytes + int(DOCUMENT_BYTES * survey.documents),
        engine=engine,
        workers=resources.workers,
        device_batch=resources.batch_bytes if engine == "gpu" else 0,
        document=document_bytes(recipe.input),
    )
    if resources.limit is not None:
        found.limit, found.free = resources.limit.name, resources.limit.free
    return found
