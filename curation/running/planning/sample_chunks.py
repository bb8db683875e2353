# SPDX-License-Identifier: Apache-2.0
"""Chunks of a sample, and measurements of what the stages and outputs of a recipe do with a chunk."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa

from curation.base.arrays import as_large_strings, text_bytes_of
from curation.base.contract import ID, ROW, TEXT, Engine, Frame
from curation.base.parquet import write_table
from curation.reading.excerpts import MAX_DOCUMENT_BYTES
from curation.recipes.recipe import Recipe
from curation.record.documents import document_options, document_schema, in_schema
from curation.record.large_shares import most_equal
from curation.record.lost_groups import SampledDocument, starts_of
from curation.record.partitions import with_ids
from curation.record.segments import Segment
from curation.rules.groups import groups_in
from curation.running.planning.survey_numbers import FileKind, StageSurvey, Survey, add_survey, add_units, empty_survey
from curation.stages import CorpusStage, RowStage, Stage
from curation.stages.base import StageSample, added_columns
from curation.stages.invoke import apply_stage, compute_keys, forecast
from curation.stages.outcome import Outcome
from curation.stages.rows.language import Language
from curation.stages.text_sizes import TextsGrowError, bounded_texts
from curation.tokens.tokenization import Tokenizer

TOKENIZED_BYTES = 256 << 10  # bytes of a chunk that are tokenized


class SampleChunk(NamedTuple):
    """Documents of one kind of file, and their share of the kind's stored bytes.

    units   the number of each document's excerpt (int64)
    """

    kind: FileKind
    table: pa.Table
    columns: list[str]
    share: float
    units: np.ndarray

    def slice(self, first: int, stop: int) -> SampleChunk:
        """Return some of the documents. `share` stays that of the whole chunk."""
        return self._replace(table=self.table.slice(first, stop - first), units=self.units[first:stop])


class Chain(NamedTuple):
    """What the measurement of a chunk needs. `stages` are prepared."""

    recipe: Recipe
    engine: Engine
    tokenizer: Tokenizer | None
    stages: Sequence[Stage]
    segments: list[Segment]
    shares: dict[str, float]  # input -> share of its documents that its limits keep


def measure(chain: Chain, chunk: SampleChunk, like: Survey) -> Survey:
    """Pass a chunk through the stages, and return the numbers of the chunk alone, not scaled to all inputs. If texts
    grow too large, the chunk is divided."""
    try:
        with bounded_texts(MAX_DOCUMENT_BYTES):
            return _pass_through(chain, chunk, like)
    except TextsGrowError as error:
        measured, step = empty_survey(like), -(-len(chunk.table) // error.parts)
        for first in range(0, len(chunk.table), step):
            part = measure(chain, chunk.slice(first, first + step), like)
            add_survey(measured, part, 1, 1)
            add_units(measured.stages, part.stages)
            measured.id_bytes = part.id_bytes
        return measured


def _pass_through(chain: Chain, chunk: SampleChunk, like: Survey) -> Survey:
    recipe, engine, measured = chain.recipe, chain.engine, empty_survey(like)
    measured.documents, measured.text_bytes = len(chunk.table), text_bytes_of(chunk.table)
    frame = engine.from_arrow(chunk.table)
    lost: dict[int, tuple[str, str]] = {}  # row of the chunk -> stage and reason
    unlabelled: dict[int, np.ndarray] = {}  # stage `language` -> rows of the chunk without a label
    rows = np.arange(len(chunk.table))  # of the frame
    for segment in chain.segments:
        for number in segment.row_stages:
            stage, before = cast(RowStage, chain.stages[number]), frame
            frame, outcome = _apply_row_stage(engine, before, stage, measured.stages[number], chunk.units[rows])
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
            found = forecast(comparing, StageSample(documents=len(frame), keys=keys, source=chunk.kind.input))
            measured.stages[number].groups = {**found.groups}
            measured.stages[number].reached = {chunk.kind.input: len(frame)}
            measured.stages[number].equal = dict(most_equal(chunk.kind.input, keys))
            size += sum(key.nbytes for key in keys.values())
            measured.stages[number].seconds = time.perf_counter() - started
            ones = {name: np.ones(len(frame), np.int64) for name in comparing.writes()}  # one group per document
            frame = engine.with_columns(frame, ones) if ones else frame
        measured.segments[segment.number] = size
    for number, without in unlabelled.items():
        causes = Counter(lost[row] for row in without.tolist() if row in lost)
        measured.stages[number].unlabelled, measured.stages[number].lost = len(without), dict(causes)
    for number, entry in enumerate(measured.stages):
        measured.seconds["keys" if isinstance(recipe.stages[number], CorpusStage) else "stages"] += entry.seconds
    _measure_outputs(chain, chunk, engine.to_arrow(frame), chunk.units[rows], measured)
    measured.documents_seen = [
        SampledDocument(chunk.kind.input, text, dict(zip(chunk.columns, values, strict=True)), lost.get(row), 1)
        for row, (text, values) in enumerate(zip(*starts_of(chunk.table, chunk.columns), strict=True))
    ]
    return measured


def _cut_bytes(engine: Engine, before: Frame, frame: Frame, outcome: Outcome) -> tuple[float, float]:
    """Return the bytes that a stage cuts from documents that it keeps, and the bytes of these documents before the
    stage."""
    sizes = engine.byte_lengths(before[TEXT])
    sizes = sizes if outcome.verdict is None else sizes[outcome.verdict.kept]
    return float(np.maximum(sizes - engine.byte_lengths(frame[TEXT]), 0).sum()), float(sizes.sum())


def _apply_row_stage(
    engine: Engine, frame: Frame, stage: RowStage, survey: StageSurvey, units: np.ndarray
) -> tuple[Frame, Outcome]:
    """Return the frame after the stage, and the outcome. `units` has the excerpt of each row."""
    survey.documents_in = len(frame)
    started = time.perf_counter()
    frame, outcome = apply_stage(engine, frame, stage)
    survey.seconds = time.perf_counter() - started
    survey.documents_out = len(frame)
    survey.edited = 0 if outcome.edited is None else int(outcome.edited.sum())
    survey.reasons = {} if outcome.verdict is None else {k: float(n) for k, n in outcome.verdict.counts().items() if n}
    if outcome.verdict is not None:
        survey.units[()] = _by_unit(units, outcome.verdict.kept)
        for groups, numbers in zip(groups_in(stage.shown_rules().by_group), outcome.groups, strict=True):
            counts, gone = np.bincount(numbers), np.bincount(numbers, ~outcome.verdict.kept)
            for number in np.flatnonzero(counts).tolist():
                key, own = (groups.column, groups.name(number)), numbers == number
                survey.by_group[key] = float(counts[number]), float(gone[number])
                survey.units[key] = _by_unit(units[own], outcome.verdict.kept[own])
    return frame, outcome


def _by_unit(units: np.ndarray, kept: np.ndarray) -> dict[int, tuple[float, float]]:
    """Return, for each excerpt, the number of its rows and how many of them are not kept."""
    documents, gone = np.bincount(units), np.bincount(units, ~kept)
    return {unit: (float(documents[unit]), float(gone[unit])) for unit in np.flatnonzero(documents).tolist()}


def _measure_outputs(chain: Chain, chunk: SampleChunk, kept: pa.Table, units: np.ndarray, measured: Survey) -> None:
    """Write the kept documents to memory and tokenise some of them, to measure sizes, tokens and times.

    units   the excerpt of each kept document
    """
    measured.kept_documents, measured.kept_bytes = len(kept), text_bytes_of(kept)
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
        _measure_tokens(chain.tokenizer, kept, units, measured)


def _measure_tokens(tokenizer: Tokenizer, kept: pa.Table, units: np.ndarray, measured: Survey) -> None:
    """Tokenise documents at even distances. From them, estimate the tokens of all kept documents, and of each unit."""
    every = max(-(-measured.kept_bytes // TOKENIZED_BYTES), 1)
    chosen = np.arange(0, len(kept), int(every))
    sizes = pa.compute.binary_length(kept.column(TEXT)).to_numpy().astype(np.float64)
    started = time.perf_counter()
    chunks = [as_large_strings(chunk) for chunk in kept.column(TEXT).take(chosen).chunks if len(chunk)]
    packed = list(map(tokenizer.pack, chunks))
    tokens = np.concatenate([part.lengths for part in packed]).astype(np.float64)
    own = sizes[chosen]
    tokenized = max(float(own.sum()), 1.0)
    rate = float(tokens.sum()) / tokenized
    measured.tokens = rate * measured.kept_bytes
    measured.seconds["tokenize"] = (time.perf_counter() - started) * measured.kept_bytes / tokenized
    rest = tokens - rate * own
    measured.token_variance = float(every * (every - 1) * (rest @ rest))
    by_unit = np.bincount(units, rate * sizes)
    by_unit += np.bincount(units[chosen], every * rest, len(by_unit))  # a unit may be in another language
    measured.unit_tokens = {int(unit): float(by_unit[unit]) for unit in np.unique(units)}
    for texts, part in zip(chunks, packed, strict=True):
        measured.losses.add_documents(tokenizer, texts, part.ids, part.lengths, range(len(texts)))
