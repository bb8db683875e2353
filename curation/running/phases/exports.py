# SPDX-License-Identifier: Apache-2.0
"""Exports in CSV, JSON Lines or Parquet: `raw/` holds the documents as read, `cleaned/` the kept ones.

Files are cut at fixed counts of documents and bytes, so they do not depend on slices and workers. The cuts are known
before the files are written, so tasks can write the files in parallel. A task of `raw/` reads some slices again, and
writes all files that begin in them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from curation.base.arrays import Ends, cut_counts, map_file
from curation.base.errors import IntegrityError, counted
from curation.base.parquet import TableWriter
from curation.base.system.files import commit, file_sha256, numbered_path
from curation.base.system.interrupts import check as check_interrupts
from curation.reading.changes import check_unchanged
from curation.reading.sampling import read_sampled
from curation.reading.split_settings import SEPARATOR
from curation.recipes.exports import export_format, file_name, is_one_file
from curation.record.documents import document_options, document_schema, in_schema, row_groups
from curation.record.partitions import with_ids
from curation.record.report_schema import CLEANED, RAW
from curation.record.slice_notes import READ
from curation.record.stored_plan import with_urls
from curation.running.phases.joining import Joiner
from curation.tokens.document_rows import document_path
from curation.tokens.ordering import SPLIT
from curation.tokens.token_spans import parts_of

if TYPE_CHECKING:
    from curation.base.contract import Engine
    from curation.reading.source_files import Slice
    from curation.recipes.recipe import Output
    from curation.record.ledger import SliceTotals
    from curation.record.stored_plan import Plan

# If the last file of a task ends inside a slice, two tasks read this slice. With more slices per task, fewer slices are
# read twice.
MANY_SLICES, MAX_RAW_SLICES = 256, 8
MEMBER_BYTES = 4 << 20  # of lines. With zstd, members of 1 MiB are 3.6 % larger in sum, those of 16 MiB 1 % smaller
# Of 20.7 MB of JSON Lines, gzip level 4 leaves 38.5 % at 54 MB/s, level 6 leaves 37.1 % at 20 MB/s, and zstd level 3
# leaves 34.5 % at 198 MB/s (2026-11-30, one shared core).
GZIP_LEVEL, ZSTD_LEVEL = 4, 3


class RawFiles(NamedTuple):
    """Consecutive files of `raw/` that one task writes. Their documents are in the partitions `first` to `stop`
    (exclusive).

    skip    documents of the partition `first` that are in earlier files
    number  number of the first file
    rows    documents of each file
    """

    first: int
    stop: int
    skip: int
    number: int
    rows: list[int]


def plan_raw(output: Output, segment: Path, totals: SliceTotals) -> Iterator[RawFiles]:
    """Yield the files of `raw/` for each task: those that begin in some consecutive partitions.

    A file has at most `part_documents` documents and `part_bytes` of text, but at least one document. `totals` are the
    counts of the first segment, whose folder is `segment`.
    """
    rows = [int(totals.read.sum())]
    if not is_one_file(output.raw):
        counts = zip(totals.read.tolist(), totals.bytes_read.tolist(), strict=True)
        runs = ((*count, partial(_read_sizes, segment, number)) for number, count in enumerate(counts))
        rows = list(cut_counts(runs, output.part_bytes, output.part_documents)) or [0]
    starts, ends = np.cumsum([0, *rows]), np.cumsum(totals.read)
    firsts = np.searchsorted(ends, starts[:-1], side="right")  # the partition in which each file begins
    stops = np.searchsorted(ends, starts[1:], side="left") + 1  # the partition after the one in which it ends
    tasks = firsts // min(max(len(ends) // MANY_SLICES, 1), MAX_RAW_SLICES)
    for low, high in pairwise([0, *(np.flatnonzero(np.diff(tasks)) + 1).tolist(), len(rows)]):
        first = min(int(firsts[low]), len(ends))
        skip = int(starts[low]) - (int(ends[first - 1]) if first else 0)
        yield RawFiles(first, min(int(stops[high - 1]), len(ends)), skip, low, rows[low:high])


def _read_sizes(segment: Path, number: int) -> Ends:
    """Return the running sum of the sizes of the texts that were read for a partition."""
    ends = map_file(numbered_path(segment, number, READ), np.int64)
    return [(ends, 0, len(ends))]


def slices_of(plan: Plan, files: RawFiles) -> list[Slice]:
    """Return the slices whose documents are in some files of `raw/`."""
    first, stop = plan.slices.task_starts[[files.first, files.stop]].tolist()
    return plan.slices[first:stop]


def write_raw(
    plan: Plan, folder: Path, files: RawFiles, engine: Engine, batch_bytes: int, docs: np.ndarray,
    urls: Sequence[str] = (),
) -> dict[str, str]:  # fmt: skip
    """Write some files of `raw/`, which have the documents as they were before any stage. Return path -> SHA-256.

    docs  int64: `doc` of the first row of each slice
    urls  URLs of the slices, including their secrets; empty if no URL has a secret

    Raises InputError if an input has changed since planning, and IntegrityError if it has fewer documents than the
    first segment has read.
    """
    schema, output = document_schema(plan.slices.carried), plan.recipe.output

    def tables() -> Iterator[pa.Table]:
        skip, missing = files.skip, sum(files.rows)
        last = plan.slices.task_starts[files.stop - 1]
        for input_slice in with_urls(slices_of(plan, files), urls):
            base = int(docs[input_slice.index])
            parts = parts_of(input_slice, batch_bytes, plan.recipe.tokenizer, plan.tokenizer)
            for batch, _ in read_sampled(engine, input_slice, batch_bytes, plan.recipe.seed, parts):
                check_interrupts()
                low, high = min(skip, len(batch.frame)), min(skip + missing, len(batch.frame))
                skip, missing = skip - low, missing - (high - low)
                if low < high:
                    rows = engine.to_arrow(batch.frame).slice(low, high - low)
                    yield in_schema(with_ids(rows, input_slice.source, base, input_slice.is_split), schema)
                del batch
                if not missing and input_slice.index >= last:  # another task reads the rest
                    check_unchanged(input_slice)
                    return
        if missing:
            raise IntegrityError(
                f"raw/: {counted(missing, 'document')} fewer than the first time that the inputs were read. Start over "
                "with --force"
            )

    found = TableRows(tables())
    digests: dict[str, str] = {}
    for number, count in enumerate(files.rows, files.number):
        path, rows = _file(folder / RAW, output.raw, number), found.take(count)
        digests |= _write_file(path, output, row_groups(rows) if output.raw.endswith("parquet") else rows, schema)
    found.end()
    return digests


class TableRows:
    """The rows of tables, which the caller takes in order, any number at a time."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self.tables, self.rest = tables, pa.table({})

    def take(self, count: int) -> Iterator[pa.Table]:
        """Yield tables that together have the next `count` rows."""
        while count:
            table = self.rest if len(self.rest) else next(self.tables)
            rows, self.rest = table.slice(0, count), table.slice(count)
            count -= len(rows)
            yield rows

    def end(self) -> None:
        """Read the iterator of tables to its end, and check that no rows are left."""
        assert not [*self.tables] and not len(self.rest)


class CleanedFile(NamedTuple):
    """A file of `cleaned/`: `rows` rows of `documents/`, from row `first` of the part `part` on."""

    number: int
    part: int
    first: int
    rows: int


def write_cleaned_file(output: Output, folder: Path, file: CleanedFile, split: Collection[str]) -> dict[str, str]:
    """Write a file of `cleaned/` from rows of `documents/`, including copies. Return path -> SHA-256.

    split   names of the inputs whose documents are split, for `output.join`
    """
    schema, rows = pq.read_schema(document_path(folder, 0)), _rows_of(folder, file)
    if output.join:
        names = [name for name in schema.names if name not in (SEPARATOR, SPLIT)]  # parts may be in several splits
        schema, rows = pa.schema([schema.field(name) for name in names]), _joined(output, folder, file, split)
    return _write_file(_file(folder / CLEANED, output.cleaned, file.number), output, rows, schema)


def _joined(output: Output, folder: Path, file: CleanedFile, split: Collection[str]) -> Iterator[pa.Table]:
    """Yield the joined documents whose first kept part is a row of the file. Rows before and after the file may belong
    to the same documents."""
    part, first = file.part, file.first
    if file.rows and (part or first):  # read one row before the file, to see whether its document continues
        part, first = (part, first - 1) if first else (part - 1, _count_rows(folder, part - 1) - 1)
    start = int((part, first) != (file.part, file.first))
    rows = _rows_of(folder, CleanedFile(file.number, part, first, sys.maxsize)) if file.rows else iter(())
    return Joiner(split, output.join_separator).join(rows, start, file.rows)


def _count_rows(folder: Path, part: int) -> int:
    return int(pq.read_metadata(document_path(folder, part)).num_rows)


def _rows_of(folder: Path, file: CleanedFile) -> Iterator[pa.Table]:
    """Yield the rows of a file of `cleaned/`, one table per row group of `documents/`. There are fewer rows than
    `file.rows` if `documents/` ends earlier."""
    part, skip, missing = file.part, file.first, file.rows
    while missing and document_path(folder, part).exists():
        parts = pq.ParquetFile(document_path(folder, part))
        for group in range(parts.num_row_groups):
            count = parts.metadata.row_group(group).num_rows
            if skip < count and missing:
                check_interrupts()
                rows = parts.read_row_group(group).slice(skip, missing)
                missing -= len(rows)
                yield rows
            skip = max(skip - count, 0)
        part += 1


def _file(folder: Path, setting: str, number: int) -> Path:
    return folder / file_name(setting, number)


def _write_file(path: Path, output: Output, tables: Iterable[pa.Table], schema: pa.Schema) -> dict[str, str]:
    """Write the chosen columns to a file, and return its path -> SHA-256."""
    names = list(output.export_columns or schema.names)
    with commit(path) as temporary, open(temporary, "wb") as file:
        write = WRITERS[export_format(path.name)](file, pa.schema([schema.field(name) for name in names]))
        for table in tables:
            write(table.select(names))
        write(None)
    return {f"{path.parent.name}/{path.name}": file_sha256(path)}


# Each writer is called with tables, and with None at the end


def _csv_writer(file: Any, schema: pa.Schema) -> Callable[[pa.Table | None], None]:
    # Quotes only where needed, and doubled inside a field (RFC 4180), which pandas and csv can read
    writer = pc_csv.CSVWriter(file, schema, write_options=pc_csv.WriteOptions(quoting_style="needed"))
    return lambda table: writer.close() if table is None else writer.write_table(table)


def _parquet_writer(file: Any, schema: pa.Schema) -> Callable[[pa.Table | None], None]:
    writer = TableWriter(file, schema, document_options(schema))
    return lambda table: writer.close() if table is None else writer.write(table)


def _jsonl_writer(file: Any, schema: pa.Schema) -> Callable[[pa.Table | None], None]:
    def write(table: pa.Table | None) -> None:
        for lines in _lines(table):
            file.write(b"".join(lines))

    return write


def _compressed_writer(codec: str, level: int, file: Any, schema: pa.Schema) -> Callable[[pa.Table | None], None]:
    """Return a writer of JSON Lines in gzip members or zstd frames.

    A member ends with the line that brings its lines to MEMBER_BYTES or more. Readers see one stream. Members depend on
    the lines alone, so the bytes of the file do not depend on batches. Neither header has a time or a name.
    """
    compressor, waiting, size = pa.Codec(codec, compression_level=level), list[bytes](), 0

    def write(table: pa.Table | None) -> None:
        nonlocal size
        for line in (line for lines in _lines(table) for line in lines):
            waiting.append(line)
            size += len(line)
            if size >= MEMBER_BYTES:
                end_member()
        if table is None and (waiting or not file.tell()):  # a file without documents has an empty member
            end_member()

    def end_member() -> None:
        nonlocal size
        check_interrupts()
        file.write(compressor.compress(b"".join(waiting)))
        waiting.clear()
        size = 0

    return write


def _lines(table: pa.Table | None) -> Iterator[list[bytes]]:
    """Yield the rows of a table as lines of JSON, batch by batch."""
    for batch in [] if table is None else table.to_batches(1000):
        yield [orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in batch.to_pylist()]


WRITERS: dict[str, Callable[[Any, pa.Schema], Callable[[pa.Table | None], None]]] = {
    "csv": _csv_writer, "jsonl": _jsonl_writer, "parquet": _parquet_writer,
    "jsonl.gz": partial(_compressed_writer, "gzip", GZIP_LEVEL),
    "jsonl.zst": partial(_compressed_writer, "zstd", ZSTD_LEVEL),
}  # fmt: skip
