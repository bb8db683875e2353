# SPDX-License-Identifier: Apache-2.0
"""Documents in formats that people open: `raw/` as they were read, `cleaned/` as they were kept.

Files are cut at fixed counts of documents and bytes, so that they do not show how the work was divided. One file is
written at a time; a run that is killed writes its folder again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from curation.arrays import cut_tables
from curation.contract import Engine
from curation.files import commit, file_sha256, remove
from curation.packing.samples import SAMPLE_FILES, write_sample
from curation.reading.sampling import read_sampled
from curation.running.intermediate import Numbering, with_ids
from curation.running.write_phase import PARQUET_OPTIONS, document_schema, in_schema

if TYPE_CHECKING:
    from curation.recipe import Output, Recipe

RAW, CLEANED = "raw", "cleaned"
EXPORTED = (RAW, CLEANED, *SAMPLE_FILES)


def write_exports(
    engine: Engine, recipe: Recipe, numbering: Numbering, batch_bytes: int, folder: Path
) -> dict[str, str]:
    """`raw/`, `cleaned/` and the sample, where a recipe asks for them; gives path -> sha256."""
    digests: dict[str, str] = {}
    output = recipe.output
    if output.raw:
        digests |= write_raw(engine, numbering, batch_bytes, recipe, folder)
    if output.cleaned:
        digests |= write_cleaned(output, folder)
    if output.sample.batches:
        digests |= write_sample(output.sample, folder, recipe.seed)
    return digests


def write_raw(engine: Engine, numbering: Numbering, batch_bytes: int, recipe: Recipe, folder: Path) -> dict[str, str]:
    """`raw/part-*`: the documents of all slices before any stage; gives path -> sha256."""
    schema = document_schema(numbering.slices)

    def tables() -> Iterator[pa.Table]:
        for piece, base in zip(numbering.slices, numbering.offsets.tolist(), strict=True):
            for batch, _ in read_sampled(engine, piece, batch_bytes, recipe.seed):
                if len(batch.frame):
                    yield in_schema(with_ids(engine.to_arrow(batch.frame), piece.source, base), schema)

    return _write(folder / RAW, recipe.output.raw, recipe.output, tables(), schema)


def write_cleaned(output: Output, folder: Path) -> dict[str, str]:
    """`cleaned/part-*`: the rows of `documents/`, copies too; gives path -> sha256."""
    paths = part_files(folder / "documents")

    def tables() -> Iterator[pa.Table]:
        for path in paths:
            file = pq.ParquetFile(path)
            yield from (file.read_row_group(group) for group in range(file.num_row_groups))

    return _write(folder / CLEANED, output.cleaned, output, tables(), pq.read_schema(paths[0]))


def part_files(folder: Path) -> list[Path]:
    """The files of `documents/` or `removed/` in the order of their numbers, which may have more than five digits."""
    return sorted(folder.glob("part-*.parquet"), key=lambda path: (len(path.name), path.name))


def _write(folder: Path, format_: str, output: Output, tables: Iterator[pa.Table], schema: pa.Schema) -> dict[str, str]:
    """The rows of the tables in files of at most `part_documents` and `part_bytes` of text, one row at least."""
    remove(folder)
    digests: dict[str, str] = {}
    pieces = groupby(cut_tables(tables, output.part_documents, output.part_bytes), itemgetter(0))
    files = ((number, (rows for _, rows in piece)) for number, piece in pieces)
    for number, rows in chain([next(files, (0, iter(())))], files):  # one file where there are no rows
        path = folder / f"part-{number:05d}.{format_}"
        with commit(path) as temporary, open(temporary, "wb") as file:
            write = WRITERS[format_](file, schema)
            for table in rows:
                write(table)
            write(None)
        digests[f"{folder.name}/{path.name}"] = file_sha256(path)
    return digests


# Writers: called with tables, and with None at the end


def _csv_writer(file: Any, schema: pa.Schema) -> Callable[[pa.Table | None], None]:
    # Quoted where needed, quotes doubled: RFC 4180, what pandas and csv read back
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
