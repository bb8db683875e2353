# SPDX-License-Identifier: Apache-2.0
"""Exports in CSV, JSON Lines or Parquet: `raw/` holds the documents as read, `cleaned/` the kept ones.

Files are cut at fixed counts of documents and bytes, so they do not depend on slices and workers. Tasks write the files
of `cleaned/`. The runner writes those of `raw/` one at a time, and a resumed run writes that folder again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from curation.arrays import cut_tables
from curation.packing.samples import SAMPLE_FILES
from curation.reading.sampling import read_sampled
from curation.recipes.exports import export_format, file_name
from curation.running.documents_schema import PARQUET_OPTIONS, document_schema, in_schema
from curation.running.intermediate import Numbering, with_ids
from curation.system.files import commit, file_sha256, remove
from curation.system.interrupts import check as check_interrupts
from curation.system.steps import each

if TYPE_CHECKING:
    from curation.recipes.recipe import Output
    from curation.running.context import RunContext

RAW, CLEANED = "raw", "cleaned"
EXPORTED = (RAW, CLEANED, *SAMPLE_FILES)


def write_raw(context: RunContext, numbering: Numbering) -> dict[str, str]:
    """Write `raw/part-*`, the documents of all slices before any stage; return path -> SHA-256."""
    schema = document_schema(context.plan.slices.carried)
    engine, recipe = context.engine, context.plan.recipe

    def tables() -> Iterator[pa.Table]:
        for input_slice in each(numbering.slices, "writing raw/", "slice"):
            base = int(numbering.offsets[input_slice.index])
            for batch, _ in read_sampled(engine, input_slice, context.batch_bytes, recipe.seed):
                if len(batch.frame):
                    yield in_schema(with_ids(engine.to_arrow(batch.frame), input_slice.source, base), schema)

    return _write(context.folder / RAW, recipe.output, tables(), schema)


class CleanedFile(NamedTuple):
    """A file of `cleaned/`: so many rows of `documents/`, from a row of a part on."""

    number: int
    part: int
    first: int
    rows: int


def write_cleaned_file(output: Output, folder: Path, file: CleanedFile) -> dict[str, str]:
    """Write a file of `cleaned/`, rows of `documents/` including copies; return path -> SHA-256."""
    schema = pq.read_schema(_part_path(folder, 0))
    return _write_file(_file(folder / CLEANED, output.cleaned, file.number), output, _rows_of(folder, file), schema)


def _rows_of(folder: Path, file: CleanedFile) -> Iterator[pa.Table]:
    """The rows of a file of `cleaned/`, by row groups."""
    part, skip, missing = file.part, file.first, file.rows
    while missing:
        parts = pq.ParquetFile(_part_path(folder, part))
        for group in range(parts.num_row_groups):
            count = parts.metadata.row_group(group).num_rows
            if skip < count and missing:
                check_interrupts()
                rows = parts.read_row_group(group).slice(skip, missing)
                missing -= len(rows)
                yield rows
            skip = max(skip - count, 0)
        part += 1


def _part_path(folder: Path, number: int) -> Path:
    return folder / "documents" / f"part-{number:05d}.parquet"


def part_files(folder: Path) -> list[Path]:
    """Return the files of `documents/` or `removed/` in the order of their numbers, which may exceed five digits."""
    return sorted(folder.glob("part-*.parquet"), key=lambda path: (len(path.name), path.name))


def _file(folder: Path, setting: str, number: int) -> Path:
    return folder / file_name(setting, number)


def _write(folder: Path, output: Output, tables: Iterator[pa.Table], schema: pa.Schema) -> dict[str, str]:
    """Write the tables as files of at most `part_documents` rows and `part_bytes` of text, but at least one row; or as
    the one file that `output.raw` names."""
    remove(folder)
    if "." in output.raw:
        return _write_file(_file(folder, output.raw, 0), output, tables, schema)
    digests: dict[str, str] = {}
    groups = groupby(cut_tables(tables, output.part_documents, output.part_bytes), itemgetter(0))
    files = ((number, (rows for _, rows in group)) for number, group in groups)
    for number, rows in chain([next(files, (0, iter(())))], files):  # one empty file if there are no rows
        digests |= _write_file(_file(folder, output.raw, number), output, rows, schema)
    return digests


def _write_file(path: Path, output: Output, tables: Iterator[pa.Table], schema: pa.Schema) -> dict[str, str]:
    """Write the chosen columns to a file, and return its path -> SHA-256."""
    names = list(output.export_columns or schema.names)
    with commit(path) as temporary, open(temporary, "wb") as file:
        write = WRITERS[export_format(path.name)](file, pa.schema([schema.field(name) for name in names]))
        for table in tables:
            write(table.select(names))
        write(None)
    return {f"{path.parent.name}/{path.name}": file_sha256(path)}


# Writers: take tables, and None at the end


def _csv_writer(file: Any, schema: pa.Schema) -> Callable[[pa.Table | None], None]:
    # Quotes only where needed, doubled inside (RFC 4180): pandas and csv read it back
    writer = pc_csv.CSVWriter(file, schema, write_options=pc_csv.WriteOptions(quoting_style="needed"))
    return lambda table: writer.close() if table is None else writer.write_table(table)


def _parquet_writer(file: Any, schema: pa.Schema) -> Callable[[pa.Table | None], None]:
    writer = pq.ParquetWriter(file, schema, **PARQUET_OPTIONS)
    return lambda table: writer.close() if table is None else writer.write_table(table)


def _jsonl_writer(file: Any, schema: pa.Schema) -> Callable[[pa.Table | None], None]:
    def write(table: pa.Table | None) -> None:
        for batch in [] if table is None else table.to_batches(1000):
            file.write(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in batch.to_pylist()))

    return write


WRITERS: dict[str, Callable[[Any, pa.Schema], Callable[[pa.Table | None], None]]] = {
    "csv": _csv_writer, "jsonl": _jsonl_writer, "parquet": _parquet_writer,
}  # fmt: skip
