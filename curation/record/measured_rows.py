# SPDX-License-Identifier: Apache-2.0
"""The measures of all documents that reached a filter, on disk until the end of a run. The files take 13 bytes per
document, and 4 per measure and per column of groups. The report draws its sample from these measures.

A sample by hashes of texts would need only a few rows per slice, but would have all copies of a text or none. A sample
by positions is right with any copies, but positions are known only when all slices are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from curation.base.arrays import seeded_hashes
from curation.base.contract import ROW
from curation.base.system.files import numbered_path
from curation.record.partitions import open_partition
from curation.rules.groups import groups_in
from curation.stages import RowStage, Stage
from curation.stages.measured_rules import measured_rules, names_of, rules_of
from curation.stages.outcome import Outcome

VALUES = ".values.arrow"  # suffix of files
STAGE, OTHERS, ORDER = "stage", "others", "order"
MAX_VALUE = 2**31 - 1  # larger measures are stored as this number
SEED = 0


class ReachedRows(NamedTuple):
    """The rows of a filter.

    stage   its number
    folder  the folder of its segment
    counts  int64: documents of each slice that reached it
    """

    stage: int
    folder: Path
    counts: np.ndarray


def group_column(number: int) -> str:
    """Return the name of the column with group numbers, for the column `groups_in(rules)[number]`. The name has a
    space, so no measure has the same name."""
    return f"group {number}"


def values_schema(stages: Sequence[Stage]) -> pa.Schema | None:
    """Return the schema of the rows of all filters: stage, row, whether a rule that is not on measures removes the
    document, groups, measures. None for a recipe without rules on measures."""
    filters = [stage for stage in stages if isinstance(stage, RowStage) and measured_rules(stage)]
    names = names_of(rule for stage in filters for rule in measured_rules(stage))
    groups = max((len(groups_in(rules_of(stage))) for stage in filters), default=0)
    columns = [(group_column(number), pa.int32()) for number in range(groups)]
    columns += [(name, pa.int32()) for name in names]
    return pa.schema([(STAGE, pa.int32()), (ROW, pa.int64()), (OTHERS, pa.bool_()), *columns]) if names else None


def values_of(schema: pa.Schema, number: int, rows: pa.ChunkedArray, stage: RowStage, outcome: Outcome) -> pa.Table:
    """Return the rows to store for a frame that reached the stage `number`. `rows` is the column `row` of the frame."""
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
    """Return at most `limit` of `total` positions, ascending. The positions are divided into equal ranges, and a hash
    chooses one of each range."""
    count = min(total, limit)
    edges = np.array([number * total // count for number in range(count + 1)] if count else [0], np.int64)
    width = np.diff(edges)
    return edges[:-1] + (seeded_hashes(np.arange(count), SEED) % width.astype(np.uint64)).astype(np.int64)


class WantedRows(NamedTuple):
    """Rows of a filter to read.

    reached    the rows of the filter
    places     documents as (slice, row), which may have reached the filter
    positions  int64, ascending: positions among all documents that reached the filter
    """

    reached: ReachedRows
    places: Sequence[tuple[int, int]]
    positions: np.ndarray


def read_rows(wanted: Sequence[WantedRows]) -> list[tuple[np.ndarray, pa.Table]]:
    """Return two results for each filter. The first tells which of its `places` reached it (bool). The second is a
    table: the rows of these places, in the order of `places`, then the rows at its `positions`. Each file is opened
    once for all filters."""
    ends = [np.cumsum(each.reached.counts) for each in wanted]
    found = [np.zeros(len(each.places), bool) for each in wanted]
    tables: list[list[pa.Table]] = [[] for _ in wanted]
    for (folder, number), asking in _by_file(wanted, ends).items():
        batches = _batches_by_stage(folder, number)
        for k in asking:
            own = pa.Table.from_batches(batches[wanted[k].reached.stage])
            tables[k].append(_taken(own, number, wanted[k], int(ends[k][number]), found[k]))
    return [
        (is_there, pa.concat_tables(parts).sort_by(ORDER).drop_columns(ORDER))
        for is_there, parts in zip(found, tables, strict=True)
    ]


def _by_file(wanted: Sequence[WantedRows], ends: Sequence[np.ndarray]) -> dict[tuple[Path, int], list[int]]:
    """Return the files to read, as the folder of a segment and the number of a slice, each with the indices of `wanted`
    that have rows in it."""
    files: dict[tuple[Path, int], list[int]] = {}
    for k, (reached, places, positions) in enumerate(wanted):
        drawn = np.searchsorted(ends[k], positions, side="right").tolist()
        for number in sorted({*drawn, *(number for number, _ in places)}):
            if reached.counts[number]:
                files.setdefault((reached.folder, number), []).append(k)
    return files


def _batches_by_stage(folder: Path, number: int) -> dict[int, list[pa.RecordBatch]]:
    """Return the batches of a slice by stage. Each batch has rows of one filter, in the order of `row`."""
    batches: dict[int, list[pa.RecordBatch]] = {}
    for batch in open_partition(numbered_path(folder, number, VALUES)).to_batches():
        batches.setdefault(batch.column(STAGE)[0].as_py(), []).append(batch)
    return batches


def _taken(own: pa.Table, number: int, wanted: WantedRows, end: int, found: np.ndarray) -> pa.Table:
    """Return the wanted rows of the slice `number`, with the column ORDER: their places in the result. Set `found` to
    true for the places that the slice has. `own` has all rows of the slice. The rows of the slice end before position
    `end` among all rows of the filter."""
    _, places, positions = wanted
    stored = own.column(ROW).to_numpy()
    asked = np.array([k for k, (of, _) in enumerate(places) if of == number], np.int64)
    rows = np.array([places[k][1] for k in asked], np.int64)
    at = np.minimum(np.searchsorted(stored, rows), len(stored) - 1)
    is_there = stored[at] == rows
    found[asked] = is_there
    first, last = np.searchsorted(positions, [end - len(own), end]).tolist()
    drawn = positions[first:last] - (end - len(own))
    order = np.concatenate([asked[is_there], np.arange(first, last) + len(places)])
    return own.take(pa.array(np.concatenate([at[is_there], drawn]))).append_column(ORDER, pa.array(order))
