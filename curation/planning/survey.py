# SPDX-License-Identifier: Apache-2.0
"""The survey of a run's inputs: a seeded sample of documents, passed through the row stages, scaled to all inputs.

Corpus stages compare all documents, so a sample cannot show what they remove: the survey assumes that they keep all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import zip_longest

import pyarrow as pa

from curation.arrays import cut_tables
from curation.contract import Engine
from curation.packing.token_spans import parts_of
from curation.packing.tokenization import Tokenizer
from curation.planning.large_shares import warn_of_cuts, warn_of_equal
from curation.planning.limits import limited_shares
from curation.planning.lost_groups import (
    bounded_columns,
    warn_of_lost_groups,
    warn_of_strings,
)
from curation.planning.null_columns import null_columns, without_text
from curation.planning.remote_copies import copied_bytes
from curation.planning.sample_chunks import Chain, Chunk, measure, text_bytes_of
from curation.planning.segments import cut_segments
from curation.planning.source_code import prose_stages, warn_of_code
from curation.planning.survey_numbers import (
    ASSUMED_TOKENS,
    FileKind,
    Sampled,
    StageSurvey,
    Survey,
    add_survey,
    assumed,
    empty_survey,
    like_others,
)
from curation.reading.blank import without_blank
from curation.reading.excerpts import Excerpt, draw_excerpts
from curation.reading.formats import format_of
from curation.reading.inputs import entries_by_name
from curation.reading.source_files import FileRange, Slice, SourceFile
from curation.reading.urls import shown
from curation.recipes.doubts import order_advice, recipe_warnings
from curation.recipes.recipe import Recipe
from curation.stages import CorpusStage, Stage
from curation.stages.checks import stage_errors
from curation.stages.invoke import prepare_stage
from curation.stages.rows.language import Language, unlabelled_warning
from curation.system.system_folders import system_folder

CHUNK_BYTES, CHUNK_DOCUMENTS = 1 << 20, 20_000
WARMING_ROWS = 8
MAX_SECONDS = 2.0  # for slow stages; the first chunk of each kind of file is always measured, of the MOST_KINDS largest
MOST_KINDS = 100  # that are measured; smaller ones are estimated by them
# Text per stored byte, where no document of a kind could be sampled.
EXPANSION = {"": 1.0, "gzip": 4.0, "zstd": 4.0, "bzip2": 5.0, "xz": 5.0}


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
        _apply(Chain(recipe, engine, tokenizer, stages, segments, shares), _chunks(kinds, excerpts), survey)
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
        bytes=sum(text_bytes_of(excerpt.table) for excerpt in excerpts),
        files=len({excerpt.file.path for excerpt in excerpts}),
        seed=seed,
        is_whole=stored >= sum(max(file.bytes, 0) for file in files) and all(file.bytes >= 0 for file in files),
    )


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
        kind.text_bytes = round(scale * sum(text_bytes_of(excerpt.table) for excerpt in own))
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


def _chunks(kinds: dict[tuple[str, str, str, str], FileKind], excerpts: Sequence[Excerpt]) -> list[Chunk]:
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
            [Chunk(kind, table, [*own[0].file.output_columns], share * len(table) / rows) for table in joined]
        )
    return [chunk for chunks in zip_longest(*by_kind) for chunk in chunks if chunk]


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


def _apply(chain: Chain, chunks: Sequence[Chunk], survey: Survey) -> None:
    """Pass the chunks through the stages until the time is over, and add their estimates to the survey."""
    entries = entries_by_name(chain.recipe.input)
    done: list[tuple[Chunk, Survey]] = []
    if chunks:
        measure(chain, chunks[0]._replace(table=chunks[0].table.slice(0, WARMING_ROWS)), survey)  # loads the kernels
    shares: dict[int, float] = {}  # id of a kind -> share of its bytes that is measured
    started = time.perf_counter()
    largest = {id(kind) for kind in survey.kinds[:MOST_KINDS]}
    for chunk in chunks:
        key = id(chunk.kind)
        if key not in largest or (key in shares and time.perf_counter() - started > MAX_SECONDS):
            continue
        done.append((chunk, measure(chain, chunk, survey)))
        shares[key] = shares.get(key, 0.0) + chunk.share
    id_bytes = 0.0
    mean = empty_survey(survey)  # of the measured kinds, without copies
    for chunk, measured in done:
        entry = entries[chunk.kind.input]
        scale = entry.sample * chain.shares[chunk.kind.input] / shares[id(chunk.kind)]
        add_survey(survey, measured, scale, entry.copies)
        add_survey(mean, measured, 1 / shares[id(chunk.kind)], 1)
        id_bytes += measured.id_bytes * measured.documents * scale
    survey.id_bytes = id_bytes / max(survey.documents, 1)
    own_groups = [[{*stage.groups} == {chunk.kind.input} for stage in measured.stages] for chunk, measured in done]
    by_input = [all(column) for column in zip(*own_groups, strict=True)]
    for kind in survey.kinds:
        if id(kind) not in shares:
            entry = entries[kind.input]
            scale = entry.sample * chain.shares[kind.input]
            is_small = done and id(kind) not in largest
            like = like_others(mean, kind, by_input) if is_small else assumed(kind, survey, chain.tokenizer)
            add_survey(survey, like, scale, entry.copies)
