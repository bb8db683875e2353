# SPDX-License-Identifier: Apache-2.0
"""The measures of all documents that reached a filter, on disk until the end of a run: 13 bytes per document, and 4 per
measure and per column of groups. The report draws its sample from them.

A sample by the hashes of texts would need a few rows per slice, but would have all copies of a text or none. Positions
are right for any copies, and are known only when all slices are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from curation.arrays import seeded_hashes
from curation.contract import ROW
from curation.rules.groups import groups_in
from curation.run_folder.partitions import open_partition
from curation.stages import RowStage, Stage
from curation.stages.measured_rules import measured_rules, names_of, rules_of
from curation.stages.outcome import Outcome
from curation.system.files import numbered_path

VALUES = ".values.arrow"  # suffix of files
STAGE, OTHERS = "stage", "others"
MAX_VALUE = 2**31 - 1  # larger measures are stored as this one
SEED = 0


class ReachedRows(NamedTuple):
    """The rows of a filter.

    stage   its number
    folder  of its segment
    counts  int64: documents of each slice that reached it
    """

    stage: int
    folder: Path
    counts: np.ndarray


def group_column(number: int) -> str:
    """Return the name of the column with the groups of `groups_in` of a number; no measure has a space in its name."""
    return f"group {number}"


def values_schema(stages: Sequence[Stage]) -> pa.Schema | None:
    """Return the schema of the rows of all filters: stage, row, whether rules on other things remove the document,
    groups, measures. None for a recipe without rules on measures."""
    filters = [stage for stage in stages if isinstance(stage, RowStage) and measured_rules(stage)]
    names = names_of(rule for stage in filters for rule in measured_rules(stage))
    groups = max((len(groups_in(rules_of(stage))) for stage in filters), default=0)
    columns = [(group_column(number), pa.int32()) for number in range(groups)]
    columns += [(name, pa.int32()) for name in names]
    return pa.schema([(STAGE, pa.int32()), (ROW, pa.int64()), (OTHERS, pa.bool_()), *columns]) if names else None


def values_of(schema: pa.Schema, number: int, rows: pa.ChunkedArray, stage: RowStage, outcome: Outcome) -> pa.Table:
    """Return the rows of a frame of the stage `number`. `rows` is the column `row`."""
    found = outcome.verdict.others if outcome.verdict is not None else None
    columns = {
        STAGE: np.full(len(rows), number, np.int32),
        ROW: rows,
        OTHERS: np.zeros(len(rows), bool) if found is None else found,
    }
    columns |= {group_column(place): groups.astype(np.int32) for place, groups in enumerate(outcome.groups)}
    for name in names_of(measured_rules(stage)):
        columns[name] = np.minimum(outcome.measures[name], MAX_VALUE).astype(np.int32)
    arrays = [columns[field.name] if field.name in columns else pa.nulls(len(rows), field.type) for field in schema]
    return pa.table(arrays, schema=schema)


def drawn_positions(total: int, limit: int) -> np.ndarray:
    """Return at most `limit` of `total` positions, ascending: one of each of as many equal ranges, by a hash."""
    count = min(total, limit)
    edges = np.array([number * total // count for number in range(count + 1)] if count else [0], np.int64)
    width = np.diff(edges)
    return edges[:-1] + (seeded_hashes(np.arange(count), SEED) % width.astype(np.uint64)).astype(np.int64)


def rows_at(reached: ReachedRows, positions: np.ndarray) -> pa.Table:
    """Return the rows at positions (ascending) among all documents that reached a filter."""
    ends = np.cumsum(reached.counts)
    slices = np.searchsorted(ends, positions, side="right")
    tables = []
    for number in np.unique(slices).tolist():
        own = positions[slices == number] - (ends[number] - reached.counts[number])
        table, rows = _open(reached, number)
        tables.append(table.take(pa.array(rows[own])))
    return pa.concat_tables(tables)


def rows_of(reached: ReachedRows, places: Sequence[tuple[int, int]]) -> tuple[np.ndarray, pa.Table | None]:
    """Return which of some documents, as (slice, row), reached a filter (bool), and their rows in this order; None for
    no rows."""
    asked, found, tables = np.array(places, np.int64).reshape(-1, 2), np.zeros(len(places), bool), []
    for number in np.unique(asked[:, 0]).tolist():
        own = np.flatnonzero(asked[:, 0] == number)
        table, rows = _open(reached, number)
        stored = table.column(ROW).to_numpy()[rows]
        at = np.minimum(np.searchsorted(stored, asked[own, 1]), max(len(stored) - 1, 0))
        is_there = stored[at] == asked[own, 1] if len(stored) else np.zeros(len(own), bool)
        found[own] = is_there
        tables.append(table.take(pa.array(rows[at[is_there]])).append_column("asked", pa.array(own[is_there])))
    return found, pa.concat_tables(tables).sort_by("asked").drop_columns("asked") if tables else None


def _open(reached: ReachedRows, number: int) -> tuple[pa.Table, np.ndarray]:
    """The table of a slice, and the positions of the rows of the filter in it, in the order of `row`."""
    table = open_partition(numbered_path(reached.folder, number, VALUES))
    return table, np.flatnonzero(table.column(STAGE).to_numpy() == reached.stage)
