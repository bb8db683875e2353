# SPDX-License-Identifier: Apache-2.0
"""The survey of a run's inputs: a seeded sample of documents, passed through the row stages, scaled to all inputs.

Corpus stages compare all documents, so a sample cannot show what they remove: the survey assumes that they keep all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import pyarrow as pa

from curation.arrays import as_large_strings, cut_tables
from curation.contract import ID, ROW, TEXT, Engine, Frame
from curation.packing.token_spans import parts_of
from curation.packing.tokenization import Tokenizer
from curation.packing.tokenizer_notes import Losses
from curation.parquet import write_table
from curation.planning.large_shares import most_equal, warn_of_cuts, warn_of_equal
from curation.planning.limits import limited_shares
from curation.planning.lost_groups import (
    SampledDocument,
    bounded_columns,
    starts_of,
    warn_of_lost_groups,
    warn_of_strings,
)
from curation.planning.null_columns import null_columns, without_text
from curation.planning.remote_copies import copied_bytes
from curation.planning.segments import Segment, cut_segments
from curation.planning.source_code import prose_stages, warn_of_code
from curation.reading.blank import without_blank
from curation.reading.excerpts import MAX_DOCUMENT_BYTES, Excerpt, draw_excerpts
from curation.reading.formats import format_of
from curation.reading.inputs import entries_by_name
from curation.reading.source_files import FileRange, Slice, SourceFile
from curation.reading.urls import shown
from curation.recipes.doubts import order_advice, recipe_warnings
from curation.recipes.recipe import Recipe
from curation.rules.groups import groups_in
from curation.run_folder.documents import document_options, document_schema, in_schema
from curation.run_folder.partitions import with_ids
from curation.stages import CorpusStage, RowStage, Stage
from curation.stages.base import added_columns
from curation.stages.checks import stage_errors
from curation.stages.invoke import apply_stage, compute_keys, prepare_stage
from curation.stages.outcome import Outcome
from curation.stages.rows.language import Language, unlabelled_warning
from curation.stages.text_sizes import TextsGrowError, bounded_texts
from curation.system.system_folders import system_folder

CHUNK_BYTES, CHUNK_DOCUMENTS = 1 << 20, 20_000
WARMING_ROWS = 8
TOKENIZED_BYTES = 256 << 10  # of a chunk
MAX_SECONDS = 2.0  # for slow stages; the first chunk of each kind of file is always measured, of the MOST_KINDS largest
MOST_KINDS = 100  # that are measured; smaller ones are estimated by them
ASSUMED_PARQUET, ASSUMED_TOKENS = 0.5, 0.3  # per byte of text
# Text per stored byte, where no document of a kind could be sampled.
EXPANSION = {"": 1.0, "gzip": 4.0, "zstd": 4.0, "bzip2": 5.0, "xz": 5.0}


class FileKind(msgspec.Struct, kw_only=True):
    """Files of one input with the same format, compression and text column.

    files, bytes           number of files and their stored size, exact
    text_column            column of the text; "" for formats without columns
    id_column              column of the ids; "" if the first file has none, so that ids are made
    columns                further columns of the first file
    note                   how the texts of the first file are found, for formats that have more than one way
    documents, text_bytes  estimates, for all files
    rejected               estimate of the records that are no documents
    """

    input: str
    format: str
    compression: str
    files: int = 0
    bytes: int = 0
    text_column: str
    id_column: str
    columns: list[str]
    note: str = ""
    documents: int = 0
    text_bytes: int = 0
    rejected: int = 0


class StageSurvey(msgspec.Struct, kw_only=True):
    """What a stage would do to all documents, by the sample. Corpus stages have counts of zero.

    documents_in, documents_out, edited, reasons   estimates of documents
    seconds                                        processor time, estimated; of a corpus stage only for its keys
    groups                                         documents of each group of a corpus stage that has groups
    by_group                                       (column, group) with rules of its own -> documents, and how many of
                                                   them are removed
    unlabelled, lost                               documents without a label of a language, and how many of them are
                                                   removed by stage and reason; only of the last `language` stage
    cuts                                           input -> bytes that a row stage cuts from kept documents, and
                                                   bytes of these before
    reached, equal                                 of a corpus stage: input -> documents; (input, key, value) -> those
                                                   with this value, the most frequent one of a key in a chunk
    """

    name: str
    kind: str
    documents_in: float = 0
    documents_out: float = 0
    edited: float = 0
    reasons: dict[str, float] = {}
    seconds: float = 0
    groups: dict[str, float] = {}
    by_group: dict[tuple[str, str], tuple[float, float]] = {}
    unlabelled: float = 0
    lost: dict[tuple[str, str], float] = {}
    cuts: dict[str, tuple[float, float]] = {}
    reached: dict[str, float] = {}
    equal: dict[tuple[str, str, int], float] = {}


class Sampled(msgspec.Struct, kw_only=True):
    """The size of a sample. `is_whole`: it has all documents."""

    documents: int = 0
    bytes: int = 0
    files: int = 0
    seed: int = 0
    is_whole: bool = False


class Survey(msgspec.Struct, kw_only=True):
    """Estimates for all inputs.

    kinds              kinds of files, the largest first
    sampled            size of the sample
    documents          documents read, after `sample` of their inputs
    text_bytes         bytes of their text
    rejected           records that are no documents
    removed_bytes      bytes of the texts that row stages remove
    stages             the stages of the recipe, in order
    segments           bytes of the partitions of each segment, with their keys
    kept_documents     documents of the output with all copies, if corpus stages remove none
    kept_bytes         bytes of their text
    documents_bytes    bytes of `documents/`
    id_bytes           bytes of an id, on average
    tokens             tokens of the output; 0 without a tokenizer
    seconds            processor time: "read", "stages", "keys", "write", "tokenize"
    copied_bytes       stored bytes of URLs that are copied before they are read
    not_counted        inputs and URLs that were not sampled, since they are streamed or have an unknown size
    warnings           columns and groups that the sample lacks, and groups of documents that row stages remove
    documents_seen     the sampled documents, which tell these groups
    losses             characters of the tokenised documents that decoding loses
    """

    kinds: list[FileKind]
    sampled: Sampled
    stages: list[StageSurvey]
    segments: list[float]
    documents: float = 0
    text_bytes: float = 0
    rejected: float = 0
    removed_bytes: float = 0
    kept_documents: float = 0
    kept_bytes: float = 0
    documents_bytes: float = 0
    id_bytes: float = 0
    tokens: float = 0
    seconds: dict[str, float]
    copied_bytes: int = 0
    not_counted: list[str] = []
    warnings: list[str] = []
    documents_seen: list[SampledDocument] = []
    losses: Losses = msgspec.field(default_factory=Losses)


class _Chunk(NamedTuple):
    """Documents of one kind of file, and the share of the kind's stored bytes that they take up."""

    kind: FileKind
    table: pa.Table
    columns: list[str]
    share: float


def kind_of(file: SourceFile) -> tuple[str, str, str, str]:
    """Return what the files of a `FileKind` have in common."""
    return file.source, file.format, file.compression, file.text_column


def survey_inputs(recipe: Recipe, files: Sequence[SourceFile], engine: Engine, tokenizer: Tokenizer | None) -> Survey:
    """Return the survey of `files`, the inputs of a recipe: at most 200 excerpts, 4 MB of text and about 2 s.

    Raises InputError for a file that cannot be read, and the errors of the stages.
    """
    excerpts = list(draw_excerpts(files, recipe.seed, kind_of))
    shares = _shares(recipe, _kinds(files, excerpts).values())
    excerpts = [_as_read(excerpt, recipe) for excerpt in excerpts]
    kinds = _kinds(files, excerpts)
    listed = sorted(kinds.values(), key=lambda kind: -kind.bytes)
    segments = cut_segments(recipe.stages)
    survey = Survey(
        kinds=listed,
        sampled=_size_of(excerpts, files, recipe.seed),
        stages=[
            StageSurvey(name=name, kind=stage.kind)
            for name, stage in zip(recipe.stage_names, recipe.stages, strict=True)
        ],
        segments=[0.0] * len(segments),
        seconds=dict.fromkeys(("read", "stages", "keys", "write", "tokenize"), 0.0),
        copied_bytes=copied_bytes(files),
        not_counted=list(dict.fromkeys(file.label or shown(file.path) for file in files if file.bytes < 0)),
    )
    own = _by_kind(excerpts)
    stored = {key: sum(excerpt.stored for excerpt in group) for key, group in own.items()}
    for excerpt in excerpts:
        key = kind_of(excerpt.file)
        survey.seconds["read"] += excerpt.seconds * kinds[key].bytes / stored[key]
    survey.rejected = sum(kind.rejected for kind in listed)
    with ExitStack() as folders:  # of the few stages that write files
        stages = [
            prepare_stage(stage, folders.enter_context(system_folder()))
            if type(stage).prepare is not Stage.prepare
            else stage
            for stage in recipe.stages
        ]
        _apply(_Chain(recipe, engine, tokenizer, stages, segments, shares), _chunks(kinds, excerpts), survey)
    names = dict(zip(recipe.stage_names, recipe.stages, strict=True))
    seen = survey.documents_seen
    cuts = {(each.name, f"input {source!r}"): own for each in survey.stages for source, own in each.cuts.items()}
    lost = [*warn_of_cuts(cuts, names, is_plan=True), *warn_of_code(seen, prose_stages(names))]
    lost += [*warn_of_strings(seen, bounded_columns(names)), *warn_of_lost_groups(seen, {}, names, is_plan=True)]
    lost += survey.losses.warning(tokenizer.name) if tokenizer else []
    lost += [line for each in survey.stages for line in warn_of_equal(each.name, each.reached, each.equal)]
    doubts = [*recipe_warnings(recipe), *order_advice(recipe)]
    doubts += [*_null_columns(excerpts), *_without_text(excerpts)]
    survey.warnings = [*doubts, *_missing_groups(recipe, survey), *lost, *_unlabelled(recipe, survey)]
    return survey


def kept_share(recipe: Recipe, survey: Survey) -> float:
    """Return the share of the documents after the row stages that is written; above 1 if a stage repeats documents.

    Corpus stages keep what their settings fix, and otherwise all documents.
    """
    tokens = survey.tokens or ASSUMED_TOKENS * survey.kept_bytes
    share = 1.0
    for stage, sampled in zip(recipe.stages, survey.stages, strict=True):
        if isinstance(stage, CorpusStage):
            with stage_errors(stage):
                share *= stage.kept_share(share * survey.kept_documents, share * tokens, sampled.groups)
    return share


def _null_columns(excerpts: Sequence[Excerpt]) -> Iterator[str]:
    """Warnings for carried columns that no sampled document has."""
    seen: dict[str, dict[str, bool]] = {}
    for excerpt in excerpts:
        own = seen.setdefault(excerpt.file.source, {})
        for column in excerpt.file.carried if len(excerpt.table) else ():
            own[column] = excerpt.table.column(column).null_count < len(excerpt.table) or own.get(column, False)
    files = {excerpt.file.source: excerpt.file for excerpt in reversed(excerpts)}
    for name, columns in seen.items():
        empty = [column for column, has_values in columns.items() if not has_values]
        yield from null_columns(name, empty, files[name], "sampled document")


def _without_text(excerpts: Sequence[Excerpt]) -> Iterator[str]:
    """Warnings for inputs with sampled documents that have no visible character."""
    counts: dict[str, tuple[int, int]] = {}
    for excerpt in excerpts:
        if not excerpt.file.parts:
            blank, documents = counts.get(excerpt.file.source, (0, 0))
            blank += excerpt.blank
            counts[excerpt.file.source] = blank, documents + excerpt.blank + len(excerpt.table)
    for name, (blank, documents) in counts.items():
        yield from without_text(name, blank, documents, "sampled document")


def _missing_groups(recipe: Recipe, survey: Survey) -> Iterator[str]:
    for stage, sampled in zip(recipe.stages, survey.stages, strict=True):
        if isinstance(stage, CorpusStage) and sampled.groups:
            with stage_errors(stage):
                yield from stage.group_warnings(sampled.groups)


def _unlabelled(recipe: Recipe, survey: Survey) -> Iterator[str]:
    for stage, sampled in zip(recipe.stages, survey.stages, strict=True):
        if isinstance(stage, Language):
            yield from unlabelled_warning(stage, sampled.name, sampled.documents_in, sampled.unlabelled)


def _size_of(excerpts: Sequence[Excerpt], files: Sequence[SourceFile], seed: int) -> Sampled:
    stored = sum(excerpt.stored for excerpt in excerpts)
    return Sampled(
        documents=sum(excerpt.table.num_rows for excerpt in excerpts),
        bytes=sum(_text_bytes(excerpt.table) for excerpt in excerpts),
        files=len({excerpt.file.path for excerpt in excerpts}),
        seed=seed,
        is_whole=stored >= sum(max(file.bytes, 0) for file in files) and all(file.bytes >= 0 for file in files),
    )


def _text_bytes(table: pa.Table) -> int:
    return int(pa.compute.sum(pa.compute.binary_length(table.column(TEXT))).as_py() or 0)


def _kinds(files: Sequence[SourceFile], excerpts: Sequence[Excerpt]) -> dict[tuple[str, str, str, str], FileKind]:
    """The kinds of files with their estimates."""
    kinds: dict[tuple[str, str, str, str], FileKind] = {}
    for file in files:
        kind = kinds.get(kind_of(file)) or kinds.setdefault(kind_of(file), _new_kind(file))
        kind.files += 1
        kind.bytes += max(file.bytes, 0)
    by_kind = _by_kind(excerpts)
    for key, kind in kinds.items():
        own = by_kind.get(key, [])
        stored = sum(excerpt.stored for excerpt in own)
        rows = sum(excerpt.table.num_rows for excerpt in own)
        scale = kind.bytes / stored if own else 0
        kind.rejected = round(scale * sum(excerpt.rejected for excerpt in own))
        if not rows:
            kind.text_bytes = int(kind.bytes * EXPANSION[kind.compression])
            kind.documents = kind.files if kind.text_bytes else 0
            continue
        kind.documents = round(scale * rows)
        kind.text_bytes = round(scale * sum(_text_bytes(excerpt.table) for excerpt in own))
    return kinds


def _by_kind(excerpts: Iterable[Excerpt]) -> dict[tuple[str, str, str, str], list[Excerpt]]:
    """The excerpts of each kind of file."""
    found: dict[tuple[str, str, str, str], list[Excerpt]] = {}
    for excerpt in excerpts:
        found.setdefault(kind_of(excerpt.file), []).append(excerpt)
    return found


def _new_kind(file: SourceFile) -> FileKind:
    names = format_of(file).columns(file)
    others = [name for name in names if name not in (file.text_column, file.id_column)]
    return FileKind(
        input=file.source, format=file.format, compression=file.compression, text_column=file.text_column,
        id_column=file.id_column if file.id_column in names else "", columns=others, note=format_of(file).note(file),
    )  # fmt: skip


def _chunks(kinds: dict[tuple[str, str, str, str], FileKind], excerpts: Sequence[Excerpt]) -> list[_Chunk]:
    """The sample in chunks of limited size: the first of each kind, the second of each kind, and so on."""
    by_kind, excerpts_of = [], _by_kind(excerpts)
    for key, kind in kinds.items():
        own = excerpts_of.get(key, [])
        rows = sum(excerpt.table.num_rows for excerpt in own)
        share = sum(excerpt.stored for excerpt in own) / max(kind.bytes, 1)
        tables = (excerpt.table for excerpt in own if excerpt.table.num_rows)
        cut: dict[int, list[pa.Table]] = {}
        for number, table in cut_tables(tables, CHUNK_DOCUMENTS, CHUNK_BYTES):
            cut.setdefault(number, []).append(table)
        joined = [pa.concat_tables(parts).combine_chunks() for parts in cut.values()]
        by_kind.append(
            [_Chunk(kind, table, [*own[0].file.output_columns], share * len(table) / rows) for table in joined]
        )
    return [chunk for chunks in zip_longest(*by_kind) for chunk in chunks if chunk]


class _Chain(NamedTuple):
    """What is done with a chunk. `stages` are prepared."""

    recipe: Recipe
    engine: Engine
    tokenizer: Tokenizer | None
    stages: Sequence[Stage]
    segments: list[Segment]
    shares: dict[str, float]  # of the documents of each input that its limits leave


def _shares(recipe: Recipe, kinds: Iterable[FileKind]) -> dict[str, float]:
    """The share of the documents of each input that its limits leave, after `sample`."""
    counts: dict[str, tuple[int, int]] = {}
    for kind in kinds:
        documents, size = counts.get(kind.input, (0, 0))
        counts[kind.input] = documents + kind.documents, size + kind.text_bytes
    return limited_shares(recipe, counts)


def _as_read(excerpt: Excerpt, recipe: Recipe) -> Excerpt:
    """An excerpt with the parts of its documents, if they are split, and without texts that a run rejects."""
    own = Slice(index=0, ranges=[FileRange(file=excerpt.file, start=0, stop=0)])
    parts = parts_of(own, CHUNK_BYTES, recipe.tokenizer)
    table = pa.concat_tables([*parts.tables(excerpt.table)]) if parts else excerpt.table
    visible = table if excerpt.file.keep_blank else without_blank(table)
    blank = len(table) - len(visible)
    return excerpt._replace(table=visible, rejected=excerpt.rejected + blank, blank=blank)


def _apply(chain: _Chain, chunks: Sequence[_Chunk], survey: Survey) -> None:
    """Pass the chunks through the stages until the time is over, and add their estimates to the survey."""
    entries = entries_by_name(chain.recipe.input)
    done: list[tuple[_Chunk, Survey]] = []
    if chunks:
        _measure(chain, chunks[0]._replace(table=chunks[0].table.slice(0, WARMING_ROWS)), survey)  # loads the kernels
    shares: dict[int, float] = {}  # id of a kind -> share of its bytes that is measured
    started = time.perf_counter()
    largest = {id(kind) for kind in survey.kinds[:MOST_KINDS]}
    for chunk in chunks:
        key = id(chunk.kind)
        if key not in largest or (key in shares and time.perf_counter() - started > MAX_SECONDS):
            continue
        done.append((chunk, _measure(chain, chunk, survey)))
        shares[key] = shares.get(key, 0.0) + chunk.share
    id_bytes = 0.0
    mean = _empty(survey)  # of the measured kinds, without copies
    for chunk, measured in done:
        entry = entries[chunk.kind.input]
        scale = entry.sample * chain.shares[chunk.kind.input] / shares[id(chunk.kind)]
        _add(survey, measured, scale, entry.copies)
        _add(mean, measured, 1 / shares[id(chunk.kind)], 1)
        id_bytes += measured.id_bytes * measured.documents * scale
    survey.id_bytes = id_bytes / max(survey.documents, 1)
    own_groups = [[{*stage.groups} == {chunk.kind.input} for stage in measured.stages] for chunk, measured in done]
    by_input = [all(column) for column in zip(*own_groups, strict=True)]
    for kind in survey.kinds:
        if id(kind) not in shares:
            entry = entries[kind.input]
            scale = entry.sample * chain.shares[kind.input]
            is_small = done and id(kind) not in largest
            like = _like(mean, kind, by_input) if is_small else _assumed(kind, survey, chain.tokenizer)
            _add(survey, like, scale, entry.copies)


def _empty(like: Survey) -> Survey:
    """A survey of nothing, with the stages and segments of another."""
    return Survey(
        kinds=[], sampled=Sampled(), seconds=dict.fromkeys(like.seconds, 0.0), segments=[0.0] * len(like.segments),
        stages=[StageSurvey(name=stage.name, kind=stage.kind) for stage in like.stages],
    )  # fmt: skip


def _like(mean: Survey, kind: FileKind, by_input: Sequence[bool]) -> Survey:
    """The numbers of a small kind of files that is not measured: those of the measured ones, by its bytes of text.

    by_input  whether the groups of each stage are inputs
    """
    found, share = _empty(mean), kind.text_bytes / max(mean.text_bytes, 1)
    _add(found, msgspec.structs.replace(mean, losses=Losses(), documents_seen=[]), share, 1)
    found.documents, found.text_bytes = kind.documents, kind.text_bytes
    for stage, is_input in zip(found.stages, by_input, strict=True):
        if is_input:
            stage.groups = {kind.input: sum(stage.groups.values())} if share else {}
    return found


def _assumed(kind: FileKind, like: Survey, tokenizer: Tokenizer | None) -> Survey:
    """The numbers of files of which no document was sampled: all text is kept."""
    return Survey(
        kinds=[], sampled=Sampled(), stages=[], segments=[1.1 * kind.text_bytes] * len(like.segments),
        documents=kind.documents, text_bytes=kind.text_bytes, kept_documents=kind.documents,
        kept_bytes=kind.text_bytes, documents_bytes=ASSUMED_PARQUET * kind.text_bytes,
        tokens=ASSUMED_TOKENS * kind.text_bytes if tokenizer else 0, seconds={},
    )  # fmt: skip


def _add(survey: Survey, measured: Survey, scale: float, copies: int) -> None:
    survey.documents += measured.documents * scale
    survey.text_bytes += measured.text_bytes * scale
    survey.removed_bytes += measured.removed_bytes * scale
    survey.losses.merge(measured.losses)
    survey.documents_seen += [document._replace(weight=scale) for document in measured.documents_seen]
    survey.segments = [size + more * scale for size, more in zip(survey.segments, measured.segments, strict=True)]
    for name in ("kept_documents", "kept_bytes", "documents_bytes", "tokens"):
        setattr(survey, name, getattr(survey, name) + getattr(measured, name) * scale * copies)
    for name, seconds in measured.seconds.items():
        survey.seconds[name] += seconds * scale * (copies if name in ("write", "tokenize") else 1)
    for stage, more in zip(survey.stages, measured.stages, strict=False):
        for name in ("documents_in", "documents_out", "edited", "seconds", "unlabelled"):
            setattr(stage, name, getattr(stage, name) + getattr(more, name) * scale)
        for name in ("reasons", "lost", "groups", "reached", "equal"):
            counts = getattr(stage, name)
            for key, count in getattr(more, name).items():
                counts[key] = counts.get(key, 0) + count * scale
        for name, (cut, kept) in more.cuts.items():
            cut_before, kept_before = stage.cuts.get(name, (0.0, 0.0))
            stage.cuts[name] = cut_before + cut * scale, kept_before + kept * scale
        for key, (documents, removed) in more.by_group.items():
            before, gone = stage.by_group.get(key, (0.0, 0.0))
            stage.by_group[key] = before + documents * scale, gone + removed * scale


def _measure(chain: _Chain, chunk: _Chunk, like: Survey) -> Survey:
    """Pass a chunk through the stages; return its own numbers, not scaled. Its texts are bounded."""
    try:
        with bounded_texts(MAX_DOCUMENT_BYTES):
            return _pass_through(chain, chunk, like)
    except TextsGrowError as error:
        measured, step = _empty(like), -(-len(chunk.table) // error.parts)
        for first in range(0, len(chunk.table), step):
            part = _measure(chain, chunk._replace(table=chunk.table.slice(first, step)), like)
            _add(measured, part, 1, 1)
            measured.id_bytes = part.id_bytes
        return measured


def _pass_through(chain: _Chain, chunk: _Chunk, like: Survey) -> Survey:
    recipe, engine, measured = chain.recipe, chain.engine, _empty(like)
    measured.documents, measured.text_bytes = len(chunk.table), _text_bytes(chunk.table)
    frame = engine.from_arrow(chunk.table)
    lost: dict[int, tuple[str, str]] = {}  # row of the chunk -> stage and reason
    unlabelled: dict[int, np.ndarray] = {}  # stage `language` -> rows of the chunk without a label
    rows = np.arange(len(chunk.table))  # of the frame
    for segment in chain.segments:
        for number in segment.row_stages:
            stage, before = cast(RowStage, chain.stages[number]), frame
            frame, outcome = _apply_row_stage(engine, before, stage, measured.stages[number])
            if outcome.edited is not None:
                measured.stages[number].cuts = {chunk.kind.input: _cut_bytes(engine, before, frame, outcome)}
            if isinstance(stage, Language):
                is_null = outcome.columns[stage.column].is_null()
                unlabelled = {number: rows[is_null.to_numpy(zero_copy_only=False)]}
            if (verdict := outcome.verdict) is not None:
                gone = np.flatnonzero(~verdict.kept)
                measured.removed_bytes += int(engine.byte_lengths(before[TEXT])[gone].sum())
                for place in gone.tolist():
                    lost[int(rows[place])] = like.stages[number].name, verdict.reasons[verdict.reason[place]]
                rows = rows[verdict.kept]
        added = added_columns(recipe.stages[: segment.last])
        size = engine.to_arrow(frame[[ROW, ID, TEXT, *chunk.columns, *added]]).nbytes + 8 * len(frame)
        for number in segment.corpus_stages:
            started = time.perf_counter()
            comparing = cast(CorpusStage, chain.stages[number])
            keys = compute_keys(comparing, engine, frame)
            with stage_errors(comparing):
                measured.stages[number].groups = {**comparing.group_sizes(keys, chunk.kind.input)}
            measured.stages[number].reached = {chunk.kind.input: len(frame)}
            measured.stages[number].equal = dict(most_equal(chunk.kind.input, keys))
            size += sum(key.nbytes for key in keys.values())
            measured.stages[number].seconds = time.perf_counter() - started
            ones = {name: np.ones(len(frame), np.int64) for name in comparing.writes()}  # a sample has no groups
            frame = engine.with_columns(frame, ones) if ones else frame
        measured.segments[segment.number] = size
    for number, without in unlabelled.items():
        causes = Counter(lost[row] for row in without.tolist() if row in lost)
        measured.stages[number].unlabelled, measured.stages[number].lost = len(without), dict(causes)
    for number, entry in enumerate(measured.stages):
        measured.seconds["keys" if recipe.stages[number].compares else "stages"] += entry.seconds
    _measure_outputs(chain, chunk, engine.to_arrow(frame), measured)
    measured.documents_seen = [
        SampledDocument(chunk.kind.input, text, dict(zip(chunk.columns, values, strict=True)), lost.get(row), 1)
        for row, (text, values) in enumerate(zip(*starts_of(chunk.table, chunk.columns), strict=True))
    ]
    return measured


def _cut_bytes(engine: Engine, before: Frame, frame: Frame, outcome: Outcome) -> tuple[float, float]:
    """The bytes that a stage cuts from documents that it keeps, and the bytes of these before."""
    sizes = engine.byte_lengths(before[TEXT])
    sizes = sizes if outcome.verdict is None else sizes[outcome.verdict.kept]
    return float(np.maximum(sizes - engine.byte_lengths(frame[TEXT]), 0).sum()), float(sizes.sum())


def _apply_row_stage(engine: Engine, frame: Frame, stage: RowStage, survey: StageSurvey) -> tuple[Frame, Outcome]:
    """The frame after the stage, and its outcome."""
    survey.documents_in = len(frame)
    started = time.perf_counter()
    frame, outcome = apply_stage(engine, frame, stage)
    survey.seconds = time.perf_counter() - started
    survey.documents_out = len(frame)
    survey.edited = 0 if outcome.edited is None else int(outcome.edited.sum())
    survey.reasons = {} if outcome.verdict is None else {k: float(n) for k, n in outcome.verdict.counts().items() if n}
    if outcome.verdict is not None:
        for groups, numbers in zip(groups_in(stage.rules_by_group()), outcome.groups, strict=True):
            counts, gone = np.bincount(numbers), np.bincount(numbers, ~outcome.verdict.kept)
            for number in np.flatnonzero(counts).tolist():
                survey.by_group[groups.column, groups.name(number)] = float(counts[number]), float(gone[number])
    return frame, outcome


def _measure_outputs(chain: _Chain, chunk: _Chunk, kept: pa.Table, measured: Survey) -> None:
    """Write the kept documents to memory and tokenise some of them."""
    measured.kept_documents, measured.kept_bytes = len(kept), _text_bytes(kept)
    documents = with_ids(kept, chunk.kind.input, 0)
    length = pa.compute.sum(pa.compute.binary_length(documents.column(ID))).as_py() or 0
    measured.id_bytes = length / len(kept) if len(kept) else 8.0
    added = added_columns(chain.recipe.stages)
    schema = document_schema([], chain.recipe.stages, splits=bool(chain.recipe.output.splits))
    carried = [pa.field(name, pa.large_string()) for name in chunk.columns if name not in added]
    schema = pa.schema([*schema, *carried])
    sink, started = pa.BufferOutputStream(), time.perf_counter()
    write_table(sink, in_schema(documents, schema), document_options(schema))
    measured.documents_bytes = sink.tell()
    measured.seconds["write"] = time.perf_counter() - started if chain.recipe.output.documents else 0.0
    if chain.tokenizer and len(kept):
        first = next(part for _, part in cut_tables(iter([kept]), len(kept), TOKENIZED_BYTES))
        started = time.perf_counter()
        chunks = list(map(as_large_strings, _chunked(first.column(TEXT))))
        packed = list(map(chain.tokenizer.pack, chunks))
        tokens = sum(len(part.ids) for part in packed)
        scale = measured.kept_bytes / max(_text_bytes(first), 1)
        measured.tokens = tokens * scale
        measured.seconds["tokenize"] = (time.perf_counter() - started) * scale
        for texts, part in zip(chunks, packed, strict=True):
            measured.losses.add_documents(chain.tokenizer, texts, part.ids, part.lengths, range(len(texts)))


def _chunked(column: pa.ChunkedArray) -> list[Any]:
    return [chunk for chunk in column.chunks if len(chunk)]
