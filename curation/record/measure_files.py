# SPDX-License-Identifier: Apache-2.0
"""`measures/`: files with the measures that the filters of a run computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from curation.base.parquet import file_options, write_table
from curation.base.system.files import commit, file_sha256, numbered_path
from curation.base.system.interrupts import check as check_interrupts
from curation.recipes.recipe import Recipe
from curation.record.partitions import Numbering, open_partition
from curation.record.removed import RemovedFile
from curation.record.slice_notes import FIXED, MEASURES, measured_fields

FOLDER = "measures"


def write_measures(
    folder: Path, file: RemovedFile, recipe: Recipe, numbering: Numbering, segments: Sequence[Path]
) -> dict[str, str]:
    """Write a file of `measures/`; return path -> SHA-256.

    A row is a document that reached a filter, in the order of `doc`: `doc`, `id`, `source`, the `stage`, and an int64
    column per measure, null for a measure that only other filters compute. The columns by which rules distinguish
    groups precede the measures, as strings.
    """
    schema = pa.schema([*FIXED, *measured_fields(recipe.stages)])
    stage_names = pa.array(recipe.stage_names, pa.string())

    def rows_of(number: int) -> pa.Table:
        tables = [open_partition(numbered_path(segment, number, MEASURES)) for segment in segments]
        rows = numbering.with_ids(pa.concat_tables(tables), number)
        rows = rows.sort_by([("doc", "ascending"), ("stage", "ascending")])
        place = rows.column_names.index("stage")
        return rows.set_column(place, "stage", stage_names.take(rows.column("stage"))).cast(schema)

    tables, number = [schema.empty_table()], file.first_partition
    while sum(map(len, tables)) < file.skip + file.rows:
        check_interrupts()
        tables.append(rows_of(number))
        number += 1
    rows = pa.concat_tables(tables).slice(file.skip, file.rows)
    path = folder / file.name
    with commit(path) as temporary:
        write_table(temporary, rows.combine_chunks(), file_options(schema, True))
    return {f"{folder.name}/{path.name}": file_sha256(path)}
