# SPDX-License-Identifier: Apache-2.0
"""Notes of a slice for the report and `measures/`: values of rules, measures, lengths, samples, places of records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from curation.contract import ID, ROW, Engine, Frame
from curation.reading.places import Mark
from curation.recipes.recipe import Recipe
from curation.rules.tallies import SIZE, Tallies, Tally, bins_of
from curation.running.candidates import SCHEMA, Candidates
from curation.running.intermediate import TableFile
from curation.running.ledger import SliceRecord
from curation.stages import RowStage, Stage

SAMPLES, MEASURES = ".samples.arrow", ".measures.arrow"  # suffixes of files


def measured_names(stages: list[Stage]) -> list[str]:
    """Return the measures of all rules of a recipe, each once."""
    rules = [rule for stage in stages if isinstance(stage, RowStage) for rule in stage.rules_on_measures()]
    return list(dict.fromkeys(name for rule in rules for name in rule.measures))


def measures_schema(stages: list[Stage]) -> pa.Schema:
    """Return the schema of the measures of a slice: row, id, number of the stage, and one column per measure."""
    return pa.schema([(ROW, pa.int64()), (ID, pa.large_string()), ("stage", pa.int32())]
                     + [(name, pa.int64()) for name in measured_names(stages)])  # fmt: skip


def suffixes(recipe: Recipe) -> list[str]:
    """Return the suffixes of the files that the notes of a slice write."""
    return [SAMPLES, MEASURES] if recipe.output.measures else [SAMPLES]


class SliceNotes:
    """The notes of a slice, filled frame by frame.

    engine  the engine of the frames
    recipe  the recipe of the run
    paths   temporary files, one per suffix
    """

    def __init__(self, engine: Engine, recipe: Recipe, paths: list[Path]) -> None:
        self.engine = engine
        self.candidates = Candidates(recipe.report.samples)
        self.tallies: dict[int, Tallies] = {}
        self.lengths = np.zeros(SIZE, np.int64)
        self.marks: list[Mark] = []
        self.samples = TableFile(paths[0], SCHEMA)
        self.measures_schema = measures_schema(recipe.stages)
        self.measures = TableFile(paths[1], self.measures_schema) if recipe.output.measures else None

    def add_lengths(self, sizes: np.ndarray) -> None:
        """Add the bytes of texts that were read."""
        self.lengths += np.bincount(bins_of(sizes), minlength=SIZE)

    def add_measures(self, number: int, stage: RowStage, frame: Frame, measures: Mapping[str, np.ndarray]) -> None:
        """Add the measures that a stage computed."""
        rules = stage.rules_on_measures()
        if not rules or not len(frame):
            return
        if number not in self.tallies:
            self.tallies[number] = Tallies(rules)
        self.tallies[number].add(measures)
        if self.measures is not None:
            rows = self.engine.to_arrow(frame[[ROW, ID]])
            columns = {ROW: rows.column(ROW), ID: rows.column(ID), "stage": np.full(len(rows), number, np.int32)}
            columns |= {name: pa.array(values) for name, values in measures.items()}
            schema = self.measures_schema
            arrays = [columns.get(field.name, pa.nulls(len(rows), field.type)) for field in schema]
            self.measures.write(pa.table(arrays, schema=schema))

    def finish(self, numbers: tuple[int, ...], record: SliceRecord) -> None:
        """Write the candidates, and put the counts in the record. `numbers`: those of the stages in the record."""
        self.samples.write(self.candidates.table())
        for number, count in zip(numbers, record.stages, strict=True):
            count.tallies = self.tallies[number].result() if number in self.tallies else []
        bins = np.flatnonzero(self.lengths)
        record.lengths = Tally(bins=bins.tolist(), counts=self.lengths[bins].tolist())
        record.marks = len(self.marks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for file in (self.samples, self.measures):
            if file is not None:
                file.__exit__(*error)


__all__ = ["MEASURES", "SAMPLES", "SliceNotes", "measured_names", "suffixes"]
