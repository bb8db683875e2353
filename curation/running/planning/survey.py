# SPDX-License-Identifier: Apache-2.0
"""The survey of a run's inputs: a seeded sample of documents, passed through the row stages, scaled to all inputs.

Corpus stages compare all documents, so a sample cannot show what they remove: the survey assumes that they keep all.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from curation.base.arrays import cut_tables, text_bytes_of
from curation.base.contract import Engine
from curation.base.system.system_folders import system_folder
from curation.reading.blank import without_blank
from curation.reading.excerpts import Excerpt, draw_excerpts
from curation.reading.formats import format_of
from curation.reading.formats.base import NEEDED
from curation.reading.inputs import entries_by_name
from curation.reading.source_files import FileRange, Slice, SourceFile
from curation.reading.urls import shown
from curation.recipes.doubts import order_advice, recipe_warnings
from curation.recipes.recipe import Recipe
from curation.record.large_shares import warn_of_cuts, warn_of_equal
from curation.record.limits import limited_shares
from curation.record.lost_groups import bounded_columns, warn_of_lost_groups, warn_of_strings
from curation.record.null_columns import null_columns, without_text
from curation.record.segments import cut_segments
from curation.record.source_code import prose_stages, warn_of_code
from curation.running.planning.intervals import (
    EPSILON,
    NORMAL,
    UNSEEN,
    SampledUnits,
    Spread,
    Stratum,
    interval_of,
    share_between,
    spread_of,
)
from curation.running.planning.remote_copies import copied_bytes
from curation.running.planning.sample_chunks import Chain, SampleChunk, measure
from curation.running.planning.survey_numbers import (
    ASSUMED_TOKENS,
    FileKind,
    Sampled,
    StageSurvey,
    Survey,
    add_survey,
    add_units,
    assumed,
    empty_survey,
    like_others,
)
from curation.stages import CorpusStage, Stage
from curation.stages.base import StageSample
from curation.stages.invoke import forecast, prepare_stage
from curation.stages.rows.language import Language, unlabelled_warning
from curation.tokens.token_spans import parts_of
from curation.tokens.tokenization import Tokenizer

CHUNK_BYTES, CHUNK_DOCUMENTS = 1 << 20, 20_000
WARMING_ROWS = 8
MAX_SECONDS = 2.0  # limit for slow stages; of the MOST_KINDS largest kinds of files, the first chunk is always measured
MOST_KINDS = 100  # kinds of files that are measured; smaller kinds are estimated from these
# Assumed bytes of text per stored byte, if no document of a kind of files could be sampled.
EXPANSION = {"": 1.0, "gzip": 4.0, "zstd": 4.0, "bzip2": 5.0, "xz": 5.0}


Key = tuple[str, str, str, str, int]


def kind_of(file: SourceFile) -> Key:
    """Return the properties that all files of a `FileKind` share, and the class of a file's size.

    Only files that cannot be divided have classes: in a class, sizes differ by at most a factor of 4. Each class is
    estimated alone, because a few large files may have most of the text, while small files have more of their text in
    the sample.
    """
    size = 0 if format_of(file).is_divisible(file) else max(file.bytes, 0).bit_length() // 2
    return file.source, file.format, file.compression, file.text_column, size


def survey_inputs(recipe: Recipe, files: Sequence[SourceFile], engine: Engine, tokenizer: Tokenizer | None) -> Survey:
    """Return the survey of `files`, the inputs of a recipe. It reads about 200 places and 4 MB of text, in about 2 s.

    Raises InputError for a file that cannot be read, and the errors of the stages.
    """
    begun, begun_processor = time.perf_counter(), time.process_time()
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
    numbers = _numbers_by_kind(excerpts, range(len(excerpts)))
    stored = {key: sum(excerpts[number].stored for number in own) for key, own in numbers.items()}
    for excerpt in excerpts:
        key = kind_of(excerpt.file)
        survey.seconds["read"] += excerpt.seconds * kinds[key].bytes / stored[key]
    survey.rejected = sum(kind.rejected for kind in listed)
    samples = {key: _sample_of(excerpts, numbers.get(key, ())) for key in kinds}
    spreads = {key: _documents_spread(kind, samples[key]) for key, kind in kinds.items()}
    for key, kind in kinds.items():
        kind.read_in_part = sum(unread > 0 for _, unread in samples[key].files.values())
    with ExitStack() as folders:  # for the few stages that write files
        stages = [
            prepare_stage(stage, folders.enter_context(system_folder()))
            if type(stage).prepare is not Stage.prepare
            else stage
            for stage in recipe.stages
        ]
        chain = Chain(recipe, engine, tokenizer, stages, segments, shares)
        done = _apply(chain, _chunks(kinds, excerpts, recipe.seed), survey)
    processor, wall = time.process_time() - begun_processor, time.perf_counter() - begun
    survey.processor_share = min(processor / max(wall, EPSILON), 1.0)
    _bound(chain, kinds, samples, spreads, done, survey)
    survey.kinds = _merged(kinds, spreads)
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
            reaching = StageSample(
                documents=share * survey.kept_documents, tokens=share * tokens, groups=sampled.groups
            )
            share *= forecast(stage, reaching).kept_share
    return share


def _null_columns(excerpts: Sequence[Excerpt]) -> Iterator[str]:
    """Yield warnings for carried columns that are null in all sampled documents."""
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
    """Yield warnings for inputs with sampled documents that have no visible character."""
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
            yield from forecast(stage, StageSample(groups=sampled.groups)).warnings


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


def _kinds(files: Sequence[SourceFile], excerpts: Sequence[Excerpt]) -> dict[Key, FileKind]:
    """Return the kinds of files with their estimates."""
    kinds: dict[Key, FileKind] = {}
    for file in files:
        kind = kinds.get(kind_of(file)) or kinds.setdefault(kind_of(file), _new_kind(file))
        kind.files += 1
        kind.bytes += max(file.bytes, 0)
    numbers = _numbers_by_kind(excerpts, range(len(excerpts)))
    for key, kind in kinds.items():
        own = [excerpts[number] for number in numbers.get(key, ())]
        stored = sum(excerpt.stored for excerpt in own)
        rows = sum(excerpt.documents for excerpt in own)
        scale = kind.bytes / stored if stored else 0
        kind.rejected = round(scale * sum(excerpt.rejected for excerpt in own))
        if not rows and kind.rejected:
            continue
        if not rows:
            kind.text_bytes = int(kind.bytes * EXPANSION[kind.compression])
            kind.documents = kind.files if kind.text_bytes else 0
            continue
        kind.documents = round(kind.files * rows / len(own) if _is_one_document(own[0].file) else scale * rows)
        kind.text_bytes = round(scale * sum(text_bytes_of(excerpt.table) for excerpt in own))
    return kinds


class _Sample(NamedTuple):
    """The excerpts of a kind of files, in the order of their positions in the files.

    numbers   numbers of the excerpts
    stored    stored bytes of each excerpt (float64)
    rows      estimated documents in these bytes, of each excerpt (float64)
    sampled   documents that were read, of each excerpt (float64)
    files     path -> bytes, and the share of the file from which no excerpt can be drawn
    """

    numbers: list[int]
    stored: np.ndarray
    rows: np.ndarray
    sampled: np.ndarray
    files: dict[str, tuple[int, float]]
    has_one: bool  # whether a file is one document
    is_counted: bool  # whether the format stores the number of its records

    @property
    def unread(self) -> float:
        """The share of the bytes of these files from which no excerpt can be drawn."""
        total = sum(size for size, _ in self.files.values())
        return sum(size * unread for size, unread in self.files.values()) / total if total else 0.0


def _is_one_document(file: SourceFile) -> bool:
    return format_of(file).is_one_document(file) and not file.parts


def _sample_of(excerpts: Sequence[Excerpt], numbers: Iterable[int]) -> _Sample:
    own = [(number, excerpts[number]) for number in numbers]
    own.sort(key=lambda pair: (pair[1].file.path, pair[1].position))
    return _Sample(
        [number for number, _ in own],
        np.array([excerpt.stored for _, excerpt in own], np.float64),
        np.array([excerpt.documents for _, excerpt in own], np.float64),
        np.array([len(excerpt.table) for _, excerpt in own], np.float64),
        {excerpt.file.path: (excerpt.file.bytes, excerpt.unread) for _, excerpt in own},
        any(_is_one_document(excerpt.file) for _, excerpt in own),
        any(format_of(excerpt.file).parts == NEEDED for _, excerpt in own),
    )


def _documents_spread(kind: FileKind, sample: _Sample) -> Spread:
    """Return the estimated number of documents of a kind of files, with the uncertainty of the number."""
    if not kind.bytes or not sample.rows.sum():
        return Spread(kind.documents, UNSEEN / NORMAL if kind.bytes else 0.0)
    if sample.has_one:
        return spread_of(kind.documents, SampledUnits(np.ones(len(sample.rows)), sample.rows, kind.files))
    unread = 0.0 if sample.is_counted else sample.unread
    return spread_of(
        kind.documents,
        SampledUnits(sample.stored, sample.rows, kind.bytes, unread, 0 if sample.is_counted else sample.rows.sum()),
    )


def _merged(kinds: Mapping[Key, FileKind], spreads: Mapping[Key, Spread]) -> list[FileKind]:
    """Return the kinds of files, each with its classes of file sizes merged. The largest kind is first."""
    groups: dict[tuple[str, ...], list[Key]] = {}
    for key in kinds:
        groups.setdefault(key[:4], []).append(key)
    merged = []
    for keys in groups.values():
        whole = kinds[keys[0]]
        for other in (kinds[key] for key in keys[1:]):
            for name in ("files", "bytes", "documents", "text_bytes", "rejected", "read_in_part"):
                setattr(whole, name, getattr(whole, name) + getattr(other, name))
        whole.documents_between = interval_of([spreads[key] for key in keys])
        merged.append(whole)
    return sorted(merged, key=lambda kind: -kind.bytes)


def _numbers_by_kind(excerpts: Sequence[Excerpt], order: Iterable[int]) -> dict[Key, list[int]]:
    """Return kind of file -> the numbers of its excerpts, in the order of `order`."""
    found: dict[Key, list[int]] = {}
    for number in order:
        found.setdefault(kind_of(excerpts[number].file), []).append(number)
    return found


def _new_kind(file: SourceFile) -> FileKind:
    names = format_of(file).columns(file)
    others = [name for name in names if name not in (file.text_column, file.id_column)]
    return FileKind(
        input=file.source, format=file.format, compression=file.compression, text_column=file.text_column,
        id_column=file.id_column if file.id_column in names else "", columns=others, note=format_of(file).note(file),
    )  # fmt: skip


def _chunks(kinds: dict[Key, FileKind], excerpts: Sequence[Excerpt], seed: int) -> list[SampleChunk]:
    """Return the sample in chunks of limited size: the first chunk of each kind, then the second of each kind, and so
    on.

    The excerpts are in random order, since the measurement may end after any chunk.
    """
    by_kind = []
    order = random.Random(seed).sample(range(len(excerpts)), len(excerpts))
    numbers_of = _numbers_by_kind(excerpts, order)
    for key, kind in kinds.items():
        own = [number for number in numbers_of.get(key, []) if excerpts[number].table.num_rows]
        rows = [excerpts[number].table.num_rows for number in own]
        stored = sum(excerpts[number].stored for number in numbers_of.get(key, []))
        with_rows = sum(excerpts[number].stored for number in own)
        units = np.repeat(np.array(own, np.int64), rows)
        each = np.repeat([excerpts[number].stored / count for number, count in zip(own, rows, strict=True)], rows)
        cut: dict[int, list[pa.Table]] = {}
        for number, table in cut_tables((excerpts[number].table for number in own), CHUNK_DOCUMENTS, CHUNK_BYTES):
            cut.setdefault(number, []).append(table)
        first, chunks = 0, []
        for parts in cut.values():
            table = pa.concat_tables(parts).combine_chunks()
            stop = first + len(table)
            share = float(each[first:stop].sum()) * stored / with_rows / max(kind.bytes, 1)
            columns = [*excerpts[own[0]].file.output_columns]
            chunks.append(SampleChunk(kind, table, columns, share, units[first:stop]))
            first = stop
        by_kind.append(chunks)
    return [chunk for chunks in zip_longest(*by_kind) for chunk in chunks if chunk]


def _shares(recipe: Recipe, kinds: Iterable[FileKind]) -> dict[str, float]:
    """Return, for each input, the share of its sampled documents (`sample`) that its limits keep."""
    counts: dict[str, tuple[int, int]] = {}
    for kind in kinds:
        documents, size = counts.get(kind.input, (0, 0))
        counts[kind.input] = documents + kind.documents, size + kind.text_bytes
    return limited_shares(recipe, counts)


def _as_read(excerpt: Excerpt, recipe: Recipe) -> Excerpt:
    """Return an excerpt as a run reads it: with documents split if the input is split, and without blank texts that a
    run rejects."""
    own = Slice(index=0, ranges=[FileRange(file=excerpt.file, start=0, stop=0)])
    parts = parts_of(own, CHUNK_BYTES, recipe.tokenizer)
    table = pa.concat_tables([*parts.tables(excerpt.table)]) if parts else excerpt.table
    visible = table if excerpt.file.keep_blank else without_blank(table)
    blank = len(table) - len(visible)
    each = excerpt.documents / len(excerpt.table) if len(excerpt.table) else 0.0  # documents per sampled one
    return excerpt._replace(
        table=visible, documents=each * len(visible), rejected=excerpt.rejected + each * blank, blank=blank
    )


def _apply(chain: Chain, chunks: Sequence[SampleChunk], survey: Survey) -> list[tuple[SampleChunk, Survey]]:
    """Pass chunks through the stages for up to MAX_SECONDS, and add their estimates to the survey. Return the measured
    chunks with their numbers."""
    entries = entries_by_name(chain.recipe.input)
    done: list[tuple[SampleChunk, Survey]] = []
    if chunks:
        measure(chain, chunks[0].slice(0, WARMING_ROWS), survey)  # loads the kernels
    shares: dict[int, float] = {}  # id of a kind -> share of its bytes that is measured
    started = time.perf_counter()
    largest = {id(kind) for kind in survey.kinds[:MOST_KINDS]}
    for chunk in chunks:
        key = id(chunk.kind)
        if key not in largest or (key in shares and time.perf_counter() - started > MAX_SECONDS):
            continue
        done.append((chunk, measure(chain, chunk, survey)))
        shares[key] = shares.get(key, 0.0) + chunk.share
    rows: dict[int, float] = {}  # id of a kind -> its measured documents
    for chunk, measured in done:
        rows[id(chunk.kind)] = rows.get(id(chunk.kind), 0.0) + measured.documents
    id_bytes = 0.0
    weights: dict[int, float] = {}  # id of a kind -> documents that one measured document represents
    mean = empty_survey(survey)  # numbers of all measured kinds, without copies
    for chunk, measured in done:
        entry = entries[chunk.kind.input]
        scale = entry.sample * chain.shares[chunk.kind.input] / shares[id(chunk.kind)]
        counts = scale * chunk.kind.documents * shares[id(chunk.kind)] / rows[id(chunk.kind)]
        add_survey(survey, measured, scale, entry.copies, counts)
        weights[id(chunk.kind)] = counts
        part = 1 / shares[id(chunk.kind)]
        add_survey(mean, measured, part, 1, counts / scale * part if scale else 0.0)
        id_bytes += measured.id_bytes * measured.documents * counts
    survey.id_bytes = id_bytes / max(survey.documents, 1)
    _bound_shares(done, weights, shares, survey)
    own_groups = [[{*stage.groups} == {chunk.kind.input} for stage in measured.stages] for chunk, measured in done]
    by_input = [all(column) for column in zip(*own_groups, strict=True)]
    for kind in survey.kinds:
        if id(kind) not in shares:
            entry = entries[kind.input]
            scale = entry.sample * chain.shares[kind.input]
            is_small = done and id(kind) not in largest
            like = like_others(mean, kind, by_input) if is_small else assumed(kind, survey, chain.tokenizer)
            add_survey(survey, like, scale, entry.copies)
    return done


def _bound_shares(
    done: Sequence[tuple[SampleChunk, Survey]],
    weights: Mapping[int, float],
    shares: Mapping[int, float],
    survey: Survey,
) -> None:
    """Set the lower and upper bounds of the shares of documents that row stages remove.

    weights, shares   id of a kind -> documents that one measured document represents; share of the kind that is
                      measured
    """
    by_kind: dict[int, list[StageSurvey]] = {}
    for chunk, measured in done:
        empty = [StageSurvey(name=stage.name, kind=stage.kind) for stage in measured.stages]
        add_units(by_kind.setdefault(id(chunk.kind), empty), measured.stages)
    strata: dict[tuple[int, tuple[str, ...]], list[Stratum]] = {}
    for kind, stages in by_kind.items():
        for number, stage in enumerate(stages):
            for key, units in ((key, units) for key, units in stage.units.items() if units):
                documents, removed = np.array([*units.values()]).T
                own = Stratum(weights[kind], 1 - shares[kind], documents, removed)
                strata.setdefault((number, key), []).append(own)
    for (number, key), found in strata.items():
        survey.stages[number].between[key] = share_between(found)


def _bound(
    chain: Chain, kinds: Mapping[Key, FileKind], samples: Mapping[Key, _Sample], spreads: Mapping[Key, Spread],
    done: Sequence[tuple[SampleChunk, Survey]], survey: Survey,
) -> None:  # fmt: skip
    """Set the lower and upper bounds of the numbers of documents and tokens of all inputs.

    spreads   estimated documents of each kind, with their uncertainty
    """
    entries = entries_by_name(chain.recipe.input)
    documents: list[Spread] = []
    tokens: list[Spread] = []
    for key, kind in kinds.items():
        entry = entries[kind.input]
        share = entry.sample * chain.shares[kind.input]
        chosen = (1 - entry.sample) / max(kind.documents * entry.sample, 1)  # squared error of the choice by hashes
        own = [(chunk, measured) for chunk, measured in done if chunk.kind is kind]
        found = [(spreads[key], 1), *([(_tokens_spread(kind, samples[key], own), entry.copies)] if own else [])]
        for (spread, copies), into in zip(found, (documents, tokens), strict=False):
            error = math.hypot(spread.error, math.sqrt(chosen))
            into.append(spread._replace(value=spread.value * share * copies, error=error))
    rest = survey.tokens - sum(spread.value for spread in tokens)  # tokens of kinds that were not measured
    tokens += [Spread(rest, UNSEEN / NORMAL)] if rest > EPSILON * survey.tokens else []
    survey.documents_between, survey.tokens_between = interval_of(documents), interval_of(tokens)


def _tokens_spread(kind: FileKind, sample: _Sample, own: Sequence[tuple[SampleChunk, Survey]]) -> Spread:
    """Return the estimated number of tokens of a kind of files, with the uncertainty of the number."""
    measured_rows = np.bincount(np.concatenate([chunk.units for chunk, _ in own]), minlength=max(sample.numbers) + 1)
    shares = measured_rows[sample.numbers] / np.maximum(sample.sampled, 1)
    shares[sample.sampled == 0] = 1.0
    by_unit: dict[int, float] = {}
    for _, measured in own:
        for unit, tokens in measured.unit_tokens.items():
            by_unit[unit] = by_unit.get(unit, 0.0) + tokens
    values = np.array([by_unit.get(number, 0.0) for number in sample.numbers])
    is_seen = shares > 0
    units = SampledUnits((sample.stored * shares)[is_seen], values[is_seen], kind.bytes, sample.unread, len(by_unit))
    value = sum(measured.tokens for _, measured in own) / max(sum(chunk.share for chunk, _ in own), EPSILON)
    return spread_of(value, units, sum(measured.token_variance for _, measured in own))
