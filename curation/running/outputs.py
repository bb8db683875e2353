# SPDX-License-Identifier: Apache-2.0
"""What a run leaves: `documents/`, `tokens/`, `removed/`, `rejected.jsonl`.

Everything is cut by counts of documents and bytes, never by slices, so that it does not show how the work was divided.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.arrays import cut_tables, end_of_piece, joined, positions_of
from curation.contract import ID, ROW, TEXT
from curation.errors import IntegrityError
from curation.files import begin_sync, commit, file_sha256, piece_path, write_json
from curation.packing.token_files import token_files
from curation.reading.source_files import Slice, SourceFile
from curation.reading.urls import shown
from curation.recipe import Output
from curation.running.jobs import Plan
from curation.running.ledger import SliceRecord
from curation.running.parts import REMOVED_SCHEMA, Parts, open_part, with_ids
from curation.stages import Stage
from curation.stages.base import added_columns
from curation.stages.saved_index import SavedIndex

REMOVED_ROWS = 250_000  # of one file in removed/
ROW_GROUP_DOCUMENTS = 20_000
ROW_GROUP_BYTES = 16 << 20  # of text

DOCUMENT_SCHEMA = pa.schema(
    [("doc", pa.int64()), (ID, pa.large_string()), ("source", pa.string()), (TEXT, pa.large_string())]
)


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

    bases: np.ndarray  # first doc of each slice
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


# zstd level 1 writes twice as fast as level 3; text gains nothing from dictionaries and statistics.
PARQUET_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "data_page_size": 256 << 10,  # 5 % faster to write than 1 MB, of the same size
    "use_dictionary": ["source"],
    "write_statistics": ["doc"],
}


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
                yield in_schema(with_ids(rows, piece.source, int(job.bases[span.piece])), schema)


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


# removed/ and rejected.jsonl


class RemovedRows(NamedTuple):
    """What a whole-corpus stage removed for one reason, as positions in the rows of its segment."""

    parts: Parts
    stage: int
    reason: str
    row: np.ndarray
    kept_row: np.ndarray  # numbers in the saved index where there is one
    value: np.ndarray
    index_folder: str = ""  # of a saved index

    def kept_ids(self, kept_row: np.ndarray, slices: Sequence[Slice], bases: np.ndarray) -> pa.Array:
        """The ids of what stays, for some of `kept_row`."""
        if self.index_folder:
            return SavedIndex(self.index_folder).ids(kept_row)
        return ids_of(self.parts, kept_row, slices, bases)


REMOVED_OUTPUT = pa.schema(
    [
        ("doc", pa.int64()),
        (ID, pa.large_string()),
        ("source", pa.string()),
        ("stage", pa.string()),
        ("reason", pa.large_string()),
        ("value", pa.float64()),
        ("duplicate_of", pa.large_string()),
    ]
)


def write_removed(
    folder: Path, names: Sequence[str], slices: Sequence[Slice], bases: np.ndarray, segments: Sequence[Path],
    duplicates: Sequence[RemovedRows],
) -> dict[str, str]:  # fmt: skip
    """`removed/part-*.parquet` in the order of `doc`; gives path -> sha256."""
    digests: dict[str, str] = {}
    waiting: list[pa.Table] = []
    for number in range(len(slices)):
        waiting.append(_removed_of_slice(number, slices, bases, segments, duplicates))
        last = number == len(slices) - 1
        while sum(map(len, waiting)) >= REMOVED_ROWS or (last and (any(map(len, waiting)) or not digests)):
            rows = pa.concat_tables(waiting)
            path = folder / f"part-{len(digests):05d}.parquet"
            with commit(path) as temporary:
                table = _as_removed(rows.slice(0, REMOVED_ROWS), names, slices, bases, duplicates)
                pq.write_table(table, temporary, compression="zstd", compression_level=1)
            digests[f"{folder.name}/{path.name}"] = file_sha256(path)
            waiting = [rows.slice(REMOVED_ROWS)]
    return digests


def _removed_of_slice(
    number: int, slices: Sequence[Slice], bases: np.ndarray, segments: Sequence[Path], duplicates: Sequence[RemovedRows]
) -> pa.Table:
    """`doc`, `id`, `source`, `stage`, `reason`, `value`, and `kept_row`, which is -1 where a rule removed."""
    rules = pa.concat_tables([open_part(piece_path(folder, number, ".removed.arrow")) for folder in segments])
    tables = [rules.append_column("kept_row", pa.array(np.full(len(rules), -1)))]
    tables += [_duplicates_of_slice(number, found) for found in duplicates]
    return with_ids(pa.concat_tables(tables), slices[number].source, int(bases[number])).sort_by("doc")


def _as_removed(
    table: pa.Table, names: Sequence[str], slices: Sequence[Slice], bases: np.ndarray, duplicates: Sequence[RemovedRows]
) -> pa.Table:
    """The rows as `removed/` shows them, with the ids of the documents that stay."""
    stage, kept_row = (table.column(name).to_numpy() for name in ("stage", "kept_row"))
    encoded = table.column("reason").combine_chunks().dictionary_encode()
    reason, numbers = encoded.indices.to_numpy(), {name: k for k, name in enumerate(encoded.dictionary.to_pylist())}
    places = np.full(len(table), -1)
    ids = pa.array([], pa.large_string())
    for found in duplicates:
        at = np.flatnonzero((stage == found.stage) & (kept_row >= 0) & (reason == numbers.get(found.reason, -1)))
        places[at] = np.arange(len(ids), len(ids) + len(at))
        ids = pa.concat_arrays([ids, found.kept_ids(kept_row[at], slices, bases)])
    duplicate_of = ids.take(pa.array(places, mask=places < 0))
    shown = {"stage": pa.array(names, pa.string()).take(pa.array(stage)), "duplicate_of": duplicate_of}
    columns = [shown[name] if name in shown else table.column(name) for name in REMOVED_OUTPUT.names]
    return pa.table(columns, REMOVED_OUTPUT.names).cast(REMOVED_OUTPUT).combine_chunks()


def _duplicates_of_slice(number: int, found: RemovedRows) -> pa.Table:
    start, stop = found.parts.starts[number], found.parts.starts[number + 1]
    low, high = np.searchsorted(found.row, np.array([start, stop], found.row.dtype))  # of another type, all are copied
    rows = open_part(found.parts.path(number)).select([ROW, ID]).take(pa.array(found.row[low:high] - start))
    count = high - low
    columns = [
        rows.column(ROW),
        rows.column(ID),
        np.full(count, found.stage, np.int32),
        pa.repeat(pa.scalar(found.reason, pa.large_string()), count),
        found.value[low:high],
        found.kept_row[low:high],
    ]
    return pa.table(columns, schema=REMOVED_SCHEMA.append(pa.field("kept_row", pa.int64())))


def ids_of(parts: Parts, rows: np.ndarray, slices: Sequence[Slice], bases: np.ndarray) -> pa.Array:
    """The ids of rows of a segment, fetched by position from the parts that hold them."""
    order = np.argsort(rows, kind="stable")
    pieces, local = parts.locate(rows[order])
    found = [pa.array([], pa.large_string())]
    for piece in np.unique(pieces).tolist():
        first, last = np.searchsorted(pieces, [piece, piece + 1])
        table = open_part(parts.path(piece)).select([ROW, ID]).take(pa.array(local[first:last]))
        found.append(with_ids(table, slices[piece].source, int(bases[piece])).column(ID).combine_chunks())
    back = np.empty(len(rows), np.int64)
    back[order] = np.arange(len(rows))
    return pa.chunked_array(found).take(pa.array(back)).combine_chunks()


def _shown_file(file: SourceFile) -> str:
    return file.label or shown(file.path)


def _as_shown(entry: dict[str, Any], piece: Slice, base: int, lines_before: int) -> bytes:
    """The line of `rejected.jsonl` for a record's entry in the slice's own list."""
    in_text = entry["offset"] >= 0
    record = {
        "source": piece.source,
        "file": _shown_file(piece.parts[entry["part"]].file),
        "line": entry["line"] + 1 + (lines_before if in_text else 0),
    }
    if in_text:
        record["offset"] = entry["offset"]
    return orjson.dumps(record | {"doc": base + entry["row"], "error": entry["error"]}) + b"\n"


def write_rejected(
    path: Path, segment: Path, slices: Sequence[Slice], bases: np.ndarray, records: Sequence[SliceRecord]
) -> str:
    """`rejected.jsonl`: source, file, 1-based line, byte offset, position and error of each; gives its sha256."""
    with commit(path) as temporary, open(temporary, "wb") as out:
        lines_before: dict[str, int] = {}  # of files that are cut into several slices
        for piece, base, record in zip(slices, bases.tolist(), records, strict=True):
            before = lines_before.get(piece.parts[0].file.path, 0)
            if record.rejected:
                with open(piece_path(segment, piece.index, ".rejected.jsonl"), "rb") as entries:
                    out.writelines(_as_shown(orjson.loads(entry), piece, base, before) for entry in entries)
            lines_before[piece.parts[0].file.path] = before + record.lines
    return file_sha256(path)
