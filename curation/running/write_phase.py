# SPDX-License-Identifier: Apache-2.0
"""`documents/` and the tokens of its parts. Parts are cut by counts of documents and bytes, never by slices."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.arrays import cut_tables, end_of_piece, joined, positions_of
from curation.contract import ID, ROW, TEXT
from curation.errors import IntegrityError
from curation.files import begin_sync, commit, file_sha256, piece_path, write_json
from curation.packing.token_files import token_files
from curation.reading.source_files import Slice
from curation.recipe import Output
from curation.running.intermediate import Parts, open_part, with_ids
from curation.stages import Stage
from curation.stages.base import added_columns

if TYPE_CHECKING:
    from curation.running.plan import Plan

ROW_GROUP_DOCUMENTS = 20_000
ROW_GROUP_BYTES = 16 << 20  # of text
DOCUMENT_SCHEMA = pa.schema(
    [("doc", pa.int64()), (ID, pa.large_string()), ("source", pa.string()), (TEXT, pa.large_string())]
)
# zstd level 1 writes twice as fast as level 3; text gains nothing from dictionaries and statistics.
PARQUET_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "data_page_size": 256 << 10,  # 5 % faster to write than 1 MB, of the same size
    "use_dictionary": ["source"],
    "write_statistics": ["doc"],
}


def document_schema(slices: Sequence[Slice], stages: Sequence[Stage] = ()) -> pa.Schema:
    """The columns of `documents/`: the four that are always there, then whatever an input carries along, then what the
    stages have added."""
    carried = dict.fromkeys((name for piece in slices for name in piece.columns), "large_string")
    return pa.schema([*DOCUMENT_SCHEMA, *(pa.field(*column) for column in (carried | added_columns(stages)).items())])


def in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table's columns as the schema has them; null where its input has no such column."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


class OutputPart(NamedTuple):
    """Rows `start` to `stop` of the last segment, of one source; `documents` of them are kept."""

    number: int
    source: str
    start: int
    stop: int
    documents: int


def cut_output_parts(
    sources: Sequence[tuple[str, int, int]], sizes: np.ndarray, alive: np.ndarray, output: Output,
    copies: Mapping[str, int] = MappingProxyType({}),
) -> list[OutputPart]:  # fmt: skip
    """The parts of `documents/`: each of at most `part_documents` kept documents and `part_bytes` of their text
    (one document at least), and of one source. Parts of a source are about equal, so that no worker waits long for
    the last one. `sources` are (name, first row, row after the last); one with `copies` is there so many times, one
    whole copy after the other."""
    parts: list[OutputPart] = []
    repeated = [span for span in sources for _ in range(copies.get(span[0], 1))]
    for name, low, high in repeated:
        rows = positions_of(alive[low:high])  # from `low` on
        ends = sizes[low:high][rows]
        np.cumsum(ends, out=ends)
        total = int(ends[-1]) if len(ends) else 0
        target = -(-total // max(-(-total // output.part_bytes), 1))
        first = 0
        while first < len(rows):
            last = end_of_piece(ends, first, target, output.part_documents)
            start, stop = low + int(rows[first]), low + int(rows[last - 1]) + 1
            parts.append(OutputPart(len(parts), name, start, stop, last - first))
            first = last
    return parts


class OutputJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker needs, with the plan, to write any output part."""

    offsets: np.ndarray  # first doc of each slice
    parts: Parts
    mask: Path
    output_parts: list[OutputPart]
    work: Path
    documents: Path


def write_output_part(plan: Plan, job: OutputJob, number: int) -> None:
    """Writes `documents/part-NNNNN.parquet`, the tokens of its documents, and last the done-record."""
    part = job.output_parts[number]
    started = time.perf_counter()
    path = job.documents / f"part-{number:05d}.parquet"
    schema, mask = document_schema(plan.slices, plan.recipe.stages), np.load(job.mask, mmap_mode="r")
    digest = hashlib.sha256()
    tally: dict[str, Any] = {"source": part.source, "documents": 0, "bytes": 0, "tokens": 0, "special_hits": 0}
    files = token_files(plan.recipe, job.work, number) if plan.recipe.output.formats else nullcontext()
    with (
        files as tokens,
        commit(path) as temporary,
        pa.OSFile(str(temporary), "wb") as file,
        pq.ParquetWriter(file, schema, **PARQUET_OPTIONS) as writer,
    ):
        if tokens and tokens.tokenizer.identity != plan.tokenizer:
            name = plan.recipe.tokenizer.name
            raise IntegrityError(f"a file of tokenizer {name} changed during the run. Put it back, then run again")
        for table in _row_groups(_kept_documents(plan, job, part, mask, schema)):
            writer.write_table(table)
            begin_sync(file.fileno())
            _digest_documents(digest, table)
            tally["documents"] += len(table)
            tally["bytes"] += int(pc.sum(pc.binary_length(table.column(TEXT))).as_py() or 0)
            if tokens:
                tokens.write(table.column(TEXT))
    if tokens:
        tally |= tokens.counts()
    tally |= {
        "file": path.name,
        "sha256": file_sha256(path),
        "digest": digest.hexdigest(),
        "seconds": time.perf_counter() - started,
    }
    write_json(piece_path(job.work, number, ".json"), tally)


def _kept_documents(
    plan: Plan, job: OutputJob, part: OutputPart, mask: np.ndarray, schema: pa.Schema
) -> Iterator[pa.Table]:
    """The kept documents of an output part, batch by batch, with `doc`, `id` and `source`."""
    added = added_columns(plan.recipe.stages)
    for span in job.parts.spans(part.start, part.stop):
        piece = plan.slices[span.piece]
        table = open_part(job.parts.path(span.piece))
        table = table.select([ROW, ID, TEXT, *piece.columns, *added])
        table = table.slice(span.start, span.stop - span.start)
        done = int(job.parts.starts[span.piece]) + span.start
        for batch in table.to_batches():
            kept = np.asarray(mask[done : done + len(batch)])
            done += len(batch)
            rows = pa.Table.from_batches([batch]).filter(pa.array(kept))
            if len(rows):
                yield in_schema(with_ids(rows, piece.source, int(job.offsets[span.piece])), schema)


def _row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows cut at fixed counts of documents and bytes, so that row groups do not show slices and batches."""
    for _, group in groupby(cut_tables(tables, ROW_GROUP_DOCUMENTS, ROW_GROUP_BYTES), itemgetter(0)):
        yield pa.concat_tables([rows for _, rows in group]).combine_chunks()


def _digest_documents(digest: Any, table: pa.Table) -> None:
    """Feeds (doc, id, text) of each row to `digest`, in a form that says where each string ends."""
    for name in ("doc", ID, TEXT):
        column = joined(table.column(name))
        if pa.types.is_large_string(column.type):
            offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
            digest.update(np.diff(offsets).tobytes())
            data = column.buffers()[2]
            if data is not None:
                digest.update(memoryview(data)[offsets[0] : offsets[-1]])
        else:
            digest.update(column.to_numpy().tobytes())


def write_empty_documents(folder: Path, schema: pa.Schema) -> dict[str, Any]:
    """`documents/` of a run that kept nothing: one file without rows."""
    path = folder / "part-00000.parquet"
    with commit(path) as temporary:
        pq.write_table(schema.empty_table(), temporary, **PARQUET_OPTIONS)
    return {"file": path.name, "sha256": file_sha256(path), "digest": hashlib.sha256().hexdigest()}
