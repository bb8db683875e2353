# SPDX-License-Identifier: Apache-2.0
"""Notes of a slice for the report and `measures/`: values of rules, measures, lengths, samples, locations of
records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from curation.base.arrays import write_array
from curation.base.contract import ID, ROW, Engine, Frame
from curation.reading.locations import Location
from curation.recipes.exports import is_one_file
from curation.recipes.recipe import Recipe
from curation.record.candidates import SCHEMA, Candidates
from curation.record.ledger import SliceRecord
from curation.record.measured_rows import VALUES, values_of, values_schema
from curation.record.partitions import IpcFile
from curation.rules.group_tallies import GroupTallies, tallies_of_groups
from curation.rules.groups import groups_in
from curation.rules.tallies import SIZE, Tallies, Tally, bins_of
from curation.stages import RowStage, Stage
from curation.stages.measured_rules import measured_rules, names_of, rules_of
from curation.stages.outcome import Outcome

FIXED = pa.schema(  # columns of `measures/` in every run
    [("doc", pa.int64()), (ID, pa.large_string()), ("source", pa.string()), ("stage", pa.string())]
)
SAMPLES, MEASURES, READ = ".samples.arrow", ".measures.arrow", ".read.bin"  # suffixes of files


def measured_fields(stages: list[Stage]) -> list[pa.Field]:
    """Return the columns of `measures/` that depend on the recipe: columns by which its rules distinguish groups, such
    as `language`, as strings; and the measures on which its rules have bounds, int64."""
    groups = [groups.column for stage in stages if isinstance(stage, RowStage) for groups in groups_in(rules_of(stage))]
    names = names_of(rule for stage in stages for rule in measured_rules(stage))
    own = [column for column in dict.fromkeys(groups) if column not in (*FIXED.names, *names)] if names else []
    return [pa.field(name, pa.large_string()) for name in own] + [pa.field(name, pa.int64()) for name in names]


def measures_schema(stages: list[Stage]) -> pa.Schema:
    """Return the schema of the measures of a slice: row, id, number of the stage, and `measured_fields`."""
    fixed = [pa.field(ROW, pa.int64()), pa.field(ID, pa.large_string()), pa.field("stage", pa.int32())]
    return pa.schema([*fixed, *measured_fields(stages)])


def suffixes(recipe: Recipe, is_read: bool) -> list[str]:
    """Return the suffixes of the files that the notes of a slice write. `is_read`: the segment reads inputs."""
    cuts_raw = is_read and bool(recipe.output.raw) and not is_one_file(recipe.output.raw)
    has_values = values_schema(recipe.stages) is not None
    return [SAMPLES] + [VALUES] * has_values + [MEASURES] * recipe.output.measures + [READ] * cuts_raw


class SliceNotes:
    """The notes of a slice, filled frame by frame.

    engine   the engine of the frames
    recipe   the recipe of the run
    paths    suffix -> temporary file
    columns  the carried columns of the slice
    """

    def __init__(self, engine: Engine, recipe: Recipe, paths: dict[str, Path], columns: Sequence[str]) -> None:
        self.engine = engine
        self.candidates = Candidates(recipe.report.samples, columns)
        self.tallies: dict[int, Tallies] = {}
        self.groups: dict[int, list[GroupTallies]] = {}
        self.lengths = np.zeros(SIZE, np.int64)
        self.locations: list[Location] = []
        self.firsts: list[np.ndarray] = []  # of `curation.reading.splitting.Parts`
        self.samples = IpcFile(paths[SAMPLES], SCHEMA)
        self.values_schema = values_schema(recipe.stages)
        self.values = IpcFile(paths[VALUES], self.values_schema) if self.values_schema else None
        self.measures_schema = measures_schema(recipe.stages)
        self.measures = IpcFile(paths[MEASURES], self.measures_schema) if MEASURES in paths else None
        self.read = pa.OSFile(str(paths[READ]), "wb") if READ in paths else None
        self.read_bytes = 0

    def add_lengths(self, sizes: np.ndarray) -> None:
        """Add the bytes of texts that were read. The running sum of these bytes (int64) is stored if it decides where
        files of `raw/` are cut."""
        self.lengths += np.bincount(bins_of(sizes), minlength=SIZE)
        if self.read is not None:
            write_array(self.read, np.cumsum(sizes, dtype=np.int64) + self.read_bytes)
            self.read_bytes += int(sizes.sum())

    def add_measures(self, number: int, stage: RowStage, frame: Frame, outcome: Outcome) -> None:
        """Add the measures that a stage computed, of documents or of their units."""
        if outcome.unit_measures:
            self.tallies.setdefault(number, Tallies(stage.shown_rules().of_units)).add(outcome.unit_measures)
        if outcome.groups and outcome.verdict is not None:
            tallies = self.groups.setdefault(number, tallies_of_groups(stage.shown_rules().by_group))
            for counts, groups in zip(tallies, outcome.groups, strict=True):
                counts.add(groups, outcome.measures, outcome.verdict.reason)
        if self.values is not None and self.values_schema is not None and len(frame) and measured_rules(stage):
            rows = self.engine.to_arrow(frame[[ROW]]).column(ROW)
            self.values.write(values_of(self.values_schema, number, rows, stage, outcome))
        rules, measures = stage.shown_rules().of_documents, outcome.measures
        if rules and len(frame):
            if number not in self.tallies:
                self.tallies[number] = Tallies(rules)
            self.tallies[number].add(measures)
        if self.measures is not None and len(frame) and measured_rules(stage):
            self.measures.write(self._measured(number, stage, frame, measures))

    def _measured(self, number: int, stage: RowStage, frame: Frame, measures: Mapping[str, np.ndarray]) -> pa.Table:
        """Return the rows of a frame for `measures/`; measures that only other stages compute are null."""
        groups, schema = groups_in(rules_of(stage)), self.measures_schema
        rows = self.engine.to_arrow(frame[list(dict.fromkeys([ROW, ID, *(each.column for each in groups)]))])
        columns: dict[str, Any] = {each.column: each.strings(rows.column(each.column)) for each in groups}
        columns |= {ROW: rows.column(ROW), ID: rows.column(ID), "stage": np.full(len(rows), number, np.int32)}
        columns |= {name: pa.array(values) for name, values in measures.items()}
        return pa.table([columns.get(field.name, pa.nulls(len(rows), field.type)) for field in schema], schema=schema)

    def finish(self, numbers: tuple[int, ...], record: SliceRecord) -> None:
        """Write the candidates, and put the counts into the record. `numbers` are the numbers of the stages in the
        record."""
        self.samples.write(self.candidates.table())
        for number, count in zip(numbers, record.stages, strict=True):
            count.tallies = self.tallies[number].result() if number in self.tallies else []
            count.groups = [counts.result() for counts in self.groups.get(number, [])]
        bins = np.flatnonzero(self.lengths)
        record.lengths = Tally(bins=bins.tolist(), counts=self.lengths[bins].tolist())
        record.locations = len(self.locations)
        record.measured = self.measures.rows if self.measures is not None else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for file in (self.samples, self.values, self.measures, self.read):
            if file is not None:
                file.__exit__(*error)
